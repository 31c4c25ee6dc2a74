package ingest_test

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/ingest"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
)

func prepared(t *testing.T, s ingest.Extractor, value string, meta message.Metadata) *ingest.Prepared {
	t.Helper()
	p, err := s.Prepare([]byte(value), meta)
	require.NoError(t, err)
	return p
}

// Equal requests have one fingerprint, in any spelling; every other effect of the
// event has another one.
func TestFingerprint(t *testing.T) {
	s := shape(t)
	s.Operation = ingest.Locator{Header: "op"}
	const value = `{"m":{"id":"B","event":"e"},"d":{"n":1,"trace_id":1}}`
	want := prepared(t, s, value, nil).Fingerprint()
	require.Equal(t, want, prepared(t, s, " {\"d\":{\"trace_id\":1, \"\\u006e\":1},\n\"m\":{\"event\":\"e\",\"id\":\"\\u0042\"}}", message.Metadata{"other": "x"}).Fingerprint())

	seen := map[[32]byte]string{want: "the same"}
	other := func(name string, s ingest.Extractor, value string, meta message.Metadata) {
		got := prepared(t, s, value, meta).Fingerprint()
		require.Empty(t, seen[got], name)
		seen[got] = name
	}
	other("a number's literal", s, `{"m":{"id":"B","event":"e"},"d":{"n":1.0,"trace_id":1}}`, nil)
	other("what is stripped", s, `{"m":{"id":"B","event":"e"},"d":{"n":1,"trace_id":2}}`, nil)
	other("the operation in a header", s, value, message.Metadata{"op": "delete"})
	elsewhere := s
	elsewhere.Source = "elsewhere"
	other("another source", elsewhere, value, nil)
	keyed := s
	keyed.Entity, keyed.EventID = ingest.Locator{Key: true}, ingest.Locator{Header: "id"}
	other("the key", keyed, value, message.Metadata{transport.KeyMetadata: "B"})
	other("another key", keyed, value, message.Metadata{transport.KeyMetadata: "C"})
	other("parts that shift", keyed, value, message.Metadata{transport.KeyMetadata: "B", "id": "C"})
	null, err := keyed.Prepare(nil, message.Metadata{transport.KeyMetadata: "B"})
	require.NoError(t, err)
	require.Empty(t, seen[null.Fingerprint()], "a null value")
}

func TestPrepareRefuses(t *testing.T) {
	s := shape(t)
	for value, code := range map[string]string{`{`: "bad_json", `{"d":1}`: "no_entity", `{"m":{"id":"B"}}`: "no_payload"} {
		_, err := s.Prepare([]byte(value), nil)
		var r *ingest.Refusal
		require.ErrorAs(t, err, &r)
		require.Equal(t, code, r.Code)
		require.Equal(t, r, ingest.RefusalOf(err))
	}
	var syntax *canonicaltree.SyntaxError
	_, err := canonicaltree.Parse([]byte("{"))
	require.ErrorAs(t, err, &syntax)
	require.Equal(t, "bad_json", ingest.RefusalOf(err).Code)
}

// A prepared event is taken as it was prepared, under its claim, without the gate,
// each time that it comes.
func TestStageTakesThePreparedEvent(t *testing.T) {
	w := newWorld(t)
	s := shape(t)
	claim := store.ClaimID(uuid.Must(uuid.NewV7()))
	for range 2 {
		p := prepared(t, s, event("e1", "B", `{"a":1,"updated_at":2}`), nil)
		require.Equal(t, "B", p.Entity())
		require.Equal(t, "e1", p.EventID())
		p.WithClaim(claim, "acme", "event:registry:e1", time.Hour)
		// The stage does not look at the value any more.
		w.takeFrame(frame(transport.Received{Value: []byte("not JSON"), Context: ingest.WithPrepared(context.Background(), p)}))
	}
	require.Equal(t, []string{`B={"a":1}`, `B={"a":1}`}, w.entities(), "decide tells that they are one")
	require.Equal(t, []string{"append 1", "append 1"}, w.story(), "the gate is not marked")
}

// Each event of a frame has its own context: the preparation of one is not
// taken for another.
func TestPreparedEventsInAFrameOfOthers(t *testing.T) {
	w := newWorld(t)
	s := shape(t)
	with := func(value string) transport.Received {
		ctx := ingest.WithPrepared(context.Background(), prepared(t, s, value, nil))
		return transport.Received{Value: []byte("not JSON"), Context: ctx}
	}
	w.takeFrame(frame(
		with(event("1", "A", "1")), transport.Received{Value: []byte(event("2", "B", "2"))},
		transport.Received{Value: []byte(event("3", "C", "3")), Context: context.Background()}, with(event("4", "D", "4"))))
	require.Equal(t, []string{"A=1", "B=2", "C=3", "D=4"}, w.entities())
	require.Empty(t, w.letters)
}
