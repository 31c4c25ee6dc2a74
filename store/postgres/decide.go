package postgres

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/store/shared"
)

const (
	// The lock makes Activate wait for decisions under way, and each decision
	// see the revision that an Activate before it made: after Activate returned,
	// no decision of an older revision commits.
	sqlShareRevision = `SELECT pg_advisory_xact_lock_shared('revisions'::regclass::oid::bigint)`
	sqlRevision      = `SELECT number FROM revisions ORDER BY number DESC LIMIT 1`

	sqlExpectRevision = `SELECT weir_expect((SELECT number FROM revisions ORDER BY number DESC LIMIT 1), $1::int8, '` + codeSuperseded + `')`

	// The watermarks stay locked until the transaction ends; sqlMove moves them.
	sqlHold = `
SELECT FROM unnest($1::int4[], $2::int4[], $3::int8[], $4::bytea[]) AS m(generation, partition, origin, token)
JOIN watermarks w ON w.generation = m.generation AND w.partition = m.partition
WHERE w.next_offset = m.origin AND w.token = m.token AND w.session = pg_postmaster_start_time()
FOR UPDATE OF w`

	sqlExpectHeld = `SELECT weir_expect((SELECT count(*) FROM (` + sqlHold + `) AS held), $5::int8)`

	// Compares and moves: a decision that had nothing to load held no lock before.
	sqlMove = `
WITH moved AS (
  UPDATE watermarks w SET next_offset = m.upto, last_to = coalesce(m.last_to, w.last_to)
  FROM unnest($1::int4[], $2::int4[], $3::int8[], $4::bytea[], $5::int8[], $6::int8[])
    AS m(generation, partition, origin, token, upto, last_to)
  WHERE w.generation = m.generation AND w.partition = m.partition AND w.next_offset = m.origin AND w.token = m.token
    AND w.session = pg_postmaster_start_time()
  RETURNING 1)
SELECT weir_expect((SELECT count(*) FROM moved), $7::int8)`

	sqlPutFrames = `
INSERT INTO frames (partition, upto, written, body, total)
SELECT partition, upto, now(), body, coalesce((SELECT l.total FROM frames l WHERE l.partition = f.partition ORDER BY l.upto DESC LIMIT 1), 0)
  + sum(length(body)) OVER (PARTITION BY partition ORDER BY upto)
FROM unnest($1::int4[], $2::int8[], $3::bytea[]) AS f(partition, upto, body)`

	// The first takeover in a generation waits for all others under way, and they for
	// it: it ends the older generations, and none of these may come back.
	sqlLockGenerations = `
SELECT CASE WHEN EXISTS (SELECT FROM watermarks WHERE generation >= $1::int4)
  THEN pg_advisory_xact_lock_shared('watermarks'::regclass::oid::bigint)
  ELSE pg_advisory_xact_lock('watermarks'::regclass::oid::bigint) END`

	// One at a time per partition.
	sqlLockPartitions = `SELECT pg_advisory_xact_lock('watermarks'::regclass::oid::int4, p) FROM unnest($1::int4[]) AS p`

	sqlExpectNewest = `SELECT weir_expect((SELECT count(*) FROM watermarks WHERE generation > $1::int4), 0)`

	// A token without owner.
	sqlEndOlder = `UPDATE watermarks SET token = '' WHERE generation < $1::int4 AND token <> ''`

	sqlTakeOver = `
INSERT INTO watermarks AS t (generation, partition, next_offset, last_to, token, doubt)
SELECT p.generation, p.partition, 0, coalesce((
  SELECT w.last_to FROM watermarks w WHERE w.partition = p.partition AND w.generation < p.generation
  ORDER BY w.generation DESC LIMIT 1), 0), $3::bytea,
  CASE WHEN EXISTS (SELECT FROM inboxes i WHERE i.generation = p.generation AND i.session = pg_postmaster_start_time()) THEN 0 ELSE $4::int8 END
FROM unnest($1::int4[], $2::int4[]) AS p(generation, partition)
ON CONFLICT (partition, generation) DO UPDATE SET token = excluded.token, session = excluded.session,
  doubt = CASE WHEN t.session = excluded.session THEN t.doubt ELSE $4 END
RETURNING partition, next_offset, last_to, doubt = $4`
)

