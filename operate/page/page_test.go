package page_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/api/auth"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/operate/history"
	"github.com/seed-86dfc502/weir/operate/page"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/store/sqlite"
	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { harness.Main(m) }

const (
	token  = "configured-token-0123456789"
	local  = "http://127.0.0.1:9600"
	script = `<script>alert(1)</script>`
)

// world is a page over a real store, without a pipeline.
type world struct {
	t     testing.TB
	store interface {
		page.Store
		store.Store
		store.Attempts
	}
	opt   page.Options
	page  *page.Page
	now   time.Time
	ready error

	conditions map[string]deliver.Condition
	registry   *prometheus.Registry
	process    operate.Process // as its history sees it
	problems   []operate.Item
	asked      []string // of pausing and probing

	beside sync.WaitGroup
}

func newWorld(t testing.TB, change func(*page.Options)) *world {
	dir := t.TempDir()
	files := map[string]string{
		"weir.yaml":           harness.SimpleMain,
		"customers/acme.yaml": "customer: acme\nprojections:\n  all:\n    fields: {id: id, state: state}\n    deliver:\n      out: {file: {path: ../out/acme.jsonl}}\n",
	}
	for name, text := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	cfg, err := assemble.Load(filepath.Join(dir, "weir.yaml"), nil)
	require.NoError(t, err)
	s, err := sqlite.Open(t.Context(), sqlite.Options{Path: filepath.Join(dir, "state.db")})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Migrate(t.Context()))
	w := &world{t: t, store: s, now: time.Unix(1_700_000_000, 0), registry: prometheus.NewRegistry()}
	w.conditions = map[string]deliver.Condition{"acme/all@out": {State: deliver.StatePaused, Pause: &deliver.Pause{Cause: deliver.PausedByRefusal}, Since: w.now.Add(-time.Hour), Error: "401 Unauthorized"}}
	w.opt = page.Options{
		Config: func() *config.Config { return cfg }, Store: s, History: history.New(history.Options{Registry: w.registry, Process: func() operate.Process { return w.process }, Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return w.now }}),
		Roles: []string{"ingest", "work"},
		Pause: func(_ context.Context, service string, on bool, actor, why string) error {
			w.asked = append(w.asked, fmt.Sprint(service, " ", on, " ", actor, " ", why))
			return nil
		},
		Probe: func(service string) bool { w.asked = append(w.asked, "probe "+service); return true },
		Tools: func(context.Context) (*operate.Env, error) { return nil, errors.New("the log is away") },
		Health: func() operate.Health {
			return operate.HealthOf(operate.Observed{Reason: "store", Blocked: w.ready, Since: w.now, Conditions: w.conditions, Problems: w.problems}, w.now)
		},
		Conditions:      func() map[string]deliver.Condition { return w.conditions },
		RunInBackground: func(f func(context.Context)) bool { w.beside.Go(func() { f(w.t.Context()) }); return true },
		Patience:        harness.Patience, Token: token, Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return w.now },
	}
	w.opt.Attempts = auth.NewAttempts("admin", prometheus.NewRegistry(), w.opt.Logger, w.opt.Now)
	if change != nil {
		change(&w.opt)
	}
	w.page = page.New(w.opt)
	t.Cleanup(w.beside.Wait) // before the store is closed
	return w
}

func (w *world) letter(payload string) int64 {
	w.t.Helper()
	require.NoError(w.t, w.store.AddLetters(w.t.Context(), []store.DeadLetter{{
		Stage: store.StageIngest, Code: "bad_json", Reason: script, Source: "events", Entity: script, EventID: script,
		Payload: []byte(payload), State: store.LetterOpen, DedupKey: fmt.Sprintf("%p%s", &payload, payload),
	}}))
	all, err := w.store.ListLetters(w.t.Context(), store.LetterFilter{})
	require.NoError(w.t, err)
	return all[len(all)-1].ID
}

// asks changes a request.
type asks func(*http.Request)

func header(name, value string) asks { return func(r *http.Request) { r.Header.Set(name, value) } }

func (w *world) do(method, path string, body io.Reader, as ...asks) *http.Response {
	w.t.Helper()
	r := httptest.NewRequestWithContext(w.t.Context(), method, local+path, body)
	for _, f := range as {
		f(r)
	}
	answer := httptest.NewRecorder()
	auth.Guard(true, w.page).ServeHTTP(answer, r)
	return answer.Result()
}

