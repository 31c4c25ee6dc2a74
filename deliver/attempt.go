package deliver

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver/core"
	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/internal/tracing"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
)

// write makes an attempt at changes in hand.
func (w *worker) write(work, stop context.Context, step core.Step) error {
	if _, err := w.awaitResumed(stop); err != nil {
		return err
	}
	if err := w.open(work, stop); err != nil {
		return err
	}
	if err := w.resume(work, stop); err != nil {
		return err
	}
	if err := w.dropObsolete(work, stop, &step, w.waited); err != nil {
		return err
	}
	w.leaveKnown(&step)
	return w.attempt(work, stop, step)
}

// dropObsolete drops, for a state sink, changes that a newer decision has replaced since
// they came into hand; that one is on its way (I10). It also drops those of revoked
// partitions.
func (w *worker) dropObsolete(work, stop context.Context, step *core.Step, waited bool) error {
	w.leaveRevoked(step)
	if w.traits.Kind != sinks.State {
		return nil
	}
	var entities []string
	for _, i := range step.Items {
		if i.Stale || waited {
			entities = append(entities, i.Entity)
		}
	}
	rows, err := w.rows(work, stop, entities)
	if err != nil {
		return err
	}
	step.Items = slices.DeleteFunc(step.Items, func(i *core.Item) bool {
		newer := rows[i.Entity].Version
		if newer <= i.Version {
			return false
		}
		w.superseded(i.Entity, newer)
		w.core.Leave(i, core.Overtaken)
		return true
	})
	return nil
}

// leaveRevoked drops the changes of revoked partitions, here and in a step.
func (w *worker) leaveRevoked(step *core.Step) {
	w.dropRevoked()
	step.Items = slices.DeleteFunc(step.Items, w.revoked)
}

func (w *worker) revoked(i *core.Item) bool {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	return i.Owner.(*core.Partition).Revoked()
}

// retry makes an attempt at parked changes. A row of a state sink that a newer decision
// has replaced waits for that change, which takes it over.
func (w *worker) retry(work, stop context.Context, step core.Step) error {
	waited, err := w.awaitResumed(stop)
	if err != nil || waited {
		return err
	}
	if err := w.open(work, stop); err != nil {
		return err
	}
	if err := w.leaveReplaced(work, stop, &step); err != nil {
		return err
	}
	w.leaveRevoked(&step)
	if err := w.load(work, stop, step.Items); err != nil {
		return err
	}
	if err := w.leaveUnreadable(work, stop, &step); err != nil {
		return err
	}
	return w.attempt(work, stop, step)
}

// leaveUnreadable ends the parked changes of a retry whose rows were edited by hand. Their rows of the
// dam say that the target does not have the content.
func (w *worker) leaveUnreadable(work, stop context.Context, step *core.Step) error {
	without := func(i *core.Item) bool { return i.Data == nil }
	if !slices.ContainsFunc(step.Items, without) {
		return nil
	}
	// A restored store may lack the row: then the next owner has it, and what follows it.
	if err := w.s.retryUntil(work, stop, "check whose partition it is", func() error { return w.s.saver.checkTokens(work) }); err != nil {
		return err
	}
	w.leaveRevoked(step)
	var gone []*core.Item
	step.Items = slices.DeleteFunc(step.Items, func(i *core.Item) bool {
		if without(i) {
			gone = append(gone, i)
		}
		return without(i)
	})
	if err := w.refuse(work, stop, "its stored change cannot be read", gone); err != nil {
		return err
	}
	for _, i := range gone {
		w.core.Leave(i, core.Skipped)
	}
	return nil
}

// claim counts the attempts of a retry before they are made, and saves that: they count also if they
// kill the process, and a former owner makes none.
func (w *worker) claim(work context.Context, step *core.Step) error {
	loaded := make([]any, len(step.Items))
	for n, i := range step.Items {
		loaded[n] = i.Data
	}
	w.core.Claim(time.Now(), step.Items)
	w.apply()
	for n, i := range step.Items {
		i.Data = loaded[n]
	}
	if err := w.saved(work, step.Items); err != nil {
		return err
	}
	w.leaveRevoked(step)
	return nil
}

