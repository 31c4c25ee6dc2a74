package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/transport"
	"golang.org/x/sync/errgroup"
)

// snapshot reads the rows of the tables that lack them, as they were at one position of the log.
// Its events have the place before that position, so that the fence orders them among changes.
func (s *session) snapshot(ctx context.Context) error {
	var wanting []string
	for _, table := range slices.Sorted(maps.Keys(s.tables)) {
		if !s.marks[table].value.Done {
			wanting = append(wanting, table)
		}
	}
	if len(wanting) == 0 {
		return nil
	}
	name, position, release, err := s.export(ctx)
	if err != nil {
		return err
	}
	defer release()
	var readers []*pgx.Conn
	defer func() {
		for _, conn := range readers {
			_ = conn.Close(context.WithoutCancel(ctx))
		}
	}()
	for range s.r.opt.Readers {
		conn, err := s.r.connect(ctx)
		if err != nil {
			return err
		}
		readers = append(readers, conn)
		if _, err := conn.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"); err != nil {
			return err
		}
		if _, err := conn.Exec(ctx, "SET TRANSACTION SNAPSHOT "+literal(name)); err != nil {
			return err
		}
	}
	release() // the transactions have the snapshot
	if wanting, err = s.hold(ctx, readers[0], wanting); err != nil {
		return err
	}
	crash.At(crash.RowsExported, s.r.opt.Source)
	at := place{stream: s.lines.stream(position - 1), lsn: position - 1, many: true, at: time.Now()}
	s.mark.Rows = at.lsn
	if err := s.save(ctx); err != nil {
		return err
	}
	for _, table := range wanting {
		if err := s.readRows(ctx, table, readers, at); err != nil {
			return fmt.Errorf("table %s: %w", table, err)
		}
	}
	return nil
}

// hold locks tables, so that no rewrite empties them in the snapshot of a transaction, and takes
// their state from that. It returns those that it has; the others have a fault. It does not wait for
// a lock: its holder may wait for another table.
func (s *session) hold(ctx context.Context, conn *pgx.Conn, tables []string) (held []string, err error) {
	for _, table := range tables {
		if _, err := conn.Exec(ctx, "SAVEPOINT held"); err != nil {
			return nil, err
		}
		_, err := conn.Exec(ctx, "LOCK TABLE "+quoteTable(table)+" IN ACCESS SHARE MODE NOWAIT")
		if cost := new(pgconn.PgError); errors.As(err, &cost) {
			s.leave(table, classify(err))
			_, err = conn.Exec(ctx, "ROLLBACK TO held")
			if err == nil {
				continue
			}
		}
		if err != nil {
			return nil, err
		}
		before, err := s.readTable(ctx, conn, table)
		if err != nil {
			return nil, err
		}
		now, err := s.readTable(ctx, s.db, table)
		if err != nil {
			return nil, err
		}
		if before.check(table, s.r.opt.Publication) != nil || !before.same(now.identity) {
			return nil, errAgain // it changed since the snapshot
		}
		m := &s.marks[table].value
		if m.Since == 0 {
			m.Identity, m.Names = before.identity, columnNames{}
			m.Names.learn(before.names)
		} else if m.Identity.Key != before.Key || m.Identity.differs(before.identity) != "" {
			return nil, errAgain
		}
		s.choose(table, before)
		held = append(held, table)
	}
	return held, nil
}

// export makes a temporary slot and returns the snapshot of its beginning, which holds exactly the
// transactions that committed before the position. release drops the slot.
func (s *session) export(ctx context.Context) (name string, position int64, release func(), err error) {
	conn, err := s.r.replication(ctx)
	if err != nil {
		return "", 0, nil, err
	}
	release = sync.OnceFunc(func() { _ = conn.Close(context.WithoutCancel(ctx)) })
	made, err := pglogrepl.CreateReplicationSlot(ctx, conn, "weir_snapshot_"+newEpoch(), "pgoutput",
		pglogrepl.CreateReplicationSlotOptions{Temporary: true, SnapshotAction: "EXPORT_SNAPSHOT", Mode: pglogrepl.LogicalReplication})
	if err == nil {
		var lsn pglogrepl.LSN
		if lsn, err = pglogrepl.ParseLSN(made.ConsistentPoint); err == nil {
			return made.SnapshotName, int64(lsn), release, nil
		}
	}
	release()
	return "", 0, nil, err
}

// rows reads one table.
type rows struct {
	s        *session
	source   *Source
	state    tableState
	shape    *shape
	keys     []string // of the key's types, as casts name them
	place    place
	read     atomic.Int64
	mu       sync.Mutex // of mark and saved
	mark     *kept[tableMark]
	saved    time.Time
	reported time.Time
}

