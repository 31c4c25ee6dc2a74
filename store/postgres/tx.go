package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// begin names the isolation level, so that a server with another default is
// no different.
const begin = "BEGIN ISOLATION LEVEL READ COMMITTED"

// queueBegin begins a pipeline that queueCommit ends.
func (s *Store) queueBegin(b *pgx.Batch) {
	b.Queue(begin)
	if s.set != "" {
		b.Queue(s.set)
	}
}

// beginning is the text of queueBegin.
func (s *Store) beginning() string {
	if s.set != "" {
		return begin + "; " + s.set
	}
	return begin
}

// errRolledBack is a COMMIT that the server answered with a roll-back.
var errRolledBack = errors.New("the transaction had failed before its commit")

const rollbackTimeout = 5 * time.Second

// release returns a connection to the pool. An open transaction is rolled back at once
// also after the end of the context: its locks would keep the next owner waiting.
// The pool closes a connection that is broken or busy.
func release(conn *pgxpool.Conn) {
	if pg := conn.Conn().PgConn(); !pg.IsClosed() && pg.TxStatus() != 'I' {
		ctx, cancel := context.WithTimeout(context.Background(), rollbackTimeout)
		_, _ = pg.Exec(ctx, "ROLLBACK").ReadAll() // when it fails, the pool closes the connection
		cancel()
	}
	conn.Release()
}

// queueCommit ends a pipeline with COMMIT.
func queueCommit(b *pgx.Batch) {
	b.Queue("COMMIT").Exec(func(tag pgconn.CommandTag) error {
		if tag.String() != "COMMIT" {
			// The server answers ROLLBACK when the transaction had failed, for
			// instance under a callback that swallowed an error of its look-up.
			return errRolledBack
		}
		return nil
	})
}

// inTx runs f in a transaction whose repetition does no harm: an unknown
// outcome is an error like any other.
func (s *Store) inTx(ctx context.Context, operation string, f func(tx pgx.Tx) error) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return failed(operation, err)
	}
	defer release(conn)
	return failed(operation, pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{BeginQuery: s.beginning()}, f))
}

// querier is the pool, or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// list returns what scan makes of the rows of a query.
func list[T any](ctx context.Context, q querier, scan func(row pgx.Row) (T, error), sql string, args ...any) ([]T, error) {
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (T, error) { return scan(row) })
}

// scanValue reads a row of one column.
func scanValue[T any](row pgx.Row) (v T, err error) {
	err = row.Scan(&v)
	return v, err
}

// failedCommit is failed for a pipeline that ends with COMMIT.
func failedCommit(operation string, err error) error {
	if err == nil {
		return nil
	}
	return classifyCommit(fmt.Errorf("postgres: %s: %w", operation, err))
}
