package simulation

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/seed-86dfc502/weir/internal/transport"
)

// group is a consumer group and its coordinator: each partition belongs to one
// member at most, as far as the coordinator knows. A member that does not hear
// of it continues with a partition that is another's by now.
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
	current   *assignment
	committed int64
	handed    map[int64]int64 // frames that were handed out: the last offset behind each first
}

type member struct {
	g        *group
	p        *process
	listener transport.PartitionListener
	handle   map[string]func(*message.Message) error
	failed   chan error             // capacity 1
	gone     bool                   // guarded by the group's lock
	held     map[*share]*assignment // guarded by the group's lock
}

func newGroup(w *world, name string, topics []*topic) *group {
	g := &group{w: w, name: name, dice: w.dice("group " + name)}
	for _, t := range topics {
		for p := range t.parts {
			g.shares = append(g.shares, &share{t: t, part: p, handed: map[int64]int64{}})
		}
	}
	return g
}

func (g *group) join(p *process, listener transport.PartitionListener, handle map[string]func(*message.Message) error) *member {
	m := &member{g: g, p: p, listener: listener, handle: handle, failed: make(chan error, 1), held: map[*share]*assignment{}}
	g.mu.Lock()
	g.members = append(g.members, m)
	g.mu.Unlock()
	if g.w.opened.Load() {
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

// balance assigns partitions to members: those of members that left, and some
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
		if at >= 0 && (calm || g.w.setup.bare && g == g.w.works || g.dice.chance(0.6)) && i != stirred {
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
		zombie := g.dice.chance(0.6) && !calm && !(g.w.setup.polite() && g == g.w.works)
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
	old, late := s.current, s.turn != turn
	g.mu.Unlock()
	if late {
		return
	}
	if old != nil {
		if left := old.m.p.frozenFor(); left > 0 {
			zombie, delay = true, left+delay/4
		}
		if zombie {
			g.w.count("two owners in " + g.name)
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
	a := &assignment{m: m, s: s, turn: turn, start: s.committed, done: make(chan struct{}), answered: make(chan struct{}, 1),
		dice: g.w.dice(fmt.Sprintf("%s %s/%d %d", m.p.name, s.t.name, s.part, turn))}
	a.ctx, a.cancel = context.WithCancel(m.p.ctx)
	a.handing, a.stop = context.WithCancel(a.ctx)
	prev := m.held[s]
	m.held[s], s.current = a, a
	if g.w.traced {
		g.w.note("%s gets %s/%d, turn %d", m.p.name, s.t.name, s.part, turn)
	}
	g.w.spawn(func() { a.run(prev) })
}

// leave ends a member: nothing more is handed out, frames in flight have grace
// to be done, then its partitions are released.
func (m *member) leave(grace time.Duration) {
	m.finish(grace)
	m.giveBack()
}

// finish is the first half of leave: the partitions stay the member's.
func (m *member) finish(grace time.Duration) {
	held := m.holds()
	for _, a := range held {
		a.stop()
	}
	if grace > 0 {
		ctx, cancel := context.WithTimeout(m.p.ctx, grace)
		for _, a := range held {
			a.drained(ctx)
		}
		cancel()
	}
}

// holds returns the assignments of a member that gets no more.
func (m *member) holds() (held []*assignment) {
	g := m.g
	g.mu.Lock()
	defer g.mu.Unlock()
	m.gone = true
	for _, s := range g.shares {
		if a := m.held[s]; a != nil {
			held = append(held, a)
		}
	}
	return held
}

// giveBack is the second half of leave.
func (m *member) giveBack() {
	for _, a := range m.holds() {
		a.release()
	}
	if !m.p.dead.Load() { // of a dead one the coordinator learns later
		m.g.evict(m)
	}
}

// behind says which partition is not read to its end; empty when all are.
func (g *group) behind() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.shares {
		end := s.t.end(s.part)
		a := s.current
		switch {
		case end == 0:
		case a == nil || a.turn != s.turn || a.ctx.Err() != nil:
			return fmt.Sprintf("%s/%d has no owner (turn %d)", s.t.name, s.part, s.turn)
		case a.position() < end:
			return fmt.Sprintf("%s/%d is at %d of %d", s.t.name, s.part, a.position(), end)
		}
	}
	return ""
}

// assignment is one assignment of one partition, as the transport's assignment
// and dispatcher do it. It hands out one frame at a time, of the records that are
// there; the next one follows the acknowledgement of the one before.
type assignment struct {
	m     *member
	s     *share
	turn  int
	start int64 // committed offset at the assignment
	dice  *dice // of run

	ctx      context.Context // of the messages
	cancel   context.CancelFunc
	handing  context.Context // nothing is handed out after it
	stop     context.CancelFunc
	done     chan struct{} // closed when the partition was given back
	answered chan struct{} // capacity 1: a frame is not in flight any more

	mu     sync.Mutex
	next   int64 // first offset not acknowledged
	flying bool  // a frame is in flight
	ready  bool  // the start is known
}

func (a *assignment) release() {
	a.cancel()
	<-a.done
}

func (a *assignment) position() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.ready {
		return -1
	}
	return a.next
}

// drained waits until nothing is in flight.
func (a *assignment) drained(ctx context.Context) {
	for {
		a.mu.Lock()
		flying := a.flying
		a.mu.Unlock()
		if !flying {
			return
		}
		select {
		case <-a.answered:
		case <-ctx.Done():
			return
		}
	}
}

func (a *assignment) fly(flying bool) {
	a.mu.Lock()
	a.flying = flying
	a.mu.Unlock()
	if !flying {
		select {
		case a.answered <- struct{}{}:
		default:
		}
	}
}

func (a *assignment) run(prev *assignment) {
	defer close(a.done)
	if prev != nil {
		prev.cancel()
		<-prev.done
	}
	t, part := a.s.t, int32(a.s.part)
	start := a.start
	if a.m.listener != nil {
		starts, err := a.m.listener.Assigned(a.ctx, t.name, []int32{part})
		if err != nil {
			if a.ctx.Err() == nil {
				select {
				case a.m.failed <- err:
				default:
				}
			}
			return
		}
		defer a.m.listener.Revoked(t.name, []int32{part})
		start = starts[part]
	}
	defer a.commit()
	known := t.end(a.s.part)
	number := transport.NextAssignment()
	a.mu.Lock()
	a.next, a.ready = start, true
	a.mu.Unlock()
	w := a.m.g.w
	for next := start; a.await(next) && sleep(a.handing, a.dice.upTo(4*time.Millisecond)) == nil; {
		var records []transport.Received
		for _, e := range t.from(a.s.part, next, 1+a.dice.n(w.setup.frame)) {
			records = append(records, transport.Received{Key: e.Key, Value: e.Value, Headers: e.Headers, Offset: next, Time: e.at, Redelivered: next < known})
			next++
		}
		a.fly(true)
		acknowledged := a.follow(number, t.id, records)
		a.fly(false)
		if !acknowledged {
			break
		}
	}
	<-a.ctx.Done() // acknowledgements count for nothing after that
}

// await waits for the record at an offset; false when nothing is handed out any more.
func (a *assignment) await(offset int64) bool {
	for {
		there, more := a.s.t.has(a.s.part, offset)
		if there {
			return a.handing.Err() == nil
		}
		select {
		case <-more:
		case <-a.handing.Done():
			return false
		}
	}
}

// follow hands a frame out until it is acknowledged, and reports whether it was.
func (a *assignment) follow(number uint64, id string, records []transport.Received) bool {
	t, w := a.s.t, a.m.g.w
	for n := 0; ; n++ {
		frame := transport.NewFrame(t.name, id, int32(a.s.part), number, records)
		a.handsOut(frame, n)
		if w.rules.AckFirst {
			a.acknowledge(frame.Last() + 1)
		}
		if a.hand(frame) {
			if !w.fault(a.dice, "acknowledgement lost", 0.5) {
				a.acknowledge(frame.Last() + 1)
				return true
			}
		}
		if a.handing.Err() != nil ||
			sleep(a.handing, time.Duration(1<<min(n, 6))*5*time.Millisecond+a.dice.upTo(time.Millisecond)) != nil {
			return false
		}
		// A frame that was handed out is not changed any more.
		records = slices.Clone(records)
		for i := range records {
			records[i].Redelivered = true
		}
	}
}

// hand hands a frame to its handler and reports whether that acknowledged it. At
// the end of the assignment the handler is not awaited, and may continue.
func (a *assignment) hand(frame *transport.Frame) bool {
	ctx, cancel := context.WithCancel(a.ctx)
	defer cancel()
	msg, handle := transport.NewMessage(ctx, frame), a.m.handle[frame.Topic]
	result := make(chan error, 1)
	a.m.g.w.spawn(func() { result <- handle(msg) })
	select {
	case err := <-result:
		return err == nil
	case <-a.ctx.Done():
	}
	select {
	case err := <-result:
		return err == nil
	default:
		return false
	}
}

// handsOut notes a frame, and whether its records were handed out before between
// other borders.
func (a *assignment) handsOut(frame *transport.Frame, n int) {
	w, first, last := a.m.g.w, frame.First(), frame.Last()
	if w.traced {
		w.note("%s gets %s/%d from %d to %d, attempt %d", a.m.p.name, frame.Topic, frame.Partition, first, last, n+1)
	}
	a.m.g.mu.Lock()
	defer a.m.g.mu.Unlock()
	for f, l := range a.s.handed {
		if f <= last && l >= first && (f != first || l != last) {
			w.count("other borders")
			break
		}
	}
	a.s.handed[first] = last
}

// acknowledge moves the position, and mostly commits it at some later time.
func (a *assignment) acknowledge(next int64) {
	a.mu.Lock()
	a.next = next
	a.mu.Unlock()
	if a.dice.chance(0.4) {
		time.AfterFunc(a.dice.upTo(30*time.Millisecond), a.commit)
	}
}

// commit tells the coordinator, which listens to the owner only.
func (a *assignment) commit() {
	a.mu.Lock()
	next := a.next
	a.mu.Unlock()
	g := a.m.g
	g.mu.Lock()
	defer g.mu.Unlock()
	if a.s.current == a && !a.m.p.dead.Load() && next > a.s.committed {
		a.s.committed = next
	}
}
