package simulation

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/seed-86dfc502/weir/transport"
)

// group is a consumer group and its coordinator: each partition belongs to one
// member at most, as far as the coordinator knows. A member that does not hear
// of it goes on with a partition that is somebody else's by now.
type group struct {
	w    *world
	name string
	dice *dice

	mu      sync.Mutex
	members []*member
	shares  []*share
}

// share is one partition. Its fields are guarded by the group's lock.
type share struct {
	t         *topic
	part      int
	owner     *member
	turn      int // counts changes of owner
	claim     *claim
	committed int64
}

type member struct {
	g      *group
	p      *process
	claims transport.Claims
	handle map[string]func(*message.Message) error
	window int
	failed chan error        // capacity 1
	gone   bool              // guarded by the group's lock
	held   map[*share]*claim // guarded by the group's lock
}

func newGroup(w *world, name string, topics []*topic) *group {
	g := &group{w: w, name: name, dice: w.dice("group " + name)}
	for _, t := range topics {
		for p := range t.parts {
			g.shares = append(g.shares, &share{t: t, part: p})
		}
	}
	return g
}

func (g *group) join(p *process, claims transport.Claims, handle map[string]func(*message.Message) error) *member {
	m := &member{g: g, p: p, claims: claims, handle: handle, window: g.w.setup.window, failed: make(chan error, 1),
		held: map[*share]*claim{}}
	g.mu.Lock()
	g.members = append(g.members, m)
	g.mu.Unlock()
	if g.w.running.Load() {
		g.balance()
	}
	return m
}

// evict takes a member out, which may not know it.
func (g *group) evict(m *member) {
	g.mu.Lock()
	was := slices.Contains(g.members, m)
	g.members = slices.DeleteFunc(g.members, func(o *member) bool { return o == m })
	g.mu.Unlock()
	if was {
		g.balance()
	}
}

// rejoin lets a member in again that was evicted without knowing it.
func (g *group) rejoin(m *member) {
	g.mu.Lock()
	back := !m.gone && !m.p.dead.Load() && !slices.Contains(g.members, m)
	if back {
		g.members = append(g.members, m)
	}
	g.mu.Unlock()
	if back {
		g.balance()
	}
}

// balance gives partitions to members: those of members that left, and some
// more for no reason.
func (g *group) balance() {
	calm := g.w.calm.Load()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.assign(calm, -1)
}

// stir takes a partition from its member for no reason.
func (g *group) stir() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.assign(g.w.calm.Load(), g.dice.n(len(g.shares)))
}

// assign says whose each partition is. The caller holds the lock.
func (g *group) assign(calm bool, stirred int) {
	for i, s := range g.shares {
		if len(g.members) == 0 {
			s.owner = nil
			s.turn++
			continue
		}
		at := slices.Index(g.members, s.owner)
		if at >= 0 && (calm || g.dice.chance(0.6)) && i != stirred {
			continue
		}
		next := g.dice.n(len(g.members))
		if i == stirred && next == at {
			next = (at + 1) % len(g.members)
		}
		to := g.members[next]
		if to == s.owner {
			continue
		}
		zombie := g.dice.chance(0.6) && !calm && !(g.w.setup.gentle && g == g.w.outs)
		s.owner = to
		s.turn++
		if g.w.traced {
			g.w.note("%s/%d goes to %s, turn %d", s.t.name, s.part, to.p.name, s.turn)
		}
		turn, delay := s.turn, g.dice.upTo(2*time.Second)
		g.w.spawn(func() { g.hand(s, turn, zombie, delay) })
	}
}

