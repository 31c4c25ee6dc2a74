package transport

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Position says where a message stands. Subscribers of this package put it
// into the message's context.
type Position struct {
	Topic     string // name
	TopicID   string // identity: changes when a topic is deleted and created again
	Partition int32
	Offset    int64
	Time      time.Time // record timestamp, UTC, millisecond resolution
	Claim     uint64    // unique in this process: one assignment of one partition
	Seq       uint64    // 0, 1, 2, … within the claim, in log order
	// Again: the record may have been handed out before, by an earlier claim of
	// any process or by this one.
	Again bool
}

type positionKey struct{}

// WithPosition gives a context that carries p.
func WithPosition(ctx context.Context, p Position) context.Context {
	return context.WithValue(ctx, positionKey{}, p)
}

// PositionOf gives the position that a subscriber put into a message's
// context; false for a message from elsewhere.
func PositionOf(ctx context.Context) (Position, bool) {
	p, ok := ctx.Value(positionKey{}).(Position)
	return p, ok
}

// Metadata entries that stand for parts of a Kafka record. All others are
// headers of the same name.
const (
	// KeyMetadata is the record's key; absent when the record has none.
	KeyMetadata = "weir-kafka-key"
	// NullMetadata is "1" when the record's value is null (a tombstone),
	// which a message's payload cannot tell from an empty one.
	NullMetadata = "weir-kafka-null"
)

// Claims is told about partitions before their messages flow. Implemented by
// whoever keeps positions of its own (decide); others leave it nil.
type Claims interface {
	// Assigned is called when partitions of topic were assigned, before any of
	// their messages is fetched, and gives the offsets to start at; a partition
	// that it leaves out starts at the committed offset, or at the oldest record.
	// It may block, and retries its own failures, until ctx is cancelled, which
	// happens when the partitions go away again. An error ends the subscription.
	Assigned(ctx context.Context, topic string, partitions []int32) (map[int32]int64, error)

	// Revoked is called when partitions went away, after the contexts of
	// their messages were cancelled and before their offsets are committed.
	Revoked(topic string, partitions []int32)
}

// Record is one record to append.
type Record struct {
	Topic   string
	Key     []byte // decides the partition; nil is no key
	Value   []byte // nil is a null value
	Headers []Header
}

// Header is one header of a record.
type Header struct {
	Key   string
	Value []byte
}

// Appender is what ingest and decide need of a producer.
type Appender interface {
	// Append hands in records and returns when all of them are acknowledged by
	// all in-sync replicas, or with the first error. Records of one partition
	// are appended in the order of records; after an error, records behind the
	// failed one in its partition were not appended either. Two calls at the
	// same time are not ordered against each other.
	Append(ctx context.Context, records []Record) error
}

var _ message.Publisher = (*Publisher)(nil)
