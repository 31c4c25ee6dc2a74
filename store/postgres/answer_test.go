package postgres

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/tests/servers"
)

const shortAnswer = 300 * time.Millisecond

func impatient(t *testing.T, url string) *Store {
	t.Helper()
	s, err := Open(t.Context(), Options{URL: url, AnswerTimeout: shortAnswer})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// A server that keeps its connections and says nothing is an error that may be
// tried again, not a wait without an end; it resumes when the server does.
func TestSilentServerFailsTheCall(t *testing.T) {
	server := servers.StartOwn(t, "postgres")
	s := impatient(t, server.Address)
	require.NoError(t, s.Migrate(t.Context()))
	takeOver := func() error {
		_, err := s.TakeOver(t.Context(), []store.Partition{p0}, store.Token{1})
		return err
	}
	answers := func() {
		t.Helper()
		require.Eventually(t, func() bool { return takeOver() == nil }, testPatience, testPoll)
	}
	answers() // on a busy machine not always in time
	server.Pause()
	for range 2 { // on the connection that is there, and on a new one
		err := takeOver()
		require.Error(t, err)
		require.Equal(t, store.Retry, store.ClassOf(err), "%v", err)
	}
	server.Resume()
	answers()
}

// A migration may take as long as it takes.
func TestMigrationIsWaitedFor(t *testing.T) {
	url := servers.Postgres(t)
	other, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer other.Close(t.Context())
	lock := func(statement string) {
		_, err := other.Exec(t.Context(), "SELECT "+statement+"($1::bigint)", int64(migrationLock))
		require.NoError(t, err)
	}
	lock("pg_advisory_lock")
	s := impatient(t, url)
	done := make(chan error, 1)
	go func() { done <- s.Migrate(t.Context()) }()
	select {
	case err := <-done:
		require.FailNow(t, "it did not wait", "%v", err)
	case <-time.After(3 * shortAnswer):
	}
	lock("pg_advisory_unlock")
	require.NoError(t, <-done)
}
