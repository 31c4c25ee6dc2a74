package decide

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/transport"
)

// halfAway is a changes log of two partitions, of which the second takes nothing while
// away is set: its broker says that it does not lead it.
func halfAway(t *testing.T) (cfg transport.Config, away *atomic.Bool) {
	t.Helper()
	broker, err := kfake.NewCluster(kfake.NumBrokers(2), kfake.SeedTopics(2, "weir.changes"))
	require.NoError(t, err)
	t.Cleanup(broker.Close)
	for n := range int32(2) {
		require.NoError(t, broker.MoveTopicPartition("weir.changes", n, n))
	}
	away = new(atomic.Bool)
	broker.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		broker.KeepControl()
		if !away.Load() || broker.CurrentNode() != 1 {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.ProduceResponse)
		for _, topic := range req.(*kmsg.ProduceRequest).Topics {
			rt := kmsg.NewProduceResponseTopic()
			rt.Topic, rt.TopicID = topic.Topic, topic.TopicID
			for _, p := range topic.Partitions {
				rp := kmsg.NewProduceResponseTopicPartition()
				rp.Partition, rp.ErrorCode = p.Partition, kerr.NotLeaderForPartition.Code
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return resp, nil, true
	})
	return transport.Config{Brokers: broker.ListenAddrs(), Logger: slog.New(slog.DiscardHandler)}, away
}

// A partition of the changes log that takes nothing holds up neither the others of its
// worker nor a start, and in the end has all that was decided for it, in order.
func TestAPartitionOfTheChangesLogThatTakesNothing(t *testing.T) {
	w := newFlow(t)
	cfg, away := halfAway(t)
	offset := map[int32]int64{}
	next := func(partition int32) transport.Received {
		offset[partition]++
		n := offset[partition] - 1
		return event(t, fmt.Sprint(partition), n, fmt.Sprintf(`{"id":"B","ripeness_level":%d}`, n))
	}
	start := func() (d *Decider, stop func()) {
		limit, cut := context.WithCancel(t.Context())
		// Any frame is more than the share of a partition.
		d, err := New(Options{
			Store: w.store, Inbox: w.inbox, Plan: w.plan, Workers: 1, MaxUnpublished: 2, ChangesTopic: "weir.changes",
			NewProducer: func() (Producer, error) { return transport.NewProducer(cfg, transport.ProducerConfig{}) },
			Logger:      cfg.Logger, Metrics: w.metrics, Limit: limit,
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- d.Run(ctx) }()
		_, err = d.Assigned(t.Context(), "weir.inbox", []int32{0, 1})
		require.NoError(t, err)
		return d, func() { cancel(); cut(); require.NoError(t, <-ended) }
	}
	d, stop := start()
	away.Store(true)
	hand(t, d, 1, next(1))
	waits := begin(t, d, 1, next(1))
	for range 40 {
		hand(t, d, 0, next(0))
	}
	require.Empty(t, waits)
	require.EqualValues(t, 1, d.Decided()[d.workers[0].partition(1)], "what it does not take is bounded")
	stop()
	require.Error(t, <-waits)

	d, stop = start()
	defer stop()
	for range 40 {
		hand(t, d, 0, next(0))
	}
	require.Equal(t, 1, w.outbox(t, 1))
	away.Store(false)
	offset[1] = 1
	hand(t, d, 1, next(1), next(1))
	require.Equal(t, []string{"1:0-1:1", "1:1-1:3"}, inLog(t, cfg, 1, 2))
	require.Len(t, inLog(t, cfg, 0, 80), 80)
}

// inLog is what frames of a partition were decided from and to, without repetitions.
func inLog(t *testing.T, cfg transport.Config, partition int32, n int) (frames []string) {
	t.Helper()
	opts, err := transport.NewClientOpts(cfg)
	require.NoError(t, err)
	cl, err := kgo.NewClient(append(opts, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"weir.changes": {partition: kgo.NewOffset().AtStart()}}))...)
	require.NoError(t, err)
	defer cl.Close()
	last := change.Version(0)
	for len(frames) < n {
		fetches := cl.PollFetches(t.Context())
		require.NoError(t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			f, err := change.ParseFrame(r.Value)
			require.NoError(t, err)
			if f.To <= last {
				return
			}
			require.Equal(t, last, f.Prev)
			frames, last = append(frames, fmt.Sprint(f.From, "-", f.To)), f.To
		})
	}
	return frames
}
