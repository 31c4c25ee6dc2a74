package pipeline

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/internal/fieldcount"
	"github.com/seed-86dfc502/weir/transport"
)

// outcomeShare is the part of the memory that the documents of one decision may take. With
// everything derived from them they take several times that.
const outcomeShare = 16

// unpublishedShare is the part of the memory for frames that the changes log has not
// acknowledged.
const unpublishedShare = 8

// deciders returns how many transactions decide at a time, over which the partitions are
// spread: one for each processor, from 2 to 4. More of them wait for one another in the store.
func deciders() int { return min(max(runtime.GOMAXPROCS(0), 2), 4) }

// decideStage decides the inbox.
type decideStage struct {
	stageOptions
	inbox   *inboxManager
	metrics *decide.Metrics
	noise   *fieldcount.Collector // nil: no statistics
	rereads prometheus.Counter    // partitions read again after a restore

	running atomic.Pointer[decide.Decider] // nil between two subscriptions
}

// start starts the second router, which decides the inbox. A reload changes the plan of the
// decider that runs. The component fails with an error of restarts when it has to start again
// from the store.
func (st *decideStage) start(ctx context.Context, o startOptions) (component, error) {
	if o.again { // records that a store lost may have been decided otherwise
		var cut *transport.TruncatedError
		_ = errors.As(o.because, &cut)
		st.inbox.reopen(ctx, cut)
	}
	now := st.active.now.Load()
	plan := now.plan
	if plan.Revision < o.revision { // a roll-back is a revision of its own
		renewed := *plan
		renewed.Revision = o.revision
		plan = &renewed
	}
	limit := st.newLimit("decide")
	decider, err := decide.New(decide.Options{
		Store: st.store, Inbox: st.inbox.now(), TakenOver: st.inbox.takenOver, Plan: plan, Next: st.nextPlan,
		NewProducer:  st.logs.NewProducer,
		ChangesTopic: st.cfg.Kafka.Changes.Topic,
		Workers:      deciders(), MaxOutcome: int(st.cfg.FlowMemory()) / outcomeShare,
		Cache: st.cfg.CacheMemory(), MaxUnpublished: st.cfg.FlowMemory() / unpublishedShare,
		RetakeDelay: min(time.Second, st.cfg.Kafka.SessionTimeout.D()/4),
		Limit:       limit.ctx,
		Logger:      st.log, Metrics: st.metrics, Noise: st.noise, Tracer: st.tracer,
	})
	if err != nil {
		limit.giveUp()
		return component{}, err
	}
	gc := st.group(limit.ctx, st.cfg.Kafka.Prefix+".decide", st.cfg.Kafka.FrameRecords, st.cfg.Kafka.Inbox.Topic)
	gc.Listener, gc.OnRewind, gc.FailOnTruncation = decider, st.onStoreRewound, true
	c, err := st.subscribe(ctx, limit, gc, decider.Run, decider.Handle)
	if err != nil {
		return component{}, err
	}
	st.running.Store(decider)
	now.decides()
	c.reconfigure = func(ctx context.Context, next *settings) error {
		if err := st.adopt(ctx, decider, now, next); err != nil {
			return err
		}
		now = next
		now.decides()
		return nil
	}
	return c.onStop(func() { st.running.Store(nil) }), nil
}

// adopt makes the decider decide under other settings. It has to start again when the inbox
// has another generation, or the store gave the services other numbers.
func (st *decideStage) adopt(ctx context.Context, d *decide.Decider, now, next *settings) error {
	if next.plan.Revision <= now.plan.Revision {
		return errors.New("the services have other numbers")
	}
	before := st.inbox.now()
	// As at a start: records that a store lost may have been decided otherwise.
	st.inbox.reopen(ctx, nil)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if st.inbox.now() != before {
		return errors.New("the inbox has another generation")
	}
	d.Adopt(next.plan)
	return nil
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
