package sqlite

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/store/storetest"
)

func TestLedgerConformance(t *testing.T) {
	storetest.RunLedger(t, func(t *testing.T) (storetest.Operated, storetest.Operated, func(string, string, time.Duration)) {
		a, path := migrated(t)
		return a, open(t, path), func(tenant, key string, by time.Duration) {
			a.commitOpen()
			result, err := a.writer.ExecContext(t.Context(), `UPDATE ledger SET made_at = made_at - ? WHERE tenant = ? AND key = ?`, by.Microseconds(), tenant, key)
			require.NoError(t, err)
			n, err := result.RowsAffected()
			require.NoError(t, err)
			require.EqualValues(t, 1, n)
		}
	})
}

// clock does not move until it is set.
type clock struct{ at atomic.Pointer[time.Time] }

func (c *clock) set(at time.Time) { c.at.Store(&at) }
func (c *clock) now() time.Time   { return *c.at.Load() }

// atTime opens a ledger whose two handles have one clock.
func atTime(t *testing.T) (a, b *Store, c *clock) {
	a, path := migrated(t)
	b, c = open(t, path), &clock{}
	a.now, b.now = c.now, c.now
	return a, b, c
}

// A claim costs no commit of its own: it is durable with the event that is appended under it.
// The mistake that this catches: an event that survives a crash which its claim does not, and
// an answer that a later request does not find.
func TestClaimIsDurableWithItsEvent(t *testing.T) {
	s, path := migrated(t)
	log, err := s.OpenLog(t.Context(), "inbox", 1)
	require.NoError(t, err)
	s.linger = time.Hour
	crashed := func() *Store { // as the disk is now
		to := filepath.Join(t.TempDir(), "state.db")
		for _, suffix := range []string{"", "-wal"} {
			content, err := os.ReadFile(path + suffix)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(to+suffix, content, 0o600))
		}
		return open(t, to)
	}
	claim := begin(t, s, "k", time.Hour)
	require.Equal(t, claim, begin(t, s, "k", time.Hour), "the next request sees it")
	require.NotEqual(t, claim.ID, begin(t, crashed(), "k", time.Hour).ID, "there is no event either")

	require.NoError(t, log.Append(t.Context(), []LogFrame{{Records: 1, Body: []byte("event")}}))
	require.Equal(t, claim.ID, begin(t, crashed(), "k", time.Hour).ID)

	answer := store.Response{Status: 202, Body: []byte("{}")}
	_, err = s.CompleteClaims(t.Context(), "acme", []store.Completion{{ID: claim.ID, Response: answer}})
	require.NoError(t, err)
	require.Equal(t, answer, begin(t, s, "k", time.Hour).Response)
	require.Equal(t, claim, begin(t, crashed(), "k", time.Hour), "the event is appended again")
	require.NoError(t, log.Append(t.Context(), []LogFrame{{Records: 1, Body: []byte("event")}}))
	require.Equal(t, answer, begin(t, crashed(), "k", time.Hour).Response)
}

// A full disk is reported until a commit succeeds: a claim that only joined a transaction is
// no success.
func TestClaimsDoNotHideAFullDisk(t *testing.T) {
	s, _ := migrated(t)
	log, err := s.OpenLog(t.Context(), "inbox", 1)
	require.NoError(t, err)
	s.linger = time.Hour
	limit := func(pages int) {
		_, err := s.writes.conn.ExecContext(t.Context(), fmt.Sprint("PRAGMA max_page_count = ", pages))
		require.NoError(t, err)
	}
	limit(1) // SQLite takes the present size
	require.ErrorIs(t, log.Append(t.Context(), frameOf(string(make([]byte, 1<<20)))), ErrFull)
	require.ErrorIs(t, s.Full(), ErrFull)
	begin(t, s, "k", time.Hour)
	require.ErrorIs(t, s.Full(), ErrFull)
	s.commitOpen()
	require.NoError(t, s.Full())
}

func begin(t *testing.T, s *Store, key string, keep time.Duration) store.ClaimResult {
	t.Helper()
	got, err := s.BeginClaims(t.Context(), "acme", []store.ClaimRequest{{Key: key}}, keep)
	require.NoError(t, err)
	return got[0]
}

func TestMonthsAreDroppedWhole(t *testing.T) {
	a, b, c := atTime(t)
	const keep = 400 * 24 * time.Hour
	var ids []store.ClaimID
	start := time.Date(2026, 1, 15, 0, 0, 0, 0, time.UTC)
	for i := range 5 {
		c.set(start.AddDate(0, i, 0))
		ids = append(ids, begin(t, a, fmt.Sprint("k", i), keep).ID)
	}
	stats, err := b.LedgerStats(t.Context())
	require.NoError(t, err)
	assert.Equal(t, store.MonthOf(start), stats.OldestMonth)
	assert.EqualValues(t, 5, stats.Held)
	n, err := b.RetainClaims(t.Context(), 61*24*time.Hour) // of the middle of May: the middle of March
	require.NoError(t, err)
	assert.Equal(t, 2, n)
	for i, id := range ids {
		assert.Equal(t, i >= 2, begin(t, a, fmt.Sprint("k", i), keep).ID == id, "k%d is as it was", i)
		revision, err := a.Activate(t.Context(), []byte("c"), false, store.Inbox{}, nil)
		require.NoError(t, err)
		for round := range 2 {
			err = b.Decide(t.Context(), store.Decision{Revision: revision.Number, Claims: ids}, func(loaded store.Loaded) (store.Outcome, error) {
				if round == 0 {
					assert.NotContains(t, loaded.Decided, id)
					return store.Outcome{Claims: []store.Decided{{ID: id, Version: change.Version(i)}}}, nil
				}
				assert.Contains(t, loaded.Decided, id)
				return store.Outcome{}, nil
			})
			require.NoError(t, err)
		}
	}
}

// BenchmarkLedger is a request's part of the store: claim and complete, of one
// key and of a batch.
func BenchmarkLedger(b *testing.B) {
	s, _ := migrated(b)
	next := 0
	for _, n := range []int{1, 1000} {
		b.Run(fmt.Sprintf("keys=%d", n), func(b *testing.B) {
			for b.Loop() {
				intents := make([]store.ClaimRequest, n)
				for i := range intents {
					next++
					intents[i].Key = fmt.Sprintf("event:registry:%d-%d", next%97, next)
				}
				claimed, err := s.BeginClaims(b.Context(), "acme", intents, 24*time.Hour)
				if err != nil {
					b.Fatal(err)
				}
				done := make([]store.Completion, n)
				for i := range done {
					done[i] = store.Completion{ID: claimed[i].ID, Response: store.Response{Status: 202, Body: []byte(`{"status":"accepted","claim":"0199a3e4-7c1b-7d20-8a3b-0123456789ab"}`)}}
				}
				if _, err := s.CompleteClaims(b.Context(), "acme", done); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "keys/s")
		})
	}
}
