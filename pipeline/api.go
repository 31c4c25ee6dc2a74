package pipeline

import (
	"context"
	"log/slog"
	"net"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/api"
	"github.com/seed-86dfc502/weir/api/auth"
	"github.com/seed-86dfc502/weir/api/events"
	"github.com/seed-86dfc502/weir/api/openapi"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/internal/tracing"
	"github.com/seed-86dfc502/weir/sources"
)

// frontDoor serves the API: events and check services. Without keys there is no API.
type frontDoor struct {
	cfg     *config.Config // as the process was started with
	log     *slog.Logger
	reg     *prometheus.Registry
	store   assemble.Store
	active  *activation
	keys    *auth.Keyring
	tracer  *tracing.Tracer
	metrics stageMetrics
	sources func() []*source
	takes   func() error    // why requests cannot be accepted now, or nil
	ending  context.Context // ends the requests
	serve   listenFunc
}

// listenFunc starts a listener, see listening.serve.
type listenFunc func(name, address string, files *api.Certificates, h http.Handler) (net.Addr, func() error, error)

// listening starts listeners of the process.
type listening struct {
	cfg    *config.Config
	log    *slog.Logger
	end    *shutdown
	gauges *gauges
}

// serve starts a listener and returns its address and the function that ends it.
// With files of certificates it serves HTTPS.
func (l *listening) serve(name, address string, files *api.Certificates, h http.Handler) (net.Addr, func() error, error) {
	o := api.ListenOptions{Name: name, Address: address, Files: files, Limits: api.DefaultLimits, Logger: l.log}
	if files != nil {
		o.Reread = l.gauges.rereadLogger(l.log, name+"_certificate", files.Cert)
	}
	server, err := api.Listen(o, h)
	if err != nil {
		return nil, nil, err
	}
	return server.Addr(), func() error {
		ctx, cancel := context.WithTimeout(l.end.closing(), closeTimeout(l.cfg))
		defer cancel()
		return server.Close(ctx)
	}, nil
}

// listen mounts the API's handlers and starts its listener, if the configuration needs it.
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
	f.mountEvents(server)
	stopChecks := f.mountChecks(server)
	a := f.cfg.API
	var files *api.Certificates
	if t := a.TLS; t != nil {
		files = &api.Certificates{Cert: t.Cert, Key: t.Key, ClientCA: t.ClientCA}
	}
	addr, closeListener, err := f.serve("api", a.Listen, files, f.tracer.Requests(server))
	if err != nil {
		stopChecks(f.ending)
		return nil, err
	}
	f.log.Info("the API listens", "event", "api.listening", "address", addr.String())
	return func() error {
		server.Stop()
		err := closeListener()
		stopChecks(f.ending)
		return err
	}, nil
}

// openKeys reads the tokens of the API.
func openKeys(c *config.Config, reread func(error)) (*auth.Keyring, error) {
	return auth.Open(auth.Options{
		File: c.API.Tokens, Sources: c.Sources.Tokens(), Loopback: loopback(c.API.Listen), Check: c.TenantsApart, Reread: reread,
	})
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
		AccessLog: lines, Access: f.keys, Rate: a.Rate, Memory: f.cfg.APIMemory(), MaxBody: largest, MaxRows: a.MaxRows, Timeout: a.Timeout.D(), Limit: f.ending,
		Ready: f.takes, Registry: f.reg, Logger: f.log,
	})
}

// loopback reports whether an address is one of this machine alone.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// mountEvents takes events for the sources that they are posted to.
func (f *frontDoor) mountEvents(server *api.Server) {
	byPath := map[string]*events.Source{}
	for _, s := range f.sources() {
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
		Ledger: f.store, Keep: a.Idempotency.Retention.D(), MaxRows: a.MaxRows,
		Metrics: f.metrics.events, Logger: f.log,
	}).Register(server)
}
