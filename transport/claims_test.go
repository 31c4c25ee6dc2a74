package transport_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/seed-86dfc502/weir/transport"
)

func TestAckAfterTheClaimEnded(t *testing.T) {
	c := embeddedCluster(t)
	topic := c.topic(t, "topic", 1)
	fill(t, c.producer(t, transport.ProducerConfig{}), topic, 0, 2)
	g := c.group(t, transport.GroupConfig{Topics: []string{topic}})
	ctx, cancel := context.WithCancel(t.Context())
	ch, err := g.Subscriber().Subscribe(ctx, topic)
	require.NoError(t, err)
	old := []*message.Message{receive(t, ch), receive(t, ch)}
	cancel()
	ended(old[1].Context(), t)
	ch = subscribe(t, g, topic) // waits until the old view has ended
	for _, m := range old {
		m.Ack()
	}
	for i := range old {
		m := receive(t, ch)
		require.Equal(t, old[i].UUID, m.UUID)
		require.NotEqual(t, position(t, old[i]).Claim, position(t, m).Claim)
		require.EqualValues(t, i, position(t, m).Seq)
	}
	require.EqualValues(t, 2, pending(t, g)[topic])
}

func TestClaimsOffsetsWin(t *testing.T) {
	c := embeddedCluster(t)
	topic := c.topic(t, "topic", 1)
	fill(t, c.producer(t, transport.ProducerConfig{}), topic, 0, 10)
	g := c.group(t, transport.GroupConfig{})
	ch := subscribe(t, g, topic)
	for range 10 {
		receive(t, ch).Ack()
	}
	require.NoError(t, g.Close()) // committed: 10

	claims := &recorder{assigned: func(context.Context, string, []int32) (map[int32]int64, error) {
		return map[int32]int64{0: 4}, nil
	}}
	g = c.group(t, transport.GroupConfig{Claims: claims})
	m := receive(t, subscribe(t, g, topic))
	require.EqualValues(t, 4, position(t, m).Offset)
	require.EqualValues(t, 0, position(t, m).Seq)
	require.NoError(t, g.Close())
	require.Equal(t, 1, claims.calls)
	require.Equal(t, []int32{0}, claims.revoked)
}

// For as long as it wants: heartbeats go on while Assigned waits.
func TestClaimsMayBlock(t *testing.T) {
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
	claims := &recorder{assigned: func(ctx context.Context, _ string, _ []int32) (map[int32]int64, error) {
		enter()
		select {
		case <-release:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}}
	g := c.group(t, transport.GroupConfig{Claims: claims})
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
	claims.mu.Lock()
	defer claims.mu.Unlock()
	require.Equal(t, 1, claims.calls)
	require.Empty(t, claims.revoked)
}

func TestClaimsAreCancelledWhenTheGroupCloses(t *testing.T) {
	c := embeddedCluster(t)
	topic := c.topic(t, "topic", 1)
	entered := make(chan struct{})
	enter := sync.OnceFunc(func() { close(entered) })
	claims := &recorder{assigned: func(ctx context.Context, _ string, _ []int32) (map[int32]int64, error) {
		enter()
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	g := c.group(t, transport.GroupConfig{Claims: claims})
	subscribe(t, g, topic)
	<-entered
	require.NoError(t, g.Close())
	require.NoError(t, g.Err())
	require.Empty(t, claims.revoked, "what never began is not revoked")
}

func TestClaimsErrorEndsTheSubscription(t *testing.T) {
	c := embeddedCluster(t)
	topic := c.topic(t, "topic", 1)
	fill(t, c.producer(t, transport.ProducerConfig{}), topic, 0, 1)
	fatal := errors.New("the store is of another generation")
	g := c.group(t, transport.GroupConfig{Claims: &recorder{assigned: func(context.Context, string, []int32) (map[int32]int64, error) {
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
