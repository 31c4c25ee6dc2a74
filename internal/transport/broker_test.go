package transport_test

import (
	"context"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/tests/harness"
)

func TestOffsetOutOfRange(t *testing.T) { onBoth(t, offsetOutOfRange) }

func offsetOutOfRange(t *testing.T, c cluster) {
	topic := c.topic(t, "topic", 1)
	p := c.producer(t, transport.ProducerConfig{})
	for i := range 10 { // a batch each: a fetch gives whole batches
		fill(t, p, topic, 10*i, 10)
	}
	adm := kadm.NewClient(rawClient(t, c))
	type reset struct{ wanted, got int64 }
	truncate := func(t *testing.T, to int64) {
		_, err := adm.DeleteRecords(t.Context(), kadm.Offsets{topic: {0: {Topic: topic, Partition: 0, At: to}}})
		require.NoError(t, err)
	}
	t.Run("while running", func(t *testing.T) {
		resets := make(chan reset, 10)
		g := c.group(t, transport.GroupConfig{Topic: topic, ID: "running", FrameRecords: 1, BufferBytes: 1, FetchPartitionBytes: 300, // one fetch ahead
			OnRecordsLost: func(_ string, _ int32, wanted, got int64) { resets <- reset{wanted, got} }})
		ch := subscribe(t, g, topic)
		m := receive(t, ch)
		truncate(t, 99)
		for frame(t, m).First() != 99 {
			m.Ack()
			m = receive(t, ch)
		}
		m.Ack()
		select {
		case r := <-resets:
			require.EqualValues(t, 99, r.got)
			require.Less(t, r.wanted, int64(99))
		case <-time.After(patience):
			require.FailNow(t, "nobody was told")
		}
	})
	for name, wanted := range map[string]int64{"below the oldest": 3, "behind the end": 101} {
		t.Run(name, func(t *testing.T) {
			resets := make(chan reset, 10)
			g := c.group(t, transport.GroupConfig{Topic: topic, ID: name,
				Listener: &recorder{assigned: func(context.Context, string, []int32) (map[int32]int64, error) {
					return map[int32]int64{0: wanted}, nil
				}},
				OnRecordsLost: func(_ string, _ int32, wanted, got int64) { resets <- reset{wanted, got} }})
			require.EqualValues(t, 99, frame(t, receive(t, subscribe(t, g, topic))).First())
			select {
			case r := <-resets:
				require.Equal(t, reset{wanted, 99}, r)
			case <-time.After(patience):
				require.FailNow(t, "nobody was told")
			}
		})
	}
	t.Run("at the end", func(t *testing.T) {
		g := c.group(t, transport.GroupConfig{Topic: topic, ID: "end",
			Listener: &recorder{assigned: func(context.Context, string, []int32) (map[int32]int64, error) {
				return map[int32]int64{0: 100}, nil
			}},
			OnRecordsLost: func(string, int32, int64, int64) { t.Error("nothing is lost") }})
		ch := subscribe(t, g, topic)
		fill(t, p, topic, 100, 1)
		require.EqualValues(t, 100, frame(t, receive(t, ch)).First())
	})
	t.Run("at an end that grew meanwhile", func(t *testing.T) {
		g := c.group(t, transport.GroupConfig{Topic: topic, ID: "grew",
			Listener: &recorder{assigned: func(context.Context, string, []int32) (map[int32]int64, error) {
				fill(t, p, topic, 101, 20)
				return map[int32]int64{0: 120}, nil
			}},
			OnRecordsLost: func(string, int32, int64, int64) { t.Error("nothing is lost") }})
		require.EqualValues(t, 120, frame(t, receive(t, subscribe(t, g, topic))).First())
	})
}

