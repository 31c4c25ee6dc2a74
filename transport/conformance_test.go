package transport_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"

	"github.com/seed-86dfc502/weir/transport"
)

// suiteSubscriber makes, and owns, a group for each subscription of Watermill's suite.
type suiteSubscriber struct {
	c      cluster
	id     string
	admin  *transport.Admin
	mu     sync.Mutex
	groups []*transport.Group // guarded by mu
}

func (s *suiteSubscriber) SubscribeInitialize(topic string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return s.admin.EnsureTopics(ctx, []transport.TopicSpec{{Name: topic, Partitions: 8}})
}

func (s *suiteSubscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	gc := transport.GroupConfig{
		ID: s.c.prefix + s.id + "." + topic, Topic: topic, FrameRecords: 1, NackMin: time.Millisecond, NackMax: 10 * time.Millisecond,
		// Others wait that long for a member that did not leave.
		SessionTimeout: 6 * time.Second, RebalanceTimeout: 3 * time.Second,
	}
	quick(&gc)
	g, err := transport.NewGroup(ctx, s.c.cfg, gc)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = g.Close() }) // or it would keep its partitions
	s.mu.Lock()
	defer s.mu.Unlock()
	s.groups = append(s.groups, g)
	return g.Subscribe(ctx, topic)
}

func (s *suiteSubscriber) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var wg sync.WaitGroup
	for _, g := range s.groups {
		wg.Go(func() { _ = g.Close() })
	}
	wg.Wait()
	return nil
}

// A frame of one record is a plain message, and the next one of the partition
// follows its acknowledgement: the order of arrival is the order of the
// partition, also after a Nack.
func suite(t *testing.T, c cluster, features tests.Features) {
	features.ConsumerGroups, features.Persistent, features.GuaranteedOrder = true, true, true
	admin := c.admin(t)
	// The suite publishes thousands of messages one by one. To read as many
	// compressed batches costs minutes on a busy machine under the race detector:
	// each takes a buffer of some MiB.
	producer := c.producer(t, transport.ProducerConfig{})
	withGroup := func(t *testing.T, id string) (message.Publisher, message.Subscriber) {
		s := &suiteSubscriber{c: c, id: id, admin: admin}
		t.Cleanup(func() { _ = s.Close() })
		return keyed{producer}, s
	}
	features.GenerateTopicFunc = func(tctx tests.TestContext) string {
		return c.prefix + "topic-" + string(tctx.TestID)
	}
	tests.TestPubSub(t, features, func(t *testing.T) (message.Publisher, message.Subscriber) {
		// One group per test: the members of a Kafka group share its rebalances.
		return withGroup(t, strings.NewReplacer("/", ".", "_", ".").Replace(t.Name()))
	}, withGroup)
}

// keyed is a message.Publisher that uses the payload of each message as its key, so that messages of one
// payload, whose order the suite checks, share a partition.
type keyed struct{ p *transport.Producer }

func (k keyed) Publish(topic string, messages ...*message.Message) error {
	records := make([]transport.Record, len(messages))
	for i, m := range messages {
		r := transport.ReceivedOf(m)
		records[i] = transport.Record{Topic: topic, Key: m.Payload, Value: r.Value, Headers: r.Headers}
	}
	return k.p.Append(context.Background(), records)
}

func (keyed) Close() error { return nil }

// The server gets the numbers of members and messages that the fake would only repeat.
func TestConformanceFake(t *testing.T) {
	suite(t, fakeCluster(t), tests.Features{ForceShort: true})
}

func TestConformanceRealKafka(t *testing.T) { suite(t, realCluster(t), tests.Features{}) }
