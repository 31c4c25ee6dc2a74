package api_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/api"
	"github.com/seed-86dfc502/weir/api/auth"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// anybody admits the tokens of the table.
type anybody map[string]auth.Principal

func (a anybody) Authenticate(r *http.Request) (auth.Principal, error) {
	token, _ := auth.Bearer(r.Header)
	who, ok := a[token]
	if !ok {
		return who, auth.ErrUnauthenticated
	}
	return who, nil
}

var callers = anybody{
	"alice": {ID: "alice", Tenant: "acme", Permissions: []auth.Permission{auth.Ingest}, Sources: []string{"orders"}},
	"bob":   {ID: "bob", Tenant: "beta", Permissions: []auth.Permission{auth.Check}},
}

// newServer returns a server with one route that echoes bodies and one that panics.
func newServer(t *testing.T, o api.Options) (*api.Server, *prometheus.Registry) {
	t.Helper()
	reg := prometheus.NewRegistry()
	o.Registry, o.Logger = reg, slog.New(slog.DiscardHandler)
	if o.Access == nil {
		o.Access = callers
	}
	s := api.New(o)
	s.Handle("POST /v1/sources/{source}/events", auth.Ingest, func(w http.ResponseWriter, r *http.Request, who auth.Principal) {
		if !who.May(auth.Ingest, r.PathValue("source")) {
			api.Forbidden(w, who)
			return
		}
		if body, ok := api.ReadBody(w, r, 0, api.Rows{}); ok {
			_, _ = w.Write(body)
		}
	})
	s.Handle("POST /v1/services/{service}/check", auth.Check, func(w http.ResponseWriter, r *http.Request, _ auth.Principal) {
		_, _ = io.WriteString(w, r.PathValue("service"))
	})
	s.Handle("GET /v1/panic", auth.Any, func(http.ResponseWriter, *http.Request, auth.Principal) { panic("secret payload") })
	return s, reg
}

func ask(s http.Handler, method, path, token, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

func TestAnswersBeforeAHandler(t *testing.T) {
	s, _ := newServer(t, api.Options{MaxBody: 100})
	for _, c := range []struct {
		name, method, path, token, body string
		status                          int
		header                          string
	}{
		{"served", "POST", "/v1/sources/orders/events", "alice", "{}", 200, "Request-Id"},
		{"largest", "POST", "/v1/sources/orders/events", "alice", strings.Repeat("x", 100), 200, ""},
		{"encoded slash", "POST", "/v1/services/acme%2Fcrm@check/check", "bob", "", 200, ""},
		{"no token", "POST", "/v1/sources/orders/events", "", "{}", 401, "Www-Authenticate"},
		{"unknown token", "POST", "/v1/sources/orders/events", "mallory", "{}", 401, "Www-Authenticate"},
		{"another verb", "POST", "/v1/sources/orders/events", "bob", "{}", 403, ""},
		{"another source", "POST", "/v1/sources/other/events", "alice", "{}", 403, ""},
		{"no such path", "GET", "/v2", "", "", 404, ""},
		{"path that is not clean", "POST", "/v1//sources/orders/events", "alice", "{}", 404, ""},
		{"path with dots", "POST", "/v1/x/../sources/orders/events", "alice", "{}", 404, ""},
		{"another method", "GET", "/v1/sources/orders/events", "alice", "", 405, "Allow"},
		{"too large", "POST", "/v1/sources/orders/events", "alice", strings.Repeat("x", 101), 413, ""},
		{"panic", "GET", "/v1/panic", "alice", "", 500, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := ask(s, c.method, c.path, c.token, c.body)
			require.Equal(t, c.status, w.Code, w.Body)
			require.Len(t, w.Header().Get("Request-Id"), 36)
			if c.header != "" {
				require.NotEmpty(t, w.Header().Get(c.header))
			}
			if c.status == 200 {
				return
			}
			require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
			var p struct {
				Type, Title, Detail string
				Status              int
			}
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p))
			require.Equal(t, c.status, p.Status)
			require.Equal(t, "about:blank", p.Type)
			require.Equal(t, http.StatusText(c.status), p.Title)
			require.NotEmpty(t, p.Detail)
			require.NotContains(t, w.Body.String(), "secret payload")
		})
	}
}

