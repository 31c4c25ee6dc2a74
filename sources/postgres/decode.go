package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/seed-86dfc502/weir/internal/transport"
)

// relation is a table as the log describes it.
type relation struct {
	*table          // nil for one of no source
	key      []bool // by column: part of the replica identity
	shape    *shape // nil if its changes are not read
	doubtful []bool // by column: a stored document may have another value under its name
}

// entityKey names an entity of a table.
type entityKey struct {
	table  *table
	entity string
}

// decoder turns the messages of pgoutput into events of tables. It is for one goroutine and one
// connection: relations are described once in each.
type decoder struct {
	c *changes

	relations map[uint32]*relation
	written   map[entityKey]bool // in the transaction, of tables whose rows may share one
	absent    map[entityKey]bool // a change was left out, since its row was gone by then, or will be a dead letter
	at        place
	open      bool   // between Begin and Commit
	xid       uint32 // the open transaction, until other sessions see it; then 0
	streaming uint32 // the transaction of the chunk under way; 0 without one
	spilled   map[uint32]*spilled
	end       int64  // of the last transaction, all of whose events were emitted
	last      commit // the last one with events
	expected  commit // to come, as it was read before; 0: none is
}

// errDiverged says that the log lacks a transaction that was read of it.
var errDiverged = errors.New("the database was restored: its log lacks a transaction that was read")

// passed returns errDiverged if the log up to a position lacks the expected transaction.
func (d *decoder) passed(lsn int64) error {
	if d.expected.LSN != 0 && lsn > d.expected.LSN {
		return errDiverged
	}
	return nil
}

var errShort = errors.New("a message of the replication stream is cut off")

// message applies one message of the stream.
func (d *decoder) message(ctx context.Context, m []byte) error {
	if len(m) == 0 {
		return errShort
	}
	switch pglogrepl.MessageType(m[0]) {
	case pglogrepl.MessageTypeStreamStart, pglogrepl.MessageTypeStreamStop, pglogrepl.MessageTypeStreamAbort, pglogrepl.MessageTypeStreamCommit:
		parsed, err := pglogrepl.ParseV2(m, false)
		if err != nil {
			return fmt.Errorf("a message of the replication stream: %w", err)
		}
		return d.stream(ctx, parsed)
	}
	if d.streaming == 0 {
		return d.change(ctx, m)
	}
	// In a chunk the id of the (sub)transaction follows the type.
	if len(m) < 5 {
		return errShort
	}
	xid := binary.BigEndian.Uint32(m[1:])
	m[4] = m[0]
	return d.spilled[d.streaming].add(xid, m[4:])
}

// stream applies the begin or the end of a chunk, or of the transaction that it is of.
func (d *decoder) stream(ctx context.Context, m pglogrepl.Message) (err error) {
	switch m := m.(type) {
	case *pglogrepl.StreamStartMessageV2:
		d.streaming = m.Xid
		if d.spilled[m.Xid] == nil {
			d.spilled[m.Xid], err = newSpilled()
		}
		return err
	case *pglogrepl.StreamStopMessageV2:
		d.streaming = 0
	case *pglogrepl.StreamAbortMessageV2:
		s := d.spilled[m.Xid]
		switch {
		case s == nil:
		case m.Xid != m.SubXid:
			s.aborted[m.SubXid] = true
		default:
			delete(d.spilled, m.Xid)
			return s.close()
		}
	case *pglogrepl.StreamCommitMessageV2:
		s := d.spilled[m.Xid]
		if s == nil {
			return fmt.Errorf("transaction %d ends and did not begin", m.Xid)
		}
		delete(d.spilled, m.Xid)
		if err = d.begin(m.Xid, int64(m.CommitLSN), m.CommitTime); err == nil {
			err = s.replay(func(m []byte) error { return d.change(ctx, m) })
		}
		if err == nil {
			d.commit(int64(m.TransactionEndLSN))
		}
		return errors.Join(err, s.close())
	}
	return nil
}

func (d *decoder) begin(xid uint32, lsn int64, at time.Time) error {
	if d.expected == (commit{lsn, at.UnixMicro()}) {
		d.expected = commit{}
	}
	d.at, d.open, d.xid = place{stream: d.c.lines.stream(lsn), lsn: lsn, at: at}, true, xid
	clear(d.written)
	return d.passed(lsn + 1)
}

// ask is called before the database is asked about the open transaction. The log has a commit before
// other sessions see its rows, and much earlier if it waits for a standby: rows that they do not
// see would seem deleted.
func (d *decoder) ask(ctx context.Context) error {
	if d.xid == 0 {
		return nil
	}
	err := d.c.during(ctx, func(ctx context.Context) error { return d.c.visible(ctx, d.xid) })
	if err == nil {
		d.xid = 0
	}
	return err
}

func (d *decoder) commit(end int64) {
	d.end, d.open = end, false
	if d.at.index > 0 {
		d.last = commit{d.at.lsn, d.at.at.UnixMicro()}
	}
}

