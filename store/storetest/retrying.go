package storetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/store"
)

// retryingRow is a change of a service that failed.
func retryingRow(service string, partition int32, offset int64, entity string) store.DeadLetter {
	return store.DeadLetter{Stage: store.StageDeliver, Code: "retrying", Reason: "502", Service: service, Entity: entity, Part: partition,
		Version: version(offset), Position: version(offset), Attempts: 1, NextTry: time.UnixMicro(1_000_000 + offset).UTC(),
		Payload: []byte("doc " + entity), Headers: []byte(`{"h":1}`), DedupKey: store.RetryingKey(service, partition, version(offset))}
}

// listed is a row as takeovers and lists return it.
func listed(got, wrote store.DeadLetter, headers bool) store.DeadLetter {
	wrote.ID, wrote.Created, wrote.Last, wrote.Count, wrote.State = got.ID, got.Created, got.Last, 1, store.LetterRetrying
	wrote.Size, wrote.Payload = int64(len(wrote.Payload)), nil
	if !headers {
		wrote.Headers = nil
	}
	return wrote
}

// retry swaps partition 0 and writes rows with it.
func (f *fixture) retry(revision int64, old, next store.Token, x store.ProgressSwap) bool {
	f.Helper()
	x.Old, x.Token = old, next
	return f.swap(f.a, revision, x)
}

