package kafka

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/sinks/kafka/fenced"
	"github.com/seed-86dfc502/weir/sinks/sinktest"
	"github.com/seed-86dfc502/weir/tests/servers"
)

const (
	service          = "s/p@k"
	topicMaxBytes    = 2_500_000
	producerMaxBytes = 16 << 20
)

// network dials for a producer and can be cut.
type network struct {
	mu    sync.Mutex
	cut   bool
	conns []net.Conn
}

func (n *network) Dial(protocol, address string) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cut {
		return nil, &net.OpError{Op: "dial", Net: protocol, Err: errors.New("the network is cut")}
	}
	c, err := net.DialTimeout(protocol, address, 10*time.Second)
	if err == nil {
		n.conns = append(n.conns, c)
	}
	return c, err
}

func (n *network) down() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = true
	for _, c := range n.conns {
		_ = c.Close() // it may be closed already
	}
	n.conns = nil
}

func (n *network) up() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = false
}

// newClient makes one that finds its servers again soon; n may be nil.
func newClient(t testing.TB, brokers []string, n *network) *fenced.Client {
	t.Helper()
	var opts []kgo.Opt
	if n != nil {
		opts = append(opts, kgo.Dialer(func(_ context.Context, network, address string) (net.Conn, error) { return n.Dial(network, address) }))
	}
	c, err := fenced.New(transport.Config{Brokers: brokers, Logger: slog.New(slog.DiscardHandler)}, opts...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// topicLog reads a topic from its beginning, further at each call.
type topicLog struct {
	topic  string
	client *kgo.Client
	admin  *kadm.Client
	next   map[int32]int64
	all    []*kgo.Record

	decoded int // of all
	known   map[string]bool
	first   []change.Change
}

func newTopic(t testing.TB, brokers []string, name string, maxBytes int) *topicLog {
	t.Helper()
	const partitions = 3
	// The markers of a takeover have offsets, too.
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.KeepControlRecords(), kgo.MetadataMinAge(50*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	admin := kadm.NewClient(client)
	limit := strconv.Itoa(maxBytes)
	_, err = admin.CreateTopic(t.Context(), partitions, 1, map[string]*string{"max.message.bytes": &limit}, name)
	require.NoError(t, err)
	endOffsets(t, admin, name)
	start := map[int32]kgo.Offset{}
	for p := range int32(partitions) {
		start[p] = kgo.NewOffset().AtStart()
	}
	client.AddConsumePartitions(map[string]map[int32]kgo.Offset{name: start})
	return &topicLog{topic: name, client: client, admin: admin, next: map[int32]int64{}, known: map[string]bool{}}
}

// endOffsets returns those of a topic: a broker learns of a topic a little later, and
// a busy one is no leader for a while.
func endOffsets(t testing.TB, admin *kadm.Client, topic string) (ends kadm.ListedOffsets) {
	t.Helper()
	require.Eventually(t, func() bool {
		var err error
		ends, err = admin.ListEndOffsets(t.Context(), topic)
		return err == nil && ends.Error() == nil
	}, time.Minute, 20*time.Millisecond)
	return ends
}

// records returns all records of the topic.
func (l *topicLog) records(t testing.TB) []*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ends := endOffsets(t, l.admin, l.topic)
	behind := func() (behind bool) {
		ends.Each(func(o kadm.ListedOffset) { behind = behind || l.next[o.Partition] < o.Offset })
		return behind
	}
	for behind() {
		fetches := l.client.PollFetches(ctx)
		require.NoError(t, fetches.Err())
		fetches.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				l.all = append(l.all, r)
			}
			l.next[r.Partition] = r.Offset + 1
		})
	}
	return l.all
}

// changes reads the topic as a consumer that knows repetitions: the first
// record of each key.
func (l *topicLog) changes(t testing.TB) []change.Change {
	t.Helper()
	for _, r := range l.records(t)[l.decoded:] {
		c := fromRecord(t, r)
		if !l.known[c.Key] {
			l.known[c.Key] = true
			l.first = append(l.first, c)
		}
	}
	l.decoded = len(l.all)
	return l.first
}

// fromRecord takes a record apart and checks that its parts agree.
func fromRecord(t testing.TB, r *kgo.Record) change.Change {
	t.Helper()
	headers := map[string]string{}
	for _, h := range r.Headers {
		headers[h.Key] = string(h.Value)
	}
	version, err := strconv.ParseUint(headers[VersionHeader], 10, 64)
	require.NoError(t, err)
	c := change.Change{
		Service: headers[ServiceHeader],
		Entity:  string(r.Key),
		Op:      change.Op(headers[OpHeader]),
		Version: change.Version(version),
		Key:     headers[KeyHeader],
	}
	if r.Value == nil {
		require.Equal(t, change.Retract, c.Op)
		return c
	}
	var v struct {
		Service, Entity, Key string
		Op                   change.Op
		Version              change.Version
		Doc                  json.RawMessage
	}
	require.NoError(t, json.Unmarshal(r.Value, &v))
	require.Equal(t, change.Change{Service: v.Service, Entity: v.Entity, Op: v.Op, Version: v.Version, Key: v.Key}, c)
	c.Doc = v.Doc
	return c
}

