package decide

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/store"
)

// heardFrom are records of sessions of the log shop, in the order in which they are appended.
type heardFrom struct {
	t      *testing.T
	offset int64
}

func (h *heardFrom) record(r change.Record) transport.Received {
	h.t.Helper()
	key, head, value, err := change.EncodeRecord(r)
	require.NoError(h.t, err)
	h.offset++
	return transport.Received{Key: key, Value: value, Headers: []transport.Header{{Key: change.InboxHeader, Value: head}}, Offset: h.offset - 1, Time: time.UnixMilli(1)}
}

func sessionOf(number int64, name string) change.Session {
	return change.Session{Log: "shop", Number: number, Name: name}
}

func (h *heardFrom) barrier(s change.Session, sequence string) transport.Received {
	h.t.Helper()
	return h.record(change.Record{Control: &change.Control{Action: change.Barrier, Session: s, Sequence: sequence}})
}

// row is an event of the entity B at a place of an epoch.
func (h *heardFrom) row(s change.Session, epoch string, lsn int64, level int) transport.Received {
	h.t.Helper()
	return h.record(change.Record{Entity: "B", Event: h.event(s, epoch, lsn, fmt.Sprintf(`{"id":"B","ripeness_level":%d}`, level))})
}

func (h *heardFrom) event(s change.Session, epoch string, lsn int64, payload string) *change.Event {
	e := &change.Event{Origin: change.Origin{Source: "registry", Topic: epoch + "-1", Offset: lsn}, Sequence: epoch + ".1", Session: s, Op: change.Upsert, Payload: []byte(payload)}
	if payload == "" {
		e.Op, e.Payload = change.Delete, nil
	}
	return e
}

// decided are the outcomes of the history of B.
func (w *flow) decided(t *testing.T) []string {
	t.Helper()
	e, err := w.store.Entity(t.Context(), "B")
	require.NoError(t, err)
	return words(historyOf(t, e))
}

func (w *flow) floor(t *testing.T) store.Floor {
	t.Helper()
	all, err := w.store.Floors(t.Context(), "shop")
	require.NoError(t, err)
	require.Len(t, all, 1)
	return all[0]
}

// I5: behind the barrier of a session no event of another one takes effect, at any place.
func TestOneSessionOfALogIsHeard(t *testing.T) {
	w, h := newFlow(t), &heardFrom{t: t}
	d, _ := w.owner(t, nil)
	one, two, twin := sessionOf(1, "one"), sessionOf(2, "two"), sessionOf(2, "twin")
	hand(t, d, 0, h.barrier(one, ""), h.row(one, "t1", 10, 1))
	require.Equal(t, store.Floor{Partition: store.Partition{Generation: 1}, Session: one, Sequence: "t1.1", Offset: 10}, w.floor(t))
	hand(t, d, 0, h.barrier(two, "t1"), h.row(one, "t1", 20, 2)) // in one batch
	hand(t, d, 0, h.row(twin, "t1", 30, 3), h.row(one, "t9", 40, 4))
	require.Equal(t, []string{"1:1 registry  merged", "1:3 registry  stale: source", "1:5 registry  stale: source"}, w.decided(t))
	require.Equal(t, store.Floor{Partition: store.Partition{Generation: 1}, Session: two, Sequence: "t1.1", Offset: 10}, w.floor(t), "what is not heard is not seen")
	hand(t, d, 0, h.row(two, "t1", 20, 5))
	require.Equal(t, int64(20), w.floor(t).Offset)
	hand(t, d, 0, h.barrier(one, "t9"), h.row(two, "t1", 25, 6))
	require.Equal(t, "1:8 registry  merged", w.decided(t)[4], "a floor is never lowered")
	require.Equal(t, "t1.1", w.floor(t).Sequence, "nor is the epoch of a late barrier noted")

	// The next owner knows it from the store.
	next, _ := w.owner(t, nil)
	hand(t, next, 0, h.row(one, "t1", 50, 7), h.row(two, "t1", 30, 8))
	require.Equal(t, []string{"1:9 registry  stale: source", "1:10 registry  merged"}, w.decided(t)[5:])
	// Retention removed the barrier of a later one.
	three := sessionOf(3, "three")
	hand(t, next, 0, h.row(three, "t1", 40, 9), h.row(two, "t1", 50, 10))
	require.Equal(t, []string{"1:11 registry  merged", "1:12 registry  stale: source"}, w.decided(t)[6:])
}

// I5: a barrier whose session the row of its log lacks shows that the store was restored.
func TestABarrierTearsTheRowThatLacksIt(t *testing.T) {
	w, h := newFlow(t), &heardFrom{t: t}
	d, _ := w.owner(t, nil)
	row := store.SourceLog{Session: sessionOf(2, "mine")}
	_, err := w.store.SwapSourceLog(t.Context(), store.SourceLog{}, row)
	require.NoError(t, err)
	hand(t, d, 0, h.barrier(sessionOf(1, "before"), ""), h.barrier(row.Session, ""))
	stored, err := w.store.SourceLog(t.Context(), "shop")
	require.NoError(t, err)
	require.False(t, stored.Torn)
	hand(t, d, 0, h.barrier(sessionOf(2, "another"), ""))
	stored, err = w.store.SourceLog(t.Context(), "shop")
	require.NoError(t, err)
	require.True(t, stored.Torn)
	require.Equal(t, "another", stored.Name)
	require.Equal(t, "mine", w.floor(t).Name, "equal numbers: the first one is heard, and the next session takes a higher number")
}

