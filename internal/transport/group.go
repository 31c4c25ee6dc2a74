package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// GroupConfig configures a group.
type GroupConfig struct {
	// ID is the consumer group's name. Required.
	ID string
	// Topic must exist and be readable. Required.
	Topic string
	// Sole assigns all partitions to one member. The others take over when it leaves.
	Sole bool

	// FrameRecords and FrameBytes bound a frame. A larger record passes alone. Default to 1000
	// and 1 MiB.
	FrameRecords int
	FrameBytes   int64
	// BufferBytes bounds the records fetched ahead and in flight over all partitions of
	// the group. A part of it is for partitions that need it, the rest is shared out
	// equally, so that a slow partition stops no other. In any case a partition
	// has one fetch in work and another waiting. Defaults to 64 MiB.
	BufferBytes int64
	// Budget, if given, takes the place of BufferBytes: groups share it.
	Budget *Budget
	// Listener, if not nil, returns the offsets to start at.
	Listener PartitionListener
	// OnRecordsLost, if not nil, is called when records that the group still wanted
	// are gone, because retention passed them or the topic was created again: with
	// the offset it wanted and the one where it continues, which is the oldest
	// there is, never the newest; or because they unpack to more than a client takes
	// (1 GiB for a batch), with the offset behind them. It is also logged. It must not
	// block.
	OnRecordsLost func(topic string, partition int32, wanted, got int64)
	// FailOnTruncation ends the group with a TruncatedError where a topic has become
	// shorter than Listener starts, or lost records that were read, and where it is
	// another topic of the name; else the group continues at the oldest record.
	FailOnTruncation bool
	// OnRewind, if not nil, is called when Listener returns an offset below the group's committed
	// one: acknowledged records are read again. It must not block.
	OnRewind func(topic string, partition int32, committed, from int64)

	NackMin time.Duration // back-off of the first Nack, doubles. Defaults to 100 ms
	NackMax time.Duration // Defaults to 5 s

	SessionTimeout    time.Duration // until a dead member's partitions move. Defaults to 10 s
	HeartbeatInterval time.Duration // bounds how fast a hand-over is noticed. Defaults to 500 ms
	RebalanceTimeout  time.Duration // Defaults to 30 s
	CommitInterval    time.Duration // Defaults to 1 s
	// CloseTimeout is how long messages in flight have to be acknowledged when
	// a subscription or the group closes. Defaults to 10 s.
	CloseTimeout time.Duration
	// Limit, if given, ends all waits of Close: messages in flight, the
	// last commit, the cluster's answer to leaving. The member is dropped after
	// its session then, and its last acknowledged records may be redelivered.
	Limit context.Context
	// FetchPartitionBytes is the most that one fetch takes of a partition, before
	// decompression; less when many partitions share BufferBytes. Defaults to 1 MiB.
	FetchPartitionBytes int32
}

// SetDefaults sets defaults, and fails on invalid settings.
func (c *GroupConfig) SetDefaults() error {
	if c.ID == "" {
		return errors.New("consumer group without an ID")
	}
	if c.Topic == "" {
		return fmt.Errorf("consumer group %s without a topic", c.ID)
	}
	def(&c.FrameRecords, 1000)
	def(&c.FrameBytes, 1<<20)
	def(&c.BufferBytes, 64<<20)
	c.setBackOff()
	def(&c.SessionTimeout, 10*time.Second)
	def(&c.HeartbeatInterval, 500*time.Millisecond)
	def(&c.RebalanceTimeout, 30*time.Second)
	def(&c.CommitInterval, time.Second)
	def(&c.CloseTimeout, 10*time.Second)
	def(&c.FetchPartitionBytes, 1<<20)
	if c.Limit == nil {
		c.Limit = context.Background()
	}
	if c.FrameRecords < 0 || c.FrameBytes < 0 || c.BufferBytes < 0 {
		return fmt.Errorf("consumer group %s: frames of %d records and %d bytes, %d bytes buffered: must not be negative", c.ID, c.FrameRecords, c.FrameBytes, c.BufferBytes)
	}
	if c.NackMax < c.NackMin {
		return fmt.Errorf("consumer group %s: longest nack back-off %v is below the shortest %v", c.ID, c.NackMax, c.NackMin)
	}
	if c.HeartbeatInterval*2 > c.SessionTimeout {
		return fmt.Errorf("consumer group %s: heartbeat interval %v is above half the session timeout %v", c.ID, c.HeartbeatInterval, c.SessionTimeout)
	}
	return nil
}

