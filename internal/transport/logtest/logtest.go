// Package logtest is the conformance suite of a log, as the stages need it. It
// runs against topics of a cluster and against tables of the SQLite file.
package logtest

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/internal/transport"
)

// Logs is the log under test.
type Logs interface {
	transport.Appender
	// Make makes a topic.
	Make(ctx context.Context, topic string, partitions int32) error
	TopicID(ctx context.Context, topic string) (string, error)
	Offsets(ctx context.Context, topic string) (start, end map[int32]int64, err error)
	OffsetsAt(ctx context.Context, topic string, at time.Time) (map[int32]int64, error)
	Scan(ctx context.Context, topic string, from, to map[int32]int64, f func(transport.Scanned) error) error
	NewGroup(ctx context.Context, gc transport.GroupConfig) (Group, error)
}

// Group reads a topic.
type Group interface {
	Subscriber() message.Subscriber
	Failed() <-chan struct{}
	Err() error
	Close() error
}

// patience bounds every wait.
const patience = time.Minute

// Run runs the suite. prefix begins the names of topics and groups.
func Run(t *testing.T, prefix string, open func(t *testing.T) Logs) {
	for name, test := range map[string]func(t *testing.T, f *fixture){
		"a record comes back as it was appended":                       comesBack,
		"offsets have no gaps, and a key keeps its partition":          offsets,
		"frames are in order, bounded, and one is in flight":           inOrder,
		"a refused frame is redelivered, and is marked":                refused,
		"a subscription begins where its listener says":                begins,
		"records that a listener wants and are lost are reported":      notThere,
		"what is in flight when a subscription ends has a grace":       grace,
		"a listener that fails ends the subscription":                  listenerFails,
		"a group has one subscription, and the next resumes behind it": goesOn,
		"a scan, the newest records and the offsets of a time":         looks,
		"appends at the same time stand whole, each in its own order":  concurrent,
	} {
		t.Run(name, func(t *testing.T) {
			f := &fixture{t: t, Logs: open(t), topic: fmt.Sprintf("%slog-%d", prefix, time.Now().UnixNano())}
			test(t, f)
		})
	}
}

type fixture struct {
	t *testing.T
	Logs
	topic string
}

// with makes the topic, and fills its first partition with numbers from 0 on, in
// appends of so many records.
func (f *fixture) with(partitions int32, appends, records int) {
	f.t.Helper()
	require.NoError(f.t, f.Make(f.t.Context(), f.topic, partitions))
	for i := range appends {
		f.fill(i*records, records)
	}
}

func (f *fixture) fill(from, n int) {
	f.t.Helper()
	records := make([]transport.Record, n)
	for i := range records {
		records[i] = transport.Record{Topic: f.topic, Key: []byte("k"), Value: []byte(strconv.Itoa(from + i)), Pinned: true}
	}
	require.NoError(f.t, f.Append(f.within(), records))
}

func (f *fixture) within() context.Context {
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	f.t.Cleanup(cancel)
	return ctx
}

// group opens a group with times that a test can wait for.
func (f *fixture) group(gc transport.GroupConfig) Group {
	f.t.Helper()
	gc.ID, gc.Topic = f.topic+"-group", f.topic
	gc.SessionTimeout, gc.HeartbeatInterval, gc.RebalanceTimeout = patience, 100*time.Millisecond, patience
	gc.CommitInterval, gc.NackMin, gc.NackMax = 50*time.Millisecond, time.Millisecond, 10*time.Millisecond
	if gc.CloseTimeout == 0 {
		gc.CloseTimeout = 300 * time.Millisecond
	}
	g, err := f.NewGroup(f.within(), gc)
	require.NoError(f.t, err)
	f.t.Cleanup(func() { _ = g.Close() })
	return g
}

func (f *fixture) subscribe(g Group) <-chan *message.Message {
	f.t.Helper()
	ch, err := g.Subscriber().Subscribe(f.t.Context(), f.topic)
	require.NoError(f.t, err)
	return ch
}

func (f *fixture) receive(ch <-chan *message.Message) (*message.Message, *transport.Frame) {
	f.t.Helper()
	select {
	case m, ok := <-ch:
		require.True(f.t, ok, "the channel was closed")
		frame, ok := transport.FrameOf(m)
		require.True(f.t, ok)
		require.NotEmpty(f.t, frame.Records)
		return m, frame
	case <-time.After(patience):
		require.FailNow(f.t, "no message")
		return nil, nil
	}
}

func values(f *transport.Frame) (all []string) {
	for i := range f.Records {
		all = append(all, string(f.Records[i].Value))
	}
	return all
}

func numbers(from, to int) (all []string) {
	for i := from; i < to; i++ {
		all = append(all, strconv.Itoa(i))
	}
	return all
}

// listener says where to begin.
type listener struct {
	at  map[int32]int64
	err error

	mu      sync.Mutex
	revoked []int32
}

func (l *listener) Assigned(context.Context, string, []int32) (map[int32]int64, error) {
	return l.at, l.err
}

func (l *listener) Revoked(_ string, partitions []int32) {
	l.mu.Lock()
	l.revoked = append(l.revoked, partitions...)
	l.mu.Unlock()
}
