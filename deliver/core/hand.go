package core

import (
	"container/heap"
	"slices"
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

// Hand has the changes of a service that were taken from the log, until they are settled or parked.
type Hand struct {
	// Crowded says that no more changes can come into hand: then waiting gains nothing, and the
	// entities that have waited longest are written.
	Crowded bool

	cfg      *Config
	ready    []*Item            // in the order of their arrival, but those that rest
	of       map[string][]*Item // by entity: of one, all rest or none
	quiet    quietQueue         // perhaps with entities that rest no longer
	resting  int                // changes of the entities in quiet
	lastHeld *Item              // of those held, the one that was tried last
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

// Room returns how many more changes may come into hand.
func (h *Hand) Room() int { return max(0, h.cfg.Window-h.Len()) }

// Len returns how many changes are in hand.
func (h *Hand) Len() int { return len(h.ready) + h.resting }

// add takes a change into hand, and lets its entity become quiet where the service settles.
func (h *Hand) add(i *Item) {
	of := append(h.of[i.Entity], i)
	h.of[i.Entity] = of
	if h.cfg.Pace.Settle == 0 || len(of) > 1 && of[0].state != Resting {
		h.ready = append(h.ready, i)
		return
	}
	i.state = Resting
	h.resting++
	if len(of) == 1 {
		heap.Push(&h.quiet, quietEntity{i.Entity, h.quietAt(of)})
	}
}

// replace puts a newer change of an entity of a state sink in the place of the older one.
func (h *Hand) replace(older, i *Item) {
	if !older.concluding() {
		i.state = older.state
	}
	if i.state != Resting {
		h.ready[slices.Index(h.ready, older)] = i
	}
	h.of[i.Entity] = []*Item{i}
	if h.lastHeld == older {
		h.lastHeld = i // it had its turn
	}
}

// quietAt returns when an entity is quiet, or has waited for the longest time.
func (h *Hand) quietAt(of []*Item) time.Time {
	quiet, latest := of[len(of)-1].Arrived.Add(h.cfg.Pace.Settle), of[0].OldestUnsent.Add(h.cfg.Pace.SettleMax)
	return earliest(quiet, latest)
}

// wake brings the changes of quiet entities to the others, and returns when the next
// entity is quiet; zero: none rests.
func (h *Hand) wake(now time.Time) time.Time {
	early := 0 // changes that do not rest to the end
	if h.Crowded || h.Room() == 0 {
		early = h.cfg.MaxBatch - len(h.ready)
	}
	for len(h.quiet) > 0 {
		first := &h.quiet[0]
		of := h.of[first.entity]
		if len(of) > 0 && of[0].state == Resting {
			if at := h.quietAt(of); !at.Equal(first.at) {
				first.at = at
				heap.Fix(&h.quiet, 0)
				continue
			} else if at.After(now) && early <= 0 {
				return at
			}
			for _, i := range of {
				i.state = Fresh
			}
			h.ready = append(h.ready, of...)
			h.resting -= len(of)
			early -= len(of)
		}
		heap.Pop(&h.quiet)
	}
	return time.Time{}
}

// lingers reports whether a write that is not full waits for more changes, until at.
func (h *Hand) lingers(now time.Time, fresh []*Item) (at time.Time, waits bool) {
	if h.cfg.Pace.Linger == 0 || h.Crowded || h.Room() == 0 {
		return at, false
	}
	for _, i := range fresh {
		at = earliest(at, i.OldestUnsent.Add(h.cfg.Pace.Linger))
	}
	return at, at.After(now)
}

// fresh returns changes to write, up to a limit and what one write takes. If changes may be written only
// later, at is the time. Changes that a sink holds, since it does not park, go first and alone.
func (h *Hand) fresh(now time.Time, limit int, parked *rows) (fresh []*Item, at time.Time) {
	if h.cfg.Holds {
		for _, i := range h.ready {
			if i.state == Held {
				at = later(at, i.Next)
				fresh = append(fresh, i)
			}
		}
		if at.After(now) {
			return nil, at
		}
		if len(fresh) > 0 {
			return fresh[:min(len(fresh), limit)], at
		}
	}
	blocked := map[string]bool{}
	bytes := 0
	for _, i := range h.ready {
		switch {
		case h.cfg.Log && (blocked[i.Entity] || len(parked.of[i.Entity]) > 0):
		case i.state != Fresh:
			blocked[i.Entity] = true
		case i.Next.After(now):
			blocked[i.Entity] = true
			at = earliest(at, i.Next)
		default:
			if bytes += int(i.Bytes); len(fresh) > 0 && h.cfg.MaxBytes > 0 && bytes > h.cfg.MaxBytes {
				return fresh, time.Time{}
			}
			if fresh = append(fresh, i); len(fresh) >= min(limit, h.cfg.MaxBatch) {
				return fresh, time.Time{}
			}
		}
	}
	if until, lingers := h.lingers(now, fresh); lingers {
		return nil, earliest(at, until)
	}
	return fresh, at
}

// held returns the next change in turn that found no room for its row, or when it is its time. Each
// time it is another one: the oldest alone hides that the target works for the others.
func (h *Hand) held(now time.Time, parked *rows) (next *Item, until time.Time) {
	if h.cfg.Holds {
		return nil, until
	}
	var all []*Item
	for _, i := range h.ready {
		if i.state == Held && h.of[i.Entity][0] == i && (!h.cfg.Log || len(parked.of[i.Entity]) == 0) {
			all = append(all, i)
		}
	}
	start := slices.Index(all, h.lastHeld) + 1
	for n := range all {
		i := all[(start+n)%len(all)]
		if !i.Next.After(now) {
			h.lastHeld = i
			return i, until
		}
		until = earliest(until, i.Next)
	}
	return nil, until
}

// blocked reports whether a change in hand failed or waits for one that did, and no other can be
// written.
func (h *Hand) blocked(parked *rows) (is bool) {
	for _, i := range h.ready {
		behind := len(parked.of[i.Entity]) > 0
		if i.state == Fresh && !behind && h.of[i.Entity][0] == i && !h.cfg.Holds {
			return false
		}
		is = is || i.state == Held || behind
	}
	return is
}

// sweep drops settled and parked items.
func (h *Hand) sweep() {
	for _, i := range h.ready {
		if left(i) {
			h.prune(i.Entity)
		}
	}
	h.ready = slices.DeleteFunc(h.ready, left)
}

// left reports whether an item in hand is to be dropped from there.
func left(i *Item) bool { return i.state == Settled || i.Row }

func (h *Hand) prune(entity string) {
	if of := slices.DeleteFunc(h.of[entity], left); len(of) > 0 {
		h.of[entity] = of
	} else {
		delete(h.of, entity)
	}
}
