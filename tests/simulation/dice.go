package simulation

import (
	"math/bits"
	"math/rand/v2"
	"sync"
	"time"
)

// dice are the draws of one actor. They depend on the seed, its name and how
// often it drew, not on what other actors did in between.
type dice struct {
	mu sync.Mutex
	r  rand.PCG
}

// dice returns the dice of an actor, which is named by text and numbers.
func (w *world) dice(name string, numbers ...int64) *dice {
	// FNV-1a over the parts.
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * prime
	}
	for _, n := range numbers {
		h = (h^uint64(n))*prime ^ h>>32
	}
	d := &dice{}
	d.r.Seed(w.seed, h)
	return d
}

func (d *dice) draw() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.r.Uint64()
}

// n returns a number from 0 to n-1.
func (d *dice) n(n int) int {
	high, _ := bits.Mul64(d.draw(), uint64(n)) // as good as even: n is small
	return int(high)
}

func (d *dice) chance(p float64) bool { return float64(d.draw()>>11)/(1<<53) < p }

// upTo returns a duration to the nanosecond, so that no two are equal.
func (d *dice) upTo(limit time.Duration) time.Duration { return 1 + time.Duration(d.n(int(limit))) }

// trip is how long a request or its answer is under way: mostly short.
func (d *dice) trip() time.Duration {
	if d.chance(0.08) {
		return d.upTo(600 * time.Millisecond)
	}
	return d.upTo(12 * time.Millisecond)
}
