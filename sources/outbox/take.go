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
	"github.com/seed-86dfc502/weir/internal/pause"
	"github.com/seed-86dfc502/weir/transport"
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

// take takes what there is, hands it out, and deletes or marks what is durable.
// It gives the number of those rows. The end of ctx is a stop: rows that are
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
	h := t.newHand(ctx)
	err = t.handOut(work, tx, locked, h)
	t.s.state.idle()
	if err != nil {
		h.cancel() // the rows are not this transaction's any more
	}
	durable := h.wait()
	if err != nil || len(durable) == 0 {
		return 0, err
	}
	t.s.state.begin()
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

// handOut hands out those of the locked rows that may go. The room for their
// payloads bounds how fast they are read, so it has no deadline of its own.
func (t *taker) handOut(work context.Context, tx pgx.Tx, locked []string, h *hand) error {
	rows, err := tx.Query(work, t.table.choose, locked)
	if err != nil {
		return err
	}
	defer rows.Close()
	inHand := map[string]int64{} // rows by entity
	for rows.Next() {
		var r row
		if err := rows.Scan(&r.id, &r.entity, &r.payload, &r.eventID, &r.operation, &r.headers, &r.xmin, &r.lsn); err != nil {
			return err
		}
		t.s.state.idle()
		entity := text(r.entity)
		offset := r.lsn*rowsPerEntity + inHand[entity]
		inHand[entity]++
		if !h.send(r, offset) {
			return nil
		}
		t.s.state.begin()
	}
	return rows.Err()
}

// settle deletes or marks rows and commits.
func (t *taker) settle(work context.Context, tx pgx.Tx, ids []string) error {
	work, cancel := context.WithTimeout(work, statementTimeout)
	defer cancel()
	crash.At(crash.OutboxSettling, t.s.opt.Name)
	done, err := tx.Exec(work, t.table.settle, ids)
	if err != nil {
		return err
	}
	if done.RowsAffected() != int64(len(ids)) {
		return &SetupError{fmt.Errorf("%d rows of table %s have the ids of %d: column %q must be unique, and no trigger or policy may keep a row",
			done.RowsAffected(), t.s.sql.table, len(ids), t.s.opt.Columns.ID)}
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
		pause.For(ctx, t.s.opt.Poll)
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

// hand is the rows of one take.
type hand struct {
	t        *taker
	ctx      context.Context // of the messages
	cancel   context.CancelFunc
	claim    uint64
	seq      uint64
	inFlight chan flight
	done     chan struct{}
	durable  []string // ids; the tracker's until done is closed
}

type flight struct {
	msg  *message.Message
	id   string
	room int64 // bytes of the window that it takes
}

func (t *taker) newHand(ctx context.Context) *hand {
	h := &hand{t: t, claim: t.s.claims.Add(1), inFlight: make(chan flight, t.s.opt.Batch), done: make(chan struct{})}
	h.ctx, h.cancel = context.WithCancel(ctx)
	go h.track() // #nosec G118 -- it ends with h's own context; last marks run when that is over
	return h
}

// send hands out one row; false when a stop has come.
func (h *hand) send(r row, offset int64) bool {
	s := h.t.s
	room := min(int64(len(r.payload)), s.opt.WindowBytes)
	if s.room.Acquire(h.ctx, room) != nil {
		return false
	}
	m := h.message(r, transport.Position{
		Topic: h.t.topic, TopicID: h.t.table.identity, Offset: offset, Time: time.Now().UTC(), Claim: h.claim, Seq: h.seq,
	})
	h.seq++
	h.inFlight <- flight{m, text(r.id), room} // there is room for a whole batch
	select {
	case h.t.out <- m:
		return true
	case <-h.ctx.Done():
		m.Nack() // nobody has it
		return false
	}
}

func (h *hand) message(r row, p transport.Position) *message.Message {
	// The transaction that wrote the row tells it from one that had its id
	// before the table was emptied and its numbers began anew.
	name := text(r.id) + "@" + r.xmin
	m := message.NewMessage(h.t.table.identity+"/"+name, r.payload)
	for key, value := range members(text(r.headers)) {
		m.Metadata.Set(key, value)
	}
	m.Metadata.Set(transport.KeyMetadata, text(r.entity))
	if r.payload == nil {
		m.Metadata.Set(transport.NullMetadata, "1")
	}
	if id := text(r.eventID); id != "" {
		name = id
	}
	m.Metadata.Set(EventIDMetadata, name)
	m.Metadata.Set(OperationMetadata, text(r.operation))
	m.SetContext(transport.WithPosition(h.ctx, p))
	return m
}

// members gives the members of a JSON object as text: strings unescaped, other
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
		case strings.HasPrefix(name, "weir-"), string(value) == "null":
			continue
		case json.Unmarshal(value, &s) != nil:
			s = string(value)
		}
		all[name] = s
	}
	return all
}

// lateGrace is how long a stop waits for events to become durable.
const lateGrace = time.Second

// track follows the messages in their order. One that was refused is handed out
// again. After a stop it waits for what is nearly durable only.
func (h *hand) track() {
	defer close(h.done)
	late, cancel := pause.Outlast(context.Background(), h.ctx, min(lateGrace, h.t.s.opt.StopGrace/2))
	defer cancel()
	for f := range h.inFlight {
		if h.follow(late, f.msg) {
			h.durable = append(h.durable, f.id)
		}
		h.t.s.room.Release(f.room)
	}
}

// follow waits for one message, and tells whether its event is durable.
func (h *hand) follow(late context.Context, m *message.Message) bool {
	for m != nil {
		select {
		case <-m.Acked():
			return true
		case <-m.Nacked():
			m = h.again(m)
			continue
		case <-late.Done():
		}
		select {
		case <-m.Acked():
			return true
		default:
			return false
		}
	}
	return false
}

// again hands a message out once more; nil after a stop.
func (h *hand) again(m *message.Message) *message.Message {
	if !pause.For(h.ctx, 20*time.Millisecond) {
		return nil
	}
	next := m.Copy()
	next.SetContext(m.Context())
	select {
	case h.t.out <- next:
		return next
	case <-h.ctx.Done():
		return nil
	}
}

// wait returns the ids of the rows that are durable, when all are or a stop
// has come.
func (h *hand) wait() []string {
	close(h.inFlight)
	<-h.done
	h.cancel()
	return h.durable
}
