package core

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/seed-86dfc502/weir/sinks"
)

// Step is the caller's next action.
type Step struct {
	Kind  StepKind
	Items []*Item
	// Until is when Next may have another answer although nothing arrived. Zero means never.
	Until time.Time
}

// StepKind is the kind of a step.
type StepKind int

// Each but Wait ends with the call that its name says.
const (
	Wait     StepKind = iota
	AwaitUp           // wait until the target is up or tried next: the last error knows
	Write             // write Items: Done
	Retry             // look whether Items are the newest, Claim, save, write: Done
	Conclude          // make dead letters of Items, or have them decided again: Concluded each
)

// Next returns the next step at a time. The caller has added all that there was room for.
func (s *Service) Next(now time.Time) Step {
	if s.brake.down {
		s.brake.down = false
		return Step{Kind: AwaitUp, Until: now.Add(s.brake.interval(s.brake.unreached - 1))}
	}
	if items := s.concluding(); len(items) > 0 {
		return Step{Kind: Conclude, Items: items}
	}
	allowed, at := s.Rate.allowance(now)
	quiet := s.Hand.wake(now)
	if allowed == 0 {
		return Step{Until: at}
	}
	if at := s.brake.until(); at.After(now) {
		return Step{Until: earliest(at, quiet)}
	}
	if s.brake.braked() || s.brake.refused {
		allowed = 1
	}
	due, next := s.rows.due(now, min(s.retryBatch, s.cfg.MaxBatch, allowed))
	if len(due) > 0 && s.retryNext {
		s.retryNext = false
		return Step{Kind: Retry, Items: due}
	}
	fresh, at := s.Hand.fresh(now, s.limit, &s.rows)
	if len(fresh) > 0 {
		if until, waits := s.Rate.gathers(now, len(fresh)); waits {
			return Step{Until: earliest(until, quiet)}
		}
		s.retryNext = true
		return Step{Kind: Write, Items: fresh[:min(len(fresh), allowed)]}
	}
	held, until := s.Hand.held(now, &s.rows)
	if held != nil {
		s.retryNext = true
		return Step{Kind: Write, Items: []*Item{held}}
	}
	if len(due) > 0 { // nothing else can be tried now
		s.retryNext = false
		return Step{Kind: Retry, Items: due}
	}
	return Step{Until: earliest(earliest(at, until), earliest(next, quiet))}
}

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// concluding returns the items that wait for Concluded.
func (s *Service) concluding() []*Item {
	out := s.rows.concluding()
	for _, i := range s.Hand.ready {
		if i.concluding() {
			out = append(out, i)
		}
	}
	slices.SortFunc(out, func(a, b *Item) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Position, b.Position))
	})
	return out
}

// Claim counts the attempts at rows before they are made. The caller saves the effects
// before it writes.
func (s *Service) Claim(now time.Time, rows []*Item) {
	for _, i := range rows {
		i.Attempts++
		i.Next = now.Add(s.brake.backoff(i))
		s.effect(Effect{Kind: Put, Item: i})
	}
}

// Postpone leaves a row for the newer change that was decided, which takes it over.
func (s *Service) Postpone(now time.Time, i *Item) { i.Next = now.Add(s.brake.backoff(i)) }

// Leave settles an item without an attempt.
func (s *Service) Leave(i *Item, outcome Outcome) {
	s.settled(i, outcome)
	s.sweep()
}

func (s *Service) settled(i *Item, outcome Outcome) {
	if i.Row {
		s.endRow(i, outcome, nil)
	} else {
		s.becomeSettled(i, outcome, nil)
	}
}

// Hurry makes everything due: an operator requested an attempt.
func (s *Service) Hurry(now time.Time) {
	s.brake.hurry()
	for _, i := range s.Hand.ready {
		i.Next = time.Time{}
	}
	s.rows.hurry(now, 0)
}

// Done notes the outcome of a Write or Retry. failed has the failure of each item, nil for
// a success; whole is the one that holds for all of them, and failed is not read. split
// says that the error may be one item's although the service is refused.
func (s *Service) Done(now time.Time, step Step, took time.Duration, failed []*sinks.Error, whole *sinks.Error, split bool) {
	s.attempt += 2
	n := tally{attempts: len(step.Items)}
	behind := map[string]bool{} // of a log sink: an earlier change failed
	for at, i := range step.Items {
		i.Stale = true
		e := whole
		if e == nil {
			e = failed[at]
		}
		together := whole != nil && len(step.Items) > 1
		switch {
		case e == nil:
			n.succeeded++
			s.settled(i, Delivered)
		case !e.Attempted():
			n.attempts--
			s.withdraw(now, i)
		case behind[i.Entity]:
			s.withdraw(now, i)
		case e.Unreachable: // says nothing about the change
			s.repeat(now, i, e)
		default:
			n.answered++
			s.answered(now, i, e, took, together, split, &n)
		}
		behind[i.Entity] = behind[i.Entity] || s.cfg.Log && e != nil && e.Class != sinks.Reject && !together
	}
	s.Rate.spend(now, n.attempts)
	s.judge(now, step, whole, n)
	s.sweep()
}

