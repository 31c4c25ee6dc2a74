package storetest

import (
	"errors"
	"math"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// decideTo moves the watermark of a partition that it takes over.
func (f *fixture) decideTo(revision int64, p store.Partition, to int64) {
	f.Helper()
	taken, token := f.own(f.a, 'w', p)
	err := f.a.Decide(f.ctx(), store.Decision{Revision: revision, Moves: []store.WatermarkStep{{Partition: p, From: taken[0].NextOffset, To: to, Token: token}}}, writes(store.Outcome{}))
	require.NoError(f, err)
}

// take takes the progress of partitions over with a token made of letter.
func (f *fixture) take(s store.Store, letter byte, partitions ...int32) ([]store.Progress, store.Token) {
	f.Helper()
	token := store.Token{letter}
	taken, err := s.TakeProgress(f.ctx(), partitions, token)
	require.NoError(f, err)
	return taken, token
}

// swap swaps one row.
func (f *fixture) swap(s store.Store, revision int64, x store.ProgressSwap) bool {
	f.Helper()
	swapped, err := s.SwapProgress(f.ctx(), revision, []store.ProgressSwap{x})
	require.NoError(f, err)
	require.Len(f, swapped, 1)
	return swapped[0]
}

// progress reads all rows.
func (f *fixture) progress(s store.Store) []store.Progress {
	f.Helper()
	all, err := s.AllProgress(f.ctx())
	require.NoError(f, err)
	return all
}

// at is one position for a service; entities tells positions of one version apart.
func at(service int32, position change.Version, entities int64) store.ServicePosition {
	return store.ServicePosition{Service: service, Version: position, Entities: entities}
}

// to is the swap of a row from a token to the next one.
func to(partition int32, old, next store.Token, positions ...store.ServicePosition) store.ProgressSwap {
	return store.ProgressSwap{Progress: store.Progress{Partition: partition, Token: next, Positions: positions}, Old: old}
}

var progressTests = []test{
	{"a row is made by its first takeover, without positions", func(t *testing.T, f *fixture) {
		assert.Empty(t, f.progress(f.a))
		none, err := f.a.TakeProgress(t.Context(), nil, store.Token{1})
		require.NoError(t, err)
		assert.Empty(t, none)
		taken, token := f.take(f.a, 'a', 9, 0, 4)
		assert.Equal(t, []store.Progress{{Partition: 9, Token: token}, {Partition: 0, Token: token}, {Partition: 4, Token: token}}, taken, "in the order asked")
		assert.Equal(t, []store.Progress{{Partition: 0, Token: token}, {Partition: 4, Token: token}, {Partition: 9, Token: token}}, f.progress(f.b))
		_, err = f.a.TakeProgress(t.Context(), []int32{1, 2, 1}, token)
		require.Error(t, err)
		assert.Equal(t, store.Fatal, store.ClassOf(err), "twice is a bug")
		assert.Len(t, f.progress(f.b), 3)
	}},
	{"a row is swapped whole and comes back so", func(t *testing.T, f *fixture) {
		revision := f.revision()
		f.decideTo(revision, p0, 1<<40)
		f.decideTo(revision, p1, 10)
		_, first := f.take(f.a, 'a', 0, 1)
		var positions []store.ServicePosition
		for n := range int32(300) {
			positions = append(positions, at(n*n+1, version(int64(n%7)*1<<30), int64(n%3)))
		}
		positions = append(positions, at(math.MaxInt32, 0, math.MaxInt64))
		second := store.Token{'b'}
		swapped, err := f.b.SwapProgress(t.Context(), revision, []store.ProgressSwap{to(1, first, second, at(7, version(10), 3)), to(0, first, second, positions...)})
		require.NoError(t, err)
		assert.Equal(t, []bool{true, true}, swapped)
		want := []store.Progress{{Partition: 0, Token: second, Positions: positions}, {Partition: 1, Token: second, Positions: []store.ServicePosition{at(7, version(10), 3)}}}
		assert.Equal(t, want, f.progress(f.a))
		taken, third := f.take(f.a, 'c', 0, 1)
		want[0].Token, want[1].Token = third, third
		assert.Equal(t, want, taken, "a new owner finds the positions")
		assert.True(t, f.swap(f.a, revision, to(0, third, second, at(7, version(9), 1))), "and may put them back")
		assert.Equal(t, []store.ServicePosition{at(7, version(9), 1)}, f.progress(f.b)[0].Positions)
		none, err := f.a.SwapProgress(t.Context(), revision, nil)
		require.NoError(t, err)
		assert.Empty(t, none)
		_, err = f.a.SwapProgress(t.Context(), revision, []store.ProgressSwap{to(0, second, third), to(0, second, third)})
		require.Error(t, err)
		assert.Equal(t, store.Fatal, store.ClassOf(err), "twice is a bug")
	}},
	{"marks are swapped with their positions, those alone that moved", func(t *testing.T, f *fixture) {
		revision := f.revision()
		marked := func(service int32, offset int64, mark string) store.ServicePosition {
			p := at(service, 0, offset)
			p.Mark = mark
			if offset == 2 {
				p.Refresh, p.Repair = "due\x00"+mark, "lost\x00"+mark
			}
			return p
		}
		_, token := f.take(f.a, 'a', 0, 1)
		next := store.Token{'b'}
		first := []store.ServicePosition{marked(1, 1, "one"), marked(2, 1, "two\x00\xff"), marked(3, 1, ""), marked(4, 1, "four")}
		swapped, err := f.a.SwapProgress(t.Context(), revision, []store.ProgressSwap{to(1, token, next, marked(1, 0, "other")), to(0, token, next, first...)})
		require.NoError(t, err)
		require.Equal(t, []bool{true, true}, swapped)
		assert.Equal(t, first, f.progress(f.b)[0].Positions)
		taken, token := f.take(f.b, 'c', 1, 0)
		assert.Equal(t, first, taken[1].Positions, "a new owner finds the marks")
		assert.Equal(t, []store.ServicePosition{marked(1, 0, "other")}, taken[0].Positions)

		second := []store.ServicePosition{marked(1, 2, "one"), marked(2, 2, "deux"), marked(3, 2, "three"), marked(5, 2, "five")}
		stale := to(0, next, store.Token{'d'}, second...)
		stale.Saved = first
		assert.False(t, f.swap(f.a, revision, stale), "of a former owner")
		assert.Equal(t, first, f.progress(f.a)[0].Positions)
		x := to(0, token, store.Token{'d'}, second...)
		x.Saved = first
		assert.True(t, f.swap(f.b, revision, x))
		assert.Equal(t, second, f.progress(f.a)[0].Positions, "one stays, one moved, one is new, one is deleted with its service")
		third := []store.ServicePosition{marked(1, 3, ""), marked(2, 3, "deux")}
		assert.True(t, f.swap(f.b, revision, to(0, store.Token{'d'}, token, third...)), "what was saved is not known")
		assert.Equal(t, third, f.progress(f.a)[0].Positions)
		assert.Equal(t, []store.ServicePosition{marked(1, 0, "other")}, f.progress(f.a)[1].Positions)
	}},
	{"I5 another token swaps nothing, and does no harm to other rows", func(t *testing.T, f *fixture) {
		revision := f.revision()
		f.decideTo(revision, p0, 9)
		f.decideTo(revision, p1, 9)
		_, stale := f.take(f.a, 'a', 0, 1)
		_, token := f.take(f.b, 'b', 0)
		next := store.Token{'c'}
		swapped, err := f.a.SwapProgress(t.Context(), revision, []store.ProgressSwap{
			to(0, stale, next, at(1, version(5), 5)), to(5, stale, next), to(1, stale, next, at(1, version(5), 5)),
		})
		require.NoError(t, err)
		assert.Equal(t, []bool{false, false, true}, swapped, "taken over, never taken, its own")
		assert.Equal(t, []store.Progress{{Partition: 0, Token: token}, {Partition: 1, Token: next, Positions: []store.ServicePosition{at(1, version(5), 5)}}}, f.progress(f.a))
		assert.True(t, f.swap(f.b, revision, to(0, token, next)), "the right owner goes on")
	}},
	{"a swap of unknown outcome is repeated without effect", func(t *testing.T, f *fixture) {
		revision := f.revision()
		f.decideTo(revision, p0, 9)
		_, token := f.take(f.a, 'a', 0)
		x := to(0, token, store.Token{'b'}, at(1, version(9), 5))
		assert.True(t, f.swap(f.a, revision, x))
		after := f.progress(f.b)
		assert.False(t, f.swap(f.a, revision, x))
		assert.Equal(t, after, f.progress(f.b))
		assert.Equal(t, x.Token, after[0].Token)
	}},
	{"no position is above the watermark of the newest generation", func(t *testing.T, f *fixture) {
		revision := f.revision()
		_, token := f.take(f.a, 'a', 0)
		next := store.Token{'b'}
		assert.False(t, f.swap(f.a, revision, to(0, token, next, at(1, 1, 0))), "there is no watermark yet")
		assert.True(t, f.swap(f.a, revision, to(0, token, next, at(1, 0, 7))))
		token, next = next, token
		f.decideTo(revision, p0, 9)
		assert.False(t, f.swap(f.a, revision, to(0, token, next, at(1, version(3), 0), at(2, version(10), 0), at(3, version(3), 0))))
		assert.Equal(t, []store.ServicePosition{at(1, 0, 7)}, f.progress(f.b)[0].Positions)
		assert.True(t, f.swap(f.a, revision, to(0, token, next, at(1, version(3), 0), at(2, version(9), 0))))
		token, next = next, token

		third := store.Partition{Generation: 3, Number: 0}
		f.decideTo(revision, p1, 1<<30)
		f.own(f.a, 'x', third)
		start := change.NewVersion(3, 0)
		assert.False(t, f.swap(f.a, revision, to(0, token, next, at(1, start+1, 0))))
		assert.True(t, f.swap(f.a, revision, to(0, token, next, at(1, start, 0), at(2, version(1<<40), 0))))
		token, next = next, token
		f.decideTo(revision, third, 2)
		assert.True(t, f.swap(f.a, revision, to(0, token, next, at(1, start+2, 0))))
	}},
	{"I12 a superseded revision swaps nothing", func(t *testing.T, f *fixture) {
		_, token := f.take(f.a, 'a', 0)
		x := to(0, token, store.Token{'b'}, at(1, 0, 9))
		refused := func(revision int64) {
			before := f.progress(f.b)
			_, err := f.a.SwapProgress(t.Context(), revision, []store.ProgressSwap{x})
			require.ErrorIs(t, err, store.ErrSuperseded)
			assert.Equal(t, store.Superseded, store.ClassOf(err))
			assert.Equal(t, before, f.progress(f.b))
		}
		refused(0) // nothing is active
		refused(1)
		old := f.revision()
		next, err := f.b.Activate(t.Context(), []byte("other"), false, store.Inbox{}, nil)
		require.NoError(t, err)
		for _, revision := range []int64{0, old, next.Number + 1} {
			refused(revision)
		}
		assert.True(t, f.swap(f.a, next.Number, x))
	}},
	{"I12 no swap of an older revision after Activate returned", func(t *testing.T, f *fixture) {
		const owners = 4
		revision := f.revision()
		var group sync.WaitGroup
		begun, over := make(chan struct{}, owners), make(chan struct{})
		for n := range int32(owners) {
			s := turn(int(n), f.a, f.b)
			_, token := f.take(s, byte(n), n)
			group.Go(func() {
				for i, last := int64(1), false; !last; i++ {
					select {
					case <-over:
						last = true
					default:
					}
					next := store.Token{byte(n), byte(i), byte(i >> 8), 1}
					swapped, err := s.SwapProgress(t.Context(), revision, []store.ProgressSwap{to(n, token, next, at(1, 0, i))})
					if errors.Is(err, store.ErrSuperseded) {
						return
					}
					assert.NoError(t, err)
					assert.Equal(t, []bool{!last}, swapped)
					if token = next; i == 3 {
						begun <- struct{}{}
					}
				}
			})
		}
		for range owners {
			<-begun
		}
		_, err := f.b.Activate(t.Context(), []byte("other"), false, store.Inbox{}, nil)
		require.NoError(t, err)
		then := f.progress(f.b)
		close(over)
		group.Wait()
		assert.Equal(t, then, f.progress(f.b))
	}},
	{"I5 takers that fight lose no swap", func(t *testing.T, f *fixture) {
		// Each counts on from its takeover until another owner has the row: the
		// last count is the number of swaps that succeeded.
		const takers, rounds, last = 6, 12, 5
		revision := f.revision()
		var group sync.WaitGroup
		swaps := make([][2]int64, takers)
		for n := range takers {
			s := turn(n, f.a, f.b)
			group.Go(func() {
				for round := range rounds {
					token := store.Token{byte(n), byte(round)}
					partitions := []int32{0, 1}
					if n%2 == 1 { // no order of the caller makes them wait for each other
						partitions = []int32{1, 0}
					}
					taken, err := s.TakeProgress(t.Context(), partitions, token)
					if !assert.NoError(t, err) {
						return
					}
					counts := map[int32]int64{}
					for _, p := range taken {
						if len(p.Positions) > 0 {
							counts[p.Partition] = p.Positions[0].Entities
						}
					}
					for i := range last {
						next := store.Token{byte(n), byte(round), byte(i + 1)}
						swapped, err := s.SwapProgress(t.Context(), revision, []store.ProgressSwap{
							to(partitions[1], token, next, at(1, 0, counts[partitions[1]]+1)), to(partitions[0], token, next, at(1, 0, counts[partitions[0]]+1)),
						})
						if !assert.NoError(t, err) {
							return
						}
						for k, p := range []int32{partitions[1], partitions[0]} {
							if swapped[k] {
								counts[p]++
								swaps[n][p]++
							}
						}
						if token = next; !swapped[0] && !swapped[1] {
							break
						}
					}
				}
			})
		}
		group.Wait()
		for p, row := range f.progress(f.a) {
			var sum int64
			for n := range swaps {
				sum += swaps[n][p]
			}
			require.Positive(t, sum)
			assert.Equal(t, []store.ServicePosition{at(1, 0, sum)}, row.Positions)
		}
	}},
}
