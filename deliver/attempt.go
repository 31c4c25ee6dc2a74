package deliver

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/google/uuid"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/internal/tracing"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
)

// attempt is the work on one batch of frames.
type attempt struct {
	w           *worker
	work, stop  context.Context
	wait        *backoff.ExponentialBackOff
	rounds      int    // see maxOutageRounds
	lastFailure string // of all changes of the last Write
	waited      bool   // since dam rows were read for the batch: newer changes may be elsewhere by now
}

// deliver writes changes until each of them took effect, became a dead letter, was
// superseded, or is the next owner's. It returns an error when the stage stops.
func (a *attempt) deliver(todo []*delivery) error {
	for first := !a.waited; len(todo) > 0; first = false {
		if a.stop.Err() != nil {
			return errStopped
		}
		waited, err := a.w.awaitResumed(a.stop)
		if err != nil {
			return err
		}
		a.waited = a.waited || waited
		todo = a.w.dropAbandoned(todo)
		if !first || waited {
			if todo, err = a.dropSuperseded(todo); err != nil {
				return err
			}
		}
		if len(todo) == 0 {
			return nil
		}
		t, err := a.write(todo)
		if err == nil {
			a.recordDelivered(todo, 0, &t)
			return nil
		}
		failed, whole := failures(todo, err)
		if a.bisects(todo, whole) {
			half := len(todo) / 2
			if err := a.deliver(todo[:half]); err != nil {
				return err
			}
			todo = todo[half:]
			continue
		}
		t.repeated = a.repeats(whole, t.answered)
		again, worst, about, err := a.settle(todo, failed, &t)
		if err != nil {
			return err
		}
		if todo = again; worst == nil {
			continue
		}
		a.w.reportFailure(worst, about)
		a.waited = true
		if !a.w.await(a.stop, worst, a.wait.NextBackOff()) {
			return errStopped
		}
	}
	return nil
}

// write hands changes to the sink once.
func (a *attempt) write(todo []*delivery) (writeAttempt, error) {
	w := a.w
	changes := make([]change.Change, len(todo))
	for i, v := range todo {
		changes[i] = v.change
	}
	ctx, cancel := wait.WithGrace(a.work, a.stop, w.s.opt.StopGrace)
	defer cancel()
	crash.At(crash.Writing, w.opt.Name)
	if crash.Enabled {
		a.dieWriting(ctx, changes)
	}
	span := w.writeSpan(todo)
	noted, t := w.beginAttempt(ctx, len(todo))
	err := w.opt.Sink.Write(noted, changes)
	t.ended()
	t.abandoned = ctx.Err() != nil
	written(span, err)
	w.countFound()
	crash.At(crash.Written, w.opt.Name)
	w.m.seconds.Observe(t.took.Seconds())
	return t, err
}

// bisects reports whether a whole batch failed for what may be one change's fault.
// Changes that were decided under an older configuration may not fit the sink's present
// one: then it refuses them as it would refuse the service.
func (a *attempt) bisects(todo []*delivery, whole *sinks.Error) bool {
	return whole != nil && len(todo) > 1 && (whole.Class == sinks.Reject || whole.Class == sinks.RetryBounded ||
		whole.Class == sinks.Pause && slices.ContainsFunc(todo, a.w.outdated))
}

// repeats reports whether a target that does not answer single changes failed a batch as
// it did before, which is recorded once.
func (a *attempt) repeats(whole *sinks.Error, answers bool) bool {
	before := a.lastFailure
	if a.lastFailure = ""; whole != nil {
		a.lastFailure = whole.Error()
	}
	return whole != nil && !answers && a.lastFailure == before
}

