package pipeline

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/seed-86dfc502/weir/api"
	"github.com/seed-86dfc502/weir/api/importhttp"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/imports"
	"github.com/seed-86dfc502/weir/ingest"
	"github.com/seed-86dfc502/weir/store"
)

// importStage works off imports.
type importStage struct {
	stageOptions
	metrics *imports.Metrics
	takes   func() error // why no requests can be taken now

	running atomic.Pointer[[]*imports.Worker]
}

// newWorkers makes n workers of this process, or of a command. may, if
// given, reports whether they may begin something now.
func (st *importStage) newWorkers(n int, may func() bool) ([]*imports.Worker, error) {
	shapes := map[string]*ingest.Extractor{}
	for i := range st.cfg.Sources {
		c := &st.cfg.Sources[i]
		shape, err := assemble.ExtractorOf(st.cfg, c)
		if err != nil {
			return nil, err
		}
		shapes[c.Name] = &shape
	}
	keys := st.cfg.API.Keys
	opt := imports.WorkerOptions{
		Store: st.store,
		Intake: &imports.Taker{
			Ledger: st.store, Inbox: st.logs, Topic: st.cfg.Kafka.Inbox.Topic, Lease: keys.Lease.D(), Keep: keys.Retention.D(),
			Shape: func(source string) (*ingest.Extractor, error) {
				if shape := shapes[source]; shape != nil {
					return shape, nil
				}
				return nil, &imports.GoneError{Reason: fmt.Sprintf("there is no source %s in the active configuration", source)}
			},
		},
		Lease: keys.Lease.D(), Logger: st.log, Metrics: st.metrics,
		May: may, Active: st.mustBeActive,
	}
	workers := make([]*imports.Worker, n)
	for i := range workers {
		workers[i] = imports.NewWorker(opt)
	}
	return workers, nil
}

// mustBeActive returns store.ErrSuperseded unless the active configuration decides
// as this process's does, so that both take events apart alike.
func (st *importStage) mustBeActive(ctx context.Context) error {
	now, active, err := st.active.current(ctx)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if !bytes.HasPrefix(active.Fingerprint, now.plan.Fingerprint) {
		return store.ErrSuperseded
	}
	return nil
}

// start starts the workers.
func (st *importStage) start(_ context.Context, _ int64, _ func()) (component, error) {
	workers, err := st.newWorkers(st.cfg.API.ImportWorkers, func() bool { return st.takes() == nil })
	if err != nil {
		return component{}, err
	}
	st.running.Store(&workers)
	var stops []func()
	for _, w := range workers {
		stops = append(stops, loop(w.Run))
	}
	return component{stop: func() error {
		stopAll(stops)
		return nil
	}}, nil
}

// busy reports whether there is an import that this process, or another one,
// has yet to work off.
func (st *importStage) busy(ctx context.Context) bool {
	workers := st.running.Load()
	if workers == nil {
		return false
	}
	open, err := st.store.OpenImports(ctx)
	return err != nil || open > 0 || slices.ContainsFunc(*workers, func(w *imports.Worker) bool { return !w.Idle() })
}

// mountImports serves the routes of imports.
func (f *frontDoor) mountImports(server *api.Server, letters *api.Letters) {
	importhttp.Mount(server, importhttp.Options{
		Store: f.store, MaxFile: int64(f.cfg.API.MaxImport), MaxOpen: f.cfg.API.MaxImports, MaxHeld: int64(f.cfg.API.Quota.Imports), Letters: letters, Logger: f.log, MaxRow: f.maxRow,
	})
}

// maxRow returns the largest row of a source, in bytes; false for a source that no
// files are imported into.
func (f *frontDoor) maxRow(source string) (int, bool) {
	c := f.cfg.Sources.Find(source)
	if c == nil || !c.TakesFiles() {
		return 0, false
	}
	return int(c.MaxEvent), true
}
