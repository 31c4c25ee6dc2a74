package control

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"

	"github.com/seed-86dfc502/weir/api/auth"
	"github.com/seed-86dfc502/weir/config"
)

const (
	// RetryPath is the route of the operators' listener that makes a service try now.
	RetryPath = "/v1/retry"
	// LinkPath is its route that makes a link to the page.
	LinkPath = "/v1/link"
	// ReloadPath is its route that loads the configuration again.
	ReloadPath = "/v1/reload"
	// HealthPath is the route that says whether the process does its work.
	HealthPath = "/readyz"
	// MetricsPath is the route for Prometheus.
	MetricsPath = "/metrics"
	// controlSuffix names the file beside the SQLite file with the logs that says how
	// to reach the process that has it open.
	controlSuffix = ".control"
)

// address is what that file holds.
type address struct {
	Address string `json:"address"`
	Token   string `json:"token"`
	PID     int    `json:"pid"`
}

// Options of a Server. All fields are needed unless they say otherwise.
type Options struct {
	Config *config.Config
	// Probe makes a service that waits for its target retry now. It returns false when this
	// process does not deliver it.
	Probe func(service string) bool
	// Link returns a link that signs an actor in to the page, empty without one.
	Link func(actor string) string
	// Reload reads the configuration again. Its error may be a *ReloadRefused.
	Reload func(ctx context.Context, rollBack bool) (Reloaded, error)
}

// Server reloads and retries for other processes, and runs handlers and goroutines that use
// the open state of the process: Close ends them first. It may be used concurrently.
type Server struct {
	opt   Options
	token string // this process's random token; empty with servers
	file  string // file of the token; empty before Announce and with servers

	ctx    context.Context // ends what works with the process
	cancel context.CancelFunc
	mu     sync.Mutex
	closed bool           // guarded by mu
	active sync.WaitGroup // grows under mu and only while not closed
}

// New makes a server. A process without servers gets a token of its own.
func New(o Options) *Server {
	s := &Server{opt: o}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if o.Config.Kafka.Embedded() {
		s.token = rand.Text()
	}
	return s
}

// ErrEnding says that the process takes nothing more.
var ErrEnding = errors.New("the process is ending")

// enter counts one more user in. Its context ends with ctx and with the process,
// which waits for leave. ErrEnding when the process is ending.
func (s *Server) enter(ctx context.Context) (entered context.Context, leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, ErrEnding
	}
	s.active.Add(1)
	entered, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.ctx, cancel)
	return entered, func() {
		stop()
		cancel()
		s.active.Done()
	}, nil
}

// Cancel ends requests in progress, and does not wait for them.
func (s *Server) Cancel() { s.cancel() }

// Close cancels requests in progress and waits for them. It may be called twice.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.active.Wait()
	if s.file == "" {
		return nil
	}
	return remove(s.file)
}

// path is where a process without servers says how it is reached.
func path(c *config.Config) string { return c.Store.File + controlSuffix }

// RemoveStale removes the announcement of an earlier process. Only the process that has the data
// folder open may call it.
func RemoveStale(c *config.Config) error { return remove(path(c)) }

func remove(file string) error {
	if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// OwnToken returns the token that this process made for its own user, and its file. Both are
// empty with servers.
func (s *Server) OwnToken() (token, file string) {
	if s.token == "" {
		return "", ""
	}
	return s.token, path(s.opt.Config)
}

// Announce writes how this process is reached, readable by its user alone.
func (s *Server) Announce(listening net.Addr) error {
	if !s.opt.Config.Kafka.Embedded() {
		return nil
	}
	s.file = path(s.opt.Config)
	text, err := json.Marshal(address{Address: dialable(listening.String()), Token: s.token, PID: os.Getpid()})
	if err != nil {
		return err
	}
	// Whole or not at all: a reader must not see half of it.
	temporary := s.file + ".new"
	if err := os.WriteFile(temporary, append(text, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, s.file)
}

// Register mounts the routes. They need a token, the process's own or the
// configured one, whether or not anything else of the listener does.
func (s *Server) Register(mux *http.ServeMux, attempts *auth.Attempts) {
	admitted := func(h http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if attempts.Admit(w, r, s.token, s.opt.Config.Admin.Token.Reveal()) {
				h(w, r)
			}
		}
	}
	mux.HandleFunc("POST "+RetryPath, admitted(s.During(http.HandlerFunc(s.serveRetry)).ServeHTTP))
	mux.HandleFunc("POST "+LinkPath, admitted(s.During(http.HandlerFunc(s.serveLink)).ServeHTTP))
	mux.HandleFunc("POST "+ReloadPath, admitted(s.serveReload))
}

// dialable returns the address by which a listening address can be reached.
func dialable(listening string) string {
	host, port, err := net.SplitHostPort(listening)
	if err != nil {
		return listening
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
		if ip.To4() == nil {
			host = "::1"
		}
	}
	return net.JoinHostPort(host, port)
}

// serveRetry answers POST /v1/retry?service=NAME: 404 when the process does not deliver it.
func (s *Server) serveRetry(w http.ResponseWriter, r *http.Request) {
	if service := r.URL.Query().Get("service"); !s.opt.Probe(service) {
		http.Error(w, "the process does not deliver "+service, http.StatusNotFound)
	}
}

// serveLink answers POST /v1/link?actor=NAME with a link as text: 404 when the page has none.
func (s *Server) serveLink(w http.ResponseWriter, r *http.Request) {
	actor := r.URL.Query().Get("actor")
	if actor == "" {
		http.Error(w, "the actor is missing", http.StatusBadRequest)
		return
	}
	link := s.opt.Link(actor)
	if link == "" {
		http.Error(w, "the page gives no link", http.StatusNotFound)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	_, _ = io.WriteString(w, link) // a caller that went away does not matter
}

// serveReload answers POST /v1/reload: a Reloaded as JSON, or a text and the
// status 422 when the configuration is refused. With ?activate=true an earlier
// configuration may replace the active one.
func (s *Server) serveReload(w http.ResponseWriter, r *http.Request) {
	// It continues when the caller disconnects: a reload is all or nothing.
	done, err := s.opt.Reload(context.WithoutCancel(r.Context()), r.URL.Query().Get("activate") == "true")
	var refused *ReloadRefused
	switch {
	case errors.As(err, &refused):
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	default:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(done) // a caller that went away does not matter
	}
}
