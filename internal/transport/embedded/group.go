package embedded

import (
	"context"
	"fmt"
	"sync"

	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/store/sqlite"
)

// Group is the one reader of a topic for one purpose: decide, or deliver. It owns
// every partition while it is subscribed. Close stops handing out, waits up to
// CloseTimeout, or until Limit, for messages in flight and cancels the contexts of the
// others.
type Group struct {
	*transport.Subscription
	gc   transport.GroupConfig
	logs *Logs
	log  *sqlite.Log
}

// NewGroup prepares to read a topic. Settings of gc about servers have no effect.
func (l *Logs) NewGroup(ctx context.Context, gc transport.GroupConfig) (*Group, error) {
	if err := gc.SetDefaults(); err != nil {
		return nil, err
	}
	log, err := l.topic(ctx, gc.Topic)
	if err != nil {
		return nil, fmt.Errorf("consumer group %s: %w", gc.ID, err)
	}
	g := &Group{gc: gc, logs: l, log: log}
	g.Subscription = transport.NewSubscription(&g.gc, g.begin)
	return g, nil
}

// begin starts where the listener says: a goroutine per partition hands out its frames. At
// the end the partitions are revoked.
func (g *Group) begin() {
	all, _ := g.Join()
	go func() {
		defer all.Leave()
		at, ends, err := g.start(g.Stopping())
		if err != nil {
			if g.Stopping().Err() == nil {
				g.Fail(err)
			}
			return
		}
		var partitions sync.WaitGroup
		var numbers []int32
		for i := range at {
			numbers = append(numbers, int32(i))
			if lane, ok := g.Join(); ok {
				p := &partition{Lane: lane, g: g, number: int32(i), at: at[i], known: ends[i], assignment: transport.NextAssignment()}
				partitions.Go(p.run)
			}
		}
		all.StopSending()
		partitions.Wait()
		<-g.Stopping().Done()
		g.revoked(numbers)
	}()
}

// start asks the listener where to begin and returns the first offset of every
// partition, and where each ends.
func (g *Group) start(ctx context.Context) (at, ends []int64, err error) {
	all := make([]int32, g.log.Partitions())
	for p := range all {
		all[p] = int32(p)
	}
	var wanted map[int32]int64
	if g.gc.Listener != nil {
		if wanted, err = g.gc.Listener.Assigned(ctx, g.gc.Topic, all); err != nil {
			return nil, nil, fmt.Errorf("topic %s: take over partitions: %w", g.gc.Topic, err)
		}
	}
	at, ends, err = g.log.Bounds(ctx)
	if err != nil {
		g.revoked(all)
		return nil, nil, err
	}
	for p, next := range wanted {
		if next > ends[p] && g.gc.FailOnTruncation {
			g.revoked(all)
			return nil, nil, &transport.TruncatedError{Topic: g.gc.Topic, TopicID: g.log.ID(), Partition: p, Wanted: next, End: ends[p]}
		}
		if start := at[p]; next < start || next > ends[p] {
			g.lost(p, next, start)
			continue
		}
		at[p] = next
	}
	return at, ends, nil
}

func (g *Group) revoked(partitions []int32) {
	if g.gc.Listener != nil {
		g.gc.Listener.Revoked(g.gc.Topic, partitions)
	}
}

// lost reports that records between wanted and got expired.
func (g *Group) lost(partition int32, wanted, got int64) {
	g.logs.log.Error("records expired before they were read; resuming at the oldest", "event", "log.records_lost",
		"topic", g.gc.Topic, "partition", partition, "wanted", wanted, "got", got)
	if g.gc.OnRecordsLost != nil {
		g.gc.OnRecordsLost(g.gc.Topic, partition, wanted, got)
	}
}
