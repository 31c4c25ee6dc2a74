package deliver_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
)

func TestLogSinkGetsEveryChangeInOrder(t *testing.T) {
	p, s := only(t, logOf(3), patiently)
	fails := 4
	s.answer(func([]change.Change) error {
		if fails--; fails > 0 {
			return refuse(sinks.Retry, true)
		}
		return nil
	})
	var want []string
	for i := range int64(10) {
		p.publish(of(service, "X", 2*i), of(service, "X", 2*i+1))
		want = append(want, fmt.Sprintf("X:%d", 2*i), fmt.Sprintf("X:%d", 2*i+1))
	}
	p.delivered()
	p.concluded(0)
	require.Equal(t, want, s.has())
	for _, w := range s.attempts() {
		require.LessOrEqual(t, len(w), 3)
	}
}

// A state sink gets the newest of all changes of an entity in hand, not one per chunk.
func TestAFrameIsCoalescedAsAWhole(t *testing.T) {
	p, s := only(t, sinks.Traits{Kind: sinks.State, MaxBatch: 2})
	var changes []change.Change
	for i := range int64(9) {
		changes = append(changes, of(service, fmt.Sprint("e", i%3), i))
	}
	p.publish(changes...)
	p.delivered()
	require.Equal(t, [][]string{{"e0:6", "e1:7"}, {"e2:8"}}, s.attempts())
	// A frame that was read from the store is compared with the dam instead.
	require.EqualValues(t, 6, p.count(deliver.OutcomeCoalesced)+p.count(deliver.OutcomeOvertaken))
}

// A partly delivered frame is saved before the next write to an unguarded target: after a crash
// its successor resumes there.
func TestThePositionMovesWithinAFrame(t *testing.T) {
	p, s := only(t, logOf(3))
	changes, names := many(0, 8)
	var positions []int64
	s.answer(func(batch []change.Change) error {
		positions = append(positions, p.position(service).Offset())
		if slices.Contains(names[6:], name(batch[0])) {
			return refuse(sinks.Retry, false)
		}
		return nil
	})
	p.publish(changes...)
	require.Eventually(t, func() bool { return len(s.attempts()) > 3 }, patience, time.Millisecond)
	require.NoError(t, p.stop())
	require.Equal(t, names[:6], s.has())
	require.Equal(t, []int64{0, 3, 6}, positions[:3])
	require.Equal(t, at(6), p.position(service))

	next := p.start(map[string]sinks.Traits{service: logOf(3)})
	next.delivered()
	require.Equal(t, names[6:], next.sinks[service].has())
}

// A repeated frame, with any borders, has no second effect.
func TestRepetitionsAreSkipped(t *testing.T) {
	p, s := only(t, logOf(100))
	changes, names := many(0, 6)
	p.publish(changes[:2]...)
	p.publish(changes[2:4]...)
	p.delivered()
	p.handOver(p.encode(change.Frame{From: at(0), To: at(3), Revision: 1}, changes[:3]...))
	p.handOver(p.decideFrom(3, changes[3:]...))
	p.delivered()
	require.Equal(t, names[:4], s.has()[:4])
	require.Equal(t, names[4:], s.has()[len(s.has())-2:])
	require.LessOrEqual(t, len(s.has()), 7, "at most what stands in a frame that overlaps")
}

func TestRefusedChangeIsFoundByBisection(t *testing.T) {
	p, s := only(t, state)
	s.answer(func(changes []change.Change) error {
		for _, c := range changes {
			if c.Entity == "bad" {
				return refuse(sinks.Reject, false)
			}
		}
		return nil
	})
	bad := of(service, "bad", 0)
	changes := []change.Change{bad}
	for i := range 20 {
		changes = append(changes, of(service, fmt.Sprint("e", i), int64(i+1)))
	}
	p.publish(changes...)
	p.delivered()
	require.Len(t, s.has(), 20)
	letters := p.letters()
	require.Len(t, letters, 1)
	require.Equal(t, store.StageDeliver, letters[0].Stage)
	require.Equal(t, "refused", letters[0].Code)
	require.Equal(t, "bad", letters[0].Entity)
	require.Equal(t, []string{"refuse bad", "letter bad"}, p.order(), "a crash in between repeats both")
	require.Equal(t, change.Refuse, p.controls[0].Action)
	require.Equal(t, []string{service}, p.controls[0].Services)
	require.Equal(t, bad.Version, p.controls[0].Version)
	shown, err := p.store.Letter(t.Context(), letters[0].ID)
	require.NoError(t, err)
	require.Equal(t, string(bad.AppendRecord(nil)), string(shown.Payload))
	var beside deliver.LetterHeaders
	require.NoError(t, json.Unmarshal(shown.Headers, &beside))
	require.Equal(t, deliver.LetterHeaders{Time: bad.Time.UnixMilli(), Revision: bad.Revision, Content: bad.Content}, beside)
}

