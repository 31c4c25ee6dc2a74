package ingest

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/seed-86dfc502/weir/canonicaltree"
)

// image is the row before a change, as a change event has it. A connector of a database that
// logs less than the row fills the columns that are not logged: with null, and, where the
// table allows no null, with zero, an empty text, false, 1970 or the column's default. Such
// a value looks like any other.
type image struct {
	row canonicaltree.Node
	// fields are the row's columns in the schema of Kafka Connect's JsonConverter, absent where
	// the event has no schema.
	fields canonicaltree.Node
	// whole says that every value is the row's own.
	whole bool
}

// wholeRows are Debezium's connectors, by source.connector, whose rows before a change are
// whole: the first two demand binlog_row_image=FULL, the others read tables of whole rows.
var wholeRows = map[string]bool{"mysql": true, "mariadb": true, "sqlserver": true, "db2": true}

// imageOf returns the row before a change. Its values are the row's own if the
// configuration or the connector says so, or if a column that may be null, and has no default,
// has a value: such a column is null if it is not logged, and no index that serves as
// PostgreSQL's replica identity covers it.
func (s *Extractor) imageOf(row, fields canonicaltree.Node, connector string) image {
	old := image{row: row, fields: fields, whole: s.WholeRows || wholeRows[connector]}
	if old.whole || row.Kind() != canonicaltree.Object {
		return old
	}
	for field := range fields.Children() {
		if field.Get("optional").Kind() == canonicaltree.True && !field.Get("default").Exists() &&
			valueOf(row.Get(textOf(field.Get("field")))) {
			old.whole = true
			break
		}
	}
	return old
}

// valueOf reports whether a column has a value that is not null.
func valueOf(v canonicaltree.Node) bool {
	return v.Exists() && v.Kind() != canonicaltree.Null
}

// has reports whether a column's value, as text, is known to be the row's own.
func (i image) has(column, value string) bool {
	if i.whole {
		return true
	}
	field := fieldOf(i.fields, column)
	return field.Exists() && !madeUp(field, value)
}

// fieldOf returns the field of a column in a list of a schema's fields, or absent without one.
func fieldOf(fields canonicaltree.Node, column string) (none canonicaltree.Node) {
	for field := range fields.Children() {
		if textOf(field.Get("field")) == column {
			return field
		}
	}
	return none
}

// madeUp reports whether a connector may have made up a column's value, since the column is not
// logged. field is the column's schema, absent if unknown.
func madeUp(field canonicaltree.Node, value string) bool {
	if v := field.Get("default"); v.Exists() {
		return value == string(v.Raw()) || value == textOf(v) || isZero(value)
	}
	return field.Get("optional").Kind() != canonicaltree.True && isZero(value)
}

// isZero reports whether an id is the value with which Debezium fills a column that is not
// logged and allows no null: zero (as a number, a decimal in text or Base64, or a date), an
// empty text, or 1970 as text.
func isZero(id string) bool {
	if n, err := strconv.ParseFloat(id, 64); err == nil {
		return n == 0
	}
	return id == "" || id == "AA==" || strings.HasPrefix(id, "1970-01-01")
}

// fieldsOf returns the fields of a record's schema, or of the struct that a member of it is.
// Absent if the record has no schema.
func fieldsOf(record canonicaltree.Node, name string) canonicaltree.Node {
	fields := record.Get("schema").Get("fields")
	if name == "" {
		return fields
	}
	return fieldOf(fields, name).Get("fields")
}

// mayBeUnchanged returns a column that is null in an update without its row before, although
// the stored value may have been left alone: of these types Debezium writes null for a large
// value that PostgreSQL did not log. It sees them only by a schema.
func mayBeUnchanged(row, fields canonicaltree.Node) (column string, ok bool) {
	for field := range fields.Children() {
		switch {
		case textOf(field.Get("type")) == "array":
		case textOf(field.Get("name")) == "org.apache.kafka.connect.data.Decimal",
			textOf(field.Get("name")) == "io.debezium.data.VariableScaleDecimal":
		default:
			continue
		}
		column = textOf(field.Get("field"))
		if row.Get(column).Kind() == canonicaltree.Null {
			return column, true
		}
	}
	return "", false
}

// nulls returns the columns of a list that are null in a row.
func nulls(row canonicaltree.Node, columns []string) (of []string) {
	for _, column := range columns {
		if row.Get(column).Kind() == canonicaltree.Null {
			of = append(of, column)
		}
	}
	return of
}

// inKey reports whether a record's key may have a column, without parsing it.
func inKey(key []byte, column string) bool {
	return bytes.Contains(key, []byte(`"`+column+`"`))
}
