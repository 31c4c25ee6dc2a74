package deliver_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/sinks"
)

// I1: the store was put back to before a position that is decided again, and cut in other
// positions. An owner of before still publishes its parts. The mistake that this catches:
// its last part counted as the second one of the new cut, and what that one has was lost
// for a log sink, without a gap.
func TestPartsOfTwoCuts(t *testing.T) {
	const y, z = "one/y@file", "one/z@file"
	w := newWorld(t, service, y, z)
	c := []change.Change{of(service, "a", 0), of(y, "a", 0), of(z, "a", 0)}
	part := func(cut uint64, n int, last bool, cs ...change.Change) {
		w.log.append(w.encodePart(change.Frame{From: at(0), To: at(1), Revision: 1, Part: n, Last: last, Cut: cut}, cs...))
	}
	w.decide(c...)
	p := w.start(map[string]sinks.Traits{service: logOf(10), y: logOf(10), z: logOf(10)})
	part(1, 0, false, c[0])
	part(2, 1, true, c[2]) // the one of before had two parts
	part(1, 1, false, c[1])
	part(1, 2, true, c[2])
	p.delivered(service, y, z)
	for _, s := range p.sinks {
		require.Equal(t, []string{"a:0"}, s.has())
	}
	require.Empty(t, p.order())
}

// I1: the same cut of a position that was decided again in other batches: what precedes
// its frames is another position without changes. The mistake that this catches: it
// counted as another cut, so the position began again, and what the log has of it was
// reported as gone.
func TestPartsOfOneCutBehindOtherBatches(t *testing.T) {
	const y, z = "one/y@file", "one/z@file"
	w := newWorld(t, service, y, z)
	w.publish(of(z, "q", 0))
	c := []change.Change{of(service, "a", 1), of(y, "a", 1), of(z, "a", 1)}
	part := func(prev change.Version, n int, last bool, cs ...change.Change) {
		w.log.append(w.encodePart(change.Frame{From: at(1), To: at(2), Prev: prev, Revision: 1, Part: n, Last: last, Cut: 1}, cs...))
	}
	w.decide(c...)
	p := w.start(map[string]sinks.Traits{service: logOf(10), y: logOf(10), z: logOf(10)})
	part(at(1), 0, false, c[0])
	part(at(1), 1, false, c[1])
	part(at(0), 0, false, c[0]) // of the other one, which publishes no more
	part(at(1), 2, true, c[2])
	p.publish(of(z, "b", 2))
	p.delivered(service, y, z)
	require.Equal(t, []string{"a:1"}, p.sinks[service].has())
	require.Equal(t, []string{"q:0", "a:1", "b:2"}, p.sinks[z].has())
	require.Empty(t, p.order())
}

// The mistake that this catches: every service fell behind while the tail was inside a
// position, and retention took the rest of it: nobody could join the tail there, and what
// was gone was looked for only up to where the position begins.
func TestEveryServiceIsAwayInsideAPosition(t *testing.T) {
	w := newWorld(t, service, other)
	p := w.start(map[string]sinks.Traits{service: state, other: state}, memory(150<<10), seldom)
	for _, s := range p.sinks {
		s.answer(func([]change.Change) error { return refuse(sinks.Retry, false) })
	}
	p.publish(of(service, "a", 0), of(other, "a", 1))
	for _, name := range []string{service, other} {
		require.Eventually(t, func() bool { return p.stage.Conditions()[name].State == deliver.StateRetrying }, patience, time.Millisecond, "it is in hand")
	}
	for i := range int64(2) { // what may be in hand meanwhile
		p.publish(large(service, "x", 2*i+2), large(other, "y", 2*i+3))
	}
	p.publish(large(other, "b", 6))
	parts := []change.Change{large(service, "c", 7), large(other, "d", 7)}
	prev := p.prev
	p.decide(parts...)
	for i, c := range parts {
		p.log.append(p.encodePart(change.Frame{From: at(7), To: at(8), Prev: prev, Revision: 1, Part: i, Last: i == 1, Cut: 1}, c))
	}
	require.Eventually(t, func() bool { return len(p.stage.Behind()) == 2 }, patience, time.Millisecond)
	p.log.cut(5)
	for _, s := range p.sinks {
		s.answer(nil)
	}
	requests := map[string]bool{}
	require.Eventually(t, func() bool { p.moveOn(requests); return requests["redecide c"] && requests["redecide d"] }, patience, time.Millisecond)
	require.Eventually(t, func() bool {
		p.moveOn(requests)
		return p.position(service).Version >= p.prev && p.position(other).Version >= p.prev
	}, patience, time.Millisecond)
	p.delivered(service, other)
}
