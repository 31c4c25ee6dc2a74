package fenced

import (
	"encoding/binary"
	"hash/crc32"
	"slices"
	"sync"
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Batch is records of one partition that are appended together, or not at all.
type Batch struct {
	partition int32
	count     int
	bytes     []byte
}

const (
	// batchHead is the length of the header: 61 bytes, of which the length
	// field does not count the first 12 and the checksum not the first 21.
	batchHead, beforeLength, beforeSum = 61, 12, 21
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// workspace holds the reusable buffers of making a batch.
type workspace struct {
	body, packed []byte
}

var workspaces = sync.Pool{New: func() any { return new(workspace) }}

// maxWorkspace bounds a workspace that is used again, in bytes: more than a
// batch of many records has, unless one of them is alone for its size.
const maxWorkspace = 2 << 20

// Batch makes the next batch of a partition of w. A record is encoded from its key on, as
// the protocol has it; Batch copies it. The records count as sent: Unsend takes a refused
// batch back, if no later one was made.
func (w *Writer) Batch(partition int32, records [][]byte) *Batch {
	ws := workspaces.Get().(*workspace)
	ws.body = ws.body[:0]
	for i := range records {
		ws.append(i, records[i])
	}
	// Compress with the cheapest codec: a batch is small and compressed once for each service.
	ws.packed = slices.Grow(ws.packed[:0], s2.MaxEncodedLen(len(ws.body)))
	packed := s2.EncodeSnappy(ws.packed[:cap(ws.packed)], ws.body)
	now := time.Now().UnixMilli()
	head := kmsg.RecordBatch{
		Length:               int32(batchHead - beforeLength + len(packed)),
		PartitionLeaderEpoch: -1,
		Magic:                2,
		Attributes:           int16(kgo.CodecSnappy), // of create time, in no transaction
		LastOffsetDelta:      int32(len(records) - 1),
		FirstTimestamp:       now,
		MaxTimestamp:         now,
		ProducerID:           w.producer,
		ProducerEpoch:        w.epoch,
		FirstSequence:        w.next[partition],
		NumRecords:           int32(len(records)),
		Records:              packed,
	}
	b := &Batch{partition: partition, count: len(records), bytes: head.AppendTo(make([]byte, 0, batchHead+len(packed)))}
	if cap(ws.body)+cap(ws.packed) <= maxWorkspace {
		workspaces.Put(ws)
	}
	binary.BigEndian.PutUint32(b.bytes[beforeSum-4:], crc32.Checksum(b.bytes[beforeSum:], castagnoli))
	w.next[partition] = sequence(w.next[partition], len(records))
	return b
}

// Unsend returns the sequence numbers of a batch that was refused.
func (w *Writer) Unsend(b *Batch) {
	w.next[b.partition] = int32(binary.BigEndian.Uint32(b.bytes[batchHead-8:]))
}

// sequence adds as the protocol does: after the largest number comes 0.
func sequence(n int32, by int) int32 { return int32((int64(n) + int64(by)) & (1<<31 - 1)) }

// append adds a record to the body, at a place in the batch.
func (ws *workspace) append(place int, record []byte) {
	var scratch [2 + binary.MaxVarintLen32]byte // no attributes, and the time of the batch
	head := binary.AppendVarint(scratch[:2], int64(place))
	ws.body = binary.AppendVarint(ws.body, int64(len(head)+len(record)))
	ws.body = append(append(ws.body, head...), record...)
}
