package deliver_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/stretchr/testify/require"
)

const other, third = "acme/all@other", "acme/all@third"

func memory(bytes int64) func(*deliver.Options) { return func(o *deliver.Options) { o.Memory = bytes } }

func large(service, entity string, offset int64) change.Change {
	c := of(service, entity, offset)
	c.Doc = fmt.Appendf(nil, `{"n":%d,"pad":"%0100000d"}`, offset, 0)
	return c
}

// A sink that is away costs its service a position: the others go on, and when it
// answers again it gets everything, in order, and is with them again.
func TestAServiceWhoseSinkIsAwayFallsBehind(t *testing.T) {
	w := newWorld(t, service, other)
	p := w.start(map[string]sinks.Traits{service: logOf(10), other: logOf(10)}, memory(1<<20), seldom)
	p.sinks[other].answer(func([]change.Change) error { return refuse(sinks.Retry, false) })
	var want []string
	for i := range int64(100) {
		p.publish(large(service, "a", 2*i), large(other, "a", 2*i+1))
		want = append(want, fmt.Sprintf("a:%d", 2*i+1))
	}
	p.delivered(service)
	require.Empty(t, p.order())
	require.Len(t, p.sinks[service].has(), 100)
	require.Equal(t, map[string]int{other: 1}, p.stage.Behind())
	require.Less(t, p.position(other), at(2), "nothing of it is done")

	p.sinks[other].answer(nil)
	p.delivered(other)
	require.Equal(t, want, p.sinks[other].has())
	require.Eventually(t, func() bool { return len(p.stage.Behind()) == 0 }, patience, time.Millisecond)
	p.publish(of(service, "b", 200), of(other, "b", 201))
	p.delivered(service, other)
	require.Len(t, p.sinks[service].has(), 101, "nobody got anything twice")
	require.Len(t, p.sinks[other].has(), 101)
}

// Who is behind in a partition that went away is not this process's to tell.
func TestARevokedPartitionHasNobodyBehind(t *testing.T) {
	w := newWorld(t, service, other)
	p := w.start(map[string]sinks.Traits{service: logOf(10), other: logOf(10)}, memory(1<<20), seldom)
	p.sinks[other].answer(func([]change.Change) error { return refuse(sinks.Retry, false) })
	for i := range int64(60) {
		p.publish(large(service, "a", 2*i), large(other, "a", 2*i+1))
	}
	p.delivered(service)
	require.Equal(t, map[string]int{other: 1}, p.stage.Behind())
	p.stage.Revoked([]int32{0})
	require.Empty(t, p.stage.Behind())
}

// Positions outlive their process, and a new service begins at the highest.
func TestPositionsAfterARestart(t *testing.T) {
	w := newWorld(t, service, other, third)
	p := w.start(map[string]sinks.Traits{service: logOf(10), other: logOf(10)}, memory(1<<20), seldom)
	p.sinks[other].answer(func([]change.Change) error { return refuse(sinks.Retry, false) })
	for i := range int64(300) {
		p.publish(of(service, "a", 2*i), of(other, "a", 2*i+1))
	}
	p.delivered(service)
	require.NoError(t, p.stop())

	p = w.start(map[string]sinks.Traits{service: logOf(10), other: logOf(10), third: logOf(10)})
	p.publish(of(service, "b", 600), of(third, "b", 601))
	p.delivered(service, other, third)
	require.Equal(t, []string{"b:600"}, p.sinks[service].has())
	require.Len(t, p.sinks[other].has(), 300)
	require.Equal(t, []string{"b:601"}, p.sinks[third].has())
}

// A service that returns to the configuration resumes at its position.
func TestAServiceThatComesBack(t *testing.T) {
	w := newWorld(t, service, other)
	both := map[string]sinks.Traits{service: logOf(10), other: logOf(10)}
	p := w.start(both)
	p.publish(of(service, "a", 0), of(other, "a", 1))
	p.delivered(service, other)
	require.NoError(t, p.stop())
	w.publish(of(service, "a", 2), of(other, "a", 3))
	p = w.start(map[string]sinks.Traits{service: logOf(10)})
	p.delivered(service)
	require.NoError(t, p.stop())
	require.Equal(t, at(2), w.position(other))

	p = w.start(both)
	p.delivered(service, other)
	require.Empty(t, p.sinks[service].has())
	require.Equal(t, []string{"a:3"}, p.sinks[other].has())
}

