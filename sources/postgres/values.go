package postgres

import (
	"bytes"
	"encoding/json"
	"errors"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/seed-86dfc502/weir/canonicaltree"
)

// form is the JSON form of a type's values.
type form int

const (
	formText form = iota // a string, as PostgreSQL writes the value
	formNumber
	formBool
	formJSON
	formTimestamp   // a string of RFC 3339 without an offset
	formTimestampTZ // a string of RFC 3339 in UTC
	formHstore      // an object of strings and nulls
	formArray       // a list of element's form
)

// valueType is the form of a column. element counts for formArray alone.
type valueType struct {
	form      form
	element   form
	delimiter byte // of an array's elements
}

// builtin returns the form of a type that every database has; text for any other.
func builtin(oid uint32) form {
	switch oid {
	case pgtype.Int2OID, pgtype.Int4OID, pgtype.Int8OID, pgtype.OIDOID, pgtype.Float4OID, pgtype.Float8OID, pgtype.NumericOID:
		return formNumber
	case pgtype.BoolOID:
		return formBool
	case pgtype.JSONOID, pgtype.JSONBOID:
		return formJSON
	case pgtype.TimestampOID:
		return formTimestamp
	case pgtype.TimestamptzOID:
		return formTimestampTZ
	}
	return formText
}

// settings are the session's parameters: the text form of values depends on them, and the server
// ends a connection whose client is unreachable, and with it the lock of the slot.
var settings = map[string]string{
	"client_encoding":    "UTF8",
	"datestyle":          "ISO, YMD",
	"intervalstyle":      "iso_8601",
	"timezone":           "UTC",
	"extra_float_digits": "3",
	"bytea_output":       "hex",
	"row_security":       "off", // the server refuses to read rows that a policy hides

	"tcp_keepalives_idle":     "15",
	"tcp_keepalives_interval": "5",
	"tcp_keepalives_count":    "3",
}

var errArray = errors.New("an array is malformed")

// appendValue appends the JSON of a value in PostgreSQL's text form.
func (t valueType) appendValue(dst, text []byte) ([]byte, error) {
	switch t.form {
	case formArray:
		// Bounds that do not begin with 1 come first: [0:1]={…}.
		if i := bytes.IndexByte(text, '='); i > 0 && text[0] == '[' {
			text = text[i+1:]
		}
		dst, rest, err := t.appendArray(dst, text, 0)
		if err == nil && len(rest) > 0 {
			err = errArray
		}
		return dst, err
	case formHstore:
		return appendHstore(dst, text)
	}
	return t.form.appendScalar(dst, text), nil
}

func (f form) appendScalar(dst, text []byte) []byte {
	switch f {
	case formNumber:
		if last := len(text) - 1; last >= 0 && text[last] >= '0' && text[last] <= '9' { // else NaN, Infinity
			return append(dst, text...)
		}
	case formBool:
		if string(text) == "t" {
			return append(dst, "true"...)
		}
		return append(dst, "false"...)
	case formJSON:
		return append(dst, text...)
	case formTimestamp, formTimestampTZ:
		return appendTimestamp(dst, text, f == formTimestampTZ)
	}
	return appendString(dst, text)
}

// appendTimestamp turns 2026-07-01 10:30:00.5+00 into 2026-07-01T10:30:00.5Z. What RFC 3339 does
// not have (infinity, years before 1 or after 9999) is the database's text.
func appendTimestamp(dst, text []byte, zoned bool) []byte {
	if len(text) < len("2006-01-02 15:04:05") || text[4] != '-' || text[10] != ' ' || bytes.HasSuffix(text, []byte("BC")) {
		return appendString(dst, text)
	}
	dst = append(dst, '"')
	dst = append(dst, text[:10]...)
	dst = append(dst, 'T')
	rest, utc := bytes.CutSuffix(text[11:], []byte("+00"))
	dst = append(dst, rest...)
	if zoned && utc {
		dst = append(dst, 'Z')
	}
	return append(dst, '"')
}

// maxDimensions is PostgreSQL's own limit of an array's dimensions.
const maxDimensions = 6

// appendArray appends one level of an array and returns the text behind it.
func (t valueType) appendArray(dst, text []byte, depth int) ([]byte, []byte, error) {
	if len(text) < 2 || text[0] != '{' || depth == maxDimensions {
		return dst, nil, errArray
	}
	dst, text = append(dst, '['), text[1:]
	if text[0] == '}' {
		return append(dst, ']'), text[1:], nil
	}
	for {
		var err error
		switch {
		case len(text) == 0:
			return dst, nil, errArray
		case text[0] == '{':
			dst, text, err = t.appendArray(dst, text, depth+1)
		default:
			dst, text, err = t.appendElement(dst, text)
		}
		switch {
		case err != nil || len(text) == 0:
			return dst, nil, errArray
		case text[0] == '}':
			return append(dst, ']'), text[1:], nil
		case text[0] != t.delimiter:
			return dst, nil, errArray
		}
		dst, text = append(dst, ','), text[1:]
	}
}

func (t valueType) appendElement(dst, text []byte) ([]byte, []byte, error) {
	if text[0] == '"' {
		value, rest, ok := quoted(text)
		if !ok {
			return dst, nil, errArray
		}
		if t.element == formHstore {
			dst, err := appendHstore(dst, value)
			return dst, rest, err
		}
		return t.element.appendScalar(dst, value), rest, nil
	}
	end := bytes.IndexAny(text, string([]byte{t.delimiter, '}'}))
	if end < 1 {
		return dst, nil, errArray
	}
	if string(text[:end]) == "NULL" {
		return append(dst, "null"...), text[end:], nil
	}
	return t.element.appendScalar(dst, text[:end]), text[end:], nil
}

// quoted returns the content of a text in double quotes, with escapes by \, and the rest.
func quoted(text []byte) (value, rest []byte, ok bool) {
	if len(text) == 0 || text[0] != '"' {
		return nil, nil, false
	}
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
			if i < len(text) {
				value = append(value, text[i])
			}
		case '"':
			return value, text[i+1:], true
		default:
			value = append(value, text[i])
		}
	}
	return nil, nil, false
}

// appendHstore turns "a"=>"1", "b"=>NULL into an object.
func appendHstore(dst, text []byte) ([]byte, error) {
	var pairs pgtype.Hstore
	if err := pairs.Scan(string(text)); err != nil {
		return dst, errors.New("an hstore is malformed") // the library's text may quote it
	}
	object, err := json.Marshal(pairs)
	return append(dst, object...), err
}

// appendString appends a JSON string. Bytes that are not UTF-8, of a database of encoding
// SQL_ASCII, become U+FFFD.
func appendString(dst, text []byte) []byte {
	return canonicaltree.AppendString(dst, bytes.ToValidUTF8(text, []byte("\ufffd")))
}
