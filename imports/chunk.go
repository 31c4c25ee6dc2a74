package imports

import (
	"encoding/binary"

	"github.com/seed-86dfc502/weir/internal/wire"
)

// A chunk is closed when it has this much.
const (
	chunkBytes = 1 << 20
	chunkRows  = 10_000
	// chunkEvents are the bytes of its rows' events, all of which are in memory at
	// a time: rows of CSV become larger by the names of the columns.
	chunkEvents = 8 << 20
)

// chunkVersion is the first byte of every chunk.
const chunkVersion = 1

// chunk is whole rows, each as
//
//	uvarint  line where it begins, counted from the row before
//	uvarint  0 for a row that is too large, else its length and one
//	         its bytes
type chunk struct {
	bytes  []byte
	rows   int
	line   int64
	events int // about how many bytes the rows' events have
	names  int // bytes that an event has beside its row
}

func (c *chunk) add(r row) {
	c.bytes = binary.AppendUvarint(c.encoded(), uint64(r.line-c.line))
	c.line = r.line
	c.rows++
	if r.large {
		c.bytes = append(c.bytes, 0)
		return
	}
	c.events += len(r.text) + c.names
	c.bytes = binary.AppendUvarint(c.bytes, uint64(len(r.text))+1)
	c.bytes = append(c.bytes, r.text...)
}

func (c *chunk) full() bool {
	return len(c.bytes) >= chunkBytes || c.rows >= chunkRows || c.events >= chunkEvents
}

// encoded returns what rowsOf reads, until the next add or reset.
func (c *chunk) encoded() []byte {
	if len(c.bytes) == 0 {
		c.bytes = append(c.bytes, chunkVersion)
	}
	return c.bytes
}

// reset keeps the memory.
func (c *chunk) reset() { c.bytes, c.rows, c.line, c.events = c.bytes[:0], 0, 0, 0 }

var errChunk = &GoneError{"a chunk of the file is not readable"}

// rowsOf takes a chunk apart; the rows' texts are parts of it.
func rowsOf(b []byte) ([]row, error) {
	in := wire.Reader{Rest: b}
	if in.Byte() != chunkVersion {
		return nil, errChunk
	}
	var rows []row
	for line := int64(0); len(in.Rest) > 0; {
		line += int64(in.Uvarint())
		r := row{line: line}
		if n := in.Uvarint(); n > 0 {
			r.text = in.Take(n - 1)
		} else {
			r.large = true
		}
		if in.Failed {
			return nil, errChunk
		}
		rows = append(rows, r)
	}
	return rows, nil
}
