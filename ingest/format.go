package ingest

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/tidwall/gjson"
)

// Format is the form of a source's values. The zero Format is JSON.
type Format string

const (
	// JSON is a value as the producer wrote it: locators find its parts.
	JSON Format = "json"
	// Debezium is the envelope of Debezium's change events in JSON, with or
	// without the schema of Kafka Connect's JsonConverter
	// (debezium.io/documentation, "Data change events" of each connector).
	Debezium Format = "debezium"
	// Maxwell is the JSON of Maxwell's daemon (maxwells-daemon.io/dataformat).
	Maxwell Format = "maxwell"
)

// notice is something about an event to log once per source. The zero value means nothing to log.
type notice struct{ event, text string }

// Events of notices: a null may be a value that an update left unchanged, and an update may move
// a row from an entity that it does not name.
const nullNotice, moveNotice = "format.null_may_be_unchanged", "format.no_row_before"

// opening finds the meaning of one event, independent of its format.
type opening struct {
	*Extractor
	ev   *transport.Received
	root canonicaltree.Node // of the value; absent for a null record

	entity  string
	moved   string // the entity of the row before an update, empty if it is the same
	op      change.Op
	payload canonicaltree.Node  // of an upsert
	meta    canonicaltree.Node  // in which event id and sequence are looked for
	skip    bool                // it is about no row
	tree    *canonicaltree.Tree // of the payload, if the value has another
	// read says that a snapshot read the row, so that a time in the event is that of the reading.
	read bool
	// sparse says that large values that the update left alone may be null in the payload.
	sparse bool
	notice notice
}

func (o *opening) release() {
	if o.tree != nil {
		o.tree.Release()
	}
}

// open finds entity, operation and payload.
func (o *opening) open() error {
	switch o.op = change.Upsert; o.Format {
	case Debezium:
		return o.debezium()
	case Maxwell:
		return o.maxwell()
	}
	err := o.plain()
	if err == nil && o.op == change.Upsert && (!o.Operation.isZero() || o.byTime()) {
		o.flattened()
	}
	return err
}

// Envelopes of Debezium, by the member op.
const (
	debeziumCreate, debeziumRead, debeziumUpdate = "c", "r", "u"
	debeziumDelete, debeziumTruncate             = "d", "t"
	debeziumMessage                              = "m" // pg_logical_emit_message
)

// debezium opens the envelope of a change event. Events without a row, such as a heartbeat,
// are skipped.
func (o *opening) debezium() error {
	envelope := withoutSchema(o.root)
	switch envelope.Kind() {
	case canonicaltree.Invalid, canonicaltree.Null:
		return o.tombstone()
	case canonicaltree.Object:
	default:
		return refuse("bad_envelope", "the value is no JSON object, so no event of Debezium")
	}
	op, ok := envelope.Get("op").Text()
	if !ok {
		if debeziumAside(envelope) {
			o.skip = true
			return nil
		}
		return refuse("bad_envelope", "the value has no member op, so it is no event of Debezium; events that ExtractNewRecordState flattened are format json")
	}
	o.meta = envelope
	connector := textOf(envelope.Get("source").Get("connector"))
	old := o.imageOf(envelope.Get("before"), fieldsOf(o.root, "before"), connector)
	switch op {
	case debeziumCreate, debeziumRead, debeziumUpdate:
		after := envelope.Get("after")
		if after.Kind() != canonicaltree.Object {
			return refuse("no_row", "the event has no row in after")
		}
		o.payload, o.read = after, op == debeziumRead
		if op != debeziumRead && connector == debeziumPostgres && old.row.Kind() != canonicaltree.Object && !o.WholeRows {
			o.withoutImage(fieldsOf(o.root, "after"), op)
		}
		return o.entityOf(after, old)
	case debeziumDelete:
		o.op = change.Delete
		return o.entityOfDeleted(old)
	case debeziumMessage:
		o.skip = true
		return nil
	case debeziumTruncate:
		return refuse("truncate", "the table was truncated, which does not say which entities it had: delete them at the source, or send deletes for them")
	}
	return refuse("bad_envelope", "the member op is none that Debezium has")
}

// debeziumPostgres is the connector of PostgreSQL in source.connector.
const debeziumPostgres = "postgresql"

// withoutImage notes the gaps of an update of a PostgreSQL table whose row before is
// not logged. fields are the columns of the row in the record's schema. The change of a primary
// key is a delete and a create.
func (o *opening) withoutImage(fields canonicaltree.Node, op string) {
	if o.sparse = op == debeziumUpdate || o.ev.Header("__debezium.oldkey") != ""; !o.sparse {
		return
	}
	const remedy = "; ALTER TABLE … REPLICA IDENTITY FULL, then row_image: full"
	if column, ok := mayBeUnchanged(o.payload, fields); ok && !slices.Contains(o.UnchangedAsNull, column) {
		o.notice = notice{nullNotice, "column " + strconv.Quote(column) +
			" is null in an update, which Debezium writes also for a large value that the update left unchanged" + remedy}
	} else if o.leavesKey(op) {
		o.notice = notice{moveNotice, "updates come without the row before: one that moves a row to another entity leaves the row at its former entity" + remedy}
	}
}

