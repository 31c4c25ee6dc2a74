package core

import (
	"hash/fnv"
	"math"
	"time"
)

const (
	// longestProbe is the longest wait between attempts at a target that fails.
	longestProbe = 15 * time.Second
	// mostFailing is how many failing entities a service remembers.
	mostFailing = 64
)

// brake spaces the attempts at a target that fails. Else a thousand rows are many attempts a second at
// a target that asks for rest.
type brake struct {
	minBackoff, maxBackoff time.Duration

	failing     map[string]time.Time // entities that failed since the last success, and until when the target wants rest
	failures    int                  // answered attempts without a success in a row
	lastFailure time.Time
	unreached   int  // attempts in a row for which the target took nothing
	down        bool // so did the last one; Next says so once
	refused     bool // the service is refused as a whole
}

// failed notes a failure of an entity, and how long the target wants rest.
func (b *brake) failed(entity string, until time.Time) {
	if _, is := b.failing[entity]; is || len(b.failing) < mostFailing {
		b.failing[entity] = until
	}
}

// braked reports whether changes of several entities failed since the last success: then one change
// is tried at a time, ever more seldom.
func (b *brake) braked() bool { return len(b.failing) > 1 }

// until returns when the next attempt may be made, also not before the time that the target
// named for each entity; zero: at once.
func (b *brake) until() (at time.Time) {
	if !b.braked() && !b.refused {
		return at
	}
	first := true
	for _, until := range b.failing {
		if first || until.Before(at) {
			at, first = until, false
		}
	}
	return later(at, b.lastFailure.Add(b.interval(max(0, b.failures-1))))
}

// release ends the brake.
func (b *brake) release() {
	b.failures = 0
	clear(b.failing)
}

// hurry lets the next attempt be made at once.
func (b *brake) hurry() {
	b.lastFailure = time.Time{}
	for entity := range b.failing {
		b.failing[entity] = time.Time{}
	}
}

// interval is the wait after n failures at a target.
func (b *brake) interval(n int) time.Duration { return min(b.doubled(n), longestProbe) }

func (b *brake) doubled(n int) time.Duration {
	return time.Duration(min(float64(b.minBackoff)*math.Pow(2, float64(min(n, 30))), float64(b.maxBackoff)))
}

// backoff is the wait before the next attempt at a change that failed, spread by a quarter.
func (b *brake) backoff(i *Item) time.Duration {
	return time.Duration(float64(b.doubled(i.Attempts)) * (0.75 + 0.5*spread(i.Entity, i.Attempts)))
}

// spread returns a number from 0 to 1 by an entity and a count.
func spread(entity string, n int) float64 {
	h := fnv.New32a()
	_, _ = h.Write(append([]byte(entity), byte(n)))
	return float64(h.Sum32()%1024) / 1024
}