// settle records the outcome of a failed write's changes that have one. It returns those
// to retry, the worst of their failures, and the span of a change that failed so, if that
// is traced.
func (a *attempt) settle(todo []*delivery, failed []*sinks.Error, t *writeAttempt) (again []*delivery, worst *sinks.Error, about *tracing.Span, err error) {
	outage := a.isOutage(todo, failed)
	for i, v := range todo {
		e := failed[i]
		switch {
		case e == nil:
			a.recordDelivered(todo[i:i+1], i, t)
		case e.Class == sinks.Reject, e.Class == sinks.RetryBounded && !t.abandoned && (!outage || v.failedAlone) && a.exhausted(v):
			if err := a.conclude(v, e, func(outcome string) { t.record(i, &v.change, outcome, e) }); err != nil {
				return nil, nil, nil, err
			}
		default:
			if !t.repeated {
				t.record(i, &v.change, attemptFailed(e), e)
			}
			again = append(again, v)
			if worst == nil || e.Class == sinks.Pause || e.RetryAfter > worst.RetryAfter {
				worst, about = e, v.span
			}
		}
	}
	return again, worst, about, nil
}

// conclude makes a dead letter of a change whose last attempt failed, or has it decided
// again; record gets its outcome.
func (a *attempt) conclude(v *delivery, e *sinks.Error, record func(outcome string)) error {
	replaceable, err := a.replaceable(v)
	switch {
	case err != nil:
		return err
	case replaceable:
		record(OutcomeRedecided)
		return a.redecide(v, e)
	case e.Class == sinks.Reject:
		record(AttemptRefused)
	default:
		record(AttemptGaveUp)
	}
	return a.deadLetter(v, e)
}

// dieWriting ends the process in the middle of a write when that is due, under
// the build tag crash.
func (a *attempt) dieWriting(ctx context.Context, todo []change.Change) {
	if len(todo) > 1 && crash.Due(crash.WriteHalf, a.w.opt.Name) {
		_ = a.w.opt.Sink.Write(ctx, todo[:len(todo)/2])
		crash.Die()
	}
	if crash.Due(crash.WriteFlying, a.w.opt.Name) {
		go func() { _ = a.w.opt.Sink.Write(ctx, todo) }()
		<-time.After(2 * time.Millisecond)
		crash.Die()
	}
}

