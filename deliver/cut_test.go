package deliver_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/sinks"
)

// awayInsideAPosition has both services lag while the tail is inside a position. It reports whether
// it succeeded, which depends on timing: changes that are in hand when the memory is full do not lag.
func awayInsideAPosition(t *testing.T) (p *process, away bool) {
	w := newWorld(t, service, other)
	p = w.start(map[string]sinks.Traits{service: state, other: state}, memory(150<<10), seldom)
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
	for range 100 {
		if len(p.stage.Behind()) == 2 {
			return p, true
		}
		<-time.After(20 * time.Millisecond)
	}
	return p, false
}

// Every service lags while the tail is inside a position, and retention removes the rest of it:
// the search has to reach the end of that position, or no service gets live again.
func TestEveryServiceIsAwayInsideAPosition(t *testing.T) {
	p, away := awayInsideAPosition(t)
	for tries := 0; !away && tries < 10; tries++ {
		p, away = awayInsideAPosition(t)
	}
	require.True(t, away)
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
