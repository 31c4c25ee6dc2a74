package core

import (
	"cmp"
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
	// longestProbe is the longest wait between attempts at a target that fails.
	longestProbe = 15 * time.Second
	// giveUpAnyway is after how many times Config.For a change is given up without evidence.
	giveUpAnyway = 7
	// mostFailing is how many failing entities a service remembers.
	mostFailing = 64
	// spreadRows is over how long rows become due after the first success of a braked service.
	spreadRows = time.Minute
)

// Service is the state of one service's deliveries. Not safe for concurrent use.
type Service struct {
	cfg     Config
	hand    []*Item            // in the order of their arrival, but those that rest
	handed  map[string][]*Item // in hand, by entity: of one, all rest or none
	rows    map[string][]*Item // parked, by entity: the first is tried first
	count   int                // of rows
	bytes   int64
	effects []Effect
	pace    pacing

	// Attempts have even numbers. Of an attempt with several entities, lastAttempt is one more than
	// that of its items: another entity was tried since.
	attempt                  uint64
	lastAttempt, lastSuccess uint64 // of the service: the last attempt that was answered, and that succeeded

	failing     map[string]time.Time // entities that failed since the last success, and until when the target wants rest
	failures    int                  // answered attempts without a success in a row
	lastFailure time.Time
	unreached   int   // attempts in a row for which the target took nothing
	down        bool  // so did the last one; Next says so once
	refused     bool  // the service is refused as a whole
	limit       int   // changes of the next write
	retryBatch  int   // rows of the next retry
	retryNext   bool  // a retry may go before the next write
	lastHeld    *Item // of those held, the one that was tried last
	last        *Item // the failure that Status shows
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
	return &Service{
		cfg: cfg, handed: map[string][]*Item{}, rows: map[string][]*Item{}, failing: map[string]time.Time{}, limit: cfg.MaxBatch, retryBatch: 1,
		pace: pacing{every: cfg.Pace.Every, burst: cfg.Pace.Burst},
	}
}

// Effects returns the effects of the calls since the last Effects, in order.
func (s *Service) Effects() []Effect {
	out := s.effects
	s.effects = nil
	return out
}

func (s *Service) effect(e Effect) { s.effects = append(s.effects, e) }

// Room returns how many more changes may come into hand.
func (s *Service) Room() int { return max(0, s.cfg.Window-s.Hand()) }

// Hand returns how many changes are in hand.
func (s *Service) Hand() int { return len(s.hand) + s.pace.resting }

// Restore takes over the rows of a partition, before any change of it is added. What other
// entities did since the attempts of a former owner is not known: that is no evidence.
func (s *Service) Restore(rows []*Item) {
	s.attempt += 2
	s.lastAttempt = s.attempt + 1
	for _, r := range rows {
		r.state, r.Row, r.lastAttempt = Parked, true, s.attempt
		s.addRow(r)
		if s.last == nil {
			s.last = r
		}
	}
}

// Drop ends all items of an owner: the next owner of the partition has them.
func (s *Service) Drop(owner any) {
	for entity, of := range s.handed {
		for _, i := range of {
			if i.Owner != owner {
				continue
			}
			if i.state == Resting {
				s.pace.resting--
			}
			s.becomeSettled(i, Abandoned, nil)
		}
		s.pruneHanded(entity)
	}
	for entity, queue := range s.rows {
		for _, i := range slices.Clone(queue) {
			if i.Owner == owner {
				s.dropRow(entity, i)
				s.becomeSettled(i, Abandoned, nil)
			}
		}
	}
	s.sweep()
}

// Add takes a change into hand, into a row, or settles it.
func (s *Service) Add(i *Item) {
	i.OldestUnsent = earliest(i.OldestUnsent, i.Arrived)
	if queue := s.rows[i.Entity]; len(queue) > 0 && s.meetRows(i, queue) {
		return
	}
	for _, h := range s.handed[i.Entity] {
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
		if !h.concluding() {
			i.state = h.state
		}
		if i.state != Resting {
			s.hand[slices.Index(s.hand, h)] = i
		}
		s.handed[i.Entity] = []*Item{i}
		if s.lastHeld == h {
			s.lastHeld = i // it had its turn
		}
		s.coalesce(h, i)
		return
	}
	of := append(s.handed[i.Entity], i)
	s.handed[i.Entity] = of
	if s.cfg.Pace.Settle > 0 && (len(of) == 1 || of[0].state == Resting) {
		s.becomeResting(i)
		return
	}
	s.hand = append(s.hand, i)
}

// inherit takes over the failures of an older change of the entity: nothing is tried before its
// time because it is newer, and an entity that changes daily is given up all the same.
func (i *Item) inherit(h *Item) {
	i.Attempts, i.Reason, i.Err = max(i.Attempts, h.Attempts), h.Reason, h.Err
	i.Next = later(i.Next, h.Next)
	i.Since = earliest(i.Since, h.Since)
	i.lastAttempt = h.lastAttempt
}

// coalesce settles a change in hand for a newer one. The oldest one of several keeps the position.
func (s *Service) coalesce(h, i *Item) {
	if h.Owner == i.Owner && h.Position < i.Position {
		i.keepsPosition = cmp.Or(h.keepsPosition, h)
	} else {
		h.keepsPosition = nil
	}
	s.becomeSettled(h, Coalesced, i)
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
		return len(s.handed[i.Entity]) == 0 && s.queue(i) // else behind those that find no room
	}
	for _, r := range slices.Clone(queue) {
		i.inherit(r)
		if s.last == r {
			s.last = i
		}
		s.endRow(r, Coalesced, i)
	}
	s.becomeParked(i)
	return true
}

