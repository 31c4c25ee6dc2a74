package transport_test

import (
	"context"
	"testing"

	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/internal/transport/logtest"
)

// topics are the logs of a cluster.
type topics struct {
	*transport.Admin
	transport.Appender
	c cluster
}

func (l topics) Make(ctx context.Context, topic string, partitions int32) error {
	return l.EnsureTopics(ctx, []transport.TopicSpec{{Name: topic, Partitions: partitions}})
}

func (l topics) NewGroup(ctx context.Context, gc transport.GroupConfig) (logtest.Group, error) {
	return transport.NewGroup(ctx, l.c.cfg, gc)
}

func TestLogs(t *testing.T) {
	onBoth(t, func(t *testing.T, c cluster) {
		logtest.Run(t, c.prefix, func(t *testing.T) logtest.Logs {
			return topics{c.admin(t), c.producer(t, transport.ProducerConfig{}), c}
		})
	})
}
