package postgres

import (
	"bytes"
	"cmp"
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
	"github.com/seed-86dfc502/weir/internal/transport"
	"golang.org/x/sync/errgroup"
)

// openPatience is how long the reading of rows waits for the end of other transactions, while no
// change is read.
const openPatience = 5 * time.Second

// postpone notes why the rows of a table cannot be read now. The table's changes and all other
// tables are read meanwhile.
func (t *table) postpone(why error, pause time.Duration) {
	if said := t.source.setFault(why); said {
		t.s.r.log.Warn("the rows of a table cannot be read now; retrying", "event", "source.rows_wait", "table", t.name, "error", why)
	}
	t.later = delay{time.Now().Add(pause), pause}
}

// longer returns twice the last pause, from a second to a minute.
func (t *table) longer() time.Duration { return min(max(2*t.later.pause, time.Second), time.Minute) }

// due returns the tables whose rows are to be read now: not while events of a table are set aside.
func (s *session) due() (tables []*table) {
	if s.unread == 0 {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(s.tables)) {
		if t := s.tables[name]; !t.mark.value.Done && !time.Now().Before(t.later.until) && !t.source.lane.Aside() {
			tables = append(tables, t)
		}
	}
	return tables
}

// piece reads rows of the tables that lack them, for some Options.Piece, as they are at one position
// of the log. Its events have the place before that position, so that the fence orders them among
// changes. No change is read meanwhile, so all that were handed out before have lower places.
func (s *session) piece(ctx context.Context) error {
	due := s.due()
	if open, err := openTransaction(ctx, s.db); err != nil {
		return err
	} else if open != nil && open.old() {
		for _, t := range due {
			t.postpone(open, time.Second)
		}
		return nil
	}
	until := time.Now().Add(s.r.opt.Piece)
	name, position, release, err := s.export(ctx)
	if open := new(openError); errors.As(err, &open) {
		for _, t := range due {
			t.postpone(err, t.longer())
		}
		return nil
	} else if err != nil {
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
	crash.At(crash.RowsExported, s.r.opt.Source)
	at := place{stream: s.lines.stream(position - 1), lsn: position - 1, many: true, at: time.Now()}
	if err := s.save(ctx, func(m *mark) { m.Rows = at.lsn }); err != nil {
		return err
	}
	for _, t := range due {
		held, err := t.hold(ctx, readers[0], at)
		if err == nil && held {
			err = t.readRows(ctx, readers, at, until)
		}
		var cost *tableError
		switch {
		case errors.As(err, &cost) && !slices.ContainsFunc(readers, (*pgx.Conn).IsClosed):
			t.postpone(fmt.Errorf("the rows of table %s cannot be read: %w", t.name, classify(cost.err)), t.longer())
			return nil // the transactions have failed
		case err != nil:
			return fmt.Errorf("table %s: %w", t.name, err)
		case held:
			t.later = delay{}
			t.source.setFault(nil)
		}
		if time.Now().After(until) {
			return nil
		}
	}
	return nil
}

// tableError is an error of a statement about one table.
type tableError struct{ err error }

func (e *tableError) Error() string { return e.err.Error() }

// costs returns the error of a statement about a table as one that costs that table alone.
func costs(err error) error {
	if server := new(pgconn.PgError); errors.As(err, &server) {
		return &tableError{err}
	}
	return err
}

// hold locks a table, so that no rewrite empties it in the snapshot of a transaction, and takes
// its state from that. It returns false if the table changed since the snapshot. It does not wait for
// a lock: its holder may wait for another table.
func (t *table) hold(ctx context.Context, conn *pgx.Conn, at place) (held bool, err error) {
	if _, err := conn.Exec(ctx, "LOCK TABLE "+quoteTable(t.name)+" IN ACCESS SHARE MODE NOWAIT"); err != nil {
		return false, costs(err)
	}
	before, err := t.describe(ctx, conn)
	if err != nil {
		return false, err
	}
	now, err := t.describe(ctx, t.s.db)
	if err != nil {
		return false, err
	}
	if before.check(t.name, t.s.r.opt.Publication) != nil || !before.same(now.identity) {
		return false, nil
	}
	m := &t.mark.value
	if m.Since == 0 {
		m.Identity, m.Names = before.identity, columnNames{}
		m.Names.learn(before.names)
		if !m.Again { // another table, or another database, may have had the source's name
			if m.Again, err = t.anyStored(ctx); err != nil {
				return false, err
			}
		}
		m.Since, m.Timeline = at.lsn, t.s.lines.current
	} else if m.Identity.Key != before.Key || m.Identity.differs(before.identity) != "" {
		return false, errAgain
	}
	m.Until = at.lsn
	t.choose(before)
	// It is stored before the first row: a later session reads the changes from here on.
	return true, t.mark.save(ctx)
}

// export makes a temporary slot and returns the snapshot of its beginning, which holds exactly the
// transactions that committed before the position. release drops the slot.
func (s *session) export(ctx context.Context) (name string, position int64, release func(), err error) {
	conn, err := s.r.replication(ctx)
	if err != nil {
		return "", 0, nil, err
	}
	release = sync.OnceFunc(func() { _ = conn.Close(context.WithoutCancel(ctx)) })
	within, cancel := context.WithTimeout(ctx, openPatience)
	defer cancel()
	made, err := pglogrepl.CreateReplicationSlot(within, conn, "weir_snapshot_"+newEpoch(), "pgoutput",
		pglogrepl.CreateReplicationSlotOptions{Temporary: true, SnapshotAction: "EXPORT_SNAPSHOT", Mode: pglogrepl.LogicalReplication})
	if err == nil {
		var lsn pglogrepl.LSN
		if lsn, err = pglogrepl.ParseLSN(made.ConsistentPoint); err == nil {
			return made.SnapshotName, int64(lsn), release, nil
		}
	}
	release()
	if within.Err() != nil && ctx.Err() == nil {
		open, why := openTransaction(ctx, s.db)
		if err = why; err == nil {
			err = cmp.Or(open, &openError{})
		}
	}
	return "", 0, nil, err
}

// rows reads a piece of one table.
type rows struct {
	*table
	shape    *shape
	keys     []string // of the key's types, as casts name them
	place    place
	until    time.Time // the end of the piece
	read     atomic.Int64
	mu       sync.Mutex // of the table's mark and saved
	saved    time.Time
	reported time.Time
}

// readRows reads rows in the ranges of a table that were not read, until the end of the piece: at least
// a frame or so of each reader.
func (t *table) readRows(ctx context.Context, readers []*pgx.Conn, at place, until time.Time) error {
	s, state, m := t.s, t.state, &t.mark.value
	types, err := s.types.of(ctx, readers[0], state.types)
	if err != nil {
		return costs(err)
	}
	r := &rows{table: t, shape: newShape(state.columns, types, state.Entity), place: at, until: until}
	if r.keys, err = keyTypes(ctx, readers[0], t.name, state.key); err != nil {
		return costs(err)
	}
	if len(m.Ranges) == 0 {
		if m.Ranges, err = ranges(ctx, readers[0], t.name, state); err != nil {
			return costs(err)
		}
	}
	read, _, running := r.source.Snapshot()
	if !running {
		read = 0
		for _, k := range m.Ranges {
			if k.Done { // by an earlier session
				read += int64(state.rows) / int64(len(m.Ranges))
			}
		}
		r.source.setSnapshot(read, int64(state.rows), true)
		s.r.log.Info("reading the rows of a table", "event", "source.snapshot_began", "table", t.name, "rows", int64(state.rows), "ranges", len(m.Ranges))
	}
	r.read.Store(read)
	work := make(chan int, len(m.Ranges))
	for i, k := range m.Ranges {
		if !k.Done {
			work <- i
		}
	}
	close(work)
	group, gctx := errgroup.WithContext(ctx)
	for _, conn := range readers {
		group.Go(func() error {
			for i := range work {
				if done, err := r.readRange(gctx, conn.PgConn(), i); err != nil || !done || time.Now().After(until) {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if slices.ContainsFunc(m.Ranges, func(k keyRange) bool { return !k.Done }) {
		return r.mark.save(ctx)
	}
	if m.Again {
		switch err := r.sweep(ctx); {
		case errors.Is(err, errEnough):
			return nil
		case err != nil:
			return err
		}
	}
	crash.At(crash.RowsDone, r.source.name)
	m.Done, m.Ranges = true, nil
	s.unread--
	r.source.setSnapshot(0, 0, false)
	s.r.log.Info("the rows of a table are read", "event", "source.snapshot_ended", "table", t.name, "rows", r.read.Load())
	return r.mark.save(ctx)
}

// direct does work that needs no report to the server meanwhile.
func direct(ctx context.Context, work func(context.Context) error) error { return work(ctx) }

// anyStored reports whether the source of the table has entities.
func (t *table) anyStored(ctx context.Context) (bool, error) {
	err := t.s.r.stored(ctx, t.source, "", direct, func([]string) error { return errEnough })
	if errors.Is(err, errEnough) {
		return true, nil
	}
	return false, err
}

var errEnough = errors.New("no more entities are listed now")

// sweep deletes the stored entities whose rows are gone: deleted while no change of them was read.
// A row that was read has the place of the sweep or a later one, so its deletion is stale. It returns
// errEnough at the end of the piece, and resumes in the next one.
func (r *rows) sweep(ctx context.Context) error {
	at := place{stream: r.s.lines.stream(r.mark.value.Since), lsn: r.mark.value.Since, many: true, at: r.place.at}
	return r.s.r.stored(ctx, r.source, r.swept, direct, func(ids []string) error {
		records := make([]transport.Received, len(ids))
		for i, id := range ids {
			records[i] = at.record(id, nil)
		}
		left, ok := r.source.hand(ctx, at.stream, records, r.s.r.opt.StopGrace)
		if !ok {
			return errRefused
		}
		r.swept = ids[len(ids)-1]
		if left != nil || time.Now().After(r.until) {
			return errEnough
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
func ranges(ctx context.Context, db querier, table string, t tableState) ([]keyRange, error) {
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
	found, err := db.Query(ctx, sql)
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

// query returns the statement of a range and its parameters. It is for the first so many rows by the
// key, if most is not 0.
func (r *rows) query(k keyRange, most int) (sql string, params [][]byte) {
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
	sql = "SELECT " + strings.Join(columns, ", ") + " FROM " + quoteTable(r.name)
	if len(conditions) > 0 {
		sql += " WHERE " + strings.Join(conditions, " AND ")
	}
	if most > 0 {
		sql += fmt.Sprintf(" ORDER BY %s LIMIT %d", strings.Join(key, ", "), most)
	}
	return sql, params
}

// readRange reads a range until the end of the piece and hands its rows out. It reports whether the range
// ended. A table without a key, or whose key is not published, is read in one piece.
func (r *rows) readRange(ctx context.Context, conn *pgconn.PgConn, i int) (done bool, err error) {
	most := 10 * r.s.r.opt.FrameRecords // an index has the first rows of a range at once
	var keyAt []int
	for _, column := range r.state.key {
		at := slices.Index(r.state.columns, column)
		if keyAt = append(keyAt, at); at < 0 {
			most = 0
		}
	}
	if len(keyAt) == 0 {
		most = 0
	}
	var records []transport.Received
	var last []string
	size, aside := 0, false
	flush := func() error {
		if len(records) == 0 {
			return nil
		}
		left, ok := r.source.hand(ctx, r.place.stream, records, r.s.r.opt.StopGrace)
		if !ok {
			return errRefused
		}
		read := len(records)
		if records, size, aside = nil, 0, left != nil; aside {
			return nil // later the rows are read again
		}
		crash.At(crash.RowsAppended, r.source.name)
		return r.progress(ctx, i, last, read, false)
	}
	row := make([]value, len(r.state.columns))
	for late := false; !late; {
		r.mu.Lock()
		k := r.mark.value.Ranges[i]
		r.mu.Unlock()
		sql, params := r.query(k, most)
		result := conn.ExecParams(ctx, sql, params, nil, nil, nil)
		n := 0
		for ; !late && result.NextRow(); n++ {
			for i, text := range result.Values() {
				row[i] = value{text: text}
			}
			record := r.event(row)
			records = append(records, record)
			size += record.Size()
			if most > 0 {
				last = last[:0:0]
				for _, at := range keyAt {
					last = append(last, string(row[at].text))
				}
			}
			if len(records) >= r.s.r.opt.FrameRecords || size >= r.s.r.opt.FrameBytes {
				if err := flush(); err != nil {
					return false, err
				}
				late = aside || most > 0 && time.Now().After(r.until)
			}
		}
		if _, err := result.Close(); err != nil {
			return false, costs(err)
		}
		if err := flush(); err != nil {
			return false, err
		}
		if !late && !aside && (most == 0 || n < most) {
			return true, r.progress(ctx, i, last, 0, true)
		}
		late = late || aside || time.Now().After(r.until)
	}
	return false, nil
}

// event returns the event of a row.
func (r *rows) event(row []value) transport.Received {
	id := r.shape.id(row)
	document, err := r.shape.document(row)
	if err != nil {
		record := r.place.record(id, transport.RefusedPayload)
		record.Headers = append(record.Headers, refusal(r.name, err)...)
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
			r.s.r.log.Info("reading rows", "event", "source.snapshot", "table", r.name, "read", read, "of", int64(r.state.rows))
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
