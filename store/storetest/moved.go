package storetest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

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
