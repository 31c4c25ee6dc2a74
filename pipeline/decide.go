package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/transport"
)

// outcomeShare is the part of the memory that the documents of one decision may
// take; with what stands beside them they take several times that.
const outcomeShare = 16

// startDecide starts the second router and keeps it: when the store went back
// behind what was read, or another configuration took over, the subscription
// ends and, when that is right, starts again from the store.
func (p *Pipeline) startDecide() part {
	failed := make(chan error, 1)
	stop := loop(func(ctx context.Context) {
		now := p.active.now.Load()
		plan := now.plan
		for ctx.Err() == nil {
			err := p.decide(ctx, now, plan)
			if next := p.active.latest(); next != now && ctx.Err() == nil {
				// A batch that was in hand was fenced, or is decided again.
				now, plan = next, next.plan
				continue
			}
			var cut *transport.TruncatedError
			switch {
			case ctx.Err() != nil || err == nil:
				return
			case errors.As(err, &cut):
				p.log.Warn("opening the inbox again", "because", err)
				p.reopenInbox(ctx, cut)
			case errors.Is(err, decide.ErrReread):
				p.log.Warn("reading the inbox again", "because", err)
				p.reopenInbox(ctx, nil)
			case errors.Is(err, decide.ErrInboxReplaced):
				p.log.Warn("opening the inbox again", "because", err)
				p.reopenInbox(ctx, nil)
			case errors.Is(err, store.ErrSuperseded):
				p.log.Warn("another configuration is active: this process decides nothing more until its own is active again")
				p.health.superseded.Store(true)
				active, ok := p.active.await(ctx)
				if !ok {
					return
				}
				// A roll-back is a revision of its own.
				now = p.active.now.Load()
				renewed := *now.plan
				renewed.Revision = active.Number
				plan = &renewed
				p.log.Info("this configuration is active again", "revision", active.Number)
				if p.active.wentBack.Load() {
					p.reopenInbox(ctx, nil)
				}
				p.health.superseded.Store(false)
			default:
				failed <- fmt.Errorf("decide: %w", err)
				return
			}
		}
	})
	return part{failed: failed, stop: func() error { stop(); return nil }}
}

// reopenInbox finds the generation of an inbox that was replaced, for as long as
// that takes.
func (p *Pipeline) reopenInbox(ctx context.Context, cut *transport.TruncatedError) {
	for pause := time.Second; ; pause = min(2*pause, 30*time.Second) {
		err := p.openTopics(ctx, cut)
		if err == nil || ctx.Err() != nil {
			return
		}
		p.log.Warn("the new inbox cannot be opened; trying again", "error", err)
		if !wait.Sleep(ctx, pause) {
			return
		}
	}
}

// decide runs one subscription to the inbox until ctx ends, now is replaced or
// deciding cannot go on.
func (p *Pipeline) decide(ctx context.Context, now *settings, plan *decide.Plan) error {
	limit := p.newLimit(p.end.decide.ctx, "decide")
	defer limit.giveUp()
	decider, err := decide.New(decide.Options{
		Store: p.store, Inbox: *p.inbox.Load(), Plan: plan,
		NewProducer:  p.logs.NewProducer,
		ChangesTopic: p.cfg.Kafka.Changes.Topic,
		Lanes:        p.cfg.Decide.Lanes, MaxEvents: p.cfg.Decide.BatchEvents, MaxOutcome: int(p.cfg.Limits.Memory) / outcomeShare,
		Cache:      int64(p.cfg.Decide.Cache),
		Hesitation: min(time.Second, p.cfg.Kafka.SessionTimeout.D()/4),
		Limit:      limit.ctx,
		Logger:     p.log, Metrics: p.metrics.decide, Noise: p.noise, Tail: &p.tail, Tracer: p.tracer,
	})
	if err != nil {
		return err
	}
	halted := make(chan error, 1)
	stopDecider := loop(func(ctx context.Context) { halted <- decider.Run(ctx) })
	defer stopDecider()
	topic := p.cfg.Kafka.Inbox.Topic
	gc := p.groupConfig(limit.ctx, p.cfg.Kafka.Group+".decide", min(p.cfg.Kafka.Window, p.cfg.Decide.BatchEvents), topic)
	gc.Listener, gc.OnRewind, gc.FailOnTruncation = decider, p.storeBehind, true
	group, err := p.logs.NewGroup(ctx, gc)
	if err != nil {
		return err
	}
	ended := func() {}
	defer func() {
		_ = group.Close()
		ended()
	}()
	r, err := p.startRouter("decide", []route{{name: "decide", topic: topic, subscriber: group.Subscriber(), handle: decider.Handle}})
	if err != nil {
		return err
	}
	p.parts.mu.Lock()
	p.parts.decider, p.parts.inboxGroup = decider, group
	p.parts.mu.Unlock()
	now.decides.Do(now.adopted.Done)
	defer func() {
		p.parts.mu.Lock()
		p.parts.decider, p.parts.inboxGroup = nil, nil
		p.parts.mu.Unlock()
	}()
	select {
	case <-ctx.Done():
		return r.end(p.closeTimeout()/2, stopDecider)
	case <-now.replaced:
		ended = limit.stopping()
		return r.end(0, stopDecider) // whatever is in hand would be fenced
	case err = <-halted:
	case err = <-r.failed:
		if e := group.Err(); e != nil {
			err = e
		}
	case <-group.Failed():
		err = group.Err()
	}
	ended = limit.stopping()
	return errors.Join(err, r.end(0, stopDecider))
}
