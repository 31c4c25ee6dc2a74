package deliver_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/transport"
	"github.com/stretchr/testify/require"
)

func logOf(batch int) sinks.Traits { return sinks.Traits{Kind: sinks.Log, MaxBatch: batch} }

// many are changes of as many entities, with the offsets 1 to n.
func (f *fixture) many(n int) (changes []change.Change, names []string) {
	for i := range n {
		c := f.change(fmt.Sprint("e", i), int64(i+1))
		changes, names = append(changes, c), append(names, name(c))
	}
	return changes, names
}

// busy hands in a frame of one change, whose delivery is under way until release
// is called: what is handed in meanwhile is the next batch. The sink's answer
// cannot be changed in between.
func (f *fixture) busy() (first <-chan error, release func()) {
	opening, opened := make(chan struct{}), make(chan struct{})
	f.sink.open = func() error { close(opening); <-opened; return nil }
	first = f.hand(f.change("first", 1))
	<-opening
	return first, func() { close(opened) }
}

func (f *fixture) confirmations() []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]int(nil), f.confirms...)
}

// The changes of a frame go out in its order, across the borders of its
// records, as many at once as the sink takes, and each write is confirmed before
// the next.
func TestAFrameIsDeliveredInChunks(t *testing.T) {
	f := newFixture(t, logOf(4))
	var confirmed []float64
	f.sink.answer(func([]change.Change) error {
		n := 0.0
		for _, c := range f.confirmations() {
			n += float64(c)
		}
		confirmed = append(confirmed, n)
		return nil
	})
	changes, names := f.many(10)
	f.done(f.handFrame(f.frame(record(changes[:1]...), record(changes[1:7]...), record(changes[7:]...))))
	require.Equal(t, [][]string{names[:4], names[4:8], names[8:]}, f.sink.attempts())
	require.Equal(t, []float64{0, 4, 8}, confirmed)
	require.Equal(t, []int{4, 4, 2}, f.confirmations())

	// The bytes that the sink takes bound a write too.
	f = newFixture(t, sinks.Traits{Kind: sinks.Log, MaxBatch: 100, MaxBytes: 2 * len(`{"n":1}`)})
	changes, names = f.many(5)
	f.done(f.hand(changes...))
	require.Equal(t, [][]string{names[:2], names[2:4], names[4:]}, f.sink.attempts())
}

// Frames of several partitions that wait make one batch.
func TestFramesOfSeveralPartitionsShareABatch(t *testing.T) {
	f := newFixture(t, logOf(100))
	first, release := f.busy()
	var waiting []<-chan error
	var names []string
	for p := range int32(3) {
		a, b := f.change(fmt.Sprint("a", p), 1), f.change(fmt.Sprint("b", p), 2)
		names = append(names, name(a), name(b))
		waiting = append(waiting, f.handFrame(transport.NewFrame("changes", "id", 1+p, uint64(2+p), []transport.Received{record(a, b)})))
	}
	release()
	f.done(first)
	for _, w := range waiting {
		f.done(w)
	}
	require.Equal(t, [][]string{{"first:1"}, names}, f.sink.attempts())
	require.Equal(t, []int{1, 6}, f.confirmations())
}

// A state sink gets the newest change of each entity of a frame, wherever in it
// that stands: not one in each chunk.
func TestAFrameIsCoalescedAsAWhole(t *testing.T) {
	f := newFixture(t, sinks.Traits{Kind: sinks.State, MaxBatch: 2})
	var changes []change.Change
	for i := range int64(9) {
		changes = append(changes, f.change(fmt.Sprint("e", i%3), i+1))
	}
	f.done(f.hand(changes...))
	require.Equal(t, [][]string{{"e0:7", "e1:8"}, {"e2:9"}}, f.sink.attempts())
	require.EqualValues(t, 6, f.count(deliver.OutcomeCoalesced))
}

// A frame that comes again after a part of it was confirmed goes on behind that.
func TestAFrameThatComesAgainGoesOn(t *testing.T) {
	f := newFixture(t, logOf(3))
	changes, names := f.many(8)
	frame := f.frame(record(changes[:5]...), record(changes[5:]...))
	f.sink.answer(func(batch []change.Change) error {
		if name(batch[0]) == names[3] {
			return refuse(sinks.Retry, false)
		}
		return nil
	})
	result := f.handFrame(frame)
	require.Eventually(t, func() bool { return len(f.sink.attempts()) > 2 }, patience, time.Millisecond)
	f.stop()
	require.Error(t, f.await(result))
	require.Equal(t, names[:3], f.sink.has())

	next := f.restart()
	for i := range frame.Records {
		frame.Records[i].Redelivered = true
	}
	next.done(next.handFrame(frame))
	require.Equal(t, names[3:], next.sink.has())
	require.EqualValues(t, 3, next.count(deliver.OutcomeSkipped))
	next.done(next.handFrame(frame))
	require.Equal(t, names[3:], next.sink.has(), "all of it is confirmed")
}

