package kafka

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/sources"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
)

// A source whose topic is missing fails when it is opened, so that it is blocked with its
// reason; no later call fails, which would end the process.
func TestOpenFailsOnAMissingTopic(t *testing.T) {
	broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	require.NoError(t, err)
	defer broker.Close()
	env := sources.Env{
		Cluster: func(config.Cluster) (transport.Config, error) {
			return transport.Config{Brokers: broker.ListenAddrs(), Logger: slog.New(slog.DiscardHandler)}, nil
		},
		Group: func(id string, records int, topic string) transport.GroupConfig {
			return transport.GroupConfig{ID: id, Topic: topic, FrameRecords: records, CloseTimeout: time.Millisecond}
		},
		Logger: slog.New(slog.DiscardHandler),
	}
	for _, records := range []int{1, 1000} {
		c := &Config{Topic: "missing", Group: "group", FrameRecords: records}
		_, err := c.Open(t.Context(), env)
		require.ErrorIs(t, err, kerr.UnknownTopicOrPartition, records)
		c.Topic = "orders"
		s, err := c.Open(t.Context(), env)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		out, err := s.Subscribe(ctx, c.Topic)
		require.NoError(t, err)
		cancel()
		_, open := <-out
		require.False(t, open)
		require.NoError(t, s.Close())
	}
}