func (w *world) get(path string, as ...asks) (status int, body string) {
	w.t.Helper()
	resp := w.do("GET", path, nil, as...)
	return resp.StatusCode, text(w.t, resp)
}

func text(t testing.TB, resp *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(b)
}

func (w *world) post(path string, form url.Values, as ...asks) *http.Response {
	w.t.Helper()
	as = append([]asks{header("Content-Type", "application/x-www-form-urlencoded")}, as...)
	return w.do("POST", path, strings.NewReader(form.Encode()), as...)
}

var formToken = regexp.MustCompile(`name="form" value="([A-Z2-7]+)"`)

// signIn returns what makes a request one of a session, and its form's token.
func (w *world) signIn(secret string) (asks, string) {
	w.t.Helper()
	resp := w.post("/sign-in", url.Values{"name": {"ann"}, "token": {secret}, "next": {"/letters"}})
	require.Equal(w.t, http.StatusSeeOther, resp.StatusCode, text(w.t, resp))
	require.Equal(w.t, "/letters", resp.Header.Get("Location"))
	require.Len(w.t, resp.Cookies(), 1)
	cookie := resp.Cookies()[0]
	require.True(w.t, cookie.HttpOnly)
	require.Equal(w.t, http.SameSiteStrictMode, cookie.SameSite)
	require.Equal(w.t, int((8 * time.Hour).Seconds()), cookie.MaxAge)
	as := func(r *http.Request) { r.AddCookie(cookie) }
	status, body := w.get("/letters", as)
	require.Equal(w.t, 200, status)
	found := formToken.FindStringSubmatch(body)
	require.NotNil(w.t, found, body)
	return as, found[1]
}

var bearer = header("Authorization", "Bearer "+token)

// pages are all that can be read.
var pages = []string{"/", "/live/overview", "/services", "/live/services", oneService, "/live" + oneService, "/sources", "/live/sources", "/sources/events", "/history", "/live/history",
	"/entities", "/letters", "/letters/1", "/letters/1/payload", "/explain", "/explain?entity=B", "/replay", "/system", "/audit"}

func TestWhatComesFromEventsIsEscaped(t *testing.T) {
	w := newWorld(t, nil)
	payload := `{"x":"` + script + `</textarea>` + script + `"}`
	id := w.letter(payload)
	require.NoError(t, w.store.AddAudits(t.Context(), []store.Audit{{Actor: script, Action: script, Reason: script, Entity: script, Service: script, Detail: []byte(`{"x":"` + script + `"}`)}}))
	require.NoError(t, w.store.AddAttempts(t.Context(), []store.Attempt{{Entity: script, At: time.Now(), Outcome: "failed", Status: 500, Answer: []byte("answer " + script)}}))
	w.ready = errors.New(script)
	as, _ := w.signIn(token)
	_, told := w.get("/explain?entity="+url.QueryEscape(script), as)
	require.Contains(t, told, "answer &lt;script&gt;")
	for _, path := range []string{"/", "/live/overview", "/letters", fmt.Sprint("/letters/", id), "/audit", "/explain?entity=" + url.QueryEscape(script), "/letters?entity=" + url.QueryEscape(script), "/letters?code=" + url.QueryEscape(`"`+script)} {
		resp := w.do("GET", path, nil, as)
		body := text(t, resp)
		require.Equal(t, 200, resp.StatusCode, path)
		require.NotContains(t, body, script, path)
		require.NotContains(t, body, "</textarea><script", path)
		require.Contains(t, body, "&lt;script&gt;", path)
		require.Contains(t, resp.Header.Get("Content-Security-Policy"), "default-src 'none'; style-src 'self'; script-src 'self';")
		require.Equal(t, "nosniff", resp.Header.Get("X-Content-Type-Options"))
		require.Equal(t, "no-store", resp.Header.Get("Cache-Control"))
	}
	resp := w.do("GET", fmt.Sprint("/letters/", id, "/payload"), nil, as)
	require.Equal(t, payload, text(t, resp))
	require.Equal(t, "application/octet-stream", resp.Header.Get("Content-Type"))
	require.Contains(t, resp.Header.Get("Content-Disposition"), "attachment")

	binary := w.letter("\xff\x00\x01BIN")
	_, body := w.get(fmt.Sprint("/letters/", binary), as)
	require.Contains(t, body, "ff 00 01 42 49 4e")
}

