package pipeline

import (
	"errors"
	"log/slog"
	"net"

	"github.com/seed-86dfc502/weir/api"
	"github.com/seed-86dfc502/weir/api/auth"
	"github.com/seed-86dfc502/weir/api/events"
	"github.com/seed-86dfc502/weir/api/openapi"
)

// serveAPI starts the listener of the API, if the configuration needs it: its
// routes are those of the handlers that are mounted here.
func (p *Pipeline) serveAPI() (stop func() error, err error) {
	if p.keys == nil {
		return func() error { return nil }, nil
	}
	description, err := openapi.Handler()
	if err != nil {
		return nil, err
	}
	server := p.newAPI()
	server.HandleOpen(openapi.Pattern, description)
	p.mountEvents(server)
	p.mountImports(server)
	stopChecks := p.mountChecks(server)
	a := p.cfg.API
	var files *api.Certificates
	if t := a.TLS; t != nil {
		files = &api.Certificates{Cert: t.Cert, Key: t.Key, ClientCA: t.ClientCA}
	}
	addr, closeListener, err := p.serve("api", a.Listen, files, p.tracer.Requests(server))
	if err != nil {
		stopChecks(p.end.ingest.ctx)
		return nil, err
	}
	p.log.Info("taking events", "address", addr.String())
	return func() error {
		server.Stop()
		err := closeListener()
		stopChecks(p.end.ingest.ctx)
		return err
	}, nil
}

// openKeys reads the tokens, if the process serves the API.
func (p *Pipeline) openKeys() (err error) {
	if !p.opt.Roles.Ingest || !p.cfg.NeedsAPI() {
		return nil
	}
	a := p.cfg.API
	p.keys, err = auth.Open(auth.Options{
		File: a.Tokens, Sources: p.sourceTokens(), Loopback: loopback(a.Listen), Check: p.cfg.TenantsApart, Reread: p.sayReread("tokens", a.Tokens),
	})
	return err
}

// newAPI makes the server without routes.
func (p *Pipeline) newAPI() *api.Server {
	a := p.cfg.API
	// A source may take larger requests than the others are.
	largest := int64(a.MaxBody)
	for i := range p.cfg.Sources {
		if h := p.cfg.Sources[i].HTTP; h != nil {
			largest = max(largest, int64(h.MaxBody))
		}
	}
	var lines *slog.Logger
	if a.AccessLog {
		lines = p.log
	}
	return api.New(api.Options{
		AccessLog: lines, Access: p.keys, Rate: a.Rate, TenantRows: int64(a.Quota.Rows), TenantBytes: int64(a.Quota.Bytes), MaxBody: largest, MaxRows: a.MaxRows, Timeout: a.Timeout.D(), Limit: p.end.ingest.ctx,
		Ready: p.takes, Registry: p.reg, Logger: p.log,
	})
}

// takes gives why no requests can be taken now. What keeps only the stage of
// decisions from its work does not, since the inbox holds what it has not decided
// yet, nor does a source that is not the callers'.
func (p *Pipeline) takes() error {
	if !p.health.started.Load() {
		return errors.New("starting")
	}
	if reason, err := p.blocked(); err != nil && reason != blockedHalted && reason != blockedSource {
		return err
	}
	return nil
}

// sourceTokens gives the tokens of the sources that have one of their own.
func (p *Pipeline) sourceTokens() map[string]string {
	all := map[string]string{}
	for i := range p.cfg.Sources {
		if s := &p.cfg.Sources[i]; s.HTTP != nil && !s.HTTP.Token.IsZero() {
			all[s.Name] = s.HTTP.Token.Reveal()
		}
	}
	return all
}

// loopback reports whether an address is one of this machine alone.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// sayReread gives what hears of later readings of a file that the process lives by.
func (p *Pipeline) sayReread(what, path string) func(error) {
	refused := p.gauges.files.WithLabelValues(what)
	return func(err error) {
		refused.Set(0)
		if err != nil {
			refused.Set(1)
			p.log.Error("a file that changed cannot be used; the process goes on with what it had", "file", path, "error", err)
			return
		}
		p.log.Info("a file that changed is in force", "file", path)
	}
}

// mountEvents takes events for the http sources.
func (p *Pipeline) mountEvents(server *api.Server) {
	byPath := map[string]*events.Source{}
	for _, s := range p.sources() {
		if s.push != nil {
			c := p.cfg.Sources.Find(s.name).HTTP
			byPath[c.Path] = &events.Source{Name: s.name, Extractor: s.shape, Push: s.push, MaxBody: int64(c.MaxBody)}
			p.eventMetrics.Expect(s.name)
		}
	}
	if len(byPath) == 0 {
		return
	}
	a := p.cfg.API
	events.New(events.Options{
		Source: func(path string) (*events.Source, bool) { s, found := byPath[path]; return s, found },
		Ledger: p.store, Lease: a.Keys.Lease.D(), Keep: a.Keys.Retention.D(), MaxRows: a.MaxRows,
		Metrics: p.eventMetrics, Logger: p.log,
	}).Register(server)
}
