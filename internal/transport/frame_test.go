package transport_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/internal/transport"
)

// lined appends values to one partition.
func lined(t testing.TB, p *transport.Producer, topic string, partition int32, values ...string) {
	t.Helper()
	records := make([]transport.Record, len(values))
	for i, v := range values {
		records[i] = transport.Record{Topic: topic, Value: []byte(v), Pinned: true, Partition: partition}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, p.Append(ctx, records))
}

// The second frame of a partition follows the acknowledgement of the first, and
// holds all that came meanwhile; another partition does not wait for it.
func TestOneFrameInFlightPerPartition(t *testing.T) {
	onBoth(t, func(t *testing.T, c cluster) {
		topic := c.topic(t, "topic", 2)
		p := c.producer(t, transport.ProducerConfig{})
		g := c.group(t, transport.GroupConfig{Topic: topic})
		ch := subscribe(t, g, topic)
		lined(t, p, topic, 0, "0")
		first := receive(t, ch)
		for i := 1; i < 30; i++ { // a batch each
			lined(t, p, topic, 0, fmt.Sprint(i))
		}
		waiting(t, g, 29)
		lined(t, p, topic, 1, "other")
		other := receive(t, ch)
		require.Equal(t, []string{"other"}, values(t, other), "and nothing of the partition whose frame is in flight")
		other.Ack()
		none(t, ch, 50*time.Millisecond)
		first.Ack()
		m := receive(t, ch)
		require.Equal(t, numbers(1, 29), values(t, m))
		for _, r := range frame(t, m).Records {
			require.False(t, r.Redelivered)
		}
		ended(first.Context(), t)
		m.Ack()
	})
}

func TestBordersOfFrames(t *testing.T) {
	c := fakeCluster(t)
	p := c.producer(t, transport.ProducerConfig{})
	text := func(n int) string { return string(make([]byte, n)) }
	for name, test := range map[string]struct {
		config transport.GroupConfig
		values []string
		frames []int
	}{
		"records":                      {transport.GroupConfig{FrameRecords: 3}, numbers(0, 10), []int{3, 3, 3, 1}},
		"bytes":                        {transport.GroupConfig{FrameBytes: 1000}, []string{text(400), text(400), text(400), text(50), text(50), text(900)}, []int{2, 3, 1}},
		"a larger record passes alone": {transport.GroupConfig{FrameBytes: 1000}, []string{text(10), text(5000), text(10), text(10), text(6000), text(7000)}, []int{1, 1, 2, 1, 1}},
		"bytes include key and header": {transport.GroupConfig{FrameBytes: 64}, []string{"", "", ""}, []int{2, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			topic := c.topic(t, fmt.Sprintf("topic-%x", name), 1)
			test.config.ID, test.config.Topic = topic, topic
			g := c.group(t, test.config)
			ch := subscribe(t, g, topic)
			lined(t, p, topic, 0, "first")
			m := receive(t, ch)
			lined(t, p, topic, 0, test.values...)
			waiting(t, g, len(test.values))
			var frames []int
			var all []string
			for len(all) < len(test.values) {
				m.Ack()
				m = receive(t, ch)
				frames = append(frames, len(values(t, m)))
				all = append(all, values(t, m)...)
			}
			m.Ack()
			require.Equal(t, test.frames, frames)
			require.Equal(t, test.values, all)
		})
	}
}