// hand brings a partition from one member to the next. The next one does not
// wait for a zombie, which learns of it only after delay.
func (g *group) hand(s *share, turn int, zombie bool, delay time.Duration) {
	g.mu.Lock()
	old, late := s.claim, s.turn != turn
	g.mu.Unlock()
	if late {
		return
	}
	if old != nil {
		if left := old.m.p.frozenFor(); left > 0 {
			zombie, delay = true, left+delay/4
		}
		if zombie {
			g.w.spawn(func() {
				time.Sleep(delay)
				old.release()
			})
		} else {
			old.release()
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	m := s.owner
	if s.turn != turn || m == nil || m.gone || m.p.dead.Load() {
		return
	}
	c := &claim{m: m, s: s, turn: turn, start: s.committed, done: make(chan struct{}), acked: map[int64]bool{}, quiet: make(chan struct{}, 1)}
	c.name = fmt.Sprintf("%s %s/%d %d", m.p.name, s.t.name, s.part, turn)
	c.ctx, c.cancel = context.WithCancel(m.p.ctx)
	c.handing, c.stop = context.WithCancel(c.ctx)
	prev := m.held[s]
	m.held[s], s.claim = c, c
	if g.w.traced {
		g.w.note("%s gets %s/%d, turn %d", m.p.name, s.t.name, s.part, turn)
	}
	g.w.spawn(func() { c.run(prev) })
}

// leave ends a member: nothing more is handed out, what is in flight has grace
// to be done, then its partitions are given back.
func (m *member) leave(grace time.Duration) {
	g := m.g
	g.mu.Lock()
	m.gone = true
	var held []*claim
	for _, s := range g.shares {
		if c := m.held[s]; c != nil {
			held = append(held, c)
		}
	}
	g.mu.Unlock()
	for _, c := range held {
		c.stop()
	}
	if grace > 0 {
		ctx, cancel := context.WithTimeout(m.p.ctx, grace)
		for _, c := range held {
			c.drained(ctx)
		}
		cancel()
	}
	for _, c := range held {
		c.release()
	}
	if !m.p.dead.Load() { // of a dead one the coordinator learns later
		g.evict(m)
	}
}

// behind says which partition is not read to its end; empty when all are.
func (g *group) behind() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.shares {
		end := s.t.end(s.part)
		c := s.claim
		switch {
		case end == 0:
		case c == nil || c.turn != s.turn || c.ctx.Err() != nil:
			return fmt.Sprintf("%s/%d has no owner (turn %d)", s.t.name, s.part, s.turn)
		case c.position() < end:
			return fmt.Sprintf("%s/%d is at %d of %d", s.t.name, s.part, c.position(), end)
		}
	}
	return ""
}

// claim is one assignment of one partition: what the transport's claim and run are.
type claim struct {
	name  string
	m     *member
	s     *share
	turn  int
	start int64 // committed offset at the assignment

	ctx     context.Context // of the messages
	cancel  context.CancelFunc
	handing context.Context // nothing is handed out after it
	stop    context.CancelFunc
	done    chan struct{} // closed when the partition was given back
	quiet   chan struct{} // capacity 1: something was acknowledged

	mu     sync.Mutex
	acked  map[int64]bool
	next   int64 // first offset not acknowledged
	flying int
	over   bool // acknowledgements count for nothing
	ready  bool // the start is known
}

func (c *claim) release() {
	c.cancel()
	<-c.done
}

func (c *claim) position() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ready {
		return -1
	}
	return c.next
}

// drained waits until nothing is in flight.
func (c *claim) drained(ctx context.Context) {
	for {
		c.mu.Lock()
		n := c.flying
		c.mu.Unlock()
		if n == 0 {
			return
		}
		select {
		case <-c.quiet:
		case <-ctx.Done():
			return
		}
	}
}

