package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-86dfc502/weir/store/shared"
)

// records are the methods whose statements both databases share.
type records = shared.Store

// database implements shared.DB.
type database struct{ s *Store }

// Local to the transaction.
const (
	sqlPlanByParameters = `SELECT set_config('plan_cache_mode', 'force_custom_plan', true)`
	sqlLockTimeout      = `SELECT set_config('lock_timeout', $1, true)`
)

// lockTimeout bounds the wait of Statement.LockTimeout: a session that hangs in its transaction
// must not hold the callers of a whole batch.
const lockTimeout = "2s"

func (d database) Read(ctx context.Context, operation string, c shared.Call, row func(shared.Row) error) error {
	b := new(pgx.Batch) // one transaction
	if c.CustomPlan {
		b.Queue(sqlPlanByParameters)
	}
	queueTenant(b, c)
	b.Queue(c.Postgres, c.Args...).Query(func(rows pgx.Rows) error { return eachRow(rows, row) })
	return failed(operation, d.s.sendBatch(ctx, b))
}

func (d database) Write(ctx context.Context, operation string, f func(shared.Tx) error) error {
	return d.s.inTx(ctx, operation, func(t pgx.Tx) error { return f(sharedTx{ctx, t}) })
}

// Send implements shared.DB.
func (d database) Send(ctx context.Context, operation string, calls []shared.Call) ([]int64, error) {
	written := make([]int64, len(calls))
	conn, err := d.s.pool.Acquire(ctx)
	if err != nil {
		return nil, failed(operation, err)
	}
	defer release(conn)
	b := new(pgx.Batch)
	d.s.queueBegin(b)
	if calls[0].LockTimeout {
		b.Queue(sqlLockTimeout, d.s.lockTimeout)
	}
	for i := range calls {
		queueCalls(b, calls[i:i+1], &written[i])
	}
	queueCommit(b)
	return written, failedCommit(operation, conn.SendBatch(ctx, b).Close())
}

// WriteOnce implements shared.DB.
func (d database) WriteOnce(ctx context.Context, operation string, f func(shared.Tx) ([]shared.Call, error)) error {
	conn, err := d.s.pool.Acquire(ctx)
	if err != nil {
		return failed(operation, err)
	}
	defer release(conn)
	if _, err := conn.Exec(ctx, d.s.beginning()); err != nil {
		return failed(operation, err)
	}
	last, err := f(sharedTx{ctx, conn})
	if err != nil {
		return failed(operation, err)
	}
	b := new(pgx.Batch)
	queueCalls(b, last, nil)
	queueCommit(b)
	return failedCommit(operation, conn.SendBatch(ctx, b).Close())
}

// sharedTx implements shared.Tx.
type sharedTx struct {
	ctx context.Context
	tx  interface { // a pgx.Tx, or a connection with an open transaction
		Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
		SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
	}
}

func (t sharedTx) Exec(calls ...shared.Call) (n int64, err error) {
	b := new(pgx.Batch)
	queueCalls(b, calls, &n)
	return n, t.tx.SendBatch(t.ctx, b).Close()
}

func (t sharedTx) Query(c shared.Call, row func(shared.Row) error) error {
	b := new(pgx.Batch)
	queueTenant(b, c)
	b.Queue(c.Postgres, c.Args...).Query(func(rows pgx.Rows) error { return eachRow(rows, row) })
	return t.tx.SendBatch(t.ctx, b).Close()
}

// The locks of shared.Lock. That of revisions is the one that decisions share; rows of
// watermarks are locked in the order of their key.
const (
	sqlLockTable = `SELECT pg_advisory_xact_lock(($1::text)::regclass::oid::bigint)`
	sqlLockMarks = `SELECT FROM watermarks ORDER BY partition, generation FOR UPDATE`
)

func (t sharedTx) Lock(l shared.Lock) error {
	_, err := t.tx.Exec(t.ctx, sqlLockTable, string(l))
	if err == nil && l == shared.Watermarks {
		_, err = t.tx.Exec(t.ctx, sqlLockMarks)
	}
	return err
}

// queueCalls queues calls; n, if given, becomes the number of rows that they write.
func queueCalls(b *pgx.Batch, calls []shared.Call, n *int64) {
	for _, c := range calls {
		queueTenant(b, c)
		q := b.Queue(c.Postgres, c.Args...)
		if n != nil {
			q.Exec(func(tag pgconn.CommandTag) error {
				*n += tag.RowsAffected()
				return nil
			})
		}
	}
}

// Local to the transaction.
const sqlAsPipeline = `SELECT set_config('weir.pipeline', 'on', true)`

// queueTenant queues the setting by which the database keeps tenants apart.
func queueTenant(b *pgx.Batch, c shared.Call) {
	switch c.Tenant {
	case "":
	case shared.AllTenants:
		b.Queue(sqlAsPipeline)
	default:
		b.Queue(sqlTenant, c.Tenant)
	}
}

func eachRow(rows pgx.Rows, row func(shared.Row) error) error {
	defer rows.Close()
	for rows.Next() {
		if err := row(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}
