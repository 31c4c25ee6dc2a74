package deliver_test

import (
	"errors"
	"testing"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/inbox"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
)

var errTable = errors.New("the table has other columns")

func rejecting(changes []change.Change) error {
	failed := map[int]error{}
	for i := range changes {
		failed[i] = &sinks.Error{Class: sinks.Reject, Op: "insert", Err: errTable}
	}
	return &sinks.BatchError{Failed: failed}
}

// I12: what was decided under an older configuration and does not fit the sink
// any more is decided again, in the order release, redecide; it is no dead letter
// and does not come again.
func TestRefusedChangeOfAnOlderRevisionIsDecidedAgain(t *testing.T) {
	f := newFixtureOf(t, state, 2)
	f.sink.answer(rejecting)
	c := f.change("a", 7)
	f.done(f.hand(c))
	require.Equal(t, []string{"release a", "redecide a"}, f.events)
	for _, control := range f.controls {
		require.Equal(t, []string{service}, control.Services)
		require.NotEmpty(t, control.ID)
		require.False(t, control.Force, "what the release does not let through is there already")
	}
	require.Equal(t, c.Version, f.controls[0].Version)
	require.Equal(t, inbox.Redecide, f.controls[1].Action)
	require.Zero(t, f.row("a").DeliveredVersion, "it is not delivered")
	letters, err := f.store.ListLetters(t.Context(), store.LetterFilter{})
	require.NoError(t, err)
	require.Empty(t, letters)
}

// A sink that refuses a whole batch of older changes, as one does whose table
// got a column, may mean each of them: it is asked one by one. What the present
// configuration decided goes through.
func TestOlderChangesThatAreRefusedAlikeDoNotPauseTheService(t *testing.T) {
	f := newFixtureOf(t, sinks.Traits{Kind: sinks.Log, MaxBatch: 100}, 2)
	f.sink.answer(func(changes []change.Change) error {
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
	})
	present := f.change("b", 2)
	present.Revision = 2
	f.done(f.hand(f.change("a", 1), present, f.change("c", 3), f.change("d", 4)))
	require.Equal(t, []string{name(present)}, f.sink.has())
	require.Equal(t, []string{"release a", "redecide a", "release c", "redecide c", "release d", "redecide d"}, f.events)
}

// A service that is refused as a whole still pauses, whatever the revision.
func TestOlderChangesWaitForARefusedService(t *testing.T) {
	f := newFixtureOf(t, state, 2)
	refused := make(chan struct{}, 100)
	f.sink.answer(func([]change.Change) error {
		select {
		case refused <- struct{}{}:
		default:
		}
		return &sinks.Error{Class: sinks.Pause, Op: "insert", Err: errors.New("401")}
	})
	c := f.change("a", 1)
	handed := f.hand(c)
	for range 5 {
		<-refused
	}
	f.sink.answer(nil)
	f.done(handed)
	require.Equal(t, []string{name(c)}, f.sink.has())
	require.Empty(t, f.events)
}

// What an operator sent again as it was dies again.
func TestResentChangeOfAnOlderRevisionIsADeadLetter(t *testing.T) {
	f := newFixtureOf(t, sinks.Traits{Kind: sinks.Log, MaxBatch: 100}, 2)
	f.sink.answer(rejecting)
	c := f.change("a", 7)
	c.Resent = change.NewVersion(1, 9)
	f.done(f.hand(c))
	require.Equal(t, []string{"release a", "letter a"}, f.events)
}

// I12: a change of a newer configuration is given back, and so is nothing that
// this process's sink could write in its own way.
func TestChangeOfANewerRevisionIsNotDelivered(t *testing.T) {
	f := newFixture(t, state)
	c := f.change("a", 7)
	c.Revision = 2
	_, err := f.store.Activate(t.Context(), []byte("newer"), false)
	require.NoError(t, err)
	older := f.change("b", 6)
	require.ErrorIs(t, f.await(f.handFrame(f.frame(record(older), record(older, c), record(older)))), store.ErrSuperseded)
	require.EqualValues(t, 1, f.superseded.Load())
	require.Empty(t, f.sink.attempts(), "not even the older ones of its frame")
	require.Zero(t, f.row("b").DeliveredVersion)
	f.done(f.hand(older))
	require.Equal(t, []string{name(older)}, f.sink.has())
}

// A record that is none of the service's says nothing about revisions, whatever
// it seems to hold.
func TestRevisionOfAMalformedRecord(t *testing.T) {
	f := newFixture(t, state)
	_, err := f.store.Activate(t.Context(), []byte("newer"), false)
	require.NoError(t, err)
	newer, other := f.change("a", 7), f.change("a", 7)
	newer.Revision, other.Service = 2, "acme/all@other"
	f.done(f.hand(newer, other))
	require.Len(t, f.letters(), 1)
	require.Empty(t, f.sink.attempts())
}

// A store that failed over without its last commits may have lost the revision
// under which a change was decided. Nobody has that configuration then: the
// change must not hold up its service, and counts as one of another configuration.
func TestChangeOfARevisionThatTheStoreLostIsDelivered(t *testing.T) {
	f := newFixture(t, state)
	c := f.change("a", 7)
	c.Revision = 2
	f.done(f.hand(c))
	require.Equal(t, []string{name(c)}, f.sink.has())
	require.Zero(t, f.superseded.Load())

	f.sink.answer(rejecting)
	refused := f.change("b", 8)
	refused.Revision = 2
	f.done(f.hand(refused))
	require.Equal(t, []string{"release b", "redecide b"}, f.events)
}

// A log sink is to get every change: one of an older configuration that is not
// the newest of its entity would be nowhere after a new decision.
func TestRefusedChangeOfAnOlderRevisionThatIsNotTheNewestOfALog(t *testing.T) {
	f := newFixtureOf(t, sinks.Traits{Kind: sinks.Log, MaxBatch: 100}, 2)
	f.sink.answer(rejecting)
	older, newest := f.change("a", 7), f.change("a", 8)
	f.done(f.hand(older, newest))
	require.Equal(t, []string{"release a", "letter a", "release a", "redecide a"}, f.events)
	require.Equal(t, older.Version, f.controls[0].Version)
	require.Equal(t, newest.Version, f.controls[1].Version)
}
