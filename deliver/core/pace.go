package core

import (
	"container/heap"
	"math"
	"time"
)

// Pace holds first attempts back on purpose. The zero value holds nothing back.
type Pace struct {
	// Linger is how long the oldest change in hand waits for a write to fill.
	Linger time.Duration
	// Every is the time of one attempt at a change, and Burst how many follow at once after a
	// pause. 0 means no limit.
	Every time.Duration
	Burst int
	// Settle is how long an entity must be quiet before its changes are written; they are written
	// at the latest SettleMax after the first of them. 0 means at once.
	Settle, SettleMax time.Duration
}

// settlingWindow is how many changes of a service that settles may be in hand, if the memory
// suffices (see Queue.mayHold).
const settlingWindow = 8192

// pacing is the state of a Pace.
type pacing struct {
	every   time.Duration // of this process
	burst   int           // of this process
	tokens  float64
	filled  time.Time  // of tokens; zero before the first Next
	own     int        // partitions that the rate is for
	quiet   quietQueue // perhaps with entities that rest no longer
	resting int        // changes of the entities in quiet
	crowded bool       // no more changes can come into hand
	limited bool       // the last Next found too few tokens
}

// quietEntity is an entity whose changes rest, or did.
type quietEntity struct {
	entity string
	at     time.Time // it is quiet then, or later
}

type quietQueue []quietEntity

func (q quietQueue) Len() int           { return len(q) }
func (q quietQueue) Less(i, j int) bool { return q[i].at.Before(q[j].at) }
func (q quietQueue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *quietQueue) Push(x any)        { *q = append(*q, x.(quietEntity)) }
func (q *quietQueue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

// Share sets the part of the rate for this process: its partitions, of all. The bucket keeps its
// tokens, but is empty for the first partition: the former owner may have spent the rate.
func (s *Service) Share(own, of int, now time.Time) {
	p := &s.cfg.Pace
	if p.Every == 0 {
		return
	}
	s.refill(now)
	if s.pace.own == 0 {
		s.pace.tokens = min(0, s.pace.tokens)
	}
	s.pace.own = own
	share := min(1, float64(max(own, 1))/float64(max(of, 1)))
	s.pace.every, s.pace.burst = time.Duration(math.Ceil(float64(p.Every)/share)), max(1, int(float64(p.Burst)*share))
	s.pace.tokens = min(s.pace.tokens, float64(s.pace.burst))
}

// Crowd says whether no more changes can come into hand: then waiting gains nothing, and the
// entities that have waited longest are written.
func (s *Service) Crowd(crowded bool) { s.pace.crowded = crowded }

// Paced returns how many changes in hand wait for the pace.
func (s *Service) Paced() int {
	if s.pace.limited {
		return s.Hand()
	}
	return s.pace.resting
}

func (s *Service) refill(now time.Time) {
	p := &s.pace
	switch {
	case p.filled.IsZero():
		p.filled = now
	case now.After(p.filled):
		p.tokens = min(float64(p.burst), p.tokens+float64(now.Sub(p.filled))/float64(p.every))
		p.filled = now
	}
}

// allowance returns how many attempts the rate allows; with none, at is when there is one.
func (s *Service) allowance(now time.Time) (n int, at time.Time) {
	if s.pace.every == 0 {
		return math.MaxInt, at
	}
	s.refill(now)
	n = int(s.pace.tokens)
	if s.pace.limited = n < 1; s.pace.limited {
		n = 0 // a write that takes long may owe tokens to a smaller share
		at = now.Add(time.Duration(math.Ceil((1-s.pace.tokens)*float64(s.pace.every))) + 1)
	}
	return n, at
}

// spend counts attempts when they have ended: a bucket that filled meanwhile is not full.
func (s *Service) spend(now time.Time, attempts int) {
	if s.pace.every > 0 {
		s.refill(now)
		s.pace.tokens -= float64(attempts)
	}
}

// becomeResting lets the entity of a change that came into hand become quiet.
func (s *Service) becomeResting(i *Item) {
	i.state = Resting
	s.pace.resting++
	if of := s.handed[i.Entity]; len(of) == 1 {
		heap.Push(&s.pace.quiet, quietEntity{i.Entity, s.quietAt(of)})
	}
}

// quietAt returns when an entity is quiet, or has waited for the longest time.
func (s *Service) quietAt(of []*Item) time.Time {
	quiet, latest := of[len(of)-1].Arrived.Add(s.cfg.Pace.Settle), of[0].OldestUnsent.Add(s.cfg.Pace.SettleMax)
	return earliest(quiet, latest)
}

// wake brings the changes of quiet entities to the others in hand, and returns when the next
// entity is quiet; zero: none rests.
func (s *Service) wake(now time.Time) time.Time {
	early := 0 // changes that do not rest to the end
	if s.pace.crowded || s.Room() == 0 {
		early = s.cfg.MaxBatch - len(s.hand)
	}
	for len(s.pace.quiet) > 0 {
		first := &s.pace.quiet[0]
		of := s.handed[first.entity]
		if len(of) > 0 && of[0].state == Resting {
			if at := s.quietAt(of); !at.Equal(first.at) {
				first.at = at
				heap.Fix(&s.pace.quiet, 0)
				continue
			} else if at.After(now) && early <= 0 {
				return at
			}
			for _, i := range of {
				i.state = Fresh
			}
			s.hand = append(s.hand, of...)
			s.pace.resting -= len(of)
			early -= len(of)
		}
		heap.Pop(&s.pace.quiet)
	}
	return time.Time{}
}

// gather is how long tokens gather for a write that is not full, at least.
const gather = time.Second

// gathers reports whether a write of so many changes waits for more tokens than there are, until at:
// for those that come while the sink lingers, or in a second, at most the bucket. Each token alone
// would make a write of its own.
func (s *Service) gathers(now time.Time, changes int) (at time.Time, waits bool) {
	p := &s.pace
	if p.every == 0 || changes <= int(p.tokens) {
		return at, false
	}
	want := min(changes, p.burst, max(1, int(max(s.cfg.Pace.Linger, gather)/p.every)))
	if p.limited = want > int(p.tokens); p.limited {
		at = now.Add(time.Duration(math.Ceil((float64(want)-p.tokens)*float64(p.every))) + 1)
	}
	return at, p.limited
}

// lingers reports whether a write that is not full waits for more changes, until at.
func (s *Service) lingers(now time.Time, fresh []*Item) (at time.Time, waits bool) {
	if s.cfg.Pace.Linger == 0 || s.pace.crowded || s.Room() == 0 {
		return at, false
	}
	for _, i := range fresh {
		at = earliest(at, i.OldestUnsent.Add(s.cfg.Pace.Linger))
	}
	return at, at.After(now)
}
