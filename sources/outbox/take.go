package outbox

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/sources/internal/handout"
	"github.com/seed-86dfc502/weir/sources/internal/setup"
)

// taker takes rows over one connection. Owned by one goroutine.
type taker struct {
	s     *Source
	conn  *pgxpool.Conn
	table *table
	topic string
	out   chan<- *message.Message
}

// row is one row as it is read.
type row struct {
	id, entity         *string
	payload            []byte // nil: null
	eventID, operation *string
	headers            *string
	xmin               string // the transaction that wrote it
	lsn                int64  // where in the log it was taken
}

// take takes the available rows, hands them out, and deletes the durable ones.
// It returns the number of those rows. The end of ctx is a shutdown: rows that are
// not durable soon stay, and work is the context that bounds the rest.
func (t *taker) take(ctx, work context.Context) (n int, err error) {
	tx, err := t.conn.BeginTx(work, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return 0, err
	}
	defer func() {
		// After a commit it does nothing. A connection that cannot do it is not used again.
		_ = tx.Rollback(work)
	}()
	locked, err := t.lock(work, tx)
	if err != nil || len(locked) == 0 {
		return 0, err
	}
	t.s.drained.Store(false) // before anybody sees a row
	crash.At(crash.OutboxLocked, t.s.opt.Name)
	durable, err := t.handOut(ctx, work, tx, locked)
	if err != nil || len(durable) == 0 {
		return 0, err
	}
	return len(durable), t.settle(work, tx, durable)
}

func (t *taker) lock(work context.Context, tx pgx.Tx) ([]string, error) {
	work, cancel := context.WithTimeout(work, statementTimeout)
	defer cancel()
	rows, err := tx.Query(work, t.table.lock, t.s.opt.Batch)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// handOut hands out the locked rows that may go, one frame after the
// other, and returns the ids of those that are durable. The frames bound how
// fast rows are read, so that has no deadline of its own.
func (t *taker) handOut(ctx, work context.Context, tx pgx.Tx, locked []string) (durable []string, err error) {
	rows, err := tx.Query(work, t.table.choose, locked)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var records []transport.Received
	var ids []string
	bytes, assignment := 0, transport.NextAssignment()
	send := func() bool {
		t.s.state.idle()
		defer t.s.state.begin()
		f := transport.NewFrame(t.topic, t.table.identity, 0, assignment, records)
		if !handout.Frame(ctx, t.out, f, min(lateGrace, t.s.opt.StopGrace/2)) {
			return false
		}
		durable = append(durable, ids...)
		records, ids, bytes = nil, nil, 0
		return true
	}
	inHand := map[string]int64{} // rows by entity
	for rows.Next() {
		var r row
		if err := rows.Scan(&r.id, &r.entity, &r.payload, &r.eventID, &r.operation, &r.headers, &r.xmin, &r.lsn); err != nil {
			return nil, err
		}
		if len(records) > 0 && bytes+len(r.payload) > t.s.opt.FrameBytes && !send() {
			return durable, nil
		}
		if err := t.s.checkID(text(r.id)); err != nil {
			return nil, err
		}
		entity := text(r.entity)
		records = append(records, t.record(r, r.lsn*rowsPerEntity+inHand[entity]))
		ids = append(ids, text(r.id))
		bytes += len(r.payload)
		inHand[entity]++
	}
	if err := rows.Err(); err != nil {
		return nil, err // the rows are no longer this transaction's
	}
	if len(records) > 0 {
		send()
	}
	return durable, nil
}

// lateGrace is how long a shutdown waits for events to become durable.
const lateGrace = time.Second

// settle deletes rows and commits.
func (t *taker) settle(work context.Context, tx pgx.Tx, ids []string) error {
	work, cancel := context.WithTimeout(work, statementTimeout)
	defer cancel()
	crash.At(crash.OutboxSettling, t.s.opt.Name)
	done, err := tx.Exec(work, t.table.settle, ids)
	if err != nil {
		return err
	}
	if done.RowsAffected() != int64(len(ids)) {
		return setup.Errorf(kind, "%d rows of table %s have the ids of %d: column %q must be unique, and no trigger or policy may keep a row",
			done.RowsAffected(), t.s.table, len(ids), t.s.opt.Columns.ID)
	}
	crash.At(crash.OutboxSettled, t.s.opt.Name)
	if err := tx.Commit(work); err != nil {
		return err
	}
	crash.At(crash.OutboxCommitted, t.s.opt.Name)
	return nil
}

func (t *taker) waiting(work context.Context) (waiting bool, err error) {
	work, cancel := context.WithTimeout(work, statementTimeout)
	defer cancel()
	err = t.conn.QueryRow(work, t.table.waiting).Scan(&waiting)
	return waiting, err
}

// rest waits until it is time to look again. The error is of the connection.
func (t *taker) rest(ctx context.Context) error {
	if t.s.opt.Channel == "" {
		wait.Sleep(ctx, t.s.opt.Poll)
		return nil
	}
	// One notification is as good as many: those that came meanwhile are dropped.
	for wait := t.s.opt.Poll; ; wait = time.Millisecond {
		within, cancel := context.WithTimeout(ctx, wait)
		_, err := t.conn.Conn().WaitForNotification(within)
		cancel()
		switch {
		case t.conn.Conn().IsClosed():
			return fmt.Errorf("waiting for a notification: %w", err)
		case err != nil:
			return nil //nolint:nilerr // the time is over
		}
	}
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// record returns the event of a row.
func (t *taker) record(r row, offset int64) transport.Received {
	// The writing transaction distinguishes the row from an earlier one with the same id, after
	// the table was emptied and its numbers restarted.
	name := text(r.id) + "@" + r.xmin
	uuid := t.table.identity + "/" + name
	if id := text(r.eventID); id != "" {
		name = id
	}
	v := transport.Received{Key: []byte(text(r.entity)), Value: r.payload, Offset: offset, Time: time.Now().UTC()}
	header := func(key, value string) {
		v.Headers = append(v.Headers, transport.Header{Key: key, Value: []byte(value)})
	}
	for key, value := range members(text(r.headers)) {
		header(key, value)
	}
	header(EventIDMetadata, name)
	header(OperationMetadata, text(r.operation))
	header(transport.UUIDHeader, uuid)
	return v
}

// members returns the members of a JSON object as text: strings unescaped, other
// values as they are written. Names that Weir uses are its own.
func members(object string) map[string]string {
	var values map[string]json.RawMessage
	if object == "" || json.Unmarshal([]byte(object), &values) != nil {
		return nil
	}
	all := map[string]string{}
	for name, value := range values {
		var s string
		switch {
		case strings.HasPrefix(name, "weir-"), name == transport.UUIDHeader, string(value) == "null":
			continue
		case json.Unmarshal(value, &s) != nil:
			s = string(value)
		}
		all[name] = s
	}
	return all
}
