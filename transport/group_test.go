package transport_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/seed-86dfc502/weir/transport"
)

func pending(t *testing.T, g *transport.Group) map[string]int64 {
	t.Helper()
	m, err := g.PendingByTopic(t.Context())
	require.NoError(t, err)
	return m
}

// rawClient talks to the cluster beside this package.
func rawClient(t *testing.T, c cluster, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(c.cfg.Brokers...))...)
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	return cl
}

func TestRebalanceWithAMessageInFlight(t *testing.T) {
	c := realCluster(t)
	topic := c.topic(t, "topic", 2)
	p := c.producer(t, transport.ProducerConfig{})
	fill(t, p, topic, 0, 20)

	first := c.group(t, transport.GroupConfig{})
	ch := subscribe(t, first, topic)
	held := make(map[string]*message.Message)
	for range 20 {
		m := receive(t, ch)
		held[string(m.Payload)] = m
	}
	second := c.group(t, transport.GroupConfig{})
	again := receive(t, subscribe(t, second, topic))
	was := held[string(again.Payload)]
	require.NotNil(t, was)
	ended(was.Context(), t)
	lost := position(t, again).Partition
	for _, m := range held {
		if position(t, m).Partition == lost {
			require.Error(t, m.Context().Err(), "the partition went away")
		} else {
			require.NoError(t, m.Context().Err(), "the partition stayed")
		}
		m.Ack()
	}
	again.Nack()
	// The acknowledgements of the lost partition counted for nothing.
	require.Eventually(t, func() bool {
		lags, err := second.Lag(t.Context())
		require.NoError(t, err)
		for _, l := range lags {
			if l.Partition == lost && l.Committed != 0 || l.Partition != lost && l.Pending() != 0 {
				return false
			}
		}
		return true
	}, patience, 20*time.Millisecond)
}

func TestCommitOnClose(t *testing.T) {
	c := embeddedCluster(t)
	topic := c.topic(t, "topic", 1)
	fill(t, c.producer(t, transport.ProducerConfig{}), topic, 0, 10)

	g := c.group(t, transport.GroupConfig{CommitInterval: time.Hour})
	ch := subscribe(t, g, topic)
	held := make([]*message.Message, 10)
	for i := range held {
		held[i] = receive(t, ch)
	}
	for _, i := range []int{0, 1, 2, 4} {
		held[i].Ack()
	}
	require.NoError(t, g.Close())
	ended(held[9].Context(), t)

	next := receive(t, subscribe(t, c.group(t, transport.GroupConfig{}), topic))
	require.EqualValues(t, 3, position(t, next).Offset, "contiguous acknowledgements are committed, no more")
}

func TestMessagesInFlightMayFinishWhileClosing(t *testing.T) {
	c := embeddedCluster(t)
	topic := c.topic(t, "topic", 1)
	fill(t, c.producer(t, transport.ProducerConfig{}), topic, 0, 2)
	g := c.group(t, transport.GroupConfig{CommitInterval: time.Hour, CloseTimeout: time.Minute})
	ctx, cancel := context.WithCancel(t.Context())
	ch, err := g.Subscriber().Subscribe(ctx, topic)
	require.NoError(t, err)
	a, b := receive(t, ch), receive(t, ch)
	cancel() // as a router does when it stops
	closed := make(chan error, 1)
	go func() { closed <- g.Close() }()
	_, open := <-ch
	require.False(t, open)
	require.NoError(t, a.Context().Err(), "a handler may finish")
	a.Ack()
	b.Ack()
	require.NoError(t, <-closed)
	require.Zero(t, pending(t, c.group(t, transport.GroupConfig{Topics: []string{topic}}))[topic])
}

func TestUndecodableMessage(t *testing.T) {
	c := embeddedCluster(t)
	topic := c.topic(t, "topic", 1)
	raw := rawClient(t, c)
	value := []byte{0xff, 0x00, '{'}
	require.NoError(t, raw.ProduceSync(t.Context(),
		&kgo.Record{Topic: topic, Key: []byte{0xfe}, Value: value, Headers: []kgo.RecordHeader{
			{Key: "", Value: nil}, {Key: transport.KeyMetadata, Value: []byte("forged")}, {Key: "\xff", Value: []byte{0}}}},
		&kgo.Record{Topic: topic},
		&kgo.Record{Topic: topic, Value: []byte{}},
	).FirstErr())
	ch := subscribe(t, c.group(t, transport.GroupConfig{}), topic)
	id, err := c.admin(t).TopicID(t.Context(), topic)
	require.NoError(t, err)

	m := receive(t, ch)
	require.Equal(t, value, []byte(m.Payload))
	require.Equal(t, message.Metadata{transport.KeyMetadata: "\xfe", "": "", "\xff": "\x00"}, m.Metadata)
	require.Equal(t, transport.MessageID(id, 0, 0), m.UUID)
	m = receive(t, ch)
	require.Equal(t, message.Metadata{transport.NullMetadata: "1"}, m.Metadata)
	require.Empty(t, m.Payload)
	m = receive(t, ch)
	require.Empty(t, m.Metadata, "an empty value is not null, no key is not an empty key")
}

