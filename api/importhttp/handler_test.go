package importhttp

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/api"
	"github.com/seed-86dfc502/weir/api/auth"
	"github.com/seed-86dfc502/weir/imports"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/store/sqlite"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const maxFile = 10_000

// world is the routes over a real store. The bearer token names the caller.
type world struct {
	*testing.T
	server   *httptest.Server
	store    *sqlite.Store
	importer *imports.Importer
	down     bool
}

var callers = map[string]auth.Principal{
	"acme":   {ID: "a1", Tenant: "acme", Permissions: []auth.Permission{auth.Import}, Sources: []string{auth.AllSources}},
	"narrow": {ID: "a2", Tenant: "acme", Permissions: []auth.Permission{auth.Import}, Sources: []string{"registry"}},
	"zest":   {ID: "z1", Tenant: "zest", Permissions: []auth.Permission{auth.Import}, Sources: []string{auth.AllSources}},
	"pusher": {ID: "a3", Tenant: "acme", Permissions: []auth.Permission{auth.Ingest}, Sources: []string{auth.AllSources}},
}

type bearer struct{}

func (bearer) Authenticate(r *http.Request) (auth.Principal, error) {
	who, ok := callers[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
	if !ok {
		return who, auth.ErrUnauthenticated
	}
	return who, nil
}

// failing is a store that is away.
type failing struct {
	store.Imports
	a *world
}

func (f failing) BeginImport(ctx context.Context, i store.Import, most int) (store.Import, error) {
	if f.a.down {
		return i, store.WithClass(errors.New("away"), store.Fatal)
	}
	return f.Imports.BeginImport(ctx, i, most)
}

// intake accepts rows, but for those of one word.
type intake struct{}

func (intake) Take(_ context.Context, _ store.Import, rows []imports.Row) ([]imports.Result, error) {
	results := make([]imports.Result, len(rows))
	for n, r := range rows {
		if results[n].Status = imports.Accepted; string(r.Value) == "wrong" {
			results[n] = imports.Result{Status: imports.Invalid, Reason: `a "reason", with <commas>`}
		}
	}
	return results, nil
}

func newAPI(t *testing.T) *world {
	s, err := sqlite.Open(t.Context(), sqlite.Options{Path: filepath.Join(t.TempDir(), "state.db")})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Migrate(t.Context()))
	a := &world{T: t, store: s}
	log := slog.New(slog.DiscardHandler)
	door := api.New(api.Options{Access: bearer{}, Registry: prometheus.NewRegistry(), Logger: log, MaxBody: 100})
	a.importer = imports.NewImporter(imports.ImporterOptions{Store: failing{s, a}, Intake: intake{}, Logger: log, Metrics: imports.NewMetrics(prometheus.NewRegistry())})
	h := New(Options{
		Store: failing{s, a}, Importer: func() *imports.Importer { return a.importer }, MaxFile: maxFile, MaxOpen: 3, Logger: log,
		MaxRow: func(source string) (int, bool) { return 1000, source == "lab" || source == "registry" },
	})
	h.Mount(door)
	routes := http.NewServeMux()
	routes.Handle("/", door)
	routes.HandleFunc("POST /operator", h.ServeOperator)
	a.server = httptest.NewServer(routes)
	t.Cleanup(a.server.Close)
	return a
}

