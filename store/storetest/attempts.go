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

var week = store.AttemptBound{Keep: 7 * 24 * time.Hour, MaxBytes: 1 << 30}

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
			"all":           {store.AttemptFilter{}, []store.Attempt{other[1], second[0], first[2], first[1], first[0], other[0]}},
			"an entity":     {store.AttemptFilter{Entity: "B-007"}, []store.Attempt{second[0], first[2], first[1], first[0]}},
			"of a service":  {store.AttemptFilter{Entity: "B-007", Services: []int32{two}}, second},
			"a service":     {store.AttemptFilter{Services: []int32{one}}, []store.Attempt{other[1], first[2], first[1], first[0], other[0]}},
			"two services":  {store.AttemptFilter{Services: []int32{two, one}, Limit: 3}, []store.Attempt{other[1], second[0], first[2]}},
			"no service":    {store.AttemptFilter{Services: []int32{}}, []store.Attempt{}},
			"since":         {store.AttemptFilter{Since: first[2].At}, []store.Attempt{other[1], second[0], first[2]}},
			"until":         {store.AttemptFilter{Until: first[1].At}, []store.Attempt{first[0], other[0]}},
			"of a time":     {store.AttemptFilter{Entity: "B-007", Since: first[1].At, Until: second[0].At}, []store.Attempt{first[2], first[1]}},
			"the newest":    {store.AttemptFilter{Limit: 1}, other[1:]},
			"of nobody":     {store.AttemptFilter{Entity: "b-007"}, []store.Attempt{}},
			"the newest of": {store.AttemptFilter{Entity: "B-007", Services: []int32{one}, Limit: 1}, first[2:]},
		} {
			found := f.attempts(c.filter)
			if found == nil {
				found = []store.Attempt{}
			}
			assert.Equal(t, c.want, found, name)
		}
	}},
	{"attempts that cannot be held are refused, all or none", func(t *testing.T, f *operatorFixture) {
		s := f.service("s")
		err := f.a.AddAttempts(t.Context(), append(attempts(s, "good", 1), attempts(s, "a\x00b", 1)...))
		require.Equal(t, store.Poison, store.ClassOf(err), "%v", err)
		assert.Empty(t, f.attempts(store.AttemptFilter{}))
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
		size := each[19].Size()
		bounds[bounded], bounds[off] = store.AttemptBound{Keep: time.Hour, MaxBytes: 10 * size}, store.AttemptBound{}
		n, err = f.b.RetainAttempts(t.Context(), bounds, store.AttemptBound{})
		require.NoError(t, err)
		kept := f.attempts(store.AttemptFilter{Services: []int32{bounded}})
		assert.Equal(t, int64(60-len(kept)), n)
		assert.InDelta(t, 9, len(kept), 1, "a tenth below the bound")
		assert.Equal(t, each[19].Version, kept[0].Version)
		assert.Equal(t, each[20-len(kept)].Version, kept[len(kept)-1].Version)
		assert.Empty(t, f.attempts(store.AttemptFilter{Services: []int32{off, gone}}))
		assert.Len(t, f.attempts(store.AttemptFilter{Services: []int32{free}}), 20)

		n, err = f.a.RetainAttempts(t.Context(), bounds, store.AttemptBound{})
		require.NoError(t, err)
		assert.Zero(t, n, "what is within its bounds stays")
		require.NoError(t, f.a.AddAttempts(t.Context(), attempts(off, "again", 2)))
		assert.Len(t, f.attempts(store.AttemptFilter{Entity: "again"}), 2)
	}},
	{"attempts of a purged entity go with it, as a part of the decision", func(t *testing.T, f *operatorFixture) {
		s := f.service("s")
		_, token := f.own(f.a, 'a', p0)
		require.NoError(t, f.a.AddAttempts(t.Context(), append(attempts(s, "gone", 3), attempts(s, "stays", 2)...)))
		decision := store.Decision{Revision: f.revision(), Moves: []store.WatermarkStep{{Partition: p0, From: 1, To: 5, Token: token}}}
		_, err := f.b.Decide(t.Context(), decision, writes(store.Outcome{Purged: []string{"gone"}}))
		require.ErrorIs(t, err, store.ErrFenced)
		assert.Len(t, f.attempts(store.AttemptFilter{}), 5)
		decision.Moves[0].From = 0
		_, err = f.b.Decide(t.Context(), decision, writes(store.Outcome{Purged: []string{"gone"}}))
		require.NoError(t, err)
		assert.Len(t, f.attempts(store.AttemptFilter{Entity: "stays"}), 2)
		assert.Empty(t, f.attempts(store.AttemptFilter{Entity: "gone"}))
		again := attempts(s, "gone", 1)
		again[0].At = time.Now().Add(time.Second)
		require.NoError(t, f.a.AddAttempts(t.Context(), again))
		for range 2 {
			_, err = f.a.RetainAttempts(t.Context(), nil, week)
			require.NoError(t, err)
			assert.Len(t, f.attempts(store.AttemptFilter{Entity: "gone"}), 1, "it may be made again")
			assert.Len(t, f.attempts(store.AttemptFilter{}), 3)
		}
		_, err = f.a.RetainAttempts(t.Context(), nil, store.AttemptBound{})
		require.NoError(t, err)
		assert.Empty(t, f.attempts(store.AttemptFilter{}))
	}},
}
