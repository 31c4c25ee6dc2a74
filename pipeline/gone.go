package pipeline

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/inbox"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/transport"
)

// recordsGone is told when records that were still wanted are gone.
func (p *Pipeline) recordsGone(topic string, partition int32, wanted, got int64) {
	p.gauges.resets.WithLabelValues(topic).Inc()
	p.log.Error("records that were still wanted are gone from the topic", "topic", topic, "partition", partition, "wanted_offset", wanted, "going_on_at", got)
}

// storeBehind is told when the watermark is below what was decided once: the
// store was restored, or failed over without its last commits.
func (p *Pipeline) storeBehind(_ string, partition int32, decided, watermark int64) {
	p.gauges.rereads.Inc()
	p.log.Warn("the store is behind the inbox: what it forgot is read again", "partition", partition, "decided_once_to", decided, "reading_from", watermark)
}

// checkStore looks whether the store went back under this process. Decisions
// notice it by themselves; without it an inbox in which nothing new comes
// would be read again at the next event only.
func (p *Pipeline) checkStore(ctx context.Context) {
	p.parts.mu.Lock()
	d := p.parts.decider
	p.parts.mu.Unlock()
	if d == nil {
		return
	}
	decided := d.Decided() // before the store is asked: watermarks only grow
	if marks, err := p.store.Watermarks(ctx); err == nil {
		d.Compare(decided, marks)
	}
}

// sayReplaced is called when the store does not know the inbox topic: if it has
// decided what another one held, that one was replaced.
func (p *Pipeline) sayReplaced(ctx context.Context) error {
	marks, err := p.store.Watermarks(ctx)
	if err != nil || len(marks) == 0 {
		return err
	}
	p.gauges.resets.WithLabelValues(p.cfg.Kafka.Inbox.Topic).Inc()
	p.log.Error("the inbox topic is another one than before: records that only the old one held and that were not decided are lost", "topic", p.cfg.Kafka.Inbox.Topic)
	return nil
}

// repairs make up for changes that were gone from their topic before they were
// delivered: whoever's newest change is among them is sent the present document
// (I1 for state sinks; what is in between is lost, and a log sink may get a
// content that it has once more).
type repairs struct {
	p       *Pipeline
	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup
}

func newRepairs(p *Pipeline) *repairs {
	r := &repairs{p: p}
	r.ctx, r.stop = context.WithCancel(context.Background())
	return r
}

// close ends what is under way and returns when it has ended. It is found again
// at the next start, unless something of the partition was delivered since.
func (r *repairs) close() {
	r.stop()
	r.running.Wait()
}

// gone is an OnReset.
func (r *repairs) gone(topic string, partition int32, wanted, got int64) {
	r.p.recordsGone(topic, partition, wanted, got)
	if r.ctx.Err() != nil {
		return
	}
	r.running.Go(func() {
		for {
			n, err := r.repair(topic, partition, got)
			if err == nil {
				r.p.log.Warn("entities whose change is gone are sent again as they are now", "topic", topic, "partition", partition, "entities", n)
				return
			}
			if r.ctx.Err() == nil {
				r.p.log.Warn("cannot see yet whose change is gone; trying again", "topic", topic, "error", err)
			}
			select {
			case <-time.After(repairPause):
			case <-r.ctx.Done():
				return
			}
		}
	})
}

const (
	repairPause = 2 * time.Second
	repairPage  = 500
)

// repair asks for a decision about each entity of a partition whose newest
// change is neither delivered nor in the topic from an offset on.
func (r *repairs) repair(topic string, partition int32, from int64) (int, error) {
	p := r.p
	var number int32
	var service string
	now := p.now.Load()
	for i, s := range now.cfg.Services() {
		if s.Topic == topic {
			number, service = now.plan.Services[i].Number, s.Name
		}
	}
	// The rows first: a change that is decided later is in the topic later.
	waiting := map[string]change.Version{}
	for after := ""; ; {
		page, err := p.store.Entities(r.ctx, after, repairPage)
		if err != nil {
			return 0, err
		}
		if len(page) == 0 {
			break
		}
		after = page[len(page)-1].ID
		var keys []store.Key
		for _, e := range page {
			if transport.PartitionOf([]byte(e.ID), int32(p.cfg.Kafka.Changes.Partitions)) == partition {
				keys = append(keys, store.Key{Service: number, Entity: e.ID})
			}
		}
		if len(keys) == 0 {
			continue
		}
		rows, err := p.store.Rows(r.ctx, keys)
		if err != nil {
			return 0, err
		}
		for _, row := range rows {
			if row.Found && row.Content != nil && row.DeliveredVersion < row.Version {
				waiting[row.Entity] = row.Version
			}
		}
	}
	ends, err := p.admin.EndOffsets(r.ctx, topic)
	if err != nil {
		return 0, err
	}
	err = p.admin.Scan(r.ctx, topic, map[int32]int64{partition: from}, map[int32]int64{partition: ends[partition]}, func(s transport.Scanned) error {
		if c, _, err := change.Decode(s.Value); err == nil && waiting[c.Entity] == c.Version {
			delete(waiting, c.Entity)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	operation := uuid.NewString()
	for entity := range waiting {
		err := p.control(r.ctx, entity, inbox.Control{
			ID: operation + "/" + entity, Action: inbox.Redecide, Services: []string{service}, Force: true,
			Actor: "deliver", Reason: "its change is gone from the topic",
		})
		if err != nil {
			return 0, err
		}
	}
	return len(waiting), nil
}