// change applies a message outside a chunk.
func (d *decoder) change(ctx context.Context, m []byte) error {
	parsed, err := pglogrepl.Parse(m)
	if err != nil {
		return fmt.Errorf("a message of the replication stream: %w", err)
	}
	switch m := parsed.(type) {
	case *pglogrepl.BeginMessage:
		return d.begin(m.Xid, int64(m.FinalLSN), m.CommitTime)
	case *pglogrepl.CommitMessage:
		d.commit(int64(m.TransactionEndLSN))
	case *pglogrepl.RelationMessage:
		return d.relation(ctx, m)
	}
	// Each message has a place, whether its table is read or not: places do not depend on the
	// configuration. It has two: a key change is two events.
	d.at.index += 2
	switch m := parsed.(type) {
	case *pglogrepl.InsertMessage:
		return d.row(ctx, m.RelationID, rowChange{after: m.Tuple, insert: true})
	case *pglogrepl.UpdateMessage:
		return d.row(ctx, m.RelationID, rowChange{before: m.OldTuple, whole: m.OldTupleType == pglogrepl.UpdateMessageTupleTypeOld, after: m.NewTuple})
	case *pglogrepl.DeleteMessage:
		return d.row(ctx, m.RelationID, rowChange{before: m.OldTuple, whole: m.OldTupleType == pglogrepl.DeleteMessageTupleTypeOld})
	case *pglogrepl.TruncateMessage:
		return d.truncate(ctx, m)
	}
	return nil
}

// relation notes how the log describes a table. It returns a rereadError if the table is not the one
// whose rows were read.
func (d *decoder) relation(ctx context.Context, m *pglogrepl.RelationMessage) error {
	name := m.Namespace + "." + m.RelationName
	r := &relation{table: d.c.tables[name]}
	d.relations[m.RelationID] = r
	for _, t := range d.c.tables {
		if t.state.OID == m.RelationID && t.name != name && !t.leavesOut(d.at.lsn) {
			return &rereadError{t, "it had the name " + name}
		}
	}
	switch t := r.table; {
	case t == nil:
		return nil
	case t.state.OID == m.RelationID:
	case !t.leavesOut(d.at.lsn):
		return &rereadError{t, "another table had its name"}
	default:
		return nil
	}
	if err := d.ask(ctx); err != nil {
		return err
	}
	var names []string
	var oids []uint32
	for _, c := range m.Columns {
		names, oids = append(names, c.Name), append(oids, c.DataType)
		r.key = append(r.key, c.Flags&1 != 0)
	}
	types, err := d.c.describe(ctx, oids)
	if err != nil {
		return err
	}
	r.shape = newShape(names, types, r.state.Entity)
	for i, name := range names {
		r.shape.columns[i].leftOut = r.state.generated[name]
	}
	if r.leavesOut(d.at.lsn) {
		return nil
	}
	for _, i := range r.shape.entity {
		if i < 0 || !r.key[i] {
			return &rereadError{r.table, "its replica identity, or what is published of it, was without its entity"}
		}
	}
	r.doubtful, err = r.learn(ctx, names)
	return err
}

// rowChange is the change of a row: without before an insert or an update that left the replica
// identity alone, without after a delete.
type rowChange struct {
	before, after *pglogrepl.TupleData
	whole         bool // before has all columns, not the replica identity alone
	insert        bool
}

// row emits the change of a row.
func (d *decoder) row(ctx context.Context, id uint32, c rowChange) error {
	r := d.relations[id]
	switch {
	case r == nil:
		return fmt.Errorf("relation %d was not described", id)
	case r.shape == nil || r.leavesOut(d.at.lsn):
		return nil
	}
	old, err := r.values(c.before)
	if err != nil {
		return err
	}
	was := r.oldID(old, c.whole)
	if c.after == nil {
		return d.leave(ctx, r, was, old)
	}
	row, err := r.values(c.after)
	if err != nil {
		return err
	}
	// A large value that stays is in the old tuple, if that has its column.
	for i := range row {
		if row[i].unchanged && old != nil && (c.whole || r.key[i]) && !old[i].unchanged {
			row[i] = old[i]
		}
	}
	entity := r.shape.id(row)
	if was == entity {
		was = ""
	}
	if was != "" {
		if err := d.leave(ctx, r, was, old); err != nil {
			return err
		}
	}
	// The stored document of the entity is not the row before, if the row comes from another entity or
	// into the publication.
	row, err = d.complete(ctx, r, entity, row, c.insert || was != "")
	if row == nil || err != nil {
		return err
	}
	if r.shared {
		d.written[entityKey{r.table, entity}] = true
	}
	return d.upsert(ctx, r, entity, row)
}

// now returns the row that an entity has now; nil without one.
func (d *decoder) now(ctx context.Context, t *table, q lookup) ([]value, error) {
	if err := d.ask(ctx); err != nil {
		return nil, err
	}
	return t.current(ctx, q)
}

// upsert emits a row.
func (d *decoder) upsert(ctx context.Context, r *relation, entity string, row []value) error {
	document, err := r.shape.document(row)
	if err != nil {
		d.absent[entityKey{r.table, entity}] = true
		return d.emitNext(ctx, r, entity, transport.RefusedPayload, refusal(r.name, err))
	}
	if most := r.s.r.opt.MaxEvents[r.name]; most > 0 && len(document) > most {
		d.absent[entityKey{r.table, entity}] = true
	}
	return d.emitNext(ctx, r, entity, document, r.shape.unchanged(row))
}