// do sends a request; headers are name and value in turn.
func (a *world) do(who, method, path string, body io.Reader, headers ...string) (*http.Response, string) {
	a.Helper()
	r, err := http.NewRequestWithContext(a.Context(), method, a.server.URL+path, body)
	require.NoError(a, err)
	r.Header.Set("Authorization", "Bearer "+who)
	for n := 0; n < len(headers); n += 2 {
		r.Header.Set(headers[n], headers[n+1])
	}
	resp, err := a.server.Client().Do(r)
	require.NoError(a, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(a, err)
	return resp, string(text)
}

// post sends a file and wants a job.
func (a *world) post(who, path, kind, body string, status int) imports.Job {
	a.Helper()
	resp, text := a.do(who, http.MethodPost, path, strings.NewReader(body), "Content-Type", kind)
	require.Equal(a, status, resp.StatusCode, text)
	var j imports.Job
	require.NoError(a, json.Unmarshal([]byte(text), &j))
	require.Equal(a, "/v1/imports/"+j.ID, resp.Header.Get("Location"))
	return j
}

const jsonl = "application/x-ndjson"

func TestAFileIsOneJob(t *testing.T) {
	a := newAPI(t)
	const file, sum = "{\"a\":1}\n{}\n", "09b17cd2d35bdf2d6ad8ae6e1b65f3a5c1dbe2a5fbc5e9a83a1b7a5b4b0b1f5d"
	j := a.post("acme", "/v1/imports?source=lab&file=id:monday&name=monday.jsonl", jsonl, file, http.StatusOK)
	require.Equal(t, "done", j.State)
	require.Equal(t, "id:monday", j.File)
	require.Equal(t, "monday.jsonl", j.Name)
	require.Equal(t, "token a1", j.Actor)
	require.EqualValues(t, 11, j.Bytes)
	require.EqualValues(t, 2, j.Accepted)
	require.Equal(t, j.ID, a.post("acme", "/v1/imports?source=lab&file=id:monday&format=jsonl", jsonl, file, http.StatusOK).ID)
	require.NotEqual(t, j.ID, a.post("zest", "/v1/imports?source=lab&file=id:monday", jsonl, file, http.StatusOK).ID)
	c := a.post("acme", "/v1/imports?source=lab&file=id:c&delimiter=%3B&types=n:number&empty=null", "text/csv; charset=UTF-8", "a;n\nx;1\n", http.StatusOK)
	require.Equal(t, "csv", c.Format)
	require.JSONEq(t, `{"delimiter":";","types":{"n":"number"},"empty_null":true}`, string(c.Options))
	require.Equal(t, "csv", a.post("acme", "/v1/imports?source=lab&file=id:d&format=csv", "application/octet-stream", "a\nx\n", http.StatusOK).Format)
	resp, text := a.do("acme", http.MethodPost, "/v1/imports?source=lab&file=sha256:"+sum, strings.NewReader(file), "Content-Type", jsonl)
	require.Equal(t, http.StatusUnprocessableEntity, resp.StatusCode, "it is not the file's")
	require.Contains(t, text, fmt.Sprintf("%x", sha256.Sum256([]byte(file))))
	require.NotEmpty(t, resp.Header.Get("Location"))
	h := a.post("acme", fmt.Sprintf("/v1/imports?source=lab&file=sha256:%x", sha256.Sum256([]byte(file))), jsonl, file, http.StatusOK)
	require.Equal(t, fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(file))), h.File)
	// A command says whose job it is.
	o := a.post("", "/operator?source=lab&file=id:monday&tenant=acme&actor=ann", jsonl, file, http.StatusOK)
	require.Equal(t, j.ID, o.ID)
	resp, text = a.do("", http.MethodPost, "/operator?source=lab&file=id:monday&tenant=acme", strings.NewReader(file), "Content-Type", jsonl)
	require.Equal(t, http.StatusUnprocessableEntity, resp.StatusCode, text)
}

