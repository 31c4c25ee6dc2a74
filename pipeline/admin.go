package pipeline

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/seed-86dfc502/weir/api"
	"github.com/seed-86dfc502/weir/api/auth"
)

// serve starts a listener and gives its address and the function that ends it.
// With files of certificates it serves HTTPS.
func (p *Pipeline) serve(name, address string, files *api.Certificates, h http.Handler) (net.Addr, func() error, error) {
	o := api.ListenOptions{Name: name, Address: address, Files: files, Limits: api.DefaultLimits, Logger: p.log}
	if files != nil {
		o.Reread = p.sayReread(name+"_certificate", files.Cert)
	}
	l, err := api.Listen(o, h)
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
// token is configured everything but the probes needs it; /metrics takes the
// token for metrics as well. /v1/commands runs commands of operators, never
// without a token: the configured one, or the one that this process leaves in its
// data folder for its own user; the same holds for /v1/reload. /debug/pprof is
// served where the configuration says so, with the configured token. Everything
// else is the operators' page. Web pages of others are kept from all of it.
func (p *Pipeline) ServeAdmin() (address string, stop func() error, err error) {
	a := p.cfg.Admin
	if a.Off() {
		return "", func() error { return nil }, nil
	}
	p.attempts = auth.NewAttempts("admin", p.reg, p.log, nil)
	token, metrics := a.Token.Reveal(), a.MetricsToken.Reveal()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		known, _ := p.attempts.Known(r, token)
		p.serveHealth(w, token == "" || known)
	})
	exposition := promhttp.HandlerFor(p.reg, promhttp.HandlerOpts{})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		if token == "" && metrics == "" || p.attempts.Admit(w, r, token, metrics) {
			exposition.ServeHTTP(w, r)
		}
	})
	if a.Pprof {
		profiles(mux, func(w http.ResponseWriter, r *http.Request) bool { return p.attempts.Admit(w, r, token) })
	}
	if p.control != nil {
		p.control.Register(mux, p.attempts)
		if p.opt.Page != nil {
			mux.Handle("/", p.control.During(p.opt.Page(p)))
		}
	}
	var files *api.Certificates
	if a.TLS != nil {
		files = &api.Certificates{Cert: a.TLS.Cert, Key: a.TLS.Key}
	}
	addr, stop, err := p.serve("admin", a.Listen, files, auth.Guard(loopback(a.Listen), mux))
	if err != nil {
		return "", nil, err
	}
	if p.control != nil {
		if err := p.control.Announce(addr); err != nil {
			return "", nil, errors.Join(fmt.Errorf("admin: %w", err), stop())
		}
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
