package core

import (
	"cmp"
	"context"
	"errors"
	"hash/fnv"
	"math"
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
	AwaitUp           // wait until the target is up or this service probes it: the last error knows
	Write             // write Items: Done
	Retry             // look whether Items are the newest, Claim, save, write: Done
	Conclude          // make dead letters of Items, or have them decided again: Concluded each
)

// Next returns the next step at a time. The caller has added all that there was room for.
func (s *Service) Next(now time.Time) Step {
	if s.down {
		s.down = false
		return Step{Kind: AwaitUp, Until: now.Add(s.cfg.MinBackoff)}
	}
	if verdicts := s.verdicts(); len(verdicts) > 0 {
		return Step{Kind: Conclude, Items: verdicts}
	}
	allowed, at := s.allowance(now)
	quiet := s.wake(now)
	if allowed == 0 {
		return Step{Until: at}
	}
	fresh, at, paced := s.fresh(now)
	due, next := s.due(now, allowed)
	if len(due) > 0 && s.turn {
		s.turn = false
		return Step{Kind: Retry, Items: due}
	}
	if len(fresh) > 0 {
		if until, waits := s.gathers(now, len(fresh), allowed); waits {
			return Step{Until: earliest(until, quiet)}
		}
		fresh = fresh[:min(len(fresh), allowed)]
	}
	if len(fresh) > 0 {
		s.turn = true
		return Step{Kind: Write, Items: fresh}
	}
	if !paced {
		probe, until := s.probe(now)
		if probe != nil {
			s.turn = true
			return Step{Kind: Write, Items: []*Item{probe}}
		}
		at = earliest(at, until)
	}
	if len(due) > 0 { // nothing else can be tried now
		s.turn = false
		return Step{Kind: Retry, Items: due}
	}
	return Step{Until: earliest(earliest(at, next), quiet)}
}

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func (s *Service) verdicts() (out []*Item) {
	for _, i := range s.hand {
		if i.verdict != Undecided {
			out = append(out, i)
		}
	}
	for _, queue := range s.rows {
		for _, i := range queue {
			if i.verdict == Undecided {
				break
			}
			out = append(out, i)
		}
	}
	slices.SortFunc(out, func(a, b *Item) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Position, b.Position))
	})
	return out
}

// fresh returns changes that are no suspects, up to what one write takes. If there are
// some, but later, at is when. paced reports that suspects wait for them, too.
func (s *Service) fresh(now time.Time) (fresh []*Item, at time.Time, paced bool) {
	if s.cfg.Holds {
		for _, i := range s.hand {
			if i.failed > 0 && i.verdict == Undecided {
				at = later(at, i.Next)
				fresh = append(fresh, i)
			}
		}
		if at.After(now) {
			return nil, at, true
		}
		if len(fresh) > 0 {
			return fresh[:min(len(fresh), s.limit)], at, true
		}
	} else if s.paused {
		return nil, at, false
	}
	blocked := map[string]bool{}
	bytes := 0
	for _, i := range s.hand {
		switch {
		case s.cfg.Log && (blocked[i.Entity] || len(s.rows[i.Entity]) > 0):
		case i.suspect || i.verdict != Undecided:
			blocked[i.Entity] = true
		case i.Next.After(now):
			blocked[i.Entity] = true
			at = earliest(at, i.Next)
		default:
			if bytes += int(i.Bytes); len(fresh) > 0 && s.cfg.MaxBytes > 0 && bytes > s.cfg.MaxBytes {
				return s.spaced(now, fresh)
			}
			if fresh = append(fresh, i); len(fresh) >= min(s.limit, s.cfg.MaxBatch) {
				return s.spaced(now, fresh)
			}
		}
	}
	if len(fresh) > 0 {
		if until, lingers := s.lingers(now, fresh); lingers {
			return nil, earliest(at, until), false
		}
		return s.spaced(now, fresh)
	}
	return nil, at, false
}

