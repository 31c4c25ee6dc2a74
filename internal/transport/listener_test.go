package transport_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/seed-86dfc502/weir/internal/transport"
)

func TestListenersOffsetsWin(t *testing.T) {
	c := fakeCluster(t)
	topic := c.topic(t, "topic", 1)
	fill(t, c.producer(t, transport.ProducerConfig{}), topic, 0, 10)
	g := c.group(t, transport.GroupConfig{Topic: topic})
	ch := subscribe(t, g, topic)
	acknowledge(t, ch, 10)
	require.NoError(t, g.Close()) // committed: 10

	listener := &recorder{assigned: func(context.Context, string, []int32) (map[int32]int64, error) {
		return map[int32]int64{0: 4}, nil
	}}
	type rewind struct{ committed, from int64 }
	rewinds := make(chan rewind, 10)
	g = c.group(t, transport.GroupConfig{Topic: topic, Listener: listener,
		OnRewind: func(_ string, _ int32, committed, from int64) { rewinds <- rewind{committed, from} }})
	m := receive(t, subscribe(t, g, topic))
	require.EqualValues(t, 4, frame(t, m).First())
	require.True(t, frame(t, m).Records[0].Redelivered)
	require.NoError(t, g.Close())
	require.Equal(t, rewind{10, 4}, <-rewinds)
	require.Empty(t, rewinds)
	require.Equal(t, 1, listener.calls)
	require.Equal(t, []int32{0}, listener.revoked)
}

// For as long as it wants: heartbeats go on while Assigned waits.
func TestListenerMayBlock(t *testing.T) {
	broker, c := fakeBrokers(t)
	beats := make(chan struct{})
	broker.ControlKey(int16(kmsg.Heartbeat), func(kmsg.Request) (kmsg.Response, error, bool) {
		broker.KeepControl()
		select {
		case beats <- struct{}{}:
		default:
		}
		return nil, nil, false
	})
	topic := c.topic(t, "topic", 1)
	fill(t, c.producer(t, transport.ProducerConfig{}), topic, 0, 1)
	entered, release := make(chan struct{}), make(chan struct{})
	enter := sync.OnceFunc(func() { close(entered) })
	listener := &recorder{assigned: func(ctx context.Context, _ string, _ []int32) (map[int32]int64, error) {
		enter()
		select {
		case <-release:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}}
	g := c.group(t, transport.GroupConfig{Topic: topic, Listener: listener})
	ch := subscribe(t, g, topic)
	<-entered
	for range 10 { // each follows the answer to the one before
		select {
		case <-beats:
		case <-time.After(patience):
			require.FailNow(t, "no heartbeat")
		}
	}
	none(t, ch, 50*time.Millisecond)
	close(release)
	receive(t, ch).Ack()
	listener.mu.Lock()
	defer listener.mu.Unlock()
	require.Equal(t, 1, listener.calls)
	require.Empty(t, listener.revoked)
}

func TestListenerIsCancelledWhenTheGroupCloses(t *testing.T) {
	c := fakeCluster(t)
	topic := c.topic(t, "topic", 1)
	entered := make(chan struct{})
	enter := sync.OnceFunc(func() { close(entered) })
	listener := &recorder{assigned: func(ctx context.Context, _ string, _ []int32) (map[int32]int64, error) {
		enter()
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	g := c.group(t, transport.GroupConfig{Topic: topic, Listener: listener})
	subscribe(t, g, topic)
	<-entered
	require.NoError(t, g.Close())
	require.NoError(t, g.Err())
	require.Empty(t, listener.revoked, "what never began is not revoked")
}

// The mistake that this catches: a log that had become shorter than the read offset
// was read on from its oldest record, and its next appends got offsets
// where something else was decided.
func TestAShorterLogEndsTheGroupThatMustNotPassOverIt(t *testing.T) {
	c := fakeCluster(t)
	topic := c.topic(t, "topic", 2)
	fill(t, c.producer(t, transport.ProducerConfig{}), topic, 0, 40)
	_, ends, err := c.admin(t).Offsets(t.Context(), topic)
	require.NoError(t, err)
	id, err := c.admin(t).TopicID(t.Context(), topic)
	require.NoError(t, err)
	listener := &recorder{assigned: func(context.Context, string, []int32) (map[int32]int64, error) {
		return map[int32]int64{0: ends[0], 1: ends[1] + 1}, nil
	}}
	g := c.group(t, transport.GroupConfig{Topic: topic, Listener: listener, FailOnTruncation: true, OnRecordsLost: func(string, int32, int64, int64) { t.Error("it goes on nowhere") }})
	subscribe(t, g, topic)
	<-g.Failed()
	var cut *transport.TruncatedError
	require.ErrorAs(t, g.Err(), &cut)
	require.Equal(t, &transport.TruncatedError{Topic: topic, TopicID: id, Partition: 1, Wanted: ends[1] + 1, End: ends[1]}, cut)
	require.NoError(t, g.Close())
	require.ElementsMatch(t, []int32{0, 1}, listener.revoked, "each assignment is followed by its end")
}

// Without identities a re-created topic of the same name is taken for the one
// before: the watermark is not its own. The mistake that this catches: all zeros
// were an identity like any other.
func TestBrokersWithoutTopicIDsAreRefused(t *testing.T) {
	c := fakeCluster(t)
	topic := c.topic(t, "topic", 1)
	old := c.cfg.With(kgo.MaxVersions(kversion.V2_7_0()))
	admin, err := transport.NewAdmin(old)
	require.NoError(t, err)
	defer admin.Close()
	_, err = admin.TopicID(t.Context(), topic)
	require.ErrorIs(t, err, transport.ErrNoTopicIDs)
	require.ErrorContains(t, err, topic)
	_, err = transport.NewGroup(t.Context(), old, transport.GroupConfig{ID: "group", Topic: topic})
	require.ErrorIs(t, err, transport.ErrNoTopicIDs)
	require.ErrorIs(t, admin.CheckReadable(t.Context(), topic), transport.ErrNoTopicIDs)
}
