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
	"github.com/seed-86dfc502/weir/transport"
)

// relation is a table as the log describes it.
type relation struct {
	table    string // schema.name
	key      []bool // by column: part of the replica identity
	shape    *shape // nil for a table of no source
	doubtful []bool // by column: a stored document may have another value under its name
}

// reading is a table whose changes are read.
type reading struct {
	entity []string // columns of the entity id
	oid    uint32
	rows   int64 // place of its first rows: changes up to it are left out
	until  int64 // place of its last rows: up to it a large value that stays is read from the row
	// shared says that rows may exchange entities within a transaction: no immediate unique
	// index has the entity.
	shared   bool
	maxEvent int // larger documents become dead letters; 0 for no limit
	// generated columns are left out, by name.
	generated map[string]bool
	// learn takes the names of the columns in the log, and returns which are doubtful.
	learn func(ctx context.Context, names []string) ([]bool, error)
}

// decoder turns the messages of pgoutput into events of tables. It is for one goroutine and one
// connection: relations are described once in each.
type decoder struct {
	tables   map[string]*reading
	describe func(ctx context.Context, oids []uint32) ([]valueType, error)
	stream   func(lsn int64) stream // that has a position
	emit     func(ctx context.Context, table string, r transport.Received, stream stream) error
	// visible returns when other sessions of the database see a transaction.
	visible func(ctx context.Context, xid uint32) error
	// current returns the row that an entity has now; nil without one.
	current func(ctx context.Context, q lookup) ([]value, error)
	// stored calls each with the entities of a table, when all that was emitted is decided.
	stored func(ctx context.Context, table string, each func(ids []string) error) error

	relations map[uint32]*relation
	written   map[string]bool // in the transaction: table and entity, of tables whose rows may share one
	absent    map[string]bool // table and entity: a change was left out, since its row was gone by then, or will be a dead letter
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
	case pglogrepl.MessageTypeStreamStart:
		return d.streamStart(m)
	case pglogrepl.MessageTypeStreamStop:
		d.streaming = 0
		return nil
	case pglogrepl.MessageTypeStreamAbort:
		return d.streamAbort(m)
	case pglogrepl.MessageTypeStreamCommit:
		return d.streamCommit(ctx, m)
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

func (d *decoder) streamStart(m []byte) error {
	if len(m) < 6 {
		return errShort
	}
	d.streaming = binary.BigEndian.Uint32(m[1:])
	if d.spilled[d.streaming] != nil {
		return nil
	}
	s, err := newSpilled()
	if err == nil {
		d.spilled[d.streaming] = s
	}
	return err
}

func (d *decoder) streamAbort(m []byte) error {
	if len(m) < 9 {
		return errShort
	}
	xid, sub := binary.BigEndian.Uint32(m[1:]), binary.BigEndian.Uint32(m[5:])
	s := d.spilled[xid]
	switch {
	case s == nil:
		return nil
	case xid != sub:
		s.abort(sub)
		return nil
	}
	delete(d.spilled, xid)
	return s.close()
}

func (d *decoder) streamCommit(ctx context.Context, m []byte) error {
	if len(m) < 30 {
		return errShort
	}
	xid := binary.BigEndian.Uint32(m[1:])
	commit, end := int64(binary.BigEndian.Uint64(m[6:])), int64(binary.BigEndian.Uint64(m[14:]))
	at := time.UnixMicro(int64(binary.BigEndian.Uint64(m[22:])) + microsecondsTo2000)
	s := d.spilled[xid]
	if s == nil {
		return fmt.Errorf("transaction %d ends and did not begin", xid)
	}
	delete(d.spilled, xid)
	err := d.begin(xid, commit, at)
	if err == nil {
		err = s.replay(func(m []byte) error { return d.change(ctx, m) })
	}
	if err == nil {
		d.commit(end)
	}
	return errors.Join(err, s.close())
}

// microsecondsTo2000 is PostgreSQL's epoch.
const microsecondsTo2000 = 946684800 * 1_000_000

func (d *decoder) begin(xid uint32, lsn int64, at time.Time) error {
	if d.expected == (commit{lsn, at.UnixMicro()}) {
		d.expected = commit{}
	}
	d.at, d.open, d.xid = place{stream: d.stream(lsn), lsn: lsn, at: at}, true, xid
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
	err := d.visible(ctx, d.xid)
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
	r := &relation{table: m.Namespace + "." + m.RelationName}
	d.relations[m.RelationID] = r
	for name, t := range d.tables {
		if t.oid == m.RelationID && name != r.table && d.at.lsn > t.rows {
			return &rereadError{name, "it had the name " + r.table}
		}
	}
	t, wanted := d.tables[r.table]
	switch {
	case !wanted:
		return nil
	case t.oid == m.RelationID:
	case d.at.lsn > t.rows:
		return &rereadError{r.table, "another table had its name"}
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
	types, err := d.describe(ctx, oids)
	if err != nil {
		return err
	}
	r.shape = newShape(names, types, t.entity)
	for i, name := range names {
		r.shape.columns[i].leftOut = t.generated[name]
	}
	if d.at.lsn <= t.rows {
		return nil
	}
	for _, i := range r.shape.entity {
		if i < 0 || !r.key[i] {
			return &rereadError{r.table, "its replica identity, or what is published of it, was without its entity"}
		}
	}
	r.doubtful, err = t.learn(ctx, names)
	return err
}

// rowChange is the change of a row: without before an insert or an update that left the replica
// identity alone, without after a delete.
type rowChange struct {
	before, after *pglogrepl.TupleData
	whole         bool // before has all columns, not those of the replica identity alone
	insert        bool
}

// row emits the change of a row.
func (d *decoder) row(ctx context.Context, id uint32, c rowChange) error {
	r := d.relations[id]
	switch {
	case r == nil:
		return fmt.Errorf("relation %d was not described", id)
	case r.shape == nil || d.leavesOut(r.table):
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
	if d.tables[r.table].shared {
		d.written[r.table+"\x00"+entity] = true
	}
	return d.upsert(ctx, r, entity, row)
}

// now returns the row that an entity has now; nil without one.
func (d *decoder) now(ctx context.Context, q lookup) ([]value, error) {
	if err := d.ask(ctx); err != nil {
		return nil, err
	}
	return d.current(ctx, q)
}

// upsert emits a row.
func (d *decoder) upsert(ctx context.Context, r *relation, entity string, row []value) error {
	document, err := r.shape.document(row)
	if err != nil {
		d.absent[r.table+"\x00"+entity] = true
		return d.emitNext(ctx, r, entity, transport.RefusedPayload, refusal(r.table, err))
	}
	if most := d.tables[r.table].maxEvent; most > 0 && len(document) > most {
		d.absent[r.table+"\x00"+entity] = true
	}
	return d.emitNext(ctx, r, entity, document, r.shape.unchanged(row))
}

// leave emits that a row is no more, or has another entity now. If another row may have taken its
// entity within the transaction, the database says whether there is one.
func (d *decoder) leave(ctx context.Context, r *relation, entity string, old []value) error {
	delete(d.absent, r.table+"\x00"+entity)
	if d.written[r.table+"\x00"+entity] {
		row, err := d.now(ctx, r.lookup(old, true, nil))
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
	at := r.table + "\x00" + entity
	fresh = fresh || d.at.lsn <= d.tables[r.table].until
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
	now, err := d.now(ctx, r.lookup(row, false, missing))
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
	q := lookup{table: r.table, filtered: filtered}
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
		return nil, fmt.Errorf("a row of %s has %d columns, not %d", r.table, len(t.Columns), len(r.shape.columns))
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
		if r == nil || r.shape == nil {
			continue
		}
		if d.leavesOut(r.table) {
			continue
		}
		at := d.at
		at.many = true
		err := d.stored(ctx, r.table, func(ids []string) error {
			for _, entity := range ids {
				if err := d.emit(ctx, r.table, at.record(entity, nil), at.stream); err != nil {
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

// leavesOut reports whether the changes of the transaction are in the rows of a table.
func (d *decoder) leavesOut(table string) bool {
	return d.at.lsn <= d.tables[table].rows
}

func (d *decoder) emitNext(ctx context.Context, r *relation, entity string, document []byte, headers []transport.Header) error {
	at := d.at
	if document != nil {
		at.index++ // behind the deletion of the entity that the row was
	}
	record := at.record(entity, document)
	record.Headers = append(record.Headers, headers...)
	return d.emit(ctx, r.table, record, at.stream)
}

// close removes the spilled transactions that did not commit.
func (d *decoder) close() {
	for _, s := range d.spilled {
		_ = s.close() // it has no name: nothing is left
	}
}
