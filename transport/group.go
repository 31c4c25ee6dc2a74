package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// GroupConfig says what a group consumes and how.
type GroupConfig struct {
	// ID is the consumer group's name. Required.
	ID string
	// Topics are subscribed to the group together, in one rebalance, at the
	// first Subscribe. All of them must exist and be readable.
	Topics []string

	// Window is the number of messages in flight per partition. With 1 the
	// messages of a partition come one by one, in order, also after a Nack.
	// Defaults to 1000.
	Window int
	// Windows, by topic, take the place of Window. A message in flight is a
	// goroutine that waits, so no window should be larger than what is worth
	// having in work at a time.
	Windows map[string]int
	// WindowBytes bounds the same by size, per partition. A larger message
	// passes alone. Defaults to 8 MiB.
	WindowBytes int64
	// Claims, if not nil, gives the offsets to start at.
	Claims Claims
	// OnReset, if not nil, is told when records that the group still wanted are
	// gone, because retention passed them or the topic was created again: the
	// offset it wanted and the one where it goes on, which is the oldest
	// there is, never the newest. It is also logged. It must not block.
	OnReset func(topic string, partition int32, wanted, got int64)
	// Whole says that the group wants every record of its topics that there ever
	// was: where it has committed nothing, OnReset is told of those before the
	// oldest. Without it a group begins with what it finds.
	Whole bool
	// OnBehind, if not nil, is told when Claims gives an offset below the one
	// that the group has committed: what was acknowledged is read again. It
	// must not block.
	OnBehind func(topic string, partition int32, committed, from int64)

	NackMin time.Duration // back-off of the first Nack, doubles. Defaults to 100 ms
	NackMax time.Duration // Defaults to 5 s

	SessionTimeout    time.Duration // until a dead member's partitions move. Defaults to 10 s
	HeartbeatInterval time.Duration // bounds how fast a hand-over is noticed. Defaults to 500 ms
	RebalanceTimeout  time.Duration // Defaults to 30 s
	CommitInterval    time.Duration // Defaults to 1 s
	// CloseTimeout is how long messages in flight have to be acknowledged when
	// a view or the group closes. Defaults to 10 s.
	CloseTimeout time.Duration
	// Limit, if given, ends whatever Close waits for: messages in flight, the
	// last commit, the cluster's answer to leaving. The member is dropped after
	// its session then, and what it acknowledged last may come again.
	Limit context.Context
	// FetchPartitionBytes is how much one fetch takes of a partition: what may
	// be buffered beyond the window. Defaults to 1 MiB.
	FetchPartitionBytes int32
}

func (c *GroupConfig) setDefaults() error {
	if c.ID == "" {
		return errors.New("consumer group without an ID")
	}
	def(&c.Window, 1000)
	def(&c.WindowBytes, 8<<20)
	def(&c.NackMin, 100*time.Millisecond)
	def(&c.NackMax, 5*time.Second)
	def(&c.SessionTimeout, 10*time.Second)
	def(&c.HeartbeatInterval, 500*time.Millisecond)
	def(&c.RebalanceTimeout, 30*time.Second)
	def(&c.CommitInterval, time.Second)
	def(&c.CloseTimeout, 10*time.Second)
	def(&c.FetchPartitionBytes, 1<<20)
	if c.Limit == nil {
		c.Limit = context.Background()
	}
	if c.Window < 0 || c.WindowBytes < 0 {
		return fmt.Errorf("consumer group %s: window %d, window bytes %d: must not be negative", c.ID, c.Window, c.WindowBytes)
	}
	if c.NackMax < c.NackMin {
		return fmt.Errorf("consumer group %s: longest nack back-off %v is below the shortest %v", c.ID, c.NackMax, c.NackMin)
	}
	if c.HeartbeatInterval*2 > c.SessionTimeout {
		return fmt.Errorf("consumer group %s: heartbeat interval %v is above half the session timeout %v", c.ID, c.HeartbeatInterval, c.SessionTimeout)
	}
	return nil
}

func (c *GroupConfig) window(topic string) int {
	if n, ok := c.Windows[topic]; ok && n > 0 {
		return n
	}
	return c.Window
}

func def[T comparable](p *T, to T) {
	var zero T
	if *p == zero {
		*p = to
	}
}

// lastSeen says how far an ended claim had come in which log.
type lastSeen struct {
	topicID string
	wanted  int64 // the first offset that was not acknowledged
	next    int64 // where the next record was expected
}

