package pipeline

import (
	"log/slog"
	"net"

	"github.com/seed-86dfc502/weir/api"
	"github.com/seed-86dfc502/weir/api/auth"
	"github.com/seed-86dfc502/weir/api/events"
	"github.com/seed-86dfc502/weir/api/openapi"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/sources"
)

// frontDoor serves the API: events, imports and check services.
type frontDoor struct {
	*process
	stages *stageSet
	takes  func() error // why no requests can be taken now; nil when they can
}

// listen starts the listener of the API, if the configuration needs it: its
// routes are those of the handlers that are mounted here.
func (f *frontDoor) listen() (stop func() error, err error) {
	if f.keys == nil {
		return func() error { return nil }, nil
	}
	description, err := openapi.Handler()
	if err != nil {
		return nil, err
	}
	server := f.newAPI()
	server.HandleOpen(openapi.Pattern, description)
	letters := api.NewLetters(int64(f.cfg.API.Quota.Letters), f.store.CountLettersOf)
	f.mountEvents(server, letters)
	f.mountImports(server, letters)
	stopChecks := f.mountChecks(server)
	a := f.cfg.API
	var files *api.Certificates
	if t := a.TLS; t != nil {
		files = &api.Certificates{Cert: t.Cert, Key: t.Key, ClientCA: t.ClientCA}
	}
	addr, closeListener, err := f.serve("api", a.Listen, files, f.tracer.Requests(server))
	if err != nil {
		stopChecks(f.end.ingest.ctx)
		return nil, err
	}
	f.log.Info("taking events", "address", addr.String())
	return func() error {
		server.Stop()
		err := closeListener()
		stopChecks(f.end.ingest.ctx)
		return err
	}, nil
}

// openKeys reads the tokens, if the process serves the API.
func (p *process) openKeys() (err error) {
	if !p.opt.Roles.Ingest || !p.cfg.NeedsAPI() {
		return nil
	}
	a := p.cfg.API
	p.keys, err = auth.Open(auth.Options{
		File: a.Tokens, Sources: p.cfg.SourceTokens(), Loopback: loopback(a.Listen), Check: p.cfg.TenantsApart, Reread: p.logReread("tokens", a.Tokens),
	})
	return err
}

// newAPI makes the server without routes.
func (f *frontDoor) newAPI() *api.Server {
	a := f.cfg.API
	// A source may take larger requests than the others are.
	largest := int64(a.MaxBody)
	for i := range f.cfg.Sources {
		if e, posted := f.cfg.Sources[i].Endpoint(); posted {
			largest = max(largest, int64(e.MaxBody))
		}
	}
	var lines *slog.Logger
	if a.AccessLog {
		lines = f.log
	}
	return api.New(api.Options{
		AccessLog: lines, Access: f.keys, Rate: a.Rate, TenantRows: int64(a.Quota.Rows), TenantBytes: int64(a.Quota.Bytes), Memory: f.cfg.APIMemory(), MaxBody: largest, MaxRows: a.MaxRows, Timeout: a.Timeout.D(), Limit: f.end.ingest.ctx,
		Ready: f.takes, Registry: f.reg, Logger: f.log,
	})
}

// loopback reports whether an address is one of this machine alone.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// logReread returns a callback for each later reading of a file.
func (p *process) logReread(what, path string) func(error) {
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

// mountEvents takes events for the sources that they are posted to.
func (f *frontDoor) mountEvents(server *api.Server, letters *api.Letters) {
	byPath := map[string]*events.Source{}
	for _, s := range f.stages.sources() {
		push, ok := s.Source.(sources.Pusher)
		given := f.cfg.Sources.Find(s.name)
		if e, posted := given.Endpoint(); ok && posted {
			byPath[e.Path] = &events.Source{Name: s.name, Extractor: s.shape, Push: push, MaxBody: int64(e.MaxBody), Patches: given.Mode == config.Patch}
			f.metrics.events.Expect(s.name)
		}
	}
	if len(byPath) == 0 {
		return
	}
	a := f.cfg.API
	events.New(events.Options{
		Source: func(path string) (*events.Source, bool) { s, found := byPath[path]; return s, found },
		Ledger: f.store, Lease: a.Keys.Lease.D(), Keep: a.Keys.Retention.D(), MaxRows: a.MaxRows,
		Letters: letters, Metrics: f.metrics.events, Logger: f.log,
	}).Register(server)
}
