package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-86dfc502/weir/store/shared"
)

// records are the methods whose statements are those of both databases.
type records = shared.Store

// database implements shared.DB.
type database struct{ s *Store }

// Local to the transaction.
const sqlPlanByParameters = `SELECT set_config('plan_cache_mode', 'force_custom_plan', true)`

func (d database) Read(ctx context.Context, operation string, c shared.Call, row func(shared.Row) error) error {
	b := new(pgx.Batch) // one transaction
	if c.CustomPlan {
		b.Queue(sqlPlanByParameters)
	}
	b.Queue(c.Postgres, c.Args...).Query(func(rows pgx.Rows) error { return eachRow(rows, row) })
	return failed(operation, d.s.pool.SendBatch(ctx, b).Close())
}

func (d database) Write(ctx context.Context, operation string, f func(shared.Tx) error) error {
	return d.s.inTx(ctx, operation, func(t pgx.Tx) error { return f(sharedTx{ctx, t}) })
}

// sharedTx implements shared.Tx.
type sharedTx struct {
	ctx context.Context
	tx  pgx.Tx
}

func (t sharedTx) Exec(calls ...shared.Call) (n int64, err error) {
	b := new(pgx.Batch)
	queueCalls(b, calls, &n)
	return n, t.tx.SendBatch(t.ctx, b).Close()
}

func (t sharedTx) Query(c shared.Call, row func(shared.Row) error) error {
	rows, err := t.tx.Query(t.ctx, c.Postgres, c.Args...)
	if err != nil {
		return err
	}
	return eachRow(rows, row)
}

// queueCalls queues calls; n, if given, becomes the number of rows that they write.
func queueCalls(b *pgx.Batch, calls []shared.Call, n *int64) {
	for _, c := range calls {
		q := b.Queue(c.Postgres, c.Args...)
		if n != nil {
			q.Exec(func(tag pgconn.CommandTag) error {
				*n += tag.RowsAffected()
				return nil
			})
		}
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
