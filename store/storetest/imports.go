package storetest

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/store"
)

const (
	longLease = time.Hour
	tenant    = "acme"
)

// file makes an import of chunks and seals it.
func (f *operatorFixture) file(s store.Imports, wanted store.Import, chunks ...string) store.Import {
	f.Helper()
	i, err := s.CreateImport(f.ctx(), wanted, 0)
	require.NoError(f, err)
	whole := sha256.New()
	for n, c := range chunks {
		require.NoError(f, s.AddImportChunk(f.ctx(), i.ID, int64(n), int64(len(c)), []byte(c), 0))
		whole.Write([]byte(c))
	}
	sealed, err := s.SealImport(f.ctx(), i, whole.Sum(nil))
	require.NoError(f, err)
	return sealed
}

// found reads an import through the other handle.
func (f *operatorFixture) found(id store.ClaimID) store.Import {
	f.Helper()
	i, err := f.b.Import(f.ctx(), tenant, id)
	require.NoError(f, err)
	return i
}

func (f *operatorFixture) take(s store.Imports, lease time.Duration) store.Import {
	f.Helper()
	i, err := s.TakeImport(f.ctx(), lease)
	require.NoError(f, err)
	assert.Equal(f, store.ImportRunning, i.State)
	return i
}

// step is one that works off all of i.
func step(i store.Import, state store.ImportState) store.ImportStep {
	row := i.Row + 10
	return store.ImportStep{ID: i.ID, Attempt: i.Attempt, Next: i.Chunks, Row: row, Counts: store.ImportCounts{Accepted: row}, State: state, Lease: longLease}
}

func (f *operatorFixture) gone(id store.ClaimID, n int64) {
	f.Helper()
	_, err := f.b.ImportChunk(f.ctx(), id, n)
	require.ErrorIs(f, err, store.ErrNotFound)
}

func lab() store.Import {
	return store.Import{Tenant: tenant, Source: "lab", Format: "jsonl", Options: []byte(`{"a":1}`), Name: "lab.jsonl", Actor: "root@host"}
}

