package postgres

import (
	"encoding/binary"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/sinks/internal/batch"
)

// insertTypes are the types of insertStatement's parameters.
var insertTypes = []uint32{pgtype.TextOID, pgtype.TextArrayOID, pgtype.Int8ArrayOID, pgtype.BoolArrayOID, pgtype.TextArrayOID, pgtype.TimestamptzArrayOID, pgtype.TextArrayOID}

// epoch is PostgreSQL's, in microseconds.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()

// parameters returns the parameters of insertStatement, in PostgreSQL's binary form.
func (t *table) parameters(rows []batch.Row) [][]byte {
	return [][]byte{
		[]byte(t.options.Service),
		array(rows, pgtype.TextOID, func(b []byte, r batch.Row) []byte { return append(b, r.Entity...) }),
		array(rows, pgtype.Int8OID, func(b []byte, r batch.Row) []byte {
			return binary.BigEndian.AppendUint64(b, uint64(r.Version))
		}),
		array(rows, pgtype.BoolOID, func(b []byte, r batch.Row) []byte {
			if r.Op == change.Retract {
				return append(b, 1)
			}
			return append(b, 0)
		}),
		array(rows, pgtype.TextOID, func(b []byte, r batch.Row) []byte { return append(b, r.Key...) }),
		array(rows, pgtype.TimestamptzOID, func(b []byte, r batch.Row) []byte {
			return binary.BigEndian.AppendUint64(b, uint64(r.Time.UnixMicro()-epoch)) // #nosec G115 -- the bits of a signed number
		}),
		array(rows, pgtype.TextOID, func(b []byte, r batch.Row) []byte {
			if r.Op == change.Retract {
				return nil
			}
			return append(b, r.Values[0].(string)...)
		}),
	}
}

// array encodes an array of one dimension with an element for each row. add appends an element,
// or returns nil for NULL.
func array(rows []batch.Row, element uint32, add func(b []byte, r batch.Row) []byte) []byte {
	var b []byte
	for _, n := range []uint32{1, 1, element, uint32(len(rows)), 1} { // dimensions, NULLs, type, length, first index; #nosec G115 -- at most maxBatch
		b = binary.BigEndian.AppendUint32(b, n)
	}
	for _, r := range rows {
		at := len(b)
		b = append(b, 0xff, 0xff, 0xff, 0xff) // NULL
		if added := add(b, r); added != nil {
			b = added
			binary.BigEndian.PutUint32(b[at:], uint32(len(b)-at-4)) // #nosec G115 -- of a document in memory
		}
	}
	return b
}
