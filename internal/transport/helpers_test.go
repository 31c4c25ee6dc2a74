package transport_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/internal/transport/logtest"
	"github.com/seed-86dfc502/weir/tests/servers"
)

func TestMain(m *testing.M) { logtest.Main(m) }

func quietLog() *slog.Logger {
	if os.Getenv("WEIR_TEST_LOG") != "" {
		return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return slog.New(slog.DiscardHandler)
}

// beside lets a test run beside others: tests of clusters wait more than they compute.
func beside(t testing.TB) {
	if t, ok := t.(*testing.T); ok {
		t.Parallel()
	}
}

// cluster is where a test works: real or in process, with names of its own.
type cluster struct {
	cfg    transport.Config
	prefix string
}

func fakeCluster(t testing.TB) cluster {
	t.Helper()
	_, c := fakeBrokers(t, kfake.GroupMinSessionTimeout(time.Second))
	return c
}

// fakeBrokers is a fake of one broker, unless an option says otherwise, for a test that steers it.
func fakeBrokers(t testing.TB, opts ...kfake.Opt) (*kfake.Cluster, cluster) {
	t.Helper()
	beside(t)
	b, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(b.Close)
	return b, cluster{cfg: transport.Config{Brokers: b.ListenAddrs(), Logger: quietLog()}}
}

func realCluster(t testing.TB) cluster {
	t.Helper()
	beside(t)
	brokers, prefix := servers.Kafka(t)
	return cluster{cfg: transport.Config{Brokers: brokers, Logger: quietLog()}, prefix: prefix}
}

// onBoth runs a test on the fake of a broker and on a server.
func onBoth(t *testing.T, test func(t *testing.T, c cluster)) {
	t.Helper()
	t.Parallel()
	t.Run("fake", func(t *testing.T) { test(t, fakeCluster(t)) })
	t.Run("real", func(t *testing.T) { test(t, realCluster(t)) })
}

func (c cluster) admin(t testing.TB) *transport.Admin {
	t.Helper()
	a, err := transport.NewAdmin(c.cfg)
	require.NoError(t, err)
	t.Cleanup(a.Close)
	return a
}

func (c cluster) topic(t testing.TB, name string, partitions int32, configs ...string) string {
	t.Helper()
	spec := transport.TopicSpec{Name: c.prefix + name, Partitions: partitions, Configs: map[string]string{}}
	for i := 0; i+1 < len(configs); i += 2 {
		spec.Configs[configs[i]] = configs[i+1]
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, c.admin(t).EnsureTopics(ctx, []transport.TopicSpec{spec}))
	return spec.Name
}

func (c cluster) group(t testing.TB, gc transport.GroupConfig) *transport.Group {
	t.Helper()
	if gc.ID == "" {
		gc.ID = "group"
	}
	gc.ID = c.prefix + gc.ID
	quick(&gc)
	g, err := transport.NewGroup(t.Context(), c.cfg, gc)
	require.NoError(t, err)
	t.Cleanup(func() { _ = g.Close() })
	return g
}

// quick sets times that a test can wait for, and others that a busy machine
// does not reach: a member that was dropped gets everything once more.
func quick(gc *transport.GroupConfig) {
	if gc.SessionTimeout == 0 {
		gc.SessionTimeout = 30 * time.Second
	}
	if gc.HeartbeatInterval == 0 {
		gc.HeartbeatInterval = 100 * time.Millisecond
	}
	if gc.RebalanceTimeout == 0 {
		gc.RebalanceTimeout = 30 * time.Second
	}
	if gc.CommitInterval == 0 {
		gc.CommitInterval = 100 * time.Millisecond
	}
	if gc.CloseTimeout == 0 {
		gc.CloseTimeout = 300 * time.Millisecond
	}
}

func (c cluster) producer(t testing.TB, pc transport.ProducerConfig) *transport.Producer {
	t.Helper()
	p, err := transport.NewProducer(c.cfg, pc)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = p.Close(ctx)
	})
	return p
}

// fill appends n records with keys and values "from", "from+1", …
func fill(t testing.TB, p *transport.Producer, topic string, from, n int) {
	t.Helper()
	records := make([]transport.Record, n)
	for i := range records {
		v := []byte(fmt.Sprint(from + i))
		records[i] = transport.Record{Topic: topic, Key: v, Value: v}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, p.Append(ctx, records))
}

func subscribe(t testing.TB, g *transport.Group, topic string) <-chan *message.Message {
	t.Helper()
	ch, err := g.Subscriber().Subscribe(t.Context(), topic)
	require.NoError(t, err)
	return ch
}

// patience bounds every wait.
const patience = 45 * time.Second

func receive(t testing.TB, ch <-chan *message.Message) *message.Message {
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

func none(t testing.TB, ch <-chan *message.Message, d time.Duration) {
	t.Helper()
	select {
	case m := <-ch:
		if m == nil {
			require.FailNow(t, "the channel was closed")
		}
		require.FailNow(t, "unexpected message", "%v", values(t, m))
	case <-time.After(d):
	}
}

// frame returns what m carries.
func frame(t testing.TB, m *message.Message) *transport.Frame {
	t.Helper()
	f, ok := transport.FrameOf(m)
	require.True(t, ok)
	return f
}

// values returns the records of a frame, which never is empty.
func values(t testing.TB, m *message.Message) []string {
	t.Helper()
	f := frame(t, m)
	require.NotEmpty(t, f.Records)
	all := make([]string, len(f.Records))
	for i, r := range f.Records {
		all[i] = string(r.Value)
	}
	return all
}

// numbers returns the values that fill appends.
func numbers(from, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprint(from + i)
	}
	return all
}

// acknowledge takes and acknowledges frames until n records came.
func acknowledge(t testing.TB, ch <-chan *message.Message, n int) {
	t.Helper()
	for n > 0 {
		m := receive(t, ch)
		n -= len(frame(t, m).Records)
		m.Ack()
	}
	require.Zero(t, n, "more than was asked for")
}

// waiting returns when n records wait to be handed out.
func waiting(t testing.TB, g *transport.Group, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return g.Waiting() == n }, patience, 5*time.Millisecond)
}

func ended(ctx context.Context, t testing.TB) {
	t.Helper()
	select {
	case <-ctx.Done():
	case <-time.After(patience):
		require.FailNow(t, "the context did not end")
	}
}

// recorder is a PartitionListener that a test steers.
type recorder struct {
	mu       sync.Mutex
	assigned func(ctx context.Context, topic string, partitions []int32) (map[int32]int64, error)
	revoked  []int32
	calls    int
}

func (r *recorder) Assigned(ctx context.Context, topic string, partitions []int32) (map[int32]int64, error) {
	r.mu.Lock()
	r.calls++
	r.mu.Unlock()
	return r.assigned(ctx, topic, partitions)
}

func (r *recorder) Revoked(_ string, partitions []int32) {
	r.mu.Lock()
	r.revoked = append(r.revoked, partitions...)
	r.mu.Unlock()
}
