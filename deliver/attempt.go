package deliver

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver/core"
	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/internal/tracing"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
)

// attempt is a step of core that leads to the sink: the checks before it, one call of Write, and what
// that shows.
type attempt struct {
	*worker
	step core.Step

	todo    []*delivery     // of the items of step
	changes []change.Change // of todo
	failed  []*sinks.Error  // by change; nil for a success
	whole   *sinks.Error    // the failure of all of them, if there is one
	start   time.Time
	took    time.Duration
	// receipts are for the history. answered says that the sink gave some.
	receipts []sinks.Receipt
	answered bool
}

// write makes an attempt at changes in hand.
func (a *attempt) write(work, stop context.Context) error {
	if _, err := a.target.awaitResumed(stop); err != nil {
		return err
	}
	if err := a.target.open(work, stop); err != nil {
		return err
	}
	if err := a.recovery.resume(work, stop); err != nil {
		return err
	}
	if err := a.dropObsolete(work, stop, a.target.waited); err != nil {
		return err
	}
	a.leaveKnown()
	return a.try(work, stop)
}

// dropObsolete drops, for a state sink, changes whose entity has a newer decision: its change is on the way
// (I10). It looks at changes that have waited in hand, or at all. A row waits for the newer change, which takes
// it over, unless that change is in another partition. It also drops the changes of revoked partitions.
func (a *attempt) dropObsolete(work, stop context.Context, all bool) error {
	a.leaveRevoked()
	if a.traits.Kind != sinks.State {
		return nil
	}
	var entities []string
	for _, i := range a.step.Items {
		if i.Stale || all {
			entities = append(entities, i.Entity)
		}
	}
	rows, err := a.s.rows(work, stop, a.opt.Number, entities)
	if err != nil {
		return err
	}
	a.step.Items = slices.DeleteFunc(a.step.Items, func(i *core.Item) bool {
		newer := rows[i.Entity].Version
		switch {
		case newer <= i.Version:
			return false
		case i.Row && a.s.opt.Partition(i.Entity, newer) == i.Partition:
			a.core.Postpone(time.Now(), i)
		default:
			a.core.Leave(i, core.Overtaken)
		}
		return true
	})
	return nil
}

// leaveRevoked drops the changes of revoked partitions, here and in the step.
func (a *attempt) leaveRevoked() {
	a.dropRevoked()
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	a.step.Items = slices.DeleteFunc(a.step.Items, func(i *core.Item) bool { return i.Assignment.Revoked() })
}

// leaveKnown settles changes whose content the target has.
func (a *attempt) leaveKnown() {
	a.step.Items = slices.DeleteFunc(a.step.Items, func(i *core.Item) bool {
		if !a.known.has(i, &i.Data.(*delivery).change) {
			return false
		}
		a.core.Leave(i, core.Skipped)
		return true
	})
}

// retry makes an attempt at parked changes.
func (a *attempt) retry(work, stop context.Context) error {
	waited, err := a.target.awaitResumed(stop)
	if err != nil || waited {
		return err
	}
	if err := a.target.open(work, stop); err != nil {
		return err
	}
	if err := a.dropObsolete(work, stop, true); err != nil {
		return err
	}
	if err := a.letters.load(work, stop, a.step.Items); err != nil {
		return err
	}
	if err := a.leaveUnreadable(work, stop); err != nil {
		return err
	}
	return a.try(work, stop)
}

// leaveUnreadable ends the parked changes of a retry whose rows were edited by hand. Their rows of the
// dam say that the target does not have the content.
func (a *attempt) leaveUnreadable(work, stop context.Context) error {
	without := func(i *core.Item) bool { return i.Data == nil }
	if !slices.ContainsFunc(a.step.Items, without) {
		return nil
	}
	// A restored store may lack the row: then the next owner has it, and what follows it.
	if err := a.s.retryUntil(work, stop, "check whose partition it is", func() error { return a.s.saver.checkTokens(work) }); err != nil {
		return err
	}
	a.leaveRevoked()
	var gone []*core.Item
	a.step.Items = slices.DeleteFunc(a.step.Items, func(i *core.Item) bool {
		if without(i) {
			gone = append(gone, i)
		}
		return without(i)
	})
	if err := a.letters.refuse(work, stop, "its stored change cannot be read", gone); err != nil {
		return err
	}
	for _, i := range gone {
		a.core.Leave(i, core.Skipped)
	}
	return nil
}

// claim counts the attempts of a retry before they are made, and saves that: they count also if they
// kill the process, and a former owner makes none.
func (a *attempt) claim(work context.Context) error {
	loaded := make([]any, len(a.step.Items))
	for n, i := range a.step.Items {
		loaded[n] = i.Data
	}
	a.core.Claim(time.Now(), a.step.Items)
	a.apply()
	for n, i := range a.step.Items {
		i.Data = loaded[n]
	}
	if err := a.saved(work, a.step.Items); err != nil {
		return err
	}
	a.leaveRevoked()
	return nil
}

