package core_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver/core"
	"github.com/seed-86dfc502/weir/sinks"
)

// contents is a service that settles for a second, and its target.
type contents struct {
	t    *testing.T
	s    *core.Service
	now  time.Time
	next change.Version
	open map[change.Version]bool
	sent []string
	fail error
}

func newContents(t *testing.T) *contents {
	return &contents{t: t, now: time.Unix(1000, 0), open: map[change.Version]bool{}, s: core.New(core.Config{
		MaxBatch: 10, MinBackoff: time.Second, MaxBackoff: time.Second, Pace: core.Pace{Settle: time.Second, SettleMax: time.Minute},
	})}
}

func (c *contents) add(content string, more ...func(*core.Item)) {
	c.next++
	i := &core.Item{Position: c.next, Version: c.next, Entity: "e", Bytes: 1, Arrived: c.now, Content: change.Content(content)}
	if content == "" {
		i.Content = change.Retracted()
	}
	for _, f := range more {
		f(i)
	}
	c.open[c.next] = true
	c.s.Add(i)
}

// quiet lets the entity be quiet, and delivers what is to be sent.
func (c *contents) quiet() {
	c.t.Helper()
	c.now = c.now.Add(2 * time.Second)
	for {
		step := c.s.Next(c.now)
		if step.Kind == core.Retry {
			c.s.Claim(c.now, step.Items)
		}
		if step.Kind == core.Write || step.Kind == core.Retry {
			failed := make([]*sinks.Error, len(step.Items))
			for n, i := range step.Items {
				if c.fail != nil {
					failed[n] = &sinks.Error{Class: sinks.RetryBounded, Err: c.fail}
					continue
				}
				c.sent = append(c.sent, string(i.Content))
			}
			c.s.Done(c.now, step, 0, failed, nil, false)
		}
		for _, e := range c.s.Effects() {
			if e.Kind == core.Settle {
				delete(c.open, e.Item.Version)
			}
		}
		if step.Kind == core.Wait {
			return
		}
		if c.fail != nil {
			return
		}
	}
}

func forced(i *core.Item) { i.Forced = true }
func isNew(i *core.Item)  { i.New = true }

// What an entity has again when it is quiet is not sent, nor is what came and went: the target has it.
// All of these changes are settled.
func TestWhatTheTargetHasIsNotSentAgain(t *testing.T) {
	t.Parallel()
	c := newContents(t)
	c.add("A", isNew)
	c.quiet()
	c.add("B")
	c.add("A")
	c.quiet()
	require.Equal(t, []string{"A"}, c.sent)
	c.add("B")
	c.quiet()
	c.add("A")
	c.quiet()
	require.Equal(t, []string{"A", "B", "A"}, c.sent, "quiet in between")
	require.Empty(t, c.open)

	c = newContents(t)
	c.add("A", isNew)
	c.add("")
	c.quiet()
	require.Empty(t, c.sent)
	require.Empty(t, c.open)
}

// The target is not known after a failed attempt, or at the begin of a process, and a request sends
// also what it has.
func TestWhatTheTargetMayNotHaveIsSent(t *testing.T) {
	t.Parallel()
	c := newContents(t)
	c.add("A")
	c.quiet()
	c.add("A", forced)
	c.add("B")
	c.add("A")
	c.quiet()
	require.Equal(t, []string{"A", "A"}, c.sent, "the request is sent")

	c.fail = errors.New("timed out")
	c.add("B")
	c.quiet()
	c.fail = nil
	c.add("A")
	for range 30 {
		c.quiet()
	}
	require.Equal(t, []string{"A", "A", "A"}, c.sent, "B may be there")
	require.Empty(t, c.open)

	c = newContents(t)
	c.add("B")
	c.add("A")
	c.quiet()
	require.Equal(t, []string{"A"}, c.sent)
	c = newContents(t)
	c.add("A")
	c.add("")
	c.quiet()
	require.Len(t, c.sent, 1, "an earlier one may be there")

	c = newContents(t)
	c.add("A", isNew)
	c.fail = errors.New("timed out")
	c.quiet()
	c.fail = nil
	c.add("")
	for range 30 {
		c.quiet()
	}
	require.Equal(t, []string{string(change.Retracted())}, c.sent, "it may have arrived")
}

// A rate writes batches: the tokens of a second gather, and a change alone does not wait for them.
func TestARateWritesBatches(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	s := core.New(core.Config{MaxBatch: 20, Window: 1000, Pace: core.Pace{Every: 100 * time.Millisecond, Burst: 10}})
	s.Share(1, 1, now)
	for n := range 300 {
		s.Add(&core.Item{Position: change.Version(n + 1), Version: change.Version(n + 1), Entity: string(rune('a' + n)), Bytes: 1, Arrived: now})
	}
	begun, writes := now, 0
	for s.Hand() > 0 {
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
	s.Share(2, 2, now)
	s.Next(now)
	now = now.Add(time.Minute)
	s.Share(1, 2, now)
	for n := range 20 {
		s.Add(&core.Item{Position: change.Version(n + 1), Version: change.Version(n + 1), Entity: string(rune('a' + n)), Bytes: 1, Arrived: now})
	}
	step := s.Next(now)
	require.Equal(t, core.Write, step.Kind)
	require.Len(t, step.Items, 5)
}
