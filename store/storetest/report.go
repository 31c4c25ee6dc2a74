package storetest

import (
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/store"
)

var reportTests = []operatorTest{
	{"dam rows of one service page by the bytes of their entities", func(t *testing.T, f *operatorFixture) {
		one, other := f.many()
		ids := []string{"A", "B", "Z", "a", "a/1", "b", "é", "\U0001F34C"} // no locale may reorder them
		f.fill(other, version(3), "A", "AA", "zz")
		f.fill(one, version(7), ids...)
		f.set(nil, version(8), store.Key{Service: one, Entity: ids[3]})
		refused := f.row(f.a, store.Key{Service: one, Entity: "b"})
		refused.Refused = true
		f.put(refused)
		require.Equal(t, refused, f.row(f.b, refused.Key))
		var got []string
		for after := ""; ; after = got[len(got)-1] {
			page, err := f.b.ServiceRows(t.Context(), one, after, 3)
			require.NoError(t, err)
			for _, r := range page {
				assert.Equal(t, f.row(f.a, r.Key), r)
				got = append(got, r.Entity)
			}
			if len(page) < 3 {
				break
			}
		}
		assert.Equal(t, ids, got)
		page, err := f.b.ServiceRows(t.Context(), one, "", 0)
		require.NoError(t, err)
		assert.Empty(t, page)
	}},
	{"a report is what its last writer made of the one before", func(t *testing.T, f *operatorFixture) {
		update := func(s Operated, name, want, body string) {
			t.Helper()
			require.NoError(t, s.UpdateReport(t.Context(), "noise", name, func(old []byte) ([]byte, error) {
				assert.Equal(t, want, string(old))
				return []byte(body), nil
			}))
		}
		update(f.a, "b", "", "1")
		update(f.b, "b", "1", "12")
		update(f.a, "a", "", "x")
		require.NoError(t, f.a.UpdateReport(t.Context(), "another", "b", func(old []byte) ([]byte, error) {
			assert.Nil(t, old)
			return nil, nil
		}))
		wrong := errors.New("not readable")
		require.ErrorIs(t, f.b.UpdateReport(t.Context(), "noise", "b", func([]byte) ([]byte, error) { return []byte("lost"), wrong }), wrong)
		require.Error(t, f.a.UpdateReport(t.Context(), "noise", "", nil))
		got, err := f.b.ListReports(t.Context(), "noise")
		require.NoError(t, err)
		require.Len(t, got, 2)
		assert.Equal(t, []string{"a", "b"}, []string{got[0].Name, got[1].Name})
		assert.Equal(t, "12", string(got[1].Body))
		assert.WithinDuration(t, time.Now(), got[1].Updated, time.Minute)
	}},
	{"of writers at the same time none is lost", func(t *testing.T, f *operatorFixture) {
		var writers sync.WaitGroup
		for i := range 6 {
			s := turn(i, f.a, f.b)
			writers.Go(func() {
				for range 5 {
					assert.NoError(t, s.UpdateReport(t.Context(), "noise", "n", func(old []byte) ([]byte, error) {
						var n int
						if old != nil {
							if err := json.Unmarshal(old, &n); err != nil {
								return nil, err
							}
						}
						return json.Marshal(n + 1)
					}))
				}
			})
		}
		writers.Wait()
		got, err := f.a.ListReports(t.Context(), "noise")
		require.NoError(t, err)
		require.Len(t, got, 1)
		assert.Equal(t, "30", string(got[0].Body))
	}},
	{"I7 old reports of a kind are pruned", func(t *testing.T, f *operatorFixture) {
		for _, id := range []string{"noise/a", "noise/b", "other/a"} {
			kind, name, _ := strings.Cut(id, "/")
			require.NoError(t, f.a.UpdateReport(t.Context(), kind, name, func([]byte) ([]byte, error) { return []byte("x"), nil }))
		}
		n, err := f.b.PruneReports(t.Context(), "noise", time.Now().Add(-time.Hour))
		require.NoError(t, err)
		assert.Zero(t, n)
		n, err = f.b.PruneReports(t.Context(), "noise", time.Now().Add(time.Hour))
		require.NoError(t, err)
		assert.Equal(t, 2, n)
		left, err := f.a.ListReports(t.Context(), "other")
		require.NoError(t, err)
		assert.Len(t, left, 1)
	}},
}