// leavesKey reports whether an update may have moved the row to another entity: a column outside
// the record's key has the entity.
func (o *opening) leavesKey(op string) bool {
	return op == debeziumUpdate && o.Entity.Path != "" && !inKey(o.ev.Key, o.column())
}

// debeziumAside reports whether an envelope without op is one of those that
// Debezium sends beside rows: heartbeats, the beginning and end of
// transactions, changes of the schema.
func debeziumAside(envelope canonicaltree.Node) bool {
	has := func(names ...string) bool {
		for _, name := range names {
			if !envelope.Get(name).Exists() {
				return false
			}
		}
		return true
	}
	switch {
	case has("ts_ms") && onlyTimes(envelope):
	case has("status", "id", "data_collections"):
	case has("ddl", "databaseName"), has("tableChanges"):
	default:
		return false
	}
	return true
}

// onlyTimes reports whether an object has nothing but ts_ms, ts_us and the like.
func onlyTimes(n canonicaltree.Node) bool {
	for name := range n.Members() {
		if !strings.HasPrefix(name, "ts_") {
			return false
		}
	}
	return true
}

// withoutSchema unwraps a value that JsonConverter wrote with schemas.enable, and returns any
// other as it is.
func withoutSchema(n canonicaltree.Node) canonicaltree.Node {
	if n.Len() == 2 && n.Get("schema").Exists() && n.Get("payload").Exists() {
		return n.Get("payload")
	}
	return n
}

// Types of Maxwell's events.
const (
	maxwellInsert, maxwellUpdate, maxwellDelete = "insert", "update", "delete"
	maxwellBootstrap                            = "bootstrap-insert"
)

// maxwell takes a row out of an event of Maxwell. Changes of the schema, and
// the beginning and the end of a bootstrap, are skipped.
func (o *opening) maxwell() error {
	switch o.root.Kind() {
	case canonicaltree.Invalid, canonicaltree.Null:
		return o.tombstone()
	case canonicaltree.Object:
	default:
		return refuse("bad_envelope", "the value is no JSON object, so no event of Maxwell")
	}
	kind, _ := o.root.Get("type").Text()
	o.meta = o.root
	data := o.root.Get("data")
	switch kind {
	case maxwellInsert, maxwellUpdate, maxwellDelete, maxwellBootstrap:
		if data.Kind() != canonicaltree.Object {
			return refuse("no_row", "the event has no row in data; rows that Maxwell encrypts cannot be read")
		}
	case "bootstrap-start", "bootstrap-complete",
		"table-create", "table-alter", "table-drop", "database-create", "database-alter", "database-drop":
		o.skip = true
		return nil
	default:
		return refuse("bad_envelope", "the member type is none that Maxwell has")
	}
	if kind == maxwellDelete {
		o.op = change.Delete
		return o.entityOfDeleted(image{row: data, whole: true})
	}
	o.payload, o.read = data, kind == maxwellBootstrap
	return o.entityOf(data, image{row: o.root.Get("old"), whole: true})
}

// byTime reports whether a connector's time is the sequence: source.ts_ms, ts of Maxwell, or a
// flattened __source_ts_ms.
func (s *Extractor) byTime() bool {
	name := s.Sequence.Path[strings.LastIndexByte(s.Sequence.Path, '.')+1:]
	name = strings.TrimPrefix(strings.TrimPrefix(name, "__"), "source_")
	return name == "ts" || strings.HasPrefix(name, "ts_")
}

// entityOf finds the entity of a row, and the one that it had before. old is the row
// before the update, or its changed columns, as far as the event has them.
func (o *opening) entityOf(row canonicaltree.Node, old image) (err error) {
	if o.entity, err = o.entityIn(row); err != nil {
		return err
	}
	if o.entity == "" {
		return refuse("no_entity", "the row has no entity id at %s", o.Entity)
	}
	if err := o.checkEntity(o.entity); err != nil || old.row.Kind() != canonicaltree.Object {
		return err
	}
	was, err := o.entityIn(old.row)
	if err != nil || was == "" || was == o.entity {
		return nil //nolint:nilerr // the row before has no entity
	}
	if !old.has(o.Entity.Path, was) {
		return refuse("no_entity", "the row before the update has another entity id at %s, which may not be its own: %s", o.Entity, madeUpRemedy)
	}
	o.moved = was
	return o.checkEntity(was)
}