func TestFilesThatAreRefused(t *testing.T) {
	a := newAPI(t)
	const ok = "/v1/imports?source=lab&file=id:x"
	for name, c := range map[string]struct {
		who, path, kind, body string
		status                int
		says                  string
	}{
		"no token":        {who: "x", path: ok, kind: jsonl, status: 401},
		"verb":            {who: "pusher", path: ok, kind: jsonl, status: 403},
		"source":          {who: "narrow", path: ok, kind: jsonl, status: 403},
		"secret source":   {who: "narrow", path: "/v1/imports?source=nobody&file=id:x", kind: jsonl, status: 403},
		"no such source":  {path: "/v1/imports?source=nobody&file=id:x", kind: jsonl, status: 404},
		"no id":           {path: "/v1/imports?source=lab", kind: jsonl, status: 422, says: "file must be sha256:"},
		"no hash":         {path: "/v1/imports?source=lab&file=sha256:xyz", kind: jsonl, status: 422, says: "64 hexadecimal digits"},
		"UTF-16":          {path: ok, kind: jsonl, body: "\xff\xfe{\x00", status: 422, says: "the file is UTF-16"},
		"no source":       {path: "/v1/imports?file=id:x", kind: jsonl, status: 422, says: "name the source"},
		"kind":            {path: ok, kind: "application/json", status: 415},
		"no kind":         {path: ok, kind: "", status: 415},
		"charset":         {path: ok, kind: "text/csv; charset=latin1", status: 415},
		"no format":       {path: ok, kind: "application/octet-stream", status: 422, says: "the format must be"},
		"contradiction":   {path: ok + "&format=csv", kind: jsonl, status: 422, says: "contradict"},
		"parameter":       {path: ok + "&sourc=x", kind: jsonl, status: 422, says: "may have each of"},
		"twice":           {path: ok + "&source=x", kind: jsonl, status: 422, says: "may have each of"},
		"query":           {path: ok + "&name=%zz", kind: jsonl, status: 422, says: "not readable"},
		"type":            {path: ok + "&types=a:date", kind: "text/csv", status: 422, says: "type of a column"},
		"types":           {path: ok + "&types=a", kind: "text/csv", status: 422, says: "column:type"},
		"delimiter":       {path: ok + "&delimiter=ab", kind: "text/csv", status: 422, says: "delimiter"},
		"empty":           {path: ok + "&empty=maybe", kind: "text/csv", status: 422, says: "text or null"},
		"options of csv":  {path: ok + "&empty=null", kind: jsonl, status: 422, says: "options of csv"},
		"name":            {path: ok + "&name=" + strings.Repeat("x", 300), kind: jsonl, status: 422, says: "name is longer"},
		"header":          {path: ok, kind: "text/csv", body: "a,a\n", status: 422, says: "another column has the same place"},
		"no header":       {path: ok, kind: "text/csv", body: "", status: 422, says: "the file is empty"},
		"size":            {path: ok, kind: jsonl, body: strings.Repeat("{}\n", maxFile/2), status: 413},
		"everything else": {path: ok + "&format=jsonl", kind: jsonl, body: "{}", status: 200},
	} {
		t.Run(name, func(t *testing.T) {
			if c.who == "" {
				c.who = "acme"
			}
			resp, text := a.do(c.who, http.MethodPost, c.path, strings.NewReader(c.body), "Content-Type", c.kind)
			require.Equal(t, c.status, resp.StatusCode, text)
			require.Contains(t, text, c.says)
			if c.status >= 400 {
				require.Equal(t, "application/problem+json", resp.Header.Get("Content-Type"))
			}
		})
	}
	// A body of undeclared size is bounded as it arrives.
	resp, text := a.do("acme", http.MethodPost, ok+"1", io.MultiReader(strings.NewReader(strings.Repeat("{"+strings.Repeat(" ", 98)+"}\n", maxFile/100))), "Content-Type", jsonl)
	require.Equal(t, http.StatusRequestEntityTooLarge, resp.StatusCode, text)
	resp, text = a.do("acme", http.MethodPost, ok, strings.NewReader("x"), "Content-Type", jsonl, "Content-Encoding", "gzip")
	require.Equal(t, http.StatusUnsupportedMediaType, resp.StatusCode, text)
	a.down = true
	resp, text = a.do("acme", http.MethodPost, ok+"2", strings.NewReader("{\"a\":2}"), "Content-Type", jsonl)
	require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode, text)
	require.NotEmpty(t, resp.Header.Get("Retry-After"))
	require.NotContains(t, text, "away", "what the store says is not for callers")
}

