package kafka

import (
	"encoding/binary"
	"slices"
	"strconv"
	"sync"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/poison"
)

// encoder holds the encoded records of one Write, one behind the other.
type encoder struct {
	records []byte
	value   []byte // of one record
	headers []byte // of one record
	batch   [][]byte
}

var encoders = sync.Pool{New: func() any { return new(encoder) }}

// maxEncoder bounds the memory that an encoder keeps for the next Write, in bytes.
const maxEncoder = 2 << 20

// reserve makes room for the records of changes, at once.
func (e *encoder) reserve(changes []change.Change) {
	n := 0
	for i := range changes {
		c := &changes[i]
		n += len(c.Doc) + 2*(len(c.Entity)+len(c.Service)) + headersSize
	}
	e.records = slices.Grow(e.records, n)
}

// headersSize is the approximate size of a record's headers without the service, in bytes.
const headersSize = 320

// release ends the use of e and of its records.
func (e *encoder) release() {
	if poison.Fill(e.records); cap(e.records)+cap(e.value) > maxEncoder {
		return
	}
	clear(e.batch[:cap(e.batch)])
	e.records = e.records[:0]
	encoders.Put(e)
}

// record appends the record of a change, as [fenced.Writer.Batch] takes it.
func (s *Sink) record(e *encoder, c *change.Change) {
	e.records = appendField(e.records, c.Entity)
	if s.opts.Tombstones && c.Op == change.Retract {
		e.records = binary.AppendVarint(e.records, -1)
	} else {
		e.value = c.AppendRecord(e.value[:0])
		e.records = appendField(e.records, e.value)
	}
	var number [20]byte
	n := int64(6)
	h := appendHeader(e.headers[:0], ServiceHeader, c.Service)
	h = appendHeader(h, VersionHeader, strconv.AppendUint(number[:0], uint64(c.Version), 10))
	h = appendHeader(h, KeyHeader, c.Key)
	h = appendHeader(h, OpHeader, c.Op)
	h = appendHeader(h, PartitionHeader, strconv.AppendInt(number[:0], int64(c.Partition), 10))
	h = appendHeader(h, PipelineHeader, s.opts.Pipeline)
	if c.Resent != 0 {
		n++
		h = appendHeader(h, PositionHeader, strconv.AppendUint(number[:0], uint64(c.Resent), 10))
	}
	if t := c.Trace; t != nil {
		n++
		if h = appendHeader(h, change.TraceParentHeader, t.Parent); t.State != "" {
			n++
			h = appendHeader(h, change.TraceStateHeader, t.State)
		}
	}
	e.headers = h
	e.records = append(binary.AppendVarint(e.records, n), h...)
}

func appendHeader[T ~string | ~[]byte](b []byte, name string, value T) []byte {
	return appendField(appendField(b, name), value)
}

// appendField appends a text with its length in front.
func appendField[T ~string | ~[]byte](b []byte, text T) []byte {
	return append(binary.AppendVarint(b, int64(len(text))), text...)
}
