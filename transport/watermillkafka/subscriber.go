package watermillkafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/seed-86dfc502/weir/transport"
)

// SubscriberConfig of a source.
type SubscriberConfig struct {
	Group string // consumer group. Required

	NackBackoff       time.Duration // until a nacked message is redelivered. Defaults to 100 ms
	SessionTimeout    time.Duration // Defaults to 10 s
	HeartbeatInterval time.Duration // Defaults to 500 ms
	// RebalanceTimeout is how long a member may take to release its
	// partitions. Contexts of messages end at once, so handlers that heed them
	// need none of it. Defaults to 30 s.
	RebalanceTimeout time.Duration
	// OnRecordsLost is called when the group's offset is outside of the topic; it
	// continues at the oldest record. It must not block.
	OnRecordsLost func(topic string, partition int32, wanted, got int64)
	// Limit, if given, ends Close's wait for the group to be left.
	Limit context.Context
}

// Subscriber is a message.Subscriber. A subscription is one member of the
// group; topics may be subscribed at the same time.
type Subscriber struct {
	inner    *kafka.Subscriber
	group    string
	admin    *transport.Admin
	sessions *sessions
	limit    context.Context
	forward  sync.WaitGroup
	once     sync.Once
	err      error
}

// NewSubscriber does not touch the network yet.
func NewSubscriber(cfg transport.Config, sc SubscriberConfig) (*Subscriber, error) {
	if sc.Group == "" {
		return nil, errors.New("kafka subscriber without a consumer group")
	}
	admin, err := transport.NewAdmin(cfg) // which refuses what is wrong with cfg
	if err != nil {
		return nil, err
	}
	def(&sc.SessionTimeout, 10*time.Second)
	def(&sc.HeartbeatInterval, 500*time.Millisecond)
	def(&sc.RebalanceTimeout, 30*time.Second)
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	log := cfg.Logger.With("group", sc.Group)
	if sc.Limit == nil {
		sc.Limit = context.Background()
	}
	s := &Subscriber{group: sc.Group, admin: admin, limit: sc.Limit, sessions: &sessions{
		group: sc.Group, admin: admin, log: log, onRecordsLost: sc.OnRecordsLost,
		open: make(map[topicPartition]*claim), stop: make(chan struct{}),
	}}
	s.inner, err = kafka.NewSubscriber(kafka.SubscriberConfig{
		Brokers:               cfg.Brokers,
		Unmarshaler:           s.sessions,
		OverwriteSaramaConfig: saramaConfig(cfg, sc),
		ConsumerGroup:         sc.Group,
		NackResendSleep:       sc.NackBackoff,
		Tracer:                s.sessions,
	}, transport.NewWatermillLogger(log))
	if err != nil {
		admin.Close()
		return nil, fmt.Errorf("kafka subscriber: %w", err)
	}
	return s, nil
}

func def(p *time.Duration, to time.Duration) {
	if *p == 0 {
		*p = to
	}
}

// Subscribe fails when the topic does not exist or may not be read.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	if err := s.admin.CheckReadable(ctx, topic); err != nil {
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	s.sessions.subscribed()
	in, err := s.inner.Subscribe(ctx, topic)
	if err != nil {
		return nil, fmt.Errorf("subscribe %s: %w", topic, err)
	}
	out := make(chan *message.Message)
	s.forward.Go(func() {
		defer close(out)
		for {
			var m *message.Message
			var ok bool
			select {
			case m, ok = <-in:
			case <-s.sessions.stop:
			}
			if !ok {
				return
			}
			s.sessions.attach(m, topic)
			select {
			case <-m.Context().Done(): // its claim is over: not marked, but it lets the session end
				m.Ack()
				continue
			default:
			}
			select {
			case out <- m:
			case <-m.Context().Done():
				m.Ack()
			case <-s.sessions.stop: // nobody answers it: it is redelivered
				return
			}
		}
	})
	return out, nil
}

// Drained reports whether the group has acknowledged every message of a topic
// that consumers may read, all members together. A commit follows an
// acknowledgement within a second.
func (s *Subscriber) Drained(ctx context.Context, topic string) (bool, error) {
	return s.admin.Drained(ctx, s.group, topic)
}

// Lag returns how far the group is behind in a topic.
func (s *Subscriber) Lag(ctx context.Context, topic string) ([]transport.PartitionLag, error) {
	return s.admin.Lag(ctx, s.group, topic)
}

// closeTimeout is how long Close waits for the group to be left.
const closeTimeout = 5 * time.Second

// Close ends all subscriptions and returns when their channels are closed. It
// waits for some seconds for the group to be left in order: Kafka may keep an
// answer back for as long as a rebalance takes, and sarama waits for it. Then
// the membership ends with its session, and what was acknowledged in the last
// second may be redelivered.
func (s *Subscriber) Close() error {
	s.once.Do(func() {
		close(s.sessions.stop)
		left := make(chan error, 1)
		go func() { left <- s.inner.Close() }()
		s.forward.Wait()
		within, cancel := context.WithTimeout(s.limit, closeTimeout)
		defer cancel()
		select {
		case s.err = <-left:
		case <-within.Done():
			s.sessions.log.Warn("the group could not be left in time; its other members wait for the session to end")
		}
		s.admin.Close()
	})
	return s.err
}
