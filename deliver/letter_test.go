package deliver_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
)

// like is a change of another version with the content of c.
func like(c change.Change, offset int64) change.Change {
	c.Version = at(offset)
	c.Key = change.Key(c.Service, c.Entity, c.Version, c.Content)
	return c
}

// I9: one dead letter stays per refused content of a state sink, however often it is offered.
func TestI9OneLetterForAContent(t *testing.T) {
	for name, traits := range map[string]sinks.Traits{"state": state, "log": logOf(100)} {
		t.Run(name, func(t *testing.T) {
			p, s := only(t, traits)
			s.answer(func([]change.Change) error { return refuse(sinks.Reject, false) })
			a, b := of(service, "x", 0), of(service, "x", 1)
			for i, c := range []change.Change{a, b, like(a, 2), like(b, 3), like(a, 4)} {
				p.publish(c)
				p.delivered()
				if first := p.letters()[0]; i == 3 {
					n, err := p.store.MoveLetters(t.Context(), []int64{first.ID}, store.LetterOpen, store.LetterDiscarded, store.Audit{Action: "dlq discard"})
					require.NoError(t, err)
					require.Equal(t, 1, n)
				}
			}
			letters := p.letters()
			if name == "log" {
				require.Len(t, letters, 5)
				return
			}
			require.Len(t, letters, 2)
			first := letters[0]
			require.EqualValues(t, 3, first.Count)
			require.Equal(t, store.LetterOpen, first.State)
			require.Equal(t, at(4), first.Version)
			require.True(t, first.Last.After(first.Created))
			whole, err := p.store.Letter(t.Context(), first.ID)
			require.NoError(t, err)
			again, err := deliver.ChangeOf(whole)
			require.NoError(t, err)
			require.Equal(t, like(a, 4), again)
			require.EqualValues(t, 2, letters[1].Count)
			p.publish(of(service, "y", 5))
			p.delivered()
			require.Len(t, p.letters(), 3)
		})
	}
}

func later(name string, wait time.Duration) func(*deliver.Options) {
	return func(o *deliver.Options) {
		for i := range o.Services {
			if o.Services[i].Name == name {
				o.Services[i].Retry.Later = wait
			}
		}
	}
}

// I9: the owner requests a given-up change again with its letter, once until the next failure.
// Refused changes, and letters of other partitions, are not offered.
func TestI9WhatWasGivenUpIsOfferedAgain(t *testing.T) {
	const off, other = "acme/all@off", "acme/all@other"
	w := newWorld(t, service, off, other)
	p := w.start(map[string]sinks.Traits{service: state, off: state, other: state}, later(service, time.Millisecond), later(other, time.Millisecond))
	p.sinks[off].answer(func([]change.Change) error { return refuse(sinks.RetryBounded, true) })
	p.sinks[other].answer(func([]change.Change) error { return refuse(sinks.Reject, true) })
	p.publish(of(off, "a", 0), of(other, "a", 0))
	p.delivered(off, other)
	p.sinks[service].answer(func([]change.Change) error { return refuse(sinks.RetryBounded, true) })
	c := of(service, "bad", 1)
	for n := range int64(3) {
		p.publish(like(c, n+1))
		asked := func() (found []change.Control) {
			p.mu.Lock()
			defer p.mu.Unlock()
			for _, control := range p.controls {
				if control.Action != change.Refuse {
					found = append(found, control)
				}
			}
			return found
		}
		require.Eventually(t, func() bool { return len(asked()) >= int(n+1) }, patience, time.Millisecond)
		all := asked()
		require.Len(t, all, int(n+1))
		got, letter := all[n], p.letters()[2]
		require.Equal(t, change.Control{
			ID: got.ID, Action: change.Redecide, Services: []string{service}, Version: at(n + 1), Letter: letter.ID, Actor: change.Deliver, Reason: got.Reason,
		}, got)
		require.Equal(t, n+1, letter.Count)
	}
	require.EqualValues(t, 3, p.metric("weir_delivery_offered_again_total", service))
	require.Zero(t, p.metric("weir_delivery_offered_again_total", off)+p.metric("weir_delivery_offered_again_total", other))
}

// The shortest retry.redrive_after of all services sets the period of the search for due
// letters.
func TestI9TheShortestLaterCounts(t *testing.T) {
	w := newWorld(t, service, other)
	p := w.start(map[string]sinks.Traits{service: state, other: state}, later(service, time.Millisecond), later(other, 24*time.Hour))
	p.sinks[service].answer(func([]change.Change) error { return refuse(sinks.RetryBounded, true) })
	p.publish(of(service, "a", 0))
	require.Eventually(t, func() bool { return slices.Contains(p.order(), "redecide a") }, patience, time.Millisecond)
}

// A log sink gets the change itself again, as it was.
func TestI9ALogSinkIsOfferedTheChange(t *testing.T) {
	w := newWorld(t, service)
	p := w.start(map[string]sinks.Traits{service: logOf(100)}, later(service, time.Millisecond))
	p.sinks[service].answer(func([]change.Change) error { return refuse(sinks.RetryBounded, true) })
	c := of(service, "bad", 0)
	p.publish(c)
	require.Eventually(t, func() bool { return len(p.order()) >= 3 }, patience, time.Millisecond)
	require.Equal(t, []string{"refuse bad", "letter bad", "resend bad"}, p.order()[:3])
	p.mu.Lock()
	defer p.mu.Unlock()
	got, rest, err := change.Decode(p.controls[1].Change)
	require.NoError(t, err)
	require.Empty(t, rest)
	require.Equal(t, c, got)
	require.Zero(t, p.controls[1].Version)
}