var retryingTests = []test{
	{"I13 a retrying change is written with the position and found by the next owner", func(t *testing.T, f *fixture) {
		revision := f.revision()
		_, token := f.take(f.a, 'a', 0, 1)
		rows := []store.DeadLetter{retryingRow("b/p@s", 0, 4, "e-1"), retryingRow("a/p@s", 0, 9, "e-2"), retryingRow("a/p@s", 0, 3, "e-3")}
		x := store.ProgressSwap{Progress: store.Progress{Retrying: rows, Positions: []store.ServicePosition{at(1, 0, 5)}}}
		assert.False(t, f.retry(revision, store.Token{'x'}, store.Token{'y'}, x), "another token")
		_, err := f.a.SwapProgress(t.Context(), revision+1, []store.ProgressSwap{{Progress: x.Progress, Old: token}})
		require.ErrorIs(t, err, store.ErrSuperseded)
		high := x
		high.Positions = []store.ServicePosition{at(1, version(5), 5)}
		assert.False(t, f.retry(revision, token, store.Token{'y'}, high), "above the watermark")
		assert.Empty(t, f.list(store.LetterFilter{}), "a swap that is not done writes no rows")

		assert.True(t, f.retry(revision, token, store.Token{'b'}, x))
		other := retryingRow("a/p@s", 1, 7, "e-4")
		swapped, err := f.b.SwapProgress(t.Context(), revision, []store.ProgressSwap{{Progress: store.Progress{Partition: 1, Token: store.Token{'b'}, Retrying: []store.DeadLetter{other}}, Old: token}})
		require.NoError(t, err)
		require.Equal(t, []bool{true}, swapped)
		taken, _ := f.take(f.b, 'c', 1, 0)
		require.Len(t, taken[1].Retrying, 3)
		require.Len(t, taken[0].Retrying, 1)
		for i, want := range []store.DeadLetter{rows[2], rows[1], rows[0]} {
			assert.Equal(t, listed(taken[1].Retrying[i], want, false), taken[1].Retrying[i], "by service and position, without bytes")
		}
		assert.Equal(t, listed(taken[0].Retrying[0], other, false), taken[0].Retrying[0])
		for _, p := range f.progress(f.a) {
			assert.Empty(t, p.Retrying)
		}
		whole, err := f.b.Retrying(t.Context(), []string{rows[1].DedupKey, "none", rows[0].DedupKey})
		require.NoError(t, err)
		require.Len(t, whole, 2, "in the order of keys")
		for i, want := range []store.DeadLetter{rows[1], rows[0]} {
			assert.Equal(t, want.Payload, whole[i].Payload)
			assert.Equal(t, want.Headers, whole[i].Headers)
			assert.Equal(t, want.DedupKey, whole[i].DedupKey)
		}
	}},
	{"I13 a retrying row is replaced, keeps its bytes and ends", func(t *testing.T, f *fixture) {
		revision := f.revision()
		_, token := f.take(f.a, 'a', 0)
		row := retryingRow("a/p@s", 0, 4, "e-1")
		require.True(t, f.retry(revision, token, store.Token{'b'}, store.ProgressSwap{Progress: store.Progress{Retrying: []store.DeadLetter{row}}}))
		first := f.list(store.LetterFilter{})[0]
		again := row
		again.Payload, again.Headers, again.Attempts, again.Reason, again.NextTry = nil, nil, 2, "504", time.UnixMicro(9_000_000).UTC()
		require.True(t, f.retry(revision, store.Token{'b'}, store.Token{'c'}, store.ProgressSwap{Progress: store.Progress{Retrying: []store.DeadLetter{again}}}))
		whole, err := f.b.Retrying(t.Context(), []string{row.DedupKey})
		require.NoError(t, err)
		want := listed(first, row, true)
		want.Payload, want.Attempts, want.Reason, want.NextTry, want.Last = row.Payload, 2, "504", again.NextTry, whole[0].Last
		assert.Equal(t, []store.DeadLetter{want}, whole, "the bytes that were sent stay")

		newer := retryingRow("a/p@s", 0, 8, "e-1")
		newer.Created = time.UnixMicro(7_000_000).UTC()
		require.True(t, f.retry(revision, store.Token{'c'}, store.Token{'d'}, store.ProgressSwap{
			Ended: []string{row.DedupKey, "none"}, Progress: store.Progress{Retrying: []store.DeadLetter{newer}}}), "taken over by a newer change")
		taken, token := f.take(f.b, 'e', 0)
		require.Len(t, taken[0].Retrying, 1)
		assert.Equal(t, newer.DedupKey, taken[0].Retrying[0].DedupKey)
		assert.Equal(t, newer.Created, taken[0].Retrying[0].Created, "its entity fails since then")
		require.True(t, f.retry(revision, token, store.Token{'f'}, store.ProgressSwap{Ended: []string{newer.DedupKey}}))
		assert.Empty(t, f.list(store.LetterFilter{}))
	}},
	{"I9 a retrying row becomes the letter in place", func(t *testing.T, f *fixture) {
		revision := f.revision()
		_, token := f.take(f.a, 'a', 0)
		row := retryingRow("a/p@s", 0, 4, "e-1")
		require.True(t, f.retry(revision, token, store.Token{'b'}, store.ProgressSwap{Progress: store.Progress{Retrying: []store.DeadLetter{row}}}))
		first := f.list(store.LetterFilter{})[0]
		letter := row
		letter.Code, letter.Reason, letter.DedupKey, letter.Payload, letter.Headers, letter.NextTry, letter.Attempts, letter.Later = "gave_up", "502 ten times", "deliver/a/e-1/content", nil, nil, time.Time{}, 0, time.Microsecond
		concluded := store.ProgressSwap{Letters: []store.Concluded{{Row: row.DedupKey, DeadLetter: letter}}}
		require.True(t, f.retry(revision, store.Token{'b'}, store.Token{'c'}, concluded))
		want := listed(first, letter, true)
		want.Payload, want.Headers, want.Size, want.Attempts, want.State, want.Later = row.Payload, row.Headers, int64(len(row.Payload)), 1, store.LetterOpen, 0
		got, err := f.b.Letter(t.Context(), first.ID)
		require.NoError(t, err)
		want.Last = got.Last
		assert.Equal(t, want, got, "with its id and bytes")
		require.True(t, f.retry(revision, store.Token{'c'}, store.Token{'d'}, concluded), "the same again")
		all := f.list(store.LetterFilter{})
		require.Len(t, all, 1)
		assert.EqualValues(t, 1, all[0].Count)

		require.Eventually(t, func() bool {
			due, err := f.b.DueLetters(t.Context(), []string{"a/p@s"}, 0, 9)
			return err == nil && len(due) == 1
		}, time.Minute, time.Millisecond)
		require.NoError(t, f.a.Offered(t.Context(), []int64{first.ID}))
		due, err := f.b.DueLetters(t.Context(), []string{"a/p@s"}, 0, 9)
		require.NoError(t, err)
		assert.Empty(t, due, "offered since it died")

		again := retryingRow("a/p@s", 0, 8, "e-1")
		require.True(t, f.retry(revision, store.Token{'d'}, store.Token{'e'}, store.ProgressSwap{Progress: store.Progress{Retrying: []store.DeadLetter{again}}}))
		letter.Position, letter.Version = again.Position, again.Version
		require.True(t, f.retry(revision, store.Token{'e'}, store.Token{'f'}, store.ProgressSwap{Letters: []store.Concluded{{Row: again.DedupKey, DeadLetter: letter}}}))
		all = f.list(store.LetterFilter{})
		require.Len(t, all, 1, "one letter for one content")
		assert.EqualValues(t, 2, all[0].Count)
		assert.Equal(t, version(8), all[0].Position)
		whole, err := f.b.Letter(t.Context(), all[0].ID)
		require.NoError(t, err)
		assert.Equal(t, again.Payload, whole.Payload)
		require.Eventually(t, func() bool {
			due, err := f.b.DueLetters(t.Context(), []string{"a/p@s"}, 0, 9)
			return err == nil && len(due) == 1
		}, time.Minute, time.Millisecond, "it died again")

		refused := retryingRow("b/p@s", 0, 9, "e-9")
		refused.DedupKey = "deliver/b/e-9/content"
		require.True(t, f.retry(revision, store.Token{'f'}, store.Token{'g'}, store.ProgressSwap{Letters: []store.Concluded{{DeadLetter: refused}}}))
		require.Len(t, f.list(store.LetterFilter{State: store.LetterOpen}), 2, "a letter without a row")
	}},
	{"I1 a tombstone stays while a change of its entity is retried or an open dead letter", func(t *testing.T, f *fixture) {
		revision := f.revision()
		deleted := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
		err := f.a.Decide(t.Context(), store.Decision{Revision: revision}, writes(store.Outcome{Entities: []store.Entity{{ID: "e-1", Deleted: deleted}, {ID: "e-2", Deleted: deleted}}}))
		require.NoError(t, err)
		_, token := f.take(f.a, 'a', 0)
		row := retryingRow("a/p@s", 0, 4, "e-1")
		stones := func() (ids []string) {
			page, err := f.b.Tombstones(t.Context(), deleted.Add(time.Hour), store.Tombstone{}, 9)
			require.NoError(t, err)
			for _, s := range page {
				ids = append(ids, s.Entity)
			}
			return ids
		}
		require.True(t, f.retry(revision, token, store.Token{'b'}, store.ProgressSwap{Progress: store.Progress{Retrying: []store.DeadLetter{row}}}))
		assert.Equal(t, []string{"e-2"}, stones())
		letter := row
		letter.DedupKey = "deliver/a/e-1"
		require.True(t, f.retry(revision, store.Token{'b'}, store.Token{'c'}, store.ProgressSwap{Letters: []store.Concluded{{Row: row.DedupKey, DeadLetter: letter}}}))
		assert.Equal(t, []string{"e-2"}, stones(), "its replay needs the tombstone")
		open := f.list(store.LetterFilter{State: store.LetterOpen})
		require.Len(t, open, 1)
		f.settle(f.revision(), open[0].ID, store.LetterReplayed)
		assert.Equal(t, []string{"e-1", "e-2"}, stones())
	}},
}
