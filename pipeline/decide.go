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
// take; with everything derived from them they take several times that.
const outcomeShare = 16

// unpublishedShare is the part of the memory for frames that the changes log has not
// acknowledged.
const unpublishedShare = 8

// startDecide starts the second router and keeps it. A reload changes the plan of the
// decider that runs. When the store went back behind the records that were read, or another
// configuration took over, the subscription ends and starts again from the store.
func (st *stageSet) startDecide() component {
	failed := make(chan error, 1)
	stop := loop(func(ctx context.Context) {
		now := st.active.now.Load()
		plan := now.plan
		for ctx.Err() == nil {
			under, err := st.decide(ctx, now, plan)
			if ctx.Err() != nil {
				return
			}
			if under != now {
				now, plan = under, under.plan
			}
			next := st.active.latest()
			var cut *transport.TruncatedError
			if errors.As(err, &cut) || errors.Is(err, decide.ErrReread) || errors.Is(err, decide.ErrInboxReplaced) {
				st.log.Warn("opening the inbox again", "event", "inbox.reopened", "because", err)
				st.inbox.reopen(ctx, cut)
				err = nil
			} else if next != now {
				// As at a start: records that a store lost may have been decided otherwise.
				st.inbox.reopen(ctx, nil)
			}
			switch {
			case next != now:
				now, plan = next, next.plan // a batch in work was fenced, or is decided again
			case err == nil:
			case errors.Is(err, store.ErrSuperseded):
				st.log.Warn("another configuration is active: this process decides nothing until its own is active again", "event", "revision.superseded")
				st.health.superseded.Store(true)
				active, ok := st.active.await(ctx)
				if !ok {
					return
				}
				now = st.active.now.Load()
				renewed := *now.plan // a roll-back is a revision of its own
				renewed.Revision = active.Number
				plan = &renewed
				st.log.Info("this configuration is active again", "event", "revision.active", "revision", active.Number)
				// The store may have gone back, and its lost records been decided otherwise.
				st.inbox.reopen(ctx, nil)
				st.health.superseded.Store(false)
			default:
				failed <- fmt.Errorf("decide: %w", err)
				return
			}
		}
	})
	return component{failed: failed, stop: func() error { stop(); return nil }}
}

// decide runs one subscription to the inbox until ctx ends or deciding cannot continue. It
// returns the settings that it decided under last.
func (st *stageSet) decide(ctx context.Context, now *settings, plan *decide.Plan) (under *settings, err error) {
	limit := st.newLimit(st.end.decide.ctx, "decide")
	defer limit.giveUp()
	decider, err := decide.New(decide.Options{
		Store: st.store, Inbox: st.inbox.now(), Plan: plan, Next: st.nextPlan,
		NewProducer:  st.logs.NewProducer,
		ChangesTopic: st.cfg.Kafka.Changes.Topic,
		Workers:      st.cfg.Decide.Workers, MaxEvents: st.cfg.Decide.BatchEvents, MaxOutcome: int(st.cfg.FlowMemory()) / outcomeShare,
		Cache: int64(st.cfg.Decide.Cache), MaxUnpublished: st.cfg.FlowMemory() / unpublishedShare,
		RetakeDelay: min(time.Second, st.cfg.Kafka.SessionTimeout.D()/4),
		Limit:       limit.ctx,
		Logger:      st.log, Metrics: st.metrics.decide, Noise: st.noise, Tracer: st.tracer,
	})
	if err != nil {
		return now, err
	}
	halted := make(chan error, 1)
	stopDecider := loop(func(ctx context.Context) { halted <- decider.Run(ctx) })
	defer stopDecider()
	topic := st.cfg.Kafka.Inbox.Topic
	gc := st.groupConfig(limit.ctx, st.cfg.Kafka.Group+".decide", min(st.cfg.Kafka.FrameRecords, st.cfg.Decide.BatchEvents), topic)
	gc.Listener, gc.OnRewind, gc.FailOnTruncation = decider, st.onStoreRewound, true
	group, err := st.logs.NewGroup(ctx, gc)
	if err != nil {
		return now, err
	}
	ended := func() {}
	defer func() {
		_ = group.Close()
		ended()
	}()
	r, err := st.startRouter("decide", []route{{name: "decide", topic: topic, subscriber: group.Subscriber(), handle: decider.Handle}})
	if err != nil {
		return now, err
	}
	st.decider.Store(decider)
	defer st.decider.Store(nil)
	now.decides()
	for running := true; running; {
		select {
		case <-ctx.Done():
			return now, r.end(st.closeTimeout()/2, stopDecider)
		case <-now.replaced:
			next := st.active.latest()
			if running = st.adopt(ctx, decider, now, next); running {
				now = next
				now.decides()
			}
		case err = <-halted:
			running = false
		case err = <-r.failed:
			running = false
		case <-group.Failed():
			running = false
		}
	}
	ended = limit.stopping()
	return now, causes(errors.Join(err, r.end(0, stopDecider)), halted, group)
}

// adopt makes the decider decide under other settings; false when it has to start again: the
// inbox has another generation, or the store gave the services other numbers.
func (st *stageSet) adopt(ctx context.Context, d *decide.Decider, now, next *settings) bool {
	if next.plan.Revision <= now.plan.Revision {
		return false
	}
	before := st.inbox.now()
	// As at a start: records that a store lost may have been decided otherwise.
	st.inbox.reopen(ctx, nil)
	if ctx.Err() != nil || st.inbox.now() != before {
		return false
	}
	d.Adopt(next.plan)
	return true
}

// nextPlan returns the plan that replaced a superseded one in this process, nil if none
// did. It waits for a reload under way, and until the inbox was examined for it.
func (st *stageSet) nextPlan(ctx context.Context, superseded *decide.Plan) *decide.Plan {
	now := st.active.latest()
	if now.plan.Revision <= superseded.Revision || !now.decidesWithin(ctx) {
		return nil
	}
	return now.plan
}