var importTests = []operatorTest{
	{"open imports of a tenant are bounded", func(t *testing.T, f *operatorFixture) {
		const most = 3
		var together sync.WaitGroup
		var mu sync.Mutex
		var made []store.Import
		for n := range 4 * most {
			together.Go(func() {
				s := f.a
				if n%2 == 1 {
					s = f.b
				}
				i, err := s.CreateImport(t.Context(), lab(), most)
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
		other := lab()
		other.Tenant = "zest"
		_, err := f.a.CreateImport(t.Context(), other, most)
		require.NoError(t, err, "another tenant has its own")
		_, err = f.a.CreateImport(t.Context(), lab(), 0)
		require.NoError(t, err, "without a bound")
		_, err = f.a.CreateImport(t.Context(), lab(), most+1)
		require.ErrorIs(t, err, store.ErrTooMany, "that one counts, too")
		_, err = f.a.SealImport(t.Context(), made[0], []byte("sum"))
		require.NoError(t, err)
		_, err = f.a.CreateImport(t.Context(), lab(), most+1)
		require.ErrorIs(t, err, store.ErrTooMany, "so does one that waits")
		for _, i := range made[:2] {
			_, err = f.a.CancelImport(t.Context(), tenant, i.ID)
			require.NoError(t, err)
		}
		_, err = f.a.CreateImport(t.Context(), lab(), most)
		require.NoError(t, err, "what ended makes room")
	}},
	{"a file comes in chunk by chunk, each once", func(t *testing.T, f *operatorFixture) {
		made, err := f.a.CreateImport(t.Context(), lab(), 0)
		require.NoError(t, err)
		assert.Equal(t, store.ImportReceiving, made.State)
		assert.WithinDuration(t, time.Now(), made.Created, time.Minute)
		large := make([]byte, 3<<20)
		r := rand.New(rand.NewPCG(1, 2)) // does not compress
		for n := range large {
			large[n] = byte(r.Uint32())
		}
		chunks := [][]byte{large, bytes.Repeat([]byte("compresses well "), 100_000), {}}
		require.ErrorIs(t, f.a.AddImportChunk(t.Context(), made.ID, 1, 1, []byte("x"), 0), store.ErrFenced, "none may be left out")
		for n, c := range chunks {
			for range 2 {
				require.NoError(t, f.b.AddImportChunk(t.Context(), made.ID, int64(n), int64(len(c)+1), c, 0))
			}
		}
		_, err = f.a.TakeImport(t.Context(), longLease)
		require.ErrorIs(t, err, store.ErrNotFound, "it is not complete")
		_, err = f.a.SealImport(t.Context(), made, nil)
		require.Error(t, err)
		for range 2 {
			sealed, err := f.a.SealImport(t.Context(), made, []byte("sum"))
			require.NoError(t, err)
			assert.Equal(t, made.ID, sealed.ID)
			assert.Equal(t, store.ImportQueued, sealed.State)
		}
		_, err = f.a.SealImport(t.Context(), made, []byte("another"))
		require.ErrorIs(t, err, store.ErrFenced)
		require.ErrorIs(t, f.b.AddImportChunk(t.Context(), made.ID, 3, 1, []byte("x"), 0), store.ErrFenced, "it is complete")
		got := f.found(made.ID)
		want := lab()
		want.ID, want.Created, want.Updated = made.ID, made.Created, got.Updated
		want.Fingerprint, want.Chunks, want.State = []byte("sum"), 3, store.ImportQueued
		want.Bytes = int64(len(chunks[0]) + len(chunks[1]) + len(chunks[2]) + 3)
		assert.Equal(t, want, got)
		for n, c := range chunks {
			got, err := f.a.ImportChunk(t.Context(), made.ID, int64(n))
			require.NoError(t, err)
			assert.True(t, bytes.Equal(c, got), n)
		}
		f.gone(made.ID, 3)
		_, err = f.a.CreateImport(t.Context(), store.Import{Tenant: tenant, Source: "lab"}, 0)
		require.Error(t, err)
	}},
	{"the same file twice is one import, until it fails or is cancelled", func(t *testing.T, f *operatorFixture) {
		first := f.file(f.a, lab(), "one", "two")
		again := f.file(f.b, lab(), "one", "two")
		assert.Equal(t, first.ID, again.ID)
		for what, change := range map[string]func(i *store.Import){
			"source":  func(i *store.Import) { i.Source = "registry" },
			"format":  func(i *store.Import) { i.Format = "csv" },
			"options": func(i *store.Import) { i.Options = nil },
			"tenant":  func(i *store.Import) { i.Tenant = "zest" },
		} {
			other := lab()
			change(&other)
			assert.NotEqual(t, first.ID, f.file(f.b, other, "one", "two").ID, what)
		}
		assert.NotEqual(t, first.ID, f.file(f.b, lab(), "one", "three").ID, "another file")

		// A commit of unknown outcome: the call is repeated, and is told the same.
		twin, err := f.a.CreateImport(t.Context(), lab(), 0)
		require.NoError(t, err)
		for _, s := range []store.Imports{f.a, f.b} {
			sealed, err := s.SealImport(t.Context(), twin, first.Fingerprint)
			require.NoError(t, err)
			assert.Equal(t, first.ID, sealed.ID)
		}
		_, err = f.a.SealImport(t.Context(), twin, []byte("another"))
		require.ErrorIs(t, err, store.ErrFenced, "it is gone")

		done := f.take(f.a, longLease)
		require.Equal(t, first.ID, done.ID)
		require.NoError(t, f.a.StepImport(t.Context(), step(done, store.ImportDone)))
		assert.Equal(t, first.ID, f.file(f.b, lab(), "one", "two").ID, "it is done already")
		listed, err := f.a.ListImports(t.Context(), tenant, store.ClaimID{}, 100)
		require.NoError(t, err)
		assert.Len(t, listed, 5, "nothing is left of the repetitions")

		for _, end := range []store.ImportState{store.ImportFailed, store.ImportCancelled} {
			ended := f.file(f.a, lab(), "of", string(end))
			if end == store.ImportCancelled {
				_, err = f.b.CancelImport(t.Context(), tenant, ended.ID)
				require.NoError(t, err)
			} else {
				for i := (store.Import{}); i.ID != ended.ID; {
					i = f.take(f.b, longLease)
					require.NoError(t, f.b.StepImport(t.Context(), step(i, end)))
				}
			}
			assert.NotEqual(t, ended.ID, f.file(f.a, lab(), "of", string(end)).ID, end)
		}
	}},
	{"I1 the same file is another import once the inbox is another that a worker had begun to fill", func(t *testing.T, f *operatorFixture) {
		// The mistake that this catches: the inbox was lost with the rows of a file,
		// the file is imported again, and the answer is the old import, which is done.
		resolve := func(identity string) {
			t.Helper()
			_, err := f.b.ResolveInbox(t.Context(), "inbox", identity, 1, 1)
			require.NoError(t, err)
		}
		resolve("first")
		waits := f.file(f.a, lab(), "one")
		resolve("second")
		assert.Equal(t, waits.ID, f.file(f.b, lab(), "one").ID, "nothing of it was in the old one")
		taken := f.take(f.a, longLease)
		require.Equal(t, waits.ID, taken.ID)
		assert.Equal(t, waits.ID, f.file(f.b, lab(), "one").ID)
		require.NoError(t, f.b.StepImport(t.Context(), step(taken, store.ImportDone)))
		assert.Equal(t, waits.ID, f.file(f.b, lab(), "one").ID)
		resolve("third")
		again := f.file(f.b, lab(), "one")
		assert.NotEqual(t, waits.ID, again.ID)
		assert.Equal(t, store.ImportQueued, again.State)
		assert.Equal(t, again.ID, f.file(f.a, lab(), "one").ID)
		assert.Equal(t, again.ID, f.take(f.a, longLease).ID)
	}},
	{"of the same file sealed many times at once one stays", func(t *testing.T, f *operatorFixture) {
		ids := make([]store.ClaimID, 8)
		var callers sync.WaitGroup
		for n := range ids {
			s := f.a
			if n%2 == 1 {
				s = f.b
			}
			i, err := s.CreateImport(t.Context(), lab(), 0)
			require.NoError(t, err)
			require.NoError(t, s.AddImportChunk(t.Context(), i.ID, 0, 1, []byte("x"), 0))
			callers.Go(func() {
				sealed, err := s.SealImport(t.Context(), i, []byte("sum"))
				assert.NoError(t, err)
				ids[n] = sealed.ID
			})
		}
		callers.Wait()
		for _, id := range ids {
			assert.Equal(t, ids[0], id)
		}
		listed, err := f.a.ListImports(t.Context(), tenant, store.ClaimID{}, 100)
		require.NoError(t, err)
		require.Len(t, listed, 1)
	}},
	{"of a tenant's imports into a source one is worked on, in the order of sealing", func(t *testing.T, f *operatorFixture) {
		late, err := f.a.CreateImport(t.Context(), lab(), 0)
		require.NoError(t, err)
		first := f.file(f.a, lab(), "first")
		late, err = f.b.SealImport(t.Context(), late, []byte("late")) // made first, sealed last
		require.NoError(t, err)
		other := lab()
		other.Tenant, other.Source = "zest", "registry"
		second := f.file(f.b, other, "other source")

		got := []store.ClaimID{f.take(f.a, longLease).ID, f.take(f.b, longLease).ID}
		assert.Equal(t, []store.ClaimID{first.ID, second.ID}, got)
		_, err = f.a.TakeImport(t.Context(), longLease)
		require.ErrorIs(t, err, store.ErrNotFound)
		n, err := f.a.OpenImports(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, 3, n)
		taken := f.found(first.ID)
		require.NoError(t, f.a.StepImport(t.Context(), step(taken, store.ImportDone)))
		assert.Equal(t, late.ID, f.take(f.b, longLease).ID)
		n, err = f.b.OpenImports(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, 2, n)
	}},
	{"tenants take turns, however many imports one has", func(t *testing.T, f *operatorFixture) {
		for n := range 5 {
			many := lab()
			many.Source = fmt.Sprint("source-", n%3)
			f.file(f.a, many, fmt.Sprint("many ", n))
		}
		few := lab()
		few.Tenant, few.Source = "zest", "source-0" // the source of others, too
		last := f.file(f.a, few, "few").ID
		turn := func() store.Import {
			i := f.take(f.b, longLease)
			require.NoError(t, f.a.StepImport(t.Context(), store.ImportStep{ID: i.ID, Attempt: i.Attempt, Next: i.Next, State: store.ImportRunning}), "its lease is given back")
			return i
		}
		var tenants []string
		for range 6 {
			tenants = append(tenants, turn().Tenant)
		}
		assert.Equal(t, []string{tenant, "zest", tenant, "zest", tenant, "zest"}, tenants)
		i := f.take(f.a, longLease)
		require.Equal(t, tenant, i.Tenant)
		require.NoError(t, f.a.StepImport(t.Context(), step(i, store.ImportDone)))
		assert.Equal(t, last, turn().ID, "one that ended was a turn")
	}},
	{"the files of a tenant that have not ended are bounded in bytes", func(t *testing.T, f *operatorFixture) {
		const most = 10
		add := func(s store.Imports, i store.Import, n, size int64) error {
			return s.AddImportChunk(t.Context(), i.ID, n, size, []byte("x"), most)
		}
		first, err := f.a.CreateImport(t.Context(), lab(), 0)
		require.NoError(t, err)
		require.NoError(t, add(f.a, first, 0, 6))
		second, err := f.b.CreateImport(t.Context(), lab(), 0)
		require.NoError(t, err)
		require.NoError(t, add(f.b, second, 0, 4), "as many as there may be")
		require.ErrorIs(t, add(f.a, second, 1, 1), store.ErrTooMany)
		require.NoError(t, add(f.a, second, 0, 4), "a repetition of one that is there")
		other := lab()
		other.Tenant = "zest"
		third, err := f.a.CreateImport(t.Context(), other, 0)
		require.NoError(t, err)
		require.NoError(t, add(f.a, third, 0, 7), "another tenant has its own")
		_, err = f.a.CancelImport(t.Context(), tenant, first.ID)
		require.NoError(t, err)
		require.NoError(t, add(f.a, second, 1, 1), "what ended makes room, and what was refused left nothing")
	}},
	{"workers side by side take each import once", func(t *testing.T, f *operatorFixture) {
		const imports = 12
		want := map[store.ClaimID]bool{}
		for n := range imports {
			wanted := lab()
			wanted.Source = fmt.Sprint("source-", n)
			want[f.file(f.a, wanted, "x").ID] = true
		}
		var mu sync.Mutex
		got := map[store.ClaimID]bool{}
		var workers sync.WaitGroup
		for n := range 6 {
			s := f.a
			if n%2 == 1 {
				s = f.b
			}
			workers.Go(func() {
				for misses := 0; misses < 3; {
					i, err := s.TakeImport(t.Context(), longLease)
					if err != nil {
						assert.ErrorIs(t, err, store.ErrNotFound)
						misses++
						continue
					}
					mu.Lock()
					assert.False(t, got[i.ID])
					assert.EqualValues(t, 1, i.Attempt)
					got[i.ID] = true
					mu.Unlock()
				}
			})
		}
		workers.Wait()
		for { // those that every worker skipped because another one held them just then
			i, err := f.a.TakeImport(t.Context(), longLease)
			if err != nil {
				require.ErrorIs(t, err, store.ErrNotFound)
				break
			}
			require.False(t, got[i.ID])
			got[i.ID] = true
		}
		assert.Equal(t, want, got)
	}},
	{"I5 a lease that is over is taken again, and the step of its attempt is fenced", func(t *testing.T, f *operatorFixture) {
		made := f.file(f.a, lab(), "one", "two", "three")
		old := f.take(f.a, 0)
		first := step(old, store.ImportRunning)
		first.Next, first.Lease = 1, 0
		first.Cursor, first.Counts = []byte("cursor"), store.ImportCounts{Accepted: 5, Duplicate: 2, Invalid: 2, Conflicting: 1}
		for range 2 {
			require.NoError(t, f.a.StepImport(t.Context(), first), "the lease is over, and nobody else has it")
		}
		back := first
		back.Next, back.Counts = 0, store.ImportCounts{}
		require.ErrorIs(t, f.a.StepImport(t.Context(), back), store.ErrFenced, "it is farther than that")
		fresh := f.take(f.b, longLease)
		assert.Equal(t, made.ID, fresh.ID)
		assert.EqualValues(t, 2, fresh.Attempt)
		assert.EqualValues(t, 1, fresh.Next)
		assert.EqualValues(t, 10, fresh.Row)
		assert.Equal(t, "cursor", string(fresh.Cursor))
		assert.Equal(t, first.Counts, fresh.Counts)
		f.gone(made.ID, 0)
		zombie := step(old, store.ImportDone)
		zombie.Rows = []store.ImportRow{{Row: 11, Line: 11, Status: "invalid"}}
		require.ErrorIs(t, f.a.StepImport(t.Context(), zombie), store.ErrFenced)
		got := f.found(made.ID)
		assert.Equal(t, store.ImportRunning, got.State)
		assert.EqualValues(t, 1, got.Next)
		rows, err := f.a.ImportRows(t.Context(), tenant, made.ID, 0, 10)
		require.NoError(t, err)
		assert.Empty(t, rows)
		chunk, err := f.a.ImportChunk(t.Context(), made.ID, 1)
		require.NoError(t, err)
		assert.Equal(t, "two", string(chunk))
		_, err = f.a.TakeImport(t.Context(), longLease)
		require.ErrorIs(t, err, store.ErrNotFound, "the new lease holds")
		require.NoError(t, f.b.StepImport(t.Context(), step(fresh, store.ImportDone)))
		require.ErrorIs(t, f.b.StepImport(t.Context(), step(fresh, store.ImportDone)), store.ErrFenced, "it is at its end")
	}},
	{"chunks go at the end, results stay and page", func(t *testing.T, f *operatorFixture) {
		made := f.file(f.a, lab(), "one", "two", "three")
		i := f.take(f.a, longLease)
		var want []store.ImportRow
		for n := range int64(3) {
			s := step(i, store.ImportRunning)
			s.Next, s.Row = n+1, (n+1)*100
			if n == 2 {
				s.State = store.ImportDone
			}
			for r := n*100 + 1; r <= s.Row; r += 2 {
				if n == 1 {
					break // a chunk without any
				}
				s.Rows = append(s.Rows, store.ImportRow{Row: r, Line: r + 1, Status: "invalid", Reason: "no \"entity\" \x00 é"})
			}
			want = append(want, s.Rows...)
			require.NoError(t, f.a.StepImport(t.Context(), s))
			f.gone(made.ID, n)
		}
		for _, limit := range []int{1000, 100, 50, 33, 1} {
			var got []store.ImportRow
			for after := int64(0); ; after = got[len(got)-1].Row {
				page, err := f.b.ImportRows(t.Context(), tenant, made.ID, after, limit)
				require.NoError(t, err)
				require.LessOrEqual(t, len(page), limit)
				got = append(got, page...)
				if len(page) < limit {
					break
				}
			}
			require.Equal(t, want, got, limit)
		}
		page, err := f.b.ImportRows(t.Context(), tenant, made.ID, 0, 0)
		require.NoError(t, err)
		require.Empty(t, page)
	}},
	{"one that is cancelled ends at once, in any state", func(t *testing.T, f *operatorFixture) {
		receiving, err := f.a.CreateImport(t.Context(), lab(), 0)
		require.NoError(t, err)
		require.NoError(t, f.a.AddImportChunk(t.Context(), receiving.ID, 0, 1, []byte("x"), 0))
		other := lab()
		other.Source = "registry"
		queued := f.file(f.a, other, "queued", "two")
		f.file(f.a, lab(), "running", "two")
		done := f.file(f.a, lab(), "done")
		running := f.take(f.a, longLease)
		require.Equal(t, queued.ID, running.ID)
		running, queued = f.take(f.a, longLease), running
		require.NoError(t, f.a.StepImport(t.Context(), store.ImportStep{ID: queued.ID, Attempt: queued.Attempt, State: store.ImportRunning}))
		for _, i := range []store.Import{receiving, queued, running} {
			for range 2 {
				got, err := f.b.CancelImport(t.Context(), tenant, i.ID)
				require.NoError(t, err)
				assert.Equal(t, store.ImportCancelled, got.State)
			}
			f.gone(i.ID, 0)
		}
		require.ErrorIs(t, f.a.AddImportChunk(t.Context(), receiving.ID, 1, 1, []byte("x"), 0), store.ErrFenced)
		_, err = f.a.SealImport(t.Context(), receiving, []byte("sum"))
		require.ErrorIs(t, err, store.ErrFenced)
		require.ErrorIs(t, f.a.StepImport(t.Context(), step(running, store.ImportRunning)), store.ErrFenced)
		taken := f.take(f.b, longLease)
		require.Equal(t, done.ID, taken.ID, "its turn has come")
		require.NoError(t, f.b.StepImport(t.Context(), step(taken, store.ImportDone)))
		got, err := f.a.CancelImport(t.Context(), tenant, done.ID)
		require.NoError(t, err)
		assert.Equal(t, store.ImportDone, got.State, "it was at its end")
		_, err = f.a.CancelImport(t.Context(), tenant, store.ClaimID{1})
		require.ErrorIs(t, err, store.ErrNotFound)
	}},
	{"I11 tenants stay apart", func(t *testing.T, f *operatorFixture) {
		made := f.file(f.a, lab(), "x")
		i := f.take(f.a, longLease)
		s := step(i, store.ImportRunning)
		s.Rows = []store.ImportRow{{Row: 1, Line: 1, Status: "invalid"}}
		require.NoError(t, f.a.StepImport(t.Context(), s))
		_, err := f.a.Import(t.Context(), "zest", made.ID)
		require.ErrorIs(t, err, store.ErrNotFound)
		_, err = f.a.CancelImport(t.Context(), "zest", made.ID)
		require.ErrorIs(t, err, store.ErrNotFound)
		listed, err := f.a.ListImports(t.Context(), "zest", store.ClaimID{}, 10)
		require.NoError(t, err)
		assert.Empty(t, listed)
		rows, err := f.a.ImportRows(t.Context(), "zest", made.ID, 0, 10)
		require.NoError(t, err)
		assert.Empty(t, rows)
		assert.Equal(t, store.ImportRunning, f.found(made.ID).State)
	}},
	{"imports list page by page, the latest first", func(t *testing.T, f *operatorFixture) {
		var want []store.ClaimID
		for range 5 {
			i, err := f.a.CreateImport(t.Context(), lab(), 0)
			require.NoError(t, err)
			want = append([]store.ClaimID{i.ID}, want...)
		}
		var got []store.ClaimID
		for before := (store.ClaimID{}); ; before = got[len(got)-1] {
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
	{"I7 what ended long ago and what stopped coming in is pruned", func(t *testing.T, f *operatorFixture) {
		past, future := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
		stalled, err := f.a.CreateImport(t.Context(), lab(), 0)
		require.NoError(t, err)
		require.NoError(t, f.a.AddImportChunk(t.Context(), stalled.ID, 0, 1, []byte("x"), 0))
		f.file(f.a, lab(), "done")
		done := f.take(f.a, longLease)
		s := step(done, store.ImportDone)
		s.Rows = []store.ImportRow{{Row: 1, Line: 1, Status: "invalid"}}
		require.NoError(t, f.a.StepImport(t.Context(), s))
		open := f.file(f.a, lab(), "open")
		n, err := f.b.PruneImports(t.Context(), past, past)
		require.NoError(t, err)
		assert.Zero(t, n)
		n, err = f.b.PruneImports(t.Context(), past, future)
		require.NoError(t, err)
		assert.Equal(t, 1, n)
		f.gone(stalled.ID, 0)
		require.ErrorIs(t, f.a.AddImportChunk(t.Context(), stalled.ID, 1, 1, []byte("x"), 0), store.ErrFenced)
		n, err = f.b.PruneImports(t.Context(), future, future)
		require.NoError(t, err)
		assert.Equal(t, 1, n)
		rows, err := f.a.ImportRows(t.Context(), tenant, done.ID, 0, 10)
		require.NoError(t, err)
		assert.Empty(t, rows)
		listed, err := f.a.ListImports(t.Context(), tenant, store.ClaimID{}, 10)
		require.NoError(t, err)
		require.Len(t, listed, 1)
		assert.Equal(t, open.ID, listed[0].ID)
		chunk, err := f.a.ImportChunk(t.Context(), open.ID, 0)
		require.NoError(t, err)
		assert.Equal(t, "open", string(chunk))
	}},
}
