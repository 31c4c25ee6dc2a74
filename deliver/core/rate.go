package core

import (
	"math"
	"time"
)

// Rate is the part of Pace.Every and Pace.Burst that is this process's, as a bucket of tokens.
type Rate struct {
	whole   Pace // of all processes
	every   time.Duration
	burst   int
	tokens  float64
	filled  time.Time // of tokens; zero before the first Next
	own     int       // partitions that the rate is for
	limited bool      // the last Next found too few tokens
}

// gather is how long tokens gather for a write that is not full, at least.
const gather = time.Second

// Share sets the part of the rate for this process: its partitions, of all. The bucket keeps its
// tokens, but is empty for the first partition: the former owner may have spent the rate.
func (r *Rate) Share(own, of int, now time.Time) {
	if r.whole.Every == 0 {
		return
	}
	r.refill(now)
	if r.own == 0 {
		r.tokens = min(0, r.tokens)
	}
	r.own = own
	share := min(1, float64(max(own, 1))/float64(max(of, 1)))
	r.every, r.burst = time.Duration(math.Ceil(float64(r.whole.Every)/share)), max(1, int(float64(r.whole.Burst)*share))
	r.tokens = min(r.tokens, float64(r.burst))
}

func (r *Rate) refill(now time.Time) {
	switch {
	case r.filled.IsZero():
		r.filled = now
	case now.After(r.filled):
		r.tokens = min(float64(r.burst), r.tokens+float64(now.Sub(r.filled))/float64(r.every))
		r.filled = now
	}
}

// allowance returns how many attempts the rate allows; with none, at is when there is one.
func (r *Rate) allowance(now time.Time) (n int, at time.Time) {
	if r.every == 0 {
		return math.MaxInt, at
	}
	r.refill(now)
	n = int(r.tokens)
	if r.limited = n < 1; r.limited {
		n = 0 // a write that takes long may owe tokens to a smaller share
		at = r.has(1, now)
	}
	return n, at
}

// has returns when the bucket has so many tokens.
func (r *Rate) has(tokens int, now time.Time) time.Time {
	return now.Add(time.Duration(math.Ceil((float64(tokens)-r.tokens)*float64(r.every))) + 1)
}

// spend counts attempts when they have ended: a bucket that filled meanwhile is not full.
func (r *Rate) spend(now time.Time, attempts int) {
	if r.every > 0 {
		r.refill(now)
		r.tokens -= float64(attempts)
	}
}

// gathers reports whether a write of so many changes waits for more tokens than there are, until at:
// for those that come while the sink lingers, or in a second, at most the bucket. Each token alone
// would make a write of its own.
func (r *Rate) gathers(now time.Time, changes int) (at time.Time, waits bool) {
	if r.every == 0 || changes <= int(r.tokens) {
		return at, false
	}
	want := min(changes, r.burst, max(1, int(max(r.whole.Linger, gather)/r.every)))
	if r.limited = want > int(r.tokens); r.limited {
		at = r.has(want, now)
	}
	return at, r.limited
}
