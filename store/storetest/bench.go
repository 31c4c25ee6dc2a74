package storetest

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// Swaps returns swaps of one partition, in turn, in which the marks of 5 of n services
// move: sinks of topics with 64 partitions. The first writes all of them.
func Swaps(n int, token store.Token) func() store.ProgressSwap {
	step := 0
	saved := make([]store.ServicePosition, n)
	for i := range saved {
		saved[i] = store.ServicePosition{Service: int32(i + 1), Mark: newMark(0, i)}
	}
	last := store.ProgressSwap{Progress: store.Progress{Token: token, Positions: saved}}
	return func() store.ProgressSwap {
		positions := append([]store.ServicePosition(nil), last.Positions...)
		for i := range positions {
			positions[i].Version = change.NewVersion(1, int64(step))
		}
		for i := range 5 {
			p := &positions[(step*5+i)%n]
			p.Mark, p.Version = newMark(step, i), p.Version-min(p.Version, 1)
		}
		next := store.ProgressSwap{Progress: store.Progress{Token: store.Token{1, byte(step), byte(step >> 8), byte(step >> 16)}, Positions: positions},
			Old: last.Token, Saved: last.Positions}
		if step == 0 {
			next.Saved = nil
		}
		step++
		last = next
		return next
	}
}

// newMark makes a mark of 280 bytes: a topic of 64 partitions.
func newMark(step, i int) string {
	mark := make([]byte, 280)
	r := rand.New(rand.NewPCG(uint64(step), uint64(i)))
	for k := range mark {
		mark[k] = byte(r.Uint32())
	}
	return string(mark)
}

// BenchmarkSwap swaps the progress of 5 services, and of 500 of which 5 moved.
func BenchmarkSwap(b *testing.B, open func(b *testing.B) store.Store) {
	for _, n := range []int{5, 500} {
		b.Run(fmt.Sprintf("services=%d", n), func(b *testing.B) {
			s := open(b)
			f := fixture{a: s}
			revision, err := s.Activate(b.Context(), []byte("c"), false, store.Inbox{}, nil)
			require.NoError(b, err)
			p := store.Partition{Generation: 1}
			_, err = f.a.TakeOver(b.Context(), []store.Partition{p}, store.Token{1})
			require.NoError(b, err)
			err = s.Decide(b.Context(), store.Decision{Revision: revision.Number, Moves: []store.WatermarkStep{{Partition: p, To: 1 << 40, Token: store.Token{1}}}},
				writes(store.Outcome{}))
			require.NoError(b, err)
			_, err = s.TakeProgress(b.Context(), []int32{0}, store.Token{'t'})
			require.NoError(b, err)
			next := Swaps(n, store.Token{'t'})
			for b.Loop() {
				swapped, err := s.SwapProgress(b.Context(), revision.Number, []store.ProgressSwap{next()})
				require.NoError(b, err)
				require.True(b, swapped[0])
			}
		})
	}
}
