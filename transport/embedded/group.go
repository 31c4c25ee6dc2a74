package embedded

import (
	"context"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/seed-86dfc502/weir/store/sqlite"
	"github.com/seed-86dfc502/weir/transport"
)

// Group is the one reader of a topic for one purpose: decide, or deliver. It owns
// every partition while it is subscribed.
type Group struct {
	gc    transport.GroupConfig
	logs  *Logs
	log   *sqlite.Log
	topic string

	mu     sync.Mutex
	closed bool            // guarded by mu
	err    error           // guarded by mu
	failed chan struct{}   // closed by fail
	sub    *subscription   // guarded by mu; nil without one
	next   map[int32]int64 // guarded by mu; the first record of each partition that is not acknowledged
}

// NewGroup prepares to read a topic, gc.Topics, of which there is one. What gc says
// of servers has no effect.
func (l *Logs) NewGroup(ctx context.Context, gc transport.GroupConfig) (*Group, error) {
	if err := gc.SetDefaults(); err != nil {
		return nil, err
	}
	if len(gc.Topics) != 1 {
		return nil, fmt.Errorf("consumer group %s: %d topics, not one", gc.ID, len(gc.Topics))
	}
	log, err := l.topic(ctx, gc.Topics[0])
	if err != nil {
		return nil, fmt.Errorf("consumer group %s: %w", gc.ID, err)
	}
	return &Group{gc: gc, logs: l, log: log, topic: gc.Topics[0], failed: make(chan struct{}), next: map[int32]int64{}}, nil
}

// Err returns why the subscription ended by itself; nil while it goes on and after
// Close.
func (g *Group) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// Failed is closed when the subscription ended with an error, which Err returns.
func (g *Group) Failed() <-chan struct{} { return g.failed }

func (g *Group) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil || g.closed {
		return
	}
	g.err = err
	close(g.failed)
	if g.sub != nil {
		g.sub.Stop()
	}
}

// Close stops handing out, waits up to CloseTimeout, or until Limit, for messages in
// flight and cancels the contexts of the others. It may be called twice.
func (g *Group) Close() error {
	g.mu.Lock()
	g.closed = true
	s := g.sub
	g.mu.Unlock()
	if s != nil {
		s.Stop()
		<-s.Done
	}
	return nil
}

// Subscriber returns a face of g: closing it ends the subscriptions of this face.
func (g *Group) Subscriber() message.Subscriber { return &subscriber{g: g} }

type subscriber struct {
	g *Group

	mu     sync.Mutex
	closed bool          // guarded by mu
	sub    *subscription // guarded by mu; the newest
}

func (s *subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("subscribe %s: subscriber %w", topic, transport.ErrClosed)
	}
	if topic != s.g.topic {
		return nil, fmt.Errorf("subscribe %s: the group is for %s", topic, s.g.topic)
	}
	sub, err := s.g.subscribe(ctx)
	if err != nil {
		return nil, fmt.Errorf("subscribe %s: %w", topic, err)
	}
	s.sub = sub
	return sub.Out, nil
}

// Close returns when the subscription has ended.
func (s *subscriber) Close() error {
	s.mu.Lock()
	s.closed = true
	sub := s.sub
	s.mu.Unlock()
	if sub != nil {
		sub.Stop()
		<-sub.Done
	}
	return nil
}

func (g *Group) subscribe(ctx context.Context) (*subscription, error) {
	for {
		g.mu.Lock()
		old := g.sub
		switch {
		case g.err != nil:
			defer g.mu.Unlock()
			return nil, g.err
		case g.closed:
			g.mu.Unlock()
			return nil, fmt.Errorf("consumer group %w", transport.ErrClosed)
		case old == nil:
			s := &subscription{Stream: transport.NewStream(ctx), g: g}
			g.sub = s
			g.mu.Unlock()
			go s.run()
			return s, nil
		}
		g.mu.Unlock()
		if !old.Stopped() {
			return nil, transport.ErrSubscribed
		}
		select { // it still follows its last messages
		case <-old.Done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
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
		asked, err := g.gc.Listener.Assigned(ctx, g.topic, all)
		if err != nil {
			return nil, nil, fmt.Errorf("topic %s: take over partitions: %w", g.topic, err)
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
			return nil, nil, &transport.TruncatedError{Topic: g.topic, TopicID: g.log.ID(), Partition: p, Wanted: next, End: ends[p]}
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
		g.gc.Listener.Revoked(g.topic, partitions)
	}
}

// lost says that records between wanted and got are gone.
func (g *Group) lost(partition int32, wanted, got int64) {
	g.logs.log.Error("records that were still wanted are gone from the log; going on at the oldest",
		"topic", g.topic, "partition", partition, "wanted", wanted, "got", got)
	if g.gc.OnRecordsLost != nil {
		g.gc.OnRecordsLost(g.topic, partition, wanted, got)
	}
}

func (g *Group) acknowledged(partition int32, next int64) {
	g.mu.Lock()
	g.next[partition] = next
	g.mu.Unlock()
}
