package kafka

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/reason"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/sinks/kafka/fenced"
	"github.com/seed-86dfc502/weir/sinks/sinktest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func upsert(entity string, n int64) change.Change {
	return sinktest.Change("s/p@k", entity, change.NewVersion(1, n), fmt.Appendf(nil, `{"n":%d}`, n))
}

// encoded returns the record of a change as a consumer reads it, and its headers.
func encoded(t *testing.T, s *Sink, c change.Change) (kmsg.Record, map[string]string) {
	t.Helper()
	var e encoder
	s.record(&e, &c)
	place := []byte{0, 0, 0} // attributes, time, place in the batch
	b := binary.AppendVarint(nil, int64(len(place)+len(e.records)))
	var r kmsg.Record
	require.NoError(t, r.ReadFrom(append(append(b, place...), e.records...)))
	headers := map[string]string{}
	for _, h := range r.Headers {
		headers[h.Key] = string(h.Value)
	}
	require.Len(t, r.Headers, len(headers))
	return r, headers
}

// The context of a traced change is in headers, on a tombstone too, never in
// the value.
func TestTraceIsPassedOn(t *testing.T) {
	for _, tombstones := range []bool{false, true} {
		s := newSink(t, Options{Client: &fenced.Client{}, Topic: "t", Tombstones: tombstones})
		for _, doc := range []string{`{"n":1}`, ""} {
			c := sinktest.Change("s/p@k", "a", change.NewVersion(1, 1), []byte(doc))
			if doc == "" {
				c = sinktest.Change("s/p@k", "a", change.NewVersion(1, 1), nil)
			}
			plain, want := encoded(t, s, c)
			c.Trace = &change.Trace{Parent: "00-a-b-01"}
			traced, headers := encoded(t, s, c)
			require.Equal(t, plain.Value, traced.Value)
			require.Equal(t, []byte("a"), traced.Key)
			require.Equal(t, tombstones && doc == "", traced.Value == nil)
			require.NotContains(t, want, "traceparent")
			want["traceparent"] = "00-a-b-01"
			require.Equal(t, want, headers)
			c.Trace = &change.Trace{Parent: "00-a-b-01", State: "vendor=1"}
			stated, headers := encoded(t, s, c)
			require.Equal(t, plain.Value, stated.Value)
			want["tracestate"] = "vendor=1"
			require.Equal(t, want, headers)
		}
	}
}

func TestClassify(t *testing.T) {
	for err, want := range map[error]sinks.Class{
		kerr.MessageTooLarge:          sinks.Reject,
		kerr.InvalidRecord:            sinks.Reject,
		kerr.UnknownTopicOrPartition:  sinks.Pause,
		kerr.TopicAuthorizationFailed: sinks.Pause,
		kerr.SaslAuthenticationFailed: sinks.Pause,
		kerr.NotLeaderForPartition:    sinks.Retry,
		kerr.NotEnoughReplicas:        sinks.Retry,
		errors.New("anything"):        sinks.Retry,
	} {
		for _, wrapped := range []error{err, fmt.Errorf("cannot produce: %w", err)} {
			e := classify(wrapped)
			require.Equal(t, want, e.Class, "%v", err)
			require.Equal(t, want == sinks.Retry, e.Ambiguous, "%v", err)
		}
	}
}

// A broker's own words are one line of at most 200 bytes in log, status and page.
func TestWordsOfABrokerAreBounded(t *testing.T) {
	said := fmt.Errorf("%w: %s", kerr.PolicyViolation, "\x1b[31mred\n"+strings.Repeat("no ", 10_000))
	e := classify(said)
	require.Equal(t, sinks.Pause, e.Class)
	require.ErrorIs(t, e, kerr.PolicyViolation)
	require.LessOrEqual(t, len(e.Err.Error()), reason.Max)
	require.NotContains(t, e.Err.Error(), "\n")
	require.NotContains(t, e.Err.Error(), "\x1b")
}

func TestOptionsAreChecked(t *testing.T) {
	c := newClient(t, []string{"127.0.0.1:1"}, nil)
	for name, o := range map[string]Options{
		"client: ":            {Topic: "t", Service: "s"},
		"topic: ":             {Client: c, Service: "s"},
		"service: ":           {Client: c, Topic: "t"},
		"max_message_bytes: ": {Client: c, Topic: "t", Service: "s", MaxMessageBytes: -1},
	} {
		_, err := New(o)
		require.ErrorContains(t, err, name)
	}
}
