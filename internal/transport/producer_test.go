package transport_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-86dfc502/weir/internal/transport"
)

// faulty is a broker whose answers to produce requests a test decides: fault
// gets the number of the request, from 1, and returns an error code for topic
// "log"; 0 lets the request pass.
func faulty(t *testing.T, fault func(n int) int16) cluster {
	t.Helper()
	broker, c := fakeBrokers(t, kfake.SeedTopics(1, "log", "other"))
	var n atomic.Int64
	broker.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
		broker.KeepControl()
		req := r.(*kmsg.ProduceRequest)
		code := fault(int(n.Add(1)))
		if code == 0 {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.ProduceResponse)
		for _, t := range req.Topics {
			rt := kmsg.NewProduceResponseTopic()
			rt.Topic, rt.TopicID = t.Topic, t.TopicID
			for _, p := range t.Partitions {
				rp := kmsg.NewProduceResponseTopicPartition()
				rp.Partition, rp.ErrorCode = p.Partition, code
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	})
	return c
}

// tiny makes every record a batch of its own.
var tiny = transport.ProducerConfig{MaxRecordBytes: 600}

func numbered(topic string, n int) transport.Record {
	v := make([]byte, 590)
	copy(v, strconv.Itoa(n)+" ")
	return transport.Record{Topic: topic, Value: v}
}

// logged reads the numbers in topic "log".
func logged(t *testing.T, c cluster) []int {
	t.Helper()
	_, end, err := c.admin(t).Offsets(t.Context(), "log")
	require.NoError(t, err)
	cl := rawClient(t, c, kgo.ConsumeTopics("log"))
	numbers := []int{}
	for int64(len(numbers)) < end[0] {
		fetches := cl.PollFetches(t.Context())
		require.NoError(t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			var n int
			_, err := fmt.Sscan(string(r.Value), &n)
			require.NoError(t, err)
			numbers = append(numbers, n)
		})
	}
	return numbers
}

func upTo(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// One batch fails for good while others of its partition are handed in behind
// it: none of them may be appended.
func TestNothingIsAppendedBehindAFailedBatch(t *testing.T) {
	for _, fail := range []*kerr.Error{kerr.InvalidRecord, kerr.MessageTooLarge, kerr.TopicAuthorizationFailed, kerr.OutOfOrderSequenceNumber} {
		t.Run(fail.Message, func(t *testing.T) {
			c := faulty(t, func(n int) int16 {
				if n == 10 {
					return fail.Code
				}
				return 0
			})
			p := c.producer(t, tiny)
			var mu sync.Mutex
			var wg sync.WaitGroup
			var sequence transport.Sequence
			results := make([]error, 100)
			for i := range results { // each may be in flight, in a round or refused
				wg.Add(1)
				p.AppendAsync(t.Context(), &sequence, []transport.Record{numbered("log", 2*i), numbered("log", 2*i+1)}, func(err error) {
					mu.Lock()
					results[i] = err
					mu.Unlock()
					wg.Done()
				})
			}
			wg.Wait()
			require.ErrorIs(t, sequence.Broken(), transport.ErrBroken)
			appended := logged(t, c)
			require.Equal(t, upTo(9), appended, "a prefix of what was handed in")
			for i, err := range results {
				if 2*i+1 < len(appended) {
					require.NoError(t, err)
				} else {
					require.Error(t, err)
				}
			}
			require.ErrorIs(t, results[4], fail)
			done := make(chan error, 1)
			p.AppendAsync(t.Context(), &sequence, []transport.Record{numbered("log", 1000)}, func(err error) { done <- err })
			require.ErrorIs(t, <-done, transport.ErrBroken)

			p.AppendAsync(t.Context(), new(transport.Sequence), []transport.Record{numbered("log", 9)}, func(err error) { done <- err })
			require.NoError(t, <-done)
			require.Equal(t, upTo(10), logged(t, c))
		})
	}
}

func TestTooLargeIsRefusedBeforeAnythingOfItsBatch(t *testing.T) {
	c := faulty(t, func(int) int16 { return 0 })
	p := c.producer(t, tiny)
	large := transport.Record{Topic: "log", Value: make([]byte, 601)}
	require.ErrorIs(t, p.Append(t.Context(), []transport.Record{numbered("log", 0), large}), transport.ErrTooLarge)
	done := make(chan error, 2)
	var sequence transport.Sequence
	p.AppendAsync(t.Context(), &sequence, []transport.Record{large}, func(err error) { done <- err })
	p.AppendAsync(t.Context(), &sequence, []transport.Record{numbered("log", 1)}, func(err error) { done <- err })
	a, b := <-done, <-done // called from different goroutines
	require.Error(t, a)
	require.Error(t, b)
	require.Empty(t, logged(t, c))
}

func TestFullBuffersMakeCallersWait(t *testing.T) {
	var open atomic.Bool
	c := faulty(t, func(int) int16 {
		if open.Load() {
			return 0
		}
		return kerr.NotLeaderForPartition.Code
	})
	p := c.producer(t, transport.ProducerConfig{MaxBufferedRecords: 2})
	done := make(chan error, 4)
	var sequence transport.Sequence
	for i := range 3 { // who appends a sequence bounds it
		p.AppendAsync(t.Context(), &sequence, []transport.Record{numbered("log", i)}, func(err error) { done <- err })
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, p.Append(ctx, []transport.Record{numbered("log", 7)}), context.DeadlineExceeded)
	go func() { done <- p.Append(t.Context(), []transport.Record{numbered("log", 3)}) }()
	open.Store(true)
	for range 4 {
		require.NoError(t, <-done)
	}
	require.Equal(t, upTo(4), logged(t, c))
}

func TestCloseFlushesAndRefuses(t *testing.T) {
	c := faulty(t, func(int) int16 { return 0 })
	p := c.producer(t, transport.ProducerConfig{})
	done := make(chan error, 1)
	p.AppendAsync(t.Context(), new(transport.Sequence), []transport.Record{numbered("log", 0)}, func(err error) { done <- err })
	require.NoError(t, p.Close(t.Context()))
	require.NoError(t, <-done)
	require.ErrorIs(t, p.Append(t.Context(), []transport.Record{numbered("log", 1)}), transport.ErrClosed)
	require.Equal(t, upTo(1), logged(t, c))
}

func TestCloseEndsThoughTheBrokerDoesNotAnswer(t *testing.T) {
	c := faulty(t, func(int) int16 { return kerr.NotLeaderForPartition.Code })
	p := c.producer(t, transport.ProducerConfig{})
	done := make(chan error, 1)
	p.AppendAsync(t.Context(), new(transport.Sequence), []transport.Record{numbered("log", 0)}, func(err error) { done <- err })
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, p.Close(ctx), context.DeadlineExceeded)
	require.Error(t, <-done)
}