// TakeOver implements store.Decisions.
//
// The upsert locks the watermark rows, so it waits for an earlier owner's transaction under
// way; one that comes later finds another token.
//
// The owners of older generations are kept out the same way, by sqlEndOlder,
// before last_to is read, and cannot take over again.
func (s *Store) TakeOver(ctx context.Context, partitions []store.Partition, token store.Token) ([]store.TakenOver, error) {
	if len(partitions) == 0 {
		return nil, nil
	}
	taken := make([]store.TakenOver, len(partitions))
	place := make(map[int32]int, len(partitions))
	for i, p := range partitions {
		if _, twice := place[p.Number]; twice {
			return nil, bug("take over: partition %d twice", p.Number)
		}
		taken[i].Partition, place[p.Number] = p, i
	}
	generations, numbers := partitionArrays(slices.SortedFunc(slices.Values(partitions), comparePartitions))
	generation := slices.Max(generations)

	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, failed("take over", err)
	}
	defer release(conn)
	b := new(pgx.Batch)
	s.queueBegin(b)
	b.Queue(sqlLockGenerations, generation)
	b.Queue(sqlLockPartitions, numbers)
	b.Queue(sqlExpectNewest, generation)
	b.Queue(sqlEndOlder, generation)
	b.Queue(sqlTakeOver, generations, numbers, token[:], int64(math.MaxInt64)).Query(func(rows pgx.Rows) error {
		var number int32
		var next, last int64
		var doubt bool
		_, err := pgx.ForEachRow(rows, []any{&number, &next, &last, &doubt}, func() error {
			t := &taken[place[number]]
			t.NextOffset, t.LastTo, t.Doubt = next, change.Version(last), doubt
			return nil
		})
		return err
	})
	var floors []store.Floor
	readFloors := shared.ReadFloors()
	b.Queue(readFloors.Postgres, readFloors.Args...).Query(func(rows pgx.Rows) error {
		return eachRow(rows, func(row shared.Row) error {
			of, err := shared.ScanFloors(row)
			floors = append(floors, of...)
			return err
		})
	})
	queueCommit(b)
	// A commit of unknown outcome is an error like any other: taking over again
	// with the same or another token does no harm.
	if err := conn.SendBatch(ctx, b).Close(); err != nil {
		return nil, failed("take over", err)
	}
	for i := range taken {
		taken[i].Floors = store.FloorsOf(taken[i].Partition, floors)
	}
	return taken, nil
}

// Decide implements store.Decisions.
func (s *Store) Decide(ctx context.Context, d store.Decision, decide func(store.Loaded) (store.Outcome, error)) error {
	err := s.decide(ctx, d, decide)
	if errors.Is(err, errMonthOver) {
		if err := s.openLedgerMonth(ctx); err != nil {
			return err
		}
		return s.decide(ctx, d, decide)
	}
	return err
}

// decide is one round trip where nothing is to be loaded: then the comparison
// goes with the writes. Else it is one more.
func (s *Store) decide(ctx context.Context, d store.Decision, decide func(store.Loaded) (store.Outcome, error)) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return failed("decide", err)
	}
	defer release(conn)
	t := decision{s: s, conn: conn, d: d}
	var loaded store.Loaded
	if len(d.Entities) > 0 || len(d.Claims) > 0 {
		if loaded, err = t.begin(ctx); err != nil {
			return err
		}
	}
	out, err := decide(loaded)
	if err != nil {
		return err
	}
	return t.finish(ctx, loaded, out)
}

// decision is a decision transaction.
type decision struct {
	s     *Store
	conn  *pgxpool.Conn
	d     store.Decision
	begun bool
}

// begin is a round trip: begin, revision, watermarks, entities, claims. Without it
// finish begins.
func (t *decision) begin(ctx context.Context) (store.Loaded, error) {
	d := t.d
	t.begun = true
	var revision, moved int64
	var claims claimLook
	entities := make([]store.Entity, len(d.Entities))
	for i, id := range d.Entities {
		entities[i].ID = id
	}
	b := new(pgx.Batch)
	t.s.queueBegin(b)
	b.Queue(sqlShareRevision)
	queueRevision(b, &revision)
	if len(d.Moves) > 0 {
		queueHold(b, d.Moves, &moved)
	}
	if len(entities) > 0 {
		queueLoad(b, d.Entities, entities)
	}
	if len(d.Claims) > 0 {
		claims.queue(b, d)
	}
	if err := t.conn.SendBatch(ctx, b).Close(); err != nil {
		return store.Loaded{}, failed("decide: begin", err)
	}
	switch {
	case revision != d.Revision:
		return store.Loaded{}, failed("decide", store.ErrSuperseded)
	case moved != int64(len(d.Moves)):
		return store.Loaded{}, failed("decide", store.ErrFenced)
	case claims.month.Before(store.MonthOf(claims.now)):
		return store.Loaded{}, failed("decide", errMonthOver)
	}
	claims.loaded.Entities = entities
	return claims.loaded, nil
}

// queueRevision queues the reading of the active revision, 0 without any.
func queueRevision(b *pgx.Batch, revision *int64) {
	b.Queue(sqlRevision).QueryRow(func(row pgx.Row) error {
		if err := row.Scan(revision); !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		return nil
	})
}

