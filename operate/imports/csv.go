package imports

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/seed-86dfc502/weir/internal/terminal"
)

const (
	// maxDepth bounds how deep a column's name nests.
	maxDepth = 64
	// maxHeader bounds the header, in bytes: the import's row stores it.
	maxHeader = 256 << 10
	// The names of all columns become a part of every event, however short its row
	// is: they have maxNames bytes in all, or namesPerColumn for each column if that
	// is more, since a row has at least a byte for each.
	maxNames       = 16 << 10
	namesPerColumn = 64
)

// BadFile says that a file as a whole cannot be imported. It holds no payload but
// names of columns.
type BadFile struct{ Reason string }

func (e *BadFile) Error() string { return e.Reason }

func badFile(format string, args ...any) error { return &BadFile{fmt.Sprintf(format, args...)} }

// decoder makes JSON objects of records of CSV. It is for one goroutine.
type decoder struct {
	delim, escape byte // no escape is 0
	null          *string
	columns       []column
	root          member
}

type column struct {
	name string
	kind Type
}

// member of the object that a row becomes: a column's cell, or an object.
type member struct {
	quoted  []byte // JSON string and colon
	column  int    // -1 for an object
	members []*member
	places  map[string]*member // members by name
}

// size returns the bytes of an object whose cells are null.
func (m *member) size() int {
	if m.column >= 0 {
		return len("null")
	}
	n := len("{}")
	for _, x := range m.members {
		n += len(x.quoted) + x.size() + len(",")
	}
	return n
}

// newDecoder makes one for a file with this header record. The error is a *BadFile.
func newDecoder(header []byte, o Options) (*decoder, error) {
	if o.Null == nil && o.Escape != "" {
		null := o.Escape + "N" // as MySQL writes it
		o.Null = &null
	}
	d := &decoder{delim: o.delimiter(), escape: o.escape(), null: o.Null, root: member{column: -1}}
	if !utf8.Valid(header) {
		return nil, badFile("the header is not valid UTF-8")
	}
	names, err := d.record(header)
	if err != nil {
		return nil, badFile("the header is no record of CSV: %v", err)
	}
	known := map[string]bool{}
	for n, cell := range names {
		name := cell.text
		if strings.Contains(name, "\r") { // else a file of such lines would be a header alone
			return nil, badFile("the name of column %d holds a carriage return: lines must end with a line feed, alone or behind one", n+1)
		}
		known[name] = true
		kind := o.Types[name]
		if kind == "" {
			kind = String
		}
		d.columns = append(d.columns, column{name, kind})
		if err := d.root.add(path(name), n); err != nil {
			return nil, badFile("column %d (%s): %v", n+1, shown(name), err)
		}
	}
	for name := range o.Types {
		if !known[name] {
			return nil, badFile("a type is given for the column %s, which the header does not have", shown(name))
		}
	}
	if most := max(maxNames, namesPerColumn*len(names)); d.root.size() > most {
		return nil, badFile("the names of its %d columns make more than %d bytes of every event", len(names), most)
	}
	return d, nil
}

// path splits a column's name at dots. A backslash escapes a dot or a backslash.
func path(name string) []string {
	var parts []string
	var part strings.Builder
	for i := 0; i < len(name); i++ {
		switch c := name[i]; {
		case c == '\\' && i+1 < len(name) && (name[i+1] == '.' || name[i+1] == '\\'):
			i++
			part.WriteByte(name[i])
		case c == '.':
			parts = append(parts, part.String())
			part.Reset()
		default:
			part.WriteByte(c)
		}
	}
	return append(parts, part.String())
}

// add puts a column at a path.
func (m *member) add(path []string, column int) error {
	if len(path) > maxDepth {
		return fmt.Errorf("its name nests deeper than %d", maxDepth)
	}
	for i, name := range path {
		if name == "" {
			return errors.New("its name is empty, or a part of it")
		}
		last := i == len(path)-1
		found := m.places[name]
		if found != nil && (last || found.column >= 0) {
			return errors.New("another column has the same place")
		}
		if found == nil {
			quoted, err := jsontext.AppendQuote(nil, name)
			if err != nil {
				return err
			}
			found = &member{quoted: append(quoted, ':'), column: -1}
			if last {
				found.column = column
			}
			if m.places == nil {
				m.places = map[string]*member{}
			}
			m.members, m.places[name] = append(m.members, found), found
		}
		m = found
	}
	return nil
}

// cell is one of a record.
type cell struct {
	text   string
	quoted bool
	null   bool
}

var (
	errBareQuote = errors.New("a quote inside a cell that does not begin with one")
	errQuote     = errors.New("a quoted cell has no end, or text follows its end")
)

// escapes are the meanings of characters behind an escape, in MySQL's files.
var escapes = map[byte]byte{'0': 0, 'b': '\b', 'n': '\n', 'r': '\r', 't': '\t', 'Z': 26}

