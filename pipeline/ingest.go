package pipeline

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/ingest"
	"github.com/seed-86dfc502/weir/sources"
	"github.com/seed-86dfc502/weir/transport"
	"github.com/seed-86dfc502/weir/transport/watermillkafka"
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
	for i := range p.cfg.Sources {
		c := &p.cfg.Sources[i]
		shape, err := assemble.Shape(p.cfg, c)
		if err != nil {
			return fail(err)
		}
		stage := ingest.New(ingest.Options{
			Extractor: shape, Gate: p.gate, Inbox: p.logs, Topic: p.cfg.Kafka.Inbox.Topic, Letters: p.store,
			Limit: p.end.ingest.ctx, Logger: p.log, Metrics: p.ingestMetrics, Tracer: p.tracer,
		})
		s := &source{name: c.Name, shape: shape, stage: stage}
		topic, subscriber, closeSource, err := p.subscriber(ctx, c, s)
		if err != nil {
			return fail(fmt.Errorf("source %s: %w", c.Name, err))
		}
		stops = append(stops, closeSource)
		routes = append(routes, route{name: "ingest." + c.Name, topic: topic, subscriber: subscriber, handle: stage.Handle})
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

// subscriber makes the subscriber of a source.
func (p *Pipeline) subscriber(ctx context.Context, c *config.Source, s *source) (topic string, sub message.Subscriber, stop func(), err error) {
	switch {
	case c.File != nil:
		s.file = sources.NewFile(sources.FileOptions{
			Name: c.Name, Path: c.File.Path, Positions: p.store, Complete: p.opt.UntilIdle,
			MaxLine: int(c.MaxEvent), Logger: p.log,
		})
		return "file:" + c.Name, s.file, func() { _ = s.file.Close() }, nil
	case c.HTTP != nil:
		s.push = sources.NewPush(sources.PushOptions{Name: c.Name})
		return "http:" + c.Name, s.push, func() { _ = s.push.Close() }, nil
	case c.Outbox != nil:
		if s.outbox, err = p.openOutbox(ctx, c); err != nil {
			return "", nil, nil, err
		}
		return "outbox:" + c.Name, s.outbox, func() { _ = s.outbox.Close() }, nil
	}
	k := p.kafka
	if len(c.Kafka.Brokers) > 0 {
		if k, _, err = assemble.Cluster(p.cfg, c.Kafka.Cluster, p.log); err != nil {
			return "", nil, nil, err
		}
	}
	if c.Kafka.Window == 1 {
		// One message in flight per partition is what watermill-kafka does.
		sub, err := watermillkafka.NewSubscriber(k, watermillkafka.SubscriberConfig{Group: c.Kafka.Group, SessionTimeout: p.cfg.Kafka.SessionTimeout.D(), OnRecordsLost: p.recordsGone, Limit: p.end.ingest.ctx})
		if err != nil {
			return "", nil, nil, err
		}
		s.edge, s.topic = sub, c.Kafka.Topic
		return c.Kafka.Topic, sub, func() { _ = sub.Close() }, nil
	}
	s.group, err = transport.NewGroup(ctx, k, p.groupConfig(p.end.ingest.ctx, c.Kafka.Group, c.Kafka.Window, c.Kafka.Topic))
	if err != nil {
		return "", nil, nil, err
	}
	return c.Kafka.Topic, s.group.Subscriber(), func() { _ = s.group.Close() }, nil
}
