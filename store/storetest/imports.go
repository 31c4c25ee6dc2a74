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
	i, err := s.BeginImport(f.ctx(), wanted, 0)
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
	return store.ImportPosition{Bytes: 10 * rows, Row: rows, Cursor: []byte("cursor"), Counts: store.ImportCounts{Accepted: rows}, State: state}
}

func (f *operatorFixture) step(s store.Imports, i store.Import, to store.ImportPosition, rows ...store.ImportRow) {
	f.Helper()
	require.NoError(f, s.StepImport(f.ctx(), i, to, rows))
}

var importTests = []operatorTest{
	{"an import moves from position to position, and its results page", func(t *testing.T, f *operatorFixture) {
		i := f.begin(f.a, lab("one"))
		assert.WithinDuration(t, time.Now(), i.Created, time.Minute)
		want := lab("one")
		want.Created, want.Updated, want.Attempt, want.State = i.Created, i.Updated, 1, store.ImportIncomplete
		require.Equal(t, want, i)
		var rows []store.ImportRow
		for n := range int64(3) {
			to := upTo((n+1)*100, store.ImportIncomplete)
			to.Counts = store.ImportCounts{Accepted: 1, Duplicate: 2, Invalid: 3, Conflicting: 4}
			if n == 2 {
				to.State = store.ImportDone
			}
			var some []store.ImportRow
			for r := n*100 + 1; r <= to.Row && n != 1; r += 2 { // one step without any
				some = append(some, store.ImportRow{Row: r, Line: r + 1, Status: "invalid", Reason: "no \"entity\" \x00 é"})
			}
			rows = append(rows, some...)
			for range 2 { // a commit of unknown outcome
				f.step(f.a, i, to, some...)
			}
			got := f.found(i.ID)
			require.Equal(t, to, got.ImportPosition)
		}
		for _, limit := range []int{1000, 100, 50, 33, 1} {
			var got []store.ImportRow
			for after := int64(0); ; after = got[len(got)-1].Row {
				page, err := f.b.ImportRows(t.Context(), tenant, i.ID, after, limit)
				require.NoError(t, err)
				require.LessOrEqual(t, len(page), limit)
				got = append(got, page...)
				if len(page) < limit {
					break
				}
			}
			require.Equal(t, rows, got, limit)
		}
		again := f.begin(f.b, lab("one"))
		require.Equal(t, f.found("one"), again, "it is done already")
		_, err := f.a.BeginImport(t.Context(), store.Import{ID: "x", Tenant: tenant, Source: "lab"}, 0)
		require.Error(t, err)
	}},
	{"I5 a later request takes over, and the steps of the earlier one are fenced", func(t *testing.T, f *operatorFixture) {
		old := f.begin(f.a, lab("one"))
		f.step(f.a, old, upTo(10, store.ImportIncomplete))
		require.ErrorIs(t, f.a.StepImport(t.Context(), old, upTo(5, store.ImportIncomplete), nil), store.ErrFenced, "it is beyond that")
		fresh := f.begin(f.b, lab("one"))
		assert.EqualValues(t, 2, fresh.Attempt)
		assert.Equal(t, upTo(10, store.ImportIncomplete), fresh.ImportPosition)
		require.ErrorIs(t, f.a.StepImport(t.Context(), old, upTo(20, store.ImportDone), []store.ImportRow{{Row: 11, Line: 11, Status: "invalid"}}), store.ErrFenced)
		rows, err := f.a.ImportRows(t.Context(), tenant, "one", 0, 10)
		require.NoError(t, err)
		assert.Empty(t, rows)
		f.step(f.b, fresh, upTo(20, store.ImportDone))
		require.ErrorIs(t, f.b.StepImport(t.Context(), fresh, upTo(30, store.ImportIncomplete), nil), store.ErrFenced, "it is done")
	}},
	{"of requests at once the last alone makes steps", func(t *testing.T, f *operatorFixture) {
		var callers sync.WaitGroup
		all := make([]store.Import, 8)
		for n := range all {
			callers.Go(func() {
				i, err := []store.Imports{f.a, f.b}[n%2].BeginImport(t.Context(), lab("one"), 1)
				assert.NoError(t, err)
				all[n] = i
			})
		}
		callers.Wait()
		done := 0
		for _, i := range all {
			if f.a.StepImport(t.Context(), i, upTo(1, store.ImportIncomplete), nil) == nil {
				done++
				assert.EqualValues(t, len(all), i.Attempt)
			}
		}
		require.Equal(t, 1, done)
	}},
	{"a cancelled import continues, a failed one begins anew", func(t *testing.T, f *operatorFixture) {
		i := f.begin(f.a, lab("one"))
		bad := store.ImportRow{Row: 7, Line: 7, Status: "invalid"}
		f.step(f.a, i, upTo(10, store.ImportIncomplete), bad)
		for range 2 {
			got, err := f.b.CancelImport(t.Context(), tenant, i.ID)
			require.NoError(t, err)
			assert.Equal(t, store.ImportCancelled, got.State)
		}
		require.ErrorIs(t, f.a.StepImport(t.Context(), i, upTo(20, store.ImportIncomplete), nil), store.ErrFenced)
		i = f.begin(f.a, lab("one"))
		assert.Equal(t, upTo(10, store.ImportIncomplete), i.ImportPosition)
		failed := upTo(10, store.ImportFailed)
		failed.Failure = "the reason"
		f.step(f.a, i, failed)
		assert.Equal(t, failed, f.found("one").ImportPosition)
		i = f.begin(f.a, lab("one"))
		assert.Equal(t, store.ImportPosition{State: store.ImportIncomplete}, i.ImportPosition)
		rows, err := f.a.ImportRows(t.Context(), tenant, "one", 0, 10)
		require.NoError(t, err)
		assert.Empty(t, rows)
		f.step(f.a, i, upTo(10, store.ImportDone))
		got, err := f.a.CancelImport(t.Context(), tenant, i.ID)
		require.NoError(t, err)
		assert.Equal(t, store.ImportDone, got.State)
		_, err = f.a.CancelImport(t.Context(), tenant, "none")
		require.ErrorIs(t, err, store.ErrNotFound)
	}},
	{"I1 an import of an earlier inbox begins anew, whatever its state", func(t *testing.T, f *operatorFixture) {
		// The mistake that this catches: the inbox was lost with the rows of a file,
		// the file is imported again, and the answer is that it is done.
		resolve := func(identity string) {
			t.Helper()
			_, err := f.b.ResolveInbox(t.Context(), "inbox", identity, 1, 1)
			require.NoError(t, err)
		}
		for n, state := range []store.ImportState{store.ImportDone, store.ImportIncomplete, store.ImportCancelled} {
			resolve(fmt.Sprint("inbox ", n))
			id := string(state)
			f.step(f.a, f.begin(f.a, lab(id)), upTo(10, state))
			assert.EqualValues(t, 10, f.begin(f.b, lab(id)).Row)
			resolve(fmt.Sprint("its successor ", n))
			anew := f.begin(f.b, lab(id))
			assert.Equal(t, store.ImportPosition{State: store.ImportIncomplete}, anew.ImportPosition)
			f.step(f.b, anew, upTo(10, store.ImportIncomplete))
			assert.EqualValues(t, 10, f.begin(f.a, lab(id)).Row)
		}
	}},
	{"I7 incomplete imports of a tenant are bounded", func(t *testing.T, f *operatorFixture) {
		const most = 3
		var together sync.WaitGroup
		var mu sync.Mutex
		var made []store.Import
		for n := range 4 * most {
			together.Go(func() {
				i, err := []store.Imports{f.a, f.b}[n%2].BeginImport(t.Context(), lab(fmt.Sprint(n)), most)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					made = append(made, i)
				} else {
					assert.ErrorIs(t, err, store.ErrTooMany)
				}
			})
		}
		together.Wait()
		require.Len(t, made, most)
		_, err := f.a.BeginImport(t.Context(), made[0], most)
		require.NoError(t, err, "one of them may continue")
		other := lab("other")
		other.Tenant = "zest"
		_, err = f.a.BeginImport(t.Context(), other, most)
		require.NoError(t, err, "another tenant has its own")
		_, err = f.a.CancelImport(t.Context(), tenant, made[0].ID)
		require.NoError(t, err)
		_, err = f.a.BeginImport(t.Context(), lab("more"), most)
		require.NoError(t, err)
		_, err = f.a.BeginImport(t.Context(), made[0], most)
		require.ErrorIs(t, err, store.ErrTooMany, "a cancelled one needs room to continue")
	}},
	{"I11 tenants stay apart", func(t *testing.T, f *operatorFixture) {
		i := f.begin(f.a, lab("one"))
		f.step(f.a, i, upTo(1, store.ImportIncomplete), store.ImportRow{Row: 1, Line: 1, Status: "invalid"})
		twin := lab("one")
		twin.Tenant = "zest"
		assert.Zero(t, f.begin(f.b, twin).Row, "the same id of another tenant is another job")
		rows, err := f.a.ImportRows(t.Context(), "zest", i.ID, 0, 10)
		require.NoError(t, err)
		assert.Empty(t, rows)
		_, err = f.a.Import(t.Context(), "globex", i.ID)
		require.ErrorIs(t, err, store.ErrNotFound)
		_, err = f.a.CancelImport(t.Context(), "globex", i.ID)
		require.ErrorIs(t, err, store.ErrNotFound)
		listed, err := f.a.ListImports(t.Context(), "globex", "", 10)
		require.NoError(t, err)
		assert.Empty(t, listed)
		assert.Equal(t, store.ImportIncomplete, f.found(i.ID).State)
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
	{"I7 imports without progress are pruned with their results", func(t *testing.T, f *operatorFixture) {
		past, future := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
		for _, state := range []store.ImportState{store.ImportDone, store.ImportIncomplete} {
			f.step(f.a, f.begin(f.a, lab(string(state))), upTo(1, state), store.ImportRow{Row: 1, Line: 1, Status: "invalid"})
		}
		n, err := f.b.PruneImports(t.Context(), past)
		require.NoError(t, err)
		assert.Zero(t, n)
		require.NotEmpty(t, f.found("done"))
		n, err = f.b.PruneImports(t.Context(), future)
		require.NoError(t, err)
		assert.Equal(t, 2, n)
		assert.Zero(t, f.begin(f.a, lab("incomplete")).Row)
		rows, err := f.a.ImportRows(t.Context(), tenant, "incomplete", 0, 10)
		require.NoError(t, err)
		assert.Empty(t, rows)
	}},
}