func (c *claim) run(prev *claim) {
	defer close(c.done)
	if prev != nil {
		prev.cancel()
		<-prev.done
	}
	t, part := c.s.t, int32(c.s.part)
	start := c.start
	if c.m.claims != nil {
		starts, err := c.m.claims.Assigned(c.ctx, t.name, []int32{part})
		if err != nil {
			if c.ctx.Err() == nil {
				select {
				case c.m.failed <- err:
				default:
				}
			}
			return
		}
		defer c.m.claims.Revoked(t.name, []int32{part})
		start = starts[part]
	}
	defer c.commit()
	number, known := transport.NextClaim(), t.end(c.s.part)
	c.mu.Lock()
	c.next, c.ready = start, true
	c.mu.Unlock()
	w := c.m.g.w
	window, dice := make(chan struct{}, c.m.window), w.dice(c.name)
	for offset, seq := start, uint64(0); ; offset, seq = offset+1, seq+1 {
		e, ok := c.await(offset)
		if !ok {
			break
		}
		select {
		case window <- struct{}{}:
		case <-c.handing.Done():
		}
		if w.sleep(c.handing, dice.upTo(4*time.Millisecond)) != nil {
			break
		}
		c.mu.Lock()
		c.flying++
		c.mu.Unlock()
		p := transport.Position{Topic: t.name, TopicID: t.id, Partition: part, Offset: offset, Time: e.at,
			Claim: number, Seq: seq, Again: offset < known}
		w.spawn(func() {
			c.follow(e, p)
			<-window
		})
	}
	<-c.ctx.Done()
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
}

// await gives the next record.
func (c *claim) await(offset int64) (entry, bool) {
	for {
		e, ok, more := c.s.t.at(c.s.part, offset)
		if ok {
			return e, c.handing.Err() == nil
		}
		select {
		case <-more:
		case <-c.handing.Done():
			return entry{}, false
		}
	}
}

// follow hands a message out until it is acknowledged.
func (c *claim) follow(e entry, p transport.Position) {
	handle := c.m.handle[p.Topic]
	for n := 0; ; n++ {
		ctx, cancel := context.WithCancel(transport.WithPosition(c.ctx, p))
		msg := message.NewMessageWithContext(ctx, transport.MessageID(p.TopicID, p.Partition, p.Offset), e.Value)
		msg.Metadata.Set(transport.KeyMetadata, string(e.Key))
		if e.Value == nil {
			msg.Metadata.Set(transport.NullMetadata, "1")
		}
		for _, h := range e.Headers {
			msg.Metadata.Set(h.Key, string(h.Value))
		}
		var err error
		if c.m.g.w.rules.AckFirst {
			c.acknowledge(p.Offset)
		}
		err = handle(msg)
		cancel()
		if err == nil || c.ctx.Err() != nil {
			c.mu.Lock()
			c.flying--
			c.mu.Unlock()
			if err == nil {
				c.acknowledge(p.Offset)
			}
			select {
			case c.quiet <- struct{}{}:
			default:
			}
			return
		}
		p.Again = true
		_ = c.m.g.w.sleep(c.ctx, time.Duration(1<<min(n, 6))*5*time.Millisecond+c.dice(p.Offset, n).upTo(time.Millisecond))
	}
}

func (c *claim) acknowledge(offset int64) {
	c.mu.Lock()
	if c.over {
		c.mu.Unlock()
		return
	}
	c.acked[offset] = true
	for c.acked[c.next] {
		delete(c.acked, c.next)
		c.next++
	}
	c.mu.Unlock()
	if d := c.dice(offset, -1); d.chance(0.4) {
		// A little later, when whatever was acknowledged at the same instant counts.
		wait := d.upTo(30 * time.Millisecond)
		time.AfterFunc(wait, c.commit)
	}
}

// dice are for one message: many are in work at the same time.
func (c *claim) dice(offset int64, n int) *dice {
	return c.m.g.w.dice(c.name, offset, int64(n))
}

// commit tells the coordinator, which listens to the owner only.
func (c *claim) commit() {
	c.mu.Lock()
	next := c.next
	c.mu.Unlock()
	g := c.m.g
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.s.claim == c && !c.m.p.dead.Load() && next > c.s.committed {
		c.s.committed = next
	}
}