// A group without commits learns of lost records if it had begun to read
// them; otherwise it begins at the oldest record.
func TestGoneBeforeAnythingWasCommitted(t *testing.T) {
	c := fakeCluster(t)
	topic := c.topic(t, "topic", 2)
	fill(t, c.producer(t, transport.ProducerConfig{}), topic, 0, 40)
	adm := kadm.NewClient(rawClient(t, c))
	ends, err := adm.ListEndOffsets(t.Context(), topic)
	require.NoError(t, err)
	truncate := func(partition int32) (last int64) {
		end, _ := ends.Lookup(topic, partition)
		require.Greater(t, end.Offset, int64(1))
		_, err := adm.DeleteRecords(t.Context(), kadm.Offsets{topic: {partition: {Topic: topic, Partition: partition, At: end.Offset - 1}}})
		require.NoError(t, err)
		return end.Offset - 1
	}
	type reset struct {
		partition   int32
		wanted, got int64
	}
	resets := make(chan reset, 10)
	config := func(id string) transport.GroupConfig {
		return transport.GroupConfig{ID: id, Topic: topic,
			OnRecordsLost: func(_ string, p int32, wanted, got int64) { resets <- reset{p, wanted, got} }}
	}
	one := c.group(t, config("two members"))
	receive(t, subscribe(t, one, topic))
	other := c.group(t, transport.GroupConfig{Topic: topic, ID: "two members"})
	moved := frame(t, receive(t, subscribe(t, other, topic))).Partition
	last := truncate(moved)
	require.NoError(t, other.Close())
	select {
	case r := <-resets:
		require.Equal(t, reset{moved, 0, last}, r)
	case <-time.After(patience):
		require.FailNow(t, "nobody was told")
	}

	receive(t, subscribe(t, c.group(t, config("begins here")), topic))
	require.Empty(t, resets)
}

// The commit of the old topic must not skip records of the new one.
func TestTopicCreatedAgain(t *testing.T) {
	onBoth(t, func(t *testing.T, c cluster) {
		topic := c.topic(t, "topic", 1)
		p := c.producer(t, transport.ProducerConfig{})
		fill(t, p, topic, 0, 5)
		adm := kadm.NewClient(rawClient(t, c))
		resets := make(chan int64, 10)
		g := c.group(t, transport.GroupConfig{Topic: topic, OnRecordsLost: func(_ string, _ int32, _, got int64) { resets <- got }})
		ch := subscribe(t, g, topic)
		m := receive(t, ch)
		require.Equal(t, numbers(0, 5), values(t, m), "all were there")
		old := frame(t, m)
		m.Ack()
		require.Eventually(t, func() bool { return pending(t, g)[topic] == 0 }, patience, 20*time.Millisecond)
		_, err := adm.DeleteTopics(t.Context(), topic)
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			_, err := c.admin(t).TopicID(t.Context(), topic)
			return err != nil
		}, patience, 50*time.Millisecond)
		c.topic(t, "topic", 1)
		fill(t, c.producer(t, transport.ProducerConfig{}), topic, 100, 10)
		m = receive(t, ch)
		require.Equal(t, "100", values(t, m)[0])
		require.NotEqual(t, old.TopicID, frame(t, m).TopicID)
		require.Greater(t, frame(t, m).Assignment, old.Assignment)
		require.Zero(t, <-resets)
	})
}

// The mistake that this catches: partitions of a topic that may not be read for a while,
// when their group looks where to go on, are never read again.
func TestATopicThatMayNotBeReadForAWhile(t *testing.T) {
	t.Parallel()
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "topic"))
	require.NoError(t, err)
	t.Cleanup(broker.Close)
	var forbidden atomic.Bool
	forbidden.Store(true)
	broker.ControlKey(int16(kmsg.OffsetFetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		broker.KeepControl()
		if !forbidden.CompareAndSwap(true, false) {
			return nil, nil, false
		}
		asked := req.(*kmsg.OffsetFetchRequest)
		resp := asked.ResponseKind().(*kmsg.OffsetFetchResponse)
		for _, g := range asked.Groups {
			rg := kmsg.NewOffsetFetchResponseGroup()
			rg.Group = g.Group
			for _, t := range g.Topics {
				rt := kmsg.NewOffsetFetchResponseGroupTopic()
				rt.Topic, rt.TopicID = t.Topic, t.TopicID
				for _, p := range t.Partitions {
					rp := kmsg.NewOffsetFetchResponseGroupTopicPartition()
					rp.Partition, rp.Offset, rp.ErrorCode = p, -1, kerr.TopicAuthorizationFailed.Code
					rt.Partitions = append(rt.Partitions, rp)
				}
				rg.Topics = append(rg.Topics, rt)
			}
			resp.Groups = append(resp.Groups, rg)
		}
		return resp, nil, true
	})
	c := cluster{cfg: transport.Config{Brokers: broker.ListenAddrs(), Logger: quietLog()}}
	fill(t, c.producer(t, transport.ProducerConfig{}), "topic", 0, 10)
	acknowledge(t, subscribe(t, c.group(t, transport.GroupConfig{Topic: "topic"}), "topic"), 10)
	require.False(t, forbidden.Load())
}

