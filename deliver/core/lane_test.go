package core

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// decidedFrame is an open frame with a change of service 1.
func decidedFrame(t *testing.T, from, to int64) *Frame {
	t.Helper()
	var b change.FrameBuilder
	at := func(offset int64) change.Version { return change.NewVersion(1, offset) }
	b.Add(1, &change.Change{Op: change.Upsert, Service: "s", Entity: "e", Version: at(from), Key: "k", Content: change.Content("c"), Doc: []byte(`1`)})
	f, err := change.ParseFrame(b.AppendTo(nil, change.Frame{From: at(from), To: at(to), Prev: at(from)}))
	require.NoError(t, err)
	return &Frame{Frame: f}
}

// oneLane has a service whose position is 0 in a partition whose log was looked at.
func oneLane() (*Flow, *Partition, *Queue) {
	f, q := NewFlow(1<<20), &Queue{Number: 1}
	f.Add(q)
	p := f.Assign(&store.Progress{Positions: []store.ServicePosition{{Service: 1, Version: change.NewVersion(1, 0)}}})
	p.Next()
	p.Look(change.NewVersion(1, 0), 0, 0)
	return f, p, q
}

// A change that a worker attempted may be at the target when another one takes its place, also where the
// frame comes from memory.
func TestI5AReloadRepeats(t *testing.T) {
	f, p, q := oneLane()
	p.HandOut(decidedFrame(t, 0, 1))
	s := q.Take(1, time.Now())
	require.False(t, s[0].Redelivered, "it was in nobody's hand")
	q.Removed = true
	f.Fall(q)
	f.Abandon(s[0])
	f.Remove(q)
	next := &Queue{Number: 1}
	f.Add(next)
	p.HandOut(decidedFrame(t, 0, 1))
	require.True(t, next.Take(1, time.Now())[0].Redelivered)
	p.HandOut(decidedFrame(t, 1, 2))
	require.False(t, next.Take(1, time.Now())[0].Redelivered)
}

// A lag ends where the log does, also when its rest is lost.
func TestALagEndsWithWhatIsLost(t *testing.T) {
	f, p, q := oneLane()
	f.SetFailing(q, true)
	for n := range int64(2) {
		p.HandOut(decidedFrame(t, n, n+1))
	}
	p.Ends(change.NewVersion(1, 2))
	require.Equal(t, map[*Queue]int{q: 1}, f.Lags())
	p.Look(change.NewVersion(1, 1), change.NewVersion(1, 2), change.NewVersion(1, 2))
	require.Empty(t, f.Lags())
}

// After its decider took over again, a partition needs a look that began since.
func TestARetakeNeedsALook(t *testing.T) {
	_, p, _ := oneLane()
	require.True(t, p.Looked())
	p.NewFrom = change.NewVersion(1, 3)
	_, found := p.Next()
	require.False(t, found)
	p.Retaken(0)
	require.Zero(t, p.NewFrom)
	p.Look(0, 0, 0)
	require.False(t, p.Looked(), "it began before")
	_, found = p.Next()
	require.True(t, found)
	p.Look(0, 0, 0)
	require.True(t, p.Looked())
}

// A lane has changes from when one waits until all are done; one without any has none to resume for.
func TestPendingLanes(t *testing.T) {
	f, p, q := oneLane()
	other := f.Assign(&store.Progress{Partition: 1, Positions: []store.ServicePosition{{Service: 1, Version: change.NewVersion(1, 0)}}})
	require.Empty(t, q.Pending())
	other.HandOut(decidedFrame(t, 0, 1))
	lanes := q.Pending()
	require.Len(t, lanes, 1)
	require.Equal(t, other, lanes[0].Partition)
	p.HandOut(decidedFrame(t, 0, 1))
	s := q.Take(1, time.Now())
	require.Len(t, s, 1, "the other waits")
	require.Len(t, q.Pending(), 2)
	f.Finish(s[0])
	lanes = q.Pending()
	require.Len(t, lanes, 1)
	require.Equal(t, p, lanes[0].Partition)
}
