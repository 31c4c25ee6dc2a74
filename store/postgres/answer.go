package postgres

import (
	"context"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// defaultAnswerTimeout is as long as a transaction of another process that
// went silent may hold its locks: see idle_in_transaction_session_timeout.
const defaultAnswerTimeout = time.Minute

var errSilent error = silence{}

// silence is an error that errors.Is takes for ETIMEDOUT. It has no Timeout method, by which
// pgx would take it for the end of a context.
type silence struct{}

func (silence) Error() string { return "the server has been silent for too long" }

// Is reports whether target is ETIMEDOUT.
func (silence) Is(target error) bool { return target == syscall.ETIMEDOUT }

// answering makes connections that fail when the server is silent for longer
// than limit while an answer is due. TCP alone would notice a connection whose
// other end has gone without a word after many minutes, or, behind a proxy that
// lives, never; until then the caller would neither fail nor continue. While
// patient is above 0 nothing is given up.
func answering(dial pgconn.DialFunc, limit time.Duration, patient *atomic.Int32) pgconn.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &answeringConn{Conn: conn, limit: limit, patient: patient}, nil
	}
}

type answeringConn struct {
	net.Conn
	limit   time.Duration
	patient *atomic.Int32
	silent  atomic.Bool
}

// Read waits for the server, which it does only while an answer is due: pgx
// reads nothing from a connection that is idle.
func (c *answeringConn) Read(b []byte) (int, error) {
	late := time.AfterFunc(c.limit, func() {
		if c.patient.Load() == 0 {
			// Not by a deadline: pgx sets the connection's deadlines.
			c.silent.Store(true)
			_ = c.Conn.Close()
		}
	})
	n, err := c.Conn.Read(b)
	late.Stop()
	if err != nil && c.silent.Load() {
		return n, errSilent
	}
	return n, err
}
