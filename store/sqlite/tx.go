package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"time"

	sqlite3 "modernc.org/sqlite/lib"
)

// tx is a write transaction on the one connection that writes. Its statements
// run to their end whatever the caller's context says, which saves a goroutine
// per statement; the context is looked at before the transaction, before its
// commit, and where callers of store methods compute.
type tx struct {
	conn *sql.Conn
	ctx  context.Context
}

// write runs f in a transaction that holds the file's write lock. An error of
// f comes back as it is.
func (s *Store) write(ctx context.Context, operation string, f func(tx tx) error) error {
	conn, err := s.writer.Conn(ctx)
	if err != nil {
		return failed(operation, err)
	}
	t := tx{conn: conn, ctx: context.WithoutCancel(ctx)}
	committed := false
	defer func() {
		if !committed {
			if _, err := conn.ExecContext(t.ctx, "ROLLBACK"); err != nil {
				// None was open, or it is in an unknown state: the pool opens another.
				_ = conn.Raw(func(any) error { return driver.ErrBadConn })
			}
		}
		_ = conn.Close() // gives it back
	}()
	err = s.patiently(ctx, func() error {
		_, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE")
		return err
	})
	if err != nil {
		return failed(operation, err)
	}
	if err := f(t); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return failed(operation, err)
	}
	if _, err := conn.ExecContext(t.ctx, "COMMIT"); err != nil {
		return failedCommit(operation, err)
	}
	committed = true
	return nil
}

// patiently repeats f, which waits a little itself, while another handle has
// the file's lock, until the context or the patience is over.
func (s *Store) patiently(ctx context.Context, f func() error) error {
	for start := time.Now(); ; {
		err := f()
		if ctx.Err() != nil && err != nil {
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		if code, ok := primary(err); !ok || code != sqlite3.SQLITE_BUSY || time.Since(start) > s.patience {
			return err
		}
	}
}

// read runs f on one snapshot, beside the writer.
func (s *Store) read(ctx context.Context, operation string, f func(conn *sql.Tx) error) error {
	t, err := s.readers.BeginTx(ctx, nil)
	if err != nil {
		return failed(operation, err)
	}
	defer func() { _ = t.Rollback() }() // a read has nothing to lose
	if err := f(t); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		return failed(operation, err)
	}
	return nil
}

// preparer is a connection or a transaction.
type preparer interface {
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
}

// each prepares a statement and hands it to run n times.
func each(ctx context.Context, p preparer, query string, n int, run func(i int, statement *sql.Stmt) error) error {
	if n == 0 {
		return nil
	}
	statement, err := p.PrepareContext(ctx, query)
	if err != nil {
		return err
	}
	defer func() { _ = statement.Close() }()
	for i := range n {
		if err := run(i, statement); err != nil {
			return err
		}
	}
	return nil
}

// exec runs a prepared statement and tells how many rows it changed.
func (t tx) exec(statement *sql.Stmt, args ...any) (int64, error) {
	result, err := statement.ExecContext(t.ctx, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func micros(t time.Time) int64 { return t.UnixMicro() }

func fromMicros(n int64) time.Time { return time.UnixMicro(n).UTC() }

// notNil is for columns that are never null.
func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
