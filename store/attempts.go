package store

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/seed-86dfc502/weir/change"
)

// Attempt is one try to deliver one change, as it ended.
type Attempt struct {
	Service int32
	Entity  string
	At      time.Time // when it began, by the clock of who tried
	Version change.Version
	Outcome string // a word of package deliver
	// Status is the target's answer, by its protocol's number; 0 without one.
	Status int
	// Answer is the begin of the target's answer, any bytes, some 200 of them; without a
	// status, the reason of its absence.
	Answer []byte
	Took   time.Duration // kept in milliseconds
}

// Size is the share of an attempt in the bound of its service, in bytes: about its row
// with indexes.
func (a *Attempt) Size() int64 { return AttemptOverhead + int64(len(a.Entity)) + int64(len(a.Answer)) }

// AttemptOverhead is the part of Size that all attempts have.
const AttemptOverhead = 120

// AttemptFilter selects attempts; zero fields select all.
type AttemptFilter struct {
	Services     []int32 // nil: all
	Entity       string
	Since, Until time.Time // of At; Until excludes
	Limit        int       // 0: 100
}

// AttemptBound is how much is kept of a service's attempts.
type AttemptBound struct {
	// Keep is for how long; a day of UTC goes as a whole when the youngest of it is
	// that old. 0 keeps none.
	Keep time.Duration
	// MaxBytes bounds the sum of their sizes; the oldest go first.
	MaxBytes int64
}

// Attempts is the delivery history: attempts, and the answers of the targets.
// It is for people; nothing that decides or delivers reads it, and losing some of
// it does no harm. A decision that purges an entity removes its attempts too.
type Attempts interface {
	// AddAttempts writes them, all or none. They need not survive a crash of the
	// database's machine. A call of unknown outcome is not to be repeated: there is
	// no telling one attempt from another.
	AddAttempts(ctx context.Context, attempts []Attempt) error
	// ListAttempts returns the newest that f selects, the newest first; which of those
	// that were written in one second count as newer is left open.
	ListAttempts(ctx context.Context, f AttemptFilter) ([]Attempt, error)
	// RetainAttempts removes attempts beyond the bounds, of services without one beyond
	// others, in short transactions, and returns how many. It prepares the tables of
	// this and the next day. Any process may call
	// it at any time; it may stop half-way with an error, and the next call continues.
	RetainAttempts(ctx context.Context, bounds map[int32]AttemptBound, others AttemptBound) (int64, error)
}

// What follows is shared by the implementations.

// AttemptDay counts the kept attempts of a service that were written on a day.
type AttemptDay struct {
	Day             time.Time // midnight, in UTC
	Service         int32
	Attempts, Bytes int64
}

// AttemptTrim says what of a day has to go.
type AttemptTrim struct {
	AttemptDay
	Keep int64 // the newest attempts that stay; 0: none
}

// DayOf is the midnight in UTC before t.
func DayOf(t time.Time) time.Time { return t.UTC().Truncate(24 * time.Hour) }

// TrimAttempts returns the days that are over their bounds now, the oldest first. A day whose
// attempts reach beyond a bound in bytes is cut to nine tenths of it, so that it is
// not cut again at once.
func TrimAttempts(now time.Time, days []AttemptDay, bounds map[int32]AttemptBound, others AttemptBound) []AttemptTrim {
	days = slices.Clone(days)
	slices.SortFunc(days, func(a, b AttemptDay) int { return b.Day.Compare(a.Day) })
	held := map[int32]int64{}
	var trims []AttemptTrim
	for _, d := range days {
		bound, ok := bounds[d.Service]
		if !ok {
			bound = others
		}
		room := bound.MaxBytes - held[d.Service]
		switch {
		case bound.Keep <= 0 || now.Sub(d.Day.AddDate(0, 0, 1)) >= bound.Keep || room <= 0:
			trims = append(trims, AttemptTrim{AttemptDay: d})
			continue
		case d.Bytes > room:
			// The days before it find no room.
			keep := int64(float64(d.Attempts) * max(0, float64(room)-float64(bound.MaxBytes)/10) / float64(d.Bytes))
			trims = append(trims, AttemptTrim{AttemptDay: d, Keep: keep})
		}
		held[d.Service] += d.Bytes
	}
	slices.SortFunc(trims, func(a, b AttemptTrim) int {
		return cmp.Or(a.Day.Compare(b.Day), cmp.Compare(a.Service, b.Service))
	})
	return trims
}

// AttemptDays sums attempts by service, as those of one day, which it leaves out, in
// the order of services.
func AttemptDays(attempts []Attempt) []AttemptDay {
	sums := map[int32]*AttemptDay{}
	for i := range attempts {
		a := &attempts[i]
		d := sums[a.Service]
		if d == nil {
			d = &AttemptDay{Service: a.Service}
			sums[a.Service] = d
		}
		d.Attempts++
		d.Bytes += a.Size()
	}
	days := make([]AttemptDay, 0, len(sums))
	for _, d := range sums {
		days = append(days, *d)
	}
	slices.SortFunc(days, func(a, b AttemptDay) int { return cmp.Compare(a.Service, b.Service) })
	return days
}
