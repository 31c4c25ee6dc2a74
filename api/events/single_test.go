package events_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-86dfc502/weir/api/events"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/ingest"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const ripe = `{"id":"B","event":"e1","n":1,"trace":7}`

func TestAcceptedIsInTheInbox(t *testing.T) {
	w := newWorld(t, options{})
	a := w.send(request{body: ripe})
	require.Equal(t, 202, a.status, a.body)
	r := w.result(a)
	require.Equal(t, events.Result{ID: r.ID, EventID: "e1", Entity: "B", Status: events.Accepted}, r)
	id, err := store.ParseClaimID(r.ID)
	require.NoError(t, err)
	key := store.DigestKey("acme", "event:orders:e1")
	held := w.ledger.claims["acme\x00event:orders:e1"]
	require.Equal(t, []change.Event{{
		Origin: change.Origin{Source: "orders"}, EventID: "e1", Op: change.Upsert, Claim: id.String(), Entity: "B",
		Use:     &change.Use{Key: key[:], Content: held.Fingerprint[:8], Keep: time.Hour.Milliseconds()},
		Payload: []byte(`{"id":"B","event":"e1","n":1}`),
	}}, w.inbox(), "stripped, under its claim")
	require.Empty(t, a.header.Get(events.ReplayedHeader))
}

func TestRepetitionIsAnsweredWhatTheFirstWas(t *testing.T) {
	for name, key := range map[string]string{"event id": "", "header": `"order-7"`} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, options{})
			first := w.send(request{body: ripe, key: key})
			require.Equal(t, 202, first.status)
			// Other white space, order of members and escapes are the same event.
			again := w.send(request{body: "{\"\\u006e\" : 1,\n\"trace\":7,\"event\":\"e1\", \"id\":\"\\u0042\"}", key: strings.Trim(key, `"`)})
			require.Equal(t, first.status, again.status)
			require.Equal(t, first.body, again.body)
			require.Equal(t, "true", again.header.Get(events.ReplayedHeader))
			require.Len(t, w.inbox(), 1)
			require.EqualValues(t, 1, w.metric("weir_idempotency_replays_total"))
		})
	}
}

func TestAnotherEventUnderAKeyIsAConflict(t *testing.T) {
	for name, c := range map[string]struct{ first, second request }{
		"body":       {request{body: ripe}, request{body: strings.Replace(ripe, `"n":1`, `"n":1.0`, 1)}},
		"header key": {request{body: ripe, key: "k"}, request{body: `{"id":"C","event":"e2"}`, key: "k"}},
		"operation":  {request{body: ripe}, request{body: ripe, header: http.Header{"X-Operation": {"delete"}}}},
		"source":     {request{body: ripe, key: "k"}, request{body: ripe, key: "k", path: "plain/events"}},
		"batch":      {request{body: ripe, key: "k"}, request{body: "[" + ripe + "]", key: "k", path: "orders/events:batch"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, options{})
			require.Equal(t, 202, w.send(c.first).status)
			a := w.send(c.second)
			require.Equal(t, 422, a.status, a.body)
			p := w.problem(a)
			require.Equal(t, "urn:weir:problem:key-conflict", p.Type)
			require.Regexp(t, "^[0-9a-f]{64}$", p.Fingerprint)
			require.Regexp(t, "^[0-9a-f]{64}$", p.Stored)
			require.NotEqual(t, p.Fingerprint, p.Stored)
			require.Len(t, w.inbox(), 1)
			require.EqualValues(t, 1, w.metric("weir_idempotency_conflicts_total"))
			require.Equal(t, 202, w.send(c.first).status, "the first stays")
		})
	}
}

func TestTenantsHaveKeysOfTheirOwn(t *testing.T) {
	w := newWorld(t, options{})
	one, two := w.send(request{body: ripe, key: "k"}), w.send(request{body: ripe, key: "k", tenant: "beta"})
	require.Equal(t, 202, two.status)
	require.NotEqual(t, w.result(one).ID, w.result(two).ID)
	require.Len(t, w.inbox(), 2)
}

// Requests that come during the first one, and after it died, append under its claim, of
// which decide applies one, and all get the answer that was stored first.
func TestRequestsAtOnceHaveOneClaimAndOneAnswer(t *testing.T) {
	const callers = 64
	w := newWorld(t, options{})
	release := make(chan struct{})
	w.setAppends(func(context.Context) error { <-release; return nil })
	bodies := make([]string, callers)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			a := w.send(request{body: ripe, key: "k"})
			assert.Equal(t, 202, a.status)
			bodies[i] = a.body
		})
	}
	require.Eventually(t, func() bool { return w.ledger.asked() == callers }, patience, time.Millisecond)
	close(release)
	all.Wait()
	bodies = append(bodies, w.send(request{body: ripe, key: "k"}).body)
	require.Len(t, slices.Compact(bodies), 1)
	claims := map[string]bool{}
	for _, e := range w.inbox() {
		claims[e.Claim] = true
	}
	require.Len(t, claims, 1)
	require.Len(t, w.inbox(), callers)
}