func TestMissingTopicFailsTheAppend(t *testing.T) {
	c := faulty(t, func(int) int16 { return 0 })
	p := c.producer(t, transport.ProducerConfig{})
	err := p.Append(t.Context(), []transport.Record{numbered("missing", 0), numbered("log", 0)})
	require.ErrorIs(t, err, kerr.UnknownTopicOrPartition)
	require.Equal(t, upTo(1), logged(t, c), "another partition is not held up")
}

func TestScanBesideATransactionAndEnsureTopics(t *testing.T) {
	c := realCluster(t)
	topic := c.topic(t, "topic", 3)
	a := c.admin(t)
	require.ErrorIs(t, a.EnsureTopics(t.Context(), []transport.TopicSpec{{Name: topic, Partitions: 4}}), transport.ErrPartitionCount)

	cl := rawClient(t, c, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for i := range 10 {
		require.NoError(t, cl.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Partition: 1, Key: []byte("k"), Value: []byte(fmt.Sprint(i))}).FirstErr())
	}
	tx := rawClient(t, c, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.TransactionalID(c.prefix+"tx"))
	require.NoError(t, tx.BeginTransaction())
	require.NoError(t, tx.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Partition: 2, Value: []byte("in a transaction")}).FirstErr())
	require.NoError(t, tx.EndTransaction(t.Context(), kgo.TryCommit))
	_, ends, err := a.Offsets(t.Context(), topic)
	require.NoError(t, err)
	last := map[int32]transport.Scanned{}
	require.NoError(t, a.Scan(t.Context(), topic, map[int32]int64{1: 0, 2: 0}, ends, func(r transport.Scanned) error {
		last[r.Partition] = r
		return nil
	}))
	require.Len(t, last, 2)
	require.Equal(t, "9", string(last[1].Value))
	require.Equal(t, "k", string(last[1].Key))
	require.Equal(t, "in a transaction", string(last[2].Value), "the marker behind it is no record")
}

func TestRecordsOfMessagesKeepKeysAndNulls(t *testing.T) {
	c := faulty(t, func(int) int16 { return 0 })
	p := c.producer(t, transport.ProducerConfig{})
	m := message.NewMessage("id", []byte("payload"))
	m.Metadata = message.Metadata{transport.KeyMetadata: "", "a": "b"}
	null := message.NewMessage("", nil)
	null.Metadata.Set(transport.NullMetadata, "1")
	for _, m := range []*message.Message{m, null, message.NewMessage("", nil)} {
		r := transport.ReceivedOf(m)
		require.NoError(t, p.Append(t.Context(), []transport.Record{{Topic: "other", Key: r.Key, Value: r.Value, Headers: r.Headers}}))
	}
	ch := subscribe(t, c.group(t, transport.GroupConfig{Topic: "other", FrameRecords: 1}), "other")
	next := func() *message.Message {
		m := receive(t, ch)
		m.Ack()
		return m
	}
	got := next()
	require.Equal(t, "id", got.UUID)
	require.Equal(t, m.Metadata, got.Metadata)
	require.Equal(t, message.Metadata{transport.NullMetadata: "1"}, next().Metadata)
	require.Empty(t, next().Metadata)
}
