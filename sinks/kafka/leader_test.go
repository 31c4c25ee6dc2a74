package kafka

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/sinks/kafka/fenced"
)

// leaderless makes a cluster with a topic of two partitions, of which the second one has
// no leader while away is set. told is how often that was said.
func leaderless(t *testing.T) (brokers *kfake.Cluster, away *atomic.Bool, told *atomic.Int64) {
	t.Helper()
	brokers, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "t"))
	require.NoError(t, err)
	t.Cleanup(brokers.Close)
	asks, err := kgo.NewClient(kgo.SeedBrokers(brokers.ListenAddrs()...))
	require.NoError(t, err)
	defer asks.Close()
	known, err := kmsg.NewPtrMetadataRequest().RequestWith(t.Context(), asks)
	require.NoError(t, err)
	for i := range known.Topics[0].Partitions {
		if p := &known.Topics[0].Partitions[i]; p.Partition == 1 {
			p.Leader, p.ErrorCode = -1, kerr.LeaderNotAvailable.Code
		}
	}
	away, told = new(atomic.Bool), new(atomic.Int64)
	brokers.ControlKey(int16(kmsg.Metadata), func(r kmsg.Request) (kmsg.Response, error, bool) {
		brokers.KeepControl()
		if !away.Load() {
			return nil, nil, false
		}
		told.Add(1)
		resp := *known
		resp.SetVersion(r.GetVersion())
		return &resp, nil, true
	})
	return brokers, away, told
}

// loseLeader takes the leader away and lets a client see it.
func loseLeader(t *testing.T, client *fenced.Client, away *atomic.Bool, told *atomic.Int64) {
	t.Helper()
	away.Store(true)
	for told.Load() == 0 {
		_, err := client.Topic(t.Context(), "t", 0)
		require.NoError(t, err)
	}
}

// Changes for a partition without a leader are not sent and wait; the rest is sent, and
// no partition is taken over again.
func TestAPartitionWithoutALeaderHoldsUpNoOther(t *testing.T) {
	brokers, away, told := leaderless(t)
	client := newClient(t, brokers.ListenAddrs(), nil)
	sink := resumed(t, Options{Client: client, Topic: "t"}, 0, saved{at: 1})
	writer, mark := sink.parts[0].writer, sink.parts[0].claim.Bookmark
	loseLeader(t, client, away, told)

	batch := numbered(service, 0, 1, 11)
	err := sink.Write(t.Context(), batch)
	var be *sinks.BatchError
	require.ErrorAs(t, err, &be)
	var rest []change.Change
	for i, c := range batch {
		if sink.topic.Partition([]byte(c.Entity)) == 0 {
			require.NoError(t, be.Failed[i])
			continue
		}
		rest = append(rest, c)
		e := sinks.Classify(be.Failed[i])
		require.ErrorIs(t, e, kerr.LeaderNotAvailable)
		require.Equal(t, sinks.Retry, e.Class)
		require.False(t, e.Ambiguous)
		require.False(t, e.Unreachable)
	}
	require.NotEmpty(t, rest)
	require.Less(t, len(rest), len(batch))
	require.Same(t, writer, sink.parts[0].writer)

	away.Store(false)
	require.NoError(t, sink.Write(t.Context(), rest))
	require.NoError(t, sink.Write(t.Context(), numbered(service, 0, 11, 21)))
	require.Same(t, writer, sink.parts[0].writer)
	next := resumed(t, sink.opts, 0, saved{1, mark})
	require.NoError(t, next.Write(t.Context(), numbered(service, 0, 1, 21)))
	require.EqualValues(t, 20, next.Found())
}

// A takeover that does not come to its end, as one waits for a partition without a
// leader, holds up the changes of its partition of the log and no others.
func TestATakeOverThatStandsStillHoldsUpItsPartition(t *testing.T) {
	brokers, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "t"))
	require.NoError(t, err)
	t.Cleanup(brokers.Close)
	sink := newSink(t, Options{
		Client: newClient(t, brokers.ListenAddrs(), nil), Topic: "t",
		stallTimeout: time.Second, // enough for what does not stand still, on a busy machine
	})
	require.NoError(t, sink.Resume(t.Context(), []sinks.Takeover{saved{at: 1}.claim(0), saved{at: 1}.claim(1)}))
	var stands atomic.Bool
	brokers.ControlKey(int16(kmsg.InitProducerID), func(r kmsg.Request) (kmsg.Response, error, bool) {
		brokers.KeepControl()
		if !stands.Load() || !strings.HasSuffix(*r.(*kmsg.InitProducerIDRequest).TransactionalID, ".0") {
			return nil, nil, false
		}
		resp := r.ResponseKind().(*kmsg.InitProducerIDResponse)
		resp.ErrorCode = kerr.ConcurrentTransactions.Code
		return resp, nil, true
	})
	stands.Store(true)
	sink.parts[0].writer = nil // as after a write without an answer

	batch := append(numbered(service, 0, 1, 11), numbered(service, 1, 1, 11)...)
	err = sink.Write(t.Context(), batch)
	var be *sinks.BatchError
	require.ErrorAs(t, err, &be)
	for i, c := range batch {
		if c.Partition == 1 {
			require.NoError(t, be.Failed[i])
			continue
		}
		e := sinks.Classify(be.Failed[i])
		require.Equal(t, sinks.Retry, e.Class)
		require.False(t, e.Ambiguous)
		require.False(t, e.Unreachable)
	}
	require.Len(t, be.Failed, 10)

	stands.Store(false)
	require.NoError(t, sink.Write(t.Context(), batch[:10]))
	require.Zero(t, sink.Found())
}

// Waits for leaders are concurrent: a Write takes no longer for having many
// partitions of the log.
func TestWaitsForALeaderAreSideBySide(t *testing.T) {
	brokers, away, told := leaderless(t)
	client := newClient(t, brokers.ListenAddrs(), nil)
	sink := newSink(t, Options{Client: client, Topic: "t"})
	var claims []sinks.Takeover
	var batch []change.Change
	for p := range int32(6) {
		claims = append(claims, saved{at: 1}.claim(p))
		batch = append(batch, numbered(service, p, 1, 6)...)
	}
	require.NoError(t, sink.Resume(t.Context(), claims))
	loseLeader(t, client, away, told)
	waiting := map[int32]bool{}
	for _, c := range batch {
		if sink.topic.Partition([]byte(c.Entity)) == 1 {
			waiting[c.Partition] = true
		}
	}
	require.Greater(t, len(waiting), 3)
	start := time.Now()
	require.Error(t, sink.Write(t.Context(), batch))
	require.Less(t, time.Since(start), 9*time.Second, "one takes 3.1 s")
}

// For a batch without an answer the writer is given up, before one beside it is refused.
func TestARefusedBatchBesideOneWithoutAnAnswer(t *testing.T) {
	failed := map[int]*sinks.Error{}
	st := &stream{part: &part{}, items: []item{{}}, size: 1}
	newSink(t, Options{Client: &fenced.Client{}, Topic: "t"}).handleAnswer(st, &fenced.Answer{Err: kerr.LeaderNotAvailable, Refused: true}, failed)
	require.ErrorIs(t, failed[0], kerr.LeaderNotAvailable)
	require.False(t, failed[0].Ambiguous)
}
