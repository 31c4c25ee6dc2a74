package imports

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// space is what JSON takes for white space.
const space = " \t\r\n"

// piece is how much of a file is looked at at a time.
const piece = 64 << 10

// cutter cuts a file into rows. Nothing depends on how the file's bytes arrive.
type cutter struct {
	in    *bufio.Reader
	max   int   // bytes of a row
	csv   bool  // a row may have line ends within quotes
	delim byte  // of csv
	line  int64 // of the row that comes next, from 1
	blank bool  // the last record of JSONL is white space alone
}

// newCutter makes one for a format; rows of more than max bytes are cut out
// without their content.
func newCutter(r io.Reader, f Format, o Options, max int) *cutter {
	in := bufio.NewReaderSize(r, piece)
	if mark, err := in.Peek(3); err == nil && string(mark) == "\xef\xbb\xbf" {
		_, _ = in.Discard(3) // it is in the buffer
	}
	return &cutter{in: in, max: max, csv: f == CSV, delim: o.delimiter(), line: 1}
}

// row is one row of a file.
type row struct {
	line  int64 // where it begins
	large bool  // larger than the limit, so its text is not there
	text  []byte
}

// next returns the next row, without line end for JSONL and as it stands for CSV;
// io.EOF after the last. text is valid until the next call of next with the same
// buffer, to which it is appended. Blank lines between rows are skipped.
func (c *cutter) next(buffer []byte) (row, error) {
	for {
		r, err := c.record(buffer[:0])
		if err != nil {
			return row{}, err
		}
		if r.large && c.blank {
			continue // whatever the limit is
		}
		if !r.large {
			if c.csv {
				if len(trimEnd(r.text)) == 0 {
					continue
				}
			} else if r.text = bytes.Trim(r.text, space); len(r.text) == 0 {
				continue
			}
		}
		return r, nil
	}
}

// trimEnd takes away what encoding/csv takes for the end of a line.
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
func (c *cutter) record(text []byte) (row, error) {
	r := row{line: c.line}
	c.blank = !c.csv
	q := quoting{delim: c.delim}
	for {
		part, err := c.in.ReadSlice('\n')
		if len(part) == 0 && errors.Is(err, io.EOF) {
			break
		}
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
			return row{}, err
		}
		c.blank = c.blank && len(bytes.Trim(part, space)) == 0
		// A line end of two bytes more is not counted.
		if r.large = r.large || len(text)+len(part) > c.max+2; r.large {
			text = text[:0]
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
	delim byte
	state quotingState
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
	for _, b := range part {
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
	return s == quoted
}