// Group is one member of one consumer group, under any number of views. See
// the package comment for what it promises.
type Group struct {
	gc    GroupConfig
	log   *slog.Logger
	quiet quiet
	cl    *kgo.Client
	adm   *kadm.Client

	pollCtx  context.Context // of the poll and commit loops
	stopPoll context.CancelFunc
	loops    sync.WaitGroup
	failed   chan struct{} // closed by fail

	// commitMu makes collecting and sending positions one step, so that a
	// commit under way never sets an older position than the one that a
	// revocation committed.
	commitMu sync.Mutex

	mu       sync.Mutex
	started  bool                        // guarded by mu
	closed   bool                        // guarded by mu
	err      error                       // guarded by mu
	topics   map[string]bool             // guarded by mu; what the client consumes
	last     map[topicPartition]lastSeen // guarded by mu; of claims that ended
	views    map[string]*view            // guarded by mu
	claims   map[topicPartition]*claim   // guarded by mu
	replaced map[string]bool             // guarded by mu; topics being joined anew

	onceClose sync.Once
	closeErr  error
	closeDone chan struct{}

	// metadata of the last offset fetch, between two callbacks of kgo's
	// group goroutine.
	fetched map[topicPartition]string
}

// NewGroup checks that the topics exist and may be read, and prepares the
// member; it joins at the first Subscribe. ctx bounds the check only.
func NewGroup(ctx context.Context, cfg Config, gc GroupConfig) (*Group, error) {
	if err := gc.setDefaults(); err != nil {
		return nil, err
	}
	opts, err := NewClientOpts(cfg)
	if err != nil {
		return nil, err
	}
	g := &Group{
		gc:        gc,
		log:       cfg.logger().With("group", gc.ID),
		failed:    make(chan struct{}),
		topics:    make(map[string]bool),
		last:      make(map[topicPartition]lastSeen),
		views:     make(map[string]*view),
		claims:    make(map[topicPartition]*claim),
		replaced:  make(map[string]bool),
		closeDone: make(chan struct{}),
	}
	g.pollCtx, g.stopPoll = context.WithCancel(context.Background())
	opts = append(opts,
		// Close asks it to leave once more, under no other context than this.
		kgo.WithContext(gc.Limit),
		kgo.ConsumerGroup(gc.ID),
		kgo.Balancers(kgo.CooperativeStickyBalancer()),
		kgo.SessionTimeout(gc.SessionTimeout),
		kgo.HeartbeatInterval(gc.HeartbeatInterval),
		kgo.RebalanceTimeout(gc.RebalanceTimeout),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()),
		// An offset that is gone comes to us as an error, see moved.
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		// Markers take offsets; we must see them to commit behind them.
		kgo.KeepControlRecords(),
		kgo.FetchMaxPartitionBytes(gc.FetchPartitionBytes),
		kgo.FetchMaxBytes(max(16<<20, gc.FetchPartitionBytes)),
		kgo.FetchMaxWait(fetchWait),
		kgo.OnOffsetsFetched(g.onFetched),
		kgo.AdjustFetchOffsetsFn(g.onOffsets),
		kgo.OnPartitionsRevoked(func(ctx context.Context, _ *kgo.Client, m map[string][]int32) { g.release(m, true) }),
		kgo.OnPartitionsLost(func(ctx context.Context, _ *kgo.Client, m map[string][]int32) { g.release(m, false) }),
	)
	if g.cl, err = kgo.NewClient(opts...); err != nil {
		return nil, fmt.Errorf("consumer group %s: %w", gc.ID, err)
	}
	g.adm = kadm.NewClient(g.cl)
	if len(gc.Topics) > 0 {
		if err := checkReadable(ctx, g.adm, gc.Topics...); err != nil {
			g.cl.Close()
			return nil, fmt.Errorf("consumer group %s: %w", gc.ID, err)
		}
	}
	return g, nil
}

