package watermillkafka

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"

	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/internal/wait"
)

// Subscriber is one member of a consumer group, for one subscription.
type Subscriber struct {
	*transport.Subscription
	gc        transport.GroupConfig
	log       *slog.Logger
	admin     *transport.Admin
	inner     *kafka.Subscriber
	connected time.Time // the latest connection of inner, which makes one at a time
	joining   sync.WaitGroup
	once      sync.Once
	err       error
}

// NewSubscriber checks that the topic exists and may be read. It joins the group at Subscribe.
// ctx bounds the check only. Settings of gc about frames and buffers have no effect.
func NewSubscriber(ctx context.Context, cfg transport.Config, gc transport.GroupConfig) (*Subscriber, error) {
	if err := gc.SetDefaults(); err != nil {
		return nil, err
	}
	admin, err := transport.NewAdmin(cfg) // which checks cfg
	if err != nil {
		return nil, err
	}
	s := &Subscriber{gc: gc, admin: admin, log: cmp.Or(cfg.Logger, slog.Default()).With("group", gc.ID)}
	s.Subscription = transport.NewSubscription(&s.gc, s.join)
	if err = admin.CheckReadable(ctx, gc.Topic); err == nil {
		s.inner, err = kafka.NewSubscriber(kafka.SubscriberConfig{
			Brokers: cfg.Brokers, ConsumerGroup: gc.ID, OverwriteSaramaConfig: saramaConfig(cfg, gc), Tracer: s,
			Unmarshaler: kafka.DefaultMarshaler{}, // not called
		}, transport.NewWatermillLogger(s.log))
	}
	if err != nil {
		admin.Close()
		return nil, fmt.Errorf("consumer group %s: %w", gc.ID, err)
	}
	return s, nil
}

// join joins the group once the brokers answer. Its membership ends with the messages'
// contexts.
func (s *Subscriber) join() {
	s.joining.Go(func() {
		_, _ = wait.Retry(s.Stopping(), s.Stopping(), s.log, "join the consumer group", func() error {
			_, err := s.inner.Subscribe(s.Context(), s.gc.Topic)
			return err
		})
	})
}

// Drained reports whether the group has acknowledged every message
// that consumers may read, all members together. A commit follows an
// acknowledgement within a second.
func (s *Subscriber) Drained(ctx context.Context) (bool, error) {
	return s.admin.Drained(ctx, s.gc.ID, s.gc.Topic)
}

// Lag returns the lag of the group.
func (s *Subscriber) Lag(ctx context.Context) ([]transport.PartitionLag, error) {
	return s.admin.Lag(ctx, s.gc.ID, s.gc.Topic)
}

// closeTimeout is how long Close waits for the member to leave.
const closeTimeout = 5 * time.Second

// Close ends the subscription, and waits some seconds for the member to leave: during a
// rebalance Kafka may hold its answer, and sarama waits for it. After that
// the membership ends with its session, and acknowledgements of the last
// second may be lost.
func (s *Subscriber) Close() error {
	s.once.Do(func() {
		_ = s.Subscription.Close() // it returns nil
		left := make(chan error, 1)
		go func() {
			s.joining.Wait()
			left <- s.inner.Close()
		}()
		within, cancel := context.WithTimeout(s.gc.Limit, closeTimeout)
		defer cancel()
		select {
		case s.err = <-left:
		case <-within.Done():
			s.log.Warn("cannot leave the consumer group in time; its session will expire", "event", "kafka.leave_timeout")
		}
		s.admin.Close()
	})
	return s.err
}

const reconnectPause = time.Second

// WrapConsumerGroupHandler replaces the handler of claims. watermill-kafka calls it at
// every connection; where joining fails that is a hot loop, so it waits.
func (s *Subscriber) WrapConsumerGroupHandler(sarama.ConsumerGroupHandler) sarama.ConsumerGroupHandler {
	wait.Sleep(s.Stopping(), time.Until(s.connected.Add(reconnectPause)))
	s.connected = time.Now()
	return handler{s}
}

// WrapConsumer implements kafka.SaramaTracer, as the methods below.
func (*Subscriber) WrapConsumer(c sarama.Consumer) sarama.Consumer { return c }

// WrapPartitionConsumer is not called.
func (*Subscriber) WrapPartitionConsumer(c sarama.PartitionConsumer) sarama.PartitionConsumer {
	return c
}

// WrapSyncProducer is not called.
func (*Subscriber) WrapSyncProducer(_ *sarama.Config, p sarama.SyncProducer) sarama.SyncProducer {
	return p
}
