package postgres

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/tests/servers"
)

// muted is a connection whose writes get lost once it is told so.
type muted struct {
	net.Conn
	mute *atomic.Bool
}

func (m muted) Write(b []byte) (int, error) {
	if m.mute.Load() {
		return len(b), nil
	}
	return m.Conn.Write(b)
}

// A server that no longer answers must not keep Migrate from ending, and the
// session that may keep the lock must end.
func TestUnlockEnds(t *testing.T) {
	config, err := pgx.ParseConfig(servers.Postgres(t))
	require.NoError(t, err)
	var mute atomic.Bool
	var session net.Conn
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		if mute.Load() { // the request to cancel that follows
			return c, err
		}
		session = c
		return muted{c, &mute}, err
	}
	conn, err := pgx.ConnectConfig(t.Context(), config)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "SELECT pg_advisory_lock($1::bigint)", int64(migrationLock))
	require.NoError(t, err)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, unlock(over, conn, testPatience), "a context that is over does not keep the lock")
	require.False(t, conn.IsClosed())

	mute.Store(true)
	require.ErrorIs(t, unlock(over, conn, 100*time.Millisecond), context.DeadlineExceeded)
	require.True(t, conn.IsClosed())
	if err := session.Close(); err != nil { // pgx waits for the server to do it, unless it was late to begin with
		require.ErrorIs(t, err, net.ErrClosed)
	}
	<-conn.PgConn().CleanupDone()
}
