package logtest

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"
	_ "unsafe" // for linkname

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"go.uber.org/goleak"

	"github.com/seed-86dfc502/weir/internal/transport"
)

//go:linkname watermillTimeout github.com/ThreeDotsLabs/watermill/pubsub/tests.defaultTimeout
var watermillTimeout time.Duration //nolint:gochecknoglobals // it is Watermill's

// Main is TestMain of a package that runs Watermill's own suite. The suite may wait longer for what must come than its
// 15 s, which a busy machine overruns and no option changes. It joins subscribers by channels that are not read once it
// has seen every message: one that comes again, because a partition moved late, keeps its goroutine. Our subscribers'
// own goroutines are not excused.
func Main(m *testing.M, excused ...goleak.Option) {
	watermillTimeout = patience
	const multiplier = "github.com/ThreeDotsLabs/watermill/internal/subscriber.(*multiplier).Subscribe"
	goleak.VerifyTestMain(m, append(excused, goleak.IgnoreAnyFunction(multiplier+".func2"), goleak.IgnoreAnyFunction(multiplier+".func3"))...)
}

// Watermill shows logs to Watermill's own suite, as publisher and subscriber.
type Watermill struct {
	Ensure func(ctx context.Context, topic string, partitions int32) error
	Append func(ctx context.Context, records []transport.Record) error
	// Join makes a member of a group, which lasts until Close.
	Join func(ctx context.Context, gc transport.GroupConfig) (message.Subscriber, error)
	ID   string // of its groups, of which each topic has one

	mu      sync.Mutex
	members []message.Subscriber // guarded by mu
}

// Publish uses the payload of each message as its key, so that messages of one payload, whose order the suite checks,
// share a partition.
func (w *Watermill) Publish(topic string, messages ...*message.Message) error {
	records := make([]transport.Record, len(messages))
	for i, m := range messages {
		r := transport.ReceivedOf(m)
		records[i] = transport.Record{Topic: topic, Key: m.Payload, Value: r.Value, Headers: r.Headers}
	}
	return w.Append(context.Background(), records)
}

// SubscribeInitialize makes the topic.
func (w *Watermill) SubscribeInitialize(topic string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return w.Ensure(ctx, topic, 8)
}

// Subscribe joins the group of the topic. A frame of one record is a plain message, and the next one of the partition
// follows its acknowledgement: the order of arrival is the order of the partition, also after a Nack.
func (w *Watermill) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	if err := w.SubscribeInitialize(topic); err != nil {
		return nil, err
	}
	member, err := w.Join(ctx, transport.GroupConfig{
		ID: w.ID + "." + topic, Topic: topic, FrameRecords: 1, NackMin: time.Millisecond, NackMax: 10 * time.Millisecond,
		// Others wait that long for a member that did not leave.
		SessionTimeout: 6 * time.Second, RebalanceTimeout: 3 * time.Second,
		HeartbeatInterval: 100 * time.Millisecond, CommitInterval: 100 * time.Millisecond, CloseTimeout: 300 * time.Millisecond,
	})
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.members = append(w.members, member)
	return member.Subscribe(ctx, topic)
}

// Close ends all members.
func (w *Watermill) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all sync.WaitGroup
	for _, m := range w.members {
		all.Go(func() { _ = m.Close() }) // the brokers may be gone
	}
	all.Wait()
	return nil
}

// Suite runs all of Watermill's suite on logs of Kafka, with topics and groups of a prefix.
func Suite(t *testing.T, prefix string, logs func(t *testing.T) *Watermill) {
	withGroup := func(t *testing.T, id string) (message.Publisher, message.Subscriber) {
		w := logs(t)
		w.ID = prefix + id
		t.Cleanup(func() { _ = w.Close() })
		return w, w
	}
	features := tests.Features{ConsumerGroups: true, Persistent: true, GuaranteedOrder: true}
	features.GenerateTopicFunc = func(tctx tests.TestContext) string { return prefix + "topic-" + string(tctx.TestID) }
	tests.TestPubSub(t, features, func(t *testing.T) (message.Publisher, message.Subscriber) {
		// One group per test: the members of a Kafka group share its rebalances.
		return withGroup(t, strings.NewReplacer("/", ".", "_", ".").Replace(t.Name()))
	}, withGroup)
}
