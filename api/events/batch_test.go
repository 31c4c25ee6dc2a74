package events_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-86dfc502/weir/api/events"
	"github.com/stretchr/testify/require"
)

func event(n int) string { return fmt.Sprintf(`{"id":"B%d","event":"e%d"}`, n, n) }

func batchOf(rows ...string) string { return "[" + strings.Join(rows, ",") + "]" }

func statuses(rows []events.Result) (all []events.Status) {
	for _, r := range rows {
		all = append(all, r.Status)
	}
	return all
}

func entities(w *world) (all []string) {
	for _, e := range w.inbox() {
		all = append(all, e.Entity)
	}
	return all
}

func TestBatchInItsOrder(t *testing.T) {
	var rows []string
	var want []string
	for n := range 50 {
		rows, want = append(rows, event(n)), append(want, fmt.Sprint("B", n))
	}
	for name, q := range map[string]request{
		"array":           {path: "orders/events:batch", body: batchOf(rows...)},
		"lines":           {path: "orders/events:batch", kind: "application/x-ndjson", body: strings.Join(rows, "\r\n\n") + "\n"},
		"lines as events": {kind: "application/x-ndjson; charset=utf-8", body: strings.Join(rows, "\n")},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, options{})
			a := w.send(q)
			require.Equal(t, 202, a.status, a.body)
			for i, r := range w.rows(a) {
				require.Equal(t, events.Accepted, r.Status)
				require.Equal(t, want[i], r.Entity)
				require.Equal(t, w.inbox()[i].Claim, r.ID)
			}
			require.Equal(t, want, entities(w))

			q.body = "\xef\xbb\xbf" + q.body // a byte order mark changes nothing
			again := w.send(q)
			require.Equal(t, 202, again.status, "all are duplicates")
			require.Equal(t, events.Duplicate, w.rows(again)[49].Status)
			require.Equal(t, w.rows(a)[7].ID, w.rows(again)[7].ID)
			require.Len(t, w.inbox(), 50)
		})
	}
}

// UTF-16 is named once, not with each row.
func TestBatchInUTF16(t *testing.T) {
	w := newWorld(t, options{})
	a := w.send(request{path: "orders/events:batch", kind: "application/x-ndjson", body: "\xff\xfe{\x00}\x00\n\x00"})
	require.Equal(t, 415, a.status)
	require.Contains(t, a.body, "UTF-16")
}

// An array is divided without a look into its elements: each is refused by itself.
func TestArraysAreDivided(t *testing.T) {
	w := newWorld(t, options{})
	a := w.send(request{path: "orders/events:batch", body: batchOf(event(1), `{"id":7,"id":7}`, `"[,{\"]"`, `{"id":"B2","event":"e2","n":[1,{"x":"],"}]}`)})
	require.Equal(t, 207, a.status, a.body)
	require.Equal(t, []events.Status{events.Accepted, events.Invalid, events.Invalid, events.Accepted}, statuses(w.rows(a)))
}

// Each row has a result of its own; the good ones are taken in.
func TestBatchWithEveryResult(t *testing.T) {
	w := newWorld(t, options{})
	require.Equal(t, 202, w.send(request{body: event(1)}).status)
	require.Equal(t, 202, w.send(request{body: event(2)}).status)
	a := w.send(request{path: "orders/events:batch", kind: "application/x-ndjson", body: strings.Join([]string{
		event(0), event(1), `{"id":"other","event":"e2"}`, `{"id":7,"id":7}`, `"text"`, event(0), `{"id":"B0","event":"e0","n":1}`, event(2), `{"event":"e0","id":"B0"}`,
	}, "\n")})
	require.Equal(t, 207, a.status, a.body)
	rows := w.rows(a)
	require.Equal(t, []events.Status{
		events.Accepted, events.Duplicate, events.Conflicting, events.Invalid, events.Invalid,
		events.Duplicate, events.Conflicting, events.Duplicate, events.Duplicate,
	}, statuses(rows))
	require.Equal(t, rows[0].ID, rows[5].ID, "twice in one request is once")
	require.Equal(t, rows[0].ID, rows[8].ID)
	require.Regexp(t, "^[0-9a-f]{64}$", rows[2].Stored)
	require.NotEqual(t, rows[2].Stored, rows[2].Fingerprint)
	require.Contains(t, rows[3].Reason, "bad_json")
	require.Contains(t, rows[4].Reason, "no_entity")
	require.Equal(t, []string{"B1", "B2", "B0"}, entities(w))
	require.EqualValues(t, 4, w.metric("weir_idempotency_replays_total"))
	require.EqualValues(t, 2, w.metric("weir_idempotency_conflicts_total"))
}

