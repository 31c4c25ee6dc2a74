package imports

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
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

// BadFile says that a file as a whole cannot be taken in. It holds no payload but
// names of columns.
type BadFile struct{ Reason string }

func (e *BadFile) Error() string { return e.Reason }

func badFile(format string, args ...any) error { return &BadFile{fmt.Sprintf(format, args...)} }

// decoder makes JSON objects of records of CSV. It is for one goroutine.
type decoder struct {
	delim     rune
	emptyNull bool
	columns   []column
	root      member
	in        *bufio.Reader // over from
	from      *bytes.Reader
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
	d := &decoder{delim: rune(o.delimiter()), emptyNull: o.EmptyNull, from: bytes.NewReader(nil), root: member{column: -1}}
	d.in = newBuffer(d.from)
	if !utf8.Valid(header) {
		return nil, badFile("the header is not valid UTF-8")
	}
	names, err := d.record(header)
	if err != nil {
		return nil, badFile("the header is no record of CSV: %s", reasonOf(err))
	}
	known := map[string]bool{}
	for n, name := range names {
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

// newBuffer returns a buffer that encoding/csv reads from itself: it makes none of
// its own over one that is large enough.
func newBuffer(r io.Reader) *bufio.Reader { return bufio.NewReaderSize(r, piece) }

// path takes a column's name apart at dots; a backslash before a dot or another
// backslash takes its meaning away.
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

// record reads one record of CSV. Cells keep their bytes: encoding/csv makes a line feed
// of a carriage return and a line feed, so each within the record gets a second return.
func (d *decoder) record(text []byte) ([]string, error) {
	crlf := []byte("\r\n")
	body := bytes.TrimSuffix(bytes.TrimSuffix(text, crlf), crlf[1:])
	end := text[len(body):]
	for bytes.HasPrefix(body, crlf) { // blank lines
		body = body[len(crlf):]
	}
	if bytes.Contains(body, crlf) {
		text = append(bytes.ReplaceAll(body, crlf, []byte("\r\r\n")), end...)
	}
	d.from.Reset(text)
	d.in.Reset(d.from)
	r := csv.NewReader(d.in)
	r.Comma, r.FieldsPerRecord, r.ReuseRecord = d.delim, -1, true
	return r.Read()
}

// decode returns a record as a JSON object, appended to dst. The error is the
// reason, without payload.
func (d *decoder) decode(dst, text []byte) ([]byte, error) {
	if !utf8.Valid(text) {
		return nil, errors.New("the row is not valid UTF-8")
	}
	cells, err := d.record(text)
	if err != nil {
		return nil, errors.New(reasonOf(err))
	}
	if len(cells) != len(d.columns) {
		return nil, fmt.Errorf("the row has %d cells, the header has %d", len(cells), len(d.columns))
	}
	return d.object(dst, &d.root, cells)
}

func (d *decoder) object(dst []byte, m *member, cells []string) (_ []byte, err error) {
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

func (d *decoder) cell(dst []byte, c column, text string) ([]byte, error) {
	if text == "" && (c.kind != String || d.emptyNull) {
		return append(dst, "null"...), nil
	}
	switch c.kind {
	case Number:
		if first, last := text[0], text[len(text)-1]; first != '-' && (first < '0' || first > '9') || last < '0' || last > '9' || !json.Valid([]byte(text)) {
			return nil, fmt.Errorf("the cell of column %s is no JSON number", shown(c.name))
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
			return nil, fmt.Errorf("the cell of column %s is no JSON value", shown(c.name))
		}
		return append(dst, text...), nil
	}
	return jsontext.AppendQuote(dst, text)
}

// shown returns a column's name for a message.
func shown(name string) string {
	const most = 64
	if r := []rune(name); len(r) > most {
		name = string(r[:most]) + "…"
	}
	return strconv.Quote(name)
}

// reasonOf returns the fault of a record, without its text.
func reasonOf(err error) string {
	switch {
	case errors.Is(err, csv.ErrBareQuote):
		return "a quote inside a cell that does not begin with one"
	case errors.Is(err, csv.ErrQuote):
		return "a quoted cell has no end, or text follows its end"
	}
	return "the row is no record of CSV"
}
