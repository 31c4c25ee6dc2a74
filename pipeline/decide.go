package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/transport"
)

// outcomeShare is the part of the memory that the documents of one decision may
// take; with what stands beside them they take several times that.
const outcomeShare = 16

// unpublishedShare is the part of the memory for frames that the changes log has not
// acknowledged.
const unpublishedShare = 8

// startDecide starts the second router and keeps it: when the store went back
// behind what was read, or another configuration took over, the subscription
// ends and, when that is right, starts again from the store.
func (st *stages) startDecide() part {
	failed := make(chan error, 1)
	stop := loop(func(ctx context.Context) {
		now := st.active.now.Load()
		plan := now.plan
		for ctx.Err() == nil {
			err := st.decide(ctx, now, plan)
			if ctx.Err() != nil {
				return
			}
			next := st.active.latest()
			var cut *transport.TruncatedError
			if errors.As(err, &cut) || errors.Is(err, decide.ErrReread) || errors.Is(err, decide.ErrInboxReplaced) {
				// Whatever else ended it: nobody says it a second time.
				st.log.Warn("opening the inbox again", "because", err)
				st.inbox.reopen(ctx, cut)
				err = nil
			} else if next != now {
				// As at a start: what a store forgot may not be decided otherwise.
				st.inbox.reopen(ctx, nil)
			}
			switch {
			case next != now:
				// A batch that was in hand was fenced, or is decided again.
				now, plan = next, next.plan
			case err == nil:
			case errors.Is(err, store.ErrSuperseded):
				st.log.Warn("another configuration is active: this process decides nothing more until its own is active again")
				st.health.superseded.Store(true)
				active, ok := st.active.await(ctx)
				if !ok {
					return
				}
				// A roll-back is a revision of its own.
				now = st.active.now.Load()
				renewed := *now.plan
				renewed.Revision = active.Number
				plan = &renewed
				st.log.Info("this configuration is active again", "revision", active.Number)
				// The store may have gone back, and what it forgot been decided otherwise.
				st.inbox.reopen(ctx, nil)
				st.health.superseded.Store(false)
			default:
				failed <- fmt.Errorf("decide: %w", err)
				return
			}
		}
	})
	return part{failed: failed, stop: func() error { stop(); return nil }}
}

// decide runs one subscription to the inbox until ctx ends, now is replaced or
// deciding cannot continue.
func (st *stages) decide(ctx context.Context, now *settings, plan *decide.Plan) error {
	limit := st.newLimit(st.end.decide.ctx, "decide")
	defer limit.giveUp()
	decider, err := decide.New(decide.Options{
		Store: st.store, Inbox: st.inbox.now(), Plan: plan,
		NewProducer:  st.logs.NewProducer,
		ChangesTopic: st.cfg.Kafka.Changes.Topic,
		Workers:      st.cfg.Decide.Workers, MaxEvents: st.cfg.Decide.BatchEvents, MaxOutcome: int(st.cfg.Limits.Memory) / outcomeShare,
		Cache: int64(st.cfg.Decide.Cache), MaxUnpublished: int64(st.cfg.Limits.Memory) / unpublishedShare,
		RetakeDelay: min(time.Second, st.cfg.Kafka.SessionTimeout.D()/4),
		Limit:       limit.ctx,
		Logger:      st.log, Metrics: st.metrics.decide, Noise: st.noise, Tail: &st.tail, Tracer: st.tracer,
	})
	if err != nil {
		return err
	}
	halted := make(chan error, 1)
	stopDecider := loop(func(ctx context.Context) { halted <- decider.Run(ctx) })
	defer stopDecider()
	topic := st.cfg.Kafka.Inbox.Topic
	gc := st.groupConfig(limit.ctx, st.cfg.Kafka.Group+".decide", min(st.cfg.Kafka.Window, st.cfg.Decide.BatchEvents), topic)
	gc.Listener, gc.OnRewind, gc.FailOnTruncation = decider, st.onStoreRewound, true
	group, err := st.logs.NewGroup(ctx, gc)
	if err != nil {
		return err
	}
	ended := func() {}
	defer func() {
		_ = group.Close()
		ended()
	}()
	r, err := st.startRouter("decide", []route{{name: "decide", topic: topic, subscriber: group.Subscriber(), handle: decider.Handle}})
	if err != nil {
		return err
	}
	st.decider.Store(decider)
	defer st.decider.Store(nil)
	now.decides()
	select {
	case <-ctx.Done():
		return r.end(st.closeTimeout()/2, stopDecider)
	case <-now.replaced: // whatever is in hand would be fenced
	case err = <-halted:
	case err = <-r.failed:
	case <-group.Failed():
	}
	ended = limit.stopping()
	return causes(errors.Join(err, r.end(0, stopDecider)), halted, group)
}
