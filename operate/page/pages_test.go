package page_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/operate/page"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
)

const oneService = "/service?name=acme%2Fall%40out"

// Third-party files are unchanged.
func TestLibrariesAreUnchanged(t *testing.T) {
	for _, folder := range []string{"static/uplot", "testdata/axe"} {
		readme, err := os.ReadFile(filepath.Join(folder, "README.md"))
		require.NoError(t, err)
		require.FileExists(t, filepath.Join(folder, "LICENSE"))
		rows := regexp.MustCompile(`\| (\S+) \| ([0-9a-f]{64}) \|`).FindAllSubmatch(readme, -1)
		require.NotEmpty(t, rows)
		for _, row := range rows {
			text, err := os.ReadFile(filepath.Join(folder, string(row[1])))
			require.NoError(t, err)
			sum := sha256.Sum256(text)
			require.Equal(t, string(row[2]), hex.EncodeToString(sum[:]), string(row[1]))
		}
	}
}

// A link signs in once, for a limited time, and only if there is a token.
func TestLoginLink(t *testing.T) {
	w := newWorld(t, nil)
	path := w.page.LoginPath("ann@here")
	resp := w.do("GET", path, nil)
	require.Equal(t, http.StatusSeeOther, resp.StatusCode)
	require.Equal(t, "/", resp.Header.Get("Location"))
	require.Len(t, resp.Cookies(), 1)
	cookie := resp.Cookies()[0]
	require.True(t, cookie.HttpOnly)
	require.Equal(t, http.SameSiteStrictMode, cookie.SameSite)
	status, body := w.get("/letters", func(r *http.Request) { r.AddCookie(cookie) })
	require.Equal(t, 200, status)
	require.Contains(t, body, "ann@here")

	for _, used := range []string{path, "/sign-in?token=" + token, "/sign-in?token=nobody-gave-this"} {
		resp = w.do("GET", used, nil)
		require.Equal(t, http.StatusForbidden, resp.StatusCode, used)
		require.Empty(t, resp.Cookies())
		require.NotContains(t, text(t, resp), strings.TrimPrefix(used, "/sign-in?token="), "it is not repeated")
	}
	late := w.page.LoginPath("ann@here")
	w.now = w.now.Add(15 * time.Minute)
	require.Equal(t, http.StatusForbidden, w.do("GET", late, nil).StatusCode)
	oldest := w.page.LoginPath("ann@here")
	for range 16 {
		w.now = w.now.Add(time.Second)
		late = w.page.LoginPath("ann@here")
	}
	require.Equal(t, http.StatusForbidden, w.do("GET", oldest, nil).StatusCode, "there are not more than 16")
	require.Equal(t, http.StatusSeeOther, w.do("GET", late, nil).StatusCode)
	open := newWorld(t, func(o *page.Options) { o.Token = "" })
	require.Empty(t, open.page.LoginPath("ann@here"), "without a token nobody signs in")
}

// A bearer token signs in: the forms are there, and work.
func TestABearerTokenIsSignedIn(t *testing.T) {
	w := newWorld(t, nil)
	w.letter("{")
	for _, path := range []string{"/letters", "/letters/1", "/replay", oneService} {
		status, body := w.get(path, bearer)
		require.Equal(t, 200, status, path)
		require.Contains(t, body, `method="post"`, path)
		require.NotContains(t, body, "Reading only", path)
	}
	resp := w.post("/letters", url.Values{"do": {"discard"}, "id": {"1"}}, bearer)
	require.Equal(t, 200, resp.StatusCode)
	require.Contains(t, text(t, resp), "1 dead letter is discarded")
}