// try hands the changes that the guard admits to the sink once, and records the
// outcome. No other way leads to the sink.
func (a *attempt) try(work, stop context.Context) error {
	released, err := a.admit(work, stop)
	if err == nil && released {
		err = a.dropObsolete(work, stop, false)
	}
	if err == nil && a.step.Kind == core.Retry && len(a.step.Items) > 0 {
		err = a.claim(work)
	}
	if err != nil {
		return err
	}
	if len(a.step.Items) == 0 {
		a.apply()
		return nil
	}
	a.todo, a.changes = make([]*delivery, len(a.step.Items)), make([]change.Change, len(a.step.Items))
	for n, i := range a.step.Items {
		a.todo[n] = i.Data.(*delivery)
		a.changes[n] = a.todo[n].change
		a.known.forget(i.Entity)
	}
	ctx, cancel := wait.WithGrace(work, stop, a.s.opt.StopGrace)
	defer cancel()
	end, err := a.s.large.begin(ctx, a.changes)
	if err != nil {
		return errStopped
	}
	a.call(ctx)
	end()
	if ctx.Err() != nil { // the failures say nothing about the changes
		a.notAttempted()
	}
	split := slices.ContainsFunc(a.todo, a.letters.outdated)
	a.remember()
	a.core.Done(time.Now(), a.step, a.took, a.failed, a.whole, split)
	a.recordAll()
	a.apply()
	if ctx.Err() != nil {
		return errStopped
	}
	a.report()
	if !a.traits.Guarded && slices.Contains(a.failed, nil) {
		// A crash repeats one write at such a target, or two.
		return a.saved(work, a.step.Items)
	}
	a.s.saver.poke()
	return nil
}

// admit returns the changes that may be attempted: those that the guard does not count, has
// counted, or that an operator released. It drops those that an operator discarded, and with the first
// held one the changes of a Write behind it. released says that some were released. Changes that
// passed before are not counted again, unless the service was paused since.
func (a *attempt) admit(work, stop context.Context) (released bool, err error) {
	a.target.waited = false
	for _, kind := range []store.GuardKind{store.GuardRetract, store.GuardUpdate} {
		if a.guard.limits.share(kind) <= 0 {
			continue
		}
		var counted []*core.Item
		var changes []store.GuardedChange
		for _, i := range a.step.Items {
			if i.Admitted <= a.target.resumes && GuardKind(&i.Data.(*delivery).change) == kind {
				counted = append(counted, i)
				c := &i.Data.(*delivery).change
				changes = append(changes, store.GuardedChange{Entity: i.Entity, Partition: i.Partition, Position: i.Position, At: c.At, Young: c.Young(a.guard.limits.Window)})
			}
		}
		if len(counted) == 0 {
			continue
		}
		answers, pause, err := a.guard.count(work, stop, kind, changes)
		if err != nil {
			return released, err
		}
		crash.At(crash.GuardCounted, a.opt.Name)
		released = released || slices.Contains(answers, store.Released)
		if err := a.judged(work, stop, counted, answers); err != nil {
			return released, err
		}
		if slices.Contains(answers, store.Held) {
			crash.At(crash.GuardHeld, a.opt.Name)
			// Here at once; other processes see the pause in the store.
			if a.pause(PauseOf(*pause)) && pause.Hold != nil {
				a.m.held.Inc()
			}
		}
	}
	return released, nil
}

// judged applies answers to the changes of a step. A released change of a state sink is stale: it is
// written only if it is the newest. A discarded one is refused: its row says that the target does not
// have this content.
func (a *attempt) judged(work, stop context.Context, counted []*core.Item, answers []store.Admitted) error {
	var discarded []*core.Item
	left := map[*core.Item]bool{}
	cut := len(a.step.Items)
	for n, i := range counted {
		switch answers[n] {
		case store.Released:
			i.Stale = true
			fallthrough
		case store.Counted, store.Uncounted:
			i.Admitted = a.target.resumes + 1
		case store.Discarded:
			discarded = append(discarded, i)
			left[i] = true
		case store.Held:
			left[i] = true
			if a.step.Kind == core.Write {
				cut = min(cut, slices.Index(a.step.Items, i))
			}
		}
	}
	a.step.Items = slices.DeleteFunc(a.step.Items[:cut], func(i *core.Item) bool { return left[i] })
	if err := a.letters.refuse(work, stop, "discarded", discarded); err != nil {
		return err
	}
	for _, i := range discarded {
		a.core.Leave(i, core.Discarded)
	}
	return nil
}

