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

const tenant = "acme"

func lab(id string) store.Import {
	return store.Import{ID: id, Tenant: tenant, Source: "lab", Format: "jsonl", Options: []byte(`{"a":1}`), File: "sha256:" + id, Name: "lab.jsonl", Actor: "root@host"}
}

func (f *operatorFixture) begin(s store.Imports, wanted store.Import) store.Import {
	f.Helper()
	i, err := s.BeginImport(f.ctx(), wanted)
	require.NoError(f, err)
	return i
}

// found reads an import through the other handle.
func (f *operatorFixture) found(id string) store.Import {
	f.Helper()
	i, err := f.b.Import(f.ctx(), tenant, id)
	require.NoError(f, err)
	return i
}

// upTo is a position after so many accepted rows.
func upTo(rows int64, state store.ImportState) store.ImportPosition {
	return store.ImportPosition{Bytes: 10 * rows, Row: rows, Counts: store.ImportCounts{Accepted: rows}, State: state}
}

func (f *operatorFixture) step(s store.Imports, i store.Import, to store.ImportPosition, letters ...store.DeadLetter) {
	f.Helper()
	require.NoError(f, s.StepImport(f.ctx(), i, to, letters))
}

// refused is the dead letter of a row.
func refused(id string, row int64) store.DeadLetter {
	return store.DeadLetter{
		Stage: store.StageIngest, Code: "bad_json", Reason: "no \"entity\" \x00 é", Source: "lab", Payload: []byte("{"),
		Headers: fmt.Appendf(nil, `{"row":"%d"}`, row), State: store.LetterOpen, DedupKey: store.ImportLetterKey(id, row),
	}
}

// keysOf pages through the refused rows of an import and returns their keys.
func (f *operatorFixture) keysOf(id string, limit int) (keys []string) {
	f.Helper()
	for after := ""; ; after = keys[len(keys)-1] {
		page, err := f.b.ImportLetters(f.ctx(), id, after, limit)
		require.NoError(f, err)
		require.LessOrEqual(f, len(page), limit)
		for _, l := range page {
			keys = append(keys, l.DedupKey)
		}
		if len(page) < limit {
			return keys
		}
	}
}