func TestNackBringsTheSameRecordsAgain(t *testing.T) {
	onBoth(t, func(t *testing.T, c cluster) {
		const backOff = 100 * time.Millisecond
		topic := c.topic(t, "topic", 1)
		p := c.producer(t, transport.ProducerConfig{})
		g := c.group(t, transport.GroupConfig{Topic: topic, FrameRecords: 3, NackMin: backOff, NackMax: 2 * backOff})
		ch := subscribe(t, g, topic)
		lined(t, p, topic, 0, "first")
		receive(t, ch).Ack()
		lined(t, p, topic, 0, numbers(1, 1)...)
		bad := receive(t, ch)
		lined(t, p, topic, 0, numbers(2, 5)...)
		waiting(t, g, 5)
		was := frame(t, bad)
		require.False(t, was.Records[0].Redelivered)
		began := time.Now()
		for _, wait := range []time.Duration{backOff, 2 * backOff, 2 * backOff} {
			bad.Nack()
			again := receive(t, ch) // nothing overtakes
			require.GreaterOrEqual(t, time.Since(began), wait)
			began = time.Now()
			require.NotSame(t, bad, again)
			require.Equal(t, bad.UUID, again.UUID)
			require.Equal(t, values(t, bad), values(t, again), "what came meanwhile does not join it")
			require.Equal(t, was.First(), frame(t, again).First())
			require.Equal(t, was.Assignment, frame(t, again).Assignment)
			require.True(t, frame(t, again).Records[0].Redelivered)
			require.Error(t, bad.Context().Err())
			require.NoError(t, again.Context().Err())
			bad = again
		}
		require.Eventually(t, func() bool { return pending(t, g)[topic] == 6 }, patience, 20*time.Millisecond, "nothing is committed behind it")
		bad.Ack()
		m := receive(t, ch)
		require.Equal(t, numbers(2, 3), values(t, m))
		require.False(t, frame(t, m).Records[0].Redelivered)
		began = time.Now()
		m.Nack()
		m = receive(t, ch)
		require.Less(t, time.Since(began), patience, "the back-off begins anew")
		require.Equal(t, numbers(2, 3), values(t, m))
		for _, r := range frame(t, m).Records {
			require.True(t, r.Redelivered)
		}
		m.Ack()
		acknowledge(t, ch, 2)
		require.Eventually(t, func() bool { return pending(t, g)[topic] == 0 }, patience, 20*time.Millisecond)
	})
}

func TestContextsEndWithTheAssignment(t *testing.T) {
	c := fakeCluster(t)
	topic := c.topic(t, "topic", 2)
	p := c.producer(t, transport.ProducerConfig{})
	revoked := make(chan error, 2)
	held := make(map[int32]*message.Message)
	g := c.group(t, transport.GroupConfig{Topic: topic, Listener: &told{revoked: func(partitions []int32) {
		for _, p := range partitions { // before Revoked is called
			revoked <- held[p].Context().Err()
		}
	}}})
	ch := subscribe(t, g, topic)
	lined(t, p, topic, 0, "a")
	lined(t, p, topic, 1, "b")
	for range 2 {
		m := receive(t, ch)
		held[frame(t, m).Partition] = m
	}
	require.NoError(t, g.Close())
	require.ErrorIs(t, <-revoked, context.Canceled)
	require.ErrorIs(t, <-revoked, context.Canceled)
	require.Zero(t, g.Held())
}

// told is a PartitionListener that starts at the committed offsets.
type told struct{ revoked func(partitions []int32) }

func (*told) Assigned(context.Context, string, []int32) (map[int32]int64, error) { return nil, nil }

func (l *told) Revoked(_ string, partitions []int32) { l.revoked(partitions) }

// All partitions but one have a frame in work that does not end: held records
// stay within the budget, and the one is read to its end.
func TestBufferIsBounded(t *testing.T) {
	onBoth(t, func(t *testing.T, c cluster) {
		const (
			partitions, records = 16, 100
			size                = 10_000
			budget, fetch       = 2 << 20, 64 << 10
		)
		topic := c.topic(t, "topic", partitions)
		p := c.producer(t, transport.ProducerConfig{})
		appended := make(chan error, records)
		for range records { // in a batch each, as far as the producer is idle
			all := make([]transport.Record, partitions)
			for i := range all {
				all[i] = transport.Record{Topic: topic, Value: make([]byte, size), Pinned: true, Partition: int32(i)}
			}
			p.AppendAsync(t.Context(), new(transport.Sequence), all, func(err error) { appended <- err })
			require.NoError(t, <-appended)
		}
		g := c.group(t, transport.GroupConfig{Topic: topic, FrameRecords: 8, BufferBytes: budget, FetchPartitionBytes: fetch})
		ch := subscribe(t, g, topic)
		held := make(map[int32]*message.Message)
		next := make(map[int32]int64)
		highest := int64(0)
		take := func() *transport.Frame {
			m := receive(t, ch)
			f := frame(t, m)
			require.Nil(t, held[f.Partition])
			require.Equal(t, next[f.Partition], f.First())
			next[f.Partition] = f.Last() + 1
			highest = max(highest, g.Held())
			held[f.Partition] = m
			return f
		}
		release := func(partition int32) {
			held[partition].Ack()
			held[partition] = nil
		}
		free := int32(-1)
		for next[max(0, free)] < records {
			if f := take(); free < 0 {
				free = f.Partition
				release(free)
			} else if f.Partition == free {
				release(free)
			}
		}
		for len(held) < partitions { // the free one was fast
			take()
		}
		require.LessOrEqual(t, highest, int64(budget+partitions*fetch))
		require.EqualValues(t, records*(partitions-1), pendingBut(t, g, free))
		t.Logf("held at most %d KiB of %d KiB", highest>>10, budget>>10)

		for partition, m := range held {
			if m != nil {
				release(partition)
			}
		}
		for left := true; left; {
			f := take()
			release(f.Partition)
			left = false
			for partition := range int32(partitions) {
				left = left || next[partition] < records
			}
		}
		require.LessOrEqual(t, highest, int64(budget+partitions*fetch))
	})
}

