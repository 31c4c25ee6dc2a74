package ingest

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/transport"
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

// content is the meaning of an event, independent of its format.
type content struct {
	entity  string
	moved   string // the entity of the row before an update, empty if it is the same
	op      change.Op
	payload canonicaltree.Node  // of an upsert
	meta    canonicaltree.Node  // in which event id and sequence are looked for
	skip    bool                // it is about no row
	tree    *canonicaltree.Tree // of the payload, if it is not that of the value
	// read says that a snapshot read the row, so that a time in the event is that of the reading.
	read bool
	// sparse says that large values that the update left alone may be null in the payload.
	sparse bool
	notice notice
}

// notice is something about an event to log once per source. The zero value means nothing to log.
type notice struct{ event, text string }

// Events of notices: a null may be a value that an update left unchanged, and an update may move
// a row from an entity that it does not name.
const nullNotice, moveNotice = "format.null_may_be_unchanged", "format.no_row_before"

func (c *content) release() {
	if c.tree != nil {
		c.tree.Release()
	}
}

// open finds entity, operation and payload in a value; root is absent for a
// null record.
func (s *Extractor) open(ev *transport.Received, root canonicaltree.Node) (content, error) {
	switch s.Format {
	case Debezium:
		return s.debezium(ev, root)
	case Maxwell:
		return s.maxwell(ev, root)
	}
	c, err := s.plain(ev, root)
	if err == nil && c.op == change.Upsert && (!s.Operation.isZero() || s.byTime()) {
		s.flattened(&c, ev, root)
	}
	return c, err
}

// Envelopes of Debezium, by the member op.
const (
	debeziumCreate, debeziumRead, debeziumUpdate = "c", "r", "u"
	debeziumDelete, debeziumTruncate             = "d", "t"
	debeziumMessage                              = "m" // pg_logical_emit_message
)

// debezium opens the envelope of a change event. Events without a row, such as a heartbeat,
// are skipped.
func (s *Extractor) debezium(ev *transport.Received, root canonicaltree.Node) (content, error) {
	envelope := withoutSchema(root)
	switch envelope.Kind() {
	case canonicaltree.Invalid, canonicaltree.Null:
		return s.tombstone(ev)
	case canonicaltree.Object:
	default:
		return content{}, refuse("bad_envelope", "the value is no JSON object, so no event of Debezium")
	}
	op, ok := envelope.Get("op").Text()
	if !ok {
		if debeziumAside(envelope) {
			return content{skip: true}, nil
		}
		return content{}, refuse("bad_envelope", "the value has no member op, so it is no event of Debezium; events that ExtractNewRecordState flattened are format json")
	}
	c := content{op: change.Upsert, meta: envelope}
	connector := textOf(envelope.Get("source").Get("connector"))
	old := s.imageOf(envelope.Get("before"), fieldsOf(root, "before"), connector)
	switch op {
	case debeziumCreate, debeziumRead, debeziumUpdate:
		after := envelope.Get("after")
		if after.Kind() != canonicaltree.Object {
			return content{}, refuse("no_row", "the event has no row in after")
		}
		c.payload, c.read = after, op == debeziumRead
		if op != debeziumRead && connector == debeziumPostgres && old.row.Kind() != canonicaltree.Object && !s.WholeRows {
			s.withoutImage(&c, ev, fieldsOf(root, "after"), op)
		}
		return c, s.entityOf(&c, ev, after, old)
	case debeziumDelete:
		c.op = change.Delete
		return c, s.entityOfDeleted(&c, ev, old)
	case debeziumMessage:
		return content{skip: true}, nil
	case debeziumTruncate:
		return content{}, refuse("truncate", "the table was truncated, which does not say which entities it had: delete them at the source, or send deletes for them")
	}
	return content{}, refuse("bad_envelope", "the member op is none that Debezium has")
}

// debeziumPostgres is the connector of PostgreSQL in source.connector.
const debeziumPostgres = "postgresql"