// A client that hangs up does not stop its event; the repetition gets the answer.
func TestClientHangsUp(t *testing.T) {
	w := newWorld(t, options{})
	ctx, hangUp := context.WithCancel(t.Context())
	w.setAppends(func(ctx context.Context) error {
		hangUp()
		return ctx.Err()
	})
	require.Equal(t, 202, w.send(request{body: ripe, ctx: ctx}).status)
	again := w.send(request{body: ripe})
	require.Equal(t, "true", again.header.Get(events.ReplayedHeader))
	require.Len(t, w.inbox(), 1)
}

// An event that is not durable in time gets 503. The next request appends it under the same
// claim.
func TestNotDurableInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, options{timeout: 300 * time.Millisecond})
		release := make(chan struct{})
		w.setAppends(func(context.Context) error { <-release; return nil })
		a := w.send(request{body: ripe})
		require.Equal(t, 503, a.status)
		require.Equal(t, "urn:weir:problem:not-durable", w.problem(a).Type)
		require.Equal(t, "1", a.header.Get("Retry-After"))
		close(release)
		synctest.Wait()
		require.Len(t, w.inbox(), 1)
		again := w.send(request{body: ripe})
		require.Equal(t, 202, again.status)
		require.Empty(t, again.header.Get(events.ReplayedHeader))
		got := w.inbox()
		require.Len(t, got, 2)
		require.Equal(t, w.result(again).ID, got[0].Claim)
		require.Equal(t, got[0].Claim, got[1].Claim, "decide applies the first")
	})
}

// The answer was not stored: the event is durable, but is not acknowledged before the ledger
// has the answer.
func TestAnswerThatIsNotStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, options{})
		w.ledger.set(func() { w.ledger.answers = errors.New("down") })
		require.Equal(t, 503, w.send(request{body: ripe}).status)
		w.ledger.set(func() { w.ledger.answers = nil })
		a := w.send(request{body: ripe})
		require.Equal(t, 202, a.status)
		got := w.inbox()
		require.Len(t, got, 2)
		require.Equal(t, got[0].Claim, got[1].Claim)
	})
}

func TestLedgerDown(t *testing.T) {
	w := newWorld(t, options{})
	w.ledger.set(func() { w.ledger.fails = errors.New("down") })
	a := w.send(request{body: ripe})
	require.Equal(t, 503, a.status)
	require.NotEmpty(t, a.header.Get("Retry-After"))
	require.Empty(t, w.inbox())
	require.Equal(t, 202, w.send(request{path: "plain/events", body: `{"id":"B"}`}).status, "without a key nothing is asked of the ledger")
}

func TestExpiredKeyIsNew(t *testing.T) {
	w := newWorld(t, options{})
	first := w.send(request{body: ripe, key: "k"})
	other := `{"id":"C","event":"e9"}`
	require.Equal(t, 422, w.send(request{body: other, key: "k"}).status)
	w.ledger.set(func() { w.ledger.now = func() time.Time { return time.Now().Add(time.Hour + time.Minute) } })
	a := w.send(request{body: other, key: "k"})
	require.Equal(t, 202, a.status)
	require.NotEqual(t, w.result(first).ID, w.result(a).ID)
}

// A wrong event is refused and claims nothing; it may be sent corrected under its key.
func TestWrongEventsAreRefused(t *testing.T) {
	w := newWorld(t, options{})
	for _, c := range []struct {
		body, code string
		status     int
	}{
		{`{"id":"B",`, "bad_json", 400},
		{`{"id":"B","id":"B"}`, "bad_json", 400},
		{`{"event":"e"}`, "no_entity", 422},
		{`{"id":"B","event":{}}`, "bad_event_id", 422},
		{`{"id":"` + strings.Repeat("x", 65) + `"}`, "bad_entity", 422},
		{`{"id":"B","x":"` + strings.Repeat("x", 5000) + `"}`, "oversized", 413},
	} {
		a := w.send(request{body: c.body, key: "k"})
		require.Equal(t, c.status, a.status, a.body)
		p := w.problem(a)
		require.Equal(t, "urn:weir:problem:invalid-event", p.Type)
		require.Equal(t, c.code, p.Code)
		require.NotContains(t, a.body, "xxx", "no content in a problem")
	}
	require.Zero(t, w.ledger.keys())
	require.Empty(t, w.inbox())
	require.Equal(t, 202, w.send(request{body: ripe, key: "k"}).status)
}

