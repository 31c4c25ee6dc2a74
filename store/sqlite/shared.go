package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"github.com/seed-86dfc502/weir/store/shared"
)

// records are the methods whose statements both databases share.
type records = shared.Store

// database implements shared.DB.
type database struct{ s *Store }

func (d database) Read(ctx context.Context, operation string, c shared.Call, row func(shared.Row) error) error {
	rows, err := d.s.readers.QueryContext(ctx, c.SQLite, bind(c)...)
	err = failed(operation, collect(rows, err, func() error { return row(timeRow{rows}) }))
	d.s.noteDamage(err)
	return err
}

func (d database) Write(ctx context.Context, operation string, f func(shared.Tx) error) error {
	return d.s.write(ctx, operation, func(t tx) error { return f(t) })
}

// Send implements shared.DB.
func (d database) Send(ctx context.Context, operation string, calls []shared.Call) ([]int64, error) {
	written := make([]int64, len(calls))
	err := d.s.write(ctx, operation, func(t tx) (err error) {
		for i := range calls {
			if written[i], err = t.Exec(calls[i]); err != nil {
				return err
			}
		}
		return nil
	})
	return written, err
}

// WriteOnce implements shared.DB: every write has a certain outcome, or one of class Unknown.
func (d database) WriteOnce(ctx context.Context, operation string, f func(shared.Tx) ([]shared.Call, error)) error {
	return d.s.write(ctx, operation, func(t tx) error {
		last, err := f(t)
		if err == nil {
			_, err = t.Exec(last...)
		}
		return err
	})
}

// Lock implements shared.Tx: there is one writer.
func (tx) Lock(shared.Lock) error { return nil }

// Exec implements shared.Tx.
func (t tx) Exec(calls ...shared.Call) (n int64, err error) {
	for _, c := range calls {
		rows, err := t.once(c.SQLite, bind(c)...)
		if err != nil {
			return n, err
		}
		n += rows
	}
	return n, nil
}

// Query implements shared.Tx.
func (t tx) Query(c shared.Call, row func(shared.Row) error) error {
	rows, err := t.conn.QueryContext(t.ctx, c.SQLite, bind(c)...)
	return collect(rows, err, func() error { return row(timeRow{rows}) })
}

// bind returns arguments as columns hold them: times in microseconds, lists as JSON.
func bind(c shared.Call) []any {
	bound := make([]any, len(c.Args))
	for i, v := range c.Args {
		switch v := v.(type) {
		case time.Time:
			bound[i] = v.UnixMicro()
		case []string, []int64:
			text, err := json.Marshal(v)
			if err != nil {
				panic(err) // neither can fail
			}
			bound[i] = string(text)
		default:
			bound[i] = v
		}
	}
	return bound
}

// timeRow scans microseconds into times.
type timeRow struct{ row scanner }

func (r timeRow) Scan(into ...any) error {
	into = append([]any(nil), into...)
	var after []func()
	for i := range into {
		switch to := into[i].(type) {
		case *time.Time:
			var n int64
			into[i] = &n
			after = append(after, func() { *to = fromMicros(n) })
		case **time.Time:
			var n sql.NullInt64
			into[i] = &n
			after = append(after, func() {
				if n.Valid {
					at := fromMicros(n.Int64)
					*to = &at
				}
			})
		}
	}
	if err := r.row.Scan(into...); err != nil {
		return err
	}
	for _, f := range after {
		f()
	}
	return nil
}