// A letter whose request the inbox does not take holds up none behind it, and is tried
// once.
func TestI9ALetterThatIsTooLargeHoldsUpNoOther(t *testing.T) {
	w := newWorld(t, service, other)
	var tried atomic.Int32
	p := w.start(map[string]sinks.Traits{service: state, other: state}, later(service, time.Millisecond), later(other, time.Millisecond), func(o *deliver.Options) {
		o.Control = func(ctx context.Context, controls ...change.Record) error {
			if controls[0].Entity == "large" && controls[0].Control.Action == change.Redecide {
				tried.Add(1)
				return fmt.Errorf("append: %w", transport.ErrTooLarge)
			}
			return w.control(ctx, controls...)
		}
	})
	for _, s := range p.sinks {
		s.answer(func([]change.Change) error { return refuse(sinks.RetryBounded, true) })
	}
	p.publish(of(service, "large", 0))
	p.delivered()
	c := of(other, "small", 1)
	for n := range 3 {
		p.publish(like(c, int64(n+1)))
		require.Eventually(t, func() bool {
			asked := slices.DeleteFunc(p.order(), func(e string) bool { return e != "redecide small" })
			return len(asked) == n+1
		}, patience, time.Millisecond)
	}
	require.EqualValues(t, 1, tried.Load())
	require.EqualValues(t, 3, p.metric("weir_delivery_offered_again_total", other))
}

// I13: a change that fails by itself is parked with its entity: the position passes it, the
// next attempt is saved before it is made, and another process resumes both.
func TestARetryIsClaimedBeforeItIsMade(t *testing.T) {
	w := newWorld(t, service)
	p := w.start(map[string]sinks.Traits{service: state}, patiently)
	s := p.sinks[service]
	var claimed []int // attempts in the store during each retry
	fails := func(changes []change.Change) error {
		failed := map[int]error{}
		for i, c := range changes {
			if c.Entity == "bad" {
				failed[i] = refuse(sinks.Retry, true)
				for _, l := range w.letters() {
					claimed = append(claimed, l.Attempts)
				}
			}
		}
		if len(failed) == 0 {
			return nil
		}
		return &sinks.BatchError{Failed: failed}
	}
	s.answer(fails)
	p.publish(of(service, "bad", 0), of(service, "good", 1))
	p.publish(of(service, "good", 2))
	require.Eventually(t, func() bool { return p.stage.Conditions()[service].Parked.Entities == 1 }, patience, time.Millisecond)
	p.delivered()
	require.Equal(t, "bad", p.stage.Conditions()[service].Parked.Entity)
	require.Contains(t, p.stage.Conditions()[service].Parked.Error, "test: no")
	p.publish(of(service, "good", 3))
	require.Eventually(t, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(claimed) > 0 }, patience, time.Millisecond)
	require.NoError(t, p.stop())
	require.Equal(t, 2, claimed[0], "the attempt is counted before it is made")

	letters := w.letters()
	require.Len(t, letters, 1)
	require.Equal(t, store.LetterRetrying, letters[0].State)
	next := w.start(map[string]sinks.Traits{service: state})
	require.Eventually(t, func() bool { return slices.Contains(next.sinks[service].has(), "bad:0") }, patience, time.Millisecond)
	require.Eventually(t, func() bool { return len(w.letters()) == 0 && next.stage.Idle() }, patience, time.Millisecond)
}

// I13: a newer change takes the row over with its attempts, so that an entity that is
// updated all the time ends in a dead letter; a log sink queues behind.
func TestANewerChangeOfAParkedEntity(t *testing.T) {
	for name, traits := range map[string]sinks.Traits{"state": state, "log": logOf(100)} {
		t.Run(name, func(t *testing.T) {
			p, s := only(t, traits)
			s.answer(func(changes []change.Change) error {
				failed := map[int]error{}
				for i, c := range changes {
					if c.Entity == "bad" {
						failed[i] = refuse(sinks.Retry, true)
					}
				}
				if len(failed) == 0 {
					return nil
				}
				return &sinks.BatchError{Failed: failed}
			})
			offset := int64(0)
			require.Eventually(t, func() bool {
				p.publish(of(service, "bad", offset), of(service, fmt.Sprint("good", offset), offset+1))
				offset += 2
				return slices.ContainsFunc(p.letters(), func(l store.DeadLetter) bool { return l.State == store.LetterOpen && l.Code == "gave_up" })
			}, patience, 5*time.Millisecond)
			s.answer(nil)
			p.delivered()
			require.Eventually(t, p.stage.Idle, patience, time.Millisecond)
			if name == "state" {
				return
			}
			last := int64(-1) // what was not given up comes in order
			for _, taken := range s.has() {
				var n int64
				if _, err := fmt.Sscanf(taken, "bad:%d", &n); err == nil {
					require.Greater(t, n, last)
					last = n
				}
			}
		})
	}
}

// The mistake that this catches: slices as large as what may be in hand were not taken
// while one failed change was there, so one entity held up its service after all.
func TestI13OneFailureLeavesRoomForLargeSlices(t *testing.T) {
	p, s := only(t, logOf(100), seldom)
	s.answer(func(changes []change.Change) error {
		failed := map[int]error{}
		for i, c := range changes {
			if c.Entity == "e7" {
				failed[i] = refuse(sinks.Retry, true)
			}
		}
		if len(failed) == 0 {
			return nil
		}
		return &sinks.BatchError{Failed: failed}
	})
	for i := range int64(5) {
		changes, _ := many(100*i, 100)
		p.publish(changes...)
	}
	require.Eventually(t, func() bool { return len(s.has()) == 5*99 }, patience, time.Millisecond)
	require.Eventually(t, func() bool { return p.stage.Conditions()[service].Parked.Rows > 0 }, patience, time.Millisecond)
}