func TestNackDuringShutdown(t *testing.T) {
	c := embeddedCluster(t)
	topic := c.topic(t, "topic", 1)
	fill(t, c.producer(t, transport.ProducerConfig{}), topic, 0, 3)
	g := c.group(t, transport.GroupConfig{CloseTimeout: time.Minute})
	ch := subscribe(t, g, topic)
	held := []*message.Message{receive(t, ch), receive(t, ch), receive(t, ch)}
	closed := make(chan error, 1)
	go func() { closed <- g.Close() }()
	_, open := <-ch
	require.False(t, open)
	held[0].Ack()
	held[1].Nack()
	held[2].Ack()
	require.NoError(t, <-closed, "a Nack ends the wait, it is not sent again")
	next := receive(t, subscribe(t, c.group(t, transport.GroupConfig{}), topic))
	require.EqualValues(t, 1, position(t, next).Offset)
}

// Offsets have gaps where a transaction ended, where one was aborted, and
// where compaction took records.
func TestSeqIsContiguousOverGaps(t *testing.T) {
	c := realCluster(t)
	topic := c.topic(t, "topic", 1)
	tx := rawClient(t, c, kgo.TransactionalID(c.prefix+"tx"), kgo.DefaultProduceTopic(topic))
	for i := range 6 {
		require.NoError(t, tx.BeginTransaction())
		require.NoError(t, tx.ProduceSync(t.Context(), kgo.StringRecord(fmt.Sprint(i)), kgo.StringRecord(fmt.Sprint(i))).FirstErr())
		require.NoError(t, tx.EndTransaction(t.Context(), kgo.TransactionEndTry(i%2 == 0)))
	}
	g := c.group(t, transport.GroupConfig{Topics: []string{topic}})
	ch := subscribe(t, g, topic)
	var offsets []int64
	for i := range 6 {
		m := receive(t, ch)
		at := position(t, m)
		require.EqualValues(t, i, at.Seq)
		offsets = append(offsets, at.Offset)
		m.Ack()
	}
	require.Equal(t, []int64{0, 1, 6, 7, 12, 13}, offsets, "records of aborted transactions are nobody's")
	require.Eventually(t, func() bool { return pending(t, g)[topic] == 0 }, patience, 20*time.Millisecond,
		"the commit goes past the markers at the end")
}

func TestNackDoesNotBlockOthers(t *testing.T) {
	c := embeddedCluster(t)
	topic := c.topic(t, "topic", 1)
	fill(t, c.producer(t, transport.ProducerConfig{}), topic, 0, 50)
	g := c.group(t, transport.GroupConfig{Topics: []string{topic}, Window: 10, NackMin: 200 * time.Millisecond, NackMax: 200 * time.Millisecond})
	ch := subscribe(t, g, topic)
	bad := receive(t, ch)
	bad.Nack()
	for i := 1; i < 50; i++ {
		m := receive(t, ch)
		if m.UUID == bad.UUID { // its time may come in between
			require.Equal(t, position(t, bad), position(t, m))
			m.Nack()
			i--
			continue
		}
		require.EqualValues(t, i, position(t, m).Seq)
		m.Ack()
	}
	require.EqualValues(t, 50, pending(t, g)[topic], "nothing is committed behind it")
	again := receive(t, ch)
	require.NotSame(t, bad, again)
	require.Equal(t, bad.UUID, again.UUID)
	require.Equal(t, bad.Payload, again.Payload)
	require.Equal(t, bad.Metadata, again.Metadata)
	require.Equal(t, position(t, bad), position(t, again))
	require.Error(t, bad.Context().Err())
	require.NoError(t, again.Context().Err())
	again.Ack()
	require.Eventually(t, func() bool { return pending(t, g)[topic] == 0 }, patience, 20*time.Millisecond)
}

func TestWindowBoundsMessagesAndBytes(t *testing.T) {
	c := embeddedCluster(t)
	topic := c.topic(t, "topic", 1)
	p := c.producer(t, transport.ProducerConfig{})
	big := make([]byte, 500_000)
	for range 4 {
		require.NoError(t, p.Append(t.Context(), []transport.Record{{Topic: topic, Value: big}, {Topic: topic, Value: []byte("small")}}))
	}
	t.Run("messages", func(t *testing.T) {
		ch := subscribe(t, c.group(t, transport.GroupConfig{ID: "a", Window: 3}), topic)
		first := receive(t, ch)
		receive(t, ch)
		receive(t, ch)
		none(t, ch, 100*time.Millisecond)
		first.Ack()
		receive(t, ch)
		none(t, ch, 100*time.Millisecond)
	})
	t.Run("bytes", func(t *testing.T) {
		ch := subscribe(t, c.group(t, transport.GroupConfig{ID: "b", WindowBytes: 10_000}), topic)
		for range 4 {
			m := receive(t, ch)
			require.Len(t, m.Payload, len(big), "larger than the window: alone")
			none(t, ch, 50*time.Millisecond)
			m.Ack()
			receive(t, ch).Ack()
		}
	})
}

