package pipeline

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/ingest"
	"github.com/seed-86dfc502/weir/sources"
	"github.com/seed-86dfc502/weir/transport"
)

// startIngest starts the first router: one handler per source.
func (st *stages) startIngest(ctx context.Context, _ int64, _ func()) (component, error) {
	var ingests []*source
	var routes []route
	var stops []func() // one per source, after the router
	fail := func(err error) (component, error) {
		st.ingests.Store(nil)
		stopAll(stops)
		return component{}, err
	}
	budget := transport.NewBudget(int64(st.cfg.Limits.Memory) / groupShare) // of all sources
	env := sources.Env{
		Complete: st.opt.UntilIdle, Positions: st.store, OnRecordsLost: st.onRecordsLost, Limit: st.end.ingest.ctx, Logger: st.log,
		Group: func(id string, window int, topic string) transport.GroupConfig {
			gc := st.groupConfig(st.end.ingest.ctx, id, window, topic)
			gc.Budget = budget
			return gc
		},
	}
	if len(st.cfg.Kafka.Brokers) == 0 {
		env.State = st.inbox.identity()
	}
	for i := range st.cfg.Sources {
		c := &st.cfg.Sources[i]
		shape, err := assemble.ExtractorOf(st.cfg, c)
		if err != nil {
			return fail(err)
		}
		stage := ingest.New(ingest.Options{
			Extractor: shape, Gate: st.gate, Inbox: st.logs, Topic: st.cfg.Kafka.Inbox.Topic, Letters: st.store,
			InboxID: st.inbox.identity,
			Limit:   st.end.ingest.ctx, Logger: st.log, Metrics: st.metrics.ingest, Tracer: st.tracer,
		})
		opened, err := assemble.OpenSource(ctx, st.cfg, c, env)
		if err != nil {
			return fail(fmt.Errorf("source %s: %w", c.Name, err))
		}
		ingests = append(ingests, &source{Source: opened, name: c.Name, shape: shape, stage: stage})
		stops = append(stops, func() { _ = opened.Close() })
		routes = append(routes, route{name: "ingest." + c.Name, topic: opened.Topic(), subscriber: opened, handle: stage.Handle})
	}
	st.ingests.Store(&ingests)
	r, err := st.startRouter("ingest", routes)
	if err != nil {
		return fail(err)
	}
	closeListener, err := st.serveAPI()
	if err != nil {
		_ = r.close()
		return fail(err)
	}
	return component{failed: r.failed, stop: func() error {
		err := closeListener()
		st.ingests.Store(nil)
		return errors.Join(err, r.end(st.closeTimeout()/2, func() { stopAll(stops) }))
	}}, nil
}
