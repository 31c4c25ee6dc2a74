package pipeline

import (
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/config"
	"github.com/stretchr/testify/require"
)

// The page gets requests that no other handler answers. It uses the open state of the
// process, and so ends before that is closed.
func TestPageEndsBeforeTheProcess(t *testing.T) {
	began := make(chan struct{})
	var token, file string
	cfg := &config.Config{Admin: config.Admin{Listen: "127.0.0.1:0"}, Store: config.Store{File: filepath.Join(t.TempDir(), "state.db")}}
	p := newPipeline(Options{Config: cfg, Logger: slog.New(slog.DiscardHandler), Registry: prometheus.NewRegistry(), Page: func(p *Pipeline) http.Handler {
		token, file = p.Control().OwnToken()
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/slow" {
				close(began)
				<-r.Context().Done()
			}
			_, _ = io.WriteString(w, "page "+r.URL.Path)
		})
	}})
	p.assemble(newGauges(p.opt.Registry, nil))
	address, stop, err := p.ServeAdmin()
	require.NoError(t, err)
	require.Len(t, token, 26)
	require.FileExists(t, file)
	get := func(path string) (int, string) {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := client.Get("http://" + address + path)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return 0, err.Error()
		}
		return resp.StatusCode, string(body)
	}
	status, body := get("/")
	require.Equal(t, 200, status)
	require.Equal(t, "page /", body)
	_, body = get("/healthz")
	require.Equal(t, "ok\n", body)
	slow := make(chan int, 1)
	go func() {
		status, _ := get("/slow")
		slow <- status
	}()
	<-began
	require.NoError(t, p.control.Close(), "it cancels the request and waits for it")
	require.Equal(t, 200, <-slow)
	status, _ = get("/")
	require.Equal(t, 503, status)
	require.NoError(t, stop())
}

func TestNamesOfRoles(t *testing.T) {
	require.Equal(t, []string{"ingest", "work"}, AllRoles.Names())
	require.Equal(t, []string{"work"}, Roles{Work: true}.Names())
}
