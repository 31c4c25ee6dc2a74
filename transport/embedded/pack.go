package embedded

import (
	"encoding/binary"
	"math"

	"github.com/klauspost/compress/s2"
	"github.com/seed-86dfc502/weir/store/sqlite"
	"github.com/seed-86dfc502/weir/transport"
)

// The forms of a row's body.
const (
	single = 0 // the value of one record without key and headers
	packed = 1 // an S2 block (github.com/klauspost/compress/s2) of records
)

// What is appended together stands in rows of at most so many records and bytes; a
// larger record has a row of its own.
const (
	rowRecords = 1000
	rowBytes   = 1 << 20
)

// appendPart appends a part of a record that may be nil.
func appendPart(dst, part []byte) []byte {
	if part == nil {
		return append(dst, 0)
	}
	dst = binary.AppendUvarint(dst, uint64(len(part))+1)
	return append(dst, part...)
}

// pack makes rows of records, in their order.
func pack(records []*transport.Record, partition int32) []sqlite.LogFrame {
	var rows []sqlite.LogFrame
	var raw []byte
	n := 0
	flush := func() {
		if n > 0 {
			rows = append(rows, sqlite.LogFrame{Partition: partition, Records: n, Form: packed, Body: s2.Encode(nil, raw)})
			raw, n = raw[:0], 0
		}
	}
	for _, r := range records {
		if r.Key == nil && r.Headers == nil && r.Value != nil {
			flush()
			rows = append(rows, sqlite.LogFrame{Partition: partition, Records: 1, Form: single, Body: r.Value})
			continue
		}
		if n >= rowRecords || n > 0 && len(raw)+len(r.Key)+len(r.Value) > rowBytes {
			flush()
		}
		raw = appendPart(raw, r.Key)
		raw = appendPart(raw, r.Value)
		raw = binary.AppendUvarint(raw, uint64(len(r.Headers)))
		for i := range r.Headers {
			raw = appendPart(raw, []byte(r.Headers[i].Key))
			raw = appendPart(raw, r.Headers[i].Value)
		}
		n++
	}
	flush()
	return rows
}

// unpack returns the records of a row. They share the memory of one buffer.
func unpack(log *sqlite.Log, row *sqlite.LogFrame) ([]transport.Received, error) {
	records := make([]transport.Received, 0, row.Records)
	if row.Form == single && row.Records == 1 {
		return append(records, transport.Received{Value: row.Body, Offset: row.First, Time: row.Time}), nil
	}
	malformed := func() error {
		return log.Damaged(row.Partition, row.First, "malformed records")
	}
	raw, err := s2.Decode(nil, row.Body)
	if row.Form != packed || err != nil {
		return nil, malformed()
	}
	bad := false
	number := func() uint64 {
		v, n := binary.Uvarint(raw)
		if n <= 0 {
			bad, raw = true, nil
			return 0
		}
		raw = raw[n:]
		return v
	}
	part := func() []byte {
		n := number()
		if n == 0 {
			return nil
		}
		if n-1 > uint64(len(raw)) {
			bad, raw = true, nil
			return nil
		}
		p := raw[: n-1 : n-1]
		raw = raw[n-1:]
		return p
	}
	for i := range row.Records {
		r := transport.Received{Key: part(), Value: part(), Offset: row.First + int64(i), Time: row.Time}
		headers := number()
		if bad || headers > math.MaxInt16 {
			return nil, malformed()
		}
		if headers > 0 {
			r.Headers = make([]transport.Header, headers)
			for j := range r.Headers {
				r.Headers[j] = transport.Header{Key: string(part()), Value: part()}
			}
		}
		records = append(records, r)
	}
	if bad || len(raw) > 0 {
		return nil, malformed()
	}
	return records, nil
}
