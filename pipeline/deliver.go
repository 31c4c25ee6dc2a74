package pipeline

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/inbox"
	"github.com/seed-86dfc502/weir/transport"
)

// startDeliver starts the third router: one handler per service, all on one
// consumer group and one client.
func (p *Pipeline) startDeliver(ctx context.Context, revision int64, superseded func()) (part, error) {
	now := p.now.Load()
	services := now.cfg.Services()
	topics := make([]string, len(services))
	for i, s := range services {
		topics[i] = s.Topic
	}
	limit := p.newLimit(p.end.deliver.ctx, "deliver")
	gc := p.groupConfig(limit.ctx, p.cfg.Kafka.Group+".deliver", deliverFrame, topics...)
	repairs := newRepairs(p)
	gc.OnRecordsLost, gc.ReportMissedHistory = repairs.gone, true
	group, err := transport.NewGroup(ctx, p.kafka, gc)
	if err != nil {
		limit.giveUp()
		return part{}, err
	}
	confirmer := deliver.NewConfirmer(p.store, p.log.With("stage", "deliver"))
	confirmer.Limit = limit.ctx
	stopConfirmer := loop(confirmer.Run)
	var stops []func()
	stopAll := func() {
		together(stops)
		stopConfirmer()
		repairs.close()
	}
	p.deliverMetrics.Begin()
	var routes []route
	var deliverers []*deliver.Deliverer
	for i, s := range services {
		sink, err := p.newSink(s)
		if err != nil {
			stopAll()
			limit.giveUp()
			return part{}, errors.Join(fmt.Errorf("service %s: %w", s.Name, err), group.Close())
		}
		d := deliver.New(deliver.Options{
			Service: s.Name, Number: now.plan.Services[i].Number, Sink: sink, Store: p.store, Confirmer: confirmer,
			Revision: revision, Superseded: superseded,
			Control: p.control,
			Retry: deliver.Retry{
				Attempts: s.Delivery.Retry.Attempts, MinBackoff: s.Delivery.Retry.MinBackoff.D(), MaxBackoff: s.Delivery.Retry.MaxBackoff.D(),
			},
			StopGrace: p.closeTimeout(), Limit: limit.ctx,
			Logger: p.log, Metrics: p.deliverMetrics, Tracer: p.tracer,
		})
		stops = append(stops, loop(func(ctx context.Context) { _ = d.Run(ctx) }))
		routes = append(routes, route{name: "deliver." + s.Name, topic: s.Topic, subscriber: group.Subscriber(), handle: repairs.behind(d.Handle)})
		deliverers = append(deliverers, d)
	}
	p.parts.mu.Lock()
	p.parts.outGroup, p.parts.delivers = group, deliverers
	p.parts.mu.Unlock()
	r, err := p.startRouter("deliver", routes)
	if err != nil {
		stopAll()
		limit.giveUp()
		return part{}, errors.Join(err, group.Close())
	}
	now.delivers.Do(now.adopted.Done)
	failed := make(chan error, 1)
	done := make(chan struct{})
	go func() {
		select {
		case err := <-r.failed:
			failed <- err
		case <-group.Failed():
			failed <- fmt.Errorf("deliver: %w", group.Err())
		case <-done:
		}
	}()
	return part{failed: failed, stop: func() error {
		close(done)
		defer limit.stopping()()
		err := r.end(p.closeTimeout()/2, stopAll)
		p.parts.mu.Lock()
		p.parts.outGroup, p.parts.delivers = nil, nil
		p.parts.mu.Unlock()
		if e := group.Close(); e != nil {
			// Nothing is lost by it: the group drops this member after the session time-out.
			p.log.Warn("the group was not left in order", "stage", "deliver", "error", e)
		}
		return err
	}}, nil
}

// deliverFrame is how many records of a changes topic make a frame. Each holds
// the changes of one decision.
const deliverFrame = 32

// control appends a control record to the inbox.
func (p *Pipeline) control(ctx context.Context, entity string, c inbox.Control) error {
	record, err := p.controlRecord(entity, c)
	if err != nil {
		return err
	}
	return p.append.Append(ctx, []transport.Record{record})
}

// controlRecord gives the inbox record of a control record.
func (p *Pipeline) controlRecord(entity string, c inbox.Control) (transport.Record, error) {
	key, head, value, err := inbox.Encode(inbox.Record{Entity: entity, Control: &c})
	return transport.Record{
		Topic: p.cfg.Kafka.Inbox.Topic, Key: key, Value: value,
		Headers: []transport.Header{{Key: inbox.Header, Value: head}},
	}, err
}
