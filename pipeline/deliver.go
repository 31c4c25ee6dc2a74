package pipeline

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/transport"
)

// startDeliver starts the third router: one handler for the changes log, and the stage
// behind it with all services. The component fails with deliver.ErrLost when it has to
// start again from the store.
func (st *stageSet) startDeliver(ctx context.Context, revision int64, superseded func()) (component, error) {
	layout, err := operate.ReadLayout(ctx, st.store)
	if err != nil {
		return component{}, err
	}
	suspended, err := operate.Suspended(ctx, st.store)
	if err != nil {
		return component{}, err
	}
	limit := st.newLimit(st.end.deliver.ctx, "deliver")
	now := st.active.now.Load()
	services, err := st.deliveries(now)
	if err != nil {
		limit.giveUp()
		return component{}, err
	}
	st.metrics.deliver.Begin()
	topic := st.cfg.Kafka.Changes.Topic
	stage := deliver.New(deliver.Options{
		Services: services, Suspended: suspended, Revision: revision, Superseded: superseded, Store: st.store, History: st.store,
		Log: changesLog{st.logs, topic}, Control: st.appendControl, Partition: func(entity string, v change.Version) int32 { return layout.PartitionOf([]byte(entity), v.Generation()) }, Memory: st.cfg.FlowMemory() / deliverShare,
		StopGrace: st.closeTimeout(), Limit: limit.ctx,
		Logger: st.log, Metrics: st.metrics.deliver, Tracer: st.tracer,
	})
	ended := make(chan error, 1)
	stopStage := loop(func(ctx context.Context) { ended <- stage.Run(ctx) })
	gc := st.groupConfig(limit.ctx, st.cfg.Kafka.Group+".deliver", deliverFrame, topic)
	gc.Listener = stage
	group, err := st.logs.NewGroup(ctx, gc)
	if err != nil {
		stopStage()
		limit.giveUp()
		return component{}, err
	}
	r, err := st.startRouter("deliver", []route{{name: "deliver", topic: topic, subscriber: group.Subscriber(), handle: stage.Handle}})
	if err != nil {
		stopStage()
		limit.giveUp()
		return component{}, errors.Join(err, group.Close())
	}
	st.deliver.Store(stage)
	now.delivers()
	failed := make(chan error, 1)
	done := make(chan struct{})
	go func() {
		var err error
		select {
		case err = <-ended:
		case err = <-r.failed:
		case <-group.Failed():
		case <-done:
			return
		}
		failed <- fmt.Errorf("deliver: %w", causes(err, ended, group))
	}()
	return component{failed: failed, stop: func() error {
		close(done)
		defer limit.stopping()()
		err := r.end(st.closeTimeout()/2, stopStage)
		st.deliver.Store(nil)
		if e := group.Close(); e != nil {
			// Nothing is lost by it: the group drops this member after the session time-out.
			st.log.Warn("the group was not left in order", "stage", "deliver", "error", e)
		}
		return err
	}}, nil
}

const (
	// deliverFrame is how many records of the changes log make a frame of the
	// subscription. Each holds the changes of one decision.
	deliverFrame = 32
	// deliverShare is the part of the memory that changes may take that wait for sinks.
	deliverShare = 4
)

// deliveries makes the services of settings, with their sinks.
func (st *stageSet) deliveries(now *settings) ([]deliver.Service, error) {
	var services []deliver.Service
	made := st.sinks(now.cfg)
	for i, s := range now.cfg.Services() {
		sink, err := made.New(s)
		if err != nil {
			err = fmt.Errorf("service %s: %w", s.Name, err)
			for _, m := range services {
				err = errors.Join(err, m.Sink.Close())
			}
			return nil, err
		}
		retry := s.Delivery.Retry
		services = append(services, deliver.Service{
			Name: s.Name, Number: now.plan.Services[i].Number, Sink: sink, History: s.Delivery.History.Keep > 0,
			Retry: deliver.Retry{Attempts: retry.Attempts, MinBackoff: retry.MinBackoff.D(), MaxBackoff: retry.MaxBackoff.D(), Later: retry.Later.D()},
		})
	}
	return services, nil
}

// sinks makes sinks of this process, for a configuration that it works under.
func (p *process) sinks(c *config.Config) *assemble.Sinks {
	return &assemble.Sinks{Config: c, Logger: p.log, Targets: &p.targets}
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

// appendControl appends a control record to the inbox.
func (st *stageSet) appendControl(ctx context.Context, entity string, c change.Control) error {
	r, err := st.controlRecord(entity, c)
	if err != nil {
		return err
	}
	return st.logs.Append(ctx, []transport.Record{r})
}

func (p *process) controlRecord(entity string, c change.Control) (transport.Record, error) {
	key, head, value, err := change.EncodeRecord(change.Record{Entity: entity, Control: &c})
	return transport.Record{
		Topic: p.cfg.Kafka.Inbox.Topic, Key: key, Value: value,
		Headers: []transport.Header{{Key: change.InboxHeader, Value: head}},
	}, err
}
