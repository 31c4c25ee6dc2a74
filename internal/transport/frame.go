package transport

import (
	"context"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Frame is an ordered batch of records of one partition, in one Watermill message: the records
// that arrived while the previous frame was in work. It is read-only once it was handed out.
type Frame struct {
	Topic     string // name
	TopicID   string // identity: changes when a topic is deleted and created again
	Partition int32
	// Assignment numbers assignments of partitions, uniquely in this process.
	Assignment uint64
	// Records are in the order of the log, at least one. Their offsets grow, with
	// gaps at compacted records and markers of transactions.
	Records []Received
	// Bytes is the size of all records.
	Bytes int

	aside chan<- []int // capacity 1; nil if the frame cannot be set aside
}

// Settable returns a copy of f for one message whose handler may call SetAside, and the
// channel that receives the indexes.
func (f *Frame) Settable() (*Frame, <-chan []int) {
	settable := *f
	aside := make(chan []int, 1)
	settable.aside = aside
	return &settable, aside
}

// SetAside lets the next frame of the partition be handed out while some records of this
// one, at the indexes in left, are not acknowledged. The others are: the answer to the
// message is for those that are left, and the position of the partition stays before them.
// It may be called once for a message. False says that the subscriber cannot do it.
func (f *Frame) SetAside(left []int) bool {
	if f.aside == nil {
		return false
	}
	f.aside <- left
	return true
}

// First is the offset of the first record.
func (f *Frame) First() int64 { return f.Records[0].Offset }

// Last is the offset of the last record.
func (f *Frame) Last() int64 { return f.Records[len(f.Records)-1].Offset }

// Redelivered returns a copy of f whose records are marked as redelivered. f itself was
// handed out and is not changed.
func (f *Frame) Redelivered() *Frame {
	again := *f
	again.Records = slices.Clone(f.Records)
	for i := range again.Records {
		again.Records[i].Redelivered = true
	}
	return &again
}

// Received is one record as it was read.
type Received struct {
	Key     []byte // nil: none
	Value   []byte // nil: null
	Headers []Header
	Offset  int64
	Index   int64     // orders records of equal Offset, such as those of one transaction
	Time    time.Time // of the record, UTC, millisecond resolution
	// Redelivered: the record may have been handed out before, by an earlier
	// assignment of any process or by this one.
	Redelivered bool
	// Context carries values of the request that posted the event, nil for a record of a log.
	Context context.Context
}

// Header returns the value of the last header of that name, empty without one.
func (r *Received) Header(name string) string { return string(r.HeaderBytes(name)) }

// HeaderBytes returns it without a copy.
func (r *Received) HeaderBytes(name string) []byte {
	for i := len(r.Headers) - 1; i >= 0; i-- {
		if r.Headers[i].Key == name {
			return r.Headers[i].Value
		}
	}
	return nil
}

// Size is the size of a record in memory and, apart from some bytes per field, on the wire.
func (r *Received) Size() int {
	n := len(r.Key) + len(r.Value) + 32
	for _, h := range r.Headers {
		n += len(h.Key) + len(h.Value) + 12
	}
	return n
}

// UUID is the message id that the record carries, or one made of its offset.
func (f *Frame) UUID(i int) string {
	if id := f.Records[i].Header(UUIDHeader); id != "" {
		return id
	}
	return MessageID(f.TopicID, f.Partition, f.Records[i].Offset)
}

// NewFrame returns a frame of records; Bytes is counted here.
func NewFrame(topic, topicID string, partition int32, assignment uint64, records []Received) *Frame {
	f := &Frame{Topic: topic, TopicID: topicID, Partition: partition, Assignment: assignment, Records: records}
	for i := range records {
		f.Bytes += records[i].Size()
	}
	return f
}

type frameKey struct{}

// FrameOf returns the frame that a message carries, or false for a message of another subscriber
// than those of Weir.
func FrameOf(m *message.Message) (*Frame, bool) {
	f, ok := m.Context().Value(frameKey{}).(*Frame)
	return f, ok
}

// NewMessage returns the message that carries f. A frame of one record is
// also a plain Watermill message: payload, UUID and metadata are the record's.
// Any other has no payload.
func NewMessage(ctx context.Context, f *Frame) *message.Message {
	ctx = context.WithValue(ctx, frameKey{}, f)
	if len(f.Records) > 1 {
		return message.NewMessageWithContext(ctx, MessageID(f.TopicID, f.Partition, f.First()), nil)
	}
	r := &f.Records[0]
	m := message.NewMessageWithContext(ctx, f.UUID(0), r.Value)
	for _, h := range r.Headers {
		switch h.Key {
		case UUIDHeader, KeyMetadata, NullMetadata: // ours to say, not the producer's
		default:
			m.Metadata[h.Key] = string(h.Value)
		}
	}
	if r.Key != nil {
		m.Metadata[KeyMetadata] = string(r.Key)
	}
	if r.Value == nil {
		m.Metadata[NullMetadata] = "1"
	}
	return m
}

// received turns any record of a fetch into one of a frame. It cannot fail: a record
// that stopped its subscriber would be redelivered without end.
func received(r *kgo.Record, redelivered bool) Received {
	return Received{Key: r.Key, Value: r.Value, Headers: r.Headers, Offset: r.Offset, Time: r.Timestamp.UTC(), Redelivered: redelivered}
}
