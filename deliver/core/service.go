package core

import (
	"slices"
	"time"
)

// Config of a Service. Zero bounds have the defaults.
type Config struct {
	Log                    bool          // every change, in the order of its entity
	Holds                  bool          // never parks, and repeats what failed before it writes more: a takeover at its target needs both
	For                    time.Duration // how long a change is tried before it is given up, default 24 h
	MinBackoff, MaxBackoff time.Duration
	MaxBatch, MaxBytes     int // of one write; 0 bytes: no bound
	Pace                   Pace

	Window     int   // changes in hand, default MaxBatch and at least 64, with Pace.Settle 8192
	Rows       int   // of the service, default 1000
	RowBytes   int64 // of all rows, default 64 MiB
	EntityRows int   // of one entity of a log sink, default 100
}

const (
	// giveUpAnyway is after how many times Config.For a change is given up without evidence.
	giveUpAnyway = 7
	// spreadRows is over how long rows become due after the first success of a braked service.
	spreadRows = time.Minute
)

// Service is the state of one service's deliveries. Not safe for concurrent use.
type Service struct {
	Hand Hand
	Rate Rate

	cfg     Config
	rows    rows
	brake   brake
	effects []Effect

	attempts
	batch
	retryNext bool // a retry may go before the next write
}

// attempts numbers the attempts, by even numbers. Of one with several entities, lastAttempt is one more than
// that of its items: another entity was tried since.
type attempts struct {
	attempt                  uint64
	lastAttempt, lastSuccess uint64 // the last one that was answered, and that succeeded
}

// number notes an attempt for its items.
func (a *attempts) number(items []*Item) {
	a.lastAttempt = a.attempt
	for _, i := range items {
		i.lastAttempt = a.attempt
		if i.Entity != items[0].Entity {
			a.lastAttempt = a.attempt + 1
		}
	}
}

// batch is the size of the next write and retry.
type batch struct{ most, limit, retryBatch int }

// halve makes the next write half as large as a step that failed as a whole.
func (b *batch) halve(step Step) {
	if b.retryBatch = 1; step.Kind == Write {
		b.limit = max(1, len(step.Items)/2)
	}
}

// grow makes the next write twice as large, after a success.
func (b *batch) grow(step Step) {
	if len(step.Items) >= b.limit {
		b.limit = min(2*b.limit, b.most)
	}
	if step.Kind == Retry {
		b.retryBatch = min(2*b.retryBatch, b.most)
	}
}

// New makes a Service.
func New(cfg Config) *Service {
	def := func(n *int, to int) {
		if *n <= 0 {
			*n = to
		}
	}
	def(&cfg.MaxBatch, 1)
	window := 64
	if cfg.Pace.Settle > 0 {
		window = settlingWindow
	}
	def(&cfg.Window, max(window, cfg.MaxBatch))
	def(&cfg.Rows, 1000)
	def(&cfg.EntityRows, 100)
	if cfg.For <= 0 {
		cfg.For = 24 * time.Hour
	}
	if cfg.RowBytes <= 0 {
		cfg.RowBytes = 64 << 20
	}
	s := &Service{
		cfg: cfg, batch: batch{cfg.MaxBatch, cfg.MaxBatch, 1}, Rate: Rate{whole: cfg.Pace, every: cfg.Pace.Every, burst: cfg.Pace.Burst},
		rows:  rows{most: cfg.Rows, mostBytes: cfg.RowBytes, of: map[string][]*Item{}},
		brake: brake{minBackoff: cfg.MinBackoff, maxBackoff: cfg.MaxBackoff, failing: map[string]time.Time{}},
	}
	s.Hand = Hand{cfg: &s.cfg, of: map[string][]*Item{}}
	return s
}

// Effects returns the effects of the calls since the last Effects, in order.
func (s *Service) Effects() []Effect {
	out := s.effects
	s.effects = nil
	return out
}

func (s *Service) effect(e Effect) { s.effects = append(s.effects, e) }

// Restore takes over the rows of a partition, before any change of it is added. What other
// entities did since the attempts of a former owner is not known: that is no evidence.
func (s *Service) Restore(rows []*Item) {
	s.attempt += 2
	s.lastAttempt = s.attempt + 1
	for _, r := range rows {
		r.state, r.Row, r.lastAttempt = Parked, true, s.attempt
		s.rows.add(r)
	}
}

// Drop ends all items of a partition: its next owner has them.
func (s *Service) Drop(p *Partition) {
	for entity, of := range s.Hand.of {
		for _, i := range of {
			if i.Assignment != p {
				continue
			}
			if i.state == Resting {
				s.Hand.resting--
			}
			s.becomeSettled(i, Abandoned, nil)
		}
		s.Hand.prune(entity)
	}
	for _, queue := range s.rows.of {
		for _, i := range slices.Clone(queue) {
			if i.Assignment == p {
				s.rows.drop(i)
				s.becomeSettled(i, Abandoned, nil)
			}
		}
	}
	s.sweep()
}

// Add takes a change into hand, into a row, or settles it.
func (s *Service) Add(i *Item) {
	i.OldestUnsent = earliest(i.OldestUnsent, i.Arrived)
	if queue := s.rows.of[i.Entity]; len(queue) > 0 && s.meetRows(i, queue) {
		return
	}
	for _, h := range s.Hand.of[i.Entity] {
		if h.state == Settled || s.cfg.Log && (i.Resent || h.Version != i.Version) {
			continue
		}
		if i.Version <= h.Version {
			s.becomeSettled(i, Skipped, h)
			return
		}
		// Only a state sink: the newer one takes the place and the failures of the older.
		i.inherit(h)
		i.failures, i.OldestUnsent = h.failures, h.OldestUnsent
		s.Hand.replace(h, i)
		h.giveWay(i)
		s.becomeSettled(h, Coalesced, i)
		return
	}
	s.Hand.add(i)
}

