package transport_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-86dfc502/weir/internal/transport"
)

// leaderless is a cluster that has no leader for a partition while away is set.
func leaderless(t *testing.T, partition int32) (c cluster, away *atomic.Bool) {
	t.Helper()
	broker, c := fakeBrokers(t)
	away = new(atomic.Bool)
	asks := rawClient(t, c)
	broker.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		broker.KeepControl()
		asked := *req.(*kmsg.MetadataRequest)
		if !away.Load() || asked.AllowAutoTopicCreation {
			return nil, nil, false
		}
		asked.AllowAutoTopicCreation = true // no client of ours does: it is the look at the real answer
		var real *kmsg.MetadataResponse
		var failed error
		broker.SleepControl(func() { real, failed = asked.RequestWith(context.Background(), asks) })
		if failed != nil {
			return nil, failed, true
		}
		real.SetVersion(req.GetVersion())
		for i := range real.Topics {
			for j := range real.Topics[i].Partitions {
				if p := &real.Topics[i].Partitions[j]; p.Partition == partition {
					p.Leader, p.ErrorCode = -1, kerr.LeaderNotAvailable.Code
				}
			}
		}
		return real, nil, true
	})
	refusing(broker, asks, func(p int32) int16 {
		if away.Load() && p == partition {
			return kerr.NotLeaderForPartition.Code
		}
		return 0
	})
	return c, away
}

// refusing lets a test set the answer of a broker to a producer for a partition of any
// topic: an error code, or 0 to append. asks is a client of the same broker.
func refusing(broker *kfake.Cluster, asks *kgo.Client, code func(partition int32) int16) {
	broker.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		broker.KeepControl()
		asked := *req.(*kmsg.ProduceRequest)
		refused := asked.ResponseKind().(*kmsg.ProduceResponse)
		var rest []kmsg.ProduceRequestTopic
		for _, t := range asked.Topics {
			for _, p := range t.Partitions {
				refusal := code(p.Partition)
				if refusal == 0 {
					one := t
					one.Partitions = []kmsg.ProduceRequestTopicPartition{p}
					rest = append(rest, one)
					continue
				}
				rt, rp := kmsg.NewProduceResponseTopic(), kmsg.NewProduceResponseTopicPartition()
				rt.Topic, rt.TopicID, rp.Partition, rp.ErrorCode = t.Topic, t.TopicID, p.Partition, refusal
				rt.Partitions = append(rt.Partitions, rp)
				refused.Topics = append(refused.Topics, rt)
			}
		}
		if len(refused.Topics) == 0 {
			return nil, nil, false
		}
		if len(rest) > 0 {
			var real *kmsg.ProduceResponse
			var failed error
			asked.Topics = rest
			broker.SleepControl(func() { real, failed = asked.RequestWith(context.Background(), asks) })
			if failed != nil {
				return nil, failed, true
			}
			refused.Topics = append(refused.Topics, real.Topics...)
		}
		return refused, nil, true
	})
}

// A partition that takes nothing holds up neither the others of its topic nor other
// topics, of any caller, and its own records are appended in order.
func TestAPartitionThatTakesNothingHoldsUpNothingElse(t *testing.T) {
	c, away := leaderless(t, 1)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	topic, keyed := c.topic(t, "topic", 2), c.topic(t, "keyed", 2)
	away.Store(true)
	p := c.producer(t, transport.ProducerConfig{Partitions: map[string]int{keyed: 2}})
	pin := func(partition int32, text string) transport.Record {
		return transport.Record{Topic: topic, Value: []byte(text), Pinned: true, Partition: partition}
	}
	stuck := make(chan error, 3)
	var sequence transport.Sequence
	p.AppendAsync(t.Context(), &sequence, []transport.Record{pin(1, "0")}, func(err error) { stuck <- err })
	p.AppendAsync(t.Context(), &sequence, []transport.Record{pin(1, "1")}, func(err error) { stuck <- err })
	for n := range 4 {
		require.NoError(t, p.Append(ctx, []transport.Record{pin(0, strconv.Itoa(n))}))
	}
	var here, there []byte // keys of the partition that takes records, and of the other
	for n := 0; here == nil || there == nil; n++ {
		if key := []byte(strconv.Itoa(n)); transport.PartitionOf(key, 2) == 0 {
			here = key
		} else {
			there = key
		}
	}
	go func() { stuck <- p.Append(context.Background(), []transport.Record{{Topic: keyed, Key: there}}) }()
	require.NoError(t, p.Append(ctx, []transport.Record{{Topic: keyed, Key: here}}))
	require.Empty(t, stuck)
	away.Store(false)
	for range 3 {
		require.NoError(t, <-stuck)
	}
	require.Equal(t, []string{"0", "1", "2", "3"}, held(t, c, topic, 0))
	require.Equal(t, []string{"0", "1"}, held(t, c, topic, 1))
}

// held returns the values in a partition.
func held(t *testing.T, c cluster, topic string, partition int32) (values []string) {
	t.Helper()
	_, ends, err := c.admin(t).Offsets(t.Context(), topic)
	require.NoError(t, err)
	cl := rawClient(t, c, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().AtStart()}}))
	for int64(len(values)) < ends[partition] {
		fetches := cl.PollFetches(t.Context())
		require.NoError(t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) { values = append(values, string(r.Value)) })
	}
	return values
}

// The mistake that this catches: with one partition that no broker leads no
// partition of a source or of a log was read, not even after a restart.
func TestAPartitionWithoutALeaderStopsOnlyItself(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for limits of time")
	}
	c, away := leaderless(t, 1)
	topic := c.topic(t, "topic", 3)
	p := c.producer(t, transport.ProducerConfig{})
	for n := range int32(3) {
		lined(t, p, topic, n, numbers(0, 5)...)
	}
	away.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, c.admin(t).EnsureTopics(ctx, []transport.TopicSpec{{Name: topic, Partitions: 3}}), "the start")
	faults, err := c.admin(t).Faults(ctx, topic)
	require.NoError(t, err)
	require.Len(t, faults, 1)
	require.Equal(t, []int32{1}, faults[0].NoLeader)
	require.ErrorContains(t, faults[0], topic)
	listener := &told{revoked: func([]int32) {}}
	g := c.group(t, transport.GroupConfig{Topic: topic, Listener: listener})
	ch := subscribe(t, g, topic)
	read := map[int32]int{}
	for read[0]+read[2] < 10 {
		m := receive(t, ch)
		read[frame(t, m).Partition] += len(frame(t, m).Records)
		m.Ack()
	}
	require.Zero(t, read[1])
	away.Store(false)
	for read[1] < 5 {
		m := receive(t, ch)
		read[frame(t, m).Partition] += len(frame(t, m).Records)
		m.Ack()
	}
	require.Equal(t, map[int32]int{0: 5, 1: 5, 2: 5}, read, "the others went on where they were")
}

func TestFaultsNameWhatIsMissingAndWhatHasTooFewReplicas(t *testing.T) {
	c := realCluster(t)
	few, well := c.topic(t, "few", 2, "min.insync.replicas", "2"), c.topic(t, "well", 2)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	faults, err := c.admin(t).Faults(ctx, few, well, c.prefix+"missing")
	require.NoError(t, err)
	require.Len(t, faults, 2)
	require.EqualError(t, faults[0], "topic "+few+" takes no record in partitions [0 1]: they have fewer than 2 replicas in sync (min.insync.replicas)")
	require.True(t, faults[1].Missing)
	require.EqualError(t, faults[1], "topic "+c.prefix+"missing takes no record: it does not exist")
}