func TestAnOldFailureEndsInALetter(t *testing.T) {
	p, s := only(t, state)
	s.answer(troubled("bad"))
	p.publish(of(service, "bad", 0), of(service, "good", 1))
	p.delivered()
	p.concluded(1)
	require.Equal(t, []string{"good:1"}, s.has())
	require.Equal(t, "gave_up", p.letters()[0].Code)
	require.EqualValues(t, 1, p.count(deliver.OutcomeDead))
}

// troubled answers with an error to the entities of of, to all of them without any.
func troubled(of ...string) func(changes []change.Change) error {
	return func(changes []change.Change) error {
		failed := map[int]error{}
		for i, c := range changes {
			if len(of) == 0 || slices.Contains(of, c.Entity) {
				failed[i] = refuse(sinks.RetryBounded, true)
			}
		}
		if len(failed) == 0 {
			return nil
		}
		return &sinks.BatchError{Failed: failed}
	}
}

// A receiver that answers 500 to everything gets all later, without a dead letter. One that does so to
// some entities, and takes others, gets the others at once.
func TestATargetThatFailsForEverything(t *testing.T) {
	p, s := only(t, state, patiently)
	changes, names := many(0, 5)
	s.answer(troubled())
	p.publish(changes...)
	require.Eventually(t, func() bool { return len(s.attempts()) > 10 }, patience, time.Millisecond, "it is tried on")
	p.delivered()
	require.Equal(t, 5, p.stage.Conditions()[service].Parked.Rows)
	require.Equal(t, deliver.StateRetrying, p.stage.Conditions()[service].State)
	s.answer(nil)
	p.concluded(0)
	require.ElementsMatch(t, names, s.has())

	s.answer(troubled("bad", "worse"))
	p.publish(of(service, "bad", 5), of(service, "good", 6), of(service, "worse", 7))
	p.delivered()
	require.Contains(t, s.has(), "good:6")
	require.Equal(t, 2, p.stage.Conditions()[service].Parked.Rows)
}

func TestPauseAndGoOn(t *testing.T) {
	p, s := only(t, state)
	s.answer(func([]change.Change) error { return refuse(sinks.Pause, false) })
	p.publish(of(service, "X", 0))
	require.Eventually(t, func() bool { return p.stage.Conditions()[service].State == deliver.StatePaused }, patience, time.Millisecond)
	require.Eventually(t, func() bool { return len(s.attempts()) > 5 }, patience, time.Millisecond, "it is probed")
	require.Empty(t, p.letters())
	require.False(t, p.stage.Idle())
	s.answer(nil)
	p.delivered()
	require.Equal(t, deliver.StateRunning, p.stage.Conditions()[service].State)
	require.Eventually(t, p.stage.Idle, patience, time.Millisecond)
}

// I10: while a change is tried again, a newer one may be decided, and be there
// before it.
func TestRetryLeavesOutWhatWasOvertaken(t *testing.T) {
	p, s := only(t, state, seldom)
	s.answer(func([]change.Change) error { return refuse(sinks.Retry, false) })
	p.publish(of(service, "X", 0))
	require.Eventually(t, func() bool { return len(s.attempts()) > 0 }, patience, time.Millisecond)
	newer := p.decide(of(service, "X", 1)) // decided while the first one is being tried
	require.Eventually(t, func() bool { return p.count(deliver.OutcomeOvertaken) == 1 }, patience, time.Millisecond)
	require.Empty(t, s.has())
	s.answer(nil)
	p.handOver(newer)
	p.delivered()
	require.Equal(t, []string{"X:1"}, s.has())
}

