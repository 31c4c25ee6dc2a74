package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/sinks/sinktest"
	"github.com/seed-86dfc502/weir/tests/servers"
)

// named is a URL under an application name by which the server tells its connections.
func named(t testing.TB, address, name string) string {
	u, err := url.Parse(address)
	require.NoError(t, err)
	q := u.Query()
	q.Set("application_name", name)
	u.RawQuery = q.Encode()
	return u.String()
}

func connect(t testing.TB, address string) *pgx.Conn {
	c, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// deliver drives a sink as the deliver stage does, until its work is done.
func deliver(ctx context.Context, work func() error) error {
	for {
		err := work()
		if err == nil || sinks.Classify(err).Class != sinks.Retry || !sinks.Classify(err).Await(ctx, 10*time.Millisecond) {
			return err
		}
	}
}

// The server has room for 100 connections. 200 services open and write at the same
// time, over 8, and the store, on the same server, has all of its own.
func TestServicesOfOneServerShareItsConnections(t *testing.T) {
	const services, most = 200, 8
	server := servers.StartOwn(t, "postgres")
	var targets sinks.Targets
	store, err := pgxpool.New(t.Context(), named(t, server.Address, "store")+"&pool_max_conns=8")
	require.NoError(t, err)
	defer store.Close()
	observer := connect(t, server.Address)
	count := func(ctx context.Context) (n int) {
		require.NoError(t, observer.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'sinks'").Scan(&n))
		return n
	}

	var g errgroup.Group
	var all []*Sink
	looked := make(chan struct{}) // while they write
	for i := range services {
		name := fmt.Sprintf("acme/view_%d@warehouse", i)
		s, err := New(Options{URL: named(t, server.Address, "sinks") + fmt.Sprint("&pool_max_conns=", most), Table: fmt.Sprintf("t%d", i), Service: name, Targets: &targets})
		require.NoError(t, err)
		all = append(all, s)
		g.Go(func() error {
			if err := s.Open(t.Context()); err != nil {
				return fmt.Errorf("open: %w", err)
			}
			for n := range int64(5) {
				if n == 4 {
					<-looked
				}
				if err := s.Write(t.Context(), []change.Change{sinktest.Change(name, "e", change.NewVersion(1, n), []byte(`{"n":1}`))}); err != nil {
					return fmt.Errorf("write: %w", err)
				}
			}
			return nil
		})
	}
	written := make(chan error, 1)
	go func() { written <- g.Wait() }()
	tellOnce := sync.OnceFunc(func() { close(looked) })
	defer tellOnce()
	for done := false; !done; {
		require.LessOrEqual(t, count(t.Context()), most)
		var held []*pgxpool.Conn
		for range 8 {
			c, err := store.Acquire(t.Context())
			require.NoError(t, err, "the store is starved")
			held = append(held, c)
		}
		for _, c := range held {
			c.Release()
		}
		tellOnce()
		select {
		case err := <-written:
			require.NoError(t, err)
			done = true
		default:
		}
	}
	require.Equal(t, most, count(t.Context()), "they are kept for the next writes")
	for i, s := range all {
		require.Positive(t, count(t.Context()), "closed with %d services left", services-i)
		require.NoError(t, s.Close())
	}
	require.Eventually(t, func() bool { return count(t.Context()) == 0 }, time.Minute, 10*time.Millisecond, "the last service closes them")
}

// Another session holds a lock on a table that six services write to. Those of other tables
// go on meanwhile.
func TestALockedTableHoldsUpItsOwnServicesOnly(t *testing.T) {
	address := servers.Postgres(t)
	pooled := named(t, address, "sinks") + "&pool_max_conns=4"
	var c Config
	c.URL = config.NewSecret(pooled)
	require.NoError(t, c.Ask(t.Context(), nil))
	var targets sinks.Targets
	sink := func(table string) *Sink {
		return opened(t, Options{URL: pooled, Table: table, Targets: &targets})
	}
	var stuck, others []*Sink
	for range 6 {
		stuck = append(stuck, sink("locked"))
	}
	for i := range 3 {
		others = append(others, sink(fmt.Sprintf("other_%d", i)))
	}
	holder, observer := connect(t, address), connect(t, address)
	lock, err := holder.Begin(t.Context())
	require.NoError(t, err)
	_, err = lock.Exec(t.Context(), "LOCK TABLE locked IN ACCESS EXCLUSIVE MODE")
	require.NoError(t, err)

	var g errgroup.Group
	failures := make(chan error, len(stuck))
	for i, s := range stuck {
		g.Go(func() error {
			first := true
			return deliver(t.Context(), func() error {
				err := s.Write(t.Context(), []change.Change{upsert(fmt.Sprint("e", i), 1, "x")})
				if first {
					first = false
					failures <- err
				}
				return err
			})
		})
	}
	waiting := func() (n int) {
		require.NoError(t, observer.QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'locked'::regclass").Scan(&n))
		return n
	}
	require.Eventually(t, func() bool { return waiting() == 2 }, time.Minute, time.Millisecond)
	for n := range int64(50) {
		for i, s := range others {
			require.NoError(t, s.Write(t.Context(), []change.Change{upsert(fmt.Sprint("e", i), n, "x")}))
		}
		require.LessOrEqual(t, waiting(), 2, "half of the connections")
	}
	// No wait is endless: the statement fails, and says nothing about the server.
	e := sinks.Classify(<-failures)
	require.ErrorContains(t, e, "55P03")
	require.Equal(t, sinks.Retry, e.Class)
	require.False(t, e.Unreachable)
	require.False(t, e.Ambiguous)
	require.NoError(t, lock.Rollback(t.Context()))
	require.NoError(t, g.Wait())
}

// Services of a server that is down share the times of the attempts.
func TestServicesOfADeadServerShareItsOutage(t *testing.T) {
	var targets sinks.Targets
	open := func(table string) error {
		return newSink(t, Options{URL: "postgres://u@127.0.0.1:1/x?sslmode=disable", Table: table, Service: service, Targets: &targets}).Open(t.Context())
	}
	require.Eventually(t, func() bool {
		for _, err := range []error{open("one"), open("other")} {
			require.Equal(t, sinks.Retry, classOf(err), "%v", err)
			if errors.Is(err, sinks.ErrDown) {
				return true
			}
		}
		return false
	}, time.Minute, time.Millisecond)
}
