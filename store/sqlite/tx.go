package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/seed-86dfc502/weir/store"
)

// tx is a write in a transaction of the one connection that writes. Its statements
// run to their end also after the caller's context ended, which saves a goroutine
// per statement; the context is looked at before the write, before it is taken
// into the transaction, and where callers of store methods compute.
type tx struct {
	conn *keptConn
	ctx  context.Context
	g    *group
}

// afterCommit has f called once what t wrote is durable. f must not block.
func (t tx) afterCommit(f func()) { t.g.committed = append(t.g.committed, f) }

// writer gathers writes: those that wait for the connection while another one works
// go into its transaction, and the last of them commits for all. Each runs on its
// caller's goroutine, inside a savepoint, so that one which fails takes no other along.
type writer struct {
	turn    chan struct{} // capacity 1: held by who works on the connection
	waiting atomic.Int32  // who want the turn
	conn    *keptConn     // guarded by turn; nil: to be opened
	open    *group        // guarded by turn; the transaction under way, nil without one

	full atomic.Pointer[error] // see Full
}

// group is one transaction.
type group struct {
	began     time.Time
	members   int
	awaited   bool        // a member waits for its end
	later     *time.Timer // commits it if no member waits; nil before that
	committed []func()
	done      chan struct{} // closed when it ended
	err       error         // valid then: why nothing of it was written
}

// The size of a transaction is bounded by how many writes are under way at the
// same time, and by these where there is no end of them.
const (
	maxGroup    = 256
	maxGroupAge = 50 * time.Millisecond
	// linger is how long writes that nothing waits for stay open to others.
	linger = 2 * time.Millisecond
)

const savepoint = "w"

// Full returns the error of the last write, if that found no room, else nil.
func (s *Store) Full() error {
	if err := s.writes.full.Load(); err != nil {
		return *err
	}
	return nil
}

// Failed is closed when the file was found to be damaged, or an fsync failed: then
// nothing more is written, and the process should end. Err is the reason.
func (s *Store) Failed() <-chan struct{} { return s.disk.Failed() }

// Err returns why nothing more is written, an ErrDamaged or disk.ErrSync with file
// and place; nil as long as nothing was found.
func (s *Store) Err() error { return s.disk.Err() }

// noteDamage ends all writing if err says that the file is damaged: what SQLite finds
// itself.
func (s *Store) noteDamage(err error) {
	if errors.Is(err, ErrDamaged) {
		s.disk.Fail(fmt.Errorf("%s: %w", s.path, err))
	}
}

// write runs f in a transaction that holds the file's write lock, and returns when
// that is durable. After an error of f, which gets the name of the operation, nothing
// of f is written.
func (s *Store) write(ctx context.Context, operation string, f func(tx tx) error) (err error) {
	defer func() { s.noteWrite(err) }()
	g, err := s.join(ctx, operation, true, f)
	if err != nil {
		return err
	}
	<-g.done
	switch {
	case g.err == nil:
		return nil
	case errors.Is(g.err, errTakenAlong):
		return failed(operation, g.err)
	}
	return failedCommit(operation, g.err)
}

// writeAhead is write that returns before f is durable: when every later write sees it, and
// none is durable without it. A crash or a failed commit may undo f.
func (s *Store) writeAhead(ctx context.Context, operation string, f func(tx tx) error) error {
	_, err := s.join(ctx, operation, false, f)
	if err != nil { // a success is one when it is committed
		s.noteWrite(err)
	}
	return err
}

// noteWrite keeps the outcome of a write for Full and Err.
func (s *Store) noteWrite(err error) {
	switch {
	case err == nil:
		s.writes.full.Store(nil)
	case errors.Is(err, ErrFull):
		s.writes.full.Store(&err)
	default:
		s.noteDamage(err)
	}
}

// join waits for the turn and runs f in the transaction that is open, or in a new one;
// awaited says that the caller waits for its end.
func (s *Store) join(ctx context.Context, operation string, awaited bool, f func(tx tx) error) (*group, error) {
	w := &s.writes
	w.waiting.Add(1)
	select {
	case w.turn <- struct{}{}:
		w.waiting.Add(-1)
	case <-ctx.Done():
		w.waiting.Add(-1)
		go s.commitOpen() // its members counted on this write to commit
		return nil, failed(operation, ctx.Err())
	}
	defer s.passOn() // also when f panics
	first := w.open == nil
	if first {
		if err := s.begin(ctx); err != nil {
			return nil, failed(operation, err)
		}
	}
	g := w.open
	t := tx{conn: w.conn, ctx: context.WithoutCancel(ctx), g: g}
	hooks := len(g.committed)
	if !first {
		if err := t.conn.run(t.ctx, "SAVEPOINT "+savepoint); err != nil {
			return nil, failed(operation, err)
		}
	}
	kept := false
	defer func() {
		if !kept {
			g.committed = g.committed[:hooks]
			s.undo(t, first)
		}
	}()
	if err := f(t); err != nil {
		return nil, failed(operation, err)
	}
	if err := ctx.Err(); err != nil {
		return nil, failed(operation, err)
	}
	if !first {
		if err := t.conn.run(t.ctx, "RELEASE "+savepoint); err != nil {
			return nil, failed(operation, err)
		}
	}
	kept = true
	g.members++
	g.awaited = g.awaited || awaited
	return g, nil
}

