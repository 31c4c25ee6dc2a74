package watermillkafka_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/seed-86dfc502/weir/transport"
	"github.com/seed-86dfc502/weir/transport/logtest"
	"github.com/seed-86dfc502/weir/transport/watermillkafka"
)

func TestMain(m *testing.M) {
	logtest.PatientWatermill()
	// A meter of the library that sarama counts with, which has no end, and what
	// Watermill's suite joins subscribers with: a message is not read there that
	// comes again once the suite has seen it.
	const multiplier = "github.com/ThreeDotsLabs/watermill/internal/subscriber.(*multiplier).Subscribe"
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"),
		goleak.IgnoreAnyFunction(multiplier+".func2"), goleak.IgnoreAnyFunction(multiplier+".func3"))
}

// patience bounds every wait.
const patience = 60 * time.Second

func quietLog() *slog.Logger { return slog.New(slog.DiscardHandler) }

func realKafka(t *testing.T) (transport.Config, string) {
	brokers, prefix := servers.Kafka(t)
	return transport.Config{Brokers: brokers, Logger: quietLog()}, prefix
}

func newAdmin(t *testing.T, cfg transport.Config) *transport.Admin {
	a, err := transport.NewAdmin(cfg)
	require.NoError(t, err)
	t.Cleanup(a.Close)
	return a
}

func ensure(t *testing.T, cfg transport.Config, topic string, partitions int32) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, newAdmin(t, cfg).EnsureTopics(ctx, []transport.TopicSpec{{Name: topic, Partitions: partitions}}))
}

// subscribe has times that a busy machine does not reach: a member that was
// dropped gets everything once more.
func subscribe(t *testing.T, cfg transport.Config, group, topic string) (<-chan *message.Message, *watermillkafka.Subscriber) {
	t.Helper()
	s, err := watermillkafka.NewSubscriber(t.Context(), cfg, groupConfig(group, topic, 30*time.Second, 30*time.Second))
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	ch, err := s.Subscribe(t.Context(), topic)
	require.NoError(t, err)
	return ch, s
}

func groupConfig(group, topic string, session, rebalance time.Duration) transport.GroupConfig {
	return transport.GroupConfig{
		ID: group, Topic: topic, NackMin: time.Millisecond, NackMax: 10 * time.Millisecond, CloseTimeout: 300 * time.Millisecond,
		SessionTimeout: session, HeartbeatInterval: 100 * time.Millisecond, RebalanceTimeout: rebalance,
	}
}

func newPublisher(t *testing.T, cfg transport.Config) message.Publisher {
	// The conformance suite publishes thousands of messages one by one. To read as
	// many compressed batches costs minutes on a busy machine.
	p, err := transport.NewProducer(cfg, transport.ProducerConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Close(context.Background()) })
	return publisher{p}
}

// suiteSubscriber makes a member for each subscription of Watermill's suite.
type suiteSubscriber struct {
	cfg   transport.Config
	group string
	admin *transport.Admin

	mu      sync.Mutex
	members []*watermillkafka.Subscriber // guarded by mu
}

func (s *suiteSubscriber) SubscribeInitialize(topic string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return s.admin.EnsureTopics(ctx, []transport.TopicSpec{{Name: topic, Partitions: 8}})
}

func (s *suiteSubscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	// Others wait that long for a member that did not leave.
	m, err := watermillkafka.NewSubscriber(ctx, s.cfg, groupConfig(s.group, topic, 6*time.Second, 3*time.Second))
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.members = append(s.members, m)
	return m.Subscribe(ctx, topic)
}

func (s *suiteSubscriber) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var wg sync.WaitGroup
	for _, m := range s.members {
		wg.Go(func() { _ = m.Close() })
	}
	wg.Wait()
	return nil
}

// publisher is the message.Publisher of a producer.
type publisher struct{ p *transport.Producer }

func (p publisher) Publish(topic string, messages ...*message.Message) error {
	records := make([]transport.Record, len(messages))
	for i, m := range messages {
		r := transport.ReceivedOf(m)
		records[i] = transport.Record{Topic: topic, Key: r.Key, Value: r.Value, Headers: r.Headers}
	}
	return p.p.Append(context.Background(), records)
}

