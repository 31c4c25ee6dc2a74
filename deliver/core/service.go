package core

import (
	"cmp"
	"slices"
	"time"
)

// Config of a Service. Zero bounds have the defaults.
type Config struct {
	Log                    bool // every change, in the order of its entity
	Holds                  bool // never parks, and repeats what failed before it writes more: a takeover at its target needs both
	Attempts               int
	MinBackoff, MaxBackoff time.Duration
	MaxBatch, MaxBytes     int // of one write; 0 bytes: no bound
	Pace                   Pace

	Window     int   // changes in hand, default MaxBatch and at least 64, with Pace.Settle 8192
	Rows       int   // of the service, default 1000
	RowBytes   int64 // of all rows, default 64 MiB
	EntityRows int   // of one entity of a log sink, default 100
	Backstop   int   // attempts without a success that prove nothing more, default 100
}

// Probes of a target that seems unreachable are at most this far apart.
const maxProbe = 15 * time.Second

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

	attempt       uint64          // number of the last attempt
	worked, tried uint64          // of the last one that succeeded, and that was made
	failing       map[string]bool // entities that failed since the last success
	failures      int             // attempts without a success in a row
	freshFailures int             // of these, first ones
	probeFailures int             // of these, single ones of suspects
	lastFailure   time.Time
	split         bool // the last failure was of several changes: the first probe need not wait
	doubt         bool // Backstop failures: attempts count without evidence
	paused        bool // the service is refused as a whole
	down          bool // another service probes the target; Next says so once
	limit         int  // changes of the next write
	burst         int  // rows of the next retry
	turn          bool // a retry may go before the next write
	probed        *Item
	last          *Item // the failure that Status shows
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
	def(&cfg.Backstop, 100)
	def(&cfg.Attempts, 10)
	if cfg.RowBytes <= 0 {
		cfg.RowBytes = 64 << 20
	}
	return &Service{
		cfg: cfg, handed: map[string][]*Item{}, rows: map[string][]*Item{}, failing: map[string]bool{}, limit: cfg.MaxBatch, burst: 1,
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

// Restore takes over the rows of a partition, before any change of it is added.
func (s *Service) Restore(rows []*Item) {
	for _, r := range rows {
		r.Parked, r.tried, r.before = true, s.attempt, s.attempt
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
			if s.settle(i, Abandoned, nil); i.resting {
				s.pace.resting--
			}
		}
		s.pruneHanded(entity)
	}
	for entity, queue := range s.rows {
		for _, i := range slices.Clone(queue) {
			if i.Owner == owner {
				s.dropRow(entity, i)
				s.settle(i, Abandoned, nil)
			}
		}
	}
	s.sweep()
}

// Add takes a change into hand, into a row, or settles it.
func (s *Service) Add(i *Item) {
	i.Unsent = earliest(i.Unsent, i.Arrived)
	if queue := s.rows[i.Entity]; len(queue) > 0 && s.meetRows(i, queue) {
		return
	}
	for _, h := range s.handed[i.Entity] {
		if h.settled || s.cfg.Log && (i.Resent || h.Version != i.Version) {
			continue
		}
		if i.Version <= h.Version {
			s.settle(i, Skipped, h)
			return
		}
		// Only a state sink: the newer one takes the place and the failures of the older.
		i.Attempts, i.Next, i.Since, i.Reason, i.Err = h.Attempts, h.Next, h.Since, h.Reason, h.Err
		i.suspect, i.beside, i.second, i.tried, i.before = h.suspect, h.beside, h.second, h.tried, h.before
		i.failed, i.resting, i.Unsent = h.failed, h.resting, h.Unsent
		if !i.resting {
			s.hand[slices.Index(s.hand, h)] = i
		}
		s.handed[i.Entity] = []*Item{i}
		if s.probed == h {
			s.probed = i // it had its turn
		}
		s.coalesce(h, i)
		return
	}
	of := append(s.handed[i.Entity], i)
	s.handed[i.Entity] = of
	if s.cfg.Pace.Settle > 0 && (len(of) == 1 || of[0].resting) {
		s.rest(i)
		return
	}
	s.hand = append(s.hand, i)
}