// queue parks a change of a log sink behind the rows of its entity, if there is room. At the bound
// of an entity that fails alone its oldest rows are given up, several at once since each time costs a
// save. Without that evidence the target may be the one that fails, and the change waits in hand.
func (s *Service) queue(i *Item) bool {
	queue := s.rows[i.Entity]
	head := queue[0]
	full := len(queue) >= s.cfg.EntityRows
	if full && head.state == Parked && head.failsAlone {
		n := max(1, s.cfg.EntityRows/10)
		for _, r := range queue[:n] {
			s.becomeGivenUp(r)
		}
		if n < len(queue) { // the target fails for the entity as before
			next := queue[n]
			next.Next, next.lastAttempt, next.failsAlone = later(next.Next, head.Next), head.lastAttempt, true
		}
	}
	if !s.room(i) || full && head.state != GivenUp {
		return false
	}
	s.becomeParked(i)
	return true
}

func (s *Service) room(i *Item) bool {
	return s.count < s.cfg.Rows && s.bytes+i.Bytes <= s.cfg.RowBytes
}

// Full reports whether a change that fails finds no room.
func (s *Service) Full() bool { return s.count >= s.cfg.Rows || s.bytes >= s.cfg.RowBytes }

func (s *Service) addRow(i *Item) {
	s.rows[i.Entity] = append(s.rows[i.Entity], i)
	s.count++
	s.bytes += i.Bytes
}

func (s *Service) dropRow(entity string, i *Item) {
	queue := slices.DeleteFunc(s.rows[entity], func(r *Item) bool { return r == i })
	if s.rows[entity] = queue; len(queue) == 0 {
		delete(s.rows, entity)
	}
	s.count--
	s.bytes -= i.Bytes
}

// endRow removes the row of an item that is settled.
func (s *Service) endRow(i *Item, outcome Outcome, by *Item) {
	s.dropRow(i.Entity, i)
	s.effect(Effect{Kind: End, Item: i})
	s.becomeSettled(i, outcome, by)
}

// becomeParked puts an item into a row, which is written with the position that passes it.
func (s *Service) becomeParked(i *Item) {
	i.state, i.Row, i.keepsPosition = Parked, true, nil
	s.addRow(i)
	s.effect(Effect{Kind: Put, Item: i})
}

// becomeHeld keeps a change that failed in hand.
func (s *Service) becomeHeld(i *Item) { i.state = Held }

// becomeRefused and becomeGivenUp leave an item, in hand or in a row, to Concluded.
func (s *Service) becomeRefused(i *Item) { i.state = Refused }

func (s *Service) becomeGivenUp(i *Item) { i.state = GivenUp }

// becomeSettled ends an item.
func (s *Service) becomeSettled(i *Item, outcome Outcome, by *Item) {
	i.state = Settled
	if s.last == i {
		s.last = nil
	}
	s.effect(Effect{Kind: Settle, Item: i, Outcome: outcome, By: by})
}

// sweep drops settled and parked items from the hand, and queues log changes that
// found no room before.
func (s *Service) sweep() {
	if s.cfg.Log && s.count > 0 {
		behind := map[string]bool{} // one of the entity found no room
		for _, i := range s.hand {
			if (i.state == Fresh || i.state == Held) && len(s.rows[i.Entity]) > 0 && !behind[i.Entity] {
				behind[i.Entity] = !s.queue(i)
			}
		}
	}
	for _, i := range s.hand {
		if left(i) {
			s.pruneHanded(i.Entity)
		}
	}
	s.hand = slices.DeleteFunc(s.hand, left)
}

// left reports whether an item in hand is to be dropped from there.
func left(i *Item) bool { return i.state == Settled || i.Row }

func (s *Service) pruneHanded(entity string) {
	if of := slices.DeleteFunc(s.handed[entity], left); len(of) > 0 {
		s.handed[entity] = of
	} else {
		delete(s.handed, entity)
	}
}

// Status counts the changes that wait for another attempt.
type Status struct {
	Entities, Rows int
	Bytes          int64
	Oldest         *Item     // nil: nothing waits
	Next           time.Time // the earliest attempt
	Last           *Item     // that failed last, of those that wait
	Full           bool
	// Failing: attempts are braked, the target takes nothing, or all in hand have failed.
	Failing bool
	Refused bool // as a whole
}

// Status returns it.
func (s *Service) Status() Status {
	out := Status{
		Entities: len(s.rows), Rows: s.count, Bytes: s.bytes, Last: s.last, Full: s.Full(), Refused: s.refused,
		Failing: s.braked() || s.unreached > 0 || s.blocked(),
	}
	for _, queue := range s.rows {
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

// blocked reports whether a change in hand failed or waits for one that did, and no other can be
// written.
func (s *Service) blocked() (is bool) {
	for _, i := range s.hand {
		behind := len(s.rows[i.Entity]) > 0
		if i.state == Fresh && !behind && s.handed[i.Entity][0] == i && !s.cfg.Holds {
			return false
		}
		is = is || i.state == Held || behind
	}
	return is
}

// Rows returns all rows by owner, as Restore takes them: for a Service that continues.
func (s *Service) Rows() map[any][]*Item {
	rows := map[any][]*Item{}
	for _, queue := range s.rows {
		for _, i := range queue {
			rows[i.Owner] = append(rows[i.Owner], &Item{
				Partition: i.Partition, Position: i.Position, Version: i.Version, Entity: i.Entity, Bytes: i.Bytes, Owner: i.Owner,
				Attempts: i.Attempts, Next: i.Next, Since: i.Since, Reason: i.Reason,
			})
		}
	}
	return rows
}
