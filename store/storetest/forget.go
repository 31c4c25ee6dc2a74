package storetest

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/store"
)

var forgetTests = []operatorTest{
	{"I7 a forgotten service leaves nothing, and its number is never used again", func(t *testing.T, f *operatorFixture) {
		revision := f.revision()
		_, token := f.own(f.a, 'a', p0)
		first, last := f.many()
		numbers, err := f.a.KnownServices(t.Context())
		require.NoError(t, err)
		names := map[int32]string{}
		for name, n := range numbers {
			names[n] = name
		}
		row := func(n int32, entity string) store.Row {
			return store.Row{Key: store.Key{Service: n, Entity: entity}, Content: content("A"), Version: version(1)}
		}
		kept := []store.Row{row(first, "e"), row(last-1, "e"), row(first, "kept")}
		gone := []store.Row{row(first+1, "e"), row(last, "e"), row(last, "last"), row(first+1, "only")}
		require.NoError(t, f.decideStates(f.a, revision, 0, token, append(gone, kept...)...))
		letter := func(n int32) store.DeadLetter {
			return store.DeadLetter{Stage: store.StageDeliver, Service: names[n], Entity: "e", DedupKey: "deliver/" + names[n]}
		}
		require.NoError(t, f.a.AddLetters(t.Context(), []store.DeadLetter{letter(first), letter(last)}))
		require.NoError(t, f.a.AddAttempts(t.Context(), append(attempts(first, "e", 1), attempts(last, "e", 2)...)))
		_, err = f.a.SwapCheckRows(t.Context(), []store.CheckRow{{Key: store.Key{Service: last, Entity: "e"}, Content: content("A"), Version: 1}, {Key: store.Key{Service: first, Entity: "e"}, Content: content("A"), Version: 1}})
		require.NoError(t, err)
		_, old := f.take(f.a, 'o', 0)
		mine := store.Token{'m'}
		marked := at(last, version(0), 0)
		marked.Mark = "mark"
		require.True(t, f.swap(f.a, revision, to(0, old, mine, at(first, version(1), 5), marked)))

		forgotten := map[string]int32{names[last]: last, names[first+1]: first + 1}
		for range 2 { // a repetition does no harm
			require.NoError(t, f.b.ForgetServices(t.Context(), forgotten, someAudit))
		}
		known, err := f.a.KnownServices(t.Context())
		require.NoError(t, err)
		assert.Len(t, known, len(numbers)-2)
		letters := f.list(store.LetterFilter{})
		require.Len(t, letters, 1)
		assert.Equal(t, names[first], letters[0].Service)
		assert.Len(t, f.attempts(store.AttemptFilter{Limit: 9}), 1)
		assert.False(t, f.checkRow(f.a, store.Key{Service: last, Entity: "e"}).Found)
		assert.True(t, f.checkRow(f.a, store.Key{Service: first, Entity: "e"}).Found)
		assert.Equal(t, []store.ServicePosition{at(first, version(1), 5)}, f.progress(f.b)[0].Positions)
		assert.False(t, f.swap(f.a, revision, to(0, mine, store.Token{'n'}, at(first, version(1), 5), marked)), "its owner takes it over again")
		assert.Len(t, f.audits(), 2)

		var dropped int64
		after, pages := "", 0
		for more := true; more; pages++ {
			next, n, err := f.b.ForgetStates(t.Context(), []int32{last, first + 1}, after, 2)
			require.NoError(t, err)
			dropped, after, more = dropped+n, next, next != ""
		}
		assert.EqualValues(t, len(gone), dropped)
		assert.Equal(t, 3, pages, "of four entities")
		for _, r := range kept {
			assert.Equal(t, r.Content, f.row(f.a, r.Key).Content)
		}
		for _, r := range gone {
			assert.False(t, f.row(f.a, r.Key).Found)
		}
		again, err := f.a.Services(t.Context(), []string{names[last]})
		require.NoError(t, err)
		assert.Greater(t, again[names[last]], last)
		e, err := f.a.Entity(t.Context(), "e")
		require.NoError(t, err)
		assert.Len(t, e.States.All("e"), 2)
		require.NoError(t, f.decideStates(f.a, revision, 1, token, row(first, "only")), "the owner goes on")
	}},
}