func TestAServiceIsPausedResumedAndProbed(t *testing.T) {
	w := newWorld(t, nil)
	as, form := w.signIn(token)
	act := func(do, service, why string, as ...asks) *http.Response {
		return w.post("/service", url.Values{"form": {form}, "do": {do}, "service": {service}, "reason": {why}}, as...)
	}
	for _, do := range []string{"pause", "resume", "retry-now"} {
		require.Equal(t, 403, act(do, "acme/all@out", "").StatusCode, "nobody is signed in")
		resp := act(do, "acme/all@out", "they move", as)
		require.Equal(t, http.StatusSeeOther, resp.StatusCode)
		require.Equal(t, oneService, resp.Header.Get("Location"))
		require.Equal(t, 404, act(do, "acme/none@out", "", as).StatusCode)
		require.Equal(t, 409, act(do, "acme/all@out", strings.Repeat("x", 501), as).StatusCode)
	}
	require.Equal(t, 400, act("x", "acme/all@out", "", as).StatusCode)
	require.Equal(t, 403, w.post("/service", url.Values{"do": {"pause"}, "service": {"acme/all@out"}}, as).StatusCode, "a form of another session")
	require.Equal(t, []string{"acme/all@out true ann@192.0.2.1 they move", "acme/all@out false ann@192.0.2.1 they move", "probe acme/all@out"}, w.asked)

	_, body := w.get(oneService, as)
	require.Contains(t, body, `value="pause"`)
	require.Contains(t, body, `value="retry-now"`)
	require.NotContains(t, body, `value="resume"`)
	w.conditions["acme/all@out"] = deliver.Condition{State: deliver.StatePaused, Since: w.now, Pause: deliver.PauseOf(store.Pause{Actor: script, Reason: script})}
	_, body = w.get(oneService, as)
	require.NotContains(t, body, `value="pause"`)
	require.Contains(t, body, `value="resume"`)
	require.Contains(t, body, "paused by ")
	require.NotContains(t, body, script)
	held := store.Pause{Actor: script, Reason: script, Hold: &store.Hold{Kind: store.GuardRetract, Limit: 50}}
	w.conditions["acme/all@out"] = deliver.Condition{State: deliver.StatePaused, Since: w.now, Pause: deliver.PauseOf(held)}
	_, body = w.get(oneService, as)
	require.NotContains(t, body, `value="resume"`)
	for _, do := range []string{operate.Release, operate.Discard, operate.Extend} {
		require.Contains(t, body, `value="`+do+`"`)
	}
	require.Contains(t, body, "held by the guard")
	require.Contains(t, body, "No samples: the guard does not hold acme/all@out")
	require.NotContains(t, body, script)
}

// A service's page has what one needs to act: the error in full, the letters by
// their reason, the configuration.
func TestAServicesPage(t *testing.T) {
	w := newWorld(t, nil)
	w.conditions["acme/all@out"] = deliver.Condition{
		State: deliver.StatePaused, Pause: &deliver.Pause{Cause: deliver.PausedByRefusal}, Since: w.now.Add(-time.Hour), Error: script, Detail: strings.Repeat("long ", 300) + script,
	}
	require.NoError(t, w.store.AddLetters(t.Context(), []store.DeadLetter{
		{Stage: store.StageDeliver, Service: "acme/all@out", Code: "refused", Reason: script, DedupKey: "1"},
		{Stage: store.StageDeliver, Service: "acme/all@out", Code: "refused", Reason: script, DedupKey: "2"},
		{Stage: store.StageDeliver, Service: "acme/all@other", Code: "refused", Reason: "another", DedupKey: "3"},
	}))
	_, body := w.get(oneService, bearer)
	require.Contains(t, body, "Attempts of this service are not kept")
	numbers, err := w.store.Services(t.Context(), []string{"acme/all@out", "acme/all@other"})
	require.NoError(t, err)
	require.NoError(t, w.store.AddAttempts(t.Context(), []store.Attempt{
		{Service: numbers["acme/all@out"], Entity: script, At: w.now, Outcome: "paused", Status: 401, Answer: []byte("answer " + script), Took: 7 * time.Millisecond},
		{Service: numbers["acme/all@other"], Entity: "B", At: w.now, Outcome: "delivered", Status: 299},
	}))
	status, body := w.get(oneService, bearer)
	require.Equal(t, 200, status)
	require.NotContains(t, body, script)
	require.NotContains(t, body, ">299<")
	for _, told := range []string{">401<", "answer &lt;script&gt;", "7 ms", strings.Repeat("long ", 300), "or ask its operator", "2023-11-14 21:13:20", "refused", ">2</a>", "acme.yaml:", "file, keeps every change"} {
		require.Contains(t, strings.ReplaceAll(body, "<wbr>", ""), told)
	}
	require.NotContains(t, body, "another")
	status, _ = w.get("/service?name=acme/none@out", bearer)
	require.Equal(t, 404, status)
	status, _ = w.get("/live/service?name=acme/none@out", bearer)
	require.Equal(t, 404, status)
}