// noise is a text of n bytes that no compression makes smaller than half.
func noise(n int) string {
	b := make([]byte, n/2)
	_, _ = rand.Read(b) // it never fails
	return hex.EncodeToString(b)
}

func newSink(t testing.TB, o Options) *Sink {
	t.Helper()
	if o.Service == "" {
		o.Service = service
	}
	o.Logger = slog.New(slog.DiscardHandler)
	s, err := New(o)
	require.NoError(t, err)
	return s
}

func TestConformance(t *testing.T) {
	brokers, prefix := servers.Kafka(t)
	n := &network{}
	client := newClient(t, brokers, n)
	log := newTopic(t, brokers, prefix+"changes", topicMaxBytes)
	sinktest.Run(t, sinktest.Target{
		Kind: sinks.Log,
		Busy: true, // a broker that is late for its controller is no leader for a while
		New: func(t testing.TB) sinks.Sink {
			return newSink(t, Options{Client: client, Topic: log.topic, Service: "acme/ripeness@target", MaxMessageBytes: producerMaxBytes})
		},
		Log: log.changes,
		BadChange: func(c change.Change) change.Change {
			var doc map[string]any
			require.NoError(t, json.Unmarshal(c.Doc, &doc))
			doc["ballast"] = noise(4 * topicMaxBytes)
			b, err := json.Marshal(doc)
			require.NoError(t, err)
			return sinktest.Change(c.Service, c.Entity, c.Version, b)
		},
		Outage: func(testing.TB) (down, up func()) { return n.down, n.up },
	})
}

// Small records that travel in one request with a large one are not refused
// with it.
func TestOneLargeRecordIsRefusedAlone(t *testing.T) {
	brokers, prefix := servers.Kafka(t)
	log := newTopic(t, brokers, prefix+"small", 10_000)
	s := newSink(t, Options{Client: newClient(t, brokers, nil), Topic: log.topic})
	var batch []change.Change
	for i := range int64(60) {
		n := 3000
		if i == 30 {
			n = 30_000
		}
		batch = append(batch, sinktest.Change("s/p@k", fmt.Sprint(i), change.NewVersion(1, i+1), fmt.Appendf(nil, "%q", noise(n))))
	}
	err := s.Write(t.Context(), batch)
	var be *sinks.BatchError
	require.ErrorAs(t, err, &be)
	require.Len(t, be.Failed, 1)
	e := sinks.Classify(be.Failed[30])
	require.Equal(t, sinks.Reject, e.Class)
	require.False(t, e.Ambiguous)
	require.Len(t, log.changes(t), 59)
}

func TestMissingTopicPauses(t *testing.T) {
	brokers, prefix := servers.Kafka(t)
	for _, topic := range []string{prefix + "missing", "no/such topic"} {
		s := newSink(t, Options{Client: newClient(t, brokers, nil), Topic: topic})
		err := s.Write(t.Context(), []change.Change{sinktest.Change("s/p@k", "a", change.NewVersion(1, 1), []byte(`{}`))})
		require.Error(t, err)
		e := sinks.Classify(err)
		require.Equal(t, sinks.Pause, e.Class, "%v", err)
		require.NotEmpty(t, e.Hint)
	}
}

func TestRecord(t *testing.T) {
	brokers, prefix := servers.Kafka(t)
	log := newTopic(t, brokers, prefix+"record", topicMaxBytes)
	client := newClient(t, brokers, nil)
	up := sinktest.Change("acme/ripeness@topic", "b-007", change.NewVersion(1, 1), []byte(`{"n":1}`))
	down := sinktest.Change("acme/ripeness@topic", "b-007", change.NewVersion(1, 2), nil)
	require.NoError(t, newSink(t, Options{Client: client, Topic: log.topic, Service: "acme/ripeness@topic", Pipeline: "weir.S"}).Write(t.Context(), []change.Change{up, down}))
	require.NoError(t, newSink(t, Options{Client: client, Topic: log.topic, Service: "acme/ripeness@topic", Pipeline: "weir.S", Tombstones: true}).Write(t.Context(), []change.Change{down}))
	records := log.records(t)
	require.Len(t, records, 3)
	require.Equal(t, string(up.AppendRecord(nil)), string(records[0].Value))
	require.Equal(t, string(down.AppendRecord(nil)), string(records[1].Value))
	require.Nil(t, records[2].Value)
	for i, c := range []change.Change{up, down, down} {
		require.Equal(t, "b-007", string(records[i].Key))
		headers := map[string]string{}
		for _, h := range records[i].Headers {
			headers[h.Key] = string(h.Value)
		}
		require.Equal(t, map[string]string{
			"weir-service": c.Service, "weir-version": fmt.Sprint(uint64(c.Version)), "weir-key": c.Key, "weir-op": string(c.Op), "weir-partition": "0", "weir-pipeline": "weir.S",
		}, headers)
	}
}
