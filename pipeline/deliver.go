package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync/atomic"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/operate"
)

// deliverStage delivers the changes.
type deliverStage struct {
	stageOptions
	sinks   func(*config.Config) *assemble.Sinks
	metrics *deliver.Metrics

	running atomic.Pointer[deliver.Stage] // nil between two subscriptions
}

// start starts the third router: one handler for the changes log, and the stage
// behind it with all services. The component fails with deliver.ErrLost when it has to
// start again from the store.
func (st *deliverStage) start(ctx context.Context, o startOptions) (component, error) {
	layout, err := operate.ReadLayout(ctx, st.store)
	if err != nil {
		return component{}, err
	}
	suspended, err := operate.Suspended(ctx, st.store)
	if err != nil {
		return component{}, err
	}
	limit := st.newLimit("deliver")
	now := st.active.now.Load()
	services, err := st.deliveries(now, nil)
	if err != nil {
		limit.giveUp()
		return component{}, err
	}
	topic := st.cfg.Kafka.Changes.Topic
	stage := deliver.New(deliver.Options{
		Services: services, Suspended: suspended, Revision: o.revision, Superseded: o.superseded, Store: st.store, History: st.store,
		Log: changesLog{st.logs, topic}, Control: st.appendControl, Partition: func(entity string, v change.Version) int32 { return layout.PartitionOf([]byte(entity), v.Generation()) },
		InboxEnd:   st.inboxEnd,
		Partitions: int(layout.Newest()), Memory: st.cfg.FlowMemory() / deliverShare,
		StopGrace: closeTimeout(st.cfg), Limit: limit.ctx,
		Logger: st.log, Metrics: st.metrics, Tracer: st.tracer,
	})
	gc := st.group(limit.ctx, st.cfg.Kafka.Prefix+".deliver", deliverFrame, topic)
	gc.Listener, gc.Sole = stage, now.cfg.SoleDelivery()
	c, err := st.subscribe(ctx, limit, gc, stage.Run, stage.Handle)
	if err != nil {
		return component{}, err // the stage has closed the sinks
	}
	st.running.Store(stage)
	now.delivers()
	c.reconfigure = func(ctx context.Context, next *settings) error {
		if next.cfg.SoleDelivery() != gc.Sole {
			return errors.New("one process delivers while a service writes a file")
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
		now = next
		now.delivers()
		st.log.Info("services reconfigured", "event", "deliver.reconfigured", "revision", r.Revision, "opened", len(r.Add), "removed", len(r.Remove))
		return nil
	}
	return c.onStop(func() { st.running.Store(nil) }), nil
}

const (
	// deliverFrame is how many records of the changes log make a frame of the
	// subscription. Each holds the changes of one decision.
	deliverFrame = 32
	// deliverShare is the part of the memory that changes may take that wait for sinks.
	deliverShare = 4
)

// deliveries makes the services of settings that are new or changed since before, with their
// sinks. Without before it makes all.
func (st *deliverStage) deliveries(now, before *settings) ([]deliver.Service, error) {
	var services []deliver.Service
	made, known := st.sinks(now.cfg), before.delivered()
	for i, s := range now.cfg.Services() {
		number := now.plan.Services[i].Number
		if old, found := known[number]; found && sameDelivery(old, s) {
			continue
		}
		sink, err := made.New(s)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("service %s: %w", s.Name, err), closeSinks(services))
		}
		retry := s.Delivery.Retry
		services = append(services, deliver.Service{
			Name: s.Name, Number: number, Sink: sink, History: s.Delivery.History.Keep > 0,
			Guard: guardOf(s.Delivery.Guard), Pace: paceOf(s.Delivery.Pace), Refresh: s.Delivery.Refresh.D(),
			Retry: deliver.Retry{For: retry.For.D(), MinBackoff: retry.MinBackoff.D(), MaxBackoff: retry.MaxBackoff.D(), Later: retry.RedriveAfter.D()},
		})
	}
	return services, nil
}