// What sources and states hold is text, wherever it is shown.
func TestNewPagesEscape(t *testing.T) {
	w := newWorld(t, nil)
	w.problems = []operate.Item{{What: "source events", Level: operate.LevelDown, Why: script, Do: "bring it back"}}
	w.ready = errors.New(script)
	w.letter(script)
	require.NoError(t, w.store.UpdateReport(t.Context(), "process", "p", func([]byte) ([]byte, error) {
		return fmt.Appendf(nil, `{"name":%q,"roles":%q,"version":%q,"level":"down","error":%q}`, script, script, script, script), nil
	}))
	for _, path := range []string{
		"/", "/sources", "/sources/events", "/entities?q=" + url.QueryEscape(script), "/letters", "/system", "/services?q=" + url.QueryEscape(script),
		"/replay?entity=" + url.QueryEscape(script),
	} {
		status, body := w.get(path, bearer)
		require.Equal(t, 200, status, path)
		require.NotContains(t, body, script, path)
		require.Contains(t, body, "&lt;script&gt;", path)
	}
	_, body := w.get("/live/history?kind=service&name="+url.QueryEscape(script)+"&page="+url.QueryEscape("javascript:alert(1)"), bearer)
	require.NotContains(t, body, script)
	require.NotContains(t, body, "javascript:")
}

// Where nothing happened yet a page says so.
func TestEmptyPages(t *testing.T) {
	w := newWorld(t, nil)
	w.conditions = map[string]deliver.Condition{}
	for path, says := range map[string]string{
		"/entities": "No entity is stored yet", "/letters": "No open dead letters here.",
		"/audit": "No operator did anything yet", "/replay": "No replay or reset was begun yet.", "/system": "No process has reported yet.", "/history": "Nothing happened in this time.",
		"/sources/events": "Nothing was seen yet", oneService: "No dead letters.", "/": "Ready",
	} {
		status, body := w.get(path, bearer)
		require.Equal(t, 200, status, path)
		require.Contains(t, body, says, path)
	}
	for _, path := range []string{"/sources/none", "/none", "/letters/none/x"} {
		status, body := w.get(path, bearer)
		require.Equal(t, 404, status, path)
		require.Contains(t, body, `<nav aria-label="Pages"`, "within the frame")
	}
}

