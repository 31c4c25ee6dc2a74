package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// checkRow reads one row.
func (f *operatorFixture) checkRow(s store.CheckRows, k store.Key) store.CheckRow {
	f.Helper()
	rows, err := s.CheckRows(f.ctx(), []store.Key{k})
	require.NoError(f, err)
	require.Len(f, rows, 1)
	return rows[0]
}

// stored is a row after its swap.
func stored(r store.CheckRow) store.CheckRow {
	r.Found = true
	r.Revision++
	return r
}

var checkTests = []operatorTest{
	{"a check row comes back as it was swapped", func(t *testing.T, f *operatorFixture) {
		k := store.Key{Service: f.service("acme/crm@check"), Entity: "banana-1"}
		assert.Equal(t, store.CheckRow{Key: k}, f.checkRow(f.a, k), "a missing row")
		row := store.CheckRow{Key: k, Content: content("A"), Version: 7, Memory: []byte("memory")}
		for i, next := range []store.CheckRow{
			row,
			{Content: content("B"), Version: 1<<62 + 5, DeliveredVersion: 7, Delivered: content("A")},
			{Version: 9, DeliveredVersion: 9, Delivered: change.Retracted(), Memory: []byte{0, 255}},
		} {
			next.Key, next.Revision = k, int64(i)
			swapped, err := f.a.SwapCheckRows(t.Context(), []store.CheckRow{next})
			require.NoError(t, err)
			require.Equal(t, []bool{true}, swapped)
			assert.Equal(t, stored(next), f.checkRow(f.b, k))
		}
		assert.False(t, f.row(f.a, k).Found, "it is no dam row")
	}},
	{"only a row of the given revision is swapped, and the others are not harmed", func(t *testing.T, f *operatorFixture) {
		service := f.service("acme/crm@check")
		row := func(entity string, revision int64, text string) store.CheckRow {
			return store.CheckRow{Key: store.Key{Service: service, Entity: entity}, Revision: revision, Content: content(text), Version: 1}
		}
		swapped, err := f.a.SwapCheckRows(t.Context(), []store.CheckRow{row("z", 0, "A"), row("a", 0, "A"), row("m", 0, "A")})
		require.NoError(t, err)
		require.Equal(t, []bool{true, true, true}, swapped)
		swapped, err = f.b.SwapCheckRows(t.Context(), []store.CheckRow{
			row("z", 1, "B"), // is
			row("n", 1, "B"), // is missing
			row("a", 0, "B"), // is there already
			row("q", 0, "B"), // is new
			row("m", 2, "B"), // has another one
		})
		require.NoError(t, err)
		assert.Equal(t, []bool{true, false, false, true, false}, swapped)
		for entity, want := range map[string]store.CheckRow{
			"z": row("z", 2, "B"), "a": row("a", 1, "A"), "q": row("q", 1, "B"), "m": row("m", 1, "A"),
		} {
			want.Found = true
			assert.Equal(t, want, f.checkRow(f.a, want.Key), entity)
		}
		assert.False(t, f.checkRow(f.a, row("n", 0, "").Key).Found)
	}},
	{"rows are read in the order of keys, missing ones and repeated ones too", func(t *testing.T, f *operatorFixture) {
		services := []int32{f.service("acme/crm@check"), f.service("acme/web@check")}
		var rows []store.CheckRow
		var keys []store.Key
		for i := range 300 {
			for _, n := range services {
				k := store.Key{Service: n, Entity: fmt.Sprint("banana-", i*7919%10007)}
				rows = append(rows, store.CheckRow{Key: k, Content: content(fmt.Sprint(k)), Version: change.Version(i + 1)})
				keys = append(keys, k, store.Key{Service: n, Entity: fmt.Sprint("missing-", i)}, k)
			}
		}
		swapped, err := f.a.SwapCheckRows(t.Context(), rows)
		require.NoError(t, err)
		require.Equal(t, slices.Repeat([]bool{true}, len(rows)), swapped)
		found, err := f.b.CheckRows(t.Context(), keys)
		require.NoError(t, err)
		require.Len(t, found, len(keys))
		for i, r := range found {
			want := store.CheckRow{Key: keys[i]}
			if i%3 != 1 {
				want = stored(rows[i/3])
			}
			require.Equal(t, want, r)
		}
		found, err = f.b.CheckRows(t.Context(), nil)
		require.NoError(t, err)
		assert.Empty(t, found)
		swapped, err = f.b.SwapCheckRows(t.Context(), nil)
		require.NoError(t, err)
		assert.Empty(t, swapped)
	}},
	{"check rows of one service page by the bytes of their entities", func(t *testing.T, f *operatorFixture) {
		one, other := f.service("acme/crm@check"), f.service("acme/web@check")
		ids := []string{"A", "B", "Z", "a", "a/1", "b", "é", "\U0001F34C"} // no locale may reorder them
		var rows []store.CheckRow
		for i, id := range ids {
			rows = append(rows, store.CheckRow{Key: store.Key{Service: one, Entity: id}, Content: content(id), Version: change.Version(7 + i),
				DeliveredVersion: 5, Delivered: content("before"), Memory: []byte(id)})
		}
		rows[3].Content, rows[3].Delivered, rows[3].Memory = nil, nil, nil
		for _, id := range []string{"A", "AA", "zz"} {
			rows = append(rows, store.CheckRow{Key: store.Key{Service: other, Entity: id}, Content: content("other"), Version: 3})
		}
		swapped, err := f.a.SwapCheckRows(t.Context(), rows)
		require.NoError(t, err)
		require.NotContains(t, swapped, false)
		var got []store.CheckRow
		for after := ""; ; after = got[len(got)-1].Entity {
			page, err := f.b.ServiceCheckRows(t.Context(), one, after, 3)
			require.NoError(t, err)
			got = append(got, page...)
			if len(page) < 3 {
				break
			}
		}
		require.Len(t, got, len(ids))
		for i, r := range got {
			assert.Equal(t, stored(rows[i]), r)
		}
		for _, nothing := range []func() ([]store.CheckRow, error){
			func() ([]store.CheckRow, error) { return f.b.ServiceCheckRows(t.Context(), one, "", 0) },
			func() ([]store.CheckRow, error) { return f.b.ServiceCheckRows(t.Context(), other+100, "", 3) },
		} {
			page, err := nothing()
			require.NoError(t, err)
			assert.Empty(t, page)
		}
	}},
	{"a check row twice in one call is a bug", func(t *testing.T, f *operatorFixture) {
		r := store.CheckRow{Key: store.Key{Service: f.service("acme/crm@check"), Entity: "e"}}
		_, err := f.a.SwapCheckRows(t.Context(), []store.CheckRow{r, {Key: store.Key{Service: r.Service, Entity: "d"}}, r})
		require.Error(t, err)
		assert.Equal(t, store.Fatal, store.ClassOf(err))
		assert.False(t, f.checkRow(f.a, r.Key).Found)
	}},
	{"what no database can hold is poison", func(t *testing.T, f *operatorFixture) {
		service := f.service("acme/crm@check")
		for _, entity := range []string{"a\x00b", "\xff"} {
			k := store.Key{Service: service, Entity: entity}
			_, err := f.a.SwapCheckRows(t.Context(), []store.CheckRow{{Key: store.Key{Service: service, Entity: "good"}}, {Key: k}})
			require.Error(t, err)
			assert.Equal(t, store.Poison, store.ClassOf(err), "%v", err)
			_, err = f.a.CheckRows(t.Context(), []store.Key{k})
			require.Error(t, err)
			assert.Equal(t, store.Poison, store.ClassOf(err), "%v", err)
		}
		assert.False(t, f.checkRow(f.a, store.Key{Service: service, Entity: "good"}).Found)
	}},
	{"I3 of concurrent swaps from one revision exactly one succeeds", func(t *testing.T, f *operatorFixture) {
		service := f.service("acme/crm@check")
		const callers, rounds, entities = 8, 10, 5
		for round := range rounds {
			var won [entities]atomic.Int32
			var all sync.WaitGroup
			for n := range callers {
				s := []Operated{f.a, f.b}[n%2]
				all.Go(func() {
					var rows []store.CheckRow
					for e := range entities {
						rows = append(rows, store.CheckRow{Key: store.Key{Service: service, Entity: fmt.Sprint(e)}, Revision: int64(round),
							Content: content(fmt.Sprint(n)), Version: change.Version(round)})
					}
					swapped, err := s.SwapCheckRows(f.ctx(), rows)
					if !assert.NoError(t, err) {
						return
					}
					for e, is := range swapped {
						if is {
							won[e].Add(1)
						}
					}
				})
			}
			all.Wait()
			for e := range entities {
				require.EqualValues(t, 1, won[e].Load(), "entity %d in round %d", e, round)
				require.EqualValues(t, round+1, f.checkRow(f.a, store.Key{Service: service, Entity: fmt.Sprint(e)}).Revision)
			}
		}
	}},
	{"crossing swaps finish, inserts and updates mixed", func(t *testing.T, f *operatorFixture) {
		service := f.service("acme/crm@check")
		const callers, rounds, entities = 6, 12, 60
		var wins atomic.Int64
		var all sync.WaitGroup
		for n := range callers {
			s := []Operated{f.a, f.b}[n%2]
			all.Go(func() {
				random := rand.New(rand.NewPCG(3, uint64(n)))
				for range rounds {
					var keys []store.Key
					// The entities of later rounds do not exist yet: some insert what others update.
					for _, e := range random.Perm(entities)[:entities/2] {
						keys = append(keys, store.Key{Service: service, Entity: strings.Repeat("x", e%3) + fmt.Sprint(e)})
					}
					rows, err := s.CheckRows(f.ctx(), keys)
					if !assert.NoError(t, err) {
						return
					}
					swapped, err := s.SwapCheckRows(f.ctx(), rows)
					if !assert.NoError(t, err) {
						return
					}
					for _, is := range swapped {
						if is {
							wins.Add(1)
						}
					}
				}
			})
		}
		all.Wait()
		var revisions int64
		for e := range entities {
			revisions += f.checkRow(f.b, store.Key{Service: service, Entity: strings.Repeat("x", e%3) + fmt.Sprint(e)}).Revision
		}
		assert.Equal(t, wins.Load(), revisions, "each success is one revision")
	}},
}