// After a request that broke off, or that the end of the process interrupted, the import
// is incomplete, and the same file continues it.
func TestAFileThatBreaksOff(t *testing.T) {
	a := newAPI(t)
	send := func() net.Conn {
		conn, err := net.Dial("tcp", a.server.Listener.Addr().String())
		require.NoError(t, err)
		_, err = fmt.Fprintf(conn, "POST /v1/imports?source=lab&file=id:x HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer acme\r\nContent-Type: %s\r\nContent-Length: 6\r\n\r\n{}\n", jsonl)
		require.NoError(t, err)
		return conn
	}
	conn := send()
	require.Eventually(t, func() bool { return a.importer.Open() == 1 }, time.Minute, time.Millisecond)
	require.NoError(t, conn.Close())
	require.Eventually(t, func() bool { return a.importer.Open() == 0 }, time.Minute, time.Millisecond)
	all, err := a.store.ListImports(t.Context(), "acme", "", 10)
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, store.ImportIncomplete, all[0].State)

	conn = send()
	defer conn.Close()
	require.Eventually(t, func() bool { return a.importer.Open() == 1 }, time.Minute, time.Millisecond)
	stopped := a.importer
	stopped.Stop()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	a.importer = imports.NewImporter(imports.ImporterOptions{Store: a.store, Intake: intake{}, Logger: slog.New(slog.DiscardHandler), Metrics: imports.NewMetrics(prometheus.NewRegistry())})
	require.Equal(t, "done", a.post("acme", "/v1/imports?source=lab&file=id:x", jsonl, "{}\n{}\n", http.StatusOK).State)
	a.importer = nil
	r, _ := a.do("acme", http.MethodPost, "/v1/imports?source=lab&file=id:x", strings.NewReader("{}\n{}\n"), "Content-Type", jsonl)
	require.Equal(t, http.StatusServiceUnavailable, r.StatusCode, "a process that does not ingest")
}

func TestJobsAreSeenByTheirTenant(t *testing.T) {
	a := newAPI(t)
	lab := a.incomplete("acme", "lab", "1")
	registry := a.post("narrow", "/v1/imports?source=registry&file=id:2", jsonl, "{\"a\":2}", http.StatusOK)
	third := a.post("acme", "/v1/imports?source=registry&file=id:3", jsonl, "{\"a\":3}", http.StatusOK)
	list := func(who, query string) (ids []string, next string) {
		resp, text := a.do(who, http.MethodGet, "/v1/imports"+query, nil)
		require.Equal(t, http.StatusOK, resp.StatusCode, text)
		var got struct {
			Imports []imports.Job
			Next    string
		}
		require.NoError(t, json.Unmarshal([]byte(text), &got))
		for _, j := range got.Imports {
			ids = append(ids, j.ID)
		}
		return ids, got.Next
	}
	ids, next := list("acme", "?limit=2")
	require.Equal(t, []string{third.ID, registry.ID}, ids)
	ids, next = list("acme", "?limit=2&before="+next)
	require.Equal(t, []string{lab.ID}, ids)
	require.Empty(t, next)
	ids, _ = list("narrow", "")
	require.Equal(t, []string{third.ID, registry.ID}, ids, "of the sources of its token")
	ids, _ = list("zest", "")
	require.Empty(t, ids)
	for _, query := range []string{"?limit=0", "?limit=101", "?limit=x", "?before=x"} {
		resp, _ := a.do("acme", http.MethodGet, "/v1/imports"+query, nil)
		require.Equal(t, http.StatusUnprocessableEntity, resp.StatusCode, query)
	}
	for _, who := range []string{"zest", "narrow"} {
		for _, request := range []string{"GET /v1/imports/", "GET /v1/imports/%s/errors", "POST /v1/imports/%s/cancel"} {
			method, path, _ := strings.Cut(request, " ")
			if !strings.Contains(path, "%s") {
				path += "%s"
			}
			resp, text := a.do(who, method, fmt.Sprintf(path, lab.ID), nil)
			require.Equal(t, http.StatusNotFound, resp.StatusCode, text)
		}
	}
	for _, id := range []string{"x", "5f0c1d2e3a4b5968778695a4b3c2d1e0"} {
		resp, _ := a.do("acme", http.MethodGet, "/v1/imports/"+id, nil)
		require.Equal(t, http.StatusNotFound, resp.StatusCode)
	}
	resp, text := a.do("acme", http.MethodPost, "/v1/imports/"+lab.ID+"/cancel", nil)
	require.Equal(t, http.StatusOK, resp.StatusCode, text)
	resp, text = a.do("acme", http.MethodGet, "/v1/imports/"+lab.ID, nil)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Contains(t, text, `"state":"cancelled"`)
}