var importTests = []operatorTest{
	{"an import moves from position to position, and its refused rows page", func(t *testing.T, f *operatorFixture) {
		i := f.begin(f.a, lab("one"))
		assert.WithinDuration(t, time.Now(), i.Created, time.Minute)
		want := lab("one")
		want.Created, want.Updated, want.State = i.Created, i.Updated, store.ImportIncomplete
		require.Equal(t, want, i)
		var keys []string
		for n := range int64(3) {
			to := upTo((n+1)*100, store.ImportIncomplete)
			to.Counts = store.ImportCounts{Accepted: 1, Duplicate: 2, Refused: 3}
			if n == 2 {
				to.State = store.ImportDone
			}
			var some []store.DeadLetter
			for r := n*100 + 1; r <= to.Row && n != 1; r += 2 { // one step without any
				some, keys = append(some, refused("one", r)), append(keys, store.ImportLetterKey("one", r))
			}
			f.step(f.a, i, to, some...)
			require.ErrorIs(t, f.b.StepImport(t.Context(), i, to, some), store.ErrFenced, "it was made")
			got := f.found(i.ID)
			require.Equal(t, to, got.ImportPosition)
			i = got
		}
		f.step(f.a, f.begin(f.a, lab("two")), upTo(1, store.ImportIncomplete), refused("two", 1))
		for _, limit := range []int{1000, 100, 50, 33, 1} {
			require.Equal(t, keys, f.keysOf("one", limit), limit)
		}
		letters, err := f.b.ImportLetters(t.Context(), "one", "", 1)
		require.NoError(t, err)
		require.Equal(t, `{"row":"1"}`, string(letters[0].Headers))
		require.Equal(t, f.found("one"), f.begin(f.b, lab("one")), "it is done already")
		_, err = f.a.BeginImport(t.Context(), store.Import{ID: "x", Tenant: tenant, Source: "lab"})
		require.Error(t, err)
	}},
	{"I5 of steps at once from one position one is made", func(t *testing.T, f *operatorFixture) {
		i := f.begin(f.a, lab("one"))
		var callers sync.WaitGroup
		var mu sync.Mutex
		made := 0
		for n := range 8 {
			callers.Go(func() {
				err := []store.Imports{f.a, f.b}[n%2].StepImport(t.Context(), i, upTo(10, store.ImportIncomplete), []store.DeadLetter{refused("one", int64(n+1))})
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					made++
				} else {
					assert.ErrorIs(t, err, store.ErrFenced)
				}
			})
		}
		callers.Wait()
		require.Equal(t, 1, made)
		require.Len(t, f.keysOf("one", 100), 1, "the letters are those of the step")
		require.Equal(t, upTo(10, store.ImportIncomplete), f.found("one").ImportPosition)
		i = f.begin(f.b, lab("one"))
		f.step(f.b, i, upTo(20, store.ImportDone))
		i.ImportPosition = upTo(20, store.ImportIncomplete)
		require.ErrorIs(t, f.b.StepImport(t.Context(), i, upTo(30, store.ImportIncomplete), nil), store.ErrFenced, "it is done")
	}},
	{"I1 an import of an earlier inbox begins again, whatever its state", func(t *testing.T, f *operatorFixture) {
		// The mistake that this catches: the inbox was lost with the rows of a file,
		// the file is imported again, and the answer is that it is done.
		resolve := func(identity string) {
			t.Helper()
			_, err := f.b.ResolveInbox(t.Context(), "inbox", identity, 1, nil)
			require.NoError(t, err)
		}
		for n, state := range []store.ImportState{store.ImportDone, store.ImportIncomplete} {
			resolve(fmt.Sprint("inbox ", n))
			id := string(state)
			f.step(f.a, f.begin(f.a, lab(id)), upTo(10, state))
			assert.EqualValues(t, 10, f.begin(f.b, lab(id)).Row)
			resolve(fmt.Sprint("its successor ", n))
			again := f.begin(f.b, lab(id))
			assert.Equal(t, store.ImportPosition{State: store.ImportIncomplete}, again.ImportPosition)
			f.step(f.b, again, upTo(10, store.ImportIncomplete))
			assert.EqualValues(t, 10, f.begin(f.a, lab(id)).Row)
		}
	}},
	{"I11 the imports of tenants stay apart", func(t *testing.T, f *operatorFixture) {
		i := f.begin(f.a, lab("one"))
		f.step(f.a, i, upTo(1, store.ImportIncomplete))
		twin := lab("one")
		twin.Tenant = "zest"
		assert.Zero(t, f.begin(f.b, twin).Row, "the same id of another tenant is another import")
		_, err := f.a.Import(t.Context(), "globex", i.ID)
		require.ErrorIs(t, err, store.ErrNotFound)
		listed, err := f.a.ListImports(t.Context(), "globex", "", 10)
		require.NoError(t, err)
		assert.Empty(t, listed)
	}},
	{"imports list page by page, the latest first", func(t *testing.T, f *operatorFixture) {
		var want, got []string
		for n := range 5 {
			id := fmt.Sprint(7 * n % 5)
			f.begin(f.a, lab(id))
			want = append([]string{id}, want...)
		}
		for before := ""; ; before = got[len(got)-1] {
			page, err := f.b.ListImports(t.Context(), tenant, before, 2)
			require.NoError(t, err)
			for _, i := range page {
				got = append(got, i.ID)
			}
			if len(page) < 2 {
				break
			}
		}
		assert.Equal(t, want, got)
	}},
	{"I7 imports without progress are pruned", func(t *testing.T, f *operatorFixture) {
		past, future := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
		for _, state := range []store.ImportState{store.ImportDone, store.ImportIncomplete} {
			f.step(f.a, f.begin(f.a, lab(string(state))), upTo(1, state))
		}
		n, err := f.b.PruneImports(t.Context(), past)
		require.NoError(t, err)
		assert.Zero(t, n)
		require.NotEmpty(t, f.found("done"))
		n, err = f.b.PruneImports(t.Context(), future)
		require.NoError(t, err)
		assert.Equal(t, 2, n)
		assert.Zero(t, f.begin(f.a, lab("incomplete")).Row)
	}},
}