// A text whose marks turn it around looks like another: they are shown.
func TestMarksOfDirectionAreShown(t *testing.T) {
	w := newWorld(t, nil)
	const marked, shown = "a\u202Eb\u2066c", "a[U+202E]b[U+2066]c"
	id := w.letter(`{"x":"` + marked + `"}`)
	require.NoError(t, w.store.AddAudits(t.Context(), []store.Audit{{Actor: marked, Action: marked, Reason: marked, Entity: marked, Service: marked, Detail: []byte(`{"x":"` + marked + `"}`)}}))
	as, _ := w.signIn(token)
	for _, path := range []string{fmt.Sprint("/letters/", id), "/audit", "/explain?entity=" + url.QueryEscape(marked), "/letters?entity=" + url.QueryEscape(marked)} {
		_, body := w.get(path, as)
		written := regexp.MustCompile(`<[^>]*>`).ReplaceAllString(body, "")
		require.NotContains(t, written, "\u202E", path)
		require.NotContains(t, written, "\u2066", path)
	}
	_, body := w.get(fmt.Sprint("/letters/", id), as)
	require.Contains(t, body, shown)
	_, body = w.get("/letters?entity="+url.QueryEscape(marked), as)
	require.Contains(t, body, `value="`+marked+`"`, "a field sends what it was given")
	resp := w.do("GET", fmt.Sprint("/letters/", id, "/payload"), nil, as)
	require.Contains(t, text(t, resp), marked, "saved it is as it was")
}

func TestManyLetters(t *testing.T) {
	w := newWorld(t, nil)
	for i := range 120 {
		w.letter(fmt.Sprint("{", i))
	}
	as, form := w.signIn(token)
	_, body := w.get("/letters", as)
	require.Equal(t, 50, strings.Count(body, `type="checkbox"`))
	require.Less(t, strings.Index(body, `href="/letters/120"`), strings.Index(body, `href="/letters/71"`), "the newest first")
	next := regexp.MustCompile(`href="(/letters\?[^"]+)">Next`).FindStringSubmatch(body)
	require.NotNil(t, next)
	_, body = w.get(strings.ReplaceAll(next[1], "&amp;", "&"), as)
	require.Contains(t, body, `href="/letters/70"`)
	all := url.Values{"form": {form}, "do": {"discard-all"}, "code": {"bad_json"}, "reason": {"broken producer"}}
	body = text(t, w.post("/letters", all, as))
	require.Contains(t, body, "120 open dead letters, code bad_json: discard all of them?")
	counts, err := w.store.CountLetters(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 120, counts[store.StageIngest], "it was only asked")
	all.Set("sure", "yes")
	require.Contains(t, text(t, w.post("/letters", all, as)), "120 dead letters are discarded")
	counts, err = w.store.CountLetters(t.Context())
	require.NoError(t, err)
	require.Zero(t, counts[store.StageIngest])
	for _, values := range []url.Values{{"do": {"discard"}}, {"do": {"x"}}, {"do": {"replay"}, "id": {"x"}}} {
		values.Set("form", form)
		require.Equal(t, 400, w.post("/letters", values, as).StatusCode)
	}
	resp := w.post("/letters", url.Values{"form": {form}, "do": {"replay"}, "id": {"1"}}, as)
	require.Equal(t, 503, resp.StatusCode)
	require.Contains(t, text(t, resp), "the log is away")
}

func TestAuditPagesBackwards(t *testing.T) {
	w := newWorld(t, nil)
	_, body := w.get("/audit", bearer)
	require.Contains(t, body, "No operator did anything yet")
	const n = 357
	for i := range n {
		require.NoError(t, w.store.AddAudits(t.Context(), []store.Audit{{Actor: "a", Action: fmt.Sprintf("act-%d-", i), Detail: []byte("{}")}}))
	}
	var seen []string
	for path := "/audit"; path != ""; {
		status, body := w.get(path, bearer)
		require.Equal(t, 200, status)
		seen = append(seen, regexp.MustCompile(`>act-\d+-`).FindAllString(strings.ReplaceAll(body, "<wbr>", ""), -1)...)
		path = ""
		if older := regexp.MustCompile(`href="(/audit\?[^"]+)">Older`).FindStringSubmatch(body); older != nil {
			path = older[1]
		}
	}
	require.Len(t, seen, n)
	for i, s := range seen {
		require.Equal(t, fmt.Sprintf(">act-%d-", n-1-i), s)
	}
}

