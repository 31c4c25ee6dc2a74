package pipeline

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/inbox"
	"github.com/seed-86dfc502/weir/internal/pause"
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
// content that it has once more). Until all of them are asked for, nothing
// behind the gap is delivered: a process that is killed meanwhile finds the gap
// again at its next start.
type repairs struct {
	p       *Pipeline
	ctx     context.Context
	stop    context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	closed bool              // guarded by mu: running grows no more
	gaps   map[*gap]struct{} // guarded by mu; those that are under way
}

// gap is where records of a partition are gone.
type gap struct {
	topic     string
	partition int32
	from      int64 // the first offset behind it
	repaired  chan struct{}
}

func newRepairs(p *Pipeline) *repairs {
	r := &repairs{p: p, gaps: map[*gap]struct{}{}}
	r.ctx, r.stop = context.WithCancel(context.Background())
	return r
}

// close ends what is under way and returns when it has ended.
func (r *repairs) close() {
	r.stop()
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.running.Wait()
}

// gone is an OnRecordsLost.
func (r *repairs) gone(topic string, partition int32, wanted, got int64) {
	r.p.recordsGone(topic, partition, wanted, got)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	g := &gap{topic, partition, got, make(chan struct{})}
	r.gaps[g] = struct{}{}
	r.running.Go(func() { r.fill(g) })
}

// fill repairs a gap, for as long as that takes.
func (r *repairs) fill(g *gap) {
	for {
		n, err := r.repair(g)
		if err == nil {
			r.p.log.Warn("entities whose change is gone are sent again as they are now", "topic", g.topic, "partition", g.partition, "entities", n)
			r.mu.Lock()
			delete(r.gaps, g)
			r.mu.Unlock()
			close(g.repaired)
			return
		}
		if r.ctx.Err() == nil {
			r.p.log.Warn("cannot see yet whose change is gone; trying again", "topic", g.topic, "error", err)
		}
		if !pause.For(r.ctx, repairPause) {
			return
		}
	}
}

var errGap = errors.New("a gap before this change is not repaired yet")

// behind gives a handler that gets no change before the gaps in front of it are
// repaired. The error of one that does not get there is errGap: it comes again.
func (r *repairs) behind(handle message.NoPublishHandlerFunc) message.NoPublishHandlerFunc {
	return func(msg *message.Message) error {
		if f, ok := transport.FrameOf(msg); ok {
			for _, g := range r.before(f) {
				select {
				case <-g.repaired:
				case <-msg.Context().Done():
					return errGap
				case <-r.ctx.Done():
					return errGap
				}
			}
		}
		return handle(msg)
	}
}

// before returns the gaps that are in front of a record of f.
func (r *repairs) before(f *transport.Frame) (found []*gap) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for g := range r.gaps {
		if g.topic == f.Topic && g.partition == f.Partition && g.from <= f.Last() {
			found = append(found, g)
		}
	}
	return found
}

const (
	repairPause = 2 * time.Second
	repairPage  = 500
)

// repair asks for a decision about each entity of a partition whose newest
// change is neither delivered nor in the topic behind the gap. It may be
// repeated: the version says which change the request is about.
func (r *repairs) repair(g *gap) (int, error) {
	p := r.p
	var number int32
	var service string
	now := p.now.Load()
	for i, s := range now.cfg.Services() {
		if s.Topic == g.topic {
			number, service = now.plan.Services[i].Number, s.Name
		}
	}
	// The rows first: a change that is decided later is in the topic later.
	waiting, err := r.undelivered(g, number)
	if err != nil {
		return 0, err
	}
	end, err := r.leaveOutPresent(g, g.from, waiting)
	if err != nil {
		return 0, err
	}
	if len(waiting) > 0 {
		// What was decided a moment ago may not be published yet, and what was
		// fetched before it was gone may be about to be delivered.
		if !pause.For(r.ctx, repairPause) {
			return 0, r.ctx.Err()
		}
		if err := r.leaveOutSettled(number, waiting); err != nil {
			return 0, err
		}
		if _, err := r.leaveOutPresent(g, end, waiting); err != nil {
			return 0, err
		}
	}
	operation := uuid.NewString()
	for entities := range slices.Chunk(slices.Sorted(maps.Keys(waiting)), repairPage) {
		records := make([]transport.Record, len(entities))
		for i, entity := range entities {
			records[i], err = p.controlRecord(entity, inbox.Control{
				ID: operation + "/" + entity, Action: inbox.Redecide, Services: []string{service}, Version: waiting[entity], Force: true,
				Actor: inbox.Deliver, Reason: "its change is gone from the topic",
			})
			if err != nil {
				return 0, err
			}
		}
		if err := p.append.Append(r.ctx, records); err != nil {
			return 0, err
		}
	}
	return len(waiting), nil
}

// undelivered gives the entities of a gap's partition whose newest change is
// not delivered, with its version.
func (r *repairs) undelivered(g *gap, service int32) (map[string]change.Version, error) {
	waiting := map[string]change.Version{}
	for after := ""; ; {
		page, err := r.p.store.Entities(r.ctx, after, repairPage)
		if err != nil || len(page) == 0 {
			return waiting, err
		}
		after = page[len(page)-1].ID
		var keys []store.Key
		for _, e := range page {
			if r.p.changesPartition(e.ID) == g.partition {
				keys = append(keys, store.Key{Service: service, Entity: e.ID})
			}
		}
		if len(keys) == 0 {
			continue
		}
		rows, err := r.p.store.Rows(r.ctx, keys)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			if undelivered(row) {
				waiting[row.Entity] = row.Version
			}
		}
	}
}

// undelivered tells whether a row's change is on its way. What was released or
// reset has none that is to be sent.
func undelivered(row store.Row) bool {
	return row.Found && row.Content != nil && row.DeliveredVersion < row.Version
}

// leaveOutSettled takes out whose change was delivered, or replaced by a newer
// one, meanwhile.
func (r *repairs) leaveOutSettled(service int32, waiting map[string]change.Version) error {
	for entities := range slices.Chunk(slices.Collect(maps.Keys(waiting)), repairPage) {
		keys := make([]store.Key, len(entities))
		for i, entity := range entities {
			keys[i] = store.Key{Service: service, Entity: entity}
		}
		rows, err := r.p.store.Rows(r.ctx, keys)
		if err != nil {
			return err
		}
		for _, row := range rows {
			if !undelivered(row) || row.Version != waiting[row.Entity] {
				delete(waiting, row.Entity)
			}
		}
	}
	return nil
}

// leaveOutPresent takes out whose change is in the topic from an offset on, and
// gives the end that it read to.
func (r *repairs) leaveOutPresent(g *gap, from int64, waiting map[string]change.Version) (int64, error) {
	ends, err := r.p.admin.EndOffsets(r.ctx, g.topic)
	if err != nil {
		return 0, err
	}
	end := ends[g.partition]
	if len(waiting) == 0 {
		return end, nil
	}
	return end, r.p.admin.Scan(r.ctx, g.topic, map[int32]int64{g.partition: from}, map[int32]int64{g.partition: end}, func(s transport.Scanned) error {
		for c, err := range change.DecodeAll(s.Value) {
			if err == nil && waiting[c.Entity] == c.Version {
				delete(waiting, c.Entity)
			}
		}
		return nil
	})
}

// changesPartition is the partition of every changes topic that an entity's
// changes are in.
func (p *Pipeline) changesPartition(entity string) int32 {
	return transport.PartitionOf([]byte(entity), int32(p.cfg.Kafka.Inbox.Partitions)) % int32(p.cfg.Kafka.Changes.Partitions)
}