// finish is the last round trip: all writes and COMMIT. Entities come before their
// pages of dam states. An outcome that was computed before anything was compared is compared here
// first, by statements that raise an error.
func (t *decision) finish(ctx context.Context, loaded store.Loaded, out store.Outcome) error {
	d := t.d
	moved := make([]store.Partition, len(d.Moves))
	for i, m := range d.Moves {
		moved[i] = m.Partition
	}
	last := make(map[store.Partition]change.Version, len(moved))
	numbers, ends, bodies := make([]int32, len(out.Frames)), make([]int64, len(out.Frames)), make([][]byte, len(out.Frames))
	for i, f := range out.Frames {
		if !slices.Contains(moved, f.Partition) {
			return bug("decide: a frame of partition %v, whose watermark this decision does not hold", f.Partition)
		}
		numbers[i], ends[i], bodies[i], last[f.Partition] = f.Partition.Number, int64(f.To), f.Body, f.To
	}
	b := new(pgx.Batch)
	if !t.begun {
		t.s.queueBegin(b)
		b.Queue(sqlShareRevision)
		b.Queue(sqlExpectRevision, d.Revision)
	}
	queueMoves(b, d.Moves, last)
	if len(out.Purged) > 0 {
		b.Queue(sqlPurgeEntities, out.Purged)
		b.Queue(sqlPurgePages, out.Purged)
	}
	if err := queueEntities(b, out.Entities); err != nil {
		return err
	}
	if len(out.Frames) > 0 {
		b.Queue(sqlPutFrames, numbers, ends, bodies)
	}
	audits, err := shared.Audits(out.Audit)
	if err != nil {
		return failed("decide", err)
	}
	for _, f := range out.Floors {
		if !slices.Contains(moved, f.Partition) {
			return bug("decide: a floor of partition %v, whose watermark this decision does not hold", f.Partition)
		}
	}
	queueCalls(b, slices.Concat(shared.Letters(out.Letters), shared.Settled(out.Settled), audits, shared.Heard(out)), nil)
	if err := queuePutDecided(b, d, out.Claims, loaded.Uses); err != nil {
		return err
	}
	queueCommit(b)
	results := t.conn.SendBatch(ctx, b)
	crash.At(crash.DecideWritten, "")
	if err := results.Close(); err != nil {
		return failedCommit("decide", err)
	}
	return nil
}

// steps are moves as array parameters, sorted: watermarks are locked in one order
// by all processes.
type steps struct {
	generations, numbers []int32
	from, to             []int64
	tokens               [][]byte
	lastTo               []*int64
}

func (s *steps) add(m *store.WatermarkStep, lastTo *int64) {
	s.generations, s.numbers = append(s.generations, int32(m.Partition.Generation)), append(s.numbers, m.Partition.Number)
	s.from, s.to, s.tokens, s.lastTo = append(s.from, m.From), append(s.to, m.To), append(s.tokens, m.Token[:]), append(s.lastTo, lastTo)
}

// queueHold queues the comparison of the watermarks, which locks them, and counts
// those that matched.
func queueHold(b *pgx.Batch, moves []store.WatermarkStep, held *int64) {
	moves = sortMoves(moves)
	var s steps
	for i := range moves {
		s.add(&moves[i], nil)
	}
	b.Queue(sqlHold, s.generations, s.numbers, s.from, s.tokens).Exec(func(tag pgconn.CommandTag) error {
		*held = tag.RowsAffected()
		return nil
	})
}

// queueMoves compares the watermarks and moves those that move; one that does not
// match ends the transaction with ErrFenced.
func queueMoves(b *pgx.Batch, moves []store.WatermarkStep, last map[store.Partition]change.Version) {
	var held, moved steps
	moves = sortMoves(moves)
	for i := range moves {
		m := &moves[i]
		if v, ok := last[m.Partition]; ok {
			n := int64(v)
			moved.add(m, &n)
		} else if m.From == m.To {
			held.add(m, nil)
		} else {
			moved.add(m, nil)
		}
	}
	if n := len(held.from); n > 0 {
		b.Queue(sqlExpectHeld, held.generations, held.numbers, held.from, held.tokens, int64(n))
	}
	if n := len(moved.from); n > 0 {
		b.Queue(sqlMove, moved.generations, moved.numbers, moved.from, moved.tokens, moved.to, moved.lastTo, int64(n))
	}
}

func sortMoves(moves []store.WatermarkStep) []store.WatermarkStep {
	return slices.SortedFunc(slices.Values(moves), func(a, b store.WatermarkStep) int {
		return comparePartitions(a.Partition, b.Partition)
	})
}

// scanEntity reads id, docs, fence, version, fingerprint, deleted_at, writes, states,
// and more behind them.
func scanEntity(row pgx.Row, more ...any) (store.Entity, error) {
	e := store.Entity{Found: true}
	var version int64
	var deleted *time.Time
	var states []byte
	err := row.Scan(append([]any{&e.ID, &e.Docs, &e.Fence, &version, &e.Fingerprint, &deleted, &e.Writes, &states}, more...)...)
	e.Version = change.Version(version)
	if deleted != nil {
		e.Deleted = *deleted
	}
	if err == nil {
		err = e.States.Add(0, states)
	}
	return e, err
}

// comparePartitions is the order in which watermarks are locked, the order of their key.
func comparePartitions(a, b store.Partition) int {
	if a.Number != b.Number {
		return int(a.Number) - int(b.Number)
	}
	return int(a.Generation) - int(b.Generation)
}

func partitionArrays(partitions []store.Partition) (generations, numbers []int32) {
	generations, numbers = make([]int32, len(partitions)), make([]int32, len(partitions))
	for i, p := range partitions {
		generations[i], numbers[i] = int32(p.Generation), p.Number
	}
	return generations, numbers
}

// notNil is for columns that are never null.
func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
