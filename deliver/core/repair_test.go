package core

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// Each repair visits every entity once on a walk that repairs join, leave, and return to at
// any time, also when it is stored and read between any two pages.
func TestARepairVisitsEveryEntityOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		entities := make([]string, rapid.IntRange(0, 12).Draw(t, "entities"))
		for i := range entities {
			entities[i] = fmt.Sprintf("e%02d", i)
		}
		size := rapid.IntRange(1, 4).Draw(t, "page")
		repairs := make([]Repair, 3)
		visited := make([][]string, 3)
		away := make([]int, 3) // rounds until it takes part
		for i := range repairs {
			repairs[i].Lose(1, 2)
			away[i] = rapid.IntRange(0, 6).Draw(t, "away")
		}
		place := rapid.SampledFrom(append([]string{"", "e05", "z"}, entities...)).Draw(t, "place")
		for rounds := 0; slices.ContainsFunc(repairs, func(r Repair) bool { return r.Needed() }); rounds++ {
			require.Less(t, rounds, 100, "it ends")
			var active []*Repair
			for i := range repairs {
				if away[i] > 0 {
					away[i]--
				} else if repairs[i].Needed() {
					active = append(active, &repairs[i])
				}
			}
			if len(active) == 0 {
				continue
			}
			after := NextPage(place, active)
			page := entities[len(entities)-len(slices.DeleteFunc(slices.Clone(entities), func(e string) bool { return e <= after })):]
			last := ""
			if len(page) >= size {
				page = page[:size]
				last = page[size-1]
			}
			for i := range repairs {
				r := &repairs[i]
				if !slices.Contains(active, r) {
					continue
				}
				if r.Join(after); !r.Covers(after, last) {
					continue
				}
				if rapid.IntRange(0, 4).Draw(t, "fails") == 0 {
					away[i] = rapid.IntRange(0, 6).Draw(t, "away")
					continue
				}
				for _, e := range page {
					if e > r.At() {
						visited[i] = append(visited[i], e)
					}
				}
				r.Advance(last)
				stored, ok := DecodeRepair(r.Encode(), 9)
				require.True(t, ok)
				require.Equal(t, *r, stored)
			}
			place = last
		}
		for i := range repairs {
			got := make(map[string]int)
			for _, e := range visited[i] {
				got[e]++
			}
			for _, e := range entities {
				require.GreaterOrEqual(t, got[e], 1, "%s of %v", e, visited[i])
			}
			require.LessOrEqual(t, len(visited[i]), len(entities)+size-1, "once round, to the end of the page in which it began")
		}
	})
}

// A few lost ranges are exact; of many the closest are merged. An unreadable need counts as
// everything lost.
func TestWhatIsLostIsKeptInRanges(t *testing.T) {
	var r Repair
	r.Lose(10, 20)
	r.Join("m")
	require.True(t, r.Covers("m", ""))
	r.Advance("")
	known := r
	r.Lose(12, 20)
	require.Equal(t, known, r, "nothing new")
	r.Lose(30, 40)
	require.False(t, r.Covers("", ""), "a page that was read before does not count")
	r.Advance("")
	require.True(t, r.Needed())
	require.False(t, r.joined, "all entities are searched for it")
	for v, want := range map[change.Version]bool{9: false, 10: true, 19: true, 20: false, 29: false, 30: true, 40: false} {
		require.Equal(t, want, r.Has(v), v)
	}
	from, to := r.Bounds()
	require.Equal(t, []change.Version{10, 40}, []change.Version{from, to})
	r.Lose(20, 30)
	require.Equal(t, []span{{10, 40}}, r.lost)
	for n := range change.Version(2 * maxSpans) {
		r.Lose(1000*(n+1)+n, 1000*(n+1)+500)
	}
	require.Len(t, r.lost, maxSpans)
	require.True(t, slices.IsSortedFunc(r.lost, func(a, b span) int { return cmp.Compare(a.from, b.from) }))
	for n := range change.Version(2 * maxSpans) {
		require.True(t, r.Has(1000*(n+1)+400))
	}

	r, ok := DecodeRepair("\x01nonsense", 50)
	require.False(t, ok)
	require.Equal(t, []span{{0, 50}}, r.lost, "anything may be lost")
}

// A lane that lags is asked for nothing while it is in the older half of its log.
func TestRequestsWaitForAServiceThatIsFarBehind(t *testing.T) {
	t.Parallel()
	f := NewFlow(1 << 20)
	q := &Queue{Number: 3, Paced: true, Full: true}
	f.Add(q)
	p := f.Assign(&store.Progress{Token: store.Token{1}, Positions: []store.ServicePosition{{Service: 3, Version: v(4)}}})
	p.Look(v(4), v(6), v(30))
	require.False(t, f.LagInNeed())
	p.HandOut(&Frame{Frame: &change.Frame{From: v(7), To: v(8), Prev: v(6)}})
	require.True(t, f.LagInNeed())
	for at, served := range map[int64]int{6: 0, 9: 0, 10: 0, 20: 1, 29: 1} {
		p.lanes[0].upTo = v(at)
		got, _, _, _, idle := f.JoinWalk("", map[int32]store.Mark{0: {Begins: v(10)}}, time.Now())
		require.Len(t, got, served, at)
		require.Equal(t, served == 0, idle == minRepairPause, at)
	}
	p.lanes[0].upTo = v(29)
	q.Full = false
	p.HandOut(&Frame{Frame: &change.Frame{From: v(29), To: v(30), Prev: v(29)}})
	require.False(t, f.LagInNeed(), "it has reached the end")
}