// I5: the letter of an epoch that ended is obsolete, since all rows were read again; within an
// epoch its place decides, also when another session reads.
func TestALetterOfAnEarlierEpochIsObsolete(t *testing.T) {
	w, h := newFlow(t), &heardFrom{t: t}
	d, _ := w.owner(t, nil)
	one, two, three := sessionOf(1, "one"), sessionOf(2, "two"), sessionOf(3, "three")
	letter := func(lsn int64, level int) transport.Received {
		e := h.event(one, "t1", lsn, fmt.Sprintf(`{"id":"B","ripeness_level":%d}`, level))
		e.Replay = &change.Replay{Letter: 1, Died: 1}
		return h.record(change.Record{Entity: "B", Event: e})
	}
	hand(t, d, 0, h.barrier(one, "t1"), h.row(one, "t1", 10, 1), h.barrier(two, "t1"), letter(20, 2))
	require.Equal(t, []string{"1:1 registry  merged", "1:3 registry  merged"}, w.decided(t))
	hand(t, d, 0, h.barrier(three, "t3"), letter(30, 3))
	require.Equal(t, []string{"1:5 registry  stale: source"}, w.decided(t)[2:])
}

// I9: a document that lacks an event is not the one before the next event: unchanged columns are
// not filled from it, and a sweep does not delete an entity whose row was refused.
func TestARefusedEventLeavesItsPlace(t *testing.T) {
	start := func(t *testing.T) (*flow, *Decider, *heardFrom) {
		w, h := newFlow(t), &heardFrom{t: t}
		d, _ := w.owner(t, nil)
		hand(t, d, 0, h.row(change.Session{}, "t1", 10, 1))
		return w, d, h
	}
	refused := func(h *heardFrom, lsn int64) transport.Received {
		e := h.event(change.Session{}, "t1", lsn, "")
		e.Op, e.Refusal = change.Refused, "oversized"
		return h.record(change.Record{Entity: "B", Event: e})
	}
	partial := func(h *heardFrom, lsn int64) transport.Received {
		e := h.event(change.Session{}, "t1", lsn, `{"id":"B","ripeness_level":3}`)
		e.Unchanged = []string{"ripeness_level"}
		return h.record(change.Record{Entity: "B", Event: e})
	}
	gone := func(h *heardFrom, lsn int64) transport.Received {
		return h.record(change.Record{Entity: "B", Event: h.event(change.Session{}, "t1", lsn, "")})
	}
	for name, c := range map[string]struct {
		then []func(*heardFrom) transport.Received
		want []string
	}{
		"an update after it": {
			[]func(*heardFrom) transport.Received{func(h *heardFrom) transport.Received { return partial(h, 30) }},
			[]string{"refused", "dead letter"},
		},
		"updates until one with all columns": {
			[]func(*heardFrom) transport.Received{
				func(h *heardFrom) transport.Received { return partial(h, 30) },
				func(h *heardFrom) transport.Received { return partial(h, 31) },
				func(h *heardFrom) transport.Received { return h.row(change.Session{}, "t1", 40, 4) },
				func(h *heardFrom) transport.Received { return partial(h, 50) },
			},
			[]string{"refused", "dead letter", "dead letter", "merged", "noise"},
		},
		"a sweep at the place of the row": {
			[]func(*heardFrom) transport.Received{func(h *heardFrom) transport.Received { return gone(h, 20) }},
			[]string{"refused", "stale: position"},
		},
		"a sweep below it": {
			[]func(*heardFrom) transport.Received{func(h *heardFrom) transport.Received { return gone(h, 15) }},
			[]string{"refused", "stale: position"},
		},
		"its deletion": {
			[]func(*heardFrom) transport.Received{func(h *heardFrom) transport.Received { return gone(h, 21) }},
			[]string{"refused", "merged"},
		},
		"the letter itself, and an update": {
			[]func(*heardFrom) transport.Received{
				func(h *heardFrom) transport.Received {
					e := h.event(change.Session{}, "t1", 20, `{"id":"B","ripeness_level":2}`)
					e.Replay = &change.Replay{Letter: 1, Died: 1}
					return h.record(change.Record{Entity: "B", Event: e})
				},
				func(h *heardFrom) transport.Received { return partial(h, 30) },
			},
			[]string{"refused", "merged", "noise"},
		},
		"the letter, behind an update": {
			[]func(*heardFrom) transport.Received{
				func(h *heardFrom) transport.Received { return partial(h, 30) },
				func(h *heardFrom) transport.Received {
					e := h.event(change.Session{}, "t1", 20, `{"id":"B","ripeness_level":2}`)
					e.Replay = &change.Replay{Letter: 1, Died: 1}
					return h.record(change.Record{Entity: "B", Event: e})
				},
				func(h *heardFrom) transport.Received { return partial(h, 40) },
			},
			[]string{"refused", "dead letter", "merged", "dead letter"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, d, h := start(t)
			hand(t, d, 0, refused(h, 20))
			for _, next := range c.then {
				hand(t, d, 0, next(h))
			}
			want := []string{"1:0 registry  merged"}
			for i, word := range c.want {
				want = append(want, fmt.Sprintf("1:%d registry  %s", i+1, word))
			}
			require.Equal(t, want, w.decided(t))
		})
	}
}
