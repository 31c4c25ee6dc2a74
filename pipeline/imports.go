package pipeline

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-86dfc502/weir/frontdoor"
	"github.com/seed-86dfc502/weir/frontdoor/importapi"
	"github.com/seed-86dfc502/weir/imports"
	"github.com/seed-86dfc502/weir/ingest"
)

// stalledImport is how long a file may not come on before what is there of it is
// removed.
const stalledImport = 24 * time.Hour

// newImportWorker makes the worker of this process, or of a command. may, if
// given, tells whether it may begin something now.
func (p *Pipeline) newImportWorker(may func() bool) (*imports.Worker, error) {
	shapes := map[string]*ingest.Shape{}
	for i := range p.cfg.Sources {
		c := &p.cfg.Sources[i]
		shape, err := CompileShape(p.cfg, c)
		if err != nil {
			return nil, err
		}
		shapes[c.Name] = &shape
	}
	keys := p.cfg.API.Keys
	return imports.NewWorker(imports.WorkerOptions{
		Store: p.store,
		Intake: &imports.Taker{
			Ledger: p.store, Inbox: p.append, Topic: p.cfg.Kafka.Inbox.Topic, Lease: keys.Lease.D(), Keep: keys.Retention.D(),
			Shape: func(source string) (*ingest.Shape, error) {
				if shape := shapes[source]; shape != nil {
					return shape, nil
				}
				return nil, &imports.GoneError{Reason: fmt.Sprintf("there is no source %s in the active configuration", source)}
			},
		},
		Lease: keys.Lease.D(), Logger: p.log, Metrics: p.importMetrics,
		May: may,
	}), nil
}

// startImports starts the worker, and removes old imports from time to time.
func (p *Pipeline) startImports(_ context.Context, _ int64, _ func()) (part, error) {
	worker, err := p.newImportWorker(func() bool { return p.takes() == nil })
	if err != nil {
		return part{}, err
	}
	p.parts.mu.Lock()
	p.parts.imports = worker
	p.parts.mu.Unlock()
	stopWorker := loop(worker.Run)
	stopPruning := loop(p.pruneImports)
	return part{stop: func() error {
		together([]func(){stopWorker, stopPruning})
		return nil
	}}, nil
}

// pruneImports removes what is over its retention time.
func (p *Pipeline) pruneImports(ctx context.Context) {
	tick := time.NewTicker(housekeepingPeriod)
	defer tick.Stop()
	for {
		now := time.Now()
		if _, err := p.store.PruneImports(ctx, now.Add(-p.cfg.Retention.Audit.D()), now.Add(-stalledImport)); err != nil && ctx.Err() == nil {
			p.log.Warn("old imports stay until the next time", "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// importing tells whether there is an import that this process, or another one,
// has yet to work off.
func (p *Pipeline) importing(ctx context.Context) bool {
	p.parts.mu.Lock()
	worker := p.parts.imports
	p.parts.mu.Unlock()
	if worker == nil {
		return false
	}
	open, err := p.store.OpenImports(ctx)
	return err != nil || open > 0 || !worker.Idle()
}

// mountImports serves the routes of imports.
func (p *Pipeline) mountImports(server *frontdoor.Server) {
	importapi.Mount(server, importapi.Options{
		Store: p.store, MaxFile: int64(p.cfg.API.MaxImport), Logger: p.log, MaxRow: p.maxRow,
	})
}

// maxRow gives the largest row of a source, in bytes. An outbox is no source of
// files: it finds entity and event id in columns of its table.
func (p *Pipeline) maxRow(source string) (int, bool) {
	c := p.cfg.Sources.Find(source)
	if c == nil || c.Outbox != nil {
		return 0, false
	}
	return int(c.MaxEvent), true
}

// WorkImports works imports off until ctx ends. For a pipeline of OpenTools.
func (p *Pipeline) WorkImports(ctx context.Context) error {
	worker, err := p.newImportWorker(nil)
	if err != nil {
		return err
	}
	worker.Run(ctx)
	return nil
}