func guardOf(g *config.Guard) deliver.Guard {
	return deliver.Guard{Retract: float64(g.Retract), Update: float64(g.Update), Min: int64(g.Min), Window: g.Window.D()}
}

func paceOf(p *config.Pace) deliver.Pace {
	return deliver.Pace{Rate: float64(p.Rate), Burst: p.Burst, Settle: p.Settle.D(), SettleMax: p.SettleMax.D()}
}

// difference returns the services that a reload changes, with the sinks of new ones.
func (st *deliverStage) difference(before, now *settings) (r deliver.Reconfiguration, err error) {
	r.Revision = now.plan.Revision
	if r.Add, err = st.deliveries(now, before); err != nil {
		return r, err
	}
	after := now.delivered()
	for number, old := range before.delivered() {
		if s, found := after[number]; !found || !sameDelivery(old, s) {
			r.Remove = append(r.Remove, number)
		}
	}
	return r, nil
}

// delivered returns the services of settings by number.
func (s *settings) delivered() map[int32]config.Service {
	all := map[int32]config.Service{}
	if s == nil {
		return all
	}
	for i, service := range s.cfg.Services() {
		all[s.plan.Services[i].Number] = service
	}
	return all
}

// sameDelivery reports whether two services are delivered alike, wherever their files have
// them. Their projections do not matter to their sinks.
func sameDelivery(a, b config.Service) bool {
	x, y := *a.Delivery, *b.Delivery
	x.Pos, y.Pos = config.Position{}, config.Position{}
	return a.Name == b.Name && reflect.DeepEqual(x, y)
}

func closeSinks(services []deliver.Service) (err error) {
	for _, s := range services {
		err = errors.Join(err, s.Sink.Close())
	}
	return err
}

// changesLog is the deliver.Log of a topic.
type changesLog struct {
	logs  assemble.Logs
	topic string
}

// NewReader implements deliver.Log.
func (l changesLog) NewReader() deliver.Reader { return l.logs.NewReader(l.topic) }

// Offsets implements deliver.Log.
func (l changesLog) Offsets(ctx context.Context, partition int32) (start, end int64, err error) {
	starts, ends, err := l.logs.AvailableOffsets(ctx, l.topic)
	if err != nil {
		return 0, 0, err
	}
	if _, available := ends[partition]; !available {
		return 0, 0, fmt.Errorf("partition %d of topic %s is not available", partition, l.topic)
	}
	return starts[partition], ends[partition], nil
}

// inboxEnd returns the position that the next record of an inbox partition gets.
func (st *deliverStage) inboxEnd(ctx context.Context, partition int32) (change.Version, error) {
	_, end, err := changesLog{st.logs, st.cfg.Kafka.Inbox.Topic}.Offsets(ctx, partition)
	if err != nil {
		return 0, err
	}
	layout, err := operate.ReadLayout(ctx, st.store)
	if err != nil {
		return 0, err
	}
	return change.NewVersion(slices.Max(slices.Collect(maps.Keys(layout))), end), nil
}

// appendControl appends control records to the inbox.
func (st *deliverStage) appendControl(ctx context.Context, controls ...change.Record) error {
	records, err := operate.InboxRecords(st.cfg.Kafka.Inbox.Topic, controls)
	if err != nil {
		return err
	}
	return st.logs.Append(ctx, records)
}

// conditions returns how each service's delivery is doing.
func (st *deliverStage) conditions() map[string]deliver.Condition {
	if stage := st.running.Load(); stage != nil {
		return stage.Conditions()
	}
	return map[string]deliver.Condition{}
}

// applySuspensions tells the stage which services operators suspended. While the store does
// not answer they stay as they are.
func (st *deliverStage) applySuspensions(ctx context.Context) {
	stage := st.running.Load()
	if stage == nil {
		return
	}
	if all, err := operate.Suspended(ctx, st.store); err == nil {
		stage.Suspend(all)
	}
}