// incomplete begins an import that nothing continues.
func (a *world) incomplete(tenant, source, id string) imports.Job {
	i, err := a.store.BeginImport(a.Context(), store.Import{ID: strings.Repeat(id, 32)[:32], Tenant: tenant, Source: source, Format: "jsonl"}, 0)
	require.NoError(a, err)
	return imports.JobOf(i)
}

func TestErrorsAreAFile(t *testing.T) {
	a := newAPI(t)
	i := a.post("acme", "/v1/imports?source=lab&file=id:x", jsonl, "{}\n\nwrong\n", http.StatusOK)
	require.EqualValues(t, 1, i.Invalid)
	for format, want := range map[string][3]string{
		"":              {"application/x-ndjson", ".jsonl", `{"row":2,"line":3,"status":"invalid","reason":"a \"reason\", with <commas>"}` + "\n"},
		"?format=jsonl": {"application/x-ndjson", ".jsonl", `{"row":2,"line":3,"status":"invalid","reason":"a \"reason\", with <commas>"}` + "\n"},
		"?format=csv":   {"text/csv; charset=utf-8; header=present", ".csv", "row,line,status,reason\n2,3,invalid,\"a \"\"reason\"\", with <commas>\"\n"},
	} {
		resp, text := a.do("acme", http.MethodGet, "/v1/imports/"+i.ID+"/errors"+format, nil)
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.Equal(t, want[0], resp.Header.Get("Content-Type"))
		require.Equal(t, `attachment; filename="import-`+i.ID+"-errors"+want[1]+`"`, resp.Header.Get("Content-Disposition"))
		require.Equal(t, want[2], text)
	}
	resp, _ := a.do("acme", http.MethodGet, "/v1/imports/"+i.ID+"/errors?format=xml", nil)
	require.Equal(t, http.StatusUnprocessableEntity, resp.StatusCode)
}

// The incomplete imports of a tenant are bounded, and the answer says what to do.
func TestIncompleteImportsAreBounded(t *testing.T) {
	a := newAPI(t)
	var first imports.Job
	for n := range 3 {
		first = a.incomplete("acme", "lab", fmt.Sprint(n))
	}
	const more = "/v1/imports?source=lab&file=id:3"
	resp, body := a.do("acme", http.MethodPost, more, strings.NewReader("3"), "Content-Type", jsonl)
	require.Equal(t, http.StatusTooManyRequests, resp.StatusCode, body)
	require.Equal(t, "60", resp.Header.Get("Retry-After"))
	require.Contains(t, body, "has 3 incomplete imports")
	a.post("zest", more, jsonl, "3", http.StatusOK)
	resp, body = a.do("acme", http.MethodPost, "/v1/imports/"+first.ID+"/cancel", http.NoBody)
	require.Equal(t, http.StatusOK, resp.StatusCode, body)
	a.post("acme", more, jsonl, "3", http.StatusOK)
}