// spaced holds back first attempts after two in a row in which nothing succeeded.
func (s *Service) spaced(now time.Time, fresh []*Item) ([]*Item, time.Time, bool) {
	if s.freshFailures >= 2 {
		if at := s.lastFailure.Add(s.interval(s.freshFailures - 2)); at.After(now) {
			return nil, at, true
		}
	}
	return fresh, time.Time{}, true
}

// probe returns the next suspect in turn, each time another one, or when it is its time.
// A service that is refused as a whole is probed with any change.
func (s *Service) probe(now time.Time) (*Item, time.Time) {
	var candidates []*Item
	var until time.Time
	for _, i := range s.hand {
		first := s.handed[i.Entity][0] == i && (!s.cfg.Log || len(s.rows[i.Entity]) == 0)
		if first && (i.suspect || s.paused) {
			candidates = append(candidates, i)
		}
	}
	if len(candidates) == 0 {
		return nil, until
	}
	if at := s.lastFailure.Add(s.interval(s.probeFailures)); at.After(now) && !(s.split && s.probeFailures == 0) {
		return nil, at
	}
	start := slices.Index(candidates, s.probed) + 1
	for n := range candidates {
		i := candidates[(start+n)%len(candidates)]
		if !i.Next.After(now) {
			s.probed = i
			return i, until
		}
		until = earliest(until, i.Next)
	}
	return nil, until
}

// interval is the wait after n failures.
func (s *Service) interval(n int) time.Duration {
	return min(time.Duration(float64(s.cfg.MinBackoff)*math.Pow(2, float64(min(n, 30)))), s.cfg.MaxBackoff, maxProbe)
}

// backoff is the wait before the next attempt at a row, spread by a quarter.
func (s *Service) backoff(i *Item, attempts int) time.Duration {
	d := min(time.Duration(float64(s.cfg.MinBackoff)*math.Pow(2, float64(min(attempts, 30)))), s.cfg.MaxBackoff)
	h := fnv.New32a()
	_, _ = h.Write(append([]byte(i.Entity), byte(attempts)))
	return time.Duration(float64(d) * (0.75 + float64(h.Sum32()%1024)/2048))
}

// due returns rows to try, of different entities, and when the first is due.
func (s *Service) due(now time.Time, allowed int) (due []*Item, next time.Time) {
	if s.count == 0 {
		return nil, next
	}
	for _, queue := range s.rows {
		i := queue[0]
		next = earliest(next, i.Next)
		if !i.Next.After(now) {
			due = append(due, i)
		}
	}
	slices.SortFunc(due, func(a, b *Item) int { return cmp.Or(a.Next.Compare(b.Next), cmp.Compare(a.Entity, b.Entity)) })
	due = due[:min(len(due), s.burst, s.cfg.MaxBatch, allowed)]
	if len(s.failing) > 1 || s.paused { // nothing has succeeded for a while
		if at := s.lastFailure.Add(s.interval(s.failures - 2)); at.After(now) {
			return nil, at
		}
	}
	if next.IsZero() {
		next = now
	}
	return due, next
}

// Claim counts the attempts at rows before they are made. The caller saves the effects
// before it writes.
func (s *Service) Claim(now time.Time, rows []*Item) {
	for _, i := range rows {
		i.Attempts++
		i.Next = now.Add(s.backoff(i, i.Attempts))
		s.effect(Effect{Kind: Put, Item: i})
	}
}

// Postpone leaves a row for the newer change that was decided, which takes it over.
func (s *Service) Postpone(now time.Time, i *Item) { i.Next = now.Add(s.backoff(i, i.Attempts)) }

// Leave settles an item without an attempt.
func (s *Service) Leave(i *Item, outcome Outcome) {
	if i.Parked {
		s.endRow(i, outcome, nil)
	} else {
		s.settle(i, outcome, nil)
	}
	s.sweep()
}

// Hurry makes everything due: an operator requested an attempt.
func (s *Service) Hurry(now time.Time) {
	s.lastFailure, s.split = time.Time{}, true
	for _, i := range s.hand {
		i.Next = time.Time{}
	}
	for _, queue := range s.rows {
		queue[0].Next = earliest(queue[0].Next, now)
	}
}