// leaveReplaced drops superseded rows from a retry.
func (w *worker) leaveReplaced(work, stop context.Context, step *core.Step) error {
	if w.traits.Kind != sinks.State {
		return nil
	}
	entities := make([]string, len(step.Items))
	for n, i := range step.Items {
		entities[n] = i.Entity
	}
	rows, err := w.rows(work, stop, entities)
	if err != nil {
		return err
	}
	step.Items = slices.DeleteFunc(step.Items, func(i *core.Item) bool {
		newer := rows[i.Entity].Version
		switch {
		case newer <= i.Version:
			return false
		case w.s.opt.Partition(i.Entity, newer) != i.Partition: // it cannot take the row over
			w.superseded(i.Entity, newer)
			w.core.Leave(i, core.Overtaken)
		default:
			w.core.Postpone(time.Now(), i)
		}
		return true
	})
	return nil
}

// attempt hands the changes of a step that the guard admits to the sink once, and records the
// outcome. No other way leads to the sink.
func (w *worker) attempt(work, stop context.Context, step core.Step) error {
	released, err := w.admit(work, stop, &step)
	if err == nil && released {
		err = w.dropObsolete(work, stop, &step, false)
	}
	if err == nil && step.Kind == core.Retry && len(step.Items) > 0 {
		err = w.claim(work, &step)
	}
	if err != nil {
		return err
	}
	if len(step.Items) == 0 {
		w.apply()
		return nil
	}
	todo := make([]*delivery, len(step.Items))
	changes := make([]change.Change, len(step.Items))
	for n, i := range step.Items {
		todo[n] = i.Data.(*delivery)
		changes[n] = todo[n].change
		w.known.forget(i.Entity)
	}
	ctx, cancel := wait.WithGrace(work, stop, w.s.opt.StopGrace)
	defer cancel()
	end, err := w.s.large.begin(ctx, changes)
	if err != nil {
		return errStopped
	}
	crash.At(crash.Writing, w.opt.Name)
	if crash.Enabled {
		w.dieWriting(ctx, changes)
	}
	span := w.writeSpan(todo)
	noted, t := w.beginAttempt(ctx, len(todo))
	err = w.opt.Sink.Write(noted, changes)
	end()
	t.ended()
	written(span, err)
	w.countFound()
	crash.At(crash.Written, w.opt.Name)
	w.m.seconds.Observe(t.took.Seconds())

	failed, whole := failures(todo, err)
	if ctx.Err() != nil { // the failures say nothing about the changes
		failed, whole = notAttempted(failed, whole), nil
	}
	split := slices.ContainsFunc(todo, w.outdated)
	w.remember(step.Items, changes, failed)
	w.core.Done(time.Now(), step, t.took, failed, whole, split)
	w.recordAttempt(&t, step.Items, todo, failed, whole)
	w.apply()
	if ctx.Err() != nil {
		return errStopped
	}
	w.report(failed, whole, todo)
	if !w.traits.Guarded && slices.Contains(failed, nil) {
		// A crash repeats one write at such a target, or two.
		return w.saved(work, step.Items)
	}
	w.s.saver.poke()
	return nil
}

// notAttempted replaces failures by one that no change answers for.
func notAttempted(failed []*sinks.Error, whole *sinks.Error) []*sinks.Error {
	for i, e := range failed {
		if e != nil || whole != nil {
			failed[i] = &sinks.Error{Class: sinks.Retry, Op: "write", Err: sinks.ErrNotAttempted}
		}
	}
	return failed
}

// dieWriting ends the process in the middle of a write when that is due, under
// the build tag crash.
func (w *worker) dieWriting(ctx context.Context, todo []change.Change) {
	if len(todo) > 1 && crash.Due(crash.WriteHalf, w.opt.Name) {
		_ = w.opt.Sink.Write(ctx, todo[:len(todo)/2])
		crash.Die()
	}
	if crash.Due(crash.WriteFlying, w.opt.Name) {
		go func() { _ = w.opt.Sink.Write(ctx, todo) }()
		<-time.After(2 * time.Millisecond)
		crash.Die()
	}
}

