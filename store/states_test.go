package store_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/store/storetest"
)

// States are a map from service to state, set in any order, and earlier
// copies, such as an owner's cache, stay unchanged. A store that writes the
// changed pages over its own has the same.
func TestStatesAreAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want, stored := map[int32]store.Row{}, store.States{}
		for range rapid.IntRange(1, 4).Draw(t, "decisions") {
			states, before := stored, slices.Clone(stored.All("e"))
			require.False(t, states.Get(rapid.Int32Range(-100, -1).Draw(t, "not a stored service")).Found)
			for range rapid.IntRange(0, 30).Draw(t, "sets") {
				r := store.Row{Key: store.Key{Service: rapid.Int32Range(0, 100).Draw(t, "service"), Entity: "e"}, Found: true, Version: change.Version(rapid.Uint64().Draw(t, "version"))}
				r.Entered = change.Entered(rapid.Uint32Range(0, uint32(change.MaxEntered)).Draw(t, "entered"))
				switch n := rapid.IntRange(-1, 33).Draw(t, "content"); n {
				case -1:
				case 0:
					r.Content = change.Retracted()
				default:
					r.Content = change.Hashed(1, [32]byte{byte(n), 31: byte(n)})
				}
				r.Refused = r.Content != nil && rapid.Bool().Draw(t, "refused")
				if has := states.Get(r.Service); has.Found && rapid.Bool().Draw(t, "content stays") {
					r.Content, r.Refused = has.Content, has.Refused // which stands in the page
					want[r.Service] = store.Row{Key: r.Key, Found: true, Content: slices.Clone(r.Content), Refused: r.Refused, Version: r.Version, Entered: r.Entered}
				} else {
					want[r.Service] = r
				}
				states.Set(r)
			}
			require.Equal(t, before, stored.All("e"))
			pages := map[int32][]byte{}
			for _, r := range stored.All("e") {
				pages[store.PageOf(r.Service)] = nil
			}
			again := store.States{}
			for _, p := range states.Changed() {
				pages[p.Number] = p.Body
				require.NoError(t, again.Add(p.Number, p.Body))
			}
			for _, r := range stored.All("e") {
				if pages[store.PageOf(r.Service)] == nil {
					again.Set(r)
				}
			}
			require.Equal(t, states.All("e"), again.All("e"))
			stored = states.Stored()
			require.False(t, stored.AnyChanged())
			require.Empty(t, stored.Changed())
		}
		for n := range int32(101) {
			r, found := want[n]
			if !found {
				r = store.Row{Key: store.Key{Service: n, Entity: "e"}}
			}
			got := stored.Get(n)
			got.Entity = "e"
			require.Equal(t, r, got)
		}
		all := stored.All("e")
		require.Len(t, all, len(want))
		for i, n := range slices.Sorted(maps.Keys(want)) {
			require.Equal(t, n, all[i].Service)
		}
	})
}

// The states of a new entity do not grow by one copy of their page each.
func TestNewStatesShareTheirGrowth(t *testing.T) {
	content := make(change.Content, 33)
	made := testing.AllocsPerRun(10, func() {
		var s store.States
		for n := range int32(store.PageServices) {
			s.Set(store.Row{Key: store.Key{Service: n}, Content: content})
		}
	})
	require.Less(t, made, float64(store.PageServices)/2)
}

func TestABrokenPageIsNotRead(t *testing.T) {
	whole := storetest.StatesOf(store.Row{Key: store.Key{Service: 3}, Content: change.Retracted()}, store.Row{Key: store.Key{Service: 4}})
	page := whole.Changed()[0].Body
	var s store.States
	require.NoError(t, s.Add(0, nil))
	for name, body := range map[string][]byte{
		"cut off": page[:len(page)-1], "in another order": append(slices.Clone(page[len(page)/2:]), page[:len(page)/2]...),
		"twice": append(slices.Clone(page), page...), "no such kind": append([]byte{3 | 96}, page[1:]...),
	} {
		err := s.Add(0, body)
		require.Error(t, err, name)
		require.Equal(t, store.Fatal, store.ClassOf(err), name)
	}
	require.NoError(t, s.Add(0, page))
	require.Error(t, s.Add(0, page), "a page twice")
}

// A scan reads on until it has enough, also over entities of which it wants nothing,
// and never splits one.
func TestScanGoesOn(t *testing.T) {
	var all []store.Entity
	for i := range 3500 {
		e := store.Entity{ID: fmt.Sprintf("%04d", i)}
		for n := range int32(2) {
			e.States.Set(store.Row{Key: store.Key{Service: n}, Version: change.Version(i % 700)})
		}
		all = append(all, e)
	}
	read := func(after string, n int) ([]store.Entity, error) {
		at, _ := slices.BinarySearchFunc(all, after+"\x00", func(e store.Entity, id string) int { return cmp.Compare(e.ID, id) })
		return all[at:min(at+n, len(all))], nil
	}
	for _, limit := range []int{0, 1, 2, 3, 100} {
		var got []string
		for after := ""; ; {
			rows, err := store.Scan(after, limit, func(r store.Row) bool { return r.Version == 699 }, read)
			require.NoError(t, err)
			for i := 0; i < len(rows); i += 2 {
				require.Equal(t, rows[i].Entity, rows[i+1].Entity)
				got = append(got, rows[i].Entity)
			}
			if len(rows) < 2*limit || limit == 0 {
				break
			}
			after = rows[len(rows)-1].Entity
		}
		if limit == 0 {
			require.Empty(t, got)
			continue
		}
		require.Equal(t, []string{"0699", "1399", "2099", "2799", "3499"}, got, limit)
	}
}