// begin opens a transaction. The caller has the turn.
func (s *Store) begin(ctx context.Context) error {
	w := &s.writes
	if err := s.disk.Err(); err != nil {
		return store.WithClass(err, store.Fatal)
	}
	if err := s.connect(ctx); err != nil {
		return err
	}
	err := s.retryBusy(ctx, func() error { return w.conn.run(ctx, "BEGIN IMMEDIATE") })
	if err != nil {
		s.rollback() // the context may have ended when it had begun
		return err
	}
	w.open = &group{began: time.Now(), done: make(chan struct{})}
	return nil
}

// connect opens the connection of writes. The caller has the turn.
func (s *Store) connect(ctx context.Context) (err error) {
	if s.writes.conn == nil {
		s.writes.conn, err = keep(ctx, s.writer)
	}
	return err
}

// ForeignVersion returns a number that changes when another handle has committed, and hardly
// ever otherwise.
func (s *Store) ForeignVersion(ctx context.Context) (version int64, err error) {
	w := &s.writes
	select {
	case w.turn <- struct{}{}:
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	defer s.passOn()
	ctx = context.WithoutCancel(ctx) // of a transaction that others may have open
	if err = s.connect(ctx); err == nil {
		err = w.conn.QueryRowContext(ctx, `PRAGMA data_version`).Scan(&version)
	}
	return version, failed("find writes of others", err)
}

// undo takes one write out of its transaction. Where that cannot be done, since the
// database has rolled all of it back, the others have failed too.
func (s *Store) undo(t tx, first bool) {
	if first {
		s.writes.open = nil
		s.rollback()
		return
	}
	err := t.conn.run(t.ctx, "ROLLBACK TO "+savepoint)
	if err == nil {
		err = t.conn.run(t.ctx, "RELEASE "+savepoint)
	}
	if err != nil { // SQLite rolls everything back where a disk is full, for instance
		s.writes.open = nil
		s.rollback()
		t.g.err = store.WithClass(errTakenAlong, store.Retry)
		close(t.g.done)
	}
}

var errTakenAlong = errors.New("another write of the same transaction failed, nothing was written")

// passOn hands the turn to the next writer, which works in the same transaction, or
// commits if there is none. What nothing waits for is committed a little later.
func (s *Store) passOn() {
	w := &s.writes
	if g := w.open; g != nil {
		alone := w.waiting.Load() == 0
		switch {
		case alone && g.awaited, g.members >= maxGroup, time.Since(g.began) > maxGroupAge:
			s.commit(g)
		case alone && g.later == nil:
			g.later = time.AfterFunc(s.linger, s.commitOpen)
		}
	}
	<-w.turn
}

// commitOpen commits the open transaction, if there is one.
func (s *Store) commitOpen() {
	w := &s.writes
	w.turn <- struct{}{}
	if w.open != nil {
		s.commit(w.open)
	}
	<-w.turn
}

// commit ends a transaction. The caller has the turn.
func (s *Store) commit(g *group) {
	w := &s.writes
	w.open = nil
	if g.later != nil {
		g.later.Stop()
	}
	if g.err = w.conn.run(context.Background(), "COMMIT"); g.err != nil {
		s.rollback()
	} else {
		for _, f := range g.committed {
			f()
		}
	}
	if !g.awaited {
		var err error
		if g.err != nil {
			err = failedCommit("write", g.err)
		}
		s.noteWrite(err)
	}
	close(g.done)
}

// rollback ends the open transaction of the connection. One that is in an unknown state
// is replaced by the next transaction. The caller has the turn.
func (s *Store) rollback() {
	w := &s.writes
	if err := w.conn.run(context.Background(), "ROLLBACK"); err != nil {
		w.conn.drop() // none was open, or worse
		w.conn = nil
	}
}

// keptConn is a connection with the statements that it has prepared.
type keptConn struct {
	*sql.Conn
	prepared map[string]*sql.Stmt
}

// keep opens a connection.
func keep(ctx context.Context, db *sql.DB) (*keptConn, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return &keptConn{Conn: conn, prepared: map[string]*sql.Stmt{}}, nil
}

// run runs a statement without arguments.
func (c *keptConn) run(ctx context.Context, query string) error {
	statement, err := c.PrepareContext(ctx, query)
	if err == nil {
		_, err = statement.ExecContext(ctx)
	}
	return err
}

// drop closes the connection, whose state is unknown.
func (c *keptConn) drop() {
	c.forget()
	_ = c.Raw(func(any) error { return driver.ErrBadConn })
	_ = c.Close()
}

// PrepareContext prepares a statement once. It must not be closed.
func (c *keptConn) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	if statement := c.prepared[query]; statement != nil {
		return statement, nil
	}
	statement, err := c.Conn.PrepareContext(ctx, query)
	if err == nil {
		c.prepared[query] = statement
	}
	return statement, err
}

