package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// table is a session's work on a table that can be read.
type table struct {
	s      *session
	name   string // schema.name
	source *Source
	mark   kept[tableMark]
	state  tableState // as its rows and changes are read
	// shared says that rows may exchange entities within a transaction: no immediate unique
	// index has the entity.
	shared bool
	later  delay  // of the reading of its rows, which cannot be read now
	swept  string // last entity that was swept
}

// delay is a pause in the reading of a table's rows.
type delay struct {
	until time.Time
	pause time.Duration
}

// choose sets the state in which the table is read.
func (t *table) choose(is tableState) {
	t.state, t.shared = is, is.shared()
	t.s.watch.note(t.name, is)
}

// leavesOut reports whether changes at a position are in the first rows, or before a gap.
func (t *table) leavesOut(lsn int64) bool {
	return t.mark.value.Since == 0 || lsn <= t.mark.value.Since
}

// amidRows reports whether a large value that a change at a position leaves alone is read from the row: the
// stored document may not be the one before it.
func (t *table) amidRows(lsn int64) bool { return !t.mark.value.Done || lsn <= t.mark.value.Until }

// continues compares a table with its mark, which becomes an empty one if the rows are to be read.
func (t *table) continues(ctx context.Context, is tableState, unbroken bool) error {
	m, epoch := &t.mark.value, t.s.mark.Epoch
	cause := ""
	switch {
	case m.Epoch != epoch: // a gap of all tables, or no rows were ever read
		*m = tableMark{Epoch: epoch, Again: m.Epoch != "" || t.s.found}
		return nil
	case m.Cause != "":
		cause = m.Cause
	case m.Since == 0: // no rows are read
		return nil
	case !unbroken:
		cause = "changes passed while the table was not read"
	case !m.Done && m.Timeline != t.s.lines.current:
		cause = "the reading of its rows began before a fail-over"
	case !m.Done && m.Identity.Key != is.Key:
		cause = "its primary key changed while its rows were read"
	default:
		cause = cmp.Or(m.Identity.differs(is.identity), m.Names.breaks(is.names))
	}
	if cause != "" {
		t.s.r.log.Warn("changes of a table may be missing: reading its rows again", "event", "source.gap", "table", t.name, "reason", cause)
		*m = tableMark{Epoch: epoch, Again: true}
		return nil
	}
	if !m.Names.learn(is.names) && m.Identity.same(is.identity) {
		return nil
	}
	t.s.r.log.Info("a table has other columns, or was rewritten with the same rows: its changes go on", "event", "source.table_changed", "table", t.name)
	m.Identity = is.identity
	return t.mark.save(ctx)
}

// rereadError ends a session: the log shows that the stored entities of a table are not its rows.
type rereadError struct {
	table *table
	cause string
}

func (e *rereadError) Error() string { return fmt.Sprintf("table %s: %s", e.table.name, e.cause) }

// again notes that the rows of a table are to be read again, and returns errAgain.
func again(ctx context.Context, err error) error {
	var e *rereadError
	if !errors.As(err, &e) {
		return err
	}
	e.table.mark.value.Cause = e.cause
	return cmp.Or(e.table.mark.save(ctx), errAgain)
}

// learn notes the names of the columns in the log, and returns which are doubtful.
func (t *table) learn(ctx context.Context, names []string) (doubtful []bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	m := &t.mark.value
	now, err := t.describe(ctx, t.s.db)
	if err != nil {
		return nil, err
	}
	cause := cmp.Or(m.Identity.differs(now.identity), m.Names.breaks(now.names))
	news := m.Names.learn(now.names)
	doubtful, ok := m.Names.doubtful(names)
	switch {
	case ok || cause != "":
	case len(names) != len(now.columns):
		cause = "its columns were others for a while"
	default: // names of a while: the order of the columns tells whose they were
		then := map[string]int16{}
		for i, name := range names {
			then[name] = now.names[now.columns[i]]
		}
		cause = m.Names.breaks(then)
		news = m.Names.learn(then) || news
		doubtful, _ = m.Names.doubtful(names)
	}
	if cause != "" {
		return nil, &rereadError{t, cause}
	}
	t.s.watch.note(t.name, now)
	if news {
		t.s.r.log.Info("a table has other columns", "event", "source.table_changed", "table", t.name)
		err = t.mark.save(ctx)
	}
	return doubtful, err
}

// describe reads the state of the table over a connection.
func (t *table) describe(ctx context.Context, db querier) (tableState, error) {
	return t.s.r.readTable(ctx, db, t.s.server.version, t.name)
}