// failures returns the failure of each change; whole is set when one error
// holds for all of them.
func failures(todo []*delivery, err error) (failed []*sinks.Error, whole *sinks.Error) {
	failed = make([]*sinks.Error, len(todo))
	if err == nil {
		return failed, nil
	}
	var be *sinks.BatchError
	if errors.As(err, &be) {
		for i, err := range be.Failed {
			failed[i] = sinks.Classify(err)
		}
		return failed, nil
	}
	whole = sinks.Classify(err)
	for i := range failed {
		failed[i] = whole
	}
	return failed, whole
}

// recordAttempt adds the outcomes of an attempt to the history. That of a change which is
// concluded now follows then.
func (w *worker) recordAttempt(t *writeAttempt, items []*core.Item, todo []*delivery, failed []*sinks.Error, whole *sinks.Error) {
	for n, v := range todo {
		e := failed[n]
		if whole != nil {
			e = whole
		}
		switch {
		case e == nil:
			t.record(n, &v.change, OutcomeDelivered, nil)
			w.m.age.Observe(time.Since(v.change.Time).Seconds())
		case items[n].State() == core.Refused || items[n].State() == core.GivenUp:
			v.record = func(outcome string) { t.record(n, &v.change, outcome, e) }
		case e.Class != sinks.Reject: // else it is written again in a smaller batch
			t.record(n, &v.change, attemptFailed(e), e)
		}
	}
}

// report reports what an attempt shows about the service.
func (w *worker) report(failed []*sinks.Error, whole *sinks.Error, todo []*delivery) {
	status := w.core.Status()
	var worst *sinks.Error
	var about *tracing.Span
	delivered := false
	for n, e := range failed {
		if whole != nil {
			e = whole
		}
		delivered = delivered || e == nil
		if e != nil && e.Class != sinks.Reject && (worst == nil || e.Class == sinks.Pause || e.RetryAfter > worst.RetryAfter) {
			worst, about = e, todo[n].span
		}
	}
	if delivered {
		w.condition.delivered()
	}
	if worst != nil {
		w.last = worst
	}
	if worst != nil && (status.Refused || status.Failing) {
		w.reportFailure(worst, about)
		return
	}
	if worst != nil {
		w.m.failures.WithLabelValues(worst.Class.String()).Inc()
	}
	if delivered || w.core.Hand() == 0 {
		w.recovered()
	}
}

// outdated reports whether v was decided under an older configuration than this
// process's. What an operator sent again as it was is not meant to change.
func (w *worker) outdated(v *delivery) bool {
	return v.change.Resent == 0 && v.change.Revision < w.s.revision.Load()
}

// replaceable reports whether v need not be delivered once it is decided again: a log
// sink gets every change, so there only the newest is replaceable.
func (w *worker) replaceable(work, stop context.Context, v *delivery) (bool, error) {
	if !w.outdated(v) || w.traits.Kind == sinks.State {
		return w.outdated(v), nil
	}
	rows, err := w.rows(work, stop, []string{v.change.Entity})
	return rows[v.change.Entity].Version <= v.change.Version, err
}

// conclude ends changes that were refused or given up: as dead letters, or by a new
// decision. The letters are saved with the positions that pass their changes.
func (w *worker) conclude(work, stop context.Context, items []*core.Item) error {
	if err := w.load(work, stop, items); err != nil {
		return err
	}
	for _, i := range items {
		v, ok := i.Data.(*delivery)
		if !ok {
			w.core.Leave(i, core.Skipped)
			continue
		}
		replaceable, err := w.replaceable(work, stop, v)
		if err != nil {
			return err
		}
		outcome := AttemptGaveUp
		switch {
		case replaceable:
			outcome = OutcomeRedecided
			err = w.redecide(work, stop, i, v)
		case i.State() == core.Refused:
			outcome = AttemptRefused
			fallthrough
		default:
			err = w.deadLetter(work, stop, i, v)
		}
		if err != nil {
			return err
		}
		if v.record != nil {
			v.record(outcome)
		}
		w.core.Concluded(i, !replaceable)
	}
	w.apply()
	if err := w.saved(work, items); err != nil {
		return err
	}
	crash.At(crash.Buried, w.opt.Name)
	return nil
}

