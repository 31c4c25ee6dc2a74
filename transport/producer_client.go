package transport

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// RecordClient is what a producer needs of a Kafka client; *kgo.Client is one.
type RecordClient interface {
	// Produce hands a record in and calls promise once, when it is acknowledged or
	// has failed. The records of a partition are appended in the order of the calls,
	// and none behind one that failed. Nothing need be sent before Flush.
	Produce(ctx context.Context, r *kgo.Record, promise func(*kgo.Record, error))
	// Flush sends what was handed in, also while it waits, and returns when every
	// promise was called.
	Flush(ctx context.Context) error
	// Close fails what is not acknowledged, whose outcome is unknown then.
	Close()
}

// newProducerClient makes a kgo client that appends in order and never gives up.
func newProducerClient(cfg Config, pc ProducerConfig) (RecordClient, error) {
	cl, err := newClient(cfg,
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(fixed{kgo.StickyKeyPartitioner(nil), pc.Partitions}), // murmur2, as every Kafka client
		kgo.RecordRetries(math.MaxInt32),
		kgo.StopProducerOnDataLossDetected(),
		kgo.MaxProduceRequestsInflightPerBroker(1),
		kgo.ManualFlushing(),
		// The producer counts itself and admits one larger batch alone.
		kgo.MaxBufferedRecords(math.MaxInt32),
		kgo.ProducerBatchMaxBytes(int32(pc.MaxRecordBytes+batchOverhead)),
		kgo.ProducerBatchCompression(pc.Compression),
	)
	if err != nil {
		return nil, fmt.Errorf("kafka producer: %w", err)
	}
	return cl, nil
}

// fixed spreads the records of some topics over a fixed number of partitions,
// and leaves pinned records where they are to go.
type fixed struct {
	kgo.Partitioner
	partitions map[string]int
}

func (f fixed) ForTopic(topic string) kgo.TopicPartitioner {
	return fixedTopic{f.Partitioner.ForTopic(topic), f.partitions[topic]}
}

type fixedTopic struct {
	kgo.TopicPartitioner
	partitions int // 0: all there are
}

// unpinned is the partition of a record whose key decides.
const unpinned = -1

// RequiresConsistency lets kgo offer all partitions, also those without a
// leader, to records that must go to a certain one.
func (f fixedTopic) RequiresConsistency(r *kgo.Record) bool {
	return r.Partition != unpinned || f.TopicPartitioner.RequiresConsistency(r)
}

// Partition is asked with all partitions for records with a key or a pin.
func (f fixedTopic) Partition(r *kgo.Record, n int) int {
	if r.Partition != unpinned {
		return int(r.Partition)
	}
	if len(r.Key) > 0 && f.partitions > 0 {
		n = min(n, f.partitions)
	}
	return f.TopicPartitioner.Partition(r, n)
}

// batchOverhead is what one record in a batch of its own costs beside its
// bytes; MaxRecordBytes counts the fields of headers generously.
const batchOverhead = 512

// clientLost: the broker and the client disagree about the sequence, and kgo
// sends nothing more under this identity; or the topic was deleted and created
// again, and kgo sends nothing more to the one that is gone.
func clientLost(err error) bool {
	return errors.Is(err, kerr.UnknownTopicID) || errors.Is(err, kerr.OutOfOrderSequenceNumber) || errors.Is(err, kerr.UnknownProducerID) ||
		errors.Is(err, kerr.InvalidProducerIDMapping) || errors.Is(err, kerr.InvalidProducerEpoch)
}

func toKgo(k *kgo.Record, r *Record) {
	k.Topic, k.Key, k.Value, k.Headers, k.Partition = r.Topic, r.Key, r.Value, r.Headers, unpinned
	if r.Pinned {
		k.Partition = r.Partition
	}
}
