package ingest_test

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/ingest"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/transport"
	"github.com/stretchr/testify/require"
)

func prepared(t *testing.T, s ingest.Shape, value string, meta message.Metadata) *ingest.Prepared {
	t.Helper()
	p, err := s.Prepare([]byte(value), meta)
	require.NoError(t, err)
	return p
}

// What asks for the same has one fingerprint, whatever its spelling; whatever
// else the event could do gives another one.
func TestFingerprint(t *testing.T) {
	s := shape(t)
	s.Operation = ingest.Locator{Header: "op"}
	const value = `{"m":{"id":"B","event":"e"},"d":{"n":1,"trace_id":1}}`
	want := prepared(t, s, value, nil).Fingerprint()
	require.Equal(t, want, prepared(t, s, " {\"d\":{\"trace_id\":1, \"\\u006e\":1},\n\"m\":{\"event\":\"e\",\"id\":\"\\u0042\"}}", message.Metadata{"other": "x"}).Fingerprint())

	seen := map[[32]byte]string{want: "the same"}
	other := func(name string, s ingest.Shape, value string, meta message.Metadata) {
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
	for n := range 2 {
		p := prepared(t, s, event("e1", "B", `{"a":1,"updated_at":2}`), nil)
		require.Equal(t, "B", p.Entity())
		require.Equal(t, "e1", p.EventID())
		p.Under(claim, "acme", "event:registry:e1", time.Hour)
		// The stage does not look at the value any more.
		m := message.NewMessage("", []byte("not JSON"))
		m.SetContext(transport.WithPosition(ingest.WithPrepared(context.Background(), p), transport.Position{Topic: "push:registry", Claim: 1, Seq: uint64(n)}))
		done := make(chan error, 1)
		go func() { done <- w.stage.Handle(m) }()
		select {
		case err := <-done:
			require.NoError(t, err)
		case <-time.After(patience):
			require.FailNow(t, "the event was not taken in")
		}
	}
	require.Equal(t, []string{`B={"a":1}`, `B={"a":1}`}, w.entities(), "decide tells that they are one")
	require.Equal(t, []string{"append 1", "append 1"}, w.story(), "the gate is not marked")
}
