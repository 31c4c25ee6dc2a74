package decide

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
)

// An entity enters a service that has nothing of it, also one that had it before: that is no update,
// and the number of entities rises.
func TestTheEffectOfACandidate(t *testing.T) {
	has := store.Row{Found: true, Content: change.Content{1, 2}}
	left := store.Row{Found: true, Content: change.Retracted()}
	unknown := store.Row{Found: true}
	shown, gone := candidate{output: &output{}}, candidate{content: change.Retracted()}
	for _, c := range []struct {
		candidate candidate
		row       store.Row
		want      change.Effect
	}{
		{shown, store.Row{}, change.Enters}, {shown, left, change.Enters}, {shown, has, change.Keeps}, {shown, unknown, change.Keeps},
		{gone, store.Row{}, change.Keeps}, {gone, left, change.Keeps}, {gone, has, change.Leaves}, {gone, unknown, change.Leaves},
	} {
		require.Equal(t, c.want, c.candidate.effect(&c.row), "%+v", c.row)
	}
}

// A request is sent in any case, and so is the change that follows a reset: the row does not know the
// target's content.
func TestWhatIsForced(t *testing.T) {
	s := NewSimulator(bananaPlan(t))
	var offset int64
	sent := func(r change.Record) bool {
		r.Entity = "B-007"
		step, err := s.Apply(r, time.Unix(1000, 0))
		require.NoError(t, err)
		require.NotEmpty(t, step.Sent)
		return step.Sent[0].Forced
	}
	event := func(level int) change.Record {
		offset++
		return change.Record{Event: &change.Event{
			Origin: change.Origin{Source: "registry", Topic: "t", Offset: offset}, Op: change.Upsert, Payload: fmt.Appendf(nil, `{"id":"B-007","ripeness_level":%d}`, level),
		}}
	}
	require.False(t, sent(event(1)))
	require.False(t, sent(event(2)))
	command(t, s, change.Control{Action: change.Refuse, Version: rowOf(s).Version})
	require.False(t, sent(event(1)))
	require.True(t, sent(change.Record{Control: &change.Control{Action: change.Redecide, Force: true}}))
	command(t, s, change.Control{Action: change.Reset})
	require.True(t, sent(event(1)))
	require.False(t, sent(event(2)))
}
