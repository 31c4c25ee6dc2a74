package decide

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/stretchr/testify/require"
)

// A retraction, and a view that lost its fields, say when the entity entered the service and when they
// happened. An entity that returns entered when it first did.
func TestAChangeSaysWhenItsEntityEntered(t *testing.T) {
	plan := bananaPlan(t)
	s := NewSimulator(plan)
	begin := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	sent := func(after time.Duration, at int64, payload string) map[string]change.Change {
		t.Helper()
		e := &change.Event{Origin: change.Origin{Source: "registry", Topic: "t", Offset: s.offset}, Op: change.Upsert, Payload: []byte(payload), At: at}
		if payload == "" {
			e.Op, e.Payload = change.Delete, nil
		}
		step, err := s.Apply(change.Record{Entity: "B", Event: e}, begin.Add(after))
		require.NoError(t, err)
		all := map[string]change.Change{}
		for _, c := range step.Sent {
			all[c.Service] = c
		}
		return all
	}
	const one, two = "one/ripeness@a", "two/list@a"
	yesterday := begin.Add(-24 * time.Hour)
	entered := change.EnteredAt(yesterday)
	for _, c := range sent(0, yesterday.UnixMilli(), `{"id":1,"ripeness_level":1}`) {
		require.Zero(t, c.Entered, "it enters")
		require.Zero(t, c.At)
	}
	late := sent(time.Second, yesterday.Add(time.Minute).UnixMilli(), `{"id":1,"ripeness_level":2}`)[one]
	require.Equal(t, yesterday.Add(time.Minute), late.At, "an update from a backlog")
	require.True(t, late.Young(10*time.Minute))
	live := sent(2*time.Second, change.AtIngest, `{"id":1,"ripeness_level":3}`)[one]
	require.Zero(t, live.At, "it counts now")
	require.Zero(t, live.Entered)
	emptied := sent(time.Minute, yesterday.Add(time.Hour).UnixMilli(), `{}`)
	for _, service := range []string{one, two} {
		c := emptied[service]
		require.Equal(t, entered, c.Entered, service)
		require.Equal(t, yesterday.Add(time.Hour), c.At, service)
	}
	left := sent(2*time.Minute, 0, "")
	require.Equal(t, entered, left[one].Entered)
	require.Zero(t, left[one].At, "the source does not say")
	require.False(t, new(left[one]).Young(10*time.Minute))
	require.Equal(t, change.Enters, sent(time.Hour, change.AtIngest, `{"id":2,"origin":"XX"}`)[two].Effect)
	require.Equal(t, entered, sent(61*time.Minute, change.AtIngest, "")[two].Entered, "it returned")
}

// Entities of a stream without times are young for the window after they came; those of one that is
// read late are as old as they were at its source.
func TestYoungEntitiesOfAHistory(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for had, young := range map[time.Duration]bool{time.Second: true, 9 * time.Minute: true, time.Hour: false} {
		for _, timed := range []bool{false, true} {
			s := NewSimulator(bananaPlan(t))
			happened := now.Add(-90 * 24 * time.Hour)
			apply := func(op change.Op, after time.Duration) []change.Change {
				e := &change.Event{Origin: change.Origin{Source: "registry", Topic: "t", Offset: s.offset}, Op: op}
				if op == change.Upsert {
					e.Payload = fmt.Appendf(nil, `{"id":%d}`, s.offset)
				}
				at := now.Add(after)
				if timed {
					e.At, at = happened.Add(after).UnixMilli(), now.Add(after/10_000)
				}
				step, err := s.Apply(change.Record{Entity: "B", Event: e}, at)
				require.NoError(t, err)
				return step.Sent
			}
			apply(change.Upsert, 0)
			left := apply(change.Delete, had)
			require.Len(t, left, 2)
			require.Equal(t, young, left[0].Young(10*time.Minute), "had for %s, timed: %v", had, timed)
		}
	}
}