// failures returns the failure of each change; whole is set when one error
// holds for all of them.
func failures(todo []*delivery, err error) (failed []*sinks.Error, whole *sinks.Error) {
	failed = make([]*sinks.Error, len(todo))
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

// recordDelivered records that changes took effect; first is the index of the first one
// in t.
func (a *attempt) recordDelivered(took []*delivery, first int, t *writeAttempt) {
	for i, v := range took {
		t.record(first+i, &v.change, OutcomeDelivered, nil)
		a.w.recordOutcome(v, OutcomeDelivered)
		a.w.m.age.Observe(time.Since(v.change.Time).Seconds())
	}
	a.lastFailure, a.rounds = "", 0
	a.wait.Reset()
	a.w.condition.delivered()
	a.w.recovered()
}

// dropSuperseded drops, for a state sink, changes that a newer decision has replaced;
// that one is on its way (I10).
func (a *attempt) dropSuperseded(todo []*delivery) ([]*delivery, error) {
	if a.w.traits.Kind != sinks.State {
		return todo, nil
	}
	rows, err := a.w.rows(a.work, a.stop, todo)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(todo, func(v *delivery) bool {
		newer := rows[v.change.Entity].Version
		if newer <= v.change.Version {
			return false
		}
		a.w.raiseFloor(v.change.Entity, newer)
		a.w.recordOutcome(v, OutcomeOvertaken)
		return true
	}), nil
}

// isOutage reports whether the failures of an attempt show that the target as a whole
// does not work, and nothing about any change: they concern several entities, and each is
// an outage. It marks the changes that failed beside a success.
func (a *attempt) isOutage(todo []*delivery, failed []*sinks.Error) bool {
	well := slices.Contains(failed, nil)
	troubled, several := true, false
	for i, e := range failed {
		if e == nil {
			continue
		}
		todo[i].failedAlone = todo[i].failedAlone || well
		troubled = troubled && e.Outage != sinks.NoOutage
		several = several || todo[i].change.Entity != todo[0].change.Entity
	}
	if well || !troubled || !several {
		return false
	}
	// Retries are bounded (I9): what fails for ever may be these changes after all, and
	// nothing after them would ever be tried.
	a.rounds++
	return a.rounds <= maxOutageRounds
}

// maxOutageRounds is how many attempts at one batch in a row, all of them failed, count
// against the target and not against the changes. With the longest waits of the defaults
// they take an hour and a half.
const maxOutageRounds = 100

// exhausted counts a bounded failure of v and reports whether it was the last
// one allowed.
func (a *attempt) exhausted(v *delivery) bool {
	v.tries++
	return v.tries >= a.w.opt.Retry.Attempts
}

// outdated reports whether v was decided under an older configuration than this
// process's. What an operator sent again as it was is not meant to change.
func (w *worker) outdated(v *delivery) bool {
	return v.change.Resent == 0 && v.change.Revision < w.s.opt.Revision
}

// replaceable reports whether v need not be delivered once it is decided again: a log
// sink gets every change, so there only the newest is replaceable.
func (a *attempt) replaceable(v *delivery) (bool, error) {
	if !a.w.outdated(v) || a.w.traits.Kind == sinks.State {
		return a.w.outdated(v), nil
	}
	rows, err := a.w.rows(a.work, a.stop, []*delivery{v})
	return rows[v.change.Entity].Version <= v.change.Version, err
}

// redecide requests a new decision of v under the present configuration: the one that
// made it wrote for another table, so the refusal says nothing about what the customer
// should have. If no newer change was decided, the present content passes, whatever it
// is; if one was, it is already what should be there or is refused itself. A crash
// repeats the record, which has no effect then: the row has moved on.
func (a *attempt) redecide(v *delivery, e *sinks.Error) error {
	w, c := a.w, &v.change
	request := change.Control{
		ID: uuid.NewString(), Action: change.Redecide, Services: []string{c.Service}, Version: c.Version, Force: true, Actor: change.Deliver,
		Reason: fmt.Sprintf("refused under revision %d, decided under %d: %v", w.s.opt.Revision, c.Revision, e), Trace: c.Trace,
	}
	if err := w.s.retryUntil(a.work, a.stop, "ask for a new decision", func() error {
		return w.s.opt.Control(a.work, c.Entity, request)
	}); err != nil {
		return err
	}
	w.recordOutcome(v, OutcomeRedecided)
	return nil
}

// deadLetter makes a dead letter of v. The refusal of its row is appended to the inbox
// before the dead letter is stored: a crash in between repeats both, which then have no
// effect.
func (a *attempt) deadLetter(v *delivery, e *sinks.Error) error {
	w, c := a.w, &v.change
	crash.At(crash.Refusing, w.opt.Name)
	err := w.s.retryUntil(a.work, a.stop, "append a refusal to the inbox", func() error {
		return w.s.opt.Control(a.work, c.Entity, change.Control{
			ID: uuid.NewString(), Action: change.Refuse, Services: []string{c.Service}, Version: c.Version,
			Actor: change.Deliver, Reason: "dead letter " + c.Key, Trace: c.Trace,
		})
	})
	if err != nil {
		return err
	}
	crash.At(crash.Refused, w.opt.Name)
	code, later := "refused", time.Duration(0)
	if e.Class != sinks.Reject {
		code, later = codeGaveUp, w.opt.Retry.Later
	}
	letter := store.DeadLetter{
		Stage: store.StageDeliver, Code: code, Reason: e.Error(), State: store.LetterOpen,
		Service: c.Service, Entity: c.Entity, Version: c.Version,
		Payload:  c.AppendRecord(nil),
		Position: c.Position(),
		Later:    later,
		// One letter stands for a content that the target does not take, however often
		// it is offered. A log sink is owed each change.
		DedupKey: "deliver/" + c.Service + "/" + hex.EncodeToString(c.Content) + "/" + c.Entity,
	}
	if w.traits.Kind == sinks.Log {
		letter.DedupKey = "deliver/" + c.Service + "/" + c.Key
	}
	if letter.Headers, err = json.Marshal(LetterHeaders{Time: c.Time.UnixMilli(), Revision: c.Revision, Content: c.Content, Trace: c.Trace}); err != nil {
		return err
	}
	if err := w.s.addLetters(a.work, a.stop, []store.DeadLetter{letter}); err != nil {
		return err
	}
	crash.At(crash.Buried, w.opt.Name)
	w.condition.refuse(e)
	w.recordOutcome(v, OutcomeDead)
	return nil
}