// moveOn does what decide does with a request to decide again.
func (p *process) moveOn(requests map[string]bool) bool {
	p.mu.Lock()
	var todo []change.Control
	var entities []string
	for i, e := range p.events {
		if e[:8] == "redecide" && !requests[e] {
			requests[e] = true
			todo, entities = append(todo, p.controls[i]), append(entities, e[9:])
		}
	}
	p.mu.Unlock()
	for i, c := range todo {
		p.publish(of(c.Services[0], entities[i], p.next))
	}
	return len(todo) > 0
}

// Changes that expired before delivery are decided again, if they were the newest of their
// entity, and only for services that lack them.
func TestWhatIsGoneFromTheLogIsDecidedAgain(t *testing.T) {
	w := newWorld(t, service, other)
	p := w.start(map[string]sinks.Traits{service: state})
	p.publish(of(service, "a", 0), of(other, "a", 0))
	p.delivered()
	require.NoError(t, p.stop())
	w.publish(of(service, "a", 1))
	w.publish(of(service, "b", 2))
	w.publish(of(service, "a", 3), of(other, "a", 3))
	w.expire(3)

	p = w.start(map[string]sinks.Traits{service: state})
	requests := map[string]bool{}
	require.Eventually(t, func() bool { return p.moveOn(requests) }, patience, time.Millisecond)
	p.delivered()
	require.Equal(t, []string{"redecide b"}, p.order())
	require.Equal(t, at(2), p.controls[0].Version)
	require.True(t, p.controls[0].Force)
	require.Equal(t, []string{service}, p.controls[0].Services)
	require.Equal(t, []string{"a:3", "b:4"}, p.sinks[service].has())
	require.EqualValues(t, 1, p.metric("weir_delivery_gaps_total", service))
}

// The inbox was re-partitioned meanwhile: lost changes still belong to the partition that
// decided them.
func TestWhatIsGoneOfAnOlderInboxIsDecidedAgain(t *testing.T) {
	w := newWorld(t, service)
	moved := func(o *deliver.Options) {
		o.Partition = func(_ string, v change.Version) int32 { return int32(v.Generation()) - 1 } // the next one's is number 1
	}
	p := w.start(map[string]sinks.Traits{service: state}, moved)
	p.publish(of(service, "a", 0))
	p.delivered()
	require.NoError(t, p.stop())
	w.publish(of(service, "b", 1))
	w.publish(of(service, "c", 2))
	w.expire(2)
	p = w.start(map[string]sinks.Traits{service: state}, moved)
	requests := map[string]bool{}
	require.Eventually(t, func() bool { return p.moveOn(requests) }, patience, time.Millisecond)
	p.delivered()
	require.Equal(t, []string{"redecide b"}, p.order())
}

// The newest frame expired: no later one shows it.
func TestALogThatEndsTooEarly(t *testing.T) {
	w := newWorld(t, service)
	p := w.start(map[string]sinks.Traits{service: state})
	p.publish(of(service, "a", 0))
	p.delivered()
	require.NoError(t, p.stop())
	w.decide(of(service, "a", 1))
	w.expire(2)

	p = w.start(map[string]sinks.Traits{service: state})
	requests := map[string]bool{}
	require.Eventually(t, func() bool { return p.moveOn(requests) }, patience, time.Millisecond)
	p.delivered()
	require.Equal(t, []string{"redecide a"}, p.order())
	require.Equal(t, []string{"a:2"}, p.sinks[service].has())
}

// A process that loses the partition stops at once; the next owner repeats its unsaved
// deliveries.
func TestAnotherOwner(t *testing.T) {
	w := newWorld(t, service)
	p := w.start(map[string]sinks.Traits{service: logOf(10)})
	p.publish(of(service, "a", 0))
	p.delivered()
	next := w.start(map[string]sinks.Traits{service: logOf(10)})
	p.publish(of(service, "a", 1))
	next.delivered()
	require.Contains(t, next.sinks[service].has(), "a:1")
	require.NotContains(t, next.sinks[service].has(), "a:0")
	<-p.ended
	require.ErrorIs(t, p.stop(), deliver.ErrLost)
}