func TestNotReadyAndStopping(t *testing.T) {
	why := errors.New("postgres://user:secret@host is away")
	s, _ := newServer(t, api.Options{Ready: func() error { return why }})
	w := ask(s, "POST", "/v1/sources/orders/events", "alice", "{}")
	require.Equal(t, 503, w.Code)
	require.Equal(t, "1", w.Header().Get("Retry-After"))
	require.NotContains(t, w.Body.String(), "secret", "the reason is for the log")
	why = nil
	require.Equal(t, 200, ask(s, "POST", "/v1/sources/orders/events", "alice", "{}").Code)
	s.Stop()
	require.Equal(t, 503, ask(s, "POST", "/v1/sources/orders/events", "alice", "{}").Code)
}

// The log of accesses has a line per request, and nothing that a caller sent.
func TestAccessLog(t *testing.T) {
	var log bytes.Buffer
	s, _ := newServer(t, api.Options{MaxBody: 100, AccessLog: slog.New(slog.NewJSONHandler(&log, nil))})
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	for _, c := range []struct {
		name, path, token, body string
		want                    map[string]any
	}{
		{"served", "/v1/sources/orders/events?key=secret", "alice", "secret", map[string]any{
			"route": "POST /v1/sources/{source}/events", "status": 200.0, "received": 6.0, "sent": 6.0, "tenant": "acme", "token": "alice", "verb": "ingest", "trace_id": trace,
		}},
		{"another source", "/v1/sources/secret/events", "alice", "{}", map[string]any{
			"route": "POST /v1/sources/{source}/events", "status": 403.0, "received": 0.0, "tenant": "acme", "token": "alice", "verb": "ingest", "trace_id": trace,
		}},
		{"unknown token", "/v1/sources/orders/events", "secret", "{}", map[string]any{
			"route": "POST /v1/sources/{source}/events", "status": 401.0, "received": 0.0, "verb": "ingest", "trace_id": trace,
		}},
		{"no such path", "/secret", "alice", "{}", map[string]any{"route": "none", "status": 404.0, "received": 0.0, "trace_id": trace}},
	} {
		t.Run(c.name, func(t *testing.T) {
			log.Reset()
			r := httptest.NewRequest(http.MethodPost, c.path, strings.NewReader(c.body))
			r.Header.Set("Authorization", "Bearer "+c.token)
			r.Header.Set("Idempotency-Key", "secret")
			r.Header.Set("Traceparent", "00-"+trace+"-00f067aa0ba902b7-01")
			w := httptest.NewRecorder()
			s.ServeHTTP(w, r)
			var line map[string]any
			require.NoError(t, json.Unmarshal(log.Bytes(), &line), "one line: %s", &log)
			require.NotContains(t, log.String(), "secret")
			require.Equal(t, w.Header().Get("Request-Id"), line["request"])
			require.InDelta(t, w.Body.Len(), line["sent"], 0)
			require.Contains(t, line, "took")
			require.Contains(t, line, "time")
			for _, varies := range []string{"time", "took", "level", "msg", "request"} {
				delete(line, varies)
			}
			if _, said := c.want["sent"]; !said {
				delete(line, "sent")
			}
			require.Equal(t, c.want, line)
		})
	}
}

// An answer that breaks off is in the log, too.
func TestAccessLogOfAnAbortedAnswer(t *testing.T) {
	var log bytes.Buffer
	s, _ := newServer(t, api.Options{AccessLog: slog.New(slog.NewJSONHandler(&log, nil))})
	s.Handle("GET /v1/half", auth.Any, func(w http.ResponseWriter, _ *http.Request, _ auth.Principal) {
		_, _ = io.WriteString(w, "half")
		panic(http.ErrAbortHandler)
	})
	require.PanicsWithValue(t, http.ErrAbortHandler, func() { ask(s, "GET", "/v1/half", "alice", "") })
	require.Contains(t, log.String(), `"status":200,"received":0,"sent":4`)
	require.Contains(t, log.String(), `"aborted":true`)
}
