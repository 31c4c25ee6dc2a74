package postgres

import (
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// A call that inserts a row while another updates it, and the other way round
// with another row, do not dead-lock: inserts come before updates.
func TestCheckRowSwapsDoNotDeadlock(t *testing.T) {
	s, url := migrated(t)
	other := handle(t, url)
	ctx := t.Context()
	row := func(e string, revision int64) store.CheckRow {
		return store.CheckRow{Key: store.Key{Service: 1, Entity: e}, Revision: revision, Content: change.Content{1}, Version: 1}
	}
	_, err := s.SwapCheckRows(ctx, []store.CheckRow{row("r", 0)})
	require.NoError(t, err)
	// Another transaction is inserting "p".
	gate, err := s.pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = gate.Rollback(ctx) }()
	var holder int32
	require.NoError(t, gate.QueryRow(ctx, `SELECT pg_backend_pid()`).Scan(&holder))
	_, err = gate.Exec(ctx, `INSERT INTO checks (entity, service, revision, version, delivered_version) VALUES ('p', 1, 1, 1, 0)`)
	require.NoError(t, err)
	run := func(on *Store, rows ...store.CheckRow) (swapped []bool, wait func()) {
		swapped = make([]bool, len(rows))
		done := make(chan struct{})
		go func() {
			defer close(done)
			got, err := on.SwapCheckRows(ctx, rows)
			assert.NoError(t, err)
			copy(swapped, got)
		}()
		return swapped, func() { <-done }
	}
	// The first holds "a" and waits for "p"; it will come to "r", which it takes
	// for missing. The second wants "a", and "r" as it is.
	first, firstEnds := run(other, row("a", 0), row("p", 0), row("r", 0))
	at := behind(t, s, holder)
	second, secondEnds := run(handle(t, url), row("a", 0), row("r", 1))
	behind(t, s, at)
	require.NoError(t, gate.Rollback(ctx))
	firstEnds()
	secondEnds()
	assert.Equal(t, []bool{true, true, false}, first)
	assert.Equal(t, []bool{false, true}, second)
}

// I8: a session that hangs in its transaction with a row locked holds a caller for
// a bounded time: that one fails, for certain and without effect, while the lock is
// still held, and others go on. The mistake that this catches: every request with
// that row in its batch waits until the server is taken for silent.
func TestACheckDoesNotWaitForALockForEver(t *testing.T) {
	s, url := migrated(t)
	s.lockTimeout = lockTimeout
	ctx := t.Context()
	row := func(e string, revision int64) store.CheckRow {
		return store.CheckRow{Key: store.Key{Service: 1, Entity: e}, Revision: revision, Content: change.Content{byte(revision)}, Version: 1}
	}
	_, err := s.SwapCheckRows(ctx, []store.CheckRow{row("a", 0), row("b", 0)})
	require.NoError(t, err)
	hung, err := handle(t, url).pool.Begin(ctx)
	require.NoError(t, err)
	defer func() { _ = hung.Rollback(ctx) }()
	_, err = hung.Exec(ctx, `SELECT FROM checks WHERE entity = 'b' FOR UPDATE`)
	require.NoError(t, err)
	_, err = s.SwapCheckRows(ctx, []store.CheckRow{row("a", 1), row("b", 1)})
	var pg *pgconn.PgError
	require.ErrorAs(t, err, &pg)
	assert.Equal(t, "55P03", pg.Code, "lock_not_available")
	assert.Equal(t, store.Retry, store.ClassOf(err), "nothing was written, for certain")
	for _, want := range []bool{true, false} {
		swapped, err := s.SwapCheckRows(ctx, []store.CheckRow{row("a", 1)})
		require.NoError(t, err)
		assert.Equal(t, []bool{want}, swapped)
	}
	require.NoError(t, hung.Rollback(ctx))
	swapped, err := s.SwapCheckRows(ctx, []store.CheckRow{row("b", 1)})
	require.NoError(t, err)
	assert.Equal(t, []bool{true}, swapped)
}
