package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/pgpool"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/sinks/internal/batch"
	"github.com/seed-86dfc502/weir/sinks/internal/sqlsink"
)

// Sink writes one service's changes to one table. Open and Write are called
// from one goroutine at a time; Scan and Traits may run beside them.
type Sink struct {
	table
	partitions partitions
	server     *sinks.Lease[*pgpool.Pool]
	insert     string // the statement of every Write

	pool atomic.Pointer[pgpool.Pool] // the lease's pool; nil before Open
	most int                         // rows of one statement that the table writes in time; of the goroutine of Write
}

var _ sinks.Sink = (*Sink)(nil)

// New makes a sink. It checks the options, all of them at once, and needs no
// network.
func New(o Options) (*Sink, error) {
	client, name, err := o.complete()
	if err != nil {
		return nil, err
	}
	s := &Sink{table: table{options: o, name: name}, most: maxBatch}
	s.partitions = partitions{table: &s.table, present: time.Now}
	s.server = sinks.Share(o.Targets, sinks.ClientConfig[*pgpool.Pool]{
		Key:         sinks.ClientKey("postgres", o.URL),
		Connections: int(client.MaxConns), Tenant: name.Sanitize(),
		Open:  func() (*pgpool.Pool, error) { return pgpool.New(context.Background(), client.Copy()) },
		Close: func(pool *pgpool.Pool) error { pool.Close(); return nil },
	})
	s.insert = s.insertStatement()
	return s, nil
}

// Traits returns the sink's kind and limits.
func (s *Sink) Traits() sinks.Traits {
	kind := sinks.State
	if s.options.Mode == Append {
		kind = sinks.Log
	}
	return sinks.Traits{
		Kind:     kind,
		MaxBatch: maxBatch,
		MaxBytes: maxBytes,
		Linger:   linger,
		Guarded:  true,
	}
}

// Open creates the table, its view and its partitions where they are missing and
// CreateTable allows it, and checks existing objects. All faults are
// one error of class Pause.
func (s *Sink) Open(ctx context.Context) error {
	pool, err := s.server.Client()
	if err != nil {
		return classify("connect", err)
	}
	s.pool.Store(pool)
	return sqlsink.Connected(ctx, s.server, 0, func() error {
		ctx, cancel := context.WithTimeoutCause(ctx, writeTimeout, errors.New("postgres sink: opening took too long"))
		defer cancel()
		if err := s.prepareTable(ctx, pool); err != nil {
			return classify("open", err)
		}
		return s.partitions.sweep(ctx, pool)
	})
}

// Close returns the service's share in the pool. The last sink of a target closes
// the pool: a Write or Scan under way keeps its connection until it is done.
func (s *Sink) Close() error {
	s.pool.Store(nil)
	return s.server.Close()
}

// Write commits the changes. See the package comment for its guarantee and
// sinks.Sink for its errors.
func (s *Sink) Write(ctx context.Context, changes []change.Change) error {
	pool := s.pool.Load()
	if pool == nil {
		return sqlsink.ErrNotOpen
	}
	if len(changes) == 0 {
		return nil
	}
	w := batch.Writer{
		Blame:   func(ctx context.Context, r batch.Row, e *sinks.Error) { s.blame(ctx, pool, r, e) },
		Ordered: s.options.Mode == Append, Most: s.most,
	}
	w.Insert = func(ctx context.Context, rows []batch.Row) *sinks.Error { return s.exec(ctx, pool, rows, &w) }
	rows, err := s.rows(changes, &w)
	if err != nil {
		return err
	}
	return sqlsink.Connected(ctx, s.server, len(changes), func() error { return s.write(ctx, pool, &w, rows, changes) })
}

// rows converts the changes. A change that does not fit a column fails in w.
func (s *Sink) rows(changes []change.Change, w *batch.Writer) ([]batch.Row, error) {
	rows := make([]batch.Row, 0, len(changes))
	for i := range changes {
		c := &changes[i]
		if err := sqlsink.ForeignChange(c, s.options.Service); err != nil {
			return nil, err
		}
		r := batch.Row{Index: i, Change: c}
		if c.Op == change.Upsert {
			text, err := s.document(c.Doc)
			if err != nil {
				w.Fail(i, &sinks.Error{Class: sinks.Reject, Op: "convert", Err: err})
				continue
			}
			r.Values = []any{text}
		}
		rows = append(rows, r)
	}
	return rows, nil
}

