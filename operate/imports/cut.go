package imports

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"hash"
	"io"

	"github.com/seed-86dfc502/weir/internal/bom"
)

// space is the white space of JSON.
const space = " \t\r\n"

// piece is how much of a file is looked at at a time.
const piece = 64 << 10

// cutter cuts a file into rows, independent of how its bytes arrive.
type cutter struct {
	in    *bufio.Reader
	max   int     // bytes of a row
	csv   bool    // a row may have line ends within quotes
	shape quoting // of csv
	lone  bool    // csv has one column: a blank line is a row
	line  int64   // of the row that comes next, from 1
	blank bool    // the last record of JSONL is white space alone
	read  int64   // bytes up to the end of the last record
	hash  hash.Hash
}

// newCutter makes a cutter for a format. Rows of more than maxRow bytes are returned without
// their content. The error is a *BadFile or one of the reader.
func newCutter(r io.Reader, f Format, o Options, maxRow int) (*cutter, error) {
	c := &cutter{in: bufio.NewReaderSize(r, piece), max: maxRow, csv: f == CSV, shape: quoting{delim: o.delimiter(), escape: o.escape()}, line: 1, hash: sha256.New()}
	mark, err := c.in.Peek(3)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if bom.UTF16(mark) {
		return nil, badFile("the file is UTF-16: convert it to UTF-8 (iconv -f UTF-16 -t UTF-8)")
	}
	if len(bom.Trim(mark)) < len(mark) {
		_, _ = c.in.Discard(len(mark)) // it is in the buffer
		c.count(mark)
	}
	return c, nil
}

// count adds bytes to the position.
func (c *cutter) count(part []byte) {
	c.read += int64(len(part))
	_, _ = c.hash.Write(part) // it never fails
}

// row is one row of a file.
type row struct {
	line  int64 // where it begins
	large bool  // larger than the limit, so its text is not there
	text  []byte
}

// next returns the next row, without line end for JSONL and verbatim for CSV; io.EOF after the
// last. Blank lines are skipped, except in a CSV of one column.
func (c *cutter) next() (row, error) {
	for {
		r, err := c.record()
		if err != nil {
			return row{}, err
		}
		if r.large && c.blank {
			continue // whatever the limit is
		}
		if !r.large {
			if c.csv {
				if len(trimEnd(r.text)) == 0 && !c.lone {
					continue
				}
			} else if r.text = bytes.Trim(r.text, space); len(r.text) == 0 {
				continue
			}
		}
		return r, nil
	}
}

// trimEnd removes the end of a line as encoding/csv recognises it.
func trimEnd(line []byte) []byte {
	if n := len(line); n > 0 && line[n-1] == '\n' {
		line = line[:n-1]
	}
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	return line
}

// record reads to the end of a row, with it.
func (c *cutter) record() (row, error) {
	var text []byte
	r := row{line: c.line}
	c.blank = !c.csv
	q := c.shape
	for {
		part, err := c.in.ReadSlice('\n')
		if len(part) == 0 && errors.Is(err, io.EOF) {
			break
		}
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
			return row{}, err
		}
		c.count(part)
		c.blank = c.blank && len(bytes.Trim(part, space)) == 0
		// A line end of two bytes more is not counted.
		if r.large = r.large || len(text)+len(part) > c.max+2; r.large {
			text = nil
		} else {
			text = append(text, part...)
		}
		open := false
		if c.csv {
			open = q.scan(part)
		}
		if err != nil {
			continue // the line is longer than the buffer, or the file ends in it
		}
		c.line++
		if !open {
			break
		}
	}
	r.text = text
	switch n := len(trimEnd(text)); {
	case r.large:
		r.text = nil
	case len(text) == 0:
		return row{}, io.EOF
	case n > c.max:
		r.large, r.text = true, nil
	}
	return r, nil
}

// quoting tells where a record of CSV ends, as encoding/csv sees it: at the end
// of a line, unless that is within quotes. After a quote where none may be, the
// record ends with its line.
type quoting struct {
	delim, escape byte // no escape is 0
	state         quotingState
	escaped       bool // behind an escape
}

type quotingState int

const (
	fieldStart  quotingState = iota
	bare                     // in a field without quotes
	quoted                   // within quotes
	quoteInside              // behind a quote within quotes: the end of the field, or the first of two
	returned                 // behind such a quote and a carriage return
	broken                   // behind a wrong quote
)

// scan continues with part and reports whether its end is within quotes.
func (q *quoting) scan(part []byte) (open bool) {
	s := q.state
	literal := false // the last byte was escaped
	for _, b := range part {
		if literal = q.escaped; q.escaped || b == q.escape && q.escape != 0 && s <= quoted {
			if q.escaped = !q.escaped; s == fieldStart {
				s = bare
			}
			continue
		}
		switch s {
		case fieldStart, bare:
			switch {
			case b == '\n', b == q.delim:
				s = fieldStart
			case b == '"' && s == fieldStart:
				s = quoted
			case b == '"':
				s = broken
			default:
				s = bare
			}
		case quoted:
			if b == '"' {
				s = quoteInside
			}
		case quoteInside:
			switch b {
			case '"':
				s = quoted
			case q.delim, '\n':
				s = fieldStart
			case '\r':
				s = returned
			default:
				s = broken
			}
		case returned, broken:
			if b == '\n' {
				s = fieldStart
			} else {
				s = broken
			}
		}
	}
	q.state = s
	return s == quoted || literal
}