const madeUpRemedy = "Debezium fills a column that PostgreSQL did not log with 0, an empty text, 1970 or its default. " +
	"ALTER TABLE … REPLICA IDENTITY FULL, then row_image: full"

// entityOfDeleted finds the entity of a deleted row: in the row before, if that value is
// known to be the row's own, or in the record's key.
func (o *opening) entityOfDeleted(old image) error {
	was, err := o.entityIn(old.row)
	if err != nil {
		return err
	}
	if o.Entity.Header != "" || was != "" && !o.Entity.Key && old.has(o.Entity.Path, was) {
		o.entity = was
	} else if o.entity, err = o.entityOfKey(was, old); err != nil {
		return err
	}
	if o.entity == "" {
		return refuse("no_entity", "neither the deleted row nor the key has the entity id at %s: the database must log it "+
			"(PostgreSQL: ALTER TABLE … REPLICA IDENTITY FULL; MySQL: binlog_row_image=FULL)", o.Entity)
	}
	return o.checkEntity(o.entity)
}

// entityOfKey finds the entity of a deleted row in the record's key. was is the id in the row
// before. It counts if it is the whole key. A value that a connector makes up for a key that is
// not logged is refused, and so is an id that only the row has. The result is empty without an
// id.
func (o *opening) entityOfKey(was string, old image) (string, error) {
	id, filler, err := o.entityInKey(was)
	if err != nil {
		return "", err
	}
	if id == "" && was != "" || id != "" && filler && !old.whole {
		return "", refuse("no_entity", "the deleted row's entity id at %s may not be its own: %s", o.Entity, madeUpRemedy)
	}
	return id, nil
}

// tombstone handles a null record, whose key names a deleted row. It follows the delete event, so
// it is skipped if its key lacks the entity. It is skipped also if events have a sequence: a
// connector that resends its last events resends a tombstone too, which has no sequence to show
// that a row created since is newer.
func (o *opening) tombstone() (err error) {
	o.op = change.Delete
	if !o.Sequence.isZero() && (o.Sequence.Header == "" || o.ev.Header(o.Sequence.Header) == "") {
		o.skip = true
		return nil
	}
	if o.Entity.Header != "" {
		o.entity = o.ev.Header(o.Entity.Header)
	} else if o.entity, err = o.entityOfKey("", image{whole: o.WholeRows || o.Format != Debezium}); err != nil {
		return err
	}
	if o.entity == "" {
		o.skip = true
		return nil
	}
	return o.checkEntity(o.entity)
}

// entityIn finds the entity in a row, or empty when it is not there.
func (o *opening) entityIn(row canonicaltree.Node) (string, error) {
	if o.Entity.Key {
		id, _, err := o.entityInKey("")
		return id, err
	}
	return locate("entity id", o.Entity, o.ev, row)
}

// entityInKey finds the entity in the record's key: at the entity's path if the key holds
// columns, or the key itself if so configured or if it is the id was. Empty when it is
// absent. filler says that a connector may have made it up, see madeUp.
func (o *opening) entityInKey(was string) (id string, filler bool, err error) {
	var record, key canonicaltree.Node
	if tree, err := canonicaltree.Parse(o.ev.Key); err == nil {
		defer tree.Release()
		record = tree.Root()
		key = withoutSchema(record)
	}
	columns := key.Kind() == canonicaltree.Object || key.Kind() == canonicaltree.Array
	switch {
	case !columns && (o.Entity.Key || was != ""):
		switch key.Kind() {
		case canonicaltree.String:
			id = textOf(key)
		case canonicaltree.Null:
			return "", false, nil
		case canonicaltree.Invalid:
			id = string(o.ev.Key)
		default:
			id = string(key.Raw())
		}
		if !o.Entity.Key && id != was {
			return "", false, nil
		}
		return id, madeUp(record.Get("schema"), id), nil
	case o.Entity.Key:
		return "", false, refuse("bad_entity", "the record's key has columns: give the path of the one that is the entity id")
	case !columns, o.Entity.Path == "": // else a header says it
		return "", false, nil
	}
	find := func(path string, columns canonicaltree.Node) (string, error) {
		return locate("entity id", Locator{Path: path}, o.ev, columns)
	}
	if o.Format == Maxwell {
		// {"database":"d","table":"t","pk.id":1}, or ["d","t",[{"id":1}]]
		if key.Kind() == canonicaltree.Object {
			id, err = find(`pk\.`+o.Entity.Path, key)
			return id, false, err
		}
		for column := range key.At(2).Children() {
			if id, err = find(o.Entity.Path, column); id != "" || err != nil {
				return id, false, err
			}
		}
		return "", false, nil
	}
	if key.Kind() != canonicaltree.Object {
		return "", false, nil
	}
	column := o.column()
	id, err = find(column, key)
	return id, madeUp(fieldOf(fieldsOf(record, ""), column), id), err
}

