package storetest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/store"
)

// letters returns five dead letters that differ in all that a filter knows.
func letters() []store.DeadLetter {
	return []store.DeadLetter{
		{Stage: store.StageIngest, Code: "bad_json", Source: "lab", EventID: "1", Topic: "t-1", Part: 3, Offset: 77, Payload: []byte("{"), Headers: []byte(`{"h":"1"}`), DedupKey: "ingest/lab/t-1/3/77", Reason: "cut off"},
		{Stage: store.StageIngest, Code: "oversized", Source: "registry", DedupKey: "ingest/registry/2"},
		{Stage: store.StageDecide, Code: "bad_json", Source: "lab", Entity: "e-1", Version: version(4), DedupKey: "decide/1/0/4"},
		{Stage: store.StageDeliver, Code: "refused", Service: "a/p@s", Entity: "e-1", Version: version(5), DedupKey: "deliver/a/5"},
		{Stage: store.StageDeliver, Code: "refused", Service: "b/p@s", Entity: "e-2", Version: version(6), DedupKey: "deliver/b/6"},
	}
}

func (f *fixture) list(filter store.LetterFilter) []store.DeadLetter {
	f.Helper()
	got, err := f.b.ListLetters(f.ctx(), filter)
	require.NoError(f, err)
	return got
}

// settle lets a decision set the state of an open letter.
func (f *fixture) settle(revision, id int64, state store.LetterState) {
	f.Helper()
	err := f.a.Decide(f.ctx(), store.Decision{Revision: revision}, writes(store.Outcome{Settled: []store.LetterResolution{{ID: id, State: state}}}))
	require.NoError(f, err)
}