// Done notes the outcome of a Write or Retry. failed has the failure of each item, nil for
// a success; whole is the one that holds for all of them, and failed is not read. split
// says that the error may be one item's although the service is refused.
func (s *Service) Done(now time.Time, step Step, took time.Duration, failed []*sinks.Error, whole *sinks.Error, split bool) {
	s.attempt++
	attempted, paused, attempts := false, false, 0
	for n, i := range step.Items {
		if whole == nil && failed[n] == nil {
			s.worked = s.attempt
		}
		i.Stale = true
	}
	succeeded := s.worked == s.attempt
	behind := map[string]bool{} // of a log sink: an earlier change failed
	for n, i := range step.Items {
		e := whole
		if e == nil {
			e = failed[n]
		}
		if e == nil || e.Attempted() {
			attempts++
		}
		if e != nil && (!e.Attempted() || behind[i.Entity]) {
			s.withdraw(now, i)
			continue
		}
		attempted = true
		behind[i.Entity] = s.cfg.Log && e != nil && e.Class != sinks.Reject && (whole == nil || len(step.Items) == 1)
		i.before, i.tried = i.tried, s.attempt
		switch {
		case e == nil:
			s.success(i)
		case s.cfg.Holds && (whole == nil || len(step.Items) == 1 || outage(e) && !split) && e.Class != sinks.Reject:
			paused = paused || e.Class == sinks.Pause
			s.hold(now, i, e, succeeded || len(step.Items) == 1)
		case whole != nil && len(step.Items) > 1:
			paused = paused || e.Class == sinks.Pause && !split
			s.failedTogether(now, i, e, split)
		case e.Class == sinks.Pause:
			paused = true
			s.failed(now, i, e)
			s.withdraw(now, i)
		case e.Class == sinks.Reject:
			s.failed(now, i, e)
			i.verdict = Refused
		case i.Parked:
			s.retryFailed(now, i, e, took)
		default:
			s.suspect(now, i, e, took, succeeded)
		}
	}
	s.spend(now, attempts)
	s.down = !attempted
	if attempted {
		s.tried, s.paused = s.attempt, paused
	}
	switch {
	case succeeded:
		s.evidence(now, step)
	case attempted:
		s.nothing(now, step, whole)
	default:
		s.lastFailure = now
	}
	s.sweep()
}

// withdraw takes a claim back: the attempt was not made, or said nothing about the change.
func (s *Service) withdraw(now time.Time, i *Item) {
	if i.Parked {
		i.Attempts--
		i.Next = now.Add(s.backoff(i, i.Attempts))
		s.effect(Effect{Kind: Put, Item: i})
	}
}

func (s *Service) success(i *Item) {
	if i.Parked {
		s.endRow(i, Delivered, nil)
	} else {
		s.settle(i, Delivered, nil)
	}
}

func (s *Service) failed(now time.Time, i *Item, e *sinks.Error) {
	if i.Since.IsZero() {
		i.Since = now
	}
	i.Err, i.Reason = e, e.Error()
	s.last = i
}

// failedTogether handles a failure that any change of the write may have caused: the next ones
// are smaller. A failure that is no outage makes no suspects.
func (s *Service) failedTogether(now time.Time, i *Item, e *sinks.Error, split bool) {
	if i.Parked {
		s.withdraw(now, i)
		return
	}
	if outage(e) && !split {
		s.failed(now, i, e)
		i.suspect, i.beside = true, false
	}
}

func outage(e *sinks.Error) bool {
	return e.Class == sinks.Retry || e.Class == sinks.Pause || e.Outage != sinks.NoOutage
}

// hold is for a change that failed at a service that does not park: it is repeated before
// anything else is written. counts says that the failure may be its own.
func (s *Service) hold(now time.Time, i *Item, e *sinks.Error, counts bool) {
	s.failed(now, i, e)
	if e.Class == sinks.RetryBounded && (counts || s.doubt) {
		if i.Attempts++; i.Attempts >= s.cfg.Attempts {
			i.verdict = GivenUp
		}
	}
	i.Next = now.Add(max(e.RetryAfter, s.interval(i.failed)))
	i.failed++
}