func (publisher) Close() error { return nil }

// keyed sets the key of each message to its payload: the order that the suite
// checks is per payload.
type keyed struct{ message.Publisher }

func (k keyed) Publish(topic string, messages ...*message.Message) error {
	for _, m := range messages {
		m.Metadata.Set(transport.KeyMetadata, string(m.Payload))
	}
	return k.Publisher.Publish(topic, messages...)
}

func TestConformanceRealKafka(t *testing.T) {
	cfg, prefix := realKafka(t)
	admin := newAdmin(t, cfg)
	withGroup := func(t *testing.T, group string) (message.Publisher, message.Subscriber) {
		s := &suiteSubscriber{cfg: cfg, group: prefix + group, admin: admin}
		t.Cleanup(func() { _ = s.Close() })
		return keyed{newPublisher(t, cfg)}, s
	}
	tests.TestPubSub(t, tests.Features{
		ConsumerGroups: true, Persistent: true, GuaranteedOrder: true,
		GenerateTopicFunc: func(tctx tests.TestContext) string { return prefix + "topic-" + string(tctx.TestID) },
	}, func(t *testing.T) (message.Publisher, message.Subscriber) {
		return withGroup(t, strings.NewReplacer("/", ".", "_", ".").Replace(t.Name()))
	}, withGroup)
}

func receive(t *testing.T, ch <-chan *message.Message) *message.Message {
	t.Helper()
	select {
	case m, ok := <-ch:
		require.True(t, ok, "the channel was closed")
		return m
	case <-time.After(patience):
		require.FailNow(t, "no message")
		return nil
	}
}

func frameOf(t *testing.T, m *message.Message) *transport.Frame {
	t.Helper()
	f, ok := transport.FrameOf(m)
	require.True(t, ok)
	require.Len(t, f.Records, 1)
	return f
}

func TestMessagesCarryFramesOfOneRecord(t *testing.T) {
	cfg, prefix := realKafka(t)
	topic := prefix + "topic"
	ensure(t, cfg, topic, 1)
	pub := newPublisher(t, cfg)
	keyedMessage := message.NewMessage(watermill.NewUUID(), []byte("payload"))
	keyedMessage.Metadata.Set(transport.KeyMetadata, "key")
	keyedMessage.Metadata.Set("other", "header")
	plain := message.NewMessage("", []byte{})
	tombstone := message.NewMessage(watermill.NewUUID(), nil)
	tombstone.Metadata.Set(transport.KeyMetadata, "")
	tombstone.Metadata.Set(transport.NullMetadata, "1")
	before := time.Now().Add(-time.Minute)
	require.NoError(t, pub.Publish(topic, keyedMessage, plain, tombstone))

	ch, _ := subscribe(t, cfg, prefix+"group", topic)
	id, err := newAdmin(t, cfg).TopicID(t.Context(), topic)
	require.NoError(t, err)
	var assignment uint64
	for i, want := range []*message.Message{keyedMessage, plain, tombstone} {
		m := receive(t, ch)
		require.Equal(t, want.Metadata, m.Metadata)
		require.Equal(t, string(want.Payload), string(m.Payload))
		f := frameOf(t, m)
		r := f.Records[0]
		require.Equal(t, []any{topic, id, int32(0), int64(i)}, []any{f.Topic, f.TopicID, f.Partition, r.Offset})
		require.True(t, r.Time.After(before))
		require.Equal(t, transport.ReceivedOf(want).Key, r.Key)
		require.Equal(t, transport.ReceivedOf(want).Value, r.Value)
		require.Equal(t, m.UUID, f.UUID(0))
		require.False(t, r.Redelivered)
		if i == 0 {
			assignment = f.Assignment
			require.Equal(t, "header", r.Header("other"))
			m.Nack() // comes again, the same
			again := receive(t, ch)
			same := *frameOf(t, again)
			require.True(t, same.Records[0].Redelivered)
			same.Records[0].Redelivered = false
			require.Equal(t, *f, same)
			again.Ack()
			continue
		}
		require.Equal(t, assignment, f.Assignment)
		if i == 1 {
			require.Equal(t, transport.MessageID(id, 0, 1), m.UUID)
		}
		m.Ack()
	}
}