func TestOpenIsTriedAgain(t *testing.T) {
	tries := 0
	p, s := only(t, state, func(o *deliver.Options) {
		o.Services[0].Sink.(*sink).open = func() error {
			if tries++; tries < 3 {
				return refuse(sinks.Pause, false)
			}
			return nil
		}
	})
	p.publish(of(service, "X", 0))
	p.delivered()
	require.Equal(t, []string{"X:0"}, s.has())
	require.Equal(t, 3, tries)
}

func TestStopWhileTheSinkIsAway(t *testing.T) {
	p, s := only(t, state, seldom)
	s.answer(func([]change.Change) error { return refuse(sinks.Retry, false) })
	p.publish(of(service, "X", 0))
	require.Eventually(t, func() bool { return len(s.attempts()) > 0 }, patience, time.Millisecond)
	require.NoError(t, p.stop())
	require.True(t, s.closed)
	require.Zero(t, p.position(service).Offset(), "it comes again")
	require.Empty(t, p.letters())
}

// I5: a process took two changes of an entity in one batch, sent the newer one
// and died before that was saved. When both come again, the older one must not go
// out behind the newer.
func TestAnOlderChangeDoesNotComeBehindTheNewerOneAfterACrash(t *testing.T) {
	w := newWorld(t, service)
	w.decide(of(service, "a", 0), of(service, "b", 1))
	w.decide(of(service, "a", 2))
	p := w.start(map[string]sinks.Traits{service: state})
	p.delivered()
	require.Equal(t, []string{"b:1", "a:2"}, p.sinks[service].has(), "the newer one may have been there already")
}

// heldRows is a store that answers Rows once it is let.
type heldRows struct {
	deliver.Store
	let chan struct{}
}

func (h heldRows) Rows(ctx context.Context, keys []store.Key) ([]store.Row, error) {
	<-h.let
	return h.Store.Rows(ctx, keys)
}

// A takeover repeats more frames than there is room for in hand, and none of them needs a
// delivery: the one behind them is delivered without another wake-up.
func TestOvertakenFramesDoNotStallTheQueue(t *testing.T) {
	w := newWorld(t, service)
	const frames = 300
	for n := range int64(frames) {
		w.publish(of(service, "a", n))
	}
	w.publish(of(service, "a", frames))
	let := make(chan struct{})
	p := w.start(map[string]sinks.Traits{service: {Kind: sinks.State, MaxBatch: 1}}, func(o *deliver.Options) { o.Store = heldRows{o.Store, let} })
	require.Eventually(t, func() bool { return p.handled.Load() > frames }, patience, time.Millisecond)
	close(let)
	p.delivered()
	require.Equal(t, []string{name(of(service, "a", frames))}, p.sinks[service].has())
}

// A log sink, and a target that turns older changes away itself, get them all.
func TestRedeliveredChangesThatGoOut(t *testing.T) {
	for _, traits := range []sinks.Traits{logOf(100), {Kind: sinks.State, MaxBatch: 1, Guarded: true}} {
		w := newWorld(t, service)
		w.decide(of(service, "a", 0))
		p := w.start(map[string]sinks.Traits{service: traits})
		p.delivered()
		p.stage.Ends(0, w.decide(of(service, "b", 1), of(service, "a", 2)).To)
		p.delivered()
		require.Equal(t, []string{"a:0", "b:1", "a:2"}, p.sinks[service].has())
	}
}

// A dead letter of a log sink that an operator sends again goes out behind what
// is newer, by the position of its control record.
func TestAResentChange(t *testing.T) {
	p, s := only(t, logOf(100))
	old, newer := of(service, "a", 0), of(service, "a", 1)
	p.publish(newer)
	old.Resent = at(2)
	p.publish(old)
	p.publish(of(service, "a", 3))
	p.delivered()
	require.Equal(t, []string{"a:1", "a:0", "a:3"}, s.has())

	s.answer(func([]change.Change) error { return refuse(sinks.Reject, false) })
	c := of(service, "b", 4)
	p.publish(c)
	c.Resent = at(5)
	p.publish(c)
	p.delivered()
	letters := p.letters()
	require.Len(t, letters, 1)
	require.EqualValues(t, 2, letters[0].Count, "that it died again is news")
	require.Equal(t, []any{at(4), at(5)}, []any{letters[0].Version, letters[0].Position})
}