func (c *GroupConfig) setBackOff() {
	def(&c.NackMin, 100*time.Millisecond)
	def(&c.NackMax, 5*time.Second)
}

// backOff is how long a refused frame waits after nacks earlier refusals.
func (c *GroupConfig) backOff(nacks int) time.Duration {
	return min(c.NackMin<<min(nacks, 20), c.NackMax)
}

func def[T comparable](p *T, to T) {
	var zero T
	if *p == zero {
		*p = to
	}
}

// lastSeen says how far an ended assignment had come in which log.
type lastSeen struct {
	topicID string
	wanted  int64 // the first offset that was not acknowledged
	next    int64 // where the next record was expected
}

// Group is one member of one consumer group. The package comment has its guarantees.
type Group struct {
	*Subscription
	gc    GroupConfig
	log   *slog.Logger
	quiet logLimiter
	cl    *kgo.Client
	adm   *kadm.Client

	pollCtx  context.Context // of the poll and commit loops
	stopPoll context.CancelFunc
	loops    sync.WaitGroup

	// commitMu makes collecting and sending positions one step, so that a commit under way never
	// sets an older position than that of a revocation.
	commitMu sync.Mutex

	mu          sync.Mutex            // may be locked while Reading's mutex is held
	closed      bool                  // guarded by mu
	last        map[int32]lastSeen    // guarded by mu; of assignments that ended
	assignments map[int32]*assignment // guarded by mu
	replaced    bool                  // guarded by mu; the topic is being rejoined
	unavailable map[int32]bool        // guarded by mu; assigned to the group and not available

	budget   *Budget
	assigned atomic.Int64 // len(assignments), as the budget knows it
	// fetchMu makes a change of assignment.paused and the call that tells the
	// client one step. It is taken before assignment.mu.
	fetchMu sync.Mutex

	onceClose sync.Once
	closeErr  error

	// metadata of the last offset fetch, between two callbacks of kgo's
	// group goroutine.
	fetched map[int32]string
}

// NewGroup checks that the topic exists and may be read, and prepares the member. It joins at the
// first Subscribe. ctx bounds the check only.
func NewGroup(ctx context.Context, cfg Config, gc GroupConfig) (*Group, error) {
	if err := gc.SetDefaults(); err != nil {
		return nil, err
	}
	g := &Group{
		gc:          gc,
		budget:      gc.Budget,
		log:         cfg.logger().With("group", gc.ID),
		last:        make(map[int32]lastSeen),
		assignments: make(map[int32]*assignment),
		unavailable: make(map[int32]bool),
	}
	if g.budget == nil {
		g.budget = NewBudget(gc.BufferBytes)
	}
	g.Subscription = NewSubscription(&g.gc, g.join)
	g.pollCtx, g.stopPoll = context.WithCancel(context.Background())
	var err error
	g.cl, err = newClient(cfg,
		// Close asks it to leave once more, under no other context than this.
		kgo.WithContext(gc.Limit),
		kgo.ConsumerGroup(gc.ID),
		kgo.Balancers(balancer(gc.Sole)),
		kgo.SessionTimeout(gc.SessionTimeout),
		kgo.HeartbeatInterval(gc.HeartbeatInterval),
		kgo.RebalanceTimeout(gc.RebalanceTimeout),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()),
		// A deleted offset arrives as an error, see outOfRange.
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		// Markers take offsets; we must see them to commit behind them.
		kgo.KeepControlRecords(),
		kgo.FetchMaxWait(fetchWait),
		kgo.OnOffsetsFetched(g.onFetched),
		kgo.AdjustFetchOffsetsFn(g.onOffsets),
		kgo.OnPartitionsRevoked(func(ctx context.Context, _ *kgo.Client, m map[string][]int32) { g.release(m, true) }),
		kgo.OnPartitionsLost(func(ctx context.Context, _ *kgo.Client, m map[string][]int32) { g.release(m, false) }),
	)
	if err != nil {
		return nil, fmt.Errorf("consumer group %s: %w", gc.ID, err)
	}
	g.setAssigned(0)
	g.adm = kadm.NewClient(g.cl)
	if err := checkReadable(ctx, g.adm, gc.Topic); err != nil {
		g.cl.Close()
		return nil, fmt.Errorf("consumer group %s: %w", gc.ID, err)
	}
	return g, nil
}

