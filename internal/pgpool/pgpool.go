// Package pgpool is a pgx pool that can be closed while its server does not
// answer.
//
// When a call is cancelled, pgx asks the server, on a connection of its own, to
// cancel it, and waits for the end of both for up to 15 s; closing a pool waits
// for all of that. A process that stops has no such time. It also drops the
// connections to a server that has become read-only.
package pgpool

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// grace is how long idle connections have for an orderly end.
const grace = 500 * time.Millisecond

// pingTimeout bounds the check of a connection that was idle for a second. On a silently
// broken one it would last as long as the system waits for the peer, and hold up the
// caller and a slot of the pool.
const pingTimeout = 5 * time.Second

// readOnly is the SQLSTATE of a write on a server, or in a transaction, that only reads.
const readOnly = "25006"

// Pool is a pgxpool.Pool with another Close. It may be used concurrently.
type Pool struct {
	*pgxpool.Pool
	conns *conns
}

// New is pgxpool.NewWithConfig: it does not wait for the server. It changes
// config. The end of ctx does not end the pool.
func New(ctx context.Context, config *pgxpool.Config) (*Pool, error) {
	c := &conns{open: map[*conn]bool{}}
	if config.PingTimeout == 0 {
		config.PingTimeout = pingTimeout
	}
	config.ConnConfig.DialFunc = c.dialer(config.ConnConfig.DialFunc)
	connected, closing := config.AfterConnect, config.BeforeClose
	config.AfterConnect = func(ctx context.Context, pc *pgx.Conn) error {
		c.keep(pc, true)
		if connected == nil {
			return nil
		}
		return connected(ctx, pc)
	}
	config.BeforeClose = func(pc *pgx.Conn) {
		c.keep(pc, false)
		if closing != nil {
			closing(pc)
		}
	}
	var made atomic.Pointer[pgxpool.Pool]
	told := config.ConnConfig.OnPgError
	config.ConnConfig.OnPgError = func(pc *pgconn.PgConn, err *pgconn.PgError) bool {
		if err.Code == readOnly {
			// After a fail-over: the former primary answers and rejects writes. A
			// connection to it would be used until the end of its time.
			if pool := made.Load(); pool != nil {
				pool.Reset()
			}
			return false
		}
		return told == nil || told(pc, err)
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	made.Store(pool)
	return &Pool{pool, c}, nil
}

// Close waits for calls under way, which keep their connections, and ends all
// connections. Those whose server does not take part in that are cut after
// half a second. It may be called twice.
func (p *Pool) Close() {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		p.Pool.Close()
	}()
	tick := time.NewTicker(grace)
	defer tick.Stop()
	for {
		select {
		case <-closed:
			return
		case <-tick.C:
			p.conns.cut()
		}
	}
}

// conns are the open connections, including requests to cancel.
type conns struct {
	mu   sync.Mutex
	open map[*conn]bool // guarded by mu; true if the pool has it, so a call may be under way
}

type conn struct {
	net.Conn
	of *conns
}

func (c *conns) dialer(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		dialed, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		one := &conn{dialed, c}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.open[one] = false
		return one, nil
	}
}

func (c *conn) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// keep notes whether the pool has a connection.
func (c *conns) keep(pc *pgx.Conn, kept bool) {
	dialed := pc.PgConn().Conn()
	if secured, ok := dialed.(interface{ NetConn() net.Conn }); ok {
		dialed = secured.NetConn()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if one, ok := dialed.(*conn); ok {
		if _, open := c.open[one]; open {
			c.open[one] = kept
		}
	}
}

// cut ends the connections that the pool does not have: it has abandoned them, or they
// ask the server to cancel a call.
func (c *conns) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for one, kept := range c.open {
		if !kept {
			_ = one.Conn.Close()
		}
	}
}