// column is the path of the entity in a row.
func (s *Extractor) column() string {
	if column, ok := strings.CutPrefix(s.Entity.Path, s.Payload+"."); ok && s.Payload != "" {
		return column
	}
	return s.Entity.Path
}

// Columns that ExtractNewRecordState adds to a row: the first with
// delete.tombstone.handling.mode=rewrite, the second with add.fields=op.
const flattenedDelete, flattenedOp = "__deleted", "__op"

// connectorOfFlattened returns the connector of a row that Debezium flattened, or empty if
// unknown.
func connectorOfFlattened(row canonicaltree.Node) string {
	// add.fields: connector, or source.connector
	return cmp.Or(textOf(row.Get("__connector")), textOf(row.Get("__source_connector")))
}

// flattened notes the gaps of a row that Debezium flattened. Without its operation it may be an
// update. The row before is missing for every database.
func (o *opening) flattened() {
	op := textOf(o.payload.Get(flattenedOp))
	if op == "" && !o.payload.Get(flattenedDelete).Exists() {
		return
	}
	op = cmp.Or(op, debeziumUpdate)
	o.read = op == debeziumRead
	if connector := connectorOfFlattened(o.payload); !o.WholeRows && (connector == "" || connector == debeziumPostgres) {
		o.withoutImage(fieldsOf(o.root, ""), op)
	}
	if o.notice.event != nullNotice && o.leavesKey(op) {
		o.notice = notice{moveNotice, "a flattened topic does not have the row before an update: one that moves a row to another entity " +
			"leaves the row at its former entity; read the whole events, format: debezium"}
	}
}

// entityOfFlattened checks the entity of a deleted row that Debezium flattened.
func (o *opening) entityOfFlattened() error {
	row := o.root
	if o.Payload != "" {
		row, _ = member(o.root, o.Payload)
	}
	if !row.Get(flattenedDelete).Exists() || o.Entity.Header != "" {
		return nil
	}
	old := o.imageOf(row, fieldsOf(o.root, ""), connectorOfFlattened(row))
	switch {
	case o.Entity.Key && !old.whole && isZero(o.entity):
		return refuse("no_entity", "the deleted row's entity id at %s may not be its own: %s", o.Entity, madeUpRemedy)
	case o.Entity.Key, old.has(o.column(), o.entity):
		return nil
	}
	_, err := o.entityOfKey(o.entity, old)
	return err
}

// plain finds everything where the locators say.
func (o *opening) plain() error {
	o.payload, o.meta = o.root, o.root
	if why := o.ev.Header(transport.RefusalHeader); why != "" && o.ByUUID {
		code, reason, _ := strings.Cut(why, ": ")
		return refuse(code, "%s", reason)
	}
	entity := o.Entity
	if !o.root.Exists() {
		o.op = change.Delete
		if entity.Path != "" {
			entity = Locator{Key: true} // a tombstone has nothing but its key
		}
	}
	var err error
	if o.entity, err = locate("entity id", entity, o.ev, o.meta); err != nil {
		return err
	}
	if o.entity == "" {
		return refuse("no_entity", "the event has no entity id at %s", entity)
	}
	if err := o.checkEntity(o.entity); err != nil || o.op == change.Delete {
		return err
	}
	op, err := locate("operation", o.Operation, o.ev, o.meta)
	if err != nil {
		return err
	}
	// Change feeds, and null in a column of JSON, denote a deleted entity by a null document.
	if op != "" && o.IsDelete(op) || o.Payload == "" && o.root.Kind() == canonicaltree.Null {
		o.op = change.Delete
	}
	if o.op == change.Delete {
		return o.entityOfFlattened()
	}
	if o.Payload == "" {
		return nil
	}
	if v, ok := member(o.root, o.Payload); ok && v.Exists() && v.Kind() != canonicaltree.Null {
		o.payload = v
		return nil
	}
	r := gjson.GetBytes(o.ev.Value, o.Payload)
	switch {
	case !r.Exists():
		return refuse("no_payload", "the event has nothing at the payload path %s", o.Payload)
	case r.Type == gjson.Null:
		o.op = change.Delete
		return nil
	}
	// Mostly the path selects a value that is indexed already.
	if v := o.root.ValueAt(r.Index); string(v.Raw()) == r.Raw {
		o.payload = v
		return nil
	}
	if o.tree, err = canonicaltree.Parse([]byte(r.Raw)); err != nil {
		return err
	}
	o.payload = o.tree.Root()
	return nil
}
