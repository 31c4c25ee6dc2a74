package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/internal/fieldcount"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/transport"
)

// outcomeShare is the part of the memory that the documents of one decision may
// take; with everything derived from them they take several times that.
const outcomeShare = 16

// unpublishedShare is the part of the memory for frames that the changes log has not
// acknowledged.
const unpublishedShare = 8

// decideStage decides the inbox.
type decideStage struct {
	stageOptions
	inbox   *inboxManager
	metrics *decide.Metrics
	noise   *fieldcount.Collector // nil: no statistics
	rereads prometheus.Counter    // partitions read again after a restore

	superseded atomic.Bool                    // another configuration is active: nothing is decided
	running    atomic.Pointer[decide.Decider] // nil between two subscriptions
}

// start starts the second router and keeps it. A reload changes the plan of the
// decider that runs. When the store went back behind the records that were read, or another
// configuration took over, the subscription ends and starts again from the store.
func (st *decideStage) start() component {
	failed := make(chan error, 1)
	stop := loop(func(ctx context.Context) {
		now := st.active.now.Load()
		plan := now.plan
		for ctx.Err() == nil {
			under, err := st.run(ctx, now, plan)
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
				st.superseded.Store(true)
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
				st.superseded.Store(false)
			default:
				failed <- fmt.Errorf("decide: %w", err)
				return
			}
		}
	})
	return component{failed: failed, stop: func() error { stop(); return nil }}
}

// run runs one subscription to the inbox until ctx ends or deciding cannot continue. It
// returns the settings that it decided under last.
func (st *decideStage) run(ctx context.Context, now *settings, plan *decide.Plan) (under *settings, err error) {
	limit := st.newLimit("decide")
	defer limit.giveUp()
	decider, err := decide.New(decide.Options{
		Store: st.store, Inbox: st.inbox.now(), Plan: plan, Next: st.nextPlan,
		NewProducer:  st.logs.NewProducer,
		ChangesTopic: st.cfg.Kafka.Changes.Topic,
		Workers:      st.cfg.Decide.Workers, MaxEvents: st.cfg.Decide.BatchEvents, MaxOutcome: int(st.cfg.FlowMemory()) / outcomeShare,
		Cache: int64(st.cfg.Decide.Cache), MaxUnpublished: st.cfg.FlowMemory() / unpublishedShare,
		RetakeDelay: min(time.Second, st.cfg.Kafka.SessionTimeout.D()/4),
		Limit:       limit.ctx,
		Logger:      st.log, Metrics: st.metrics, Noise: st.noise, Tracer: st.tracer,
	})
	if err != nil {
		return now, err
	}
	halted := make(chan error, 1)
	stopDecider := loop(func(ctx context.Context) { halted <- decider.Run(ctx) })
	defer stopDecider()
	topic := st.cfg.Kafka.Inbox.Topic
	gc := st.group(limit.ctx, st.cfg.Kafka.Group+".decide", min(st.cfg.Kafka.FrameRecords, st.cfg.Decide.BatchEvents), topic)
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
	st.running.Store(decider)
	defer st.running.Store(nil)
	now.decides()
	for running := true; running; {
		select {
		case <-ctx.Done():
			return now, r.end(closeTimeout(st.cfg)/2, stopDecider)
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
func (st *decideStage) adopt(ctx context.Context, d *decide.Decider, now, next *settings) bool {
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
func (st *decideStage) nextPlan(ctx context.Context, superseded *decide.Plan) *decide.Plan {
	now := st.active.latest()
	if now.plan.Revision <= superseded.Revision || !now.decidesWithin(ctx) {
		return nil
	}
	return now.plan
}

// halted returns why no decision can be made now, nil if there is no reason.
func (st *decideStage) halted() (reason string, err error) {
	if d := st.running.Load(); d != nil {
		err = d.Halted()
	}
	return blockedHalted, err
}

// onStoreRewound is called when the watermark is below an offset that was decided before: the
// store was restored, or failed over without its last commits.
func (st *decideStage) onStoreRewound(_ string, partition int32, decided, watermark int64) {
	st.rereads.Inc()
	st.log.Warn("store was restored to an earlier state; re-reading the inbox", "event", "store.restored", "partition", partition, "decided_to", decided, "reading_from", watermark)
}