// The conflicting row comes first, the row of the key second.
func TestBatchFindsTheDuplicateBehindAConflict(t *testing.T) {
	w := newWorld(t, options{})
	require.Equal(t, 202, w.send(request{body: event(1)}).status)
	a := w.send(request{path: "orders/events:batch", body: batchOf(`{"id":"other","event":"e1"}`, event(1), event(1))})
	require.Equal(t, 207, a.status)
	require.Equal(t, []events.Status{events.Conflicting, events.Duplicate, events.Duplicate}, statuses(w.rows(a)))
}

// The key of a batch covers all of it; rows without an id get claims under the key.
func TestBatchWithAKey(t *testing.T) {
	w := newWorld(t, options{})
	q := request{path: "plain/events:batch", key: "load-1", body: `[{"id":"A","n":1},{"id":"A","n":1}]`}
	first := w.send(q)
	require.Equal(t, 202, first.status)
	require.Equal(t, []events.Status{events.Accepted, events.Accepted}, statuses(w.rows(first)))
	require.NotEqual(t, w.rows(first)[0].ID, w.rows(first)[1].ID)
	q.body = "[ {\"n\":1, \"id\":\"A\"},\n{\"id\":\"\\u0041\",\"n\":1} ]"
	again := w.send(q)
	require.Equal(t, first.body, again.body)
	require.Equal(t, "true", again.header.Get(events.ReplayedHeader))
	require.Len(t, w.inbox(), 2)

	q.body = `[{"id":"A","n":1},{"id":"A","n":2}]`
	a := w.send(q)
	require.Equal(t, 422, a.status)
	require.NotEqual(t, w.problem(a).Stored, w.problem(a).Fingerprint)
	require.Len(t, w.inbox(), 2)
}

// A batch that stopped half-way is finished by its repetition, under the same claims.
func TestBatchIsFinishedByItsRepetition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, options{timeout: 300 * time.Millisecond})
		release := make(chan struct{})
		w.setAppends(func(context.Context) error { <-release; return nil })
		q := request{path: "plain/events:batch", key: "load-1", body: `[{"id":"A"},{"id":"B"}]`}
		a := w.send(q)
		require.Equal(t, 503, a.status)
		require.Contains(t, w.problem(a).Detail, "2 of 2 events")
		close(release)
		synctest.Wait()
		require.Len(t, w.inbox(), 2)
		a = w.send(q)
		require.Equal(t, 202, a.status, a.body)
		got := w.inbox()
		require.Len(t, got, 4)
		require.Equal(t, []string{got[0].Claim, got[1].Claim}, []string{got[2].Claim, got[3].Claim})
		require.Equal(t, a.body, w.send(q).body)
		require.Len(t, w.inbox(), 4)
	})
}

// The rows of a request that died are appended again, in their order, and rows whose events
// were accepted meanwhile are duplicates.
func TestBatchAfterOneThatDied(t *testing.T) {
	w := newWorld(t, options{})
	q := request{path: "orders/events:batch", key: "k", body: batchOf(event(1), event(0), `{"id":"B0","event":"e9"}`)}
	w.ledger.set(func() { w.ledger.answers = errors.New("dead") })
	require.Equal(t, 503, w.send(q).status)
	w.ledger.set(func() { w.ledger.answers = nil })
	require.Equal(t, 202, w.send(request{body: event(1)}).status)
	a := w.send(q)
	require.Equal(t, 202, a.status, a.body)
	require.Equal(t, []events.Status{events.Duplicate, events.Accepted, events.Accepted}, statuses(w.rows(a)))
	require.Equal(t, []string{"B1", "B0", "B0", "B1", "B0", "B0"}, entities(w))
	got := w.inbox()
	require.Equal(t, []string{got[1].Claim, got[2].Claim}, []string{got[4].Claim, got[5].Claim})
	require.Equal(t, a.body, w.send(q).body)
}

func TestBatchThatIsAllWrongClaimsNothing(t *testing.T) {
	w := newWorld(t, options{})
	a := w.send(request{path: "orders/events:batch", key: "k", body: `[1,{}]`})
	require.Equal(t, 207, a.status)
	require.Equal(t, []events.Status{events.Invalid, events.Invalid}, statuses(w.rows(a)))
	require.Zero(t, w.ledger.keys())
}
