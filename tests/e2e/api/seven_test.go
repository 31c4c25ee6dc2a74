package api

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/stretchr/testify/require"
)

// The same key with other content is refused and has no effect; content is
// compared by its structure, not by its bytes.
func TestSameKeyDifferentPayload(t *testing.T) {
	both(t, func(t *testing.T, on string) {
		w := newWorld(t, on, "30d").start()
		for i, q := range []request{order("e1", "A", "s1"), keyed("k1", "B", "s2")} {
			first := w.post(w.ins[0], q)
			other := q
			other.body = strings.Replace(q.body, `"s`, `"other`, 1)
			door := w.ins[i%len(w.ins)]
			a := w.post(door, other)
			require.Equal(t, 422, a.status, a.body)
			var p struct {
				Type, Fingerprint string
				Stored            string `json:"stored_fingerprint"`
			}
			require.NoError(t, json.Unmarshal([]byte(a.body), &p))
			require.Equal(t, "urn:weir:problem:key-conflict", p.Type)
			require.Regexp(t, "^[0-9a-f]{64}$", p.Fingerprint)
			require.Regexp(t, "^[0-9a-f]{64}$", p.Stored)
			require.NotEqual(t, p.Stored, p.Fingerprint)
			q.body = strings.ReplaceAll(strings.Replace(q.body, `"id"`, `"\u0069d"`, 1), ",", " ,\n\t")
			require.Equal(t, answer{202, first.body, true, ""}, w.post(door, q))
		}
		require.Equal(t, map[string]int{"s1": 1, "s2": 1}, counted(w.states("")))
	})
}

func boolean(b bool) int {
	if b {
		return 1
	}
	return 0
}

// The answer is lost on its way, so the client sends the request again: to the
// same process, to another one, or after a restart.
func TestRedelivery(t *testing.T) {
	both(t, func(t *testing.T, on string) {
		w := newWorld(t, on, "30d").start()
		requests := []request{
			order("e1", "A", "s1"), keyed("k1", "B", "s2"),
			{path: "orders/events:batch", body: `[{"event":"e2","id":"C","state":"s3"},{"event":"e3","id":"C","state":"s4"}]`},
			{path: "plain/events:batch", key: "k2", body: `[{"id":"D","state":"s5"},{"id":"D","state":"s6"}]`},
		}
		for _, q := range requests {
			w.hangUp(w.ins[0], q)
		}
		w.wants(6) // all were taken in, though nobody heard so
		for _, door := range w.ins {
			for i, q := range requests {
				w.finish(door, q)
				a := w.post(door, q)
				require.Equal(t, 202, a.status, a.body)
				if i != 2 { // a batch without a key has an answer of its own each time
					require.True(t, a.replayed)
				} else {
					require.Equal(t, 2, strings.Count(a.body, `"duplicate"`), a.body)
				}
			}
		}
		w.stop()
		w.start()
		for _, q := range requests {
			require.Equal(t, 202, w.post(w.ins[0], q).status)
		}
		require.Equal(t, map[string]int{"s1": 1, "s2": 1, "s3": 1, "s4": 1, "s5": 1, "s6": 1}, counted(w.states("")))
	})
}

// hangUp sends a request and closes the connection before any answer.
func (w *world) hangUp(door *harness.Process, q request) {
	w.t.Helper()
	conn, err := net.Dial("tcp", door.Address("ingest"))
	require.NoError(w.t, err)
	_, err = fmt.Fprintf(conn, "POST /v1/sources/%s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n", q.path, conn.RemoteAddr(), len(q.body))
	require.NoError(w.t, err)
	if q.key != "" {
		_, err = fmt.Fprintf(conn, "Idempotency-Key: %s\r\n", q.key)
		require.NoError(w.t, err)
	}
	_, err = fmt.Fprintf(conn, "\r\n%s", q.body)
	require.NoError(w.t, err)
	// Both directions: the server learns at once that the client is gone.
	require.NoError(w.t, conn.Close())
}

// A log of requests that is played again, backwards and by many at once, changes
// nothing: the same state at the customer, the same effects.
func TestReplayConverges(t *testing.T) {
	both(t, func(t *testing.T, on string) {
		w := newWorld(t, on, "30d").start()
		random := rand.New(rand.NewPCG(7, 7))
		var log []request
		effects := 0
		for n := range 120 {
			entity, state := fmt.Sprint("E", random.IntN(6)), fmt.Sprint("s", n)
			switch random.IntN(3) {
			case 0:
				log = append(log, order(fmt.Sprint("e", n), entity, state))
				effects++
			case 1:
				log = append(log, keyed(fmt.Sprint("k", n), "plain "+entity, state))
				effects++
			default:
				log = append(log, request{path: "orders/events:batch", key: fmt.Sprint("b", n), body: fmt.Sprintf(
					`[{"event":"x%d","id":%q,"state":"%s-1"},{"event":"y%d","id":%q,"state":"%s-2"}]`, n, entity, state, n, entity, state)})
				effects += 2
			}
		}
		first := make([]answer, len(log))
		for i, q := range log {
			first[i] = w.post(w.ins[i%len(w.ins)], q)
			require.Equal(t, 202, first[i].status, first[i].body)
		}
		w.wants(effects)
		before := w.p.Whole("out/acme.jsonl")

		backwards := slices.Clone(log)
		slices.Reverse(backwards)
		for i, q := range backwards {
			require.Equal(t, answer{202, first[len(log)-1-i].body, true, ""}, w.post(w.ins[0], q))
		}
		order := random.Perm(len(log) * 3)
		parallel(8, func(worker int) {
			for n := worker; n < len(order); n += 8 {
				i := order[n] % len(log)
				if a := w.finish(w.ins[n%len(w.ins)], log[i]); a.body != first[i].body || !a.replayed {
					t.Errorf("%s: %d %s, not %s", log[i].body, a.status, a.body, first[i].body)
				}
			}
		})
		w.states("")
		require.Equal(t, before, w.p.Records("out/acme.jsonl"), "the same records in the same order")
	})
}
