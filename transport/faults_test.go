package transport_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-86dfc502/weir/transport"
)

// leaderless is a cluster that has no leader for a partition while away is set.
func leaderless(t *testing.T, partition int32) (c cluster, away *atomic.Bool) {
	t.Helper()
	broker, err := kfake.NewCluster(kfake.NumBrokers(1))
	require.NoError(t, err)
	t.Cleanup(broker.Close)
	c, away = cluster{cfg: transport.Config{Brokers: broker.ListenAddrs(), Logger: quietLog()}}, new(atomic.Bool)
	asks := rawClient(t, c)
	var own atomic.Bool // the look at the real answer
	broker.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
		broker.KeepControl()
		if !away.Load() || !own.CompareAndSwap(false, true) {
			return nil, nil, false
		}
		defer own.Store(false)
		var real *kmsg.MetadataResponse
		var failed error
		asked := *req.(*kmsg.MetadataRequest)
		broker.SleepControl(func() { real, failed = asked.RequestWith(context.Background(), asks) })
		if failed != nil {
			return nil, nil, false
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
	return c, away
}

// The mistake that this catches: with one partition that no broker leads no
// partition of a source or of a log was read, not even after a restart.
func TestAPartitionWithoutALeaderStopsOnlyItself(t *testing.T) {
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
	g := c.group(t, transport.GroupConfig{Listener: listener})
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