// suspect handles a queued change that failed while others succeeded.
func (s *Service) suspect(now time.Time, i *Item, e *sinks.Error, took time.Duration, beside bool) {
	s.failed(now, i, e)
	i.suspect, i.beside = true, beside
	i.failed++
	i.Next = now.Add(e.RetryAfter)
	if errors.Is(e, context.DeadlineExceeded) {
		i.Next = later(i.Next, now.Add(10*took))
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// retryFailed is for a row that failed. The attempt counts if the target worked for
// another entity since the one before, or if no other was tried and the target answered.
func (s *Service) retryFailed(now time.Time, i *Item, e *sinks.Error, took time.Duration) {
	s.failed(now, i, e)
	alone := s.tried <= i.before // since then: what was tried later was another
	if s.worked <= i.before && !s.doubt && (!alone || e.Class != sinks.RetryBounded) {
		i.Attempts--
	} else if i.Attempts >= s.cfg.Attempts {
		i.verdict = GivenUp
		return
	}
	i.Next = later(i.Next, now.Add(e.RetryAfter))
	if errors.Is(e, context.DeadlineExceeded) {
		i.Next = later(i.Next, now.Add(10*took))
	}
	s.effect(Effect{Kind: Put, Item: i})
}

// evidence judges suspects after a success: the target works.
func (s *Service) evidence(now time.Time, step Step) {
	s.failures, s.freshFailures, s.probeFailures, s.split, s.doubt = 0, 0, 0, false, false
	clear(s.failing)
	if len(step.Items) >= s.limit {
		s.limit = min(2*s.limit, s.cfg.MaxBatch)
	}
	if step.Kind == Retry {
		s.burst = min(2*s.burst, s.cfg.MaxBatch)
	}
	for _, i := range s.hand {
		if !i.suspect || i.settled || i.tried >= s.attempt {
			continue
		}
		if !i.beside && !i.second {
			i.suspect, i.second = false, true
			continue
		}
		s.park(now, i, 1)
	}
}

// park parks a suspect after attempts that count, if there is room.
func (s *Service) park(now time.Time, i *Item, attempts int) {
	switch {
	case i.Attempts+attempts >= s.cfg.Attempts:
		i.Attempts += attempts
		i.verdict = GivenUp
	case s.room(i):
		i.Attempts += attempts
		i.Next = later(i.Next, now.Add(s.backoff(i, i.Attempts)))
		s.put(i)
	}
}

// nothing is for an attempt without any success.
func (s *Service) nothing(now time.Time, step Step, whole *sinks.Error) {
	together := whole != nil && len(step.Items) > 1
	s.lastFailure, s.split = now, together
	if together && step.Kind == Write {
		s.limit = max(1, len(step.Items)/2)
		s.probeFailures = 0 // the new suspects were not probed
	}
	if step.Kind == Retry {
		s.burst = 1
	}
	refused := true // or to be tried in smaller writes: says nothing about the target
	for _, i := range step.Items {
		refused = refused && (i.verdict == Refused || together && !i.suspect && !i.Parked)
	}
	if refused {
		return
	}
	s.failures++
	for _, i := range step.Items {
		if len(s.failing) < 64 {
			s.failing[i.Entity] = true
		}
	}
	first := step.Items[0]
	switch {
	case step.Kind == Retry:
	case s.probed == first && len(step.Items) == 1:
		s.probeFailures++
	default:
		s.freshFailures++
	}
	if s.paused {
		return
	}
	if first.suspect && len(step.Items) == 1 && first.Err.Class == sinks.RetryBounded && len(s.handed) == 1 {
		s.park(now, first, first.failed) // alone, and the target answered
		return
	}
	if s.failures >= s.cfg.Backstop {
		s.doubt = true
		for _, i := range s.hand {
			if i.suspect && i.verdict == Undecided {
				s.failures = 0
				s.park(now, i, 1)
				break
			}
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
	if i.Parked {
		s.dropRow(i.Entity, i)
		if !letter {
			s.effect(Effect{Kind: End, Item: i})
		}
	}
	s.settle(i, outcome, nil)
	s.sweep()
}
