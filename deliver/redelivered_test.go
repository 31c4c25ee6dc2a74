package deliver_test

import (
	"testing"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/transport"
	"github.com/stretchr/testify/require"
)

// again hands one change in as the next of the topic, one that may have been in
// hand before, and waits until it is done.
func (f *fixture) again(c change.Change) {
	r := record(c)
	r.Redelivered = true
	f.done(f.handFrame(f.frame(r)))
}

// I5: a process took two changes of an entity in one batch, sent the newer one
// and died before the confirm. When both come again one by one, the older one
// must not go out behind the newer.
func TestAnOlderChangeDoesNotComeBehindTheNewerOneAfterACrash(t *testing.T) {
	f := newFixture(t, state)
	older, newer := f.change("a", 1), f.change("a", 2)
	f.again(older)
	require.Empty(t, f.sink.has(), "the newer one may be there already")
	f.again(newer)
	require.Equal(t, []string{name(newer)}, f.sink.has())
	require.Equal(t, newer.Version, f.row("a").DeliveredVersion)
}

// I5: the newer change was sent by a process that died, the newest is decided.
// What take-over publishes once more stands behind the end that this claim knew.
func TestAChangeFromTheOutboxDoesNotComeBehindTheNewerOne(t *testing.T) {
	f := newFixture(t, state)
	sent, newest := f.change("a", 1), f.change("a", 2)
	r := record(sent)
	r.Headers = []transport.Header{{Key: change.RepublishedHeader, Value: []byte("1")}}
	f.done(f.handFrame(f.frame(r)))
	require.Empty(t, f.sink.has())
	f.done(f.hand(newest))
	require.Equal(t, []string{name(newest)}, f.sink.has())
}

// A log sink gets every change, and a change that is new goes out although a
// newer one is decided: an entity that changes all the time is not kept back.
func TestChangesThatAreNoRepetitionGoOut(t *testing.T) {
	f := newFixture(t, sinks.Traits{Kind: sinks.Log, MaxBatch: 100})
	older, newer := f.change("a", 1), f.change("a", 2)
	f.again(older)
	f.again(newer)
	require.Equal(t, []string{name(older), name(newer)}, f.sink.has())

	f = newFixture(t, state)
	older, newer = f.change("a", 1), f.change("a", 2)
	f.done(f.hand(older))
	f.done(f.hand(newer))
	require.Equal(t, []string{name(older), name(newer)}, f.sink.has())
}

// Records of one frame may differ: the end that an assignment knew at its
// beginning can stand within it. Only what came before it waits for the newest.
func TestOnlyWhatMayHaveBeenInHandIsHeldBack(t *testing.T) {
	f := newFixture(t, state)
	before, behind := f.change("a", 1), f.change("b", 2)
	f.change("a", 8)
	f.change("b", 9)
	old := record(before)
	old.Redelivered = true
	f.done(f.handFrame(f.frame(old, record(behind))))
	require.Equal(t, []string{name(behind)}, f.sink.has())
	require.EqualValues(t, 1, f.count(deliver.OutcomeOvertaken))

	// A target that turns older changes away itself gets them.
	guarded := state
	guarded.Guarded = true
	f = newFixture(t, guarded)
	before = f.change("a", 1)
	f.change("a", 8)
	f.again(before)
	require.Equal(t, []string{name(before)}, f.sink.has())
}