// The end of a frame's assignment ends its delivery at the next chunk: the next
// owner delivers the rest, and what is newer. Other frames of its batch go on.
func TestTheEndOfAnAssignmentEndsItsFrame(t *testing.T) {
	f := newFixture(t, logOf(2))
	changes, names := f.many(4)
	ctx, end := context.WithCancelCause(context.Background())
	revoked := errors.New("revoked")
	f.sink.answer(func(batch []change.Change) error {
		if name(batch[0]) == names[0] {
			end(revoked)
		}
		return nil
	})
	first, release := f.busy()
	lost := f.handFrameUnder(ctx, f.frame(record(changes...)))
	other := f.change("other", 1)
	kept := f.handFrame(transport.NewFrame("changes", "id", 1, 2, []transport.Received{record(other)}))
	release()
	f.done(first)
	require.ErrorIs(t, f.await(lost), revoked)
	f.done(kept)
	require.Equal(t, []string{"first:1", names[0], names[1], name(other)}, f.sink.has())
	require.Equal(t, changes[1].Version, f.row("e1").DeliveredVersion, "what was written is confirmed")
	require.Zero(t, f.row("e2").DeliveredVersion)
}

// A frame that came to its end before its assignment did is done.
func TestTheEndOfAnAssignmentAfterItsFrame(t *testing.T) {
	f := newFixture(t, logOf(1))
	ctx, end := context.WithCancel(context.Background())
	c := f.change("a", 1)
	f.sink.answer(func([]change.Change) error { end(); return nil })
	f.done(f.handFrameUnder(ctx, f.frame(record(c))))
	require.Equal(t, c.Version, f.row("a").DeliveredVersion)
}

// I10: while a chunk is tried again, newer changes may be decided, and delivered
// by another process. What stands behind it in its frame is looked at once more.
func TestWhatStandsBehindAFailureIsLookedAtAgain(t *testing.T) {
	f := newFixture(t, sinks.Traits{Kind: sinks.State, MaxBatch: 1})
	a, b := f.change("a", 1), f.change("b", 2)
	fails := true
	f.sink.answer(func([]change.Change) error {
		if fails {
			fails = false
			f.change("b", 3)
			return refuse(sinks.Retry, false)
		}
		return nil
	})
	f.done(f.hand(a, b))
	require.Equal(t, []string{name(a)}, f.sink.has())
	require.EqualValues(t, 1, f.count(deliver.OutcomeOvertaken))
}

// A record that is none of this service's makes one dead letter; its
// neighbours in the frame are delivered. The letter is the same one when the
// frame comes again.
func TestMalformedRecordIsALetter(t *testing.T) {
	f := newFixture(t, logOf(100))
	before, within, behind := f.change("a", 1), f.change("b", 2), f.change("c", 3)
	other := f.change("d", 4)
	other.Service = "acme/all@other"
	half := record(within, within)
	half.Value = change.AppendPacked(nil, append(within.AppendBinary(nil), '?'))
	frame := f.frame(record(before), transport.Received{Value: []byte("?")}, transport.Received{}, half, record(within, other), record(behind))
	for range 2 {
		f.done(f.handFrame(frame))
		require.Equal(t, []string{name(before), name(behind)}, f.sink.has(), "nothing of such a record is trusted")
	}
	letters := f.letters()
	require.Len(t, letters, 4)
	for _, l := range letters {
		require.Equal(t, "malformed", l.Code)
		require.Equal(t, store.StageDeliver, l.Stage)
		require.Equal(t, service, l.Service)
		shown, err := f.store.Letter(t.Context(), l.ID)
		require.NoError(t, err)
		require.Equal(t, string(frame.Records[l.Offset].Value), string(shown.Payload))
	}

	// A frame that has nothing else asks nothing of the sink.
	f = newFixture(t, state)
	f.done(f.handFrame(f.frame(transport.Received{Value: []byte("?")})))
	require.Len(t, f.letters(), 1)
	require.Empty(t, f.sink.attempts())
	f.done(f.hand(f.change("Y", 1)))
	require.Equal(t, []string{"Y:1"}, f.sink.has())
}

// A record without changes is none that decide writes, and hurts nobody.
func TestAFrameWithoutChanges(t *testing.T) {
	f := newFixture(t, state)
	f.done(f.handFrame(f.frame(record(), record())))
	require.Empty(t, f.letters())
	require.Empty(t, f.sink.attempts())
	require.True(t, f.d.Idle())
}

func TestAMessageWithoutAFrame(t *testing.T) {
	f := newFixture(t, state)
	require.Error(t, f.d.Handle(message.NewMessage("", nil)))
}