// A frame that cannot be read becomes a dead letter and its changes are lost; the frames around it are
// delivered, and those of the store in its place.
func TestAMalformedFrameIsALetter(t *testing.T) {
	for name, body := range map[string]func([]byte) []byte{
		"header": func([]byte) []byte { return []byte("?") },
		"body":   func(b []byte) []byte { return b[:len(b)-1] },
	} {
		t.Run(name, func(t *testing.T) {
			p, s := only(t, logOf(100))
			p.publish(of(service, "a", 0))
			p.delivered()
			p.spoil = body
			p.publish(of(service, "x", 1))
			p.spoil = nil
			p.publish(of(service, "b", 2))
			p.delivered()
			require.Equal(t, []string{"a:0", "b:2"}, s.has())
			letters := p.letters()
			require.Len(t, letters, 1)
			require.Equal(t, []any{"malformed", store.StageDeliver}, []any{letters[0].Code, letters[0].Stage})
			require.NoError(t, p.stop())
			p.start(map[string]sinks.Traits{service: logOf(100)}).delivered()
			require.Len(t, p.letters(), 1)
		})
	}
}

func TestAMessageWithoutAFrame(t *testing.T) {
	p, _ := only(t, state)
	require.Error(t, p.stage.Handle(message.NewMessage("", nil)))
}

var errTable = errors.New("the table has other columns")

func rejecting(changes []change.Change) error {
	failed := map[int]error{}
	for i := range changes {
		failed[i] = &sinks.Error{Class: sinks.Reject, Op: "insert", Err: errTable}
	}
	return &sinks.BatchError{Failed: failed}
}

func revision(n int64) func(*deliver.Options) { return func(o *deliver.Options) { o.Revision = n } }

// I12: a change decided under an older configuration that the sink refuses under the present
// one is decided again and is no dead letter.
func TestRefusedChangeOfAnOlderRevisionIsDecidedAgain(t *testing.T) {
	w := newWorld(t, service)
	c := of(service, "a", 0)
	w.publish(c)
	w.activate(2)
	p := w.start(map[string]sinks.Traits{service: state}, revision(2), func(o *deliver.Options) { o.Services[0].Sink.(*sink).write = rejecting })
	p.delivered()
	require.Equal(t, []string{"redecide a"}, p.order())
	control := p.controls[0]
	require.Equal(t, []string{service}, control.Services)
	require.NotEmpty(t, control.ID)
	require.True(t, control.Force, "an equal content has to pass")
	require.Equal(t, c.Version, control.Version, "unless a newer one was decided")
	require.Empty(t, p.letters())
}

// A refusal of the whole write, after a table got a column, may mean each change: they are
// tried one by one, and those of the older configuration are decided again.
func TestOlderChangesThatAreRefusedAlikeDoNotPauseTheService(t *testing.T) {
	w := newWorld(t, service)
	w.publish(of(service, "a", 0), of(service, "c", 1), of(service, "c", 2))
	w.activate(2)
	p := w.start(map[string]sinks.Traits{service: logOf(100)}, revision(2), func(o *deliver.Options) {
		o.Services[0].Sink.(*sink).write = func(changes []change.Change) error {
			older := false
			for _, c := range changes {
				older = older || c.Revision < 2
			}
			switch {
			case older && len(changes) > 1:
				return &sinks.Error{Class: sinks.Pause, Op: "insert", Err: errTable}
			case older:
				return rejecting(changes)
			}
			return nil
		}
	})
	p.publish(of(service, "b", 3))
	p.delivered()
	require.Equal(t, []string{"b:3"}, p.sinks[service].has())
	require.Equal(t, []string{"redecide a", "refuse c", "letter c", "redecide c"}, p.order())
}

// I12: a frame of a newer configuration is given back, and so is nothing that
// this process's sinks could write in their own way.
func TestAFrameOfANewerRevisionIsNotDelivered(t *testing.T) {
	p, s := only(t, state)
	p.publish(of(service, "a", 0))
	p.delivered()
	p.activate(2)
	p.publish(of(service, "b", 1))
	select {
	case err := <-p.errs:
		require.ErrorIs(t, err, store.ErrSuperseded)
	case <-time.After(patience):
		require.FailNow(t, "it is delivered")
	}
	require.Positive(t, p.superseded.Load())
	require.Equal(t, []string{"a:0"}, s.has())
}
