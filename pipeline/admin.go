package pipeline

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/seed-86dfc502/weir/access"
	"github.com/seed-86dfc502/weir/frontdoor"
)

// serve starts a listener and gives its address and the function that ends it.
// With files of certificates it serves HTTPS.
func (p *Pipeline) serve(name, address string, files *frontdoor.Certificates, h http.Handler) (net.Addr, func() error, error) {
	o := frontdoor.ListenOptions{Name: name, Address: address, Files: files, Limits: frontdoor.DefaultLimits, Logger: p.log}
	if files != nil {
		o.Reread = p.sayReread(name+"_certificate", files.Cert)
	}
	l, err := frontdoor.Listen(o, h)
	if err != nil {
		return nil, nil, err
	}
	return l.Addr(), func() error {
		ctx, cancel := context.WithTimeout(p.end.closing(), p.closeTimeout())
		defer cancel()
		return l.Close(ctx)
	}, nil
}

// ServeAdmin starts the operators' listener: /healthz says that the process
// lives, /readyz that it does its work, /metrics is for Prometheus. Where a
// token is configured everything but the probes needs it. /v1/commands runs
// commands of operators, never without a token: the configured one, or the one
// that this process leaves in its data folder for its own user; the same holds
// for /v1/reload. /debug/pprof is guarded as /metrics is. Everything else
// is the operators' page.
func (p *Pipeline) ServeAdmin() (address string, stop func() error, err error) {
	a := p.cfg.Admin
	if a.Off() {
		return "", func() error { return nil }, nil
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := p.Ready(); err != nil {
			// The reason may name servers: it is for those who may ask.
			w.WriteHeader(http.StatusServiceUnavailable)
			if access.Authorized(r, a.Token.Reveal()) {
				_, _ = fmt.Fprintln(w, "not ready:", err)
			}
			return
		}
		_, _ = fmt.Fprintln(w, "ready")
	})
	guarded := func(path string, h http.Handler) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			if !access.Authorized(r, a.Token.Reveal()) {
				w.Header().Set("WWW-Authenticate", "Bearer")
				http.Error(w, "a bearer token is needed", http.StatusUnauthorized)
				return
			}
			h.ServeHTTP(w, r)
		})
	}
	guarded("/metrics", promhttp.HandlerFor(p.reg, promhttp.HandlerOpts{}))
	guarded("/debug/pprof/", http.HandlerFunc(pprof.Index))
	guarded("/debug/pprof/profile", http.HandlerFunc(pprof.Profile))
	guarded("/debug/pprof/trace", http.HandlerFunc(pprof.Trace))
	guarded("/debug/pprof/symbol", http.HandlerFunc(pprof.Symbol))
	if p.commands != nil {
		if p.cfg.Kafka.Embedded != nil {
			p.commands.token = randomToken()
		}
		mux.HandleFunc("POST "+commandsPath, p.serveCommand)
		mux.HandleFunc("POST "+reloadPath, p.serveReload)
		if p.opt.Page != nil {
			mux.Handle("/", p.during(p.opt.Page(p)))
		}
	}
	var files *frontdoor.Certificates
	if a.TLS != nil {
		files = &frontdoor.Certificates{Cert: a.TLS.Cert, Key: a.TLS.Key}
	}
	addr, stop, err := p.serve("admin", a.Listen, files, mux)
	if err != nil {
		return "", nil, err
	}
	if p.commands != nil {
		if err := p.announce(addr); err != nil {
			return "", nil, errors.Join(fmt.Errorf("admin: %w", err), stop())
		}
	}
	return addr.String(), stop, nil
}
