package embedded

import (
	"encoding/binary"

	"github.com/klauspost/compress/s2"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/internal/wire"
	"github.com/seed-86dfc502/weir/store/sqlite"
)

// The forms of a row's body.
const (
	single = 0 // the value of one record without key and headers
	packed = 1 // an S2 block (github.com/klauspost/compress/s2) of records
)

// The bounds of a row, in records and bytes. An append may take several rows, and a
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
	r := wire.Reader{Rest: raw}
	part := func() []byte {
		if n := r.Uvarint(); n > 0 {
			return r.Take(n - 1)
		}
		return nil
	}
	for i := range row.Records {
		record := transport.Received{Key: part(), Value: part(), Offset: row.First + int64(i), Time: row.Time}
		headers := r.Count()
		if r.Failed {
			return nil, malformed()
		}
		if headers > 0 {
			record.Headers = make([]transport.Header, headers)
			for j := range record.Headers {
				record.Headers[j] = transport.Header{Key: string(part()), Value: part()}
			}
		}
		records = append(records, record)
	}
	if r.Failed || len(r.Rest) > 0 {
		return nil, malformed()
	}
	return records, nil
}