func TestSlowTopicDoesNotStopTheOthers(t *testing.T) {
	c := embeddedCluster(t)
	slow, fast, unread := c.topic(t, "slow", 2), c.topic(t, "fast", 2), c.topic(t, "unread", 2)
	p := c.producer(t, transport.ProducerConfig{})
	value := make([]byte, 10_000)
	for _, topic := range []string{slow, fast, unread} {
		records := make([]transport.Record, 500)
		for i := range records {
			records[i] = transport.Record{Topic: topic, Key: []byte(fmt.Sprint(i)), Value: value}
		}
		require.NoError(t, p.Append(t.Context(), records))
	}
	g := c.group(t, transport.GroupConfig{Topics: []string{slow, fast, unread}, Window: 5, FetchPartitionBytes: 50_000})
	stuck := subscribe(t, g, slow)
	var held []*message.Message
	for range 10 {
		held = append(held, receive(t, stuck)) // two full windows
	}
	ch := subscribe(t, g, fast)
	for range 500 {
		receive(t, ch).Ack()
	}
	require.Eventually(t, func() bool {
		by := pending(t, g)
		return by[fast] == 0 && by[slow] == 500 && by[unread] == 500
	}, patience, 20*time.Millisecond)
	for _, m := range held { // nothing of what waited was dropped
		m.Ack()
	}
	seen := make(map[int64]bool)
	for _, m := range held {
		at := position(t, m)
		seen[int64(at.Partition)<<32|at.Offset] = true
	}
	for len(seen) < 500 {
		m := receive(t, stuck)
		at := position(t, m)
		require.False(t, seen[int64(at.Partition)<<32|at.Offset])
		seen[int64(at.Partition)<<32|at.Offset] = true
		m.Ack()
	}
}

func TestTopicsAreSubscribedOnce(t *testing.T) {
	c := embeddedCluster(t)
	topic := c.topic(t, "topic", 1)
	g := c.group(t, transport.GroupConfig{Topics: []string{topic}})
	subscribe(t, g, topic)
	_, err := g.Subscriber().Subscribe(t.Context(), topic)
	require.ErrorIs(t, err, transport.ErrSubscribed)
}

func TestMissingTopicIsAPlainError(t *testing.T) {
	c := embeddedCluster(t)
	_, err := transport.NewGroup(t.Context(), c.cfg, transport.GroupConfig{ID: "g", Topics: []string{"a", "b"}})
	require.ErrorContains(t, err, "topic a does not exist")
	require.ErrorContains(t, err, "topic b does not exist")
}

func TestTwoMembersShareAndHandOver(t *testing.T) {
	c := realCluster(t)
	topic := c.topic(t, "topic", 4)
	p := c.producer(t, transport.ProducerConfig{})
	first := c.group(t, transport.GroupConfig{})
	second := c.group(t, transport.GroupConfig{})

	var mu sync.Mutex
	got := map[string]map[int32]time.Time{"first": {}, "second": {}}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	eat := func(name string, ch <-chan *message.Message) {
		defer wg.Done()
		for m := range ch {
			mu.Lock()
			got[name][position(t, m).Partition] = time.Now()
			mu.Unlock()
			m.Ack()
		}
	}
	wg.Add(3)
	ch := subscribe(t, first, topic)
	go eat("first", ch)
	go func() { // all partitions get something all the time
		defer wg.Done()
		for i := 0; ; i++ {
			records := make([]transport.Record, 16)
			for j := range records {
				records[j] = transport.Record{Topic: topic, Key: []byte(fmt.Sprint(j)), Value: []byte("x")}
			}
			if p.Append(context.Background(), records) != nil {
				return
			}
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	count := func(name string) func() bool {
		return func() bool { mu.Lock(); defer mu.Unlock(); return len(got[name]) == 4 }
	}
	require.Eventually(t, count("first"), patience, 10*time.Millisecond)
	ch = subscribe(t, second, topic)
	go eat("second", ch)
	require.Eventually(t, func() bool { mu.Lock(); defer mu.Unlock(); return len(got["second"]) == 2 }, patience, 10*time.Millisecond)
	require.Never(t, func() bool { mu.Lock(); defer mu.Unlock(); return len(got["second"]) > 2 }, 300*time.Millisecond, 50*time.Millisecond)

	began := time.Now()
	require.NoError(t, first.Close())
	require.Eventually(t, count("second"), patience, 5*time.Millisecond)
	t.Logf("hand-over of two partitions, leaving included: %v", time.Since(began))
	close(stop)
	require.NoError(t, second.Close())
	wg.Wait()
}