// redecide requests a new decision of v under the present configuration: the one that
// made it wrote for another table, so the refusal says nothing about the present content.
// If no newer change was decided, the present content passes; a newer one is delivered or
// refused itself. A crash repeats the record, without effect: the row has moved on.
func (w *worker) redecide(work, stop context.Context, i *core.Item, v *delivery) error {
	c := &v.change
	request := change.Control{
		ID: uuid.NewString(), Action: change.Redecide, Services: []string{c.Service}, Version: c.Version, Force: true, Actor: change.Deliver,
		Reason: fmt.Sprintf("refused under revision %d, decided under %d: %s", w.s.revision.Load(), c.Revision, i.Reason), Trace: c.Trace,
	}
	return w.s.retryUntil(work, stop, "request a new decision", func() error {
		return w.s.opt.Control(work, change.Record{Entity: c.Entity, Control: &request})
	})
}

// deadLetter prepares the dead letter of v. The refusal of its row is appended to the
// inbox before the dead letter is stored: a crash in between repeats both, which then
// have no effect.
func (w *worker) deadLetter(work, stop context.Context, i *core.Item, v *delivery) error {
	c := &v.change
	crash.At(crash.Refusing, w.opt.Name)
	if err := w.refuse(work, stop, "dead letter "+c.Key, []*core.Item{i}); err != nil {
		return err
	}
	crash.At(crash.Refused, w.opt.Name)
	letter, err := w.letterOf(i, c)
	if err != nil {
		return err
	}
	letter.State, letter.Code = store.LetterOpen, "refused"
	if i.State() == core.GivenUp {
		letter.Code, letter.Later = codeGaveUp, w.opt.Retry.Later
	}
	// A refused content has one letter, however often it is offered. A log sink is owed
	// each change.
	letter.DedupKey = "deliver/" + c.Service + "/" + hex.EncodeToString(c.Content) + "/" + c.Entity
	if w.traits.Kind == sinks.Log {
		letter.DedupKey = "deliver/" + c.Service + "/" + c.Key
	}
	v.letter = &letter
	if i.Err != nil {
		w.condition.refuse(i.Err)
	}
	return nil
}

// refuse appends to the inbox that the contents of changes are not at the target, before their
// positions pass: the owners of the entities hold the same content back, and let any other through.
// A crash repeats that without effect. It retries until stop ends.
func (w *worker) refuse(work, stop context.Context, why string, items []*core.Item) error {
	if len(items) == 0 {
		return nil
	}
	records := make([]change.Record, len(items))
	for n, i := range items {
		c := change.Control{
			ID: uuid.NewString(), Action: change.Refuse, Services: []string{w.opt.Name}, Version: i.Version, Actor: change.Deliver, Reason: why,
		}
		if v, _ := i.Data.(*delivery); v != nil {
			c.Trace = v.change.Trace
		}
		records[n] = change.Record{Entity: i.Entity, Control: &c}
	}
	return w.s.retryUntil(work, stop, "append a refusal to the inbox", func() error { return w.s.opt.Control(work, records...) })
}

// letterOf returns the dead letter of an undelivered change.
func (w *worker) letterOf(i *core.Item, c *change.Change) (l store.DeadLetter, err error) {
	l = store.DeadLetter{
		Stage: store.StageDeliver, Reason: shortened(i.Reason, maxDetail), Created: i.Since, Service: w.opt.Name, Entity: i.Entity, Version: i.Version,
		Position: i.Position, Part: i.Partition, Attempts: i.Attempts, NextTry: i.Next,
	}
	if c != nil {
		l.Payload = c.AppendRecord(nil)
		beside := LetterHeaders{
			Time: c.Time.UnixMilli(), Revision: c.Revision, Content: c.Content, Effect: c.Effect, Planned: c.Planned, Mends: c.Mends, Trace: c.Trace,
		}
		if !c.At.IsZero() {
			beside.At = c.At.UnixMilli()
		}
		l.Headers, err = json.Marshal(beside)
	}
	return l, err
}
