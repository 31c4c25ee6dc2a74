package storetest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/store"
)

// refused is the dead letter of a row of an import.
func refused(row int64) store.DeadLetter {
	return store.DeadLetter{
		Stage: store.StageIngest, Code: "bad_json", Reason: "no \"entity\" \x00 é", Source: "lab", Payload: []byte("{"),
		Headers: fmt.Appendf(nil, `{"row":"%d"}`, row), State: store.LetterOpen, DedupKey: fmt.Sprintf("import/%03d", row),
	}
}

// keysOf pages through the letters of rows up to 300 and returns their keys.
func (f *operatorFixture) keysOf(limit int) (keys []string) {
	f.Helper()
	for after := "import/"; ; after = keys[len(keys)-1] {
		page, err := f.b.LettersByKey(f.ctx(), after, "import/300", limit)
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

var jobTests = []operatorTest{
	{"a job is opened once and goes on where its cursor is", func(t *testing.T, f *operatorFixture) {
		wanted := store.Job{Kind: "replay", Key: "k", Parameters: []byte(`{"all":true}`), Total: 10, Actor: "root@host"}
		first, err := f.a.OpenJob(t.Context(), wanted)
		require.NoError(t, err)
		assert.Equal(t, store.JobOpen, first.State)
		assert.Nil(t, first.Cursor)
		assert.JSONEq(t, `{"all":true}`, string(first.Parameters))
		assert.WithinDuration(t, time.Now(), first.Created, time.Minute)
		first.Cursor, first.Done = []byte("e-5"), 5
		require.NoError(t, f.a.SaveJob(t.Context(), &first))

		other := wanted
		other.Key = "another"
		unrelated, err := f.b.OpenJob(t.Context(), other)
		require.NoError(t, err)
		assert.NotEqual(t, first.ID, unrelated.ID)

		again, err := f.b.OpenJob(t.Context(), wanted)
		require.NoError(t, err)
		assert.Equal(t, first.ID, again.ID)
		assert.Equal(t, "e-5", string(again.Cursor))
		assert.EqualValues(t, 5, again.Done)
		assert.EqualValues(t, 10, again.Total)

		require.ErrorIs(t, f.a.SaveJob(t.Context(), &first), store.ErrFenced, "the turn is another's")
		again.Done, again.State = 10, store.JobDone
		require.NoError(t, f.b.SaveJob(t.Context(), &again))
		require.ErrorIs(t, f.b.SaveJob(t.Context(), &again), store.ErrFenced, "it is finished")

		fresh, err := f.a.OpenJob(t.Context(), wanted)
		require.NoError(t, err)
		assert.NotEqual(t, first.ID, fresh.ID)
		assert.Zero(t, fresh.Done)

		listed, err := f.b.ListJobs(t.Context(), store.JobFilter{Kind: "replay", Limit: 10})
		require.NoError(t, err)
		require.Len(t, listed, 3)
		assert.Equal(t, fresh.ID, listed[0].ID, "the latest first")
		listed, err = f.b.ListJobs(t.Context(), store.JobFilter{State: store.JobDone, Limit: 10})
		require.NoError(t, err)
		require.Len(t, listed, 1)
		listed, err = f.b.ListJobs(t.Context(), store.JobFilter{Kind: "import", Limit: 10})
		require.NoError(t, err)
		require.Empty(t, listed)
	}},
	{"of callers at the same time one has the turn", func(t *testing.T, f *operatorFixture) {
		jobs := make([]store.Job, 6)
		var callers sync.WaitGroup
		for i := range jobs {
			s := turn(i, f.a, f.b)
			callers.Go(func() {
				var err error
				jobs[i], err = s.OpenJob(t.Context(), store.Job{Kind: "replay", Key: "k", Actor: fmt.Sprint(i)})
				assert.NoError(t, err)
			})
		}
		callers.Wait()
		turns := map[int64]bool{}
		saved := 0
		for _, j := range jobs {
			assert.Equal(t, jobs[0].ID, j.ID)
			assert.False(t, turns[j.Epoch])
			turns[j.Epoch] = true
			if err := f.a.SaveJob(t.Context(), &j); err == nil {
				saved++
			} else {
				require.ErrorIs(t, err, store.ErrFenced)
			}
		}
		assert.Equal(t, 1, saved)
	}},
	{"I5 of saves at once from one epoch one is made, with its letters", func(t *testing.T, f *operatorFixture) {
		j, err := f.a.OpenJob(t.Context(), store.Job{Tenant: "acme", Kind: "import", Key: "one"})
		require.NoError(t, err)
		var callers sync.WaitGroup
		var made atomic.Int64
		for n := range int64(8) {
			callers.Go(func() {
				own := j
				own.Done = n + 1
				if err := turn(int(n), f.a, f.b).SaveJob(t.Context(), &own, refused(own.Done)); err == nil {
					made.Add(own.Done)
				} else {
					assert.ErrorIs(t, err, store.ErrFenced)
				}
			})
		}
		callers.Wait()
		listed, err := f.b.ListJobs(t.Context(), store.JobFilter{Tenant: "acme", Kind: "import", Key: "one", Limit: 1})
		require.NoError(t, err)
		require.Len(t, listed, 1)
		require.Equal(t, made.Load(), listed[0].Done)
		require.Equal(t, []string{refused(made.Load()).DedupKey}, f.keysOf(100))
	}},
	{"letters are read by their keys, page by page", func(t *testing.T, f *operatorFixture) {
		j, err := f.a.OpenJob(t.Context(), store.Job{Tenant: "acme", Kind: "import", Key: "one"})
		require.NoError(t, err)
		var keys []string
		for n := range int64(3) {
			var some []store.DeadLetter
			for r := n*100 + 1; r <= (n+1)*100 && n != 1; r += 2 { // one save without any
				some, keys = append(some, refused(r)), append(keys, refused(r).DedupKey)
			}
			require.NoError(t, f.a.SaveJob(t.Context(), &j, some...))
		}
		require.NoError(t, f.a.SaveJob(t.Context(), &j, refused(301)))
		for _, limit := range []int{1000, 100, 50, 33, 1} {
			require.Equal(t, keys, f.keysOf(limit), limit)
		}
		letters, err := f.b.LettersByKey(t.Context(), "", "import/001", 2)
		require.NoError(t, err)
		require.Len(t, letters, 1)
		require.Equal(t, `{"row":"1"}`, string(letters[0].Headers))
	}},
	{"I11 jobs of tenants stay apart, and list page by page", func(t *testing.T, f *operatorFixture) {
		var want, got []string
		for n := range 5 {
			key := fmt.Sprint(7 * n % 5)
			for _, tenant := range []string{"", "acme", "zest"} { // the same key of another tenant is another job
				j, err := f.a.OpenJob(t.Context(), store.Job{Tenant: tenant, Kind: "import", Key: key})
				require.NoError(t, err)
				require.EqualValues(t, 1, j.Epoch)
				j.Tenant = "globex"
				require.ErrorIs(t, f.b.SaveJob(t.Context(), &j), store.ErrFenced)
			}
			want = append([]string{key}, want...)
		}
		for filter := (store.JobFilter{Tenant: "acme", Limit: 2}); ; {
			page, err := f.b.ListJobs(t.Context(), filter)
			require.NoError(t, err)
			for _, j := range page {
				require.Equal(t, "acme", j.Tenant)
				got, filter.Before = append(got, j.Key), j.ID
			}
			if len(page) < 2 {
				break
			}
		}
		assert.Equal(t, want, got)
		listed, err := f.a.ListJobs(t.Context(), store.JobFilter{Tenant: "globex", Limit: 10})
		require.NoError(t, err)
		assert.Empty(t, listed)
	}},
	{"I7 jobs without progress are pruned, but open ones of operators stay", func(t *testing.T, f *operatorFixture) {
		_, err := f.a.OpenJob(t.Context(), store.Job{Tenant: "acme", Kind: "import", Key: "open"})
		require.NoError(t, err)
		for _, key := range []string{"done", "open"} {
			j, err := f.a.OpenJob(t.Context(), store.Job{Kind: "replay", Key: key})
			require.NoError(t, err)
			if key == "done" {
				j.State = store.JobDone
				require.NoError(t, f.a.SaveJob(t.Context(), &j))
			}
		}
		_, err = f.b.Prune(t.Context(), time.Now().Add(-time.Hour), time.Now().Add(-time.Hour))
		require.NoError(t, err)
		jobs, err := f.b.ListJobs(t.Context(), store.JobFilter{Limit: 10})
		require.NoError(t, err)
		require.Len(t, jobs, 2)
		ofTenant := store.JobFilter{Tenant: "acme", Limit: 10}
		imports, err := f.b.ListJobs(t.Context(), ofTenant)
		require.NoError(t, err)
		require.Len(t, imports, 1)
		_, err = f.b.Prune(t.Context(), time.Now().Add(time.Hour), time.Now().Add(time.Hour))
		require.NoError(t, err)
		jobs, err = f.b.ListJobs(t.Context(), store.JobFilter{Limit: 10})
		require.NoError(t, err)
		require.Len(t, jobs, 1)
		assert.Equal(t, "open", jobs[0].Key)
		imports, err = f.b.ListJobs(t.Context(), ofTenant)
		require.NoError(t, err)
		require.Empty(t, imports)
	}},
}