// pendingBut counts the uncommitted records of all partitions but one.
func pendingBut(t *testing.T, g *transport.Group, but int32) int64 {
	lags, err := g.Lag(t.Context())
	require.NoError(t, err)
	var n int64
	for _, l := range lags {
		if l.Partition != but {
			n += l.Pending()
		}
	}
	return n
}

// The budget is shared by need: idle partitions leave it to a
// busy one, whose next frames are there when the one in work is acknowledged.
func TestNextFramesWaitReady(t *testing.T) {
	c := fakeCluster(t)
	topic := c.topic(t, "topic", 64)
	p := c.producer(t, transport.ProducerConfig{})
	g := c.group(t, transport.GroupConfig{Topic: topic, FrameRecords: 100, BufferBytes: 4 << 20})
	ch := subscribe(t, g, topic)
	lined(t, p, topic, 5, "first")
	m := receive(t, ch)
	lined(t, p, topic, 5, numbers(0, 1000)...)
	waiting(t, g, 1000)
	for n := 1000; n > 0; n -= 100 {
		m.Ack()
		m = receive(t, ch)
		require.Len(t, frame(t, m).Records, 100)
		require.Equal(t, n-100, g.Waiting())
	}
	m.Ack()
}

// A message of another subscriber has no frame, but can be read as a record.
func TestMessagesOfOthers(t *testing.T) {
	m := message.NewMessage("id", []byte("payload"))
	m.Metadata.Set(transport.KeyMetadata, "key")
	m.Metadata.Set("header", "value")
	_, ok := transport.FrameOf(m)
	require.False(t, ok)
	r := transport.ReceivedOf(m)
	require.Equal(t, "key", string(r.Key))
	require.Equal(t, "payload", string(r.Value))
	require.Equal(t, "value", r.Header("header"))
	require.Empty(t, r.Header("none"))

	f := transport.NewFrame("topic", "topic-id", 3, transport.NextAssignment(), []transport.Received{r})
	require.Equal(t, transport.LastAssignment(), f.Assignment)
	again := transport.NewMessage(t.Context(), f)
	require.True(t, m.Equals(again), "a frame of one record is the message of it")
	got, ok := transport.FrameOf(again)
	require.True(t, ok)
	require.Same(t, f, got)
}

// Groups of one budget hold no more than it together. The mistake that this catches: each
// group had a budget of its own.
func TestGroupsShareABudget(t *testing.T) {
	const (
		groups, records, size = 8, 400, 10_000
		budget, fetch         = 2 << 20, 64 << 10
	)
	c := fakeCluster(t)
	p := c.producer(t, transport.ProducerConfig{})
	shared := transport.NewBudget(budget)
	var all []*transport.Group
	var streams []<-chan *message.Message
	for n := range groups {
		topic := c.topic(t, fmt.Sprint("topic", n), 1)
		for range records / 10 {
			batch := make([]transport.Record, 10)
			for i := range batch {
				batch[i] = transport.Record{Topic: topic, Value: make([]byte, size), Pinned: true}
			}
			require.NoError(t, p.Append(t.Context(), batch))
		}
		g := c.group(t, transport.GroupConfig{ID: fmt.Sprint("g", n), Topic: topic, FrameRecords: 8, Budget: shared, FetchPartitionBytes: fetch})
		all, streams = append(all, g), append(streams, subscribe(t, g, topic))
	}
	for _, ch := range streams { // the others fill their queues meanwhile
		for read := 0; read < records; {
			m := receive(t, ch)
			require.LessOrEqual(t, all[0].Held(), int64(budget+groups*fetch))
			read += len(frame(t, m).Records)
			m.Ack()
		}
	}
}
