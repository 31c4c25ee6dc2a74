package fenced

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-86dfc502/weir/transport"
)

// Batch is records of one partition that are appended together, or not at all.
type Batch struct {
	partition int32
	count     int
	bytes     []byte
}

const (
	// noTransaction and create time; the codec stands in the low bits.
	plainAttributes = 0
	// batchHead is what stands before the records: 61 bytes, of which the length
	// field does not count the first 12 and the checksum not the first 21.
	batchHead, beforeLength, beforeSum = 61, 12, 21
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Batch makes the next batch of a partition of w. Its records count as sent: a batch
// that was refused is to be given back with Unsend, and nothing behind it was made.
func (c *Client) Batch(w *Writer, partition int32, records []transport.Record) *Batch {
	var body []byte
	for i := range records {
		body = appendRecord(body, int32(i), &records[i])
	}
	var buf bytes.Buffer
	packed, codec := c.compressor.Compress(&buf, body)
	now := time.Now().UnixMilli()
	head := kmsg.RecordBatch{
		Length:               int32(batchHead - beforeLength + len(packed)),
		PartitionLeaderEpoch: -1,
		Magic:                2,
		Attributes:           plainAttributes | int16(codec),
		LastOffsetDelta:      int32(len(records) - 1),
		FirstTimestamp:       now,
		MaxTimestamp:         now,
		ProducerID:           w.producer,
		ProducerEpoch:        w.epoch,
		FirstSequence:        w.next[partition],
		NumRecords:           int32(len(records)),
		Records:              packed,
	}
	b := &Batch{partition: partition, count: len(records), bytes: head.AppendTo(nil)}
	binary.BigEndian.PutUint32(b.bytes[beforeSum-4:], crc32.Checksum(b.bytes[beforeSum:], castagnoli))
	w.next[partition] = sequence(w.next[partition], len(records))
	return b
}

// Unsend gives back the sequence numbers of a batch that was refused.
func (w *Writer) Unsend(b *Batch) {
	w.next[b.partition] = int32(binary.BigEndian.Uint32(b.bytes[batchHead-8:]))
}

// sequence adds as the protocol does: after the largest number comes 0.
func sequence(n int32, by int) int32 { return int32((int64(n) + int64(by)) & (1<<31 - 1)) }

func appendRecord(dst []byte, n int32, r *transport.Record) []byte {
	rec := kmsg.Record{OffsetDelta: n, Key: r.Key, Value: r.Value, Headers: make([]kmsg.Header, len(r.Headers))}
	for i, h := range r.Headers {
		rec.Headers[i] = kmsg.Header{Key: h.Key, Value: h.Value}
	}
	// The length in front counts all that is behind it.
	var small [binary.MaxVarintLen32]byte
	body := rec.AppendTo(nil)[1:] // without the length of 0, which is one byte
	n2 := binary.PutVarint(small[:], int64(len(body)))
	return append(append(dst, small[:n2]...), body...)
}
