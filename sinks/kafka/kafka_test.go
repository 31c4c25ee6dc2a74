package kafka

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"go.uber.org/goleak"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/sinks/sinktest"
	"github.com/seed-86dfc502/weir/transport"
)

func TestMain(m *testing.M) {
	// The one goroutine of sarama's metrics library, which has no end.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"))
}

func upsert(entity string, n int64) change.Change {
	return sinktest.Change("s/p@k", entity, change.NewVersion(1, n), fmt.Appendf(nil, `{"n":%d}`, n))
}

// slowProducer keeps records back until they are let through.
type slowProducer struct {
	arrived chan string   // the key of each record that came
	pass    chan struct{} // one for each record to let through

	mu        sync.Mutex
	published []string
}

func (p *slowProducer) Append(_ context.Context, records []transport.Record) error {
	key := keyOf(records[0])
	p.arrived <- key
	<-p.pass
	p.mu.Lock()
	defer p.mu.Unlock()
	p.published = append(p.published, key)
	return nil
}

func keyOf(r transport.Record) string { return headersOf(r.Headers)[KeyHeader] }

func headersOf(headers []transport.Header) map[string]string {
	m := map[string]string{}
	for _, h := range headers {
		m[h.Key] = string(h.Value)
	}
	return m
}

// A record that a cancelled Write left behind must not come after a later one
// of its entity.
func TestLeftBehindRecordKeepsItsPlace(t *testing.T) {
	p := &slowProducer{arrived: make(chan string, 10), pass: make(chan struct{}, 10)}
	s := newSink(t, Options{Producer: p, Topic: "t", Concurrency: 2})
	first, second := upsert("a", 1), upsert("a", 2)
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- s.Write(ctx, []change.Change{first}) }()
	require.Equal(t, first.Key, <-p.arrived)
	cancel()
	err := <-result
	require.ErrorIs(t, err, context.Canceled)
	require.True(t, sinks.Classify(err).Ambiguous)

	// It is still on its way, and so the next one waits, for as long as its own context lasts.
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err = s.Write(short, []change.Change{second})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.False(t, sinks.Classify(err).Ambiguous, "nothing was sent")
	require.Empty(t, p.arrived)

	go func() { result <- s.Write(t.Context(), []change.Change{second}) }()
	p.pass <- struct{}{}
	require.Equal(t, second.Key, <-p.arrived)
	p.pass <- struct{}{}
	require.NoError(t, <-result)
	require.Equal(t, []string{first.Key, second.Key}, p.published)
}

// What cancelled Writes leave behind stays within the limit.
func TestLeftBehindRecordsAreBounded(t *testing.T) {
	p := &slowProducer{arrived: make(chan string, 100), pass: make(chan struct{})}
	s := newSink(t, Options{Producer: p, Topic: "t", Concurrency: 3})
	for n := range int64(10) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		require.Error(t, s.Write(ctx, []change.Change{upsert(fmt.Sprint(n), n)}))
		cancel()
	}
	require.LessOrEqual(t, len(p.arrived), 3)
	close(p.pass)
	require.NoError(t, s.Write(t.Context(), []change.Change{upsert("last", 20)}))
}

// refusing refuses every request that has one of the bad records in it, and
// says of which records.
type refusing struct {
	bad       map[string]bool
	published []string
}

func (p *refusing) Append(_ context.Context, records []transport.Record) error {
	for _, r := range records {
		if p.bad[keyOf(r)] {
			failed := map[int]error{}
			for i, r := range records {
				if i%2 == 0 {
					failed[i] = kerr.MessageTooLarge
				} else {
					p.published = append(p.published, keyOf(r))
				}
			}
			return fmt.Errorf("publish: %w", &transport.AppendError{Failed: failed})
		}
	}
	for _, r := range records {
		p.published = append(p.published, keyOf(r))
	}
	return nil
}

// What was refused with others is published once more alone; what was
// acknowledged is not, and only what is refused then has failed.
func TestRefusedIsPublishedOnceMoreAlone(t *testing.T) {
	var batch []change.Change
	for i := range int64(4) {
		batch = append(batch, upsert(fmt.Sprint(i), i+1))
	}
	bad, later := batch[2], upsert("2", 9)
	p := &refusing{bad: map[string]bool{bad.Key: true}}
	err := newSink(t, Options{Producer: p, Topic: "t"}).Write(t.Context(), append(batch, later))
	var be *sinks.BatchError
	require.ErrorAs(t, err, &be)
	require.Len(t, be.Failed, 1)
	require.Equal(t, sinks.Reject, sinks.Classify(be.Failed[2]).Class)
	require.Equal(t, []string{batch[1].Key, batch[3].Key, batch[0].Key, later.Key}, p.published)
}

