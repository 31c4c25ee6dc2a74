package fenced

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/semaphore"

	"github.com/seed-86dfc502/weir/internal/transport"
)

// Client holds the connections to a cluster that the writers of a process share. Its
// methods may be called concurrently.
type Client struct {
	cl   *kgo.Client
	adm  *kadm.Client
	room *semaphore.Weighted // bytes that are queued or on their way

	// Remembered counts the records of predecessors that the users of the client remember.
	Remembered atomic.Int64

	ctx  context.Context // ends with Close
	stop context.CancelFunc
	all  sync.WaitGroup

	mu      sync.Mutex
	leaders map[int32]*leader    // guarded by mu
	closed  bool                 // guarded by mu
	ends    map[[16]byte][]int64 // guarded by mu; by topic id, of acknowledged batches
}

// maxBuffered is how many bytes of batches may be queued or on their way.
const maxBuffered = 64 << 20

// New does not touch the network yet. more are options of tests.
func New(cfg transport.Config, more ...kgo.Opt) (*Client, error) {
	opts, err := transport.NewClientOpts(cfg)
	if err != nil {
		return nil, err
	}
	// Produce requests are rewritten to the client's acks.
	cl, err := kgo.NewClient(append(append(opts, kgo.RequiredAcks(kgo.AllISRAcks())), more...)...)
	if err != nil {
		return nil, fmt.Errorf("kafka client: %w", err)
	}
	c := &Client{
		cl: cl, adm: kadm.NewClient(cl), room: semaphore.NewWeighted(maxBuffered), leaders: map[int32]*leader{}, ends: map[[16]byte][]int64{},
	}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c, nil
}

// Close ends pending requests. Their outcome is unknown.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.stop()
	c.all.Wait()
	c.cl.Close()
}

// Topic is how a topic is now.
type Topic struct {
	Name    string
	ID      [16]byte // changes when the topic is re-created; zero on old servers
	leaders []int32  // by partition; -1: none
}

// Partitions is how many there are.
func (t *Topic) Partitions() int { return len(t.leaders) }

// Topic returns the metadata of a topic, which may be as old as fresh, at least 250ms.
func (c *Client) Topic(ctx context.Context, name string, fresh time.Duration) (*Topic, error) {
	req := kmsg.NewPtrMetadataRequest()
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = kmsg.StringPtr(name)
	req.Topics = append(req.Topics, rt)
	resp, err := c.cl.RequestCachedMetadata(ctx, req, fresh)
	if err != nil {
		return nil, fmt.Errorf("read topic %s: %w", name, err)
	}
	if len(resp.Topics) != 1 {
		return nil, fmt.Errorf("read topic %s: %w", name, kerr.UnknownTopicOrPartition)
	}
	found := &resp.Topics[0]
	if err := kerr.ErrorForCode(found.ErrorCode); err != nil {
		return nil, fmt.Errorf("read topic %s: %w", name, err)
	}
	t := &Topic{Name: name, ID: found.TopicID, leaders: make([]int32, len(found.Partitions))}
	for i := range t.leaders {
		t.leaders[i] = -1
	}
	for i := range found.Partitions {
		p := &found.Partitions[i]
		if p.Partition < 0 || int(p.Partition) >= len(t.leaders) {
			return nil, fmt.Errorf("read topic %s: it says nothing about some of its partitions", name)
		}
		if kerr.ErrorForCode(p.ErrorCode) == nil {
			t.leaders[p.Partition] = p.Leader
		}
	}
	return t, nil
}

// Ends returns the offsets behind the last records, by partition: acknowledged records
// are before them.
func (c *Client) Ends(ctx context.Context, t *Topic) ([]int64, error) {
	return offsets(ctx, t, c.adm.ListEndOffsets)
}

// KnownEnds raises into, by partition, to the ends of the batches of t that were acknowledged
// to this client. A later batch of a Writer proves them: had a successor fenced it before,
// the leader would have refused that batch.
func (c *Client) KnownEnds(t *Topic, into []int64) []int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Raise(into, c.ends[t.ID])
}

// Raise returns the higher of two offsets of each partition, in ends if it has the capacity.
func Raise(ends, by []int64) []int64 {
	for p, end := range by {
		if p == len(ends) {
			ends = append(ends, 0)
		}
		ends[p] = max(ends[p], end)
	}
	return ends
}

func offsets(ctx context.Context, t *Topic, list func(context.Context, ...string) (kadm.ListedOffsets, error)) ([]int64, error) {
	listed, err := list(ctx, t.Name)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("offsets of topic %s: %w", t.Name, err)
	}
	out := make([]int64, t.Partitions())
	for p := range out {
		o, ok := listed.Lookup(t.Name, int32(p))
		if !ok {
			return nil, fmt.Errorf("offsets of topic %s: none of partition %d", t.Name, p)
		}
		out[p] = o.Offset
	}
	return out, nil
}

// Partition returns where records with a key go, as every Kafka client has it.
func (t *Topic) Partition(key []byte) int32 {
	return transport.PartitionOf(key, int32(len(t.leaders)))
}
