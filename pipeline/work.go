package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/internal/fieldcount"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/operate"
)

const (
	// outcomeShare is the part of the memory that the documents of one decision may take. With
	// everything derived from them they take several times that.
	outcomeShare = 16
	// deliverShare is the part of the memory that changes may take that wait for sinks.
	deliverShare = 4
)

// deciders returns how many transactions decide at a time, over which the partitions are
// spread: one for each processor, from 2 to 4. More of them wait for one another in the store.
func deciders() int { return min(max(runtime.GOMAXPROCS(0), 2), 4) }

// workStage decides the partitions of the inbox that this process owns, and delivers their changes.
type workStage struct {
	stageOptions
	inbox    *inboxManager
	sinks    func(*config.Config) *assemble.Sinks
	decides  *decide.Metrics
	delivers *deliver.Metrics      // nil: it decides only
	noise    *fieldcount.Collector // nil: no statistics
	rereads  prometheus.Counter    // partitions read again after a restore

	decider atomic.Pointer[decide.Decider] // nil between two subscriptions
	stage   atomic.Pointer[deliver.Stage]  // nil between two subscriptions
}

// start starts the router of the inbox and of the changes log. A reload changes the plan of the decider
// and the services of the stage that run. The component fails with an error of restarts when it has
// to start again from the store.
func (st *workStage) start(ctx context.Context, o startOptions) (component, error) {
	if o.again { // records that a store lost may have been decided otherwise
		var cut *transport.TruncatedError
		_ = errors.As(o.because, &cut)
		st.inbox.reopen(ctx, cut)
	}
	now := st.active.now.Load()
	limit := st.newLimit("work")
	stage, err := st.newStage(ctx, now, o, limit.ctx)
	if err != nil {
		limit.giveUp()
		return component{}, err
	}
	options := decide.Options{
		Store: st.store, Inbox: st.inbox.now(), TakenOver: st.inbox.takenOver, Plan: now.plan, Next: st.nextPlan,
		Workers: deciders(), MaxOutcome: int(st.cfg.FlowMemory()) / outcomeShare, Cache: st.cfg.CacheMemory(),
		RetakeDelay: min(time.Second, st.cfg.Kafka.SessionTimeout.D()/4), Limit: limit.ctx,
		Logger: st.log, Metrics: st.decides, Noise: st.noise, Tracer: st.tracer,
	}
	if options.Plan.Revision < o.revision { // a roll-back is a revision of its own
		renewed := *options.Plan
		renewed.Revision, options.Plan = o.revision, &renewed
	}
	if stage != nil {
		options.HandOver, options.Ends = stage.HandOver, stage.Ends
	}
	decider := decide.New(options)
	gc := st.group(limit.ctx, st.cfg.Kafka.Prefix+".work", st.cfg.Kafka.FrameRecords, st.cfg.Kafka.Inbox.Topic)
	gc.Listener, gc.OnRewind, gc.FailOnTruncation, gc.Sole = deliver.Owner{Decider: decider, Stage: stage}, st.onStoreRewound, true, stage != nil && now.cfg.SoleDelivery()
	routes, runs := []route{{name: "decide", topic: gc.Topic, handle: decider.Handle}}, []func(context.Context) error{decider.Run}
	if stage != nil {
		routes, runs = append(routes, route{name: "deliver", topic: changesTopic, subscriber: stage.Subscriber(), handle: stage.Handle}), append(runs, stage.Run)
	}
	c, err := st.subscribe(ctx, limit, gc, routes, runs)
	if err != nil {
		return component{}, err // the stage has closed the sinks
	}
	st.decider.Store(decider)
	st.stage.Store(stage)
	now.decides()
	now.delivers()
	c.reconfigure = func(ctx context.Context, next *settings) error {
		if err := st.adopt(ctx, decider, now, next); err != nil {
			return err
		}
		next.decides()
		if stage != nil {
			if err := st.reconfigure(ctx, stage, now, next); err != nil {
				return err
			}
		}
		now = next
		now.delivers()
		return nil
	}
	stop := c.stop
	c.stop = func() error {
		defer st.stage.Store(nil)
		defer st.decider.Store(nil)
		return stop()
	}
	return c, nil
}

// changesTopic names the changes log as a router does. It is a table of the store.
const changesTopic = "changes"

