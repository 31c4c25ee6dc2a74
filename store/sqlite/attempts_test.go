package sqlite

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/store"
)

// A day that is over goes, in steps, but for what a service keeps longer.
func TestDaysOfTheHistoryGo(t *testing.T) {
	s, _ := migrated(t)
	ctx := t.Context()
	now := time.Date(2026, 3, 20, 12, 0, 0, 0, time.UTC)
	write := func(ago int, service int32, n int) {
		s.now = func() time.Time { return now.AddDate(0, 0, -ago) }
		attempts := make([]store.Attempt, n)
		for i := range attempts {
			attempts[i] = store.Attempt{Service: service, Entity: fmt.Sprint("e", i), At: s.now().Add(time.Duration(i) * time.Millisecond)}
		}
		require.NoError(t, s.AddAttempts(ctx, attempts))
		s.now = func() time.Time { return now }
	}
	week, month := store.AttemptBound{Keep: 7 * 24 * time.Hour, MaxBytes: 1 << 30}, store.AttemptBound{Keep: 30 * 24 * time.Hour, MaxBytes: 1 << 30}
	write(9, 1, 3)
	write(9, 2, 3)
	write(8, 1, trimStep+7)
	write(6, 1, 3)
	n, err := s.RetainAttempts(ctx, map[int32]store.AttemptBound{1: week, 2: month}, week)
	require.NoError(t, err)
	require.EqualValues(t, 3+trimStep+7, n)
	left, err := s.ListAttempts(ctx, store.AttemptFilter{Limit: 10_000})
	require.NoError(t, err)
	require.Len(t, left, 6)

	write(5, 3, 2*trimStep+100)
	size := (&store.Attempt{Entity: "e1000"}).Size()
	n, err = s.RetainAttempts(ctx, map[int32]store.AttemptBound{1: week, 2: month, 3: {Keep: week.Keep, MaxBytes: 100 * size}}, week)
	require.NoError(t, err)
	require.InDelta(t, 2*trimStep+10, n, 5) // a few entities have shorter names
	left, err = s.ListAttempts(ctx, store.AttemptFilter{Services: []int32{3}, Limit: 10_000})
	require.NoError(t, err)
	require.Len(t, left, 2*trimStep+100-int(n))
	require.Equal(t, fmt.Sprint("e", 2*trimStep+99), left[0].Entity)
	again, err := s.RetainAttempts(ctx, map[int32]store.AttemptBound{1: week, 2: month, 3: {Keep: week.Keep, MaxBytes: 100 * size}}, week)
	require.NoError(t, err)
	require.Zero(t, again)
}

// I7: a purge leaves nothing behind where no attempts are kept.
func TestPurgesAreForgottenWithoutAttempts(t *testing.T) {
	s, _ := migrated(t)
	ctx := t.Context()
	revision, err := s.Activate(ctx, []byte("c"), 0, false)
	require.NoError(t, err)
	_, err = s.Decide(ctx, store.Decision{Revision: revision.Number}, func(store.Loaded) (store.Outcome, error) {
		return store.Outcome{Purged: []string{"a", "b"}}, nil
	})
	require.NoError(t, err)
	_, err = s.RetainAttempts(ctx, nil, store.AttemptBound{})
	require.NoError(t, err)
	var n int
	require.NoError(t, s.readers.QueryRowContext(ctx, `SELECT count(*) FROM deliveries_purged`).Scan(&n))
	require.Zero(t, n)
}

// I7: attempts that were written while the clock was ahead stand before older ones,
// which go all the same.
func TestAttemptsGoBehindThoseOfAClockThatWasAhead(t *testing.T) {
	s, _ := migrated(t)
	ctx := t.Context()
	now := time.Date(2026, 3, 20, 12, 0, 0, 0, time.UTC)
	write := func(days, n int) {
		s.now = func() time.Time { return now.AddDate(0, 0, days) }
		attempts := make([]store.Attempt, n)
		for i := range attempts {
			attempts[i] = store.Attempt{Service: 1, Entity: "e", At: s.now()}
		}
		require.NoError(t, s.AddAttempts(ctx, attempts))
	}
	write(365, trimStep)
	write(0, 10)
	write(9, 3)
	n, err := s.RetainAttempts(ctx, nil, store.AttemptBound{Keep: 7 * 24 * time.Hour, MaxBytes: 1 << 30})
	require.NoError(t, err)
	require.EqualValues(t, 10, n)
	left, err := s.ListAttempts(ctx, store.AttemptFilter{Limit: 10_000})
	require.NoError(t, err)
	require.Len(t, left, trimStep+3)
}

// An entity may be purged while the attempts of others are being deleted, and have the
// last of them before the same id: its own go with the next pass.
func TestAPurgeBesideThePassIsNotForgotten(t *testing.T) {
	s, _ := migrated(t)
	ctx := t.Context()
	revision, err := s.Activate(ctx, []byte("c"), 0, false)
	require.NoError(t, err)
	purge := func(entity string) {
		_, err := s.Decide(ctx, store.Decision{Revision: revision.Number}, func(store.Loaded) (store.Outcome, error) {
			return store.Outcome{Purged: []string{entity}}, nil
		})
		require.NoError(t, err)
	}
	count := func(where string) (n int) {
		require.NoError(t, s.readers.QueryRowContext(ctx, `SELECT count(*) FROM deliveries WHERE `+where).Scan(&n))
		return n
	}
	attempts := make([]store.Attempt, 40*trimStep)
	for i := range attempts {
		attempts[i] = store.Attempt{Service: 1, Entity: "stays", At: time.Now()}
	}
	attempts[0].Entity, attempts[1].Entity = "first", "second"
	require.NoError(t, s.AddAttempts(ctx, attempts))
	purge("first")
	bound := store.AttemptBound{Keep: 7 * 24 * time.Hour, MaxBytes: 1 << 30}
	done := make(chan error)
	go func() {
		_, err := s.RetainAttempts(ctx, nil, bound)
		done <- err
	}()
	require.Eventually(t, func() bool { return count("id = 1") == 0 }, time.Minute, 100*time.Microsecond)
	purge("second")
	require.NoError(t, <-done)
	require.Equal(t, 1, count("id <= 2"))
	left, err := s.ListAttempts(ctx, store.AttemptFilter{Entity: "second"})
	require.NoError(t, err)
	require.Empty(t, left)
	_, err = s.RetainAttempts(ctx, nil, bound)
	require.NoError(t, err)
	require.Zero(t, count("id <= 2"))
	var purges int
	require.NoError(t, s.readers.QueryRowContext(ctx, `SELECT count(*) FROM deliveries_purged`).Scan(&purges))
	require.Zero(t, purges)
}
