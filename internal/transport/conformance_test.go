package transport_test

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/internal/transport/logtest"
)

func TestConformanceRealKafka(t *testing.T) {
	c := realCluster(t)
	admin, producer := c.admin(t), c.producer(t, transport.ProducerConfig{})
	logtest.Suite(t, c.prefix, func(*testing.T) *logtest.Watermill {
		return &logtest.Watermill{
			Ensure: func(ctx context.Context, topic string, partitions int32) error {
				return admin.EnsureTopics(ctx, []transport.TopicSpec{{Name: topic, Partitions: partitions}})
			},
			Append: producer.Append,
			Join: func(ctx context.Context, gc transport.GroupConfig) (message.Subscriber, error) {
				g, err := transport.NewGroup(ctx, c.cfg, gc)
				if err != nil {
					return nil, err
				}
				context.AfterFunc(ctx, func() { _ = g.Close() }) // or it would keep its partitions
				return g, nil
			},
		}
	})
}