// newStage makes the stage that delivers, nil without one.
func (st *workStage) newStage(ctx context.Context, now *settings, o startOptions, limit context.Context) (*deliver.Stage, error) {
	if st.delivers == nil {
		return nil, nil
	}
	layout, err := operate.ReadLayout(ctx, st.store)
	if err != nil {
		return nil, err
	}
	paused, err := operate.Paused(ctx, st.store)
	if err != nil {
		return nil, err
	}
	services, err := st.deliveries(now, nil)
	if err != nil {
		return nil, err
	}
	return deliver.New(deliver.Options{
		Services: services, Paused: paused, Revision: o.revision, Superseded: o.superseded, Store: st.store, History: st.store,
		Feed:    transport.GroupConfig{ID: changesTopic, Topic: changesTopic, CloseTimeout: closeTimeout(st.cfg), Limit: limit},
		Control: st.appendControl, Partition: func(entity string, v change.Version) int32 { return layout.PartitionOf([]byte(entity), v.Generation()) },
		InboxEnd:   st.inboxEnd,
		Partitions: int(layout.Newest()), Memory: st.cfg.FlowMemory() / deliverShare,
		StopGrace: closeTimeout(st.cfg), Limit: limit,
		Logger: st.log, Metrics: st.delivers, Tracer: st.tracer,
	}), nil
}

// reconfigure makes the stage deliver under other settings.
func (st *workStage) reconfigure(ctx context.Context, stage *deliver.Stage, now, next *settings) error {
	if next.cfg.SoleDelivery() != now.cfg.SoleDelivery() {
		return errors.New("one process works while a service writes a file")
	}
	r, err := st.difference(now, next)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, st.cfg.Shutdown.Timeout.D())
	defer cancel()
	if err := stage.Reconfigure(ctx, r); err != nil && ctx.Err() == nil {
		return errors.Join(err, closeSinks(r.Add))
	} else if err != nil { // everything is done except the end of a removed service
		next.markAbandoned("deliver")
	}
	st.log.Info("services reconfigured", "event", "deliver.reconfigured", "revision", r.Revision, "opened", len(r.Add), "removed", len(r.Remove))
	return nil
}

// adopt makes the decider decide under other settings. It has to start again when the inbox
// has another generation, or the store gave the services other numbers.
func (st *workStage) adopt(ctx context.Context, d *decide.Decider, now, next *settings) error {
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
func (st *workStage) nextPlan(ctx context.Context, superseded *decide.Plan) *decide.Plan {
	now := st.active.latest()
	if now.plan.Revision <= superseded.Revision || !now.decidesWithin(ctx) {
		return nil
	}
	return now.plan
}

// halted returns why no decision can be made now, nil if there is no reason.
func (st *workStage) halted() (reason string, err error) {
	if d := st.decider.Load(); d != nil {
		err = d.Halted()
	}
	return blockedHalted, err
}

// onStoreRewound is called when the watermark is below an offset that was decided before: the
// store was restored, or failed over without its last commits.
func (st *workStage) onStoreRewound(_ string, partition int32, decided, watermark int64) {
	st.rereads.Inc()
	st.log.Warn("store was restored to an earlier state; re-reading the inbox", "event", "store.restored", "partition", partition, "decided_to", decided, "reading_from", watermark)
}

// inboxEnd returns the position that the next record of an inbox partition gets.
func (st *workStage) inboxEnd(ctx context.Context, partition int32) (change.Version, error) {
	_, ends, err := st.logs.AvailableOffsets(ctx, st.cfg.Kafka.Inbox.Topic)
	if err != nil {
		return 0, err
	}
	end, available := ends[partition]
	if !available {
		return 0, fmt.Errorf("partition %d of topic %s is not available", partition, st.cfg.Kafka.Inbox.Topic)
	}
	layout, err := operate.ReadLayout(ctx, st.store)
	if err != nil {
		return 0, err
	}
	return change.NewVersion(slices.Max(slices.Collect(maps.Keys(layout))), end), nil
}

// appendControl appends control records to the inbox.
func (st *workStage) appendControl(ctx context.Context, controls ...change.Record) error {
	records, err := operate.InboxRecords(st.cfg.Kafka.Inbox.Topic, controls)
	if err != nil {
		return err
	}
	return st.logs.Append(ctx, records)
}

// conditions returns how each service's delivery is doing.
func (st *workStage) conditions() map[string]deliver.Condition {
	if stage := st.stage.Load(); stage != nil {
		return stage.Conditions()
	}
	return map[string]deliver.Condition{}
}

// applyPauses tells the stage which services operators and the guard paused. While the store does
// not answer they stay as they are.
func (st *workStage) applyPauses(ctx context.Context) {
	stage := st.stage.Load()
	if stage == nil {
		return
	}
	if all, err := operate.Paused(ctx, st.store); err == nil {
		stage.Pause(all)
	}
}
