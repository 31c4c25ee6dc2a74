package edge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/seed-86dfc502/weir/transport"
)

// SubscriberConfig of a source.
type SubscriberConfig struct {
	Group string // consumer group. Required

	NackBackoff       time.Duration // until a nacked message comes again. Defaults to 100 ms
	SessionTimeout    time.Duration // Defaults to 10 s
	HeartbeatInterval time.Duration // Defaults to 500 ms
	// RebalanceTimeout is how long a member may take to let go of its
	// partitions. Contexts of messages end at once, so handlers that heed them
	// need none of it. Defaults to 30 s.
	RebalanceTimeout time.Duration
	// OnReset is told when the group's offset is outside of the topic; it goes
	// on at the oldest record. It must not block.
	OnReset func(topic string, partition int32, wanted, got int64)
	// Limit, if given, ends Close's wait for the group to be left.
	Limit context.Context
}

// Subscriber is a message.Subscriber. A subscription is one member of the
// group; topics may be subscribed at the same time.
type Subscriber struct {
	inner   *kafka.Subscriber
	group   string
	admin   *transport.Admin
	claims  *claims
	limit   context.Context
	forward sync.WaitGroup
	once    sync.Once
	err     error
}

// NewSubscriber does not touch the network yet.
func NewSubscriber(cfg transport.Config, sc SubscriberConfig) (*Subscriber, error) {
	if sc.Group == "" {
		return nil, errors.New("kafka subscriber without a consumer group")
	}
	c, err := saramaConfig(cfg)
	if err != nil {
		return nil, err
	}
	def(&sc.NackBackoff, 100*time.Millisecond)
	def(&sc.SessionTimeout, 10*time.Second)
	def(&sc.HeartbeatInterval, 500*time.Millisecond)
	def(&sc.RebalanceTimeout, 30*time.Second)
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.Offsets.AutoCommit.Enable = true // of what was acknowledged; a commit per message costs a factor of 100
	c.Consumer.Offsets.AutoCommit.Interval = time.Second
	c.Consumer.Return.Errors = true
	c.Metadata.RefreshFrequency = transport.MetadataMaxAge
	c.Consumer.IsolationLevel = sarama.ReadCommitted
	c.Consumer.MaxProcessingTime = time.Second
	c.Consumer.Group.Session.Timeout = sc.SessionTimeout
	c.Consumer.Group.Heartbeat.Interval = sc.HeartbeatInterval
	c.Consumer.Group.Rebalance.Timeout = sc.RebalanceTimeout
	c.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{sarama.NewBalanceStrategySticky()}

	admin, err := transport.NewAdmin(cfg)
	if err != nil {
		return nil, err
	}
	log := logger(cfg).With("group", sc.Group)
	if sc.Limit == nil {
		sc.Limit = context.Background()
	}
	s := &Subscriber{group: sc.Group, admin: admin, limit: sc.Limit, claims: &claims{
		group: sc.Group, admin: admin, log: log, onReset: sc.OnReset,
		open: make(map[topicPartition]*claim), stop: make(chan struct{}),
	}}
	s.inner, err = kafka.NewSubscriber(kafka.SubscriberConfig{
		Brokers:               cfg.Brokers,
		Unmarshaler:           s.claims,
		OverwriteSaramaConfig: c,
		ConsumerGroup:         sc.Group,
		NackResendSleep:       sc.NackBackoff,
		Tracer:                s.claims,
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
	s.claims.mu.Lock()
	s.claims.subscribed++
	s.claims.mu.Unlock()
	in, err := s.inner.Subscribe(ctx, topic)
	if err != nil {
		return nil, fmt.Errorf("subscribe %s: %w", topic, err)
	}
	out := make(chan *message.Message)
	s.forward.Add(1)
	go func() {
		defer s.forward.Done()
		defer close(out)
		for {
			var m *message.Message
			var ok bool
			select {
			case m, ok = <-in:
			case <-s.claims.stop:
			}
			if !ok {
				return
			}
			s.claims.place(m, topic)
			if m.Context().Err() != nil {
				m.Ack() // its claim is over: not marked, but it lets the session end
				continue
			}
			select {
			case out <- m:
			case <-m.Context().Done():
				m.Ack()
			case <-s.claims.stop: // nobody answers it: it comes again
				return
			}
		}
	}()
	return out, nil
}

// Drained tells whether the group has acknowledged every message of a topic
// that consumers may read, all members together. A commit follows an
// acknowledgement within a second.
func (s *Subscriber) Drained(ctx context.Context, topic string) (bool, error) {
	return s.admin.Drained(ctx, s.group, topic)
}

// closeTimeout is how long Close waits for the group to be left.
const closeTimeout = 5 * time.Second

// Close ends all subscriptions and returns when their channels are closed. It
// waits for some seconds for the group to be left in order: Kafka may keep an
// answer back for as long as a rebalance takes, and sarama waits for it. Then
// the membership ends with its session, and what was acknowledged in the last
// second may come again.
func (s *Subscriber) Close() error {
	s.once.Do(func() {
		close(s.claims.stop)
		left := make(chan error, 1)
		go func() { left <- s.inner.Close() }()
		s.forward.Wait()
		within, cancel := context.WithTimeout(s.limit, closeTimeout)
		defer cancel()
		select {
		case s.err = <-left:
		case <-within.Done():
			s.claims.log.Warn("the group could not be left in time; its other members wait for the session to end")
		}
		s.admin.Close()
	})
	return s.err
}

type topicPartition struct {
	topic     string
	partition int32
}

// claim is one partition in one session. It handles one message at a time.
type claim struct {
	number  uint64
	topicID string
	ended   context.Context

	mu  sync.Mutex
	seq uint64             // guarded by mu; of the next message
	now transport.Position // guarded by mu; of the message in flight
}

// claims watches the sessions of a subscriber. It is watermill-kafka's tracer,
// which sees claims begin and end, and its unmarshaler, which sees their
// records.
type claims struct {
	group   string
	admin   *transport.Admin
	log     *slog.Logger
	onReset func(topic string, partition int32, wanted, got int64)
	stop    chan struct{}

	mu   sync.Mutex
	open map[topicPartition]*claim // guarded by mu
	last time.Time                 // guarded by mu; when a consumer last (re)connected

	// A connection beyond the first of each Subscribe is a reconnect.
	subscribed, reconnects int // guarded by mu
}

// Unmarshal implements kafka.Unmarshaler; it cannot fail.
func (c *claims) Unmarshal(r *sarama.ConsumerMessage) (*message.Message, error) {
	c.mu.Lock()
	cl := c.open[topicPartition{r.Topic, r.Partition}]
	c.mu.Unlock()
	if cl == nil { // a record outside of a claim does not happen with a group
		return unmarshal(r, r.Topic), nil
	}
	cl.mu.Lock()
	cl.now = transport.Position{
		Topic: r.Topic, TopicID: cl.topicID, Partition: r.Partition, Offset: r.Offset,
		Time: r.Timestamp.UTC(), Claim: cl.number, Seq: cl.seq,
	}
	cl.seq++
	cl.mu.Unlock()
	return unmarshal(r, cl.topicID), nil
}

// place gives a message that is on its way out its position, and a context
// that ends with its claim.
func (c *claims) place(m *message.Message, topic string) {
	partition, _ := kafka.MessagePartitionFromCtx(m.Context())
	offset, _ := kafka.MessagePartitionOffsetFromCtx(m.Context())
	c.mu.Lock()
	cl := c.open[topicPartition{topic, partition}]
	c.mu.Unlock()
	ctx, cancel := context.WithCancel(m.Context())
	if cl != nil {
		cl.mu.Lock()
		now := cl.now
		cl.mu.Unlock()
		if now.Offset == offset {
			detach := context.AfterFunc(cl.ended, cancel)
			context.AfterFunc(m.Context(), func() { detach() })
			m.SetContext(transport.WithPosition(ctx, now))
			return
		}
	}
	cancel() // its claim has ended
	m.SetContext(ctx)
}

const reconnectPause = time.Second

// WrapConsumerGroupHandler is called at every (re)connect, which
// watermill-kafka does in a hot loop when joining fails: here it waits.
func (c *claims) WrapConsumerGroupHandler(h sarama.ConsumerGroupHandler) sarama.ConsumerGroupHandler {
	c.mu.Lock()
	wait := time.Duration(0)
	if c.reconnects >= c.subscribed { // more than the first of each Subscribe
		wait = time.Until(c.last.Add(reconnectPause))
	}
	c.reconnects++
	c.last = time.Now().Add(max(0, wait))
	c.mu.Unlock()
	if wait > 0 {
		select {
		case <-time.After(wait):
		case <-c.stop:
		}
	}
	return handler{h, c}
}

func (c *claims) WrapConsumer(s sarama.Consumer) sarama.Consumer { return s }
func (c *claims) WrapPartitionConsumer(s sarama.PartitionConsumer) sarama.PartitionConsumer {
	return s
}
func (c *claims) WrapSyncProducer(_ *sarama.Config, p sarama.SyncProducer) sarama.SyncProducer {
	return p
}