// A replay is one row with its count, and rows are filtered.
func TestAuditFoldsAndFilters(t *testing.T) {
	w := newWorld(t, nil)
	detail := func(operation, state string, n int) []byte {
		return fmt.Appendf(nil, `{"operation":%q,"state":%q,"entities":%d,"task":null}`, operation, state, n)
	}
	require.NoError(t, w.store.AddAudits(t.Context(), []store.Audit{
		{Actor: "ann", Action: "replay", Detail: detail("job-1", "begun", 0)}, {Actor: "ann", Action: "replay", Detail: detail("job-1", "done", 1234)},
		{Actor: "bob", Action: "reset", Detail: detail("job-2", "begun", 0)}, {Actor: "bob", Action: "pause", Service: "acme/all@out"},
	}))
	ids := func(path string) (found []string) {
		_, body := w.get(path, bearer)
		for _, m := range regexp.MustCompile(`data-label="id">(\d+)<`).FindAllStringSubmatch(body, -1) {
			found = append(found, m[1])
		}
		return found
	}
	require.Equal(t, []string{"4", "3", "2"}, ids("/audit"), "the end of job 1, the begin of job 2")
	_, body := w.get("/audit?action=replay", bearer)
	require.Contains(t, strings.ReplaceAll(body, "<wbr>", ""), `<span class="weak">entities</span> <span class="whole">1,234</span>`)
	require.Equal(t, []string{"2"}, ids("/audit?action=replay"))
	require.Equal(t, []string{"4", "3"}, ids("/audit?actor=bob"))
	require.Equal(t, []string{"4"}, ids("/audit?service="+url.QueryEscape("acme/all@out")))
	_, body = w.get("/audit?entity=none", bearer)
	require.Contains(t, body, "No such action is on record.")
	status, _ := w.get("/audit?before=x", bearer)
	require.Equal(t, 400, status)
}

func TestServicesAndOverview(t *testing.T) {
	w := newWorld(t, nil)
	deliveries := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_deliveries_total", Help: "x"}, []string{"service", "outcome"})
	w.registry.MustRegister(deliveries)
	deliveries.WithLabelValues("acme/all@out", "delivered").Add(1000)
	_, body := w.get("/services", bearer)
	require.Contains(t, body, `<span class="pill bad" title="401 Unauthorized">paused: refused</span>`)
	require.Contains(t, body, `data-label="delivered">1,000</td>`)
	require.Contains(t, body, `data-label="delivered per second">–</td>`, "one look gives no rate")
	w.now = w.now.Add(2 * time.Second)
	deliveries.WithLabelValues("acme/all@out", "delivered").Add(50)
	_, body = w.get("/live/services", bearer)
	require.Contains(t, body, `data-label="delivered per second">25</td>`)
	_, body = w.get("/", bearer)
	require.Contains(t, body, `<span class="bad">1 down</span>`)
	require.NotContains(t, body, ">Ready<")
	for _, told := range []string{"down, paused: refused", "401 Unauthorized", "2023-11-14 21:13:20", "or ask its operator"} {
		require.Contains(t, body, told)
	}
	w.conditions["acme/all@out"] = deliver.Condition{
		State: deliver.StateRetrying, Since: w.now.Add(-time.Hour), Error: "connection refused", NextTry: w.now.Add(time.Minute), Parked: deliver.Parked{Oldest: w.now.Add(-2 * time.Hour)},
	}
	_, body = w.get("/", bearer)
	require.Contains(t, body, "next try <time")
	require.Contains(t, body, "the oldest for <time")
	require.NotContains(t, body, "more with the same error")
	w.conditions["acme/all@other"] = w.conditions["acme/all@out"]
	_, body = w.get("/", bearer)
	require.Contains(t, body, "and 1 more with the same error")
	require.Equal(t, 1, strings.Count(body, "connection refused"), "one incident")
	require.Contains(t, body, `<span class="bad">2 down</span>`)
	delete(w.conditions, "acme/all@other")
	w.ready = errors.New("the store does not answer")
	_, body = w.get("/", bearer)
	require.Contains(t, body, "Not ready")
	require.Contains(t, body, "the store does not answer")
	w.now = w.now.Add(time.Hour)
	_, body = w.get("/live/services", bearer)
	require.Contains(t, body, `data-label="delivered per second">–</td>`, "an old look says nothing of now")
}