func TestRequestsThatAreRefused(t *testing.T) {
	w := newWorld(t, options{maxRows: 2})
	big := `{"id":"B","x":"` + strings.Repeat("x", 70<<10) + `"}`
	for name, c := range map[string]struct {
		request
		status int
	}{
		"no event":              {request{}, 400},
		"type":                  {request{kind: "text/plain", body: ripe}, 415},
		"no type":               {request{kind: "none", body: ripe}, 415},
		"charset":               {request{kind: "application/json; charset=latin1", body: ripe}, 415},
		"one event as a batch":  {request{path: "orders/events:batch", body: ripe}, 422},
		"no JSON as a batch":    {request{path: "orders/events:batch", body: "[{]"}, 400},
		"empty batch":           {request{path: "orders/events:batch", body: "[]"}, 422},
		"blank lines":           {request{kind: "application/x-ndjson", body: "\n \n"}, 422},
		"rows":                  {request{path: "orders/events:batch", body: "[1,2,3]"}, 413},
		"lines":                 {request{kind: "application/x-ndjson", body: "1\n2\n\n3"}, 413},
		"body":                  {request{body: big}, 413},
		"encoding":              {request{body: ripe, header: http.Header{"Content-Encoding": {"gzip"}}}, 415},
		"source":                {request{path: "nowhere/events", body: ripe}, 404},
		"source of others":      {request{tenant: "stranger", body: ripe}, 403},
		"unknown and forbidden": {request{tenant: "stranger", path: "nowhere/events", body: ripe}, 403},
		"key":                   {request{key: `"open`, body: ripe}, 400},
		"two keys":              {request{header: http.Header{"Idempotency-Key": {"a", "b"}}, body: ripe}, 400},
	} {
		a := w.send(c.request)
		require.Equal(t, c.status, a.status, "%s: %s", name, a.body)
		require.NotContains(t, w.problem(a).Detail, "xxx")
	}
	require.Empty(t, w.inbox())
	require.Zero(t, w.ledger.keys())
}

// A patch that comes again would undo what came since, so something must show that it
// does: its own id or sequence, or the key of its request.
func TestPatchWithoutIdIsRefused(t *testing.T) {
	w := newWorld(t, options{patches: true, shape: func(s *ingest.Extractor) {
		s.Sequence = ingest.Locator{Path: "seq"}
		s.Operation = ingest.Locator{Path: "op"}
	}})
	const bare = `{"id":"B","a":1}`
	p := w.problem(w.send(request{body: bare}))
	require.Equal(t, 422, p.Status)
	require.Equal(t, "urn:weir:problem:invalid-event", p.Type)
	require.Equal(t, "no_event_id", p.Code)
	require.Contains(t, p.Detail, "Idempotency-Key")
	a := w.send(request{path: "orders/events:batch", body: batchOf(bare, event(1), `{"id":"B","event":null,"seq":""}`)})
	require.Equal(t, 207, a.status)
	require.Equal(t, []events.Status{events.Invalid, events.Accepted, events.Invalid}, statuses(w.rows(a)))
	require.Contains(t, w.rows(a)[0].Reason, "no_event_id: ")
	require.Equal(t, []string{"B1"}, entities(w))

	for name, body := range map[string]string{"id": `{"id":"B","event":"e"}`, "sequence": `{"id":"B","seq":0}`, "delete": `{"id":"B","op":"delete"}`} {
		a := w.send(request{body: body})
		require.Equal(t, 202, a.status, "%s: %s", name, a.body)
	}
	require.Equal(t, 202, w.send(request{body: bare, key: "one"}).status)
	cloud := request{path: "plain/events", kind: "application/cloudevents+json", body: `{"specversion":"1.0","id":"7","source":"/x","type":"t","data":` + bare + `}`}
	require.Equal(t, 202, w.send(cloud).status, "an id of CloudEvents")
	batch := request{path: "orders/events:batch", key: "all", body: batchOf(bare, `{"id":"B","a":2}`)}
	require.Equal(t, 202, w.send(batch).status)
	require.Len(t, w.inbox(), 1+3+1+1+2)
	for _, again := range []request{{body: bare, key: "one"}, cloud, batch} {
		require.Equal(t, "true", w.send(again).header.Get(events.ReplayedHeader))
	}
	require.Len(t, w.inbox(), 1+3+1+1+2)
}

// Without any key an event is taken in each time.
func TestNoKey(t *testing.T) {
	w := newWorld(t, options{})
	for range 2 {
		a := w.send(request{path: "plain/events", body: `{"id":"B"}`})
		require.Equal(t, 202, a.status)
		require.Equal(t, events.Result{Entity: "B", Status: events.Accepted}, w.result(a))
	}
	require.Len(t, w.inbox(), 2)
	require.Empty(t, w.inbox()[0].Claim)
	require.Zero(t, w.ledger.keys())
}

func TestWhatIsAboutNoEntityIsSkipped(t *testing.T) {
	w := newWorld(t, options{shape: func(s *ingest.Extractor) { s.Format = ingest.Debezium }})
	a := w.send(request{body: `{"ts_ms":1}`, key: "k"})
	require.Equal(t, 202, a.status)
	require.Equal(t, events.Result{Status: events.Skipped}, w.result(a))
	require.Empty(t, w.inbox())
}