// QueryContext prepares the statement once.
func (c *keptConn) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	statement, err := c.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	return statement.QueryContext(ctx, args...)
}

// QueryRowContext prepares the statement once.
func (c *keptConn) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	statement, err := c.PrepareContext(ctx, query)
	if err != nil {
		return c.Conn.QueryRowContext(ctx, query, args...) // the row has the error
	}
	return statement.QueryRowContext(ctx, args...)
}

// forget closes the statements.
func (c *keptConn) forget() {
	for _, statement := range c.prepared {
		_ = statement.Close()
	}
	clear(c.prepared)
}

// retryBusy repeats f, which waits a little itself, while another handle has
// the file's lock, until the context or the patience is over.
func (s *Store) retryBusy(ctx context.Context, f func() error) error {
	for start := time.Now(); ; {
		err := f()
		if ctx.Err() != nil && err != nil {
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		if code, ok := primary(err); !ok || code != sqlite3.BUSY || time.Since(start) > s.patience {
			return err
		}
	}
}

// read runs f on one snapshot, beside the writer.
func (s *Store) read(ctx context.Context, operation string, f func(conn *keptConn) error) error {
	conn, err := s.takeReader(ctx)
	if err != nil {
		return failed(operation, err)
	}
	defer s.putReader(conn) // also when f panics
	if err = conn.run(ctx, "BEGIN"); err == nil {
		err = f(conn)
	}
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		err = failed(operation, err)
		s.noteDamage(err)
	}
	return err
}

// keptReaders bounds the connections that reads keep between them.
const keptReaders = 4

// takeReader returns a connection to read with.
func (s *Store) takeReader(ctx context.Context) (*keptConn, error) {
	s.mu.Lock()
	if n := len(s.kept); n > 0 {
		conn := s.kept[n-1]
		s.kept = s.kept[:n-1]
		s.mu.Unlock()
		return conn, nil
	}
	s.mu.Unlock()
	return keep(ctx, s.readers)
}

// putReader ends the transaction of a connection and keeps it for the next read.
func (s *Store) putReader(conn *keptConn) {
	if err := conn.run(context.Background(), "ROLLBACK"); err != nil {
		conn.drop()
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || len(s.kept) == keptReaders {
		conn.forget()
		_ = conn.Close()
		return
	}
	s.kept = append(s.kept, conn)
}

// dropReaders closes the kept connections, and those that come.
func (s *Store) dropReaders() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, conn := range s.kept {
		conn.forget()
		_ = conn.Close()
	}
	s.kept, s.ended = nil, true
}

// each prepares a statement and hands it to run n times.
func each(ctx context.Context, p *keptConn, query string, n int, run func(i int, statement *sql.Stmt) error) error {
	if n == 0 {
		return nil
	}
	statement, err := p.PrepareContext(ctx, query)
	if err != nil {
		return err
	}
	for i := range n {
		if err := run(i, statement); err != nil {
			return err
		}
	}
	return nil
}

// list returns what scan makes of the rows of a query.
func list[T any](ctx context.Context, q *keptConn, scan func(row scanner) (T, error), query string, args ...any) (all []T, err error) {
	rows, err := q.QueryContext(ctx, query, args...)
	err = collect(rows, err, func() error {
		v, err := scan(rows)
		all = append(all, v)
		return err
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// collect calls scan for each row and closes rows.
func collect(rows *sql.Rows, err error, scan func() error) error {
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := scan(); err != nil {
			return err
		}
	}
	return rows.Err()
}

// scanner is one row.
type scanner interface{ Scan(into ...any) error }

// scanValue reads a row of one column.
func scanValue[T any](row scanner) (v T, err error) {
	err = row.Scan(&v)
	return v, err
}

// once runs a statement and returns how many rows it changed.
func (t tx) once(query string, args ...any) (int64, error) {
	statement, err := t.conn.PrepareContext(t.ctx, query)
	if err != nil {
		return 0, err
	}
	return t.exec(statement, args...)
}

// exec runs a prepared statement and returns how many rows it changed.
func (t tx) exec(statement *sql.Stmt, args ...any) (int64, error) {
	result, err := statement.ExecContext(t.ctx, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func fromMicros(n int64) time.Time { return time.UnixMicro(n).UTC() }

// notNil is for columns that are never null.
func notNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}
