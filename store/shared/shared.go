package shared

import (
	"context"
	"time"

	"github.com/seed-86dfc502/weir/store"
)

// DB is one of the databases. Errors come back named after the operation and classified.
type DB interface {
	// Read calls row with each row of a query.
	Read(ctx context.Context, operation string, c Call, row func(Row) error) error
	// Write runs f in one durable transaction. After an error nothing is written.
	Write(ctx context.Context, operation string, f func(Tx) error) error
	// Send runs calls in one durable transaction, in one round trip, and returns how many rows
	// each wrote. An unknown outcome is an error of class Unknown.
	Send(ctx context.Context, operation string, calls []Call) ([]int64, error)
	// WriteOnce is Write for a change that must not be repeated if it took effect, with an
	// unknown outcome as Send has it. The calls that f returns are sent with the commit.
	WriteOnce(ctx context.Context, operation string, f func(Tx) ([]Call, error)) error
}

// Lock keeps other transactions from the rows of a table.
type Lock string

// The locks, by their tables. Revisions waits for decisions under way, Watermarks for
// takeovers and decisions.
const (
	Revisions  Lock = "revisions"
	Inboxes    Lock = "inboxes"
	Services   Lock = "services"
	Watermarks Lock = "watermarks"
)

// Tx is a transaction that writes.
type Tx interface {
	// Exec runs calls in their order and returns how many rows they wrote together.
	Exec(calls ...Call) (int64, error)
	Query(c Call, row func(Row) error) error
	// Lock waits for the lock, which the transaction holds until it ends.
	Lock(l Lock) error
}

// Row is a row of an answer. A time is scanned into a *time.Time, in UTC, which may be
// the field of a nullable column only as **time.Time.
type Row interface{ Scan(into ...any) error }

// Store has the methods. The zero value needs both of its fields.
type Store struct {
	DB  DB
	Dam Dam
}

// Dam reads dam states.
type Dam interface {
	// Rows is as in store.Deliveries.
	Rows(ctx context.Context, keys []store.Key) ([]store.Row, error)
	// States reads the dam states of up to n entities after the given one, in ascending byte
	// order of their ids, and nothing else of them.
	States(ctx context.Context, after string, n int) ([]store.Entity, error)
}

func now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

// list returns the rows of a query, each converted by scan.
func list[T any](ctx context.Context, s *Store, operation string, c Call, scan func(Row) (T, error)) (all []T, err error) {
	err = s.DB.Read(ctx, operation, c, func(row Row) error {
		v, err := scan(row)
		all = append(all, v)
		return err
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// one returns the row of a query of at most one row; without it, store.ErrNotFound.
func one[T any](all []T, err error) (T, error) {
	if err == nil && len(all) == 0 {
		err = store.ErrNotFound
	}
	if err != nil {
		var zero T
		return zero, err
	}
	return all[0], nil
}

// listIn is list within a transaction.
func listIn[T any](t Tx, c Call, scan func(Row) (T, error)) (all []T, err error) {
	return all, t.Query(c, func(row Row) error {
		v, err := scan(row)
		all = append(all, v)
		return err
	})
}

// scanValue scans a row of one column.
func scanValue[T any](row Row) (v T, err error) {
	err = row.Scan(&v)
	return v, err
}

// write runs calls in one transaction and returns how many rows they wrote.
func (s *Store) write(ctx context.Context, operation string, calls ...Call) (n int64, err error) {
	if len(calls) == 0 {
		return 0, nil
	}
	written, err := s.DB.Send(ctx, operation, calls)
	for _, rows := range written {
		n += rows
	}
	return n, err
}

// notNil is for columns that are never null.
func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
