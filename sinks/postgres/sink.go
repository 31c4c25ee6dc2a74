package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/pgpool"
	"github.com/seed-86dfc502/weir/sinks"
)

// Sink writes one service's changes to one table. Open and Write are called
// from one goroutine at a time; Scan and Traits may run beside them.
type Sink struct {
	options Options
	server  *sinks.Lease[*pgpool.Pool]
	table   pgx.Identifier // one or two parts
	insert  string         // the statement of every Write

	pool atomic.Pointer[pgpool.Pool] // the lease's; nil until Open was called

	// Of Write's goroutine:
	months  map[month]bool // partitions known to exist
	swept   time.Time      // when expired partitions were last looked for
	most    int            // rows of one statement: what the table takes in time
	present func() time.Time
}

var _ sinks.Sink = (*Sink)(nil)

// New makes a sink. It checks the options, all of them at once, and needs no
// network.
func New(o Options) (*Sink, error) {
	o.Columns = slices.Clone(o.Columns)
	client, table, err := o.complete()
	if err != nil {
		return nil, err
	}
	s := &Sink{options: o, table: table, most: maxBatch, present: time.Now}
	s.server = sinks.Share(o.Targets, sinks.ClientConfig[*pgpool.Pool]{
		Key:         sinks.ClientKey("postgres", o.URL, client.MaxConns),
		Connections: int(client.MaxConns), Holder: table.Sanitize(),
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
// CreateTable allows it, and checks what is there. Everything that does not fit is
// one error of class Pause.
func (s *Sink) Open(ctx context.Context) error {
	pool, err := s.server.Client()
	if err != nil {
		return classify("connect", err)
	}
	s.pool.Store(pool)
	return s.server.Try(ctx, 0, func() error {
		return s.connected(ctx, func() error {
			ctx, cancel := context.WithTimeoutCause(ctx, writeTimeout, errors.New("postgres sink: opening took too long"))
			defer cancel()
			if err := s.prepareTable(ctx, pool); err != nil {
				return classify("open", err)
			}
			return s.sweep(ctx, pool)
		})
	})
}

// connected calls work while the service holds one of the target's connections. Work
// takes it from the pool, which never lets it wait then.
func (s *Sink) connected(ctx context.Context, work func() error) error {
	release, err := s.server.Hold(ctx)
	if err != nil {
		return err
	}
	err = work()
	release(err)
	return err
}

// Close gives the service's share in the pool back. The last sink of a target closes
// the pool: a Write or Scan under way keeps its connection until it is done.
func (s *Sink) Close() error {
	s.pool.Store(nil)
	return s.server.Close()
}

// errNotOpen is what Write and Scan meet before Open.
var errNotOpen = &sinks.Error{Class: sinks.Retry, Op: "write", Err: errors.New("the sink is not open")}

// row is one change with its place in the batch.
type row struct {
	index int
	*change.Change
}

// Write commits the changes. See the package comment for what it promises and
// sinks.Sink for its errors; a *sinks.BatchError holds only refused rows.
func (s *Sink) Write(ctx context.Context, changes []change.Change) error {
	pool := s.pool.Load()
	if pool == nil {
		return errNotOpen
	}
	if len(changes) == 0 {
		return nil
	}
	for i := range changes {
		if changes[i].Service != s.options.Service {
			return &sinks.Error{Class: sinks.Pause, Op: "insert",
				Err: fmt.Errorf("a change of service %q came to the sink of %q", changes[i].Service, s.options.Service)}
		}
	}
	return s.server.Try(ctx, len(changes), func() error {
		return s.connected(ctx, func() error { return s.write(ctx, pool, changes) })
	})
}

func (s *Sink) write(ctx context.Context, pool *pgpool.Pool, changes []change.Change) error {
	if s.options.Retention > 0 {
		if err := s.ensureMonths(ctx, pool, changes); err != nil {
			return err
		}
	}
	rows, failed := make([]row, len(changes)), map[int]error{}
	for i := range changes {
		rows[i] = row{index: i, Change: &changes[i]}
	}
	w := writer{Sink: s, pool: pool, failed: failed, patience: maxProbes, blames: maxBlamed}
	for len(rows) > 0 {
		n := min(s.most, len(rows))
		if err := w.write(ctx, rows[:n]); err != nil {
			return err
		}
		rows = rows[n:]
	}
	s.most = min(s.most+s.most/8+1, maxBatch) // between Writes: one that fails begins anew
	if s.options.Retention > 0 && s.present().Sub(s.swept) > sweepInterval {
		if err := s.sweep(ctx, pool); err != nil {
			return err
		}
	}
	if len(failed) == len(changes) {
		if e := refusedAsWhole(failed); e != nil {
			return e
		}
	}
	if len(failed) > 0 {
		return &sinks.BatchError{Failed: failed}
	}
	return nil
}

// lockTimeout is how long a statement waits for a lock. Whoever holds one on a table
// for longer holds up the services of this table, and no connections beside.
const lockTimeout = "5s"

// maxBlamed bounds the rows per Write whose columns are looked into.
const maxBlamed = 100

// maxProbes bounds the statements per Write that look for the rows behind an
// error which may be the server's own.
const maxProbes = 200

// writer is one Write.
type writer struct {
	*Sink
	pool     *pgpool.Pool
	failed   map[int]error
	patience int // statements left, see maxProbes
	blames   int // rows left, see maxBlamed
}

// write commits rows, splitting them where the server refuses one.
func (w *writer) write(ctx context.Context, rows []row) error {
	err := w.exec(ctx, w.pool, rows)
	if err == nil {
		return nil
	}
	e := classify("insert", err)
	if e.Outage != sinks.Unreachable && tookTooLong(err) && ctx.Err() == nil {
		w.most = max(1, len(rows)/2) // the same again would take as long
	}
	if !ofRow(e) {
		if e.Class == sinks.Retry {
			w.months = nil // another process may have dropped a partition
		}
		return e
	}
	if e.Class == sinks.RetryBounded {
		if w.patience--; w.patience < 0 {
			return e
		}
	}
	if len(rows) == 1 {
		if w.blames--; w.blames >= 0 {
			w.findBadColumn(ctx, rows[0], e)
		}
		w.failed[rows[0].index] = e
		return nil
	}
	half := len(rows) / 2
	if err := w.write(ctx, rows[:half]); err != nil {
		return err
	}
	return w.write(ctx, rows[half:])
}

// exec commits rows in one transaction, an implicit one of one round trip once the
// connection knows the statement.
func (s *Sink) exec(ctx context.Context, pool *pgpool.Pool, rows []row) error {
	ctx, cancel := context.WithTimeoutCause(ctx, writeTimeout, errors.New("postgres sink: the insert took too long"))
	defer cancel()
	var batch pgx.Batch
	batch.Queue("SELECT set_config('lock_timeout', $1, true)", lockTimeout) // of this transaction alone
	for _, round := range s.rounds(rows) {
		n := len(round)
		entities, versions, deleted := make([]string, n), make([]int64, n), make([]bool, n)
		keys, times, docs := make([]string, n), make([]time.Time, n), make([]*string, n)
		for i, r := range round {
			entities[i], versions[i], deleted[i] = r.Entity, int64(r.Version), r.Op == change.Retract
			keys[i], times[i] = r.Key, r.Time
			if r.Op == change.Upsert {
				docs[i] = new(document(r.Doc, s.options.Columns))
			}
		}
		batch.Queue(s.insert, s.options.Service, entities, versions, deleted, keys, times, docs)
	}
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	known := conn.Conn().PgConn().CustomData()
	if known[s.insert] != nil {
		return conn.SendBatch(ctx, &batch).Close()
	}
	// The first one is prepared before anything of it runs, and waits for locks then:
	// in a transaction of two more round trips the time-out holds already.
	err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{BeginQuery: "BEGIN; SET LOCAL lock_timeout = '" + lockTimeout + "'"}, func(tx pgx.Tx) error {
		return tx.SendBatch(ctx, &batch).Close()
	})
	if err == nil {
		known[s.insert] = true
	}
	return err
}

// rounds cuts rows into what one statement may hold: ON CONFLICT DO UPDATE meets
// a row once, so the second change of an entity is in the second round.
func (s *Sink) rounds(rows []row) [][]row {
	if s.options.Mode == Append {
		return [][]row{rows}
	}
	var rounds [][]row
	seen := make(map[string]int, len(rows))
	for _, r := range rows {
		n := seen[r.Entity]
		seen[r.Entity]++
		if n == len(rounds) {
			rounds = append(rounds, nil)
		}
		rounds[n] = append(rounds[n], r)
	}
	return rounds
}
