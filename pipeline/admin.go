package pipeline

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/pprof"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/seed-86dfc502/weir/api"
	"github.com/seed-86dfc502/weir/api/auth"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/pipeline/control"
)

// answersAtATime bounds the requests of /metrics under way: each has its answer in
// memory until it is taken.
const answersAtATime = 64

// operators serves the operators' listener.
type operators struct {
	cfg     *config.Config
	log     *slog.Logger
	reg     *prometheus.Registry
	control *control.Server // nil while the process starts
	health  func() operate.Health
	status  func() operate.Health // health with the work for operators
	page    func() http.Handler   // nil without one
	serve   listenFunc

	attempts *auth.Attempts // wrong tokens; nil before listen
}

// listen is Pipeline.ServeAdmin.
func (o *operators) listen() (address string, stop func() error, err error) {
	a := o.cfg.Admin
	if a.Off() {
		return "", func() error { return nil }, nil
	}
	o.attempts = auth.NewAttempts("admin", o.reg, o.log, nil)
	token, metrics := a.Token.Reveal(), a.MetricsToken.Reveal()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", alive)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if known, _ := o.attempts.Verify(r, token); token == "" || known {
			serveHealth(w, o.status())
			return
		}
		serveHealth(w, operate.Health{Level: o.health().Level}) // errors may name servers
	})
	exposition := promhttp.HandlerFor(o.reg, promhttp.HandlerOpts{MaxRequestsInFlight: answersAtATime})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		if token == "" && metrics == "" || o.attempts.Admit(w, r, token, metrics) {
			exposition.ServeHTTP(w, r)
		}
	})
	if token != "" {
		profiles(mux, func(w http.ResponseWriter, r *http.Request) bool { return o.attempts.Admit(w, r, token) })
	}
	if o.control != nil {
		o.control.Register(mux, o.attempts)
	}
	if o.page != nil {
		mux.Handle("/", o.control.During(o.page()))
	}
	var files *api.Certificates
	if a.TLS != nil {
		files = &api.Certificates{Cert: a.TLS.Cert, Key: a.TLS.Key}
	}
	addr, stop, err := o.serve("admin", a.Listen, files, auth.Guard(loopback(a.Listen), mux))
	if err != nil {
		return "", nil, err
	}
	if o.control == nil {
		return addr.String(), stop, nil
	}
	if err := o.control.Announce(addr); err != nil {
		return "", nil, errors.Join(fmt.Errorf("admin: %w", err), stop())
	}
	return addr.String(), stop, nil
}

// profiles serves Go's own, to those that are admitted.
func profiles(mux *http.ServeMux, admitted func(http.ResponseWriter, *http.Request) bool) {
	for path, h := range map[string]http.HandlerFunc{"": pprof.Index, "profile": pprof.Profile, "trace": pprof.Trace, "symbol": pprof.Symbol} {
		mux.HandleFunc("GET /debug/pprof/"+path, func(w http.ResponseWriter, r *http.Request) {
			if admitted(w, r) {
				h(w, r)
			}
		})
	}
}

// alive answers /healthz.
func alive(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") }

// serveHealth answers /readyz: 200 while the process does its work, also with failing
// services, else 503.
func serveHealth(w http.ResponseWriter, h operate.Health) {
	w.Header().Set("Content-Type", "application/json")
	if h.Level == operate.LevelDown {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(h)
}
