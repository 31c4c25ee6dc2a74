package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/store"
)

// attempts makes n attempts of a service, a second apart, at the end of the past minute.
func attempts(service int32, entity string, n int) []store.Attempt {
	all := make([]store.Attempt, n)
	start := time.Now().UTC().Truncate(time.Second).Add(-time.Minute)
	for i := range all {
		all[i] = store.Attempt{
			Service: service, Entity: entity, At: start.Add(time.Duration(i) * time.Second / 10), Version: version(int64(i)),
			Outcome: "retried", Status: 500 + i, Answer: []byte("answer \x00\xff " + fmt.Sprint(i)), Took: time.Duration(i) * time.Millisecond,
		}
	}
	return all
}

func (f *operatorFixture) attempts(filter store.AttemptFilter) []store.Attempt {
	f.Helper()
	found, err := f.b.ListAttempts(f.ctx(), filter)
	require.NoError(f, err)
	for i := range found {
		found[i].Answer = append([]byte{}, found[i].Answer...) // an empty one may be nil
	}
	return found
}

var week = store.AttemptBound{Keep: 7 * 24 * time.Hour, Max: 1 << 30}

var attemptTests = []operatorTest{
	{"attempts come back as they were, the newest first, by service, entity and time", func(t *testing.T, f *operatorFixture) {
		one, two := f.service("one"), f.service("two")
		require.NoError(t, f.a.AddAttempts(t.Context(), nil))
		first, second, other := attempts(one, "B-007", 3), attempts(two, "B-007", 1), attempts(one, "ё", 2)
		second[0].Answer, second[0].Status = []byte{}, 0
		second[0].At = first[2].At.Add(time.Millisecond)
		other[0].At, other[1].At = other[0].At.Add(-time.Hour), other[1].At.Add(time.Hour)
		require.NoError(t, f.a.AddAttempts(t.Context(), append(other[:1:1], first...)))
		require.NoError(t, f.b.AddAttempts(t.Context(), append(second, other[1])))
		for name, c := range map[string]struct {
			filter store.AttemptFilter
			want   []store.Attempt
		}{
			"all":              {store.AttemptFilter{}, []store.Attempt{other[1], second[0], first[2], first[1], first[0], other[0]}},
			"an entity":        {store.AttemptFilter{Entity: "B-007"}, []store.Attempt{second[0], first[2], first[1], first[0]}},
			"of a service":     {store.AttemptFilter{Entity: "B-007", Service: two}, second},
			"a service":        {store.AttemptFilter{Service: one}, []store.Attempt{other[1], first[2], first[1], first[0], other[0]}},
			"the newest three": {store.AttemptFilter{Limit: 3}, []store.Attempt{other[1], second[0], first[2]}},
			"since":            {store.AttemptFilter{Since: first[2].At}, []store.Attempt{other[1], second[0], first[2]}},
			"until":            {store.AttemptFilter{Until: first[1].At}, []store.Attempt{first[0], other[0]}},
			"of a time":        {store.AttemptFilter{Entity: "B-007", Since: first[1].At, Until: second[0].At}, []store.Attempt{first[2], first[1]}},
			"the newest":       {store.AttemptFilter{Limit: 1}, other[1:]},
			"of nobody":        {store.AttemptFilter{Entity: "b-007"}, []store.Attempt{}},
			"the newest of":    {store.AttemptFilter{Entity: "B-007", Service: one, Limit: 1}, first[2:]},
		} {
			found := f.attempts(c.filter)
			if found == nil {
				found = []store.Attempt{}
			}
			assert.Equal(t, c.want, found, name)
		}
	}},
	{"I7 attempts stay within the bounds of their service, the newest longest", func(t *testing.T, f *operatorFixture) {
		bounded, off, free, gone := f.service("bounded"), f.service("off"), f.service("free"), f.service("of no configuration")
		bounds := map[int32]store.AttemptBound{bounded: week, off: week, free: week}
		for _, s := range []int32{bounded, off, free, gone} {
			require.NoError(t, f.a.AddAttempts(t.Context(), attempts(s, "e", 20)))
		}
		n, err := f.a.RetainAttempts(t.Context(), bounds, week)
		require.NoError(t, err)
		assert.Zero(t, n)
		assert.Len(t, f.attempts(store.AttemptFilter{}), 80)

		each := attempts(bounded, "e", 20)
		bounds[bounded], bounds[off] = store.AttemptBound{Keep: time.Hour, Max: 10}, store.AttemptBound{}
		n, err = f.b.RetainAttempts(t.Context(), bounds, store.AttemptBound{})
		require.NoError(t, err)
		kept := f.attempts(store.AttemptFilter{Service: bounded})
		assert.Equal(t, int64(60-len(kept)), n)
		require.Len(t, kept, 10)
		assert.Equal(t, each[19].Version, kept[0].Version)
		assert.Equal(t, each[10].Version, kept[9].Version)
		assert.Empty(t, f.attempts(store.AttemptFilter{Service: off}))
		assert.Empty(t, f.attempts(store.AttemptFilter{Service: gone}))
		assert.Len(t, f.attempts(store.AttemptFilter{Service: free}), 20)

		n, err = f.a.RetainAttempts(t.Context(), bounds, store.AttemptBound{})
		require.NoError(t, err)
		assert.Zero(t, n, "what is within its bounds stays")
		require.NoError(t, f.a.AddAttempts(t.Context(), attempts(off, "again", 2)))
		assert.Len(t, f.attempts(store.AttemptFilter{Entity: "again"}), 2)
	}},
	{"I7 expired attempts are deleted page by page, those of other services stay", func(t *testing.T, f *operatorFixture) {
		short, long := f.service("short"), f.service("long")
		const n = 2345 // more than a page
		at := time.Now().Add(-48 * time.Hour).Truncate(time.Microsecond)
		for _, s := range []int32{short, long} {
			old := attempts(s, "old", n)
			for i := range old {
				old[i].At = at.Add(time.Duration(i/10) * time.Millisecond) // many at one time
			}
			require.NoError(t, f.a.AddAttempts(t.Context(), append(old, attempts(s, "new", 2)...)))
		}
		removed, err := f.a.RetainAttempts(t.Context(), map[int32]store.AttemptBound{short: {Keep: 24 * time.Hour, Max: 10 * n}, long: week}, week)
		require.NoError(t, err)
		assert.EqualValues(t, n, removed)
		assert.Len(t, f.attempts(store.AttemptFilter{Service: short, Limit: 10 * n}), 2)
		assert.Len(t, f.attempts(store.AttemptFilter{Service: long, Limit: 10 * n}), n+2)
		assert.Len(t, f.attempts(store.AttemptFilter{Service: long, Entity: "old", Since: at.Add(time.Millisecond), Limit: 10 * n}), n-10)
	}},
}