func TestTooLargeIsRefusedBeforeItIsSent(t *testing.T) {
	p := &slowProducer{arrived: make(chan string, 1), pass: make(chan struct{}, 1)}
	s := newSink(t, Options{Producer: p, Topic: "t", MaxMessageBytes: 2000})
	p.pass <- struct{}{}
	large := sinktest.Change("s/p@k", "a", change.NewVersion(1, 1), fmt.Appendf(nil, "%q", strings.Repeat("x", 2000)))
	err := s.Write(t.Context(), []change.Change{large, upsert("a", 2)})
	var be *sinks.BatchError
	require.ErrorAs(t, err, &be)
	require.Len(t, be.Failed, 1)
	require.Equal(t, sinks.Reject, sinks.Classify(be.Failed[0]).Class)
	require.Equal(t, []string{upsert("a", 2).Key}, p.published)
}

// The context of a traced change is in headers, on a tombstone too, never in
// the value.
func TestTraceIsPassedOn(t *testing.T) {
	for _, tombstones := range []bool{false, true} {
		s := newSink(t, Options{Producer: &slowProducer{}, Topic: "t", Tombstones: tombstones})
		for _, doc := range []string{`{"n":1}`, ""} {
			c := sinktest.Change("s/p@k", "a", change.NewVersion(1, 1), []byte(doc))
			if doc == "" {
				c = sinktest.Change("s/p@k", "a", change.NewVersion(1, 1), nil)
			}
			plain := s.record(&c)
			c.Trace = &change.Trace{Parent: "00-a-b-01"}
			traced := s.record(&c)
			c.Trace = &change.Trace{Parent: "00-a-b-01", State: "vendor=1"}
			stated := s.record(&c)
			require.Equal(t, plain.Value, traced.Value)
			require.Equal(t, plain.Value, stated.Value)
			want := headersOf(plain.Headers)
			require.NotContains(t, want, "traceparent")
			want["traceparent"] = "00-a-b-01"
			require.Equal(t, want, headersOf(traced.Headers))
			want["tracestate"] = "vendor=1"
			require.Equal(t, want, headersOf(stated.Headers))
		}
	}
}

func TestClassify(t *testing.T) {
	for err, want := range map[error]sinks.Class{
		sarama.ErrMessageSizeTooLarge:      sinks.Reject,
		sarama.ErrInvalidRecord:            sinks.Reject,
		sarama.ErrUnknownTopicOrPartition:  sinks.Pause,
		sarama.ErrTopicAuthorizationFailed: sinks.Pause,
		sarama.ErrSASLAuthenticationFailed: sinks.Pause,
		sarama.ConfigurationError("x"):     sinks.Pause,
		sarama.ErrNotLeaderForPartition:    sinks.Retry,
		sarama.ErrOutOfBrokers:             sinks.Retry,
		sarama.ErrNotEnoughReplicas:        sinks.Retry,
		kerr.MessageTooLarge:               sinks.Reject,
		kerr.TopicAuthorizationFailed:      sinks.Pause,
		kerr.NotLeaderForPartition:         sinks.Retry,
		errors.New("anything"):             sinks.Retry,
	} {
		for _, wrapped := range []error{err, fmt.Errorf("cannot produce: %w", err)} {
			e := classify(wrapped)
			require.Equal(t, want, e.Class, "%v", err)
			require.Equal(t, want == sinks.Retry, e.Ambiguous, "%v", err)
		}
	}
}

func TestOpenChecksTheTopic(t *testing.T) {
	cause := fmt.Errorf("describe: %w", sarama.ErrUnknownTopicOrPartition)
	s := newSink(t, Options{Producer: &slowProducer{}, Topic: "t", Check: func(context.Context) error { return cause }})
	err := s.Open(t.Context())
	require.ErrorIs(t, err, cause)
	require.Equal(t, sinks.Pause, sinks.Classify(err).Class)
	cause = nil
	s.opts.Check = func(context.Context) error { return nil }
	require.NoError(t, s.Open(t.Context()))
}

func TestOptionsAreChecked(t *testing.T) {
	p := &slowProducer{}
	for name, o := range map[string]Options{
		"producer: ":          {Topic: "t"},
		"topic: ":             {Producer: p},
		"concurrency: ":       {Producer: p, Topic: "t", Concurrency: -1},
		"max_message_bytes: ": {Producer: p, Topic: "t", MaxMessageBytes: -1},
	} {
		_, err := New(o)
		require.ErrorContains(t, err, name)
	}
}
