package watermillkafka_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/internal/transport/logtest"
	"github.com/seed-86dfc502/weir/internal/transport/watermillkafka"
	"github.com/seed-86dfc502/weir/tests/servers"
)

func TestMain(m *testing.M) {
	// A meter of the library that sarama counts with has no end.
	logtest.Main(m, goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"))
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
	s, err := watermillkafka.NewSubscriber(t.Context(), cfg, transport.GroupConfig{
		ID: group, Topic: topic, NackMin: time.Millisecond, NackMax: 10 * time.Millisecond, CloseTimeout: 300 * time.Millisecond,
		SessionTimeout: 30 * time.Second, HeartbeatInterval: 100 * time.Millisecond, RebalanceTimeout: 30 * time.Second,
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	ch, err := s.Subscribe(t.Context(), topic)
	require.NoError(t, err)
	return ch, s
}

func newPublisher(t *testing.T, cfg transport.Config) publisher {
	p, err := transport.NewProducer(cfg, transport.ProducerConfig{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Close(context.Background()) })
	return publisher{p}
}

// publisher publishes by a producer.
type publisher struct{ p *transport.Producer }

func (p publisher) Publish(topic string, messages ...*message.Message) error {
	records := make([]transport.Record, len(messages))
	for i, m := range messages {
		r := transport.ReceivedOf(m)
		records[i] = transport.Record{Topic: topic, Key: r.Key, Value: r.Value, Headers: r.Headers}
	}
	return p.p.Append(context.Background(), records)
}

func TestConformanceRealKafka(t *testing.T) {
	cfg, prefix := realKafka(t)
	admin := newAdmin(t, cfg)
	logtest.Suite(t, prefix, func(t *testing.T) *logtest.Watermill {
		return &logtest.Watermill{
			Ensure: func(ctx context.Context, topic string, partitions int32) error {
				return admin.EnsureTopics(ctx, []transport.TopicSpec{{Name: topic, Partitions: partitions}})
			},
			Append: newPublisher(t, cfg).p.Append,
			Join: func(ctx context.Context, gc transport.GroupConfig) (message.Subscriber, error) {
				return watermillkafka.NewSubscriber(ctx, cfg, gc)
			},
		}
	})
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
	pub := newPublisher(t, cfg)
	for i := range 20 {
		m := message.NewMessage(watermill.NewUUID(), []byte{byte(i)})
		m.Metadata.Set(transport.KeyMetadata, string(m.Payload))
		require.NoError(t, pub.Publish(topic, m))
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
