package postgres

import (
	"encoding/binary"
	"slices"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/seed-86dfc502/weir/internal/poison"
)

// arrays encodes lists of texts and of bytes as pgx does, into room of the connection.
// These are nearly all that a decision writes, and pgx begins each statement with an empty
// buffer, which it would grow, and copy, some twenty times.
type arrays struct {
	*pgtype.ArrayCodec
	room *room
}

// room is memory for the parameters of one statement after the other: pgx copies those of a
// statement into its messages before it encodes the next one.
type room struct{ bytes []byte }

// maxRoom bounds the memory that a connection keeps, in bytes.
const maxRoom = 1 << 20

// grow makes room for more bytes behind buf. Parameters of the same statement that are in r
// stay: only a buffer that is larger than r gets beyond it.
func (r *room) grow(buf []byte, size int) []byte {
	need := len(buf) + size
	switch {
	case need <= cap(buf):
		return buf
	case need <= cap(r.bytes):
		poison.Fill(r.bytes[:cap(r.bytes)])
		return append(r.bytes, buf...)
	}
	if buf = slices.Grow(buf, size); cap(buf) <= maxRoom {
		r.bytes = buf[:0]
	}
	return buf
}

// registerArrays makes a connection encode lists of texts and bytes as arrays does.
func registerArrays(m *pgtype.Map) {
	r := new(room)
	for _, oid := range []uint32{pgtype.TextArrayOID, pgtype.ByteaArrayOID} {
		if t, ok := m.TypeForOID(oid); ok {
			if codec, ok := t.Codec.(*pgtype.ArrayCodec); ok {
				m.RegisterType(&pgtype.Type{Name: t.Name, OID: oid, Codec: arrays{codec, r}})
			}
		}
	}
}

// PlanEncode implements pgtype.Codec.
func (c arrays) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if format == pgtype.BinaryFormatCode {
		switch value.(type) {
		case []string:
			return arrayPlan[string]{c.ElementType.OID, c.room}
		case [][]byte:
			return arrayPlan[[]byte]{c.ElementType.OID, c.room}
		}
	}
	return c.ArrayCodec.PlanEncode(m, oid, format, value)
}

// arrayPlan encodes lists whose elements have this type on the server, where the bytes
// of an element are its binary form.
type arrayPlan[T string | []byte] struct {
	element uint32
	room    *room
}

// Encode implements pgtype.EncodePlan. A nil element is NULL.
func (p arrayPlan[T]) Encode(value any, buf []byte) ([]byte, error) {
	const head = 20 // dimensions, whether there are NULLs, type, length, lower bound
	list := value.([]T)
	size, nulls := head, uint32(0)
	for _, e := range list {
		size += 4 + len(e)
		if null(e) {
			nulls = 1
		}
	}
	buf = p.room.grow(buf, size)
	for _, n := range [...]uint32{1, nulls, p.element, uint32(len(list)), 1} {
		buf = binary.BigEndian.AppendUint32(buf, n)
	}
	for _, e := range list {
		if null(e) {
			buf = binary.BigEndian.AppendUint32(buf, 1<<32-1)
			continue
		}
		buf = append(binary.BigEndian.AppendUint32(buf, uint32(len(e))), e...)
	}
	return buf, nil
}

// null reports whether an element is nil bytes.
func null[T string | []byte](e T) bool {
	b, ok := any(e).([]byte)
	return ok && b == nil
}
