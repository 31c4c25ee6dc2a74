package pgpool_test

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/seed-86dfc502/weir/internal/pgpool"
	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server takes connections in and then listens without a word; with answer it
// answers one query on each, after answer is closed. Its connections are in
// memory, for the bubbles of synctest: what takes how long is up to no machine.
func server(t *testing.T, asked chan<- struct{}, answer <-chan struct{}) *pgpool.Pool {
	var running sync.WaitGroup
	serve := func(c net.Conn) {
		defer c.Close()
		b := pgproto3.NewBackend(c, c)
		if first, err := b.ReceiveStartupMessage(); err != nil {
			return
		} else if _, ok := first.(*pgproto3.StartupMessage); ok {
			b.Send(&pgproto3.AuthenticationOk{})
			b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
			_ = b.Flush()
			if _, err := b.Receive(); err != nil {
				return
			}
			asked <- struct{}{}
			if answer != nil {
				<-answer
				b.Send(&pgproto3.CommandComplete{CommandTag: []byte("SELECT 0")})
				b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
				_ = b.Flush()
			}
		}
		_, _ = io.Copy(io.Discard, c) // until the client ends it
	}
	t.Cleanup(running.Wait)
	config, err := pgxpool.ParseConfig("postgres://weir@127.0.0.1/weir?sslmode=disable&default_query_exec_mode=simple_protocol")
	require.NoError(t, err)
	config.ConnConfig.DialFunc = func(context.Context, string, string) (net.Conn, error) {
		client, served := net.Pipe()
		running.Go(func() { serve(served) })
		return client, nil
	}
	pool, err := pgpool.New(t.Context(), config)
	require.NoError(t, err)
	return pool
}

// A call that was given up does not keep Close for as long as pgx, 15 s, waits
// for the server to take note of it.
func TestCloseDoesNotWaitForASilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := make(chan struct{}, 1)
		pool := server(t, asked, nil)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-asked
			cancel()
		}()
		_, err := pool.Exec(ctx, "SELECT")
		require.ErrorIs(t, err, context.Canceled)
		start := time.Now()
		pool.Close()
		require.LessOrEqual(t, time.Since(start), 2*time.Second, "Close waits for a server that says nothing")
		pool.Close()
	})
}

// A call under way keeps its connection for as long as it takes.
func TestCloseWaitsForCallsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, answer := make(chan struct{}, 1), make(chan struct{})
		pool := server(t, asked, answer)
		result := make(chan error, 1)
		go func() {
			_, err := pool.Exec(t.Context(), "SELECT")
			result <- err
		}()
		<-asked
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			pool.Close()
		}()
		select {
		case <-closed:
			require.Fail(t, "Close did not wait")
		case <-time.After(time.Minute):
		}
		close(answer)
		require.NoError(t, <-result)
		<-closed
	})
}

// A connection whose server has fallen silent while it was idle is replaced, and
// does not keep Close when its caller has gone.
func TestIdleConnectionToASilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, answer := make(chan struct{}, 3), make(chan struct{})
		close(answer)
		pool := server(t, asked, answer)
		query := func(ctx context.Context) error {
			_, err := pool.Exec(ctx, "SELECT")
			<-time.After(2 * time.Second) // long enough to be asked whether it works
			return err
		}
		require.NoError(t, query(t.Context()))
		start := time.Now()
		require.NoError(t, query(t.Context()))
		require.Less(t, time.Since(start), 10*time.Second)
		require.Len(t, asked, 2, "on another connection")

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		require.ErrorIs(t, query(ctx), context.Canceled)
		start = time.Now()
		pool.Close()
		require.Less(t, time.Since(start), 10*time.Second)
	})
}

// After a fail-over the server that was the primary answers and takes nothing. The
// mistake that this catches: the pool kept its connections to it, one after the
// other, and every call that got one failed.
func TestConnectionsToAServerThatOnlyReadsAreDropped(t *testing.T) {
	ctx := t.Context()
	config, err := pgxpool.ParseConfig(servers.Postgres(t))
	require.NoError(t, err)
	config.MaxConns = 4
	pool, err := pgpool.New(ctx, config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	pids := map[uint32]bool{}
	all := make([]*pgxpool.Conn, config.MaxConns)
	for i := range all {
		all[i], err = pool.Acquire(ctx)
		require.NoError(t, err)
		pids[all[i].Conn().PgConn().PID()] = true
		// The effect of a demotion on a session.
		_, err = all[i].Exec(ctx, "SET default_transaction_read_only = on")
		require.NoError(t, err)
	}
	for _, conn := range all {
		conn.Release()
	}
	_, err = pool.Exec(ctx, "CREATE TABLE written ()")
	var failed *pgconn.PgError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, "25006", failed.Code)
	for range 2 * len(all) {
		_, err := pool.Exec(ctx, "CREATE TABLE IF NOT EXISTS written ()")
		require.NoError(t, err, "all of the others were dropped with it")
	}
	conn, err := pool.Acquire(ctx)
	require.NoError(t, err)
	require.False(t, pids[conn.Conn().PgConn().PID()])
	conn.Release()
}