// withoutImage notes the gaps of an update of a PostgreSQL table whose row before is
// not logged. fields are the columns of the row in the record's schema. The change of a primary
// key is a delete and a create.
func (s *Extractor) withoutImage(c *content, ev *transport.Received, fields canonicaltree.Node, op string) {
	if c.sparse = op == debeziumUpdate || ev.Header("__debezium.oldkey") != ""; !c.sparse {
		return
	}
	const remedy = "; ALTER TABLE … REPLICA IDENTITY FULL, then row_image: full"
	if column, ok := mayBeUnchanged(c.payload, fields); ok && !slices.Contains(s.UnchangedAsNull, column) {
		c.notice = notice{nullNotice, "column " + strconv.Quote(column) +
			" is null in an update, which Debezium writes also for a large value that the update left unchanged" + remedy}
	} else if s.leavesKey(ev, op) {
		c.notice = notice{moveNotice, "updates come without the row before: one that moves a row to another entity leaves the row at its former entity" + remedy}
	}
}

// leavesKey reports whether an update may have moved the row to another entity: a column outside
// the record's key has the entity.
func (s *Extractor) leavesKey(ev *transport.Received, op string) bool {
	return op == debeziumUpdate && s.Entity.Path != "" && !inKey(ev.Key, s.column())
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
func (s *Extractor) maxwell(ev *transport.Received, root canonicaltree.Node) (content, error) {
	switch root.Kind() {
	case canonicaltree.Invalid, canonicaltree.Null:
		return s.tombstone(ev)
	case canonicaltree.Object:
	default:
		return content{}, refuse("bad_envelope", "the value is no JSON object, so no event of Maxwell")
	}
	kind, _ := root.Get("type").Text()
	c := content{op: change.Upsert, meta: root}
	data := root.Get("data")
	switch kind {
	case maxwellInsert, maxwellUpdate, maxwellDelete, maxwellBootstrap:
		if data.Kind() != canonicaltree.Object {
			return content{}, refuse("no_row", "the event has no row in data; rows that Maxwell encrypts cannot be read")
		}
	case "bootstrap-start", "bootstrap-complete",
		"table-create", "table-alter", "table-drop", "database-create", "database-alter", "database-drop":
		return content{skip: true}, nil
	default:
		return content{}, refuse("bad_envelope", "the member type is none that Maxwell has")
	}
	if kind == maxwellDelete {
		c.op = change.Delete
		return c, s.entityOfDeleted(&c, ev, image{row: data, whole: true})
	}
	c.payload, c.read = data, kind == maxwellBootstrap
	return c, s.entityOf(&c, ev, data, image{row: root.Get("old"), whole: true})
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
func (s *Extractor) entityOf(c *content, ev *transport.Received, row canonicaltree.Node, old image) (err error) {
	if c.entity, err = s.entityIn(ev, row); err != nil {
		return err
	}
	if c.entity == "" {
		return refuse("no_entity", "the row has no entity id at %s", s.Entity)
	}
	if err := s.checkEntity(c.entity); err != nil || old.row.Kind() != canonicaltree.Object {
		return err
	}
	was, err := s.entityIn(ev, old.row)
	if err != nil || was == "" || was == c.entity {
		return nil //nolint:nilerr // the row before has no entity
	}
	if !old.has(s.Entity.Path, was) {
		return refuse("no_entity", "the row before the update has another entity id at %s, which may not be its own: %s", s.Entity, madeUpRemedy)
	}
	c.moved = was
	return s.checkEntity(was)
}

const madeUpRemedy = "Debezium fills a column that PostgreSQL did not log with 0, an empty text, 1970 or its default. " +
	"ALTER TABLE … REPLICA IDENTITY FULL, then row_image: full"

// entityOfDeleted finds the entity of a deleted row: in the row before, if that value is
// known to be the row's own, or in the record's key.
func (s *Extractor) entityOfDeleted(c *content, ev *transport.Received, old image) error {
	was, err := s.entityIn(ev, old.row)
	if err != nil {
		return err
	}
	if s.Entity.Header != "" || was != "" && !s.Entity.Key && old.has(s.Entity.Path, was) {
		c.entity = was
	} else if c.entity, err = s.entityOfKey(ev, was, old); err != nil {
		return err
	}
	if c.entity == "" {
		return refuse("no_entity", "neither the deleted row nor the key has the entity id at %s: the database must log it "+
			"(PostgreSQL: ALTER TABLE … REPLICA IDENTITY FULL; MySQL: binlog_row_image=FULL)", s.Entity)
	}
	return s.checkEntity(c.entity)
}

// entityOfKey finds the entity of a deleted row in the record's key. was is the id in the row
// before. It counts if it is the whole key. A value that a connector makes up for a key that is
// not logged is refused, and so is an id that only the row has. The result is empty without an
// id.
func (s *Extractor) entityOfKey(ev *transport.Received, was string, old image) (string, error) {
	id, filler, err := s.entityInKey(ev, was)
	if err != nil {
		return "", err
	}
	if id == "" && was != "" || id != "" && filler && !old.whole {
		return "", refuse("no_entity", "the deleted row's entity id at %s may not be its own: %s", s.Entity, madeUpRemedy)
	}
	return id, nil
}

// tombstone handles a null record, whose key names a deleted row. It follows the delete event, so
// it is skipped if its key lacks the entity. It is skipped also if events have a sequence: a
// connector that resends its last events resends a tombstone too, which has no sequence to show
// that a row created since is newer.
func (s *Extractor) tombstone(ev *transport.Received) (c content, err error) {
	c.op = change.Delete
	if !s.Sequence.isZero() && (s.Sequence.Header == "" || ev.Header(s.Sequence.Header) == "") {
		return content{skip: true}, nil
	}
	if s.Entity.Header != "" {
		c.entity = ev.Header(s.Entity.Header)
	} else if c.entity, err = s.entityOfKey(ev, "", image{whole: s.WholeRows || s.Format != Debezium}); err != nil {
		return c, err
	}
	if c.entity == "" {
		return content{skip: true}, nil
	}
	return c, s.checkEntity(c.entity)
}

// entityIn finds the entity in a row, or empty when it is not there.
func (s *Extractor) entityIn(ev *transport.Received, row canonicaltree.Node) (string, error) {
	if s.Entity.Key {
		id, _, err := s.entityInKey(ev, "")
		return id, err
	}
	return locate("entity id", s.Entity, ev, row)
}

// entityInKey finds the entity in the record's key: at the entity's path if the key holds
// columns, or the key itself if so configured or if it is the id was. Empty when it is
// absent. filler says that a connector may have made it up, see madeUp.
func (s *Extractor) entityInKey(ev *transport.Received, was string) (id string, filler bool, err error) {
	var record, key canonicaltree.Node
	if tree, err := canonicaltree.Parse(ev.Key); err == nil {
		defer tree.Release()
		record = tree.Root()
		key = withoutSchema(record)
	}
	columns := key.Kind() == canonicaltree.Object || key.Kind() == canonicaltree.Array
	switch {
	case !columns && (s.Entity.Key || was != ""):
		switch key.Kind() {
		case canonicaltree.String:
			id = textOf(key)
		case canonicaltree.Null:
			return "", false, nil
		case canonicaltree.Invalid:
			id = string(ev.Key)
		default:
			id = string(key.Raw())
		}
		if !s.Entity.Key && id != was {
			return "", false, nil
		}
		return id, madeUp(record.Get("schema"), id), nil
	case s.Entity.Key:
		return "", false, refuse("bad_entity", "the record's key has columns: give the path of the one that is the entity id")
	case !columns, s.Entity.Path == "": // else a header says it
		return "", false, nil
	}
	find := func(path string, columns canonicaltree.Node) (string, error) {
		return locate("entity id", Locator{Path: path}, ev, columns)
	}
	if s.Format == Maxwell {
		// {"database":"d","table":"t","pk.id":1}, or ["d","t",[{"id":1}]]
		if key.Kind() == canonicaltree.Object {
			id, err = find(`pk\.`+s.Entity.Path, key)
			return id, false, err
		}
		for column := range key.At(2).Children() {
			if id, err = find(s.Entity.Path, column); id != "" || err != nil {
				return id, false, err
			}
		}
		return "", false, nil
	}
	if key.Kind() != canonicaltree.Object {
		return "", false, nil
	}
	column := s.column()
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
func (s *Extractor) flattened(c *content, ev *transport.Received, root canonicaltree.Node) {
	op := textOf(c.payload.Get(flattenedOp))
	if op == "" && !c.payload.Get(flattenedDelete).Exists() {
		return
	}
	op = cmp.Or(op, debeziumUpdate)
	c.read = op == debeziumRead
	if connector := connectorOfFlattened(c.payload); !s.WholeRows && (connector == "" || connector == debeziumPostgres) {
		s.withoutImage(c, ev, fieldsOf(root, ""), op)
	}
	if c.notice.event != nullNotice && s.leavesKey(ev, op) {
		c.notice = notice{moveNotice, "a flattened topic does not have the row before an update: one that moves a row to another entity " +
			"leaves the row at its former entity; read the whole events, format: debezium"}
	}
}

// entityOfFlattened checks the entity of a deleted row that Debezium flattened.
func (s *Extractor) entityOfFlattened(c *content, ev *transport.Received, root canonicaltree.Node) error {
	row := root
	if s.Payload != "" {
		row, _ = member(root, s.Payload)
	}
	if !row.Get(flattenedDelete).Exists() || s.Entity.Header != "" {
		return nil
	}
	old := s.imageOf(row, fieldsOf(root, ""), connectorOfFlattened(row))
	switch {
	case s.Entity.Key && !old.whole && isZero(c.entity):
		return refuse("no_entity", "the deleted row's entity id at %s may not be its own: %s", s.Entity, madeUpRemedy)
	case s.Entity.Key, old.has(s.column(), c.entity):
		return nil
	}
	_, err := s.entityOfKey(ev, c.entity, old)
	return err
}

// plain finds everything where the locators say.
func (s *Extractor) plain(ev *transport.Received, root canonicaltree.Node) (content, error) {
	c := content{op: change.Upsert, payload: root, meta: root}
	if why := ev.Header(transport.RefusalHeader); why != "" && s.ByUUID {
		code, reason, _ := strings.Cut(why, ": ")
		return c, refuse(code, "%s", reason)
	}
	entity := s.Entity
	if !root.Exists() {
		c.op = change.Delete
		if entity.Path != "" {
			entity = Locator{Key: true} // a tombstone has nothing but its key
		}
	}
	var err error
	if c.entity, err = locate("entity id", entity, ev, c.meta); err != nil {
		return c, err
	}
	if c.entity == "" {
		return c, refuse("no_entity", "the event has no entity id at %s", entity)
	}
	if err := s.checkEntity(c.entity); err != nil || c.op == change.Delete {
		return c, err
	}
	op, err := locate("operation", s.Operation, ev, c.meta)
	if err != nil {
		return c, err
	}
	// Change feeds, and null in a column of JSON, denote a deleted entity by a null document.
	if op != "" && s.IsDelete(op) || s.Payload == "" && root.Kind() == canonicaltree.Null {
		c.op = change.Delete
	}
	if c.op == change.Delete {
		return c, s.entityOfFlattened(&c, ev, root)
	}
	if s.Payload == "" {
		return c, nil
	}
	if v, ok := member(root, s.Payload); ok && v.Exists() && v.Kind() != canonicaltree.Null {
		c.payload = v
		return c, nil
	}
	r := gjson.GetBytes(ev.Value, s.Payload)
	switch {
	case !r.Exists():
		return c, refuse("no_payload", "the event has nothing at the payload path %s", s.Payload)
	case r.Type == gjson.Null:
		c.op = change.Delete
		return c, nil
	}
	// Mostly the path selects a value that is indexed already.
	if v := root.ValueAt(r.Index); string(v.Raw()) == r.Raw {
		c.payload = v
		return c, nil
	}
	if c.tree, err = canonicaltree.Parse([]byte(r.Raw)); err != nil {
		return c, err
	}
	c.payload = c.tree.Root()
	return c, nil
}
