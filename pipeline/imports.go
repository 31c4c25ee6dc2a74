package pipeline

import (
	"bytes"
	"context"
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/api/events"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/operate/imports"
	"github.com/seed-86dfc502/weir/operate/session"
	"github.com/seed-86dfc502/weir/store"
)

// NewImportDesk returns a desk that ingests rows of files into the inbox of a session.
func NewImportDesk(s *session.Session) (*imports.Desk, error) {
	reg := prometheus.NewRegistry()
	return newImportDesk(stageOf(s), events.NewMetrics(reg), imports.NewMetrics(reg), func() error { return nil })
}

// newImportDesk makes the desk of this process, or of a command. ready returns why nothing can
// be ingested now.
func newImportDesk(st stageOptions, keys *events.Metrics, rows *imports.Metrics, ready func() error) (*imports.Desk, error) {
	sources := map[string]*events.Source{}
	for i := range st.cfg.Sources {
		c := &st.cfg.Sources[i]
		if !c.TakesFiles() {
			continue
		}
		shape, err := assemble.ExtractorOf(st.cfg, c)
		if err != nil {
			return nil, err
		}
		inbox := &imports.Inbox{Source: c.Name, Topic: st.cfg.Kafka.Inbox.Topic, Append: st.logs.Append}
		sources[c.Name] = &events.Source{Name: c.Name, Extractor: shape, Push: inbox, Patches: c.Mode == config.Patch}
	}
	a := st.cfg.API
	return &imports.Desk{
		Store: st.store, Metrics: rows, Logger: st.log,
		Events: events.New(events.Options{
			Ledger: st.store, Keep: a.Idempotency.Retention.D(), MaxRows: a.MaxRows, Metrics: keys, Logger: st.log,
		}),
		Source: func(name string) (*events.Source, error) {
			if s := sources[name]; s != nil {
				return s, nil
			}
			return nil, store.WithClass(fmt.Errorf("there is no source %s in the active configuration that files are imported into", name), store.Fatal)
		},
		Ready: func(ctx context.Context) error {
			if err := ready(); err != nil {
				return err
			}
			return st.mustBeActive(ctx)
		},
	}, nil
}

// serveImport serves control.ImportPath.
func (p *Pipeline) serveImport(w http.ResponseWriter, r *http.Request) {
	if desk := p.desk.Load(); desk != nil {
		desk.ServeHTTP(w, r)
		return
	}
	http.Error(w, "this process does not ingest", http.StatusServiceUnavailable)
}

// mustBeActive returns store.ErrSuperseded unless the active configuration decides like
// that of this process, so that both parse events alike.
func (st *stageOptions) mustBeActive(ctx context.Context) error {
	now, active, err := st.active.current(ctx)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if !bytes.HasPrefix(active.Fingerprint, now.plan.Fingerprint) {
		return store.ErrSuperseded
	}
	return nil
}
