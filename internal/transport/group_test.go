package transport_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/seed-86dfc502/weir/internal/transport"
)

func pending(t *testing.T, g *transport.Group) map[string]int64 {
	t.Helper()
	lags, err := g.Lag(t.Context())
	require.NoError(t, err)
	m := map[string]int64{}
	for _, l := range lags {
		m[l.Topic] += l.Pending()
	}
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

func TestRebalanceWithAFrameInWork(t *testing.T) {
	c := realCluster(t)
	topic := c.topic(t, "topic", 2)
	p := c.producer(t, transport.ProducerConfig{})
	lined(t, p, topic, 0, numbers(0, 20)...)
	lined(t, p, topic, 1, numbers(0, 20)...)

	first := c.group(t, transport.GroupConfig{Topic: topic, FrameRecords: 5})
	ch := subscribe(t, first, topic)
	held := make(map[int32]*message.Message)
	for range 2 { // one of each partition, and then none
		m := receive(t, ch)
		held[frame(t, m).Partition] = m
	}
	require.Len(t, held, 2)
	second := c.group(t, transport.GroupConfig{Topic: topic, FrameRecords: 3})
	other := subscribe(t, second, topic)
	again := receive(t, other)
	lost := frame(t, again).Partition
	was, stayed := held[lost], held[1-lost]
	ended(was.Context(), t)
	require.NoError(t, stayed.Context().Err(), "the partition stayed")
	require.Equal(t, frame(t, was).First(), frame(t, again).First())
	require.True(t, frame(t, again).Records[0].Redelivered)
	require.Len(t, frame(t, again).Records, 3, "the borders are others")
	require.Greater(t, frame(t, again).Assignment, frame(t, was).Assignment)
	was.Ack()
	stayed.Ack()
	again.Nack()
	require.Equal(t, values(t, again), values(t, receive(t, other)))
	acknowledge(t, ch, 15)
	// The acknowledgement of the lost partition counted for nothing.
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
	c := fakeCluster(t)
	topic := c.topic(t, "topic", 1)
	fill(t, c.producer(t, transport.ProducerConfig{}), topic, 0, 10)

	g := c.group(t, transport.GroupConfig{Topic: topic, CommitInterval: time.Hour, FrameRecords: 3})
	ch := subscribe(t, g, topic)
	acknowledge(t, ch, 3)
	held := receive(t, ch)
	require.NoError(t, g.Close())
	ended(held.Context(), t)
	held.Ack()

	next := receive(t, subscribe(t, c.group(t, transport.GroupConfig{Topic: topic}), topic))
	require.Equal(t, numbers(3, 7), values(t, next), "what is acknowledged is committed, no more")
	for _, r := range frame(t, next).Records {
		require.True(t, r.Redelivered, "all of it was there before, and a part in somebody's hand")
	}
}

func TestUndecodableMessage(t *testing.T) {
	c := fakeCluster(t)
	topic := c.topic(t, "topic", 1)
	raw := rawClient(t, c)
	value := []byte{0xff, 0x00, '{'}
	require.NoError(t, raw.ProduceSync(t.Context(),
		&kgo.Record{Topic: topic, Key: []byte{0xfe}, Value: value, Headers: []kgo.RecordHeader{
			{Key: "", Value: nil}, {Key: transport.KeyMetadata, Value: []byte("forged")}, {Key: "\xff", Value: []byte{0}}}},
		&kgo.Record{Topic: topic},
		&kgo.Record{Topic: topic, Value: []byte{}},
	).FirstErr())
	ch := subscribe(t, c.group(t, transport.GroupConfig{Topic: topic, FrameRecords: 1}), topic)
	id, err := c.admin(t).TopicID(t.Context(), topic)
	require.NoError(t, err)

	m := receive(t, ch)
	require.Equal(t, value, []byte(m.Payload))
	require.Equal(t, message.Metadata{transport.KeyMetadata: "\xfe", "": "", "\xff": "\x00"}, m.Metadata)
	require.Equal(t, transport.MessageID(id, 0, 0), m.UUID)
	m.Ack()
	m = receive(t, ch)
	require.Equal(t, message.Metadata{transport.NullMetadata: "1"}, m.Metadata)
	require.Empty(t, m.Payload)
	m.Ack()
	m = receive(t, ch)
	require.Empty(t, m.Metadata, "an empty value is not null, no key is not an empty key")

	m = receive(t, subscribe(t, c.group(t, transport.GroupConfig{Topic: topic, ID: "together"}), topic))
	require.Equal(t, transport.MessageID(id, 0, 0), m.UUID)
	require.Empty(t, m.Metadata)
	require.Nil(t, m.Payload)
	f := frame(t, m)
	require.Equal(t, f.Bytes, transport.NewFrame(f.Topic, f.TopicID, f.Partition, f.Assignment, f.Records).Bytes)
	require.Len(t, f.Records, 3)
	require.Equal(t, "\xfe", string(f.Records[0].Key))
	require.Equal(t, value, f.Records[0].Value)
	require.Equal(t, "forged", f.Records[0].Header(transport.KeyMetadata), "what it says as a header, not as a key")
	require.Nil(t, f.Records[1].Key)
	require.Nil(t, f.Records[1].Value)
	require.NotNil(t, f.Records[2].Value)
	require.Empty(t, f.Records[2].Value)
	require.Equal(t, time.UTC, f.Records[2].Time.Location())
	require.Equal(t, transport.MessageID(id, 0, 2), f.UUID(2))
}

func TestNackDuringShutdown(t *testing.T) {
	c := fakeCluster(t)
	topic := c.topic(t, "topic", 1)
	fill(t, c.producer(t, transport.ProducerConfig{}), topic, 0, 3)
	g := c.group(t, transport.GroupConfig{Topic: topic, CloseTimeout: time.Hour, FrameRecords: 1})
	ch := subscribe(t, g, topic)
	acknowledge(t, ch, 1)
	held := receive(t, ch)
	closed := make(chan error, 1)
	go func() { closed <- g.Close() }()
	_, open := <-ch
	require.False(t, open)
	held.Nack()
	require.NoError(t, <-closed, "a Nack ends the wait, it is not sent again")
	next := receive(t, subscribe(t, c.group(t, transport.GroupConfig{Topic: topic}), topic))
	require.Equal(t, numbers(1, 2), values(t, next))
}

// A frame that waits for its back-off does not hold up a shutdown.
func TestShutdownDuringBackOff(t *testing.T) {
	c := fakeCluster(t)
	topic := c.topic(t, "topic", 1)
	fill(t, c.producer(t, transport.ProducerConfig{}), topic, 0, 3)
	g := c.group(t, transport.GroupConfig{Topic: topic, CloseTimeout: time.Hour, NackMin: time.Hour, NackMax: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	ch, err := g.Subscriber().Subscribe(ctx, topic)
	require.NoError(t, err)
	m := receive(t, ch)
	m.Nack()
	ended(m.Context(), t)
	cancel()
	_, open := <-ch
	require.False(t, open)
	require.NoError(t, g.Close())
}

// Offsets have gaps where a transaction ended, where one was aborted, and
// where compaction took records.
func TestMarkersOfTransactionsArePassed(t *testing.T) {
	c := realCluster(t)
	transactions := func(t *testing.T, topic string, n int, commit func(i int) bool) {
		tx := rawClient(t, c, kgo.TransactionalID(topic+"tx"), kgo.DefaultProduceTopic(topic))
		for i := range n {
			require.NoError(t, tx.BeginTransaction())
			require.NoError(t, tx.ProduceSync(t.Context(), kgo.StringRecord(fmt.Sprint(i)), kgo.StringRecord(fmt.Sprint(i))).FirstErr())
			require.NoError(t, tx.EndTransaction(t.Context(), kgo.TransactionEndTry(commit(i))))
		}
	}
	passed := func(t *testing.T, g *transport.Group, topic string) {
		require.Eventually(t, func() bool { return pending(t, g)[topic] == 0 }, patience, 20*time.Millisecond,
			"the commit goes past the markers at the end")
	}
	for _, records := range []int{1, 4, 1000} {
		t.Run(fmt.Sprint("frames of ", records), func(t *testing.T) {
			topic := c.topic(t, fmt.Sprint("topic", records), 1)
			transactions(t, topic, 6, func(i int) bool { return i%2 == 0 })
			g := c.group(t, transport.GroupConfig{ID: topic, Topic: topic, FrameRecords: records})
			ch := subscribe(t, g, topic)
			var offsets []int64
			for len(offsets) < 6 {
				m := receive(t, ch)
				for _, r := range frame(t, m).Records {
					offsets = append(offsets, r.Offset)
				}
				m.Ack()
			}
			require.Equal(t, []int64{0, 1, 6, 7, 12, 13}, offsets, "records of aborted transactions are nobody's")
			passed(t, g, topic)
		})
	}
	t.Run("nothing else", func(t *testing.T) {
		topic := c.topic(t, "aborted", 1)
		transactions(t, topic, 3, func(int) bool { return false })
		g := c.group(t, transport.GroupConfig{ID: topic, Topic: topic})
		ch := subscribe(t, g, topic)
		passed(t, g, topic)
		select {
		case m := <-ch:
			require.FailNow(t, "a frame of nothing", "%+v", frame(t, m))
		default:
		}
	})
}

func TestMissingTopicIsAPlainError(t *testing.T) {
	c := fakeCluster(t)
	_, err := transport.NewGroup(t.Context(), c.cfg, transport.GroupConfig{ID: "g", Topic: "a"})
	require.ErrorContains(t, err, "topic a does not exist")
}

func TestTwoMembersShareAndHandOver(t *testing.T) {
	c := realCluster(t)
	topic := c.topic(t, "topic", 4)
	p := c.producer(t, transport.ProducerConfig{})
	first := c.group(t, transport.GroupConfig{Topic: topic})
	second := c.group(t, transport.GroupConfig{Topic: topic})

	var mu sync.Mutex
	got := map[string]map[int32]int{"first": {}, "second": {}} // frames by partition; guarded by mu
	stop := make(chan struct{})
	var wg sync.WaitGroup
	eat := func(name string, ch <-chan *message.Message) {
		defer wg.Done()
		for m := range ch {
			mu.Lock()
			got[name][frame(t, m).Partition]++
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
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		for _, frames := range got["second"] {
			if frames < 20 {
				return false
			}
		}
		return len(got["second"]) >= 2
	}, patience, 10*time.Millisecond)
	mu.Lock()
	require.Len(t, got["second"], 2, "half of them, for as long as the first is there")
	mu.Unlock()

	began := time.Now()
	require.NoError(t, first.Close())
	require.Eventually(t, count("second"), patience, 5*time.Millisecond)
	t.Logf("hand-over of two partitions, leaving included: %v", time.Since(began))
	close(stop)
	require.NoError(t, second.Close())
	wg.Wait()
}

// A sole member keeps all partitions while another waits, which then takes over all.
func TestASoleMemberHandsOver(t *testing.T) {
	c := realCluster(t)
	topic := c.topic(t, "topic", 4)
	p := c.producer(t, transport.ProducerConfig{})
	var mu sync.Mutex
	second := 0 // partitions that the second was assigned; guarded by mu
	listener := &recorder{assigned: func(_ context.Context, _ string, partitions []int32) (map[int32]int64, error) {
		mu.Lock()
		defer mu.Unlock()
		second += len(partitions)
		return nil, nil
	}}
	first := c.group(t, transport.GroupConfig{Topic: topic, Sole: true})
	other := c.group(t, transport.GroupConfig{Topic: topic, Sole: true, Listener: listener})
	fill(t, p, topic, 0, 40)
	acknowledge(t, subscribe(t, first, topic), 40)
	ch := subscribe(t, other, topic)
	admin, id := kadm.NewClient(rawClient(t, c)), c.prefix+"group"
	require.Eventually(t, func() bool {
		all, err := admin.DescribeGroups(t.Context(), id)
		return err == nil && all[id].State == "Stable" && len(all[id].Members) == 2
	}, patience, 10*time.Millisecond)
	mu.Lock()
	require.Zero(t, second)
	mu.Unlock()
	require.NoError(t, first.Close())
	fill(t, p, topic, 40, 40)
	acknowledge(t, ch, 40)
	require.Equal(t, 4, second)
}

// A group lags by all records of a re-created topic: commits of the earlier one
// do not count.
func TestLagBehindATopicThatWasCreatedAgain(t *testing.T) {
	onBoth(t, func(t *testing.T, c cluster) {
		topic, group := c.topic(t, "topic", 1), c.prefix+"group"
		fill(t, c.producer(t, transport.ProducerConfig{}), topic, 0, 50)
		a := c.admin(t)
		id, err := a.TopicID(t.Context(), topic)
		require.NoError(t, err)
		for _, commit := range []struct {
			of         string
			at, behind int64
		}{{id, 20, 30}, {"", 20, 30}, {"another", 100, 50}, {"another", 20, 50}, {id, 50, 0}} {
			var offsets kadm.Offsets
			offsets.Add(kadm.Offset{Topic: topic, At: commit.at, LeaderEpoch: -1, Metadata: commit.of})
			require.NoError(t, kadm.NewClient(rawClient(t, c)).CommitAllOffsets(t.Context(), group, offsets))
			lags, err := a.Lag(t.Context(), group, topic)
			require.NoError(t, err)
			require.Len(t, lags, 1)
			require.Equal(t, commit.behind, lags[0].Pending(), "%+v", commit)
			drained, err := a.Drained(t.Context(), group, topic)
			require.NoError(t, err)
			require.Equal(t, commit.behind == 0, drained)
		}
	})
}

// Records behind the start of an open transaction cannot be read. The mistake that this
// catches: the lag was 0 and the topic drained while committed records stood behind it.
func TestLagBehindAnOpenTransaction(t *testing.T) {
	c := realCluster(t)
	topic := c.topic(t, "held", 1)
	tx := rawClient(t, c, kgo.TransactionalID(topic+"tx"), kgo.DefaultProduceTopic(topic))
	require.NoError(t, tx.BeginTransaction())
	require.NoError(t, tx.ProduceSync(t.Context(), kgo.StringRecord("in it")).FirstErr())
	require.NoError(t, rawClient(t, c, kgo.DefaultProduceTopic(topic)).ProduceSync(t.Context(), kgo.StringRecord("1"), kgo.StringRecord("2")).FirstErr())
	g := c.group(t, transport.GroupConfig{ID: topic, Topic: topic})
	admin, err := transport.NewAdmin(c.cfg)
	require.NoError(t, err)
	t.Cleanup(admin.Close)
	look := func() (pending, held int64, drained bool) {
		var lags []transport.PartitionLag
		require.Eventually(t, func() bool { // a broker that has just started has no coordinator yet
			if lags, err = g.Lag(t.Context()); err == nil {
				drained, err = admin.Drained(t.Context(), c.prefix+topic, topic)
			}
			return err == nil
		}, patience, 20*time.Millisecond)
		return lags[0].Pending(), lags[0].Held(), drained
	}
	pending, held, drained := look()
	require.Equal(t, []any{int64(0), int64(3), false}, []any{pending, held, drained})
	require.NoError(t, tx.EndTransaction(t.Context(), kgo.TryCommit))
	ch := subscribe(t, g, topic)
	for read := 0; read < 3; {
		m := receive(t, ch)
		read += len(frame(t, m).Records)
		m.Ack()
	}
	require.Eventually(t, func() bool {
		pending, held, drained = look()
		return pending == 0 && held == 0 && drained
	}, patience, 20*time.Millisecond)
}
