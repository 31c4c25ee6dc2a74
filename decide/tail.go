package decide

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-86dfc502/weir/change"
)

const (
	// tailLength is how many records a Tail remembers.
	tailLength = 500
	// tailWatched is for how long a call of Last keeps a Tail filling.
	tailWatched = 30 * time.Second
)

// Decided is a record that was decided, for people.
type Decided struct {
	Version change.Version
	Time    time.Time // of the inbox record
	Entity  string
	// Source of an event; the action of a control record.
	Source  string
	EventID string
	// Outcome is stale, noise, merged, control or dead; Stale says why it is stale.
	Outcome, Stale string
	// Services that it sent something to, and from which it was held back or
	// filtered out. For all others it was not evaluated.
	Sent, Held, Filtered []string
}

// Tail remembers the last records that a process decided, while somebody reads it.
// Without a call of Last in the last half minute it costs nothing and does not fill. A nil
// Tail remembers nothing. Safe for concurrent use.
type Tail struct {
	watched atomic.Int64 // until when, in nanoseconds since 1970

	mu   sync.Mutex
	ring []followed // guarded by mu; the oldest at next, once it is full
	next int        // guarded by mu
}

// followed is a Decided whose services are still numbers.
type followed struct {
	Decided
	plan                 *Plan
	sent, held, filtered []int
}

// following reports whether somebody reads it.
func (t *Tail) following() bool { return t != nil && time.Now().UnixNano() < t.watched.Load() }

// note adds the records of a committed transaction.
func (t *Tail) note(p *Plan, records []*record) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range records {
		if !r.followed {
			continue
		}
		f := followed{Decided: Decided{Version: r.version, Time: r.at, Entity: r.Entity, Outcome: string(r.outcome), Stale: string(r.stale)}, plan: p, sent: r.sent}
		switch {
		case r.Control != nil:
			f.Source, f.EventID = string(r.Control.Action), r.Control.ID
		case r.Event != nil:
			f.Source, f.EventID = r.Event.Source, r.Event.EventID
		}
		for _, of := range r.held {
			if of.decision == DecisionHeldBack {
				f.held = append(f.held, of.service)
			} else {
				f.filtered = append(f.filtered, of.service)
			}
		}
		if len(t.ring) < tailLength {
			t.ring = append(t.ring, f)
			continue
		}
		t.ring[t.next] = f
		t.next = (t.next + 1) % tailLength
	}
}

// Last returns those of the remembered records that keep wants, the latest first
// and at most n, and keeps the tail filling for half a minute.
func (t *Tail) Last(n int, keep func(*Decided) bool) []Decided {
	if t == nil {
		return nil
	}
	t.watched.Store(time.Now().Add(tailWatched).UnixNano())
	t.mu.Lock()
	ring := make([]followed, 0, len(t.ring))
	ring = append(append(ring, t.ring[t.next:]...), t.ring[:t.next]...)
	t.mu.Unlock()
	var last []Decided
	for i := len(ring) - 1; i >= 0 && len(last) < n; i-- {
		f := &ring[i]
		names := func(services []int) (all []string) {
			for _, s := range services {
				all = append(all, f.plan.Services[s].Name)
			}
			return all
		}
		d := f.Decided
		d.Sent, d.Held, d.Filtered = names(f.sent), names(f.held), names(f.filtered)
		if keep(&d) {
			last = append(last, d)
		}
	}
	return last
}