var letterTests = []test{
	{"I9 only swaps touch retrying rows; lists show them, counts do not", func(t *testing.T, f *fixture) {
		revision := f.revision()
		_, token := f.take(f.a, 'a', 0)
		row := retryingRow("a/p@s", 0, 4, "e-1")
		require.True(t, f.retry(revision, token, store.Token{'b'}, store.ProgressSwap{Progress: store.Progress{Retrying: []store.DeadLetter{row}}}))
		before := f.list(store.LetterFilter{State: store.LetterRetrying})
		require.Len(t, before, 1)
		assert.Equal(t, listed(before[0], row, true), before[0])
		f.settle(revision, before[0].ID, store.LetterReplayed)
		_, err := f.a.Prune(t.Context(), time.Now().Add(time.Hour), time.Time{})
		require.NoError(t, err)
		assert.Equal(t, before, f.list(store.LetterFilter{}))
		counts, err := f.b.CountLetters(t.Context())
		require.NoError(t, err)
		assert.Empty(t, counts)
		due, err := f.b.DueLetters(t.Context(), []string{"a/p@s"}, 0, 9)
		require.NoError(t, err)
		assert.Empty(t, due)
		groups, err := f.b.GroupLetters(t.Context(), store.LetterFilter{State: store.LetterRetrying}, 9)
		require.NoError(t, err)
		require.Len(t, groups, 1)
	}},
	{"I9 a letter comes back as it went in", func(t *testing.T, f *fixture) {
		require.NoError(t, f.a.AddLetters(t.Context(), nil))
		require.NoError(t, f.a.AddLetters(t.Context(), letters()[:1]))
		listed := f.list(store.LetterFilter{})
		require.Len(t, listed, 1)
		assert.Nil(t, listed[0].Payload, "a list carries no payloads")
		got, err := f.b.Letter(t.Context(), listed[0].ID)
		require.NoError(t, err)
		assert.WithinDuration(t, time.Now(), got.Created, time.Minute)
		want := letters()[0]
		want.ID, want.Created, want.Last, want.Count, want.State = listed[0].ID, got.Created, got.Created, 1, store.LetterOpen
		want.Size = int64(len(want.Payload))
		assert.Equal(t, want, got)
		_, err = f.b.Letter(t.Context(), listed[0].ID+1)
		require.ErrorIs(t, err, store.ErrNotFound)
	}},
	{"a letter is due after a wait that doubles with every death", func(t *testing.T, f *fixture) {
		letter := func(service, key string, position int64, later time.Duration) store.DeadLetter {
			return store.DeadLetter{Stage: store.StageDeliver, Code: "gave_up", Service: service, Entity: "e", DedupKey: key, Position: version(position), Later: later, Payload: []byte("p")}
		}
		die := func(letters ...store.DeadLetter) { require.NoError(t, f.a.AddLetters(t.Context(), letters)) }
		due := func(after int64, limit int, services ...string) (keys []string, last int64) {
			page, err := f.b.DueLetters(t.Context(), services, after, limit)
			require.NoError(t, err)
			for _, l := range page {
				keys, last = append(keys, l.DedupKey), l.ID
				assert.Nil(t, l.Payload)
				assert.Equal(t, store.LetterOpen, l.State)
			}
			return keys, last
		}
		const soon = time.Microsecond
		die(letter("a", "never", 1, 0), letter("a", "hour", 1, time.Hour), letter("a", "1", 1, soon), letter("a", "2", 1, soon), letter("b", "3", 1, soon), letter("c", "4", 1, soon))
		all := func() (keys []string) { keys, _ = due(0, 100, "a", "b", "none"); return keys }
		require.Eventually(t, func() bool { return len(all()) == 3 }, time.Minute, time.Millisecond)
		assert.Equal(t, []string{"1", "2", "3"}, all())
		page, last := due(0, 2, "a", "b")
		assert.Equal(t, []string{"1", "2"}, page)
		page, _ = due(last, 2, "a", "b")
		assert.Equal(t, []string{"3"}, page)
		none, _ := due(0, 9)
		assert.Empty(t, none)

		die(letter("a", "1", 1, time.Hour))
		assert.Len(t, all(), 3, "it did not die again")
		die(letter("a", "1", 2, time.Hour), letter("b", "3", 2, 0))
		assert.Equal(t, []string{"2"}, all())
		for position := range int64(30) {
			die(letter("a", "2", 2+position, 20*soon))
		}
		assert.Empty(t, all(), "the wait of 20 microseconds has doubled thirty times")
		require.NoError(t, f.a.AddLetters(t.Context(), []store.DeadLetter{letter("a", "5", 1, soon)}))
		require.Eventually(t, func() bool { return len(all()) == 1 }, time.Minute, time.Millisecond)
		f.settle(f.revision(), f.list(store.LetterFilter{Service: "a"})[4].ID, store.LetterReplayed)
		assert.Empty(t, all(), "only open ones")
	}},
	{"I9 the same letter again is a no-op, also after it was replayed", func(t *testing.T, f *fixture) {
		revision := f.revision()
		require.NoError(t, f.a.AddLetters(t.Context(), append(letters(), letters()...)))
		all := f.list(store.LetterFilter{})
		require.Len(t, all, 5)
		f.settle(revision, all[0].ID, store.LetterReplayed)
		require.NoError(t, f.b.AddLetters(t.Context(), letters()))
		err := f.a.Decide(t.Context(), store.Decision{Revision: revision}, writes(store.Outcome{Letters: letters()}))
		require.NoError(t, err)
		all = f.list(store.LetterFilter{})
		require.Len(t, all, 5)
		assert.Equal(t, store.LetterReplayed, all[0].State)
		var callers sync.WaitGroup
		for range 4 {
			callers.Go(func() {
				assert.NoError(t, f.a.AddLetters(t.Context(), []store.DeadLetter{{Stage: store.StageIngest, DedupKey: "at the same time"}}))
			})
		}
		callers.Wait()
		assert.Len(t, f.list(store.LetterFilter{}), 6)
	}},
	{"I9 a delivery that died again is the same letter, open and counted", func(t *testing.T, f *fixture) {
		revision := f.revision()
		died := func(at int64, code string) store.DeadLetter {
			return store.DeadLetter{Stage: store.StageDeliver, Code: code, Reason: code + "!", Service: "a/p@s", Entity: "e", Version: version(at),
				Payload: []byte(fmt.Sprint(at)), Headers: []byte(fmt.Sprintf(`{"at":%d}`, at)), DedupKey: "deliver/a/e/A", Position: version(at)}
		}
		require.NoError(t, f.a.AddLetters(t.Context(), []store.DeadLetter{died(5, "gave_up")}))
		first := f.list(store.LetterFilter{})[0]
		require.NoError(t, f.b.AddLetters(t.Context(), []store.DeadLetter{died(5, "refused"), died(4, "refused")}))
		require.Equal(t, []store.DeadLetter{first}, f.list(store.LetterFilter{}), "a repeated write, and an older one")
		for i, state := range []store.LetterState{store.LetterOpen, store.LetterReplayed, store.LetterDiscarded, store.LetterObsolete} {
			if state != store.LetterOpen {
				f.settle(revision, first.ID, state)
				require.Equal(t, state, f.list(store.LetterFilter{})[0].State)
			}
			at := int64(6 + i)
			require.NoError(t, f.a.AddLetters(t.Context(), []store.DeadLetter{died(at, "refused")}))
			got, err := f.b.Letter(t.Context(), first.ID)
			require.NoError(t, err)
			want := died(at, "refused")
			want.ID, want.Created, want.Last, want.Count, want.State = first.ID, first.Created, got.Last, int64(i+2), store.LetterOpen
			want.Size = int64(len(want.Payload))
			assert.Equal(t, want, got)
			assert.False(t, got.Last.Before(first.Last))
		}
		// A replay of what died before does not settle what died since.
		err := f.a.Decide(t.Context(), store.Decision{Revision: revision}, writes(store.Outcome{Settled: []store.LetterResolution{{ID: first.ID, State: store.LetterObsolete, Version: version(8)}}}))
		require.NoError(t, err)
		assert.Equal(t, store.LetterOpen, f.list(store.LetterFilter{})[0].State)
		err = f.a.Decide(t.Context(), store.Decision{Revision: revision}, writes(store.Outcome{Settled: []store.LetterResolution{{ID: first.ID, State: store.LetterReplayed, Version: version(9)}}}))
		require.NoError(t, err)
		assert.Equal(t, store.LetterReplayed, f.list(store.LetterFilter{})[0].State)
	}},
	{"I9 a newer change closes the open letters of its entity and service", func(t *testing.T, f *fixture) {
		letter := func(service, entity string, v int64, stage store.Stage) store.DeadLetter {
			return store.DeadLetter{Stage: stage, Code: "refused", Service: service, Entity: entity, Version: version(v), DedupKey: fmt.Sprint(stage, service, entity, v), Position: version(v)}
		}
		require.NoError(t, f.a.AddLetters(t.Context(), []store.DeadLetter{
			letter("a/p@s", "e", 5, store.StageDeliver), letter("a/p@s", "e", 6, store.StageDeliver), letter("a/p@s", "e", 7, store.StageDeliver), letter("a/p@s", "e", 4, store.StageDecide),
			letter("b/p@s", "e", 5, store.StageDeliver), letter("a/p@s", "f", 5, store.StageDeliver),
		}))
		revision := f.revision()
		f.settle(revision, f.list(store.LetterFilter{})[1].ID, store.LetterDiscarded)
		err := f.a.Decide(t.Context(), store.Decision{Revision: revision}, writes(store.Outcome{Settled: []store.LetterResolution{{Stage: store.StageDeliver, Service: "a/p@s", Entity: "e", State: store.LetterObsolete, Version: version(7)}}}))
		require.NoError(t, err)
		states := func() (all []store.LetterState) {
			for _, l := range f.list(store.LetterFilter{}) {
				all = append(all, l.State)
			}
			return all
		}
		assert.Equal(t, []store.LetterState{store.LetterObsolete, store.LetterDiscarded, store.LetterOpen, store.LetterOpen, store.LetterOpen, store.LetterOpen}, states())
		err = f.a.Decide(t.Context(), store.Decision{Revision: revision}, writes(store.Outcome{Settled: []store.LetterResolution{{Stage: store.StageDecide, Service: "a/p@s", Entity: "e", State: store.LetterObsolete, Version: version(7)}}}))
		require.NoError(t, err)
		assert.Equal(t, []store.LetterState{store.LetterObsolete, store.LetterDiscarded, store.LetterOpen, store.LetterObsolete, store.LetterOpen, store.LetterOpen}, states())
	}},
	{"I9 an old letter stays as long as its content is refused", func(t *testing.T, f *fixture) {
		service := f.service("a/p@s")
		letter := func(entity string, v int64) store.DeadLetter {
			return store.DeadLetter{Stage: store.StageDeliver, Code: "refused", Service: "a/p@s", Entity: entity, Version: version(v), DedupKey: "deliver/" + entity, Position: version(v)}
		}
		require.NoError(t, f.a.AddLetters(t.Context(), []store.DeadLetter{letter("refused", 1), letter("passed", 2), letter("newer", 3), letter("none", 4)}))
		refused := func(entity string, v int64, is bool) store.Row {
			return store.Row{Key: store.Key{Service: service, Entity: entity}, Content: content("c"), Version: version(v), Refused: is}
		}
		f.put(refused("refused", 1, true), refused("passed", 2, false), refused("newer", 9, true))
		n, err := f.b.Prune(t.Context(), time.Now().Add(time.Hour), time.Time{})
		require.NoError(t, err)
		assert.Equal(t, 3, n)
		left := f.list(store.LetterFilter{})
		require.Len(t, left, 1)
		assert.Equal(t, "refused", left[0].Entity)
		f.settle(f.revision(), left[0].ID, store.LetterObsolete)
		n, err = f.b.Prune(t.Context(), time.Now().Add(time.Hour), time.Time{})
		require.NoError(t, err)
		assert.Equal(t, 1, n)
	}},
	{"filters and pages", func(t *testing.T, f *fixture) {
		require.NoError(t, f.a.AddLetters(t.Context(), letters()))
		all := f.list(store.LetterFilter{})
		f.settle(f.revision(), all[4].ID, store.LetterDiscarded)
		for _, c := range []struct {
			filter store.LetterFilter
			want   []int
		}{
			{store.LetterFilter{Stage: store.StageIngest}, []int{0, 1}},
			{store.LetterFilter{Source: "lab"}, []int{0, 2}},
			{store.LetterFilter{Service: "a/p@s"}, []int{3}},
			{store.LetterFilter{Entity: "e-1"}, []int{2, 3}},
			{store.LetterFilter{Code: "refused"}, []int{3, 4}},
			{store.LetterFilter{Code: "refused", State: store.LetterOpen}, []int{3}},
			{store.LetterFilter{State: store.LetterDiscarded}, []int{4}},
			{store.LetterFilter{Stage: store.StageDecide, Source: "registry"}, nil},
			{store.LetterFilter{Limit: 2}, []int{0, 1}},
			{store.LetterFilter{AfterID: all[1].ID, Limit: 2}, []int{2, 3}},
			{store.LetterFilter{AfterID: all[3].ID, Limit: 2}, []int{4}},
			{store.LetterFilter{NewestFirst: true}, []int{4, 3, 2, 1, 0}},
			{store.LetterFilter{NewestFirst: true, Limit: 2}, []int{4, 3}},
			{store.LetterFilter{NewestFirst: true, AfterID: all[3].ID, Limit: 2}, []int{2, 1}},
			{store.LetterFilter{NewestFirst: true, AfterID: all[1].ID, Limit: 2}, []int{0}},
			{store.LetterFilter{NewestFirst: true, AfterID: all[4].ID, Entity: "e-1"}, []int{3, 2}},
		} {
			var got, want []int64
			for _, l := range f.list(c.filter) {
				got = append(got, l.ID)
			}
			for _, i := range c.want {
				want = append(want, all[i].ID)
			}
			assert.Equal(t, want, got, "%+v", c.filter)
		}
		var many []store.DeadLetter
		for i := range 120 {
			many = append(many, store.DeadLetter{Stage: store.StageIngest, DedupKey: fmt.Sprint("many-", i)})
		}
		require.NoError(t, f.a.AddLetters(t.Context(), many))
		assert.Len(t, f.list(store.LetterFilter{}), 100, "the limit of a filter without one")
		counts, err := f.b.CountLetters(t.Context())
		require.NoError(t, err)
		assert.Equal(t, map[store.Stage]int64{store.StageIngest: 122, store.StageDecide: 1, store.StageDeliver: 1}, counts, "open ones")
	}},
	{"I9 letters are counted by their cause", func(t *testing.T, f *fixture) {
		require.NoError(t, f.a.AddLetters(t.Context(), []store.DeadLetter{
			{Stage: store.StageDeliver, Service: "a/p@s", Code: "refused", Reason: "no", Entity: "B-1", DedupKey: "1"},
			{Stage: store.StageDeliver, Service: "a/p@s", Code: "refused", Reason: "no", Entity: "B-2", DedupKey: "2"},
			{Stage: store.StageDeliver, Service: "a/p@s", Code: "given up", Reason: "away", DedupKey: "3"},
			{Stage: store.StageIngest, Source: "lab", Code: "bad_json", Reason: "{", DedupKey: "4"},
		}))
		all := f.list(store.LetterFilter{})
		f.settle(f.revision(), all[2].ID, store.LetterDiscarded)
		group := func(filter store.LetterFilter, limit int) (all []store.LetterGroup) {
			all, err := f.b.GroupLetters(t.Context(), filter, limit)
			require.NoError(t, err)
			return all
		}
		refused := store.LetterGroup{Stage: store.StageDeliver, Service: "a/p@s", Code: "refused", Reason: "no", Letters: 2, First: all[0].Created, Last: all[1].Last}
		bad := store.LetterGroup{Stage: store.StageIngest, Source: "lab", Code: "bad_json", Reason: "{", Letters: 1, First: all[3].Created, Last: all[3].Last}
		assert.Equal(t, []store.LetterGroup{refused, bad}, group(store.LetterFilter{State: store.LetterOpen}, 10))
		assert.Equal(t, []store.LetterGroup{refused}, group(store.LetterFilter{State: store.LetterOpen}, 1))
		assert.Len(t, group(store.LetterFilter{}, 10), 3)
		assert.Equal(t, []store.LetterGroup{bad}, group(store.LetterFilter{Source: "lab"}, 10))
		assert.Empty(t, group(store.LetterFilter{Entity: "none"}, 10))
		by := group(store.LetterFilter{Service: "a/p@s", Code: "refused", ByEntity: true}, 10)
		assert.Len(t, by, 2)
		assert.Equal(t, []string{"B-1", "B-2"}, []string{by[0].Entity, by[1].Entity})
	}},
	{"I7 however many letters there are, few are counted", func(t *testing.T, f *fixture) {
		many := make([]store.DeadLetter, store.CountedLetters+100)
		for i := range many {
			many[i] = store.DeadLetter{Stage: store.StageDecide, DedupKey: fmt.Sprint("many-", i)}
		}
		require.NoError(t, f.a.AddLetters(t.Context(), append(many, store.DeadLetter{Stage: store.StageDeliver, DedupKey: "one"})))
		counts, err := f.b.CountLetters(t.Context())
		require.NoError(t, err)
		assert.Equal(t, map[store.Stage]int64{store.StageDecide: store.CountedLetters + 1, store.StageDeliver: 1}, counts)
	}},
	{"I7 old letters and audit rows are pruned, newer ones stay", func(t *testing.T, f *fixture) {
		require.NoError(t, f.a.AddLetters(t.Context(), letters()[:2]))
		past, future := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
		n, err := f.b.Prune(t.Context(), past, past)
		require.NoError(t, err)
		assert.Zero(t, n)
		n, err = f.b.Prune(t.Context(), future, future)
		require.NoError(t, err)
		assert.Equal(t, 2, n)
		assert.Empty(t, f.list(store.LetterFilter{}))
	}},
}