// subscribe makes the view of a topic, and joins the group if it is the first.
func (g *Group) subscribe(ctx context.Context, topic string) (*view, error) {
	for {
		g.mu.Lock()
		old := g.views[topic]
		known := g.topics[topic] || !g.started && slices.Contains(g.gc.Topics, topic)
		closed, err := g.closed, g.err
		g.mu.Unlock()
		switch {
		case err != nil:
			return nil, err
		case closed:
			return nil, fmt.Errorf("consumer group %w", ErrClosed)
		case old != nil && !old.stopped():
			return nil, ErrSubscribed
		case old != nil: // it still follows its last messages
			select {
			case <-old.done:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			continue
		case !known:
			if err := checkReadable(ctx, g.adm, topic); err != nil {
				return nil, err
			}
		}
		if v := g.addView(ctx, topic); v != nil {
			return v, nil
		}
	}
}

// addView gives nil when the state changed since it was looked at.
func (g *Group) addView(ctx context.Context, topic string) *view {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || g.views[topic] != nil {
		return nil
	}
	v := &view{
		g: g, topic: topic,
		out:      make(chan *message.Message),
		stopping: make(chan struct{}),
		done:     make(chan struct{}),
	}
	// The end of Subscribe's ctx stops the hand-out; what is in flight then
	// has a grace, so its contexts must not end with ctx.
	v.ctx, v.halt = context.WithCancel(context.WithoutCancel(ctx))
	g.views[topic] = v

	var join []string
	if !g.started {
		for _, t := range g.gc.Topics {
			if !g.topics[t] {
				g.topics[t] = true
				join = append(join, t)
			}
		}
		if len(join) > 0 {
			g.cl.PauseFetchTopics(join...)
		}
	}
	if !g.topics[topic] {
		g.topics[topic] = true
		join = append(join, topic)
	}
	for tp, c := range g.claims {
		if tp.topic == topic && c.ctx.Err() == nil {
			startRun(c, v)
		}
	}
	g.cl.ResumeFetchTopics(topic)
	if len(join) > 0 {
		g.cl.AddConsumeTopics(join...)
	}
	if !g.started {
		g.started = true
		g.loops.Add(2)
		go g.pollLoop()
		go g.commitLoop()
	}
	go func() {
		select {
		case <-ctx.Done():
			v.stop()
		case <-v.stopping:
		}
		v.finish(g.gc.CloseTimeout)
	}()
	return v
}

func (g *Group) pauseTopic(topic string) { g.cl.PauseFetchTopics(topic) }

func (g *Group) forget(v *view) {
	g.mu.Lock()
	if g.views[v.topic] == v {
		delete(g.views, v.topic)
	}
	g.mu.Unlock()
}

func (g *Group) pollLoop() {
	defer g.loops.Done()
	for {
		fetches := g.cl.PollFetches(g.pollCtx)
		if g.pollCtx.Err() != nil || fetches.IsClientClosed() {
			g.cl.AllowRebalance()
			return
		}
		fetches.EachError(g.fetchError)
		// Between poll and AllowRebalance no partition can be revoked, so a
		// record never reaches a later claim than the one it was fetched for.
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			if len(p.Records) == 0 {
				return
			}
			g.mu.Lock()
			c := g.claims[topicPartition{p.Topic, p.Partition}]
			g.mu.Unlock()
			if c != nil {
				c.push(p.Records)
			}
		})
		g.cl.AllowRebalance()
	}
}

func (g *Group) commitLoop() {
	defer g.loops.Done()
	tick := time.NewTicker(g.gc.CommitInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			g.mu.Lock()
			claims := make([]*claim, 0, len(g.claims))
			for _, c := range g.claims {
				claims = append(claims, c)
			}
			g.mu.Unlock()
			// Not cut short by Close: a commit that was cancelled could
			// reach the broker after the last one.
			ctx, cancel := context.WithTimeout(g.gc.Limit, commitTimeout)
			g.commit(ctx, claims)
			cancel()
		case <-g.pollCtx.Done():
			return
		}
	}
}

// Err gives why the subscription ended by itself; nil while it goes on and
// after Close.
func (g *Group) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// Failed is closed when the subscription ended with an error: the channels of
// all views are closed then, and Err tells why.
func (g *Group) Failed() <-chan struct{} { return g.failed }

func (g *Group) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil || g.closed {
		return
	}
	g.err = err
	close(g.failed)
	go func() { _ = g.Close() }() // its caller gets the same error from Err
}

// A leaving member commits first, so the one is within the other.
const (
	commitTimeout = 5 * time.Second
	leaveTimeout  = 15 * time.Second
)

// fetchWait is how long a broker holds a fetch that finds nothing. A partition
// that is resumed joins the next fetch only, so among idle partitions it waits
// this long.
const fetchWait = 25 * time.Millisecond

// Close stops handing out, waits up to CloseTimeout, or until Limit, for
// messages in flight, cancels the contexts of the others, commits what is acknowledged and leaves
// the group. It returns when all of that is done; it may be called twice.
func (g *Group) Close() error {
	g.onceClose.Do(func() {
		defer close(g.closeDone)
		g.mu.Lock()
		g.closed = true
		views := make([]*view, 0, len(g.views))
		for _, v := range g.views {
			views = append(views, v)
		}
		g.mu.Unlock()
		for _, v := range views {
			v.stop()
		}
		for _, v := range views {
			<-v.done
		}
		g.stopPoll()
		g.loops.Wait()
		// Not the context of the loops: the last commit must go out.
		ctx, cancel := context.WithTimeout(g.gc.Limit, leaveTimeout)
		defer cancel()
		if err := g.cl.LeaveGroupContext(ctx); err != nil {
			g.closeErr = fmt.Errorf("leave consumer group %s: %w", g.gc.ID, err)
		}
		g.cl.CloseAllowingRebalance()
	})
	<-g.closeDone
	return g.closeErr
}
