package embedded

import (
	"context"
	"fmt"
	"sync"

	"github.com/seed-86dfc502/weir/store/sqlite"
	"github.com/seed-86dfc502/weir/transport"
)

// Group is the one reader of a topic for one purpose: decide, or deliver. It owns
// every partition while it is subscribed. Close stops handing out, waits up to
// CloseTimeout, or until Limit, for messages in flight and cancels the contexts of the
// others.
type Group struct {
	*transport.Subscriptions
	gc   transport.GroupConfig
	logs *Logs
	log  *sqlite.Log

	mu   sync.Mutex
	next map[int32]int64 // guarded by mu; the first record of each partition that is not acknowledged
}

// NewGroup prepares to read a topic. What gc says of servers has no effect.
func (l *Logs) NewGroup(ctx context.Context, gc transport.GroupConfig) (*Group, error) {
	if err := gc.SetDefaults(); err != nil {
		return nil, err
	}
	log, err := l.topic(ctx, gc.Topic)
	if err != nil {
		return nil, fmt.Errorf("consumer group %s: %w", gc.ID, err)
	}
	g := &Group{gc: gc, logs: l, log: log, next: map[int32]int64{}}
	g.Subscriptions = transport.NewSubscriptions(gc.Topic, func(s *transport.Stream) { go (&subscription{s, g}).run() })
	return g, nil
}

// start asks the listener where to begin and returns the first offset of every
// partition, and where each ends.
func (g *Group) start(ctx context.Context) (at, ends []int64, err error) {
	all := make([]int32, g.log.Partitions())
	for p := range all {
		all[p] = int32(p)
	}
	g.mu.Lock()
	wanted := make(map[int32]int64, len(all))
	for p, next := range g.next {
		wanted[p] = next
	}
	g.mu.Unlock()
	if g.gc.Listener != nil {
		asked, err := g.gc.Listener.Assigned(ctx, g.gc.Topic, all)
		if err != nil {
			return nil, nil, fmt.Errorf("topic %s: take over partitions: %w", g.gc.Topic, err)
		}
		for p, next := range asked {
			wanted[p] = next
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

// lost says that records between wanted and got are gone.
func (g *Group) lost(partition int32, wanted, got int64) {
	g.logs.log.Error("records that were still wanted are gone from the log; going on at the oldest",
		"topic", g.gc.Topic, "partition", partition, "wanted", wanted, "got", got)
	if g.gc.OnRecordsLost != nil {
		g.gc.OnRecordsLost(g.gc.Topic, partition, wanted, got)
	}
}

func (g *Group) acknowledged(partition int32, next int64) {
	g.mu.Lock()
	g.next[partition] = next
	g.mu.Unlock()
}
