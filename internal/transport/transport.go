package transport

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Metadata entries that represent parts of a Kafka record. All others are
// headers of the same name.
const (
	// KeyMetadata is the record's key, absent when the record has none.
	KeyMetadata = "weir-kafka-key"
	// NullMetadata is "1" when the record's value is null (a tombstone),
	// which a message's payload cannot tell from an empty one.
	NullMetadata = "weir-kafka-null"
)

// PartitionListener is called before frames of a partition flow. Stages that keep positions of
// their own (decide, deliver) implement it. Others leave it nil.
type PartitionListener interface {
	// Assigned is called when partitions of topic were assigned, before any of their records is
	// fetched, and returns the offsets to start at. A partition that it leaves out starts at the
	// committed offset, or at the oldest record. The end of a partition is a place to start at.
	// One below its oldest record, which retention has passed, or above its end, which belongs to
	// an earlier topic of the name, starts at the oldest record instead, and OnRecordsLost is
	// called. It may block, and retries its own failures, until ctx is cancelled, which happens
	// when the partitions go away again. An error ends the subscription.
	Assigned(ctx context.Context, topic string, partitions []int32) (map[int32]int64, error)

	// Revoked is called when partitions went away, after the contexts of
	// their frames were cancelled and before their offsets are committed.
	Revoked(topic string, partitions []int32)
}

// Record is one record to append.
type Record struct {
	Topic   string
	Key     []byte // decides the partition, unless that is pinned; nil means no key
	Value   []byte // nil is a null value
	Headers []Header
	// Pinned sends the record to Partition. Its key does not matter.
	Pinned    bool
	Partition int32
}

// Header is one header of a record.
type Header = kgo.RecordHeader

// Appender is the part of a producer that ingest and decide need.
type Appender interface {
	// Append hands in records and returns when all of them are acknowledged by all in-sync
	// replicas, or with the first error. Records of one partition are appended in the order of
	// records. After an error, records behind the failed one in its partition were not appended
	// either. Two calls at the same time are not ordered against each other.
	Append(ctx context.Context, records []Record) error
}
