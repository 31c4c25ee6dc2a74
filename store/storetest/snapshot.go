package storetest

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

func (f *fixture) look(s store.Store) store.HistorySnapshot {
	f.Helper()
	l, err := s.HistorySnapshot(f.ctx())
	require.NoError(f, err)
	return l
}

var snapshotTests = []test{
	{"marks of the newest generations, and where each revision began", func(t *testing.T, f *fixture) {
		assert.Equal(t, store.HistorySnapshot{Marks: map[int32]store.Mark{}, Owners: map[int32]store.Token{}}, f.look(f.a))
		activate := func(name string) int64 {
			r, err := f.b.Activate(t.Context(), []byte(name), false, store.Inbox{}, nil)
			require.NoError(t, err)
			return r.Number
		}
		owners := map[int32]store.Token{0: {1}, 1: {1}}
		_, err := f.a.TakeProgress(t.Context(), []int32{0, 1}, store.Token{1})
		require.NoError(t, err)
		first := activate("first")
		_, token := f.own(f.a, 'a', p0, p1)
		_, err = f.a.Decide(t.Context(), store.Decision{Revision: first, Moves: []store.WatermarkStep{{Partition: p0, From: 0, To: 9, Token: token}}},
			writes(store.Outcome{LastTo: map[store.Partition]change.Version{p0: version(7)}}))
		require.NoError(t, err)
		marks := map[int32]store.Mark{0: {Watermark: version(9), LastTo: version(7)}, 1: {Watermark: version(0)}}
		assert.Equal(t, store.HistorySnapshot{Active: first, Marks: marks, Owners: owners}, f.look(f.b), "the first revision began before there were watermarks")

		second := activate("second")
		activations := []store.Activation{{Revision: second, Partition: 0, From: version(9)}, {Revision: second, Partition: 1, From: version(0)}}
		assert.Equal(t, store.HistorySnapshot{Active: second, Marks: marks, Activations: activations, Owners: owners}, f.look(f.a))
		assert.Equal(t, second, activate("second"))
		assert.Equal(t, activations, f.look(f.a).Activations, "once more changes nothing")

		f.own(f.a, 'b', store.Partition{Generation: 4, Number: 0}, store.Partition{Generation: 4, Number: 2})
		marks[0] = store.Mark{Watermark: change.NewVersion(4, 0), LastTo: version(7)}
		marks[2] = store.Mark{Watermark: change.NewVersion(4, 0)}
		assert.Equal(t, store.HistorySnapshot{Active: second, Marks: marks, Activations: activations, Owners: owners}, f.look(f.a))

		third := activate("third")
		activations = append(activations,
			store.Activation{Revision: third, Partition: 0, From: change.NewVersion(4, 0)},
			store.Activation{Revision: third, Partition: 1, From: version(0)},
			store.Activation{Revision: third, Partition: 2, From: change.NewVersion(4, 0)})
		store.SortActivations(activations)
		assert.Equal(t, store.HistorySnapshot{Active: third, Marks: marks, Activations: activations, Owners: owners}, f.look(f.b))
		_, err = f.a.Activate(t.Context(), []byte("first"), false, store.Inbox{}, nil)
		require.ErrorIs(t, err, store.ErrSuperseded)
		assert.Equal(t, activations, f.look(f.b).Activations)
	}},
	{"an activation drops those that no position needs any more, and keeps how the others judge", func(t *testing.T, f *fixture) {
		activate := func(name string) int64 {
			r, err := f.b.Activate(t.Context(), []byte(name), false, store.Inbox{}, nil)
			require.NoError(t, err)
			return r.Number
		}
		service, late := f.service("s"), f.service("late")
		first := activate("0")
		_, token := f.own(f.a, 'a', p0, p1)
		_, err := f.a.TakeProgress(t.Context(), []int32{0}, store.Token{'p'})
		require.NoError(t, err)
		revision := first
		var all []store.Activation // of partition 0
		decide := func(from int64) {
			_, err := f.a.Decide(t.Context(), store.Decision{Revision: revision, Moves: []store.WatermarkStep{{Partition: p0, From: from, To: from + 10, Token: token}}},
				writes(store.Outcome{LastTo: map[store.Partition]change.Version{p0: version(from + 10)}}))
			require.NoError(t, err)
		}
		for i := range int64(6) {
			decide(10 * i)
			if i == 4 {
				done, err := f.a.SwapProgress(t.Context(), revision, []store.ProgressSwap{{Old: store.Token{'p'}, Progress: store.Progress{
					Token: store.Token{'q'}, Positions: []store.ServicePosition{{Service: service, Position: store.Position{Version: version(45)}}, {Service: late, Position: store.Position{Version: version(25)}}},
				}}})
				require.NoError(t, err)
				require.Equal(t, []bool{true}, done)
			}
			before := f.look(f.a)
			revision = activate(fmt.Sprint(i + 1))
			all = append(all, store.Activation{Revision: revision, Partition: 0, From: version(10 * (i + 1))})
			if i < 4 {
				require.Greater(t, len(f.look(f.a).Activations), len(before.Activations), "there are no positions yet")
			}
		}
		var kept []store.Activation
		look := f.look(f.a)
		for _, a := range look.Activations {
			if a.Partition == 0 {
				kept = append(kept, a)
			}
		}
		assert.Equal(t, all[1:], kept, "of those at or below the lowest position, 25, the newest")
		assert.Len(t, look.Activations, len(kept)+6, "a partition without positions keeps all")
		whole := store.HistorySnapshot{Active: look.Active, Marks: look.Marks, Activations: all}
		for revision := range look.Active + 1 {
			for from := range int64(60) {
				for to := max(from+1, 26); to <= 60; to++ {
					require.Equal(t, whole.Counts(0, revision, version(from), version(to)), look.Counts(0, revision, version(from), version(to)), "revision %d, from %d to %d", revision, from, to)
				}
			}
		}
	}},
	{"a decision under way is not seen, and waits for nobody who looks", func(t *testing.T, f *fixture) {
		revision := f.revision()
		_, token := f.own(f.a, 'a', p0)
		before := f.look(f.b)
		_, err := f.a.Decide(t.Context(), store.Decision{Revision: revision, Moves: []store.WatermarkStep{{Partition: p0, From: 0, To: 9, Token: token}}, Entities: []string{"e"}},
			func(store.Loaded) (store.Outcome, error) {
				assert.Equal(t, before, f.look(f.b))
				assert.Empty(t, f.progress(f.b))
				return store.Outcome{LastTo: map[store.Partition]change.Version{p0: version(9)}}, nil
			})
		require.NoError(t, err)
		assert.Equal(t, store.Mark{Watermark: version(9), LastTo: version(9)}, f.look(f.b).Marks[0])
	}},
	{"it is one snapshot", func(t *testing.T, f *fixture) {
		// Both partitions move together, each move has a revision of its own.
		const moves = 25
		f.own(f.a, 'a', p0, p1)
		token := store.Token{'a'}
		done := make(chan struct{})
		var decider sync.WaitGroup
		decider.Go(func() {
			defer close(done)
			for i := range int64(moves) {
				r, err := f.a.Activate(t.Context(), fmt.Append(nil, i), false, store.Inbox{}, nil)
				if !assert.NoError(t, err) {
					return
				}
				to := version(i + 1)
				_, err = f.a.Decide(t.Context(), store.Decision{Revision: r.Number, Moves: []store.WatermarkStep{{Partition: p0, From: i, To: i + 1, Token: token}, {Partition: p1, From: i, To: i + 1, Token: token}}},
					writes(store.Outcome{LastTo: map[store.Partition]change.Version{p0: to, p1: to}}))
				if !assert.NoError(t, err) {
					return
				}
			}
		})
		for looking := true; looking; {
			select {
			case <-done:
				looking = false
			default:
			}
			l := f.look(f.b)
			mark := l.Marks[0]
			require.Equal(t, mark, l.Marks[1])
			require.Len(t, l.Activations, int(2*l.Active))
			require.Contains(t, []int64{l.Active, l.Active - 1}, mark.Watermark.Offset())
			if mark.Watermark.Offset() > 0 {
				require.Equal(t, mark.Watermark, mark.LastTo)
			}
			for _, a := range l.Activations {
				require.Equal(t, a.Revision-1, a.From.Offset())
			}
		}
		decider.Wait()
		assert.EqualValues(t, moves, f.look(f.b).Active)
	}},
}