// coalesce settles a change in hand for a newer one. The oldest one of several keeps the position.
func (s *Service) coalesce(h, i *Item) {
	if h.Owner == i.Owner && h.Position < i.Position {
		i.first = cmp.Or(h.first, h)
	} else {
		h.first = nil
	}
	s.settle(h, Coalesced, i)
}

// meetRows handles a change whose entity has rows, and reports whether that is all.
func (s *Service) meetRows(i *Item, queue []*Item) bool {
	for _, r := range queue {
		switch {
		case r.Partition == i.Partition && r.Position >= i.Position:
			// It is the row, or was settled before that was written.
			s.settle(i, Skipped, nil)
			return true
		case !s.cfg.Log && r.Version >= i.Version:
			s.settle(i, Skipped, nil)
			return true
		}
	}
	if s.cfg.Log {
		return len(s.handed[i.Entity]) == 0 && s.queue(i) // else behind those that find no room
	}
	// The newest takes the place of the others, with their attempts: nothing is tried
	// before its time because it is newer.
	for _, r := range slices.Clone(queue) {
		i.Attempts, i.Reason, i.Err = max(i.Attempts, r.Attempts), r.Reason, r.Err
		i.tried, i.before = r.tried, r.before
		if r.Next.After(i.Next) {
			i.Next = r.Next
		}
		if i.Since.IsZero() || r.Since.Before(i.Since) {
			i.Since = r.Since
		}
		if s.last == r {
			s.last = i
		}
		s.endRow(r, Coalesced, i)
	}
	s.put(i)
	return true
}

// queue parks a change of a log sink behind the rows of its entity, if there is room.
func (s *Service) queue(i *Item) bool {
	if !s.room(i) {
		return false
	}
	if queue := s.rows[i.Entity]; len(queue) >= s.cfg.EntityRows && queue[0].verdict == Undecided {
		// Else one entity takes the room of all. Several at once, since each time costs a save.
		n := max(1, s.cfg.EntityRows/10)
		for _, r := range queue[:n] {
			r.verdict = GivenUp
		}
		if n < len(queue) { // the target fails for the entity as before
			queue[n].Next = later(queue[n].Next, queue[0].Next)
		}
	}
	s.put(i)
	return true
}

func (s *Service) room(i *Item) bool {
	return s.count < s.cfg.Rows && s.bytes+i.Bytes <= s.cfg.RowBytes
}

// Full reports whether a change that fails finds no room.
func (s *Service) Full() bool { return s.count >= s.cfg.Rows || s.bytes >= s.cfg.RowBytes }

// put parks an item.
func (s *Service) put(i *Item) {
	i.Parked, i.suspect, i.first = true, false, nil
	s.addRow(i)
	s.effect(Effect{Kind: Put, Item: i})
}

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
	s.settle(i, outcome, by)
}

func (s *Service) settle(i *Item, outcome Outcome, by *Item) {
	i.settled = true
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
			if !i.settled && !i.Parked && i.verdict == Undecided && len(s.rows[i.Entity]) > 0 && !behind[i.Entity] {
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
func left(i *Item) bool { return i.settled || i.Parked }

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
	Unreachable    bool // the next change of each entity in hand failed, and nothing succeeded since
	Paused         bool
}

// Status returns it.
func (s *Service) Status() Status {
	out := Status{Entities: len(s.rows), Rows: s.count, Bytes: s.bytes, Last: s.last, Full: s.Full(), Paused: s.paused}
	for _, queue := range s.rows {
		i := queue[0]
		if out.Oldest == nil || i.Since.Before(out.Oldest.Since) {
			out.Oldest = i
		}
		if out.Next.IsZero() || i.Next.Before(out.Next) {
			out.Next = i.Next
		}
	}
	if s.cfg.Holds {
		out.Unreachable = slices.ContainsFunc(s.hand, func(i *Item) bool { return i.failed > 0 })
		return out
	}
	out.Unreachable = s.failures > 0 && len(s.hand) > 0
	for _, of := range s.handed {
		out.Unreachable = out.Unreachable && (of[0].suspect || of[0].resting)
	}
	return out
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