// A handler of watermill-kafka is not told that its partition went away.
func TestContextEndsWhenThePartitionIsRevoked(t *testing.T) {
	cfg, prefix := realKafka(t)
	topic := prefix + "topic"
	ensure(t, cfg, topic, 2)
	pub := keyed{newPublisher(t, cfg)}
	for i := range 20 {
		require.NoError(t, pub.Publish(topic, message.NewMessage(watermill.NewUUID(), []byte{byte(i)})))
	}
	first, _ := subscribe(t, cfg, prefix+"group", topic)
	held := []*message.Message{receive(t, first), receive(t, first)} // one per partition, never acknowledged
	go func() {
		for m := range first {
			m.Ack()
		}
	}()
	second, _ := subscribe(t, cfg, prefix+"group", topic)
	for _, m := range held { // an eager rebalance revokes both
		select {
		case <-m.Context().Done():
		case <-time.After(patience):
			require.FailNow(t, "the context did not end")
		}
		m.Nack()
	}
	receive(t, second).Ack()
}

func TestMissingTopicIsAPlainError(t *testing.T) {
	cfg, prefix := realKafka(t)
	_, err := watermillkafka.NewSubscriber(t.Context(), cfg, transport.GroupConfig{ID: prefix + "group", Topic: prefix + "missing"})
	require.ErrorContains(t, err, prefix+"missing does not exist")
}

func TestSASL(t *testing.T) {
	for _, mechanism := range []string{"scram-sha-256", "scram-sha-512", "plain"} {
		t.Run(mechanism, func(t *testing.T) {
			broker, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.EnableSASL(),
				kfake.Superuser(strings.ToUpper(mechanism), "user,=", "secret"), kfake.SeedTopics(1, "topic"))
			require.NoError(t, err)
			t.Cleanup(broker.Close)
			cfg := transport.Config{Brokers: broker.ListenAddrs(), Logger: quietLog(),
				SASL: transport.SASL{Mechanism: mechanism, User: "user,=", Password: "secret"}}
			require.NoError(t, newPublisher(t, cfg).Publish("topic", message.NewMessage("1", []byte("x"))))
			ch, _ := subscribe(t, cfg, "group", "topic")
			m := receive(t, ch)
			require.Equal(t, "x", string(m.Payload))
			m.Ack()

			cfg.SASL.Password = "wrong"
			_, err = watermillkafka.Connect(cfg)
			require.Error(t, err)
			require.NotContains(t, err.Error(), "wrong")
		})
	}
}

// A topic that was deleted and created again is another one, in which the group
// starts at the oldest record, also while it reads.
func TestATopicThatWasCreatedAgain(t *testing.T) {
	cfg, prefix := realKafka(t)
	topic := prefix + "topic"
	ensure(t, cfg, topic, 1)
	require.NoError(t, newPublisher(t, cfg).Publish(topic, message.NewMessage("1", []byte("1")), message.NewMessage("2", []byte("2"))))
	ch, _ := subscribe(t, cfg, prefix+"group", topic)
	var was string
	for range 2 {
		m := receive(t, ch)
		was = frameOf(t, m).TopicID
		m.Ack()
	}

	client, err := kgo.NewClient(kgo.SeedBrokers(cfg.Brokers...))
	require.NoError(t, err)
	defer client.Close()
	_, err = kadm.NewClient(client).DeleteTopic(t.Context(), topic)
	require.NoError(t, err)
	admin := newAdmin(t, cfg)
	require.Eventually(t, func() bool { _, err := admin.TopicID(t.Context(), topic); return err != nil }, patience, 20*time.Millisecond)
	ensure(t, cfg, topic, 1)
	require.NoError(t, newPublisher(t, cfg).Publish(topic, message.NewMessage("3", []byte("3")), message.NewMessage("4", []byte("4")), message.NewMessage("5", []byte("5"))))
	for next := '3'; next <= '5'; {
		m := receive(t, ch)
		require.NotEqual(t, was, frameOf(t, m).TopicID, "or the fence would drop it")
		require.LessOrEqual(t, string(m.Payload), string(next), "nothing is left out")
		if string(m.Payload) == string(next) {
			next++
		}
		m.Ack()
	}
}