// With any number of services there is one picture, with the problems in it.
func TestTwoHundredServices(t *testing.T) {
	s := newScene(t, 200, 300)
	_, body := s.get("/", bearer)
	require.LessOrEqual(t, strings.Count(body, `class="node`), 2*(7+3+9), "two pictures")
	for _, told := range []string{"more customers", ">acme<", ">Problems<", `class="node bad"`, "token expired", `class="edge bad"`} {
		require.Contains(t, body, told)
	}
	stuck, flow := strings.Index(body, ">Problems<"), strings.Index(body, `id="flow"`)
	require.Less(t, stuck, flow, "first of all")
	_, body = s.get("/services", bearer)
	require.Equal(t, 200, strings.Count(body, `<th scope="row">`))
	require.Less(t, strings.Index(body, ">paused: refused<"), strings.Index(body, ">running<"), "those that are not well first")
	_, body = s.get("/services?only=unwell", bearer)
	require.Equal(t, 2, strings.Count(body, `<th scope="row">`))
	_, body = s.get("/services?customer=zest&q=PRICE", bearer)
	require.Equal(t, 1, strings.Count(body, `<th scope="row">`))
	_, body = s.get("/letters?code=bad_json", bearer)
	require.Contains(t, body, "<option selected>bad_json")
	require.Contains(t, body, "<option>refused")
	require.Equal(t, 50, strings.Count(body, `name="id"`))
	_, body = s.get("/explain?entity=B-000001", bearer)
	require.Equal(t, 200, strings.Count(body, `<section class="card"><h3>`))
	require.Less(t, strings.Index(body, ">refused</span>"), strings.Index(body, ">not yet sent</span>"), "what asks for somebody first")
	require.Contains(t, body, "<summary>188 more services: 188 not yet sent</summary>")
}

// A process says which stages others run, and does not show zeros for them.
func TestStagesOfOtherProcesses(t *testing.T) {
	w := newWorld(t, func(o *page.Options) { o.Roles = []string{"work"} })
	_, body := w.get("/", bearer)
	require.Equal(t, 2*2, strings.Count(body, `class="node away`), "a source and a stage, in a picture and a list")
	require.Contains(t, body, `<span class="weak">at most, in the inbox, for customers</span>`, "what is waiting is what this process sees")
	for path, told := range map[string]string{"/sources": `<td class="n" data-label="ingested">–</td>`, "/sources/events": "not read here"} {
		_, body = w.get(path, bearer)
		require.Contains(t, body, told, path)
	}
	s := newScene(t, 3, 0)
	_, body = s.get("/system", bearer)
	require.Contains(t, body, ">110/s ingested<")
	require.Contains(t, body, "61/s delivered<")
	require.NotContains(t, body, "19/s", "a silent process has no rate")
	w.opt.Roles, w.conditions = []string{"ingest"}, nil
	w.page = page.New(w.opt)
	_, body = w.get("/services", bearer)
	require.Contains(t, body, `<td class="n" data-label="delivered">–</td>`)
	require.Contains(t, body, `<td class="n" data-label="held back">–</td>`)
	_, body = w.get(oneService, bearer)
	require.Contains(t, body, "not decided in this process")
}

// A table has the numbers of the plots, for the chosen range.
func TestHistoryTable(t *testing.T) {
	w := newWorld(t, nil)
	w.now = time.Date(2026, 3, 4, 10, 20, 30, 0, time.UTC)
	sent := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_decisions_total", Help: "x"}, []string{"service", "decision"})
	w.registry.MustRegister(sent)
	sent.WithLabelValues("acme/all@out", "sent").Add(120)
	require.NoError(t, w.opt.History.Sample())
	w.now = w.now.Add(time.Minute)
	require.NoError(t, w.opt.History.Sample())
	for name, rows := range map[string]int{"15m": 59, "1h": 60, "6h": 72, "24h": 96, "nonsense": 60, "": 60} {
		_, body := w.get(oneService+"&range="+name, bearer)
		require.Equal(t, rows, strings.Count(body, "data-t="), name)
	}
	_, body := w.get("/live/history?kind=service&name=acme/all@out&page=/service&range=1h", bearer)
	require.Contains(t, body, `<th scope="row" data-t="1772619600"><time datetime="2026-03-04T10:20:00Z">2026-03-04 10:20:00</time></th><td class="n" data-v="2">2</td>`)
	require.Contains(t, body, `href="/service?range=24h"`)
	_, body = w.get("/live/history?kind=services", bearer)
	require.Contains(t, body, `data-v="2"`)
}

