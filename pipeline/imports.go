package pipeline

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/api"
	"github.com/seed-86dfc502/weir/api/importhttp"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/imports"
	"github.com/seed-86dfc502/weir/ingest"
	"github.com/seed-86dfc502/weir/operate/session"
	"github.com/seed-86dfc502/weir/store"
)

// importStage lets listeners import files while it runs.
type importStage struct {
	stageOptions
	metrics *imports.Metrics
	takes   func() error // why no requests can be taken now

	running atomic.Pointer[imports.Importer]
}

// NewImporter returns an importer into the inbox of a session.
func NewImporter(s *session.Session) (*imports.Importer, error) {
	return (&importStage{stageOptions: stageOf(s), metrics: imports.NewMetrics(prometheus.NewRegistry())}).newImporter(nil)
}

// newImporter makes the importer of this process, or of a command. ready, if given, returns
// why nothing can be ingested now.
func (st *importStage) newImporter(ready func() error) (*imports.Importer, error) {
	shapes := map[string]*ingest.Extractor{}
	for i := range st.cfg.Sources {
		c := &st.cfg.Sources[i]
		shape, err := assemble.ExtractorOf(st.cfg, c)
		if err != nil {
			return nil, err
		}
		shapes[c.Name] = &shape
	}
	keys := st.cfg.API.Idempotency
	return imports.NewImporter(imports.ImporterOptions{
		Store: st.store,
		Intake: &imports.Taker{
			Ledger: st.store, Inbox: st.logs, Topic: st.cfg.Kafka.Inbox.Topic, Lease: keys.Lease.D(), Keep: keys.Retention.D(),
			Shape: func(source string) (*ingest.Extractor, error) {
				if shape := shapes[source]; shape != nil {
					return shape, nil
				}
				return nil, fmt.Errorf("there is no source %s in the active configuration", source)
			},
		},
		Ready: ready, Active: st.mustBeActive, Logger: st.log, Metrics: st.metrics,
	}), nil
}

// mustBeActive returns store.ErrSuperseded unless the active configuration decides like
// that of this process, so that both parse events alike.
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

// start begins; the component's stop interrupts the imports in progress.
func (st *importStage) start() (component, error) {
	m, err := st.newImporter(st.takes)
	if err != nil {
		return component{}, err
	}
	st.running.Store(m)
	return component{stop: func() error {
		m.Stop()
		return nil
	}}, nil
}

// busy reports whether this process is importing a file.
func (st *importStage) busy() bool {
	m := st.running.Load()
	return m != nil && m.Open() > 0
}

// handler makes the routes of imports, for the API or for operators.
func (st *importStage) handler(letters *api.Letters) *importhttp.Handler {
	return importhttp.New(importhttp.Options{
		Store: st.store, Importer: st.running.Load, MaxFile: int64(st.cfg.API.MaxImport), MaxOpen: st.cfg.API.MaxImports,
		Letters: letters, Logger: st.log, MaxRow: st.maxRow,
	})
}

// maxRow returns the largest row of a source, in bytes; false for a source that takes no
// files.
func (st *importStage) maxRow(source string) (int, bool) {
	c := st.cfg.Sources.Find(source)
	if c == nil || !c.TakesFiles() {
		return 0, false
	}
	return int(c.MaxEvent), true
}