// call calls the sink.
func (a *attempt) call(ctx context.Context) {
	crash.At(crash.Writing, a.opt.Name)
	if crash.Enabled {
		a.dieWriting(ctx)
	}
	var spans []*tracing.Span
	for _, v := range a.todo {
		if v.span != nil {
			spans = append(spans, v.span)
		}
	}
	span := a.s.opt.Tracer.Batch("deliver batch", spans, len(a.todo))
	if span != nil {
		span.Set(tracing.ServiceKey.String(a.opt.Name))
	}
	if a.history != nil {
		a.receipts = make([]sinks.Receipt, len(a.todo))
		ctx = sinks.WithReceipts(ctx, a.receipts)
	}
	a.start = time.Now()
	err := a.opt.Sink.Write(ctx, a.changes)
	a.took = time.Since(a.start)
	for i := range a.receipts {
		a.answered = a.answered || !a.receipts[i].At.IsZero()
	}
	if span != nil && err != nil {
		span.Fail(sinks.Classify(err).Class.String())
	}
	span.End()
	a.recovery.countFound()
	crash.At(crash.Written, a.opt.Name)
	a.m.seconds.Observe(a.took.Seconds())
	a.failures(err)
}

// failures notes the failure of each change, or the one that holds for all of them.
func (a *attempt) failures(err error) {
	a.failed = make([]*sinks.Error, len(a.todo))
	if err == nil {
		return
	}
	var be *sinks.BatchError
	if errors.As(err, &be) {
		for i, err := range be.Failed {
			a.failed[i] = sinks.Classify(err)
		}
		return
	}
	a.whole = sinks.Classify(err)
	for i := range a.failed {
		a.failed[i] = a.whole
	}
}

// notAttempted replaces failures by one that no change answers for.
func (a *attempt) notAttempted() {
	for i, e := range a.failed {
		if e != nil {
			a.failed[i] = &sinks.Error{Class: sinks.Retry, Op: "write", Err: sinks.ErrNotAttempted}
		}
	}
	a.whole = nil
}

// dieWriting ends the process in the middle of a write when that is due, under
// the build tag crash.
func (a *attempt) dieWriting(ctx context.Context) {
	if len(a.changes) > 1 && crash.Due(crash.WriteHalf, a.opt.Name) {
		_ = a.opt.Sink.Write(ctx, a.changes[:len(a.changes)/2])
		crash.Die()
	}
	if crash.Due(crash.WriteFlying, a.opt.Name) {
		go func() { _ = a.opt.Sink.Write(ctx, a.changes) }()
		<-time.After(2 * time.Millisecond)
		crash.Die()
	}
}

// remember notes the contents that a write left at the target. A former owner's request may still bring a change
// from before Partition.NewFrom.
func (a *attempt) remember() {
	if a.traits.Kind != sinks.State {
		return
	}
	a.s.mu.Lock()
	defer a.s.mu.Unlock()
	for n, i := range a.step.Items {
		p, c := i.Assignment, &a.changes[n]
		if a.failed[n] == nil && p.NewFrom != 0 && c.Version >= p.NewFrom && !p.Revoked() {
			a.known.put(p, c)
		}
	}
}

// recordAll adds the outcomes to the history. That of a change which is concluded now follows then.
func (a *attempt) recordAll() {
	for n, v := range a.todo {
		e, state := a.failed[n], a.step.Items[n].State()
		switch {
		case e == nil:
			a.record(n, OutcomeDelivered)
			a.m.age.Observe(time.Since(v.change.Time).Seconds())
		case state == core.Refused || state == core.GivenUp:
			v.record = func(outcome string) { a.record(n, outcome) }
		case e.Class == sinks.Pause:
			a.record(n, AttemptPaused)
		case e.Class != sinks.Reject: // else it is written again in a smaller batch
			a.record(n, AttemptFailed)
		}
	}
}

// record adds the outcome of the change at an index to the history.
func (a *attempt) record(n int, outcome string) {
	if a.history == nil {
		return
	}
	c, e, receipt := &a.changes[n], a.failed[n], a.receipts[n]
	if receipt.At.IsZero() {
		if e != nil && (a.answered || !e.Attempted()) {
			return
		}
		receipt.At, receipt.Took = a.start, a.took
	}
	r := store.Attempt{
		Service: a.opt.Number, Entity: c.Entity, At: receipt.At.Truncate(time.Microsecond), Version: c.Version, Outcome: outcome,
		Status: receipt.Answer.Status, Answer: receipt.Answer.Body, Took: receipt.Took,
	}
	if e != nil && r.Status == 0 {
		r.Answer = []byte(cutTo(Cause(e), sinks.MaxAnswer))
	}
	a.history.add(unwritten{r, a.m.unrecorded})
}

// report reports the service as the attempt shows it.
func (a *attempt) report() {
	status := a.core.Status()
	var worst *sinks.Error
	var about *tracing.Span
	delivered := false
	for n, e := range a.failed {
		delivered = delivered || e == nil
		if e != nil && e.Class != sinks.Reject && (worst == nil || e.Class == sinks.Pause || e.RetryAfter > worst.RetryAfter) {
			worst, about = e, a.todo[n].span
		}
	}
	if delivered {
		a.target.condition.delivered()
	}
	if worst != nil {
		a.target.last = worst
	}
	if worst != nil && (status.Refused || status.Failing) {
		a.target.reportFailure(worst, about)
		return
	}
	if worst != nil {
		a.m.failures.WithLabelValues(worst.Class.String()).Inc()
	}
	if delivered || a.core.Hand.Len() == 0 {
		a.target.recovered()
	}
}
