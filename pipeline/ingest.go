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
func (p *Pipeline) startIngest(ctx context.Context, _ int64, _ func()) (part, error) {
	p.parts.mu.Lock()
	p.parts.ingests = nil
	p.parts.mu.Unlock()
	var routes []route
	var stops []func() // one per source, after the router
	fail := func(err error) (part, error) {
		together(stops)
		return part{}, err
	}
	opener := assemble.Sources{Config: p.cfg, Cluster: p.kafka, Env: sources.Env{
		Complete: p.opt.UntilIdle, Positions: p.store, OnRecordsLost: p.recordsGone, Limit: p.end.ingest.ctx, Logger: p.log,
		Group: func(id string, window int, topic string) transport.GroupConfig {
			return p.groupConfig(p.end.ingest.ctx, id, window, topic)
		},
	}}
	for i := range p.cfg.Sources {
		c := &p.cfg.Sources[i]
		shape, err := assemble.Shape(p.cfg, c)
		if err != nil {
			return fail(err)
		}
		stage := ingest.New(ingest.Options{
			Extractor: shape, Gate: p.gate, Inbox: p.logs, Topic: p.cfg.Kafka.Inbox.Topic, Letters: p.store,
			Limit: p.end.ingest.ctx, Logger: p.log, Metrics: p.metrics.ingest, Tracer: p.tracer,
		})
		opened, err := opener.Open(ctx, c)
		if err != nil {
			return fail(fmt.Errorf("source %s: %w", c.Name, err))
		}
		s := &source{Source: opened, name: c.Name, shape: shape, stage: stage}
		stops = append(stops, func() { _ = opened.Close() })
		routes = append(routes, route{name: "ingest." + c.Name, topic: opened.Topic(), subscriber: opened, handle: stage.Handle})
		p.parts.mu.Lock()
		p.parts.ingests = append(p.parts.ingests, s)
		p.parts.mu.Unlock()
	}
	r, err := p.startRouter("ingest", routes)
	if err != nil {
		return fail(err)
	}
	closeListener, err := p.serveAPI()
	if err != nil {
		_ = r.close()
		return fail(err)
	}
	return part{failed: r.failed, stop: func() error {
		return errors.Join(closeListener(), r.end(p.closeTimeout()/2, func() { together(stops) }))
	}}, nil
}