func (s *Sink) write(ctx context.Context, pool *pgpool.Pool, w *batch.Writer, rows []batch.Row, changes []change.Change) error {
	if s.options.Retention > 0 {
		if err := s.partitions.ensure(ctx, pool, changes); err != nil {
			return err
		}
	}
	err := w.Write(ctx, rows)
	s.most = w.Most
	if err != nil {
		s.partitions.months = nil // another process may have dropped a partition
		return err
	}
	s.most = min(s.most+s.most/8+1, maxBatch)
	if s.options.Retention > 0 && s.partitions.present().Sub(s.partitions.swept) > sweepInterval {
		if err := s.partitions.sweep(ctx, pool); err != nil {
			return err
		}
	}
	return w.Result(len(changes), refusal)
}

// lockTimeout is how long a statement waits for a lock. A longer wait would hold up the
// connections of other tables.
const lockTimeout = "5s"

// session overrides settings of a customer's server, database or role, for one
// transaction: a pooler runs the next one in another session. Values are read alike
// everywhere then, also by types, defaults and triggers of the customer's own.
const session = "SELECT set_config('lock_timeout', '" + lockTimeout + "', true), set_config('TimeZone', 'UTC', true), " +
	"set_config('DateStyle', 'ISO, YMD', true), set_config('IntervalStyle', 'postgres', true), set_config('lc_monetary', 'C', true)"

// exec commits rows in one transaction, an implicit one of one round trip. Rows that the table
// kept out fail in w.
func (s *Sink) exec(ctx context.Context, pool *pgpool.Pool, rows []batch.Row, w *batch.Writer) *sinks.Error {
	timed, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	rounds := [][]batch.Row{rows}
	if s.options.Mode == Upsert { // ON CONFLICT DO UPDATE meets a row once
		rounds = batch.Rounds(rows)
	}
	touched, err := s.send(timed, pool, rounds)
	for i := 0; err == nil && i < len(rounds); i++ {
		if touched[i] < int64(len(rounds[i])) { // versions that are there already, or swallowed ones
			err = s.failSwallowed(timed, pool, rounds[i], w)
		}
	}
	if err == nil {
		return nil
	}
	return sqlsink.Timed(ctx, timed, writeTimeout, classify("insert", err))
}

// send sends one statement for each round and returns how many rows each one touched. Parameters
// are binary, as pgx would send them only for statements that the server had described before.
func (s *Sink) send(ctx context.Context, pool *pgpool.Pool, rounds [][]batch.Row) (touched []int64, err error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	var statements pgconn.Batch
	statements.ExecParams(session, nil, nil, nil, nil)
	for _, round := range rounds {
		statements.ExecParams(s.insert, s.parameters(round), insertTypes, []int16{pgx.BinaryFormatCode}, nil)
	}
	results := conn.Conn().PgConn().ExecBatch(ctx, &statements)
	for results.NextResult() {
		tag, _ := results.ResultReader().Close() // its error is the batch's
		touched = append(touched, tag.RowsAffected())
	}
	if err := results.Close(); err != nil {
		return nil, err
	}
	return touched[len(touched)-len(rounds):], nil
}

// errSwallowed is about a row that a statement did not store and did not refuse.
var errSwallowed = errors.New("the table stored nothing and reported no error")

// failSwallowed fails those rows of a committed statement of which the table has neither their
// own version nor a newer one.
func (s *Sink) failSwallowed(ctx context.Context, pool *pgpool.Pool, rows []batch.Row, w *batch.Writer) error {
	keys, entities, versions := make([]string, len(rows)), make([]string, len(rows)), make([]int64, len(rows))
	for i, r := range rows {
		keys[i], entities[i], versions[i] = r.Key, r.Entity, int64(r.Version)
	}
	same := "t.key = r.key"
	if s.options.Mode == Upsert {
		same = "t.service = $1 AND t.entity = r.entity AND t.version >= r.version"
	}
	found, err := pool.Query(ctx, fmt.Sprintf(`SELECT r.place FROM unnest($2::text[], $3::text[], $4::bigint[]) WITH ORDINALITY AS r(key, entity, version, place)
WHERE $1::text IS NOT NULL AND NOT EXISTS (SELECT FROM %s AS t WHERE %s)`, s.name.Sanitize(), same), s.options.Service, keys, entities, versions)
	if err != nil {
		return err
	}
	places, err := pgx.CollectRows(found, pgx.RowTo[int])
	for _, place := range places {
		w.FailRow(rows[place-1], &sinks.Error{Class: sinks.Reject, Op: "insert", Err: errSwallowed,
			Hint: "look for a trigger or a rule of the table that leaves rows out"})
	}
	return err
}