// record reads one record of CSV, as encoding/csv does, but with every byte of a cell and an
// escape character, if the options have one.
func (d *decoder) record(text []byte) (cells []cell, err error) {
	text = trimEnd(text)
	for at := 0; ; at++ {
		c, n, err := d.field(text[at:])
		if err != nil {
			return nil, err
		}
		cells = append(cells, c)
		if at += n; at >= len(text) {
			return cells, nil
		}
	}
}

// field reads the cell that text begins with and returns its length.
func (d *decoder) field(text []byte) (c cell, n int, err error) {
	var b []byte
	if c.quoted = len(text) > 0 && text[0] == '"'; c.quoted {
		n = 1
	}
	for ; n < len(text); n++ {
		switch x := text[n]; {
		case x == d.escape && d.escape != 0 && n+1 < len(text):
			n++
			if to, known := escapes[text[n]]; known {
				b = append(b, to)
			} else {
				b = append(b, text[n])
			}
			continue
		case x == '"' && !c.quoted:
			return c, n, errBareQuote
		case x == '"' && n+1 < len(text) && text[n+1] == '"':
			n++
		case x == '"' && (n+1 == len(text) || text[n+1] == d.delim):
			c.text = string(b)
			return c, n + 1, nil
		case x == '"':
			return c, n, errQuote
		case x == d.delim && !c.quoted:
			return d.bare(b, text[:n]), n, nil
		}
		b = append(b, text[n])
	}
	if c.quoted {
		return c, n, errQuote
	}
	return d.bare(b, text), n, nil
}

// bare returns a cell without quotes, read from raw.
func (d *decoder) bare(text, raw []byte) cell {
	return cell{text: string(text), null: d.null != nil && string(raw) == *d.null}
}

// decode returns a record as a JSON object, appended to dst. The error is the
// reason, without payload.
func (d *decoder) decode(dst, text []byte) ([]byte, error) {
	if !utf8.Valid(text) {
		return nil, errors.New("the row is not valid UTF-8")
	}
	cells, err := d.record(text)
	if err == nil && len(cells) != len(d.columns) {
		err = fmt.Errorf("the row has %d cells, the header has %d", len(cells), len(d.columns))
	}
	if err != nil && d.escape == 0 && bytes.ContainsAny(text, `\`) {
		err = fmt.Errorf(`%w; where a backslash escapes, as in MySQL's files, import with --escape '\'`, err)
	}
	if err != nil {
		return nil, err
	}
	return d.object(dst, &d.root, cells)
}

func (d *decoder) object(dst []byte, m *member, cells []cell) (_ []byte, err error) {
	dst = append(dst, '{')
	for i, x := range m.members {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, x.quoted...)
		if x.column < 0 {
			dst, err = d.object(dst, x, cells)
		} else {
			dst, err = d.cell(dst, d.columns[x.column], cells[x.column])
		}
		if err != nil {
			return nil, err
		}
	}
	return append(dst, '}'), nil
}

func (d *decoder) cell(dst []byte, c column, x cell) ([]byte, error) {
	text := x.text
	if x.null || text == "" && c.kind != String {
		return append(dst, "null"...), nil
	}
	if d.escape == 0 && !x.quoted && text == `\N` {
		return nil, fmt.Errorf(`the cell of column %s is \N, which MySQL and PostgreSQL write for NULL: import with --null '\N', or with another --null if it is a text`, shown(c.name))
	}
	switch c.kind {
	case Number:
		if first, last := text[0], text[len(text)-1]; first != '-' && (first < '0' || first > '9') || last < '0' || last > '9' || !json.Valid([]byte(text)) {
			return nil, fmt.Errorf("the cell of column %s is no JSON number%s", shown(c.name), dialect(text))
		}
		return append(dst, text...), nil
	case Bool:
		switch {
		case strings.EqualFold(text, "true"):
			return append(dst, "true"...), nil
		case strings.EqualFold(text, "false"):
			return append(dst, "false"...), nil
		}
		return nil, fmt.Errorf("the cell of column %s is neither true nor false", shown(c.name))
	case JSON:
		if !json.Valid([]byte(text)) {
			return nil, fmt.Errorf("the cell of column %s is no JSON value%s", shown(c.name), dialect(text))
		}
		return append(dst, text...), nil
	}
	return jsontext.AppendQuote(dst, text)
}

// unquoted finds numbers that DuckDB, Python and others write, and JSON has not.
var unquoted = regexp.MustCompile(`(?i)(^|[:,[{\s-])(nan|inf|infinity)($|[,\]}\s])`)

// dialect says which tools write a text that is no JSON, empty if it does not know.
func dialect(text string) string {
	if unquoted.MatchString(text) {
		return ": NaN and infinity, which DuckDB and Python write, are no JSON; write null or a string"
	}
	return ""
}

// shown returns a column's name for a message.
func shown(name string) string { return strconv.Quote(terminal.Cut(name, 65)) }