// inherit takes over the failures of an older change of the entity: nothing is tried before its
// time because it is newer, and an entity that changes daily is given up all the same.
func (i *Item) inherit(h *Item) {
	i.Attempts, i.Reason, i.Err = max(i.Attempts, h.Attempts), h.Reason, h.Err
	i.Next = later(i.Next, h.Next)
	i.Since = earliest(i.Since, h.Since)
	i.lastAttempt = h.lastAttempt
}

// meetRows handles a change whose entity has rows, and reports whether that is all.
func (s *Service) meetRows(i *Item, queue []*Item) bool {
	for _, r := range queue {
		switch {
		case r.Partition == i.Partition && r.Position >= i.Position:
			// It is the row, or was settled before that was written.
			s.becomeSettled(i, Skipped, nil)
			return true
		case !s.cfg.Log && r.Version >= i.Version:
			s.becomeSettled(i, Skipped, nil)
			return true
		}
	}
	if s.cfg.Log {
		return len(s.Hand.of[i.Entity]) == 0 && s.queue(i) // else behind those that find no room
	}
	for _, r := range slices.Clone(queue) {
		i.inherit(r)
		s.endRow(r, Coalesced, i)
	}
	s.becomeParked(i)
	return true
}

// queue parks a change of a log sink behind the rows of its entity, if there is room. At the bound
// of an entity that fails alone its oldest rows are given up, several at once since each time costs a
// save. Without that evidence the target may be the one that fails, and the change waits in hand.
func (s *Service) queue(i *Item) bool {
	queue := s.rows.of[i.Entity]
	head := queue[0]
	full := len(queue) >= s.cfg.EntityRows
	if full && head.state == Parked && head.failsAlone {
		n := max(1, s.cfg.EntityRows/10)
		for _, r := range queue[:n] {
			r.becomeGivenUp()
		}
		if n < len(queue) { // the target fails for the entity as before
			next := queue[n]
			next.Next, next.lastAttempt, next.failsAlone = later(next.Next, head.Next), head.lastAttempt, true
		}
	}
	if full && head.state == Parked && s.lastSuccess > head.lastAttempt {
		head.Next = time.Time{} // others succeed: does it fail alone? A rest that it was given is not theirs.
	}
	if !s.rows.room(i) || full && head.state != GivenUp {
		return false
	}
	s.becomeParked(i)
	return true
}

// endRow removes the row of an item that is settled.
func (s *Service) endRow(i *Item, outcome Outcome, by *Item) {
	s.rows.drop(i)
	s.effect(Effect{Kind: End, Item: i})
	s.becomeSettled(i, outcome, by)
}

// becomeParked puts an item into a row, which is written with the position that passes it.
func (s *Service) becomeParked(i *Item) {
	i.state, i.Row, i.keepsPosition = Parked, true, nil
	s.rows.add(i)
	s.effect(Effect{Kind: Put, Item: i})
}

// becomeSettled ends an item.
func (s *Service) becomeSettled(i *Item, outcome Outcome, by *Item) {
	i.state = Settled
	s.effect(Effect{Kind: Settle, Item: i, Outcome: outcome, By: by})
}

// sweep drops settled and parked items from the hand, and queues log changes that
// found no room before.
func (s *Service) sweep() {
	if s.cfg.Log && s.rows.count > 0 {
		behind := map[string]bool{} // one of the entity found no room
		for _, i := range s.Hand.ready {
			if (i.state == Fresh || i.state == Held) && len(s.rows.of[i.Entity]) > 0 && !behind[i.Entity] {
				behind[i.Entity] = !s.queue(i)
			}
		}
	}
	s.Hand.sweep()
}

// Status counts the changes that wait for another attempt.
type Status struct {
	Entities, Rows int
	Bytes          int64
	Oldest         *Item     // nil: nothing waits
	Next           time.Time // the earliest attempt
	Full           bool
	// Failing: attempts are braked, the target takes nothing, or all in hand have failed.
	Failing bool
	Refused bool // as a whole
}

// Paced returns how many changes in hand wait for the pace.
func (s *Service) Paced() int {
	if s.Rate.limited {
		return s.Hand.Len()
	}
	return s.Hand.resting
}

// Status returns it.
func (s *Service) Status() Status {
	out := Status{
		Entities: len(s.rows.of), Rows: s.rows.count, Bytes: s.rows.bytes, Full: s.rows.full(), Refused: s.brake.refused,
		Failing: s.brake.braked() || s.brake.unreached > 0 || s.Hand.blocked(&s.rows),
	}
	for _, queue := range s.rows.of {
		i := queue[0]
		if out.Oldest == nil || i.Since.Before(out.Oldest.Since) {
			out.Oldest = i
		}
		if out.Next.IsZero() || i.Next.Before(out.Next) {
			out.Next = i.Next
		}
	}
	return out
}

// Rows returns all rows by assignment, as Restore takes them: for a Service that continues.
func (s *Service) Rows() map[*Partition][]*Item {
	rows := map[*Partition][]*Item{}
	for _, queue := range s.rows.of {
		for _, i := range queue {
			rows[i.Assignment] = append(rows[i.Assignment], &Item{
				Partition: i.Partition, Position: i.Position, Version: i.Version, Entity: i.Entity, Bytes: i.Bytes, Assignment: i.Assignment,
				Attempts: i.Attempts, Next: i.Next, Since: i.Since, Reason: i.Reason,
			})
		}
	}
	return rows
}
