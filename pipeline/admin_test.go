package pipeline

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/api"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/pipeline/control"
	"github.com/stretchr/testify/require"
)

const (
	adminToken   = "0123456789abcdef"
	metricsToken = "metrics-0123456789"
)

// serveOperators returns a pipeline of which only the operators' listener runs.
func serveOperators(t *testing.T, admin config.Admin) (p *Pipeline, address string) {
	t.Helper()
	return showing(t, admin, nil)
}

// showing is serveOperators with a page.
func showing(t *testing.T, admin config.Admin, page http.HandlerFunc) (p *Pipeline, address string) {
	t.Helper()
	admin.Listen = "127.0.0.1:0"
	cfg := &config.Config{Admin: admin, Store: config.Store{File: filepath.Join(t.TempDir(), "state.db")}}
	o := Options{Config: cfg, Logger: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry()}
	if page != nil {
		o.Page = func(*Pipeline) http.Handler { return page }
	}
	p = newPipeline(o)
	p.logs = soundLogs{}
	p.assemble(newGauges(o.Registry, nil))
	address, stop, err := p.ServeAdmin()
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, p.control.Close())
		require.NoError(t, stop())
	})
	return p, address
}

// asked sends a request to the operators' listener.
func asked(t *testing.T, method, address, path string, change func(*http.Request)) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+path, nil)
	require.NoError(t, err)
	if change != nil {
		change(req)
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(text)
}

func shows(token string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
}

// Nothing of the listener answers a page of another site, or under a name that
// was made to lead here, with or without a token.
func TestTheWholeAdminListenerIsGuarded(t *testing.T) {
	for name, admin := range map[string]config.Admin{"without a token": {}, "with one": {Token: config.NewSecret(adminToken)}} {
		t.Run(name, func(t *testing.T) {
			_, address := serveOperators(t, admin)
			for _, path := range []string{"/healthz", "/readyz", "/metrics", "/debug/pprof/", control.RetryPath, control.ReloadPath, "/"} {
				method := http.MethodGet
				if path == control.RetryPath || path == control.ReloadPath {
					method = http.MethodPost
				}
				for what, c := range map[string]struct {
					status int
					change func(*http.Request)
				}{
					"another name":            {421, func(r *http.Request) { r.Host = "evil.example" }},
					"another name, same port": {421, func(r *http.Request) { r.Host = "127.0.0.1.evil.example:9600" }},
					"another origin":          {403, func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") }},
					"another port":            {403, func(r *http.Request) { r.Header.Set("Origin", "http://127.0.0.1:1") }},
					"an image of a site":      {403, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }},
					"a sister site":           {403, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "same-site") }},
				} {
					status, body := asked(t, method, address, path, func(r *http.Request) { shows(adminToken)(r); c.change(r) })
					require.Equal(t, c.status, status, "%s of %s: %s", path, what, body)
				}
			}
			for _, host := range []string{"localhost", "LOCALHOST:9600", "[::1]:9600", "127.0.0.9"} {
				status, _ := asked(t, http.MethodGet, address, "/healthz", func(r *http.Request) { r.Host = host })
				require.Equal(t, 200, status, host)
			}
			status, _ := asked(t, http.MethodGet, address, "/healthz", func(r *http.Request) {
				for key, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"} {
					r.Header.Set(key, value)
				}
			})
			require.Equal(t, 200, status, "a link of a dashboard leads here")
		})
	}
}

// Profiles show the work of a process, and so need the token.
func TestProfilesNeedTheToken(t *testing.T) {
	_, address := serveOperators(t, config.Admin{})
	status, _ := asked(t, http.MethodGet, address, "/debug/pprof/", shows(adminToken))
	require.Equal(t, 404, status)

	_, address = serveOperators(t, config.Admin{Token: config.NewSecret(adminToken), MetricsToken: config.NewSecret(metricsToken)})
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/goroutine?debug=1", "/debug/pprof/symbol"} {
		for sent, want := range map[string]int{"wrong": 401, metricsToken: 401, adminToken: 200} {
			status, body := asked(t, http.MethodGet, address, path, shows(sent))
			require.Equal(t, want, status, "%s with %q", path, sent)
			if want != 200 {
				require.NotContains(t, body, "goroutine")
			}
		}
	}
}

// The token for metrics reads metrics, and nothing else.
func TestMetricsHaveATokenOfTheirOwn(t *testing.T) {
	for _, admin := range []config.Admin{
		{Token: config.NewSecret(adminToken), MetricsToken: config.NewSecret(metricsToken)},
		{MetricsToken: config.NewSecret(metricsToken)},
	} {
		_, address := serveOperators(t, admin)
		status, _ := asked(t, http.MethodGet, address, "/metrics", nil)
		require.Equal(t, 401, status)
		status, body := asked(t, http.MethodGet, address, "/metrics", shows(metricsToken))
		require.Equal(t, 200, status)
		require.Contains(t, body, "weir_wrong_tokens_total")
		for _, path := range []string{control.RetryPath, control.ReloadPath} {
			status, _ = asked(t, http.MethodPost, address, path, shows(metricsToken))
			require.Equal(t, 401, status, path)
		}
	}
}

// Wrong tokens are limited wherever they are shown, the right one passes, and
// why a process is not ready is told to who may know.
func TestWrongTokensAreLimitedOnEveryPath(t *testing.T) {
	_, address := serveOperators(t, config.Admin{Token: config.NewSecret(adminToken)}) // which stays unready
	paths := []string{"/metrics", "/debug/pprof/", control.RetryPath, control.ReloadPath}
	method := func(path string) string {
		if path == control.RetryPath || path == control.ReloadPath {
			return http.MethodPost
		}
		return http.MethodGet
	}
	for i := range 9 {
		path := paths[i%len(paths)]
		status, _ := asked(t, method(path), address, path, shows("wrong"))
		require.Equal(t, 401, status, path)
	}
	status, body := asked(t, http.MethodGet, address, "/readyz", shows("wrong"))
	require.Equal(t, 503, status)
	require.JSONEq(t, `{"level":"down"}`, body, "why is for those who may ask")
	for _, path := range paths {
		status, _ := asked(t, method(path), address, path, shows("wrong"))
		require.Equal(t, 429, status, path)
	}
	status, _ = asked(t, http.MethodGet, address, "/metrics", shows(adminToken))
	require.Equal(t, 200, status)
	_, body = asked(t, http.MethodGet, address, "/readyz", shows(adminToken))
	require.Contains(t, body, `"error": "starting"`)
}

// A client that takes nothing of an answer does not keep a process that stops: closing begins with the handlers' end.
func TestSlowReaderOfThePageAtAStop(t *testing.T) {
	begun := make(chan struct{}, 1)
	p, address := showing(t, config.Admin{}, func(w http.ResponseWriter, _ *http.Request) {
		for piece := make([]byte, 64<<10); ; {
			if _, err := w.Write(piece); err != nil {
				return
			}
			wait.Offer(begun, struct{}{})
		}
	})
	c, err := net.Dial("tcp", address)
	require.NoError(t, err)
	defer c.Close()
	_, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
	require.NoError(t, err)
	<-begun
	closed := make(chan error, 1)
	go func() { closed <- p.control.Close() }()
	select {
	case err := <-closed:
		require.NoError(t, err)
	case <-time.After(api.DefaultLimits.Patience / 2):
		require.FailNow(t, "the stop waits for a client that does not read")
	}
}

// soundLogs are logs of which nothing fails.
type soundLogs struct{ assemble.Logs }

func (soundLogs) Failing() error { return nil }