// join joins the group at the subscription.
func (g *Group) join() {
	g.cl.AddConsumeTopics(g.gc.Topic)
	g.loops.Add(2)
	go g.pollLoop()
	go g.commitLoop()
}

// minFetch keeps requests worth their while among very many partitions.
const minFetch = 32 << 10

// setAssigned notes how many partitions share the budget. When a partition is paused the
// client discards its fetch under way and repeats it later:
// a fraction of the queue at a time keeps that cheap.
func (g *Group) setAssigned(n int) {
	g.budget.assigned.Add(int64(n) - g.assigned.Swap(int64(n)))
	part := min(max(g.budget.queueLimit()/4, minFetch), int64(g.gc.FetchPartitionBytes))
	g.cl.UpdateFetchMaxBytes(int32(max(part, min(g.budget.pool(), maxFetch))), int32(part))
}

// maxFetch bounds the answer of one broker.
const maxFetch = 16 << 20

// pause stops fetching partitions that are full, in one call: each costs a copy
// of all that is paused.
func (g *Group) pause(full []*assignment) {
	if len(full) == 0 {
		return
	}
	g.fetchMu.Lock()
	defer g.fetchMu.Unlock()
	var paused []int32
	for _, a := range full {
		a.mu.Lock()
		if !a.paused && a.ctx.Err() == nil && a.full() { // still
			a.paused = true
			paused = append(paused, a.partition)
		}
		a.mu.Unlock()
	}
	if len(paused) > 0 {
		g.cl.PauseFetchPartitions(map[string][]int32{g.gc.Topic: paused})
	}
}

// resume fetches a again if it is paused and has room. Others that are paused
// follow with their own next frame.
func (g *Group) resume(a *assignment) {
	g.fetchMu.Lock()
	defer g.fetchMu.Unlock()
	a.mu.Lock()
	resume := a.paused && a.hasRoom()
	if resume {
		a.paused = false
	}
	a.mu.Unlock()
	if resume {
		g.cl.ResumeFetchPartitions(map[string][]int32{g.gc.Topic: {a.partition}})
	}
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
		// record never reaches a later assignment than the one it was fetched for.
		var full []*assignment
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			if len(p.Records) == 0 {
				return
			}
			g.mu.Lock()
			a := g.assignments[p.Partition]
			g.mu.Unlock()
			if a != nil && a.push(p.Records) {
				full = append(full, a)
			}
		})
		g.pause(full)
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
			all := slices.Collect(maps.Values(g.assignments))
			g.mu.Unlock()
			// Not cut short by Close: a commit that was cancelled could
			// reach the broker after the last one.
			ctx, cancel := context.WithTimeout(g.gc.Limit, commitTimeout)
			g.commit(ctx, all)
			cancel()
		case <-g.pollCtx.Done():
			return
		}
	}
}

// fail ends the group.
func (g *Group) fail(err error) {
	if g.Fail(err) {
		go func() { _ = g.Close() }() // its caller gets the same error from Err
	}
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

// Close stops handing out, waits up to CloseTimeout, or until Limit, for messages in flight,
// cancels their contexts, commits acknowledged offsets and leaves the group. It returns when all
// of that is done. It may be called twice.
func (g *Group) Close() error {
	g.onceClose.Do(func() {
		g.mu.Lock()
		g.closed = true
		g.mu.Unlock()
		_ = g.Subscription.Close() // it returns nil
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
	return g.closeErr
}