// tally counts the outcomes of an attempt.
type tally struct {
	attempts            int // that the sink made
	succeeded, answered int // by items; answered by a failure
	refused, pausing    int // of these: the change, the service
}

// answered is for an answer against an item.
func (s *Service) answered(now time.Time, i *Item, e *sinks.Error, took time.Duration, together, split bool, n *tally) {
	switch {
	case e.Class == sinks.Pause && !(together && split):
		n.pausing++
		s.failed(now, i, e)
		if s.repeat(now, i, e); !together && !i.Row {
			i.becomeHeld() // the next attempt is at another one
		}
	case together:
		// It may be the failure of any change of the write: the next ones are smaller.
		s.repeat(now, i, e)
	case e.Class == sinks.Reject:
		n.refused++
		s.failed(now, i, e)
		i.becomeRefused()
	case s.cfg.Holds:
		s.repeat(now, i, e)
	default:
		s.failedAlone(now, i, e, took)
	}
}

// repeat is for a failure that is not the item's own. A sink that does not park repeats it before
// anything else.
func (s *Service) repeat(now time.Time, i *Item, e *sinks.Error) {
	s.withdraw(now, i)
	if s.cfg.Holds {
		s.failed(now, i, e)
		i.Next = now.Add(max(e.RetryAfter, s.brake.interval(i.failures)))
		i.failures++
		i.becomeHeld()
	}
}

// withdraw takes a claim back: the attempt was not made, or said nothing about the change.
func (s *Service) withdraw(now time.Time, i *Item) {
	if i.Row {
		i.Attempts--
		i.Next = now.Add(s.brake.backoff(i))
		s.effect(Effect{Kind: Put, Item: i})
	}
}

func (s *Service) failed(now time.Time, i *Item, e *sinks.Error) {
	if i.Since.IsZero() {
		i.Since = now
	}
	i.Err, i.Reason = e, e.Error()
}

// failedAlone is for an answer against one change: it is parked at once if there is room. A row is
// given up when it is old and another entity succeeded since its attempt before, or no other was
// tried: time alone would give up good changes in one long outage.
func (s *Service) failedAlone(now time.Time, i *Item, e *sinks.Error, took time.Duration) {
	alone := s.lastAttempt == i.lastAttempt
	if i.Reason != "" { // its attempt before failed, too
		i.failsAlone = s.lastSuccess > i.lastAttempt
	}
	s.failed(now, i, e)
	s.brake.failed(i.Entity, now.Add(e.RetryAfter))
	old := now.Sub(i.Since)
	if !i.Row {
		i.Attempts++
	}
	i.Next = now.Add(max(s.brake.backoff(i), e.RetryAfter))
	if errors.Is(e, context.DeadlineExceeded) {
		i.Next = later(i.Next, now.Add(10*took))
	}
	switch {
	case i.Row && (old >= s.cfg.For && (i.failsAlone || alone) || old >= giveUpAnyway*s.cfg.For):
		i.becomeGivenUp()
	case i.Row:
		s.effect(Effect{Kind: Put, Item: i})
	case s.rows.room(i):
		s.becomeParked(i)
	default:
		i.becomeHeld()
	}
}

// judge notes what an attempt says about the target and the service.
func (s *Service) judge(now time.Time, step Step, whole *sinks.Error, n tally) {
	b := &s.brake
	if b.down = n.succeeded+n.answered == 0; b.down {
		b.unreached++
		return
	}
	b.unreached, b.refused = 0, n.pausing > 0
	if n.succeeded+n.answered > n.refused { // a refusal of its content is no attempt that shows anything
		s.number(step.Items)
	}
	switch {
	case n.succeeded > 0:
		s.lastSuccess = s.attempt
		if b.braked() {
			s.rows.hurry(now, spreadRows)
		}
		b.release()
		s.grow(step)
	case whole != nil && len(step.Items) > 1:
		// Also before a time that the target named, which may be one change's.
		if s.halve(step); b.refused {
			b.failures++
			b.lastFailure = now
		}
	case n.answered > n.refused:
		b.failures++
		b.lastFailure, s.retryBatch = now, 1
		if b.failures == len(b.failing) { // just braked, or not yet: a change that did not fail goes first
			s.retryNext = false
		}
	}
}

// Concluded ends an item of a Conclude step: it became a dead letter, or is decided again.
func (s *Service) Concluded(i *Item, letter bool) {
	outcome := Redecided
	if letter {
		outcome = Dead
		s.effect(Effect{Kind: Letter, Item: i})
	}
	if i.Row {
		s.rows.drop(i)
		if !letter {
			s.effect(Effect{Kind: End, Item: i})
		}
	}
	s.becomeSettled(i, outcome, nil)
	s.sweep()
}