// Entities are found by the beginning of their ids, page by page.
func TestEntitiesAreSearched(t *testing.T) {
	s := newScene(t, 3, 0)
	rows := func(body string) []string {
		var ids []string
		for _, m := range regexp.MustCompile(`/explain\?entity=([^"]+)"`).FindAllStringSubmatch(body, -1) {
			ids = append(ids, m[1])
		}
		return ids
	}
	_, body := s.get("/entities?q=B-", bearer)
	require.Len(t, rows(body), 50)
	next := regexp.MustCompile(`href="(/entities\?[^"]+)">Next`).FindStringSubmatch(body)
	require.NotNil(t, next)
	_, body = s.get(strings.ReplaceAll(next[1], "&amp;", "&"), bearer)
	require.Len(t, rows(body), 10)
	require.NotContains(t, body, ">Next")
	_, body = s.get("/entities?q=B-000007", bearer)
	require.Equal(t, []string{"B-000007"}, rows(body))
	_, body = s.get("/entities?q=B-00001", bearer)
	require.Len(t, rows(body), 10)
}

// A replay that cannot be asked for is refused before anything is looked at.
func TestWhatIsNoTask(t *testing.T) {
	w := newWorld(t, nil)
	as, form := w.signIn(token)
	for says, values := range map[string]url.Values{
		"Choose what to do.":                   {"kind": {"x"}},
		"Choose which entities.":               {"which": {"x"}},
		"Name at least one entity.":            {"list": {" \r\n"}},
		"Say since when.":                      {"which": {"since"}},
		"is no date and time":                  {"which": {"since"}, "since": {"x"}},
		"-1&#34; is no number of entities per": {"which": {"all"}, "rate": {"-1"}},
		"NaN&#34; is no number of entities":    {"which": {"all"}, "rate": {"NaN"}},
		"Inf&#34; is no number of entities":    {"which": {"all"}, "rate": {"Inf"}},
		"A reason is text of at most 500":      {"which": {"all"}, "reason": {strings.Repeat("x", 501)}},
	} {
		values.Set("form", form)
		resp := w.post("/replay", values, as)
		require.Equal(t, 409, resp.StatusCode, says)
		require.Contains(t, text(t, resp), says)
	}
	require.Equal(t, 403, w.post("/replay", url.Values{"which": {"all"}}).StatusCode)
	resp := w.post("/replay", url.Values{"form": {form}, "which": {"all"}}, as)
	require.Equal(t, 503, resp.StatusCode)
	require.Contains(t, text(t, resp), "the log is away")
}

// A renamed service has its current name in texts and fields, its first one in addresses.
func TestARenamedServiceHasItsCurrentName(t *testing.T) {
	const first = "old/view@sink"
	w := newWorld(t, func(o *page.Options) {
		cfg := *o.Config()
		cfg.Projections = slices.Clone(cfg.Projections)
		deliver := slices.Clone(cfg.Projections[0].Deliver)
		deliver[0].Was, cfg.Projections[0].Deliver = first, deliver
		o.Config = func() *config.Config { return &cfg }
	})
	w.conditions = map[string]deliver.Condition{first: {State: deliver.StateRetrying, Since: w.now, Error: "connection refused"}}
	require.NoError(t, w.store.AddLetters(t.Context(), []store.DeadLetter{{Stage: store.StageDeliver, Service: first, Code: "refused", Reason: "too ripe", DedupKey: "1", State: store.LetterOpen}}))
	const link = "/service?name=old%2Fview%40sink"
	for _, path := range []string{"/", "/services?q=ACME/ALL", "/services?customer=acme", link, "/letters", "/letters?service=acme/all@out", "/letters/1"} {
		status, body := w.get(path, bearer)
		require.Equal(t, 200, status)
		body = strings.ReplaceAll(body, "<wbr>", "")
		require.Contains(t, body, ">acme/all@out<", path)
		require.NotContains(t, body, ">"+first+"<", path)
	}
	_, body := w.get("/services?q=old", bearer)
	require.NotContains(t, body, link)
}