// readRows reads the ranges of a table that were not read.
func (s *session) readRows(ctx context.Context, table string, readers []*pgx.Conn, at place) error {
	t := s.tables[table]
	types, err := s.types.of(ctx, s.db, t.types)
	if err != nil {
		return err
	}
	r := &rows{s: s, source: s.r.sources[table], state: t, shape: newShape(t.columns, types, s.r.opt.Entities[table]), place: at, mark: s.marks[table]}
	if r.keys, err = keyTypes(ctx, s.db, table, t.key); err != nil {
		return err
	}
	if len(r.mark.value.Ranges) == 0 {
		if r.mark.value.Ranges, err = s.ranges(ctx, table, t); err != nil {
			return err
		}
	}
	if m := &r.mark.value; m.Since == 0 && !m.Again {
		// Another table, or another database, may have had the source's name.
		if m.Again, err = r.anyStored(ctx); err != nil {
			return err
		}
	}
	if r.mark.value.Since == 0 {
		// It is stored before the first row: a later session reads the changes from here on.
		r.mark.value.Since, r.mark.value.Timeline = at.lsn, s.lines.current
		if err := r.mark.save(ctx); err != nil {
			return err
		}
	}
	s.r.log.Info("reading the rows of a table", "event", "source.snapshot_began", "table", table, "rows", int64(t.rows), "ranges", len(r.mark.value.Ranges))
	r.source.setSnapshot(0, int64(t.rows), true)
	defer r.source.setSnapshot(0, 0, false)
	work := make(chan int, len(r.mark.value.Ranges))
	for i, k := range r.mark.value.Ranges {
		if !k.Done {
			work <- i
			continue
		}
		r.read.Add(int64(t.rows) / int64(len(r.mark.value.Ranges))) // by an earlier process
	}
	close(work)
	group, gctx := errgroup.WithContext(ctx)
	for _, conn := range readers {
		group.Go(func() error {
			for i := range work {
				if err := r.readRange(gctx, conn.PgConn(), table, i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if r.mark.value.Again {
		if err := r.sweep(ctx); err != nil {
			return err
		}
	}
	crash.At(crash.RowsDone, r.source.name)
	r.mark.value.Done, r.mark.value.Ranges = true, nil
	s.r.log.Info("the rows of a table are read", "event", "source.snapshot_ended", "table", table, "rows", r.read.Load())
	return r.mark.save(ctx)
}

// direct does work that needs no report to the server meanwhile.
func direct(ctx context.Context, work func(context.Context) error) error { return work(ctx) }

// anyStored reports whether the source has entities.
func (r *rows) anyStored(ctx context.Context) (bool, error) {
	err := r.s.r.stored(ctx, r.source, direct, func([]string) error { return errAny })
	if errors.Is(err, errAny) {
		return true, nil
	}
	return false, err
}

var errAny = errors.New("there are some")

// sweep deletes the stored entities whose rows are gone: deleted while no change of them was read.
// A row that was read has the place of the sweep or a later one, so its deletion is stale.
func (r *rows) sweep(ctx context.Context) error {
	at := place{stream: r.s.lines.stream(r.mark.value.Since), lsn: r.mark.value.Since, many: true, at: r.place.at}
	return r.s.r.stored(ctx, r.source, direct, func(ids []string) error {
		records := make([]transport.Received, len(ids))
		for i, id := range ids {
			records[i] = at.record(id, nil)
		}
		if !r.source.hand(ctx, at.stream, records, r.s.r.opt.StopGrace) {
			return errRefused
		}
		return nil
	})
}

// keyTypes returns the types of columns.
func keyTypes(ctx context.Context, db querier, table string, key []string) (all []string, err error) {
	for _, column := range key {
		var typ string
		if err := db.QueryRow(ctx, `SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = $1::text::regclass AND attname = $2`, quoteTable(table), column).Scan(&typ); err != nil {
			return nil, err
		}
		all = append(all, typ)
	}
	return all, nil
}

// Tables with more rows are read in several ranges.
const (
	fewRows    = 50_000
	mostRanges = 64
	samples    = 6400
)

// ranges divides a table by keys of a sample of its rows.
func (s *session) ranges(ctx context.Context, table string, t tableState) ([]keyRange, error) {
	if t.rows < fewRows || len(t.key) == 0 {
		return []keyRange{{}}, nil
	}
	parts := min(mostRanges, int(t.rows)/fewRows+1)
	var texts, names []string
	for _, column := range t.key {
		texts, names = append(texts, quote(column)+"::text"), append(names, quote(column))
	}
	sql := fmt.Sprintf(`SELECT ARRAY[%[1]s] FROM (SELECT %[2]s, row_number() OVER (ORDER BY %[2]s) AS n, count(*) OVER () AS total FROM %[3]s TABLESAMPLE SYSTEM (%[4]f)) sample
		WHERE total >= %[5]d AND n %% (total / %[5]d) = 0 ORDER BY n`, strings.Join(texts, ", "), strings.Join(names, ", "), quoteTable(table), min(100, 100*samples/t.rows), parts)
	found, err := s.db.Query(ctx, sql)
	if err != nil {
		return nil, err
	}
	bounds, err := pgx.CollectRows(found, pgx.RowTo[[]string])
	if err != nil {
		return nil, err
	}
	all := []keyRange{{}}
	for _, bound := range bounds {
		all[len(all)-1].To = bound
		all = append(all, keyRange{From: bound})
	}
	return all, nil
}

// query returns the statement of a range and its parameters.
func (r *rows) query(table string, k keyRange) (sql string, params [][]byte) {
	var columns, key, conditions []string
	for _, column := range r.state.columns {
		columns = append(columns, quote(column))
	}
	for _, column := range r.state.key {
		key = append(key, quote(column))
	}
	bound := func(operator string, values []string) {
		if values == nil {
			return
		}
		var casts []string
		for i, v := range values {
			params = append(params, []byte(v))
			casts = append(casts, fmt.Sprintf("$%d::text::%s", len(params), r.keys[i]))
		}
		conditions = append(conditions, fmt.Sprintf("(%s) %s (%s)", strings.Join(key, ", "), operator, strings.Join(casts, ", ")))
	}
	from := k.At
	if from == nil {
		from = k.From
	}
	bound(">", from)
	bound("<=", k.To)
	if r.state.filter != "" {
		conditions = append(conditions, "("+r.state.filter+")")
	}
	sql = "SELECT " + strings.Join(columns, ", ") + " FROM " + quoteTable(table)
	if len(conditions) > 0 {
		sql += " WHERE " + strings.Join(conditions, " AND ")
	}
	if len(key) > 0 {
		sql += " ORDER BY " + strings.Join(key, ", ")
	}
	return sql, params
}

// readRange reads a range and hands its rows out.
func (r *rows) readRange(ctx context.Context, conn *pgconn.PgConn, table string, i int) error {
	r.mu.Lock()
	k := r.mark.value.Ranges[i]
	r.mu.Unlock()
	sql, params := r.query(table, k)
	var keyAt []int
	for _, column := range r.state.key {
		keyAt = append(keyAt, slices.Index(r.state.columns, column))
	}
	result := conn.ExecParams(ctx, sql, params, nil, nil, nil)
	var records []transport.Received
	var last []string
	size := 0
	flush := func() error {
		if len(records) == 0 {
			return nil
		}
		if !r.source.hand(ctx, r.place.stream, records, r.s.r.opt.StopGrace) {
			return errRefused
		}
		crash.At(crash.RowsAppended, r.source.name)
		err := r.progress(ctx, i, last, len(records), false)
		records, size = nil, 0
		return err
	}
	row := make([]value, len(r.state.columns))
	for result.NextRow() {
		for n, text := range result.Values() {
			row[n] = value{text: text}
		}
		record := r.event(row)
		records = append(records, record)
		size += record.Size()
		if !slices.Contains(keyAt, -1) {
			last = last[:0:0]
			for _, n := range keyAt {
				last = append(last, string(row[n].text))
			}
		}
		if len(records) >= r.s.r.opt.FrameRecords || size >= r.s.r.opt.FrameBytes {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if _, err := result.Close(); err != nil {
		return err
	}
	if err := flush(); err != nil {
		return err
	}
	return r.progress(ctx, i, last, 0, true)
}

// event returns the event of a row.
func (r *rows) event(row []value) transport.Received {
	id := r.shape.id(row)
	document, err := r.shape.document(row)
	if err != nil {
		record := r.place.record(id, []byte("{}"))
		record.Headers = append(record.Headers, refusal("bad_row", err.Error())...)
		return record
	}
	return r.place.record(id, bytes.Clone(document))
}

// How often progress is stored and logged.
const (
	saveEvery = time.Second
	logEvery  = 10 * time.Second
)

// progress notes that the rows of a range up to a key are durable.
func (r *rows) progress(ctx context.Context, i int, last []string, n int, done bool) error {
	read := r.read.Add(int64(n))
	r.source.setSnapshot(read, int64(r.state.rows), true)
	r.mu.Lock()
	defer r.mu.Unlock()
	k := &r.mark.value.Ranges[i]
	if k.Done = done; len(r.state.key) > 0 && last != nil {
		k.At = slices.Clone(last)
	}
	if now := time.Now(); now.Sub(r.reported) >= logEvery {
		if !r.reported.IsZero() {
			r.s.r.log.Info("reading rows", "event", "source.snapshot", "table", r.source.table, "read", read, "of", int64(r.state.rows))
		}
		r.reported = now
	}
	if time.Since(r.saved) < saveEvery && !done {
		return nil
	}
	r.saved = time.Now()
	if err := r.mark.save(ctx); err != nil {
		return err
	}
	crash.At(crash.RowsStored, r.source.name)
	return nil
}
