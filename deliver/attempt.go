package deliver

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/google/uuid"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/inbox"
	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
)

// attempt is the work on one batch of frames.
type attempt struct {
	w          *worker
	work, stop context.Context
	wait       *backoff.ExponentialBackOff
	tries      map[string]int  // idempotency key to failed bounded attempts
	beside     map[string]bool // idempotency keys of changes that failed where another did well
	rounds     int             // see awayRounds
	said       string          // failure of all changes of the last Write
	// parts are the partitions of the batch, abandoned those that went away while it
	// was tried again, by number.
	parts     map[int32]*partition
	abandoned map[int32]bool
	waited    bool // since dam rows were read for the batch: newer changes may be elsewhere by now
}

// deliver writes changes until each of them took effect, is a dead letter, or
// was overtaken. Its error means that the deliverer stops.
func (a *attempt) deliver(todo []change.Change) error {
	for first := !a.waited; len(todo) > 0; first = false {
		if a.stop.Err() != nil {
			return errStopped
		}
		waited, err := a.w.awaitResumed(a.stop)
		if err != nil {
			return err
		}
		a.waited = a.waited || waited
		if !first || waited {
			if todo, err = a.dropSuperseded(a.dropGone(todo)); err != nil || len(todo) == 0 {
				return err
			}
		}
		t, err := a.write(todo)
		if err == nil {
			a.done(todo, 0, &t)
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
		t.repeated = a.repeats(whole, t.given)
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
func (a *attempt) write(todo []change.Change) (tried, error) {
	w := a.w
	ctx, cancel := wait.WithGrace(a.work, a.stop, w.s.opt.StopGrace)
	defer cancel()
	crash.At(crash.Writing, w.opt.Name)
	if crash.Enabled {
		a.dieWriting(ctx, todo)
	}
	span := w.writeSpan(todo)
	noted, t := w.beginAttempt(ctx, len(todo))
	err := w.opt.Sink.Write(noted, todo)
	t.ended()
	t.abandoned = ctx.Err() != nil
	written(span, err)
	w.countFound()
	crash.At(crash.Written, w.opt.Name)
	w.m.seconds.Observe(t.took.Seconds())
	return t, err
}

// bisects reports whether a whole batch failed for what may be one change's fault.
// Changes that were decided under an older configuration may not fit what the sink has
// become: then it refuses them alike, but not the service.
func (a *attempt) bisects(todo []change.Change, whole *sinks.Error) bool {
	return whole != nil && len(todo) > 1 && (whole.Class == sinks.Reject || whole.Class == sinks.RetryBounded ||
		whole.Class == sinks.Pause && slices.ContainsFunc(todo, a.w.outdated))
}

// repeats reports whether a target that does not answer single changes says of a batch
// what it said before, which is recorded once.
func (a *attempt) repeats(whole *sinks.Error, answers bool) bool {
	before := a.said
	if a.said = ""; whole != nil {
		a.said = whole.Error()
	}
	return whole != nil && !answers && a.said == before
}

// settle brings changes of a failed write to their end, where they have one. It returns
// those that are tried again, the worst of their failures, and the trace of a change that
// it happened to, if that is traced.
func (a *attempt) settle(todo []change.Change, failed []*sinks.Error, t *tried) (again []change.Change, worst *sinks.Error, about *change.Trace, err error) {
	away := a.away(todo, failed)
	for i, c := range todo {
		e := failed[i]
		switch {
		case e == nil:
			a.done(todo[i:i+1], i, t)
		case e.Class == sinks.Reject, e.Class == sinks.RetryBounded && !t.abandoned && (!away || a.beside[c.Key]) && a.exhausted(c):
			if err := a.end(c, e, func(outcome string) { t.record(i, &todo[i], outcome, e) }); err != nil {
				return nil, nil, nil, err
			}
		default:
			if !t.repeated {
				t.record(i, &todo[i], attemptFailed(e), e)
			}
			again = append(again, c)
			if worst == nil || e.Class == sinks.Pause || e.RetryAfter > worst.RetryAfter {
				worst, about = e, c.Trace
			}
		}
	}
	return again, worst, about, nil
}

// end makes a dead letter of a change whose last attempt failed, or has it decided
// again; record is told how it ended.
func (a *attempt) end(c change.Change, e *sinks.Error, record func(outcome string)) error {
	replaceable, err := a.replaceable(c)
	switch {
	case err != nil:
		return err
	case replaceable:
		record(OutcomeRedecided)
		return a.redecide(c, e)
	case e.Class == sinks.Reject:
		record(AttemptRefused)
	default:
		record(AttemptGaveUp)
	}
	return a.deadLetter(c, e)
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
func failures(todo []change.Change, err error) (failed []*sinks.Error, whole *sinks.Error) {
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

// done notes that changes took effect; the first of them stands at that place in t.
func (a *attempt) done(changes []change.Change, first int, t *tried) {
	for i := range changes {
		c := &changes[i]
		t.record(first+i, c, OutcomeDelivered, nil)
		a.w.m.delivered.Inc()
		a.w.recordOutcome(c, OutcomeDelivered)
		a.w.m.age.Observe(time.Since(c.Time).Seconds())
	}
	a.said = ""
	a.wait.Reset()
	a.w.condition.delivered()
	a.w.recovered()
}

// dropSuperseded leaves out what need not be sent any more: for a state sink, changes
// that a newer decision has replaced; that one is on its way (I10).
func (a *attempt) dropSuperseded(todo []change.Change) ([]change.Change, error) {
	if a.w.traits.Kind != sinks.State {
		return todo, nil
	}
	rows, err := a.w.rows(a.work, a.stop, entities(todo))
	if err != nil {
		return nil, err
	}
	keep := todo[:0:0]
	for _, c := range todo {
		if newer := rows[c.Entity].Version; newer > c.Version {
			a.w.m.overtaken.Inc()
			a.w.leftOut(c.Entity, newer)
			a.w.recordOutcome(&c, OutcomeOvertaken)
			continue
		}
		keep = append(keep, c)
	}
	return keep, nil
}

func entities(changes []change.Change) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range changes {
			if !yield(changes[i].Entity) {
				return
			}
		}
	}
}

// away reports whether failed, of all changes of an attempt, says that the target
// as a whole does not work, and nothing about any change: several entities, and
// trouble with each of them. It remembers the changes that failed beside a success.
func (a *attempt) away(todo []change.Change, failed []*sinks.Error) bool {
	well := slices.Contains(failed, nil)
	troubled, several := true, false
	for i, e := range failed {
		if e == nil {
			continue
		}
		if well {
			if a.beside == nil {
				a.beside = map[string]bool{}
			}
			a.beside[todo[i].Key] = true
		}
		troubled = troubled && e.Outage != sinks.NoOutage
		several = several || todo[i].Entity != todo[0].Entity
	}
	if well || !troubled || !several {
		return false
	}
	// Failures end somewhere (I9): what fails for ever may be these changes after
	// all, and nothing behind them would ever be tried.
	a.rounds++
	return a.rounds <= awayRounds
}

// awayRounds is how many attempts at one batch, of which all failed, are held
// against the target and not against the changes. With the longest waits of the
// defaults they take an hour and a half.
const awayRounds = 100

// exhausted counts a bounded failure of c and reports whether it was the last
// one allowed.
func (a *attempt) exhausted(c change.Change) bool {
	if a.tries == nil {
		a.tries = map[string]int{}
	}
	a.tries[c.Key]++
	return a.tries[c.Key] >= a.w.opt.Retry.Attempts
}

// outdated reports whether c was decided under an older configuration than this
// process's. What an operator sent again as it was is not meant to change.
func (w *worker) outdated(c change.Change) bool {
	return c.Resent == 0 && c.Revision < w.s.opt.Revision
}

// replaceable reports whether a change that was decided again needs no delivery
// itself: a log sink is to get every change, so for it only the newest is.
func (a *attempt) replaceable(c change.Change) (bool, error) {
	if !a.w.outdated(c) || a.w.traits.Kind == sinks.State {
		return a.w.outdated(c), nil
	}
	rows, err := a.w.rows(a.work, a.stop, entities([]change.Change{c}))
	return rows[c.Entity].Version <= c.Version, err
}

// redecide asks for c to be decided again, under the present configuration: the
// one that made it wrote for another table, so that the refusal says nothing
// about what the customer should have. If no newer change was decided, the present
// content passes, whatever it is; if one was, it is already what should be there
// or is refused itself. A crash repeats the record, and it finds nothing to do
// then: the row has moved on.
// (For a log sink the change, which is not the newest then, becomes a dead letter.)
func (a *attempt) redecide(c change.Change, e *sinks.Error) error {
	w := a.w
	request := inbox.Control{
		ID: uuid.NewString(), Action: inbox.Redecide, Services: []string{c.Service}, Version: c.Version, Force: true, Actor: inbox.Deliver,
		Reason: fmt.Sprintf("refused under revision %d, decided under %d: %v", w.s.opt.Revision, c.Revision, e), Trace: c.Trace,
	}
	if err := w.s.retryUntil(a.work, a.stop, "ask for a new decision", func() error {
		return w.s.opt.Control(a.work, c.Entity, request)
	}); err != nil {
		return err
	}
	w.m.redecided.Inc()
	w.recordOutcome(&c, OutcomeRedecided)
	return nil
}

// deadLetter makes a dead letter of c. That its row is refused goes into the inbox
// before the letter is stored: a crash in between repeats both, and both are
// no-ops then.
func (a *attempt) deadLetter(c change.Change, e *sinks.Error) error {
	w := a.w
	crash.At(crash.Refusing, w.opt.Name)
	err := w.s.retryUntil(a.work, a.stop, "append a refusal to the inbox", func() error {
		return w.s.opt.Control(a.work, c.Entity, inbox.Control{
			ID: uuid.NewString(), Action: inbox.Refuse, Services: []string{c.Service}, Version: c.Version,
			Actor: inbox.Deliver, Reason: "dead letter " + c.Key, Trace: c.Trace,
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
		Payload: c.AppendRecord(nil),
		Place:   c.Place(),
		Later:   later,
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
	if err := w.s.retryUntil(a.work, a.stop, "store a dead letter", func() error {
		return w.s.opt.Store.AddLetters(a.work, []store.DeadLetter{letter})
	}); err != nil {
		return err
	}
	crash.At(crash.Buried, w.opt.Name)
	w.m.dead.Inc()
	w.condition.refuse(e)
	w.recordOutcome(&c, OutcomeDead)
	return nil
}
