package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/seed-86dfc502/weir/internal/transport"
)

// UnchangedHeader has the names of columns that an update left alone and the log does not have, one a
// line. The document has null there.
const UnchangedHeader = "weir-unchanged"

// column is a column of a relation.
type column struct {
	name    []byte // with its colon, as JSON
	typ     valueType
	leftOut bool // of documents: it is generated
}

// title returns the column's name.
func (c column) title() string {
	var name string
	_ = json.Unmarshal(c.name[:len(c.name)-1], &name) // it is one
	return name
}

// shape turns rows of a relation into documents and entity ids.
type shape struct {
	columns []column
	entity  []int // the columns that make the entity id; -1 for a missing one
}

// value is one column of a row; nil is null.
type value struct {
	text      []byte
	unchanged bool
}

// newShape returns the shape of columns by name and type; entity names the columns of the entity id.
func newShape(names []string, types []valueType, entity []string) *shape {
	s := &shape{}
	for i, name := range names {
		s.columns = append(s.columns, column{name: append(appendString(nil, []byte(name)), ':'), typ: types[i]})
	}
	for _, wanted := range entity {
		s.entity = append(s.entity, slices.Index(names, wanted))
	}
	return s
}

// id returns the entity id of a row; empty if a column of it is null or absent. Several columns
// are joined by /, with / and \ inside them escaped by \.
func (s *shape) id(row []value) string {
	var id strings.Builder
	for n, i := range s.entity {
		if i < 0 || row[i].text == nil {
			return ""
		}
		v := row[i]
		if len(s.entity) == 1 {
			return string(v.text)
		}
		if n > 0 {
			id.WriteByte('/')
		}
		for _, c := range v.text {
			if c == '/' || c == '\\' {
				id.WriteByte('\\')
			}
			id.WriteByte(c)
		}
	}
	return id.String()
}

// document returns the JSON of a row.
func (s *shape) document(row []value) ([]byte, error) {
	size := 2
	for i, v := range row {
		size += len(s.columns[i].name) + len(v.text) + 8
	}
	dst := append(make([]byte, 0, size), '{')
	var err error
	for i, v := range row {
		c := &s.columns[i]
		if c.leftOut {
			continue
		}
		if len(dst) > 1 {
			dst = append(dst, ',')
		}
		dst = append(dst, c.name...)
		switch {
		case v.text == nil:
			dst = append(dst, "null"...)
		default:
			if dst, err = c.typ.appendValue(dst, v.text); err != nil {
				return nil, fmt.Errorf("column %s %w", c.name[:len(c.name)-1], err)
			}
		}
	}
	return append(dst, '}'), nil
}

// unchanged returns the header that names the unchanged columns of a row; nil without any.
func (s *shape) unchanged(row []value) []transport.Header {
	var names []string
	for i, v := range row {
		if v.unchanged && !s.columns[i].leftOut {
			names = append(names, s.columns[i].title())
		}
	}
	if names == nil {
		return nil
	}
	return []transport.Header{{Key: UnchangedHeader, Value: []byte(strings.Join(names, "\n"))}}
}

// place is where a change is in the order of a database: the commit of its transaction, and its
// place in that.
type place struct {
	stream stream
	lsn    int64
	index  int64
	many   bool      // several entities have this place: rows of a snapshot, deletions of a TRUNCATE
	at     time.Time // of the commit
}

// SequenceHeader has the sequence of an event's stream.
const SequenceHeader = "weir-stream"

// SessionHeader has the session that read an event, as change.Session.Header writes it.
const SessionHeader = "weir-session"

// record returns the event of a row; a nil document deletes the entity.
func (p place) record(id string, document []byte) transport.Received {
	uuid := fmt.Sprintf("%s/%X/%d", p.stream.id, p.lsn, p.index)
	if p.many {
		uuid += "/" + id
	}
	return transport.Received{
		Key: []byte(id), Value: document, Offset: p.lsn, Index: p.index, Time: p.at.UTC(),
		Headers: []transport.Header{{Key: transport.UUIDHeader, Value: []byte(uuid)}, {Key: SequenceHeader, Value: []byte(p.stream.sequence)}, {Key: SessionHeader, Value: []byte(p.stream.session)}},
	}
}

// described is a type of the database's catalog.
type described struct {
	kind      string // pg_type.typtype
	name      string
	base      uint32 // of a domain
	element   uint32
	category  string
	delimiter string
}

// types knows the forms of types by their OID. It is for one goroutine.
type types map[uint32]valueType

// of returns the forms of types, reading unknown ones from the catalog. A type that the catalog
// does not have any more is text.
func (t types) of(ctx context.Context, db querier, oids []uint32) ([]valueType, error) {
	all := make([]valueType, len(oids))
	for i, oid := range oids {
		v, ok := t[oid]
		if !ok {
			var err error
			if v, err = resolve(ctx, db, oid, true); err != nil {
				return nil, err
			}
			t[oid] = v
		}
		all[i] = v
	}
	return all, nil
}

// resolve reads the form of a type from the catalog; arrays says whether one of an array counts.
func resolve(ctx context.Context, db querier, oid uint32, arrays bool) (valueType, error) {
	for range 32 { // domains over domains
		if f := builtin(oid); f != formText {
			return valueType{form: f}, nil
		}
		var d described
		rows, err := db.Query(ctx, `SELECT typtype::text, typname::text, typbasetype, typelem, typcategory::text, typdelim::text FROM pg_type WHERE oid = $1`, oid)
		if err != nil {
			return valueType{}, err
		}
		found := false
		if _, err := pgx.ForEachRow(rows, []any{&d.kind, &d.name, &d.base, &d.element, &d.category, &d.delimiter}, func() error { found = true; return nil }); err != nil {
			return valueType{}, err
		}
		switch {
		case !found:
			return valueType{}, nil
		case d.kind == "d":
			oid = d.base
		case d.name == "hstore":
			return valueType{form: formHstore}, nil
		case d.category == "A" && d.element != 0 && arrays:
			element, err := resolve(ctx, db, d.element, false)
			if d.name == "int2vector" || d.name == "oidvector" {
				return valueType{}, err // their text is no array's
			}
			return valueType{form: formArray, element: element.form, delimiter: d.delimiter[0]}, err
		default:
			return valueType{}, nil
		}
	}
	return valueType{}, nil
}

// querier is a connection or a pool.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}
