package pipeline

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/seed-86dfc502/weir/api"
	"github.com/seed-86dfc502/weir/api/importhttp"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/imports"
	"github.com/seed-86dfc502/weir/ingest"
)

// stalledImport is how long a file may not come on before what is there of it is
// removed.
const stalledImport = 24 * time.Hour

// newImportWorkers makes n workers of this process, or of a command. may, if
// given, reports whether they may begin something now.
func (p *Pipeline) newImportWorkers(n int, may func() bool) ([]*imports.Worker, error) {
	shapes := map[string]*ingest.Extractor{}
	for i := range p.cfg.Sources {
		c := &p.cfg.Sources[i]
		shape, err := assemble.Shape(p.cfg, c)
		if err != nil {
			return nil, err
		}
		shapes[c.Name] = &shape
	}
	keys := p.cfg.API.Keys
	opt := imports.WorkerOptions{
		Store: p.store,
		Intake: &imports.Taker{
			Ledger: p.store, Inbox: p.logs, Topic: p.cfg.Kafka.Inbox.Topic, Lease: keys.Lease.D(), Keep: keys.Retention.D(),
			Shape: func(source string) (*ingest.Extractor, error) {
				if shape := shapes[source]; shape != nil {
					return shape, nil
				}
				return nil, &imports.GoneError{Reason: fmt.Sprintf("there is no source %s in the active configuration", source)}
			},
		},
		Lease: keys.Lease.D(), Logger: p.log, Metrics: p.metrics.imports,
		May: may,
	}
	workers := make([]*imports.Worker, n)
	for i := range workers {
		workers[i] = imports.NewWorker(opt)
	}
	return workers, nil
}

// startImports starts the workers, and removes old imports from time to time.
func (p *Pipeline) startImports(_ context.Context, _ int64, _ func()) (part, error) {
	workers, err := p.newImportWorkers(p.cfg.API.ImportWorkers, func() bool { return p.takes() == nil })
	if err != nil {
		return part{}, err
	}
	p.parts.mu.Lock()
	p.parts.imports = workers
	p.parts.mu.Unlock()
	stops := []func(){loop(p.pruneImports)}
	for _, w := range workers {
		stops = append(stops, loop(w.Run))
	}
	return part{stop: func() error {
		together(stops)
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

// importing reports whether there is an import that this process, or another one,
// has yet to work off.
func (p *Pipeline) importing(ctx context.Context) bool {
	p.parts.mu.Lock()
	workers := p.parts.imports
	p.parts.mu.Unlock()
	if len(workers) == 0 {
		return false
	}
	open, err := p.store.OpenImports(ctx)
	return err != nil || open > 0 || slices.ContainsFunc(workers, func(w *imports.Worker) bool { return !w.Idle() })
}

// mountImports serves the routes of imports.
func (p *Pipeline) mountImports(server *api.Server) {
	importhttp.Mount(server, importhttp.Options{
		Store: p.store, MaxFile: int64(p.cfg.API.MaxImport), MaxOpen: p.cfg.API.MaxImports, Logger: p.log, MaxRow: p.maxRow,
	})
}

// maxRow returns the largest row of a source, in bytes; false for a source that no
// files are imported into.
func (p *Pipeline) maxRow(source string) (int, bool) {
	c := p.cfg.Sources.Find(source)
	if c == nil || !c.TakesFiles() {
		return 0, false
	}
	return int(c.MaxEvent), true
}

// WorkImports works imports off until ctx ends. For a pipeline of OpenTools.
func (p *Pipeline) WorkImports(ctx context.Context) error {
	workers, err := p.newImportWorkers(1, nil)
	if err != nil {
		return err
	}
	workers[0].Run(ctx)
	return nil
}
