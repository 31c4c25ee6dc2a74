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
	AwaitUp           // wait until the target is up or tried next: the last error knows
	Write             // write Items: Done
	Retry             // look whether Items are the newest, Claim, save, write: Done
	Conclude          // make dead letters of Items, or have them decided again: Concluded each
)

// Next returns the next step at a time. The caller has added all that there was room for.
func (s *Service) Next(now time.Time) Step {
	if s.down {
		s.down = false
		return Step{Kind: AwaitUp, Until: now.Add(s.interval(s.unreached - 1))}
	}
	if items := s.concluding(); len(items) > 0 {
		return Step{Kind: Conclude, Items: items}
	}
	allowed, at := s.allowance(now)
	quiet := s.wake(now)
	if allowed == 0 {
		return Step{Until: at}
	}
	if at := s.brakedUntil(); at.After(now) {
		return Step{Until: earliest(at, quiet)}
	}
	if s.braked() || s.refused {
		allowed = 1
	}
	due, next := s.due(now, allowed)
	if len(due) > 0 && s.retryNext {
		s.retryNext = false
		return Step{Kind: Retry, Items: due}
	}
	fresh, at := s.fresh(now)
	if len(fresh) > 0 {
		if until, waits := s.gathers(now, len(fresh)); waits {
			return Step{Until: earliest(until, quiet)}
		}
		s.retryNext = true
		return Step{Kind: Write, Items: fresh[:min(len(fresh), allowed)]}
	}
	held, until := s.held(now)
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
func (s *Service) concluding() (out []*Item) {
	for _, i := range s.hand {
		if i.concluding() {
			out = append(out, i)
		}
	}
	for _, queue := range s.rows {
		for _, i := range queue {
			if !i.concluding() {
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

// fresh returns changes to write, up to what one write takes. If there are some, but later, at is
// when. Changes that a sink holds, since it does not park, go first and alone.
func (s *Service) fresh(now time.Time) (fresh []*Item, at time.Time) {
	if s.cfg.Holds {
		for _, i := range s.hand {
			if i.state == Held {
				at = later(at, i.Next)
				fresh = append(fresh, i)
			}
		}
		if at.After(now) {
			return nil, at
		}
		if len(fresh) > 0 {
			return fresh[:min(len(fresh), s.limit)], at
		}
	}
	blocked := map[string]bool{}
	bytes := 0
	for _, i := range s.hand {
		switch {
		case s.cfg.Log && (blocked[i.Entity] || len(s.rows[i.Entity]) > 0):
		case i.state != Fresh:
			blocked[i.Entity] = true
		case i.Next.After(now):
			blocked[i.Entity] = true
			at = earliest(at, i.Next)
		default:
			if bytes += int(i.Bytes); len(fresh) > 0 && s.cfg.MaxBytes > 0 && bytes > s.cfg.MaxBytes {
				return fresh, time.Time{}
			}
			if fresh = append(fresh, i); len(fresh) >= min(s.limit, s.cfg.MaxBatch) {
				return fresh, time.Time{}
			}
		}
	}
	if until, lingers := s.lingers(now, fresh); lingers {
		return nil, earliest(at, until)
	}
	return fresh, at
}

// held returns the next change in turn that found no room for its row, or when it is its time. Each
// time it is another one: the oldest alone hides that the target works for the others.
func (s *Service) held(now time.Time) (next *Item, until time.Time) {
	if s.cfg.Holds {
		return nil, until
	}
	var all []*Item
	for _, i := range s.hand {
		if i.state == Held && s.handed[i.Entity][0] == i && (!s.cfg.Log || len(s.rows[i.Entity]) == 0) {
			all = append(all, i)
		}
	}
	start := slices.Index(all, s.lastHeld) + 1
	for n := range all {
		i := all[(start+n)%len(all)]
		if !i.Next.After(now) {
			s.lastHeld = i
			return i, until
		}
		until = earliest(until, i.Next)
	}
	return nil, until
}

// due returns rows to try, of different entities, and when the first is due.
func (s *Service) due(now time.Time, allowed int) (due []*Item, next time.Time) {
	for _, queue := range s.rows {
		i := queue[0]
		next = earliest(next, i.Next)
		if !i.Next.After(now) {
			due = append(due, i)
		}
	}
	slices.SortFunc(due, func(a, b *Item) int { return cmp.Or(a.Next.Compare(b.Next), cmp.Compare(a.Entity, b.Entity)) })
	due = due[:min(len(due), s.retryBatch, s.cfg.MaxBatch, allowed)]
	if s.count > 0 && next.IsZero() {
		next = now
	}
	return due, next
}

// braked reports whether changes of several entities failed since the last success: then one change
// is tried at a time, ever more seldom. Else a thousand rows are many attempts a second at a target
// that asks for rest.
func (s *Service) braked() bool { return len(s.failing) > 1 }

// brakedUntil returns when the next attempt may be made, also not before the time that the target
// named for each entity; zero: at once.
func (s *Service) brakedUntil() (at time.Time) {
	if !s.braked() && !s.refused {
		return at
	}
	first := true
	for _, until := range s.failing {
		if first || until.Before(at) {
			at, first = until, false
		}
	}
	return later(at, s.lastFailure.Add(s.interval(max(0, s.failures-1))))
}

// interval is the wait after n failures at a target.
func (s *Service) interval(n int) time.Duration { return min(s.doubled(n), longestProbe) }

func (s *Service) doubled(n int) time.Duration {
	return time.Duration(min(float64(s.cfg.MinBackoff)*math.Pow(2, float64(min(n, 30))), float64(s.cfg.MaxBackoff)))
}

// backoff is the wait before the next attempt at a change that failed, spread by a quarter.
func (s *Service) backoff(i *Item, attempts int) time.Duration {
	return time.Duration(float64(s.doubled(attempts)) * (0.75 + 0.5*spread(i.Entity, attempts)))
}

// spread returns a number from 0 to 1 by an entity and a count.
func spread(entity string, n int) float64 {
	h := fnv.New32a()
	_, _ = h.Write(append([]byte(entity), byte(n)))
	return float64(h.Sum32()%1024) / 1024
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
	s.lastFailure = time.Time{}
	for entity := range s.failing {
		s.failing[entity] = time.Time{}
	}
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
	s.spend(now, n.attempts)
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
			s.becomeHeld(i) // the next attempt is at another one
		}
	case together:
		// It may be the failure of any change of the write: the next ones are smaller.
		s.repeat(now, i, e)
	case e.Class == sinks.Reject:
		n.refused++
		s.failed(now, i, e)
		s.becomeRefused(i)
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
		i.Next = now.Add(max(e.RetryAfter, s.interval(i.failures)))
		i.failures++
		s.becomeHeld(i)
	}
}

// withdraw takes a claim back: the attempt was not made, or said nothing about the change.
func (s *Service) withdraw(now time.Time, i *Item) {
	if i.Row {
		i.Attempts--
		i.Next = now.Add(s.backoff(i, i.Attempts))
		s.effect(Effect{Kind: Put, Item: i})
	}
}

func (s *Service) failed(now time.Time, i *Item, e *sinks.Error) {
	if i.Since.IsZero() {
		i.Since = now
	}
	i.Err, i.Reason = e, e.Error()
	s.last = i
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
	if _, is := s.failing[i.Entity]; is || len(s.failing) < mostFailing {
		s.failing[i.Entity] = now.Add(e.RetryAfter)
	}
	old := now.Sub(i.Since)
	if !i.Row {
		i.Attempts++
	}
	i.Next = now.Add(max(s.backoff(i, i.Attempts), e.RetryAfter))
	if errors.Is(e, context.DeadlineExceeded) {
		i.Next = later(i.Next, now.Add(10*took))
	}
	switch {
	case i.Row && (old >= s.cfg.For && (i.failsAlone || alone) || old >= giveUpAnyway*s.cfg.For):
		s.becomeGivenUp(i)
	case i.Row:
		s.effect(Effect{Kind: Put, Item: i})
	case s.room(i):
		s.becomeParked(i)
	default:
		s.becomeHeld(i)
	}
}

// judge notes what an attempt says about the target and the service.
func (s *Service) judge(now time.Time, step Step, whole *sinks.Error, n tally) {
	if s.down = n.succeeded+n.answered == 0; s.down {
		s.unreached++
		return
	}
	s.unreached, s.refused = 0, n.pausing > 0
	if n.succeeded+n.answered > n.refused { // a refusal of its content is no attempt that shows anything
		s.number(step.Items)
	}
	switch {
	case n.succeeded > 0:
		s.lastSuccess = s.attempt
		s.works(now, step)
	case whole != nil && len(step.Items) > 1:
		s.split(now, step)
	case n.answered > n.refused:
		s.failures++
		s.lastFailure, s.retryBatch = now, 1
		if s.failures == len(s.failing) { // just braked, or not yet: a change that did not fail goes first
			s.retryNext = false
		}
	}
}

// number notes an attempt for its items and the service.
func (s *Service) number(items []*Item) {
	s.lastAttempt = s.attempt
	for _, i := range items {
		i.lastAttempt = s.attempt
		if i.Entity != items[0].Entity {
			s.lastAttempt = s.attempt + 1
		}
	}
}

// split makes the next write half as large, after one that failed as a whole: also before a time that
// the target named, which may be that of one change.
func (s *Service) split(now time.Time, step Step) {
	if s.retryBatch = 1; step.Kind == Write {
		s.limit = max(1, len(step.Items)/2)
	}
	if s.refused {
		s.failures++
		s.lastFailure = now
	}
}

// works is for a success: the brake ends, and writes grow. Rows become due over a while.
func (s *Service) works(now time.Time, step Step) {
	if s.braked() {
		for _, queue := range s.rows {
			i := queue[0]
			if at := now.Add(time.Duration(float64(spreadRows) * spread(i.Entity, 0))); i.Next.After(at) {
				i.Next = at
			}
		}
	}
	s.failures = 0
	clear(s.failing)
	if len(step.Items) >= s.limit {
		s.limit = min(2*s.limit, s.cfg.MaxBatch)
	}
	if step.Kind == Retry {
		s.retryBatch = min(2*s.retryBatch, s.cfg.MaxBatch)
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
		s.dropRow(i.Entity, i)
		if !letter {
			s.effect(Effect{Kind: End, Item: i})
		}
	}
	s.becomeSettled(i, outcome, nil)
	s.sweep()
}
