package transport_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-86dfc502/weir/transport"
)

func TestListenersOffsetsWin(t *testing.T) {
	c := fakeCluster(t)
	topic := c.topic(t, "topic", 1)
	fill(t, c.producer(t, transport.ProducerConfig{}), topic, 0, 10)
	g := c.group(t, transport.GroupConfig{})
	ch := subscribe(t, g, topic)
	acknowledge(t, ch, 10)
	require.NoError(t, g.Close()) // committed: 10

	listener := &recorder{assigned: func(context.Context, string, []int32) (map[int32]int64, error) {
		return map[int32]int64{0: 4}, nil
	}}
	type rewind struct{ committed, from int64 }
	rewinds := make(chan rewind, 10)
	g = c.group(t, transport.GroupConfig{Listener: listener,
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
	broker, err := kfake.NewCluster(kfake.NumBrokers(1))
	require.NoError(t, err)
	t.Cleanup(broker.Close)
	beats := make(chan struct{})
	broker.ControlKey(int16(kmsg.Heartbeat), func(kmsg.Request) (kmsg.Response, error, bool) {
		broker.KeepControl()
		select {
		case beats <- struct{}{}:
		default:
		}
		return nil, nil, false
	})
	c := cluster{cfg: transport.Config{Brokers: broker.ListenAddrs(), Logger: quietLog()}}
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
	g := c.group(t, transport.GroupConfig{Listener: listener})
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
	g := c.group(t, transport.GroupConfig{Listener: listener})
	subscribe(t, g, topic)
	<-entered
	require.NoError(t, g.Close())
	require.NoError(t, g.Err())
	require.Empty(t, listener.revoked, "what never began is not revoked")
}

func TestListenersErrorEndsTheSubscription(t *testing.T) {
	c := fakeCluster(t)
	topic := c.topic(t, "topic", 1)
	fill(t, c.producer(t, transport.ProducerConfig{}), topic, 0, 1)
	fatal := errors.New("the store is of another generation")
	g := c.group(t, transport.GroupConfig{Listener: &recorder{assigned: func(context.Context, string, []int32) (map[int32]int64, error) {
		return nil, fatal
	}}})
	ch := subscribe(t, g, topic)
	<-g.Failed()
	require.ErrorIs(t, g.Err(), fatal)
	_, open := <-ch
	require.False(t, open)
	_, err := g.Subscriber().Subscribe(t.Context(), topic)
	require.ErrorIs(t, err, fatal)
}
