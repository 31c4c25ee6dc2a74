package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// RecordClient is the part of a Kafka client that a producer uses; *kgo.Client is one.
type RecordClient interface {
	// Produce hands a record in and calls promise once, when it is acknowledged or
	// has failed. The records of a partition are appended in the order of the calls,
	// and none behind one that failed. Nothing need be sent before Flush.
	Produce(ctx context.Context, r *kgo.Record, promise func(*kgo.Record, error))
	// Flush sends all records, also those handed in while it waits, and returns when every
	// promise was called.
	Flush(ctx context.Context) error
	// Close fails the records without acknowledgement. Their outcome is unknown.
	Close()
}

// newProducerClient makes a kgo client that appends in order and retries without end. It
// sends nothing while handing is held.
func newProducerClient(cfg Config, pc ProducerConfig, handing *sync.RWMutex) (RecordClient, error) {
	dial := dialer(cfg.TLS)
	cfg.TLS = nil // kgo takes one of the two
	cl, err := newClient(cfg,
		kgo.Dialer(func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &heldConn{conn, handing}, nil
		}),
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
	return &producerClient{Client: cl, handing: handing, topics: map[string]*topicRecords{}}, nil
}

// dialer returns how a connection is made.
func dialer(config *tls.Config) func(ctx context.Context, network, address string) (net.Conn, error) {
	plain := &net.Dialer{Timeout: dialTimeout}
	if config == nil {
		return plain.DialContext
	}
	return (&tls.Dialer{NetDialer: plain, Config: config}).DialContext
}

// heldConn sends no request while handing is held. A record that is handed in then goes
// out, and can be refused, once all of its round are in kgo's hands: kgo fails the records
// that it holds behind a failed batch, but takes later ones.
type heldConn struct {
	net.Conn
	handing *sync.RWMutex
}

// Write does not wait for others, even while the broker accepts nothing: its request was built
// before the next round is handed in.
func (c *heldConn) Write(b []byte) (int, error) {
	c.pass()
	return c.Conn.Write(b)
}

func (c *heldConn) pass() {
	c.handing.RLock()
	defer c.handing.RUnlock()
}

// producerClient is kgo's client. Records for a topic that kgo does not know yet wait
// here until it does: kgo would hand it on to the partitions at a time of its own, and
// send the first of it meanwhile.
type producerClient struct {
	*kgo.Client
	handing *sync.RWMutex
	topics  map[string]*topicRecords // guarded by handing
}

// topicRecords are records that wait until kgo knows a topic.
type topicRecords struct {
	known   bool
	waiting []promised
}

type promised struct {
	record  *kgo.Record
	promise func(*kgo.Record, error)
}

// Produce implements RecordClient. The caller holds handing.
func (c *producerClient) Produce(ctx context.Context, r *kgo.Record, promise func(*kgo.Record, error)) {
	t := c.topics[r.Topic]
	if t != nil && t.known {
		c.Client.Produce(ctx, r, promise)
		return
	}
	if t == nil {
		t = &topicRecords{}
		c.topics[r.Topic] = t
		c.Client.Produce(ctx, &kgo.Record{Topic: r.Topic, Partition: unasked}, func(question *kgo.Record, err error) {
			go c.learned(question, err) // kgo's promises must not wait
		})
	}
	t.waiting = append(t.waiting, promised{r, promise})
}

// learned appends the records that waited for a topic, or fails them with the error of the query.
func (c *producerClient) learned(question *kgo.Record, err error) {
	c.handing.Lock()
	defer c.handing.Unlock()
	t := c.topics[question.Topic]
	if t.known = question.Partition != unasked; !t.known {
		delete(c.topics, question.Topic)
	}
	for _, w := range t.waiting {
		if t.known {
			c.Client.Produce(context.Background(), w.record, w.promise)
		} else {
			w.promise(w.record, err)
		}
	}
	t.waiting = nil
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

// unpinned is the partition of a record whose key decides. unasked is the partition of the
// question whether kgo knows a topic: a record that has no partition, so it is never
// sent. kgo asks for its partition once it knows the topic's.
const (
	unpinned = -1
	unasked  = -2
)

// RequiresConsistency lets kgo offer all partitions, also those without a
// leader, to records that must go to a certain one.
func (f fixedTopic) RequiresConsistency(r *kgo.Record) bool {
	return r.Partition != unpinned || f.TopicPartitioner.RequiresConsistency(r)
}

// kgo calls Partition with all partitions for records with a key or a pin.
func (f fixedTopic) Partition(r *kgo.Record, n int) int {
	switch r.Partition {
	case unpinned:
	case unasked:
		r.Partition = unpinned
		return -1
	default:
		return int(r.Partition)
	}
	if len(r.Key) > 0 && f.partitions > 0 {
		n = min(n, f.partitions)
	}
	return f.TopicPartitioner.Partition(r, n)
}

// batchOverhead is the overhead of one record in its own batch, in bytes. MaxRecordBytes counts
// the fields of headers generously.
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