// leave emits that a row is no more, or has another entity now. If another row may have taken its
// entity within the transaction, the database says whether there is one.
func (d *decoder) leave(ctx context.Context, r *relation, entity string, old []value) error {
	delete(d.absent, entityKey{r.table, entity})
	if d.written[entityKey{r.table, entity}] {
		row, err := d.now(ctx, r.table, r.lookup(old, true, nil))
		if err != nil {
			return err
		}
		if row != nil {
			return d.upsert(ctx, r, entity, row)
		}
	}
	return d.emitNext(ctx, r, entity, nil, nil)
}

// complete reads columns that a change left alone and that the stored document may not have. It returns
// nil if the row is gone by now: a deletion follows.
func (d *decoder) complete(ctx context.Context, r *relation, entity string, row []value, fresh bool) ([]value, error) {
	at := entityKey{r.table, entity}
	fresh = fresh || r.amidRows(d.at.lsn)
	var missing []int
	for i := range row {
		if row[i].unchanged && !r.shape.columns[i].leftOut {
			missing = append(missing, i)
			fresh = fresh || strings.Contains(r.shape.columns[i].title(), "\n") // a list of names cannot have it
		}
	}
	if len(missing) == 0 {
		delete(d.absent, at)
		return row, nil
	}
	if !fresh && !d.absent[at] {
		for _, i := range missing {
			if r.doubtful != nil && r.doubtful[i] {
				return nil, &rereadError{r.table, fmt.Sprintf("a change leaves column %s alone, which had another name", r.shape.columns[i].title())}
			}
		}
		return row, nil
	}
	now, err := d.now(ctx, r.table, r.lookup(row, false, missing))
	if err != nil {
		return nil, err
	}
	if now == nil {
		d.absent[at] = true
		return nil, nil
	}
	for n, i := range missing {
		row[i] = now[n]
	}
	delete(d.absent, at)
	return row, nil
}

// lookup asks for columns of the row with the entity of another; nil: for all.
func (r *relation) lookup(row []value, filtered bool, columns []int) lookup {
	q := lookup{filtered: filtered}
	for _, i := range r.shape.entity {
		q.entity = append(q.entity, string(row[i].text))
	}
	for i, c := range r.shape.columns {
		if columns == nil || slices.Contains(columns, i) {
			q.columns = append(q.columns, c.title())
		}
	}
	return q
}

// oldID is the entity of the row before; empty if the old tuple does not have it.
func (r *relation) oldID(old []value, whole bool) string {
	if old == nil {
		return ""
	}
	for _, i := range r.shape.entity {
		if i < 0 || !whole && !r.key[i] {
			return ""
		}
	}
	return r.shape.id(old)
}

// values returns a tuple's columns; nil without one.
func (r *relation) values(t *pglogrepl.TupleData) ([]value, error) {
	if t == nil {
		return nil, nil
	}
	if len(t.Columns) != len(r.shape.columns) {
		return nil, fmt.Errorf("a row of %s has %d columns, not %d", r.name, len(t.Columns), len(r.shape.columns))
	}
	row := make([]value, len(t.Columns))
	for i, c := range t.Columns {
		switch c.DataType {
		case pglogrepl.TupleDataTypeNull:
		case pglogrepl.TupleDataTypeToast:
			row[i].unchanged = true
		default:
			if row[i].text = c.Data; c.Data == nil {
				row[i].text = []byte{}
			}
		}
	}
	return row, nil
}

// truncate deletes the entities of tables. They share one place: which of them are left after a
// kill must not move the places of later changes.
func (d *decoder) truncate(ctx context.Context, m *pglogrepl.TruncateMessage) error {
	for _, id := range m.RelationIDs {
		r := d.relations[id]
		if r == nil || r.shape == nil || r.leavesOut(d.at.lsn) {
			continue
		}
		at := d.at
		at.many = true
		err := d.c.stored(ctx, r.source, func(ids []string) error {
			for _, entity := range ids {
				if err := d.c.emit(ctx, r.source, at.record(entity, nil), at.stream); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// refusal is the header of a row that becomes a dead letter.
func refusal(table string, why error) []transport.Header {
	return []transport.Header{{Key: transport.RefusalHeader, Value: fmt.Appendf(nil, "bad_row: table %s: %v", table, why)}}
}

func (d *decoder) emitNext(ctx context.Context, r *relation, entity string, document []byte, headers []transport.Header) error {
	at := d.at
	if document != nil {
		at.index++ // behind the deletion of the entity that the row was
	}
	record := at.record(entity, document)
	record.Headers = append(record.Headers, headers...)
	return d.c.emit(ctx, r.source, record, at.stream)
}

// close removes the spilled transactions that did not commit.
func (d *decoder) close() {
	for _, s := range d.spilled {
		_ = s.close() // it has no name: nothing is left
	}
}