var movedTests = []test{
	{"rows of a range page by the bytes of their entities' ids, never split", func(t *testing.T, f *fixture) {
		ids := []string{"A", "B", "Z", "a", "a/1", "b", "é", "\U0001F34C"} // no locale may reorder them
		services := make([]int32, 5)
		for i := range services {
			services[i] = f.service(fmt.Sprint("s", i))
		}
		var want []store.Row
		for e, id := range ids {
			for i, n := range services {
				v := version(int64(10*i + e))
				f.fill(n, v, id)
				if v >= version(12) && v < version(33) {
					want = append(want, store.Row{Key: store.Key{Service: n, Entity: id}, Found: true, Content: content("new"), Version: v})
				}
			}
		}
		f.fill(services[0], version(33), "a/0")
		f.fill(services[0], version(11), "ab")
		f.fill(services[0], change.NewVersion(2, 20), "zz")
		f.set(nil, version(12), store.Key{Service: services[1], Entity: "ab"})
		want = append(want, store.Row{Key: store.Key{Service: services[1], Entity: "ab"}, Found: true, Version: version(12)})
		slices.SortFunc(want, func(a, b store.Row) int { return a.Key.Compare(b.Key) })
		all := append(slices.Clone(ids), "a/0", "ab", "zz")
		slices.Sort(all)
		for _, limit := range []int{1, 2, 3, 100} {
			var got []store.Row
			for after, pages := "", 0; pages == 0 || after != ""; pages++ {
				page, last, err := f.b.Moved(t.Context(), version(12), version(33), after, limit)
				require.NoError(t, err)
				got = append(got, page...)
				require.LessOrEqual(t, pages, len(all), "the pages end")
				entities := map[string]bool{}
				for _, r := range page {
					require.True(t, r.Entity > after && (last == "" || r.Entity <= last))
					entities[r.Entity] = true
				}
				require.LessOrEqual(t, len(entities), limit)
				if last != "" {
					n, _ := slices.BinarySearch(all, after)
					if after != "" {
						n++
					}
					require.Equal(t, all[n+limit-1], last, "a page has so many entities, with and without such rows")
				}
				after = last
			}
			assert.Equal(t, want, got, limit)
		}
		for _, c := range []struct {
			from, to change.Version
			after    string
			limit    int
		}{{version(12), version(33), "", 0}, {version(12), version(12), "", 9}, {version(12), version(33), "\U0001F34C", 9}, {change.NewVersion(3, 0), change.NewVersion(4, 0), "", 9}} {
			page, last, err := f.b.Moved(t.Context(), c.from, c.to, c.after, c.limit)
			require.NoError(t, err)
			assert.Empty(t, page)
			assert.Contains(t, []string{"", "zz"}, last)
		}
	}},
}