// The mistake that this catches: a partition with a batch that unpacks to more than the
// client takes is never read again.
func TestABatchThatUnpacksToTooMuchIsLeftOut(t *testing.T) {
	c := fakeCluster(t)
	topic := c.topic(t, "topic", 1)
	p := c.producer(t, transport.ProducerConfig{Compression: kgo.GzipCompression()})
	fill(t, p, topic, 0, 1)
	require.NoError(t, p.Append(t.Context(), []transport.Record{{Topic: topic, Value: make([]byte, 100_000)}, {Topic: topic}}))
	fill(t, p, topic, 3, 1)
	type loss struct{ from, to int64 }
	losses := make(chan loss, 10)
	c.cfg = c.cfg.With(kgo.MaxDecompressBatchBytes(50_000))
	g := c.group(t, transport.GroupConfig{Topic: topic, FrameRecords: 1,
		OnRecordsLost: func(_ string, _ int32, wanted, got int64) { losses <- loss{wanted, got} }})
	ch := subscribe(t, g, topic)
	for _, want := range []string{"0", "3"} {
		m := receive(t, ch)
		require.Equal(t, []string{want}, values(t, m))
		m.Ack()
	}
	require.Equal(t, loss{1, 3}, <-losses)
	require.Empty(t, losses)
	require.Eventually(t, func() bool { return pending(t, g)[topic] == 0 }, patience, 20*time.Millisecond)
}

func TestBrokerStoppedAndStartedOnTheSameFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := netip.MustParseAddrPort(harness.FreeAddress(t)) // nobody else gets it in between
	options := []kfake.Opt{kfake.DataDir(dir), kfake.Ports(int(at.Port())), kfake.GroupMinSessionTimeout(time.Second)}
	b, err := kfake.NewCluster(options...)
	require.NoError(t, err)
	c := cluster{cfg: transport.Config{Brokers: b.ListenAddrs(), Logger: quietLog()}}
	topic := c.topic(t, "topic", 1)
	id, err := c.admin(t).TopicID(t.Context(), topic)
	require.NoError(t, err)
	p := c.producer(t, transport.ProducerConfig{})
	fill(t, p, topic, 0, 10)
	g := c.group(t, transport.GroupConfig{Topic: topic, FrameRecords: 1})
	ch := subscribe(t, g, topic)
	for range 9 {
		receive(t, ch).Ack()
	}
	held := receive(t, ch)
	require.Eventually(t, func() bool { return pending(t, g)[topic] == 1 }, patience, 20*time.Millisecond)

	b.Close()
	appended := make(chan error, 1)
	go func() { // waits for the broker
		appended <- p.Append(context.Background(), []transport.Record{{Topic: topic, Value: []byte("10")}})
	}()
	b, err = kfake.NewCluster(options...)
	require.NoError(t, err)
	defer func() { b.Close() }()
	require.NoError(t, <-appended)
	held.Ack()
	// The member is told to join anew, before or after it got the new message:
	// uncommitted records are redelivered.
	var got []string
	for began := time.Now(); pending(t, g)[topic] != 0; {
		require.Less(t, time.Since(began), patience)
		select {
		case m := <-ch:
			got = append(got, string(m.Payload))
			require.True(t, m.UUID == held.UUID || string(m.Payload) == "10", "%s is committed", m.Payload)
			m.Ack()
		case <-time.After(20 * time.Millisecond):
		}
	}
	require.Contains(t, got, "10")
	now, err := c.admin(t).TopicID(t.Context(), topic)
	require.NoError(t, err)
	require.Equal(t, id, now)
	require.NoError(t, g.Close())
}
