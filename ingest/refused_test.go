package ingest_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/ingest"
	"github.com/seed-86dfc502/weir/ingest/gate"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/stripper"
	"github.com/stretchr/testify/require"
)

// taken is an inbox and the dead letters beside it.
type taken struct {
	t       *testing.T
	records []change.Record
	letters []store.DeadLetter
}

func (k *taken) Append(_ context.Context, records []transport.Record) error {
	for _, r := range records {
		rec, err := change.DecodeRecord(r.Key, r.Headers[0].Value, r.Value)
		require.NoError(k.t, err)
		k.records = append(k.records, rec)
	}
	return nil
}

func (k *taken) AddLetters(_ context.Context, letters []store.DeadLetter) error {
	k.letters = append(k.letters, letters...)
	return nil
}

// handle takes the records of a frame of the stream log.
func (k *taken) handle(shape ingest.Extractor, records ...transport.Received) {
	k.t.Helper()
	stage := ingest.New(ingest.Options{
		Extractor: shape, Gate: gate.NewMemory(time.Hour, 10), InboxID: func() string { return "i" }, Inbox: k, Topic: "weir.inbox", Letters: k,
		Logger: slog.New(slog.DiscardHandler), Metrics: ingest.NewMetrics(prometheus.NewRegistry()),
	})
	require.NoError(k.t, stage.Handle(transport.NewMessage(k.t.Context(), transport.NewFrame("t", "log", 0, 1, records))))
}

// A dead letter leaves its place with its entity where later events are filled from the document
// before them: in order among these, without a payload, also when the value cannot be read.
func TestARefusedEventIsNotedInTheInbox(t *testing.T) {
	rules, err := stripper.Compile(nil)
	require.NoError(t, err)
	table := ingest.Extractor{
		Source: "shop", Entity: ingest.Locator{Key: true}, Sequence: ingest.Locator{Header: "q"}, Session: ingest.Locator{Header: "s"}, Unchanged: ingest.Locator{Header: "n"},
		ByUUID: true, Strip: rules, MaxEvent: 40, MaxEntity: 100,
	}
	session := change.Session{Log: "the shop", Number: 7, Name: "x"}
	row := func(offset int64, value string, more ...transport.Header) transport.Received {
		return transport.Received{Key: []byte("1"), Value: []byte(value), Offset: offset, Index: 2,
			Headers: append(more, transport.Header{Key: "q", Value: []byte("t1.1")}, transport.Header{Key: "s", Value: []byte(session.Header())})}
	}
	large := `{"id":1,"note":"` + string(make([]byte, 40)) + `"}`
	k := &taken{t: t}
	k.handle(table, row(5, `{"id":1,"a":1}`), row(6, large), row(7, `{"id":1,"a":null,"b":2}`, transport.Header{Key: "n", Value: []byte("a\nc")}),
		row(8, "{}", transport.Header{Key: transport.RefusalHeader, Value: []byte("bad_row: why")}))
	var got []change.Event
	for _, r := range k.records {
		require.Equal(t, "1", r.Entity)
		require.Equal(t, session, r.Event.Session)
		e := *r.Event
		e.Session, e.Mark = change.Session{}, ""
		got = append(got, e)
	}
	at := func(offset int64) change.Event {
		return change.Event{Origin: change.Origin{Source: "shop", Topic: "log", Offset: offset, Index: 2}, Sequence: "t1.1", Entity: "1", Op: change.Upsert}
	}
	want := []change.Event{at(5), at(6), at(7), at(8)}
	want[0].Payload = []byte(`{"id":1,"a":1}`)
	want[1].Op, want[1].Refusal = change.Refused, "oversized"
	want[2].Payload, want[2].Unchanged = []byte(`{"id":1,"a":null,"b":2}`), []string{"a"}
	want[3].Op, want[3].Refusal = change.Refused, "bad_row"
	require.Equal(t, want, got)
	require.Len(t, k.letters, 2)

	// Replayed, the letter has its whole place and its session.
	table.MaxEvent = 1 << 10
	k.letters[0].Payload = []byte(`{"id":1,"note":"short"}`)
	again, still := table.Redelivered(k.letters[0])
	require.Nil(t, still)
	require.Equal(t, change.Origin{Source: "shop", Topic: "log", Offset: 6, Index: 2}, again.Event.Origin)
	require.Equal(t, session, again.Event.Session)

	// A letter that its source refused holds no row until it is edited.
	refused := k.letters[1]
	require.Equal(t, "1", refused.Entity)
	_, still = table.Redelivered(refused)
	require.Equal(t, "bad_row", still.Code)
	refused.Payload = []byte(`{"id":1}`)
	again, still = table.Redelivered(refused)
	require.Nil(t, still)
	require.Equal(t, int64(8), again.Event.Offset)

	// Debezium: the entity is in the record's key. A source of whole documents notes nothing.
	unavailable, err := ingest.NewUnavailable(ingest.DebeziumUnavailable)
	require.NoError(t, err)
	debezium := ingest.Extractor{Source: "d", Entity: ingest.Locator{Path: "id"}, Format: ingest.Debezium, Unavailable: unavailable, Strip: rules, MaxEvent: 40, MaxEntity: 100}
	k = &taken{t: t}
	k.handle(debezium, transport.Received{Key: []byte(`{"id":3}`), Value: []byte(large), Offset: 9})
	require.Len(t, k.records, 1)
	require.Equal(t, "3", k.records[0].Entity)
	require.Equal(t, change.Refused, k.records[0].Event.Op)
	require.Equal(t, int64(9), k.records[0].Event.Offset)
	k = &taken{t: t}
	debezium.Format, debezium.Unavailable = ingest.JSON, nil
	k.handle(debezium, transport.Received{Key: []byte(`{"id":3}`), Value: []byte(large), Offset: 9})
	require.Empty(t, k.records)
	require.Len(t, k.letters, 1)
}

// No header of a producer speaks for a source without sessions.
func TestAHeaderWithoutANameIsNoSession(t *testing.T) {
	rules, err := stripper.Compile(nil)
	require.NoError(t, err)
	k := &taken{t: t}
	k.handle(ingest.Extractor{Source: "k", Entity: ingest.Locator{Key: true}, Strip: rules, MaxEvent: 100, MaxEntity: 100},
		transport.Received{Key: []byte("1"), Value: []byte(`{"a":1}`), Headers: []transport.Header{{Value: []byte("9 x shop")}, {Value: []byte("a")}}})
	require.Equal(t, change.Session{}, k.records[0].Event.Session)
	require.Empty(t, k.records[0].Event.Unchanged)
}
