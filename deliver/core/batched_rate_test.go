package core_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver/core"
	"github.com/seed-86dfc502/weir/sinks"
)

// A rate writes batches: the tokens of a second gather, and a change alone does not wait for them.
func TestARateWritesBatches(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	s := core.New(core.Config{MaxBatch: 20, Window: 1000, Pace: core.Pace{Every: 100 * time.Millisecond, Burst: 10}})
	s.Rate.Share(1, 1, now)
	for n := range 300 {
		s.Add(&core.Item{Position: change.Version(n + 1), Version: change.Version(n + 1), Entity: string(rune('a' + n)), Bytes: 1, Arrived: now})
	}
	begun, writes := now, 0
	for s.Hand.Len() > 0 {
		step := s.Next(now)
		if step.Kind == core.Wait {
			require.True(t, step.Until.After(now))
			now = step.Until
			continue
		}
		writes++
		s.Done(now, step, 0, make([]*sinks.Error, len(step.Items)), nil, false)
	}
	require.Equal(t, 30, writes, "ten at a time")
	require.WithinDuration(t, begun.Add(30*time.Second), now, 2*time.Second)
	now = now.Add(100 * time.Millisecond)
	s.Add(&core.Item{Position: 1000, Version: 1000, Entity: "e", Bytes: 1, Arrived: now})
	require.Equal(t, core.Write, s.Next(now.Add(100*time.Millisecond)).Kind)
}

// A process that loses a partition keeps the tokens of its part alone.
func TestABucketShrinksWithItsShare(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	s := core.New(core.Config{MaxBatch: 20, Pace: core.Pace{Every: 100 * time.Millisecond, Burst: 10}})
	s.Rate.Share(2, 2, now)
	s.Next(now)
	now = now.Add(time.Minute)
	s.Rate.Share(1, 2, now)
	for n := range 20 {
		s.Add(&core.Item{Position: change.Version(n + 1), Version: change.Version(n + 1), Entity: string(rune('a' + n)), Bytes: 1, Arrived: now})
	}
	step := s.Next(now)
	require.Equal(t, core.Write, step.Kind)
	require.Len(t, step.Items, 5)
}

// A braked service tries one change at once if there are tokens, also if a write could take several.
func TestABrakedServiceGathersNoTokens(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	s := core.New(core.Config{MaxBatch: 20, Window: 1000, For: time.Hour, MinBackoff: time.Second, MaxBackoff: time.Second, Rows: 10, RowBytes: 1000, EntityRows: 10, Pace: core.Pace{Every: 200 * time.Millisecond, Burst: 3}})
	s.Rate.Share(1, 1, now)
	s.Next(now)
	add := func(version change.Version, entities ...string) {
		for n, entity := range entities {
			s.Add(&core.Item{Position: version + change.Version(n), Version: version + change.Version(n), Entity: entity, Bytes: 1, Arrived: now})
		}
	}
	add(1, "a", "b")
	now = now.Add(time.Minute)
	step := s.Next(now)
	require.Len(t, step.Items, 2)
	s.Done(now, step, 0, []*sinks.Error{failureOf["503"], failureOf["503"]}, nil, false)
	add(3, "c", "d")
	for range 100 {
		if step = s.Next(now); step.Kind == core.Write {
			break
		}
		require.True(t, step.Kind == core.Retry || step.Until.After(now), "waits for what is over")
		if step.Kind == core.Retry {
			s.Claim(now, step.Items)
			s.Done(now, step, 0, []*sinks.Error{failureOf["503"]}, nil, false)
		} else {
			now = step.Until.Add(time.Minute) // the bucket is full
		}
	}
	require.Equal(t, core.Write, step.Kind)
	require.Len(t, step.Items, 1)
}
