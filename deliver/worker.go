package deliver

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver/core"
	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/internal/defaults"
	"github.com/seed-86dfc502/weir/internal/tracing"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
)

// worker brings the slices of one service, of all partitions, to its sink. core decides
// which changes to write, park or give up; the worker applies its effects.
type worker struct {
	s      *Stage
	opt    Service
	traits sinks.Traits
	log    *slog.Logger
	m      *serviceMetrics
	wakeUp chan struct{} // capacity 1: the queue grew, or a partition arrived or was revoked
	ctx    context.Context
	cancel context.CancelFunc
	ended  chan struct{} // closed when run has ended

	condition condition
	history   *recorder // nil: none is kept

	queue *core.Queue // guarded by the stage's mutex
	// Guarded by the stage's mutex, too.
	parked  int // rows
	arrived []arrival

	// Owned by run.
	core   *core.Service
	slices []*slice          // in hand
	parts  []*core.Partition // that may have changes or rows in core
	opened bool
	// changed is of the condition, from before the last attempt; nil: nothing was requested since.
	changed context.Context //nolint:containedctx // it is a signal
	last    *sinks.Error    // that the sink returned last
	found   uint64          // of the sink, in metrics
	resumes int             // of the condition, that were seen
	known   known
	// waited: it was paused since the last write, and what changes mean may have changed.
	waited bool
	// touched: slices may have moved without an effect of core.
	touched bool
}

// slice is a slice in hand.
type slice struct {
	*core.Slice
	todo []*delivery // the changes that are not settled, from the first on
}

// arrival is a partition that was taken over, with its rows of the service.
type arrival struct {
	p    *core.Partition
	rows []*core.Item
}

// delivery is one change in hand, or loaded from its row for an attempt.
type delivery struct {
	change    change.Change
	slice     *core.Slice // nil: loaded
	done      bool
	abandoned bool // the next owner of its partition delivers it
	passed    bool // an earlier change of the entity keeps the position in its place
	// replacement is the newer change of the entity that is delivered instead.
	replacement *delivery
	span        *tracing.Span
	record      func(outcome string) // of its last attempt, in the history; nil: recorded
	letter      *store.DeadLetter    // what becomes of it
}

// settled reports whether v, or the change that replaces it, was delivered or parked or is
// another owner's: the replacement may be of another partition than v. A repetition of a
// change that was itself replaced has a replacement with a replacement.
func (v *delivery) settled() bool {
	if v.replacement == nil {
		return v.done
	}
	for v.replacement != nil {
		v = v.replacement
	}
	return v.done || v.abandoned
}

func newWorker(s *Stage, opt Service) *worker {
	opt.Retry.For = defaults.Positive(opt.Retry.For, 24*time.Hour)
	opt.Retry.MinBackoff = defaults.Positive(opt.Retry.MinBackoff, 200*time.Millisecond)
	opt.Retry.MaxBackoff = defaults.Positive(opt.Retry.MaxBackoff, 30*time.Second)
	w := &worker{
		s: s, opt: opt, traits: opt.Sink.Traits(), m: s.opt.Metrics.of(opt.Name),
		log: s.log.With("service", opt.Name), wakeUp: make(chan struct{}, 1), ended: make(chan struct{}),
		history: s.history.of(&opt),
		known:   known{most: s.opt.Memory / knownShare / int64(max(1, len(s.opt.Services)))},
	}
	_, holds := opt.Sink.(sinks.Recoverer)
	w.core = core.New(core.Config{
		Log: w.traits.Kind == sinks.Log, Holds: holds,
		For: opt.Retry.For, MinBackoff: opt.Retry.MinBackoff, MaxBackoff: opt.Retry.MaxBackoff,
		MaxBatch: w.traits.MaxBatch, MaxBytes: w.traits.MaxBytes, Pace: w.pace(holds),
	})
	w.condition.pause = PauseOf(pauseOf(s.opt.Paused, opt.Name))
	w.condition.changed, w.condition.change = context.WithCancel(context.Background())
	w.queue = &core.Queue{Name: opt.Name, Number: opt.Number, MaxBytes: int64(w.traits.MaxBytes), Failing: w.failing(), Paced: opt.Pace != Pace{}, Refresh: opt.Refresh}
	return w
}

func (w *worker) failing() bool {
	state := w.condition.now().State
	return state != StateRunning && state != StatePaced
}

// run delivers until stop ends, and closes the sink. Changes in hand stay pending in
// their cursors then, and are redelivered.
func (w *worker) run(stop context.Context) {
	defer close(w.ended)
	defer w.opt.Sink.Close()
	work, cancel := context.WithCancel(context.WithoutCancel(stop))
	defer cancel()
	defer context.AfterFunc(w.s.limit, cancel)()
	for stop.Err() == nil {
		if err := w.step(work, stop); err != nil && !errors.Is(err, errRevoked) {
			break
		}
	}
	w.s.step(func() {
		for _, sl := range w.slices {
			w.endSpans(sl.todo)
			w.s.flow.Abandon(sl.Slice)
		}
		w.queue.SetBusy(false, w.queue.Full)
	})
	w.slices = nil
}

// step receives changes, and does what core says next. work is for effects and is not
// cancelled at a shutdown; stop ends waiting and retrying. Its error says that run ends.
func (w *worker) step(work, stop context.Context) error {
	if err := w.receive(work, stop); err != nil {
		return err
	}
	next := w.core.Next(time.Now())
	w.notePaced()
	switch next.Kind {
	case core.Write:
		return w.write(work, stop, next)
	case core.Retry:
		return w.retry(work, stop, next)
	case core.Conclude:
		return w.conclude(work, stop, next.Items)
	case core.AwaitUp:
		if !w.await(stop, w.last, time.Until(next.Until)) {
			return errStopped
		}
		return nil
	case core.Wait:
		w.condition.retryAt(next.Until)
		if !w.canTake() { // else the changes that were received needed no delivery
			w.wait(stop, next.Until)
		}
	}
	return nil
}

func (w *worker) canTake() bool {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	return w.queue.CanTake(w.core.Room())
}

// wait waits until a time, unless it is zero, or until something arrives.
func (w *worker) wait(stop context.Context, until time.Time) {
	var timer <-chan time.Time
	if !until.IsZero() {
		timer = time.After(time.Until(until))
	}
	select {
	case <-w.wakeUp:
	case <-timer:
	case <-w.requested().Done():
		w.changed = nil
		w.core.Hurry(time.Now())
	case <-stop.Done():
	}
}

// receive takes over and drops partitions, and takes changes into hand.
func (w *worker) receive(work, stop context.Context) error {
	w.dropRevoked()
	w.s.mu.Lock()
	arrived := w.arrived
	w.arrived = nil
	taken := w.queue.Take(w.core.Room(), time.Now())
	crowded := w.queue.Crowded()
	w.s.mu.Unlock()
	w.core.Crowd(crowded)
	w.touched = w.touched || len(taken)+len(arrived) > 0
	for _, a := range arrived {
		w.parts = append(w.parts, a.p)
		w.core.Restore(a.rows)
	}
	if len(arrived) > 0 {
		w.core.Share(len(w.parts), w.s.opt.Partitions, time.Now())
	}
	if len(taken) > 0 {
		batch := make([]*slice, len(taken))
		for i, sl := range taken {
			batch[i] = &slice{Slice: sl}
		}
		w.slices = append(w.slices, batch...)
		all, err := w.decode(work, stop, batch)
		if err != nil {
			return err
		}
		crash.At(crash.DeliverBatch, w.opt.Name)
		if err := w.add(work, stop, all); err != nil {
			return err
		}
	}
	w.apply()
	return nil
}

// dropRevoked drops the changes and rows of revoked partitions. The next owner has them,
// and delivers newer ones after them; this one may be fenced however often it tries.
func (w *worker) dropRevoked() {
	w.s.mu.Lock()
	revoked := func(p *core.Partition) bool { return p.Revoked() }
	var gone []*core.Partition
	for _, p := range w.parts {
		if revoked(p) {
			gone = append(gone, p)
		}
	}
	w.parts = slices.DeleteFunc(w.parts, revoked)
	w.s.mu.Unlock()
	for _, p := range gone {
		w.core.Drop(p)
		w.touched = true
	}
	if len(gone) > 0 {
		w.core.Share(len(w.parts), w.s.opt.Partitions, time.Now())
	}
	if len(w.parts) == 0 && w.opened && w.traits.Exclusive {
		w.opened = false
		if err := w.opt.Sink.Close(); err != nil {
			w.log.Warn("closing the target failed", "event", "sink.close_failed", "error", err)
		}
	}
}

// decode reads the changes of slices and drops those below the service's position.
func (w *worker) decode(work, stop context.Context, batch []*slice) ([]*delivery, error) {
	n := 0
	for _, sl := range batch {
		n += sl.Changes.Count
	}
	all := make([]*delivery, 0, n)
	values := make([]delivery, n)
	var letters []store.DeadLetter
	for _, sl := range batch {
		first := len(all)
		for c, err := range sl.Changes.All(w.opt.Name) {
			if err != nil {
				letters = append(letters, store.DeadLetter{
					Stage: store.StageDeliver, Code: "malformed", Reason: err.Error(), State: store.LetterOpen,
					Service: w.opt.Name, Part: sl.Lane.Partition.Number, Offset: sl.Frame.From.Offset(), Version: sl.Frame.From,
					DedupKey: "deliver/" + w.opt.Name + "/" + sl.Frame.From.String() + "/" + sl.Frame.To.String(),
				})
				break
			}
			if c.Position() < sl.SkipBelow {
				continue
			}
			v := &values[len(all)]
			*v = delivery{change: c, slice: sl.Slice}
			v.span = w.s.opt.Tracer.Deliver(c.Trace, w.opt.Name)
			v.change.Trace = v.span.Trace() // what the sink passes on
			v.change.Partition = sl.Lane.Partition.Number
			all = append(all, v)
		}
		sl.todo = all[first:len(all):len(all)]
	}
	w.m.outcomes[OutcomeDead].Add(float64(len(letters)))
	return all, w.s.addLetters(work, stop, letters)
}

// add hands changes to core. A redelivered change goes to a state sink that does not
// guard itself only if it is the newest that was decided: a newer one may be there
// already, and this one would overwrite it. A resent change of a log sink is always
// delivered.
func (w *worker) add(work, stop context.Context, all []*delivery) error {
	var doubtful []string
	// One that settles is compared when it is written, so that a newer one inherits its time.
	stale := func(v *delivery) bool {
		return v.slice.Redelivered && w.traits.Kind == sinks.State && !w.traits.Guarded
	}
	for _, v := range all {
		if w.opt.Pace.Settle == 0 && stale(v) || w.obsoleteAfter(v) {
			doubtful = append(doubtful, v.change.Entity)
		}
	}
	rows, err := w.rows(work, stop, doubtful)
	if err != nil {
		return err
	}
	now := time.Now()
	for _, v := range all {
		c := &v.change
		if c.Forced {
			w.known.forget(c.Entity)
		}
		if rows[c.Entity].Version > c.Version && (v.slice.Redelivered || w.obsoleteAfter(v)) {
			w.superseded(c.Entity, rows[c.Entity].Version)
			w.recordOutcome(v, OutcomeOvertaken)
			continue
		}
		i := &core.Item{
			Partition: c.Partition, Position: c.Position(), Version: c.Version, Entity: c.Entity, Bytes: int64(len(c.Doc)),
			Resent: c.Resent != 0, Owner: v.slice.Lane.Partition, Data: v, Arrived: now,
		}
		if i.Stale = w.opt.Pace.Settle > 0 && stale(v); v.slice.Redelivered { // it may have waited elsewhere; else clocks need not agree
			i.OldestUnsent = c.Time
		}
		w.core.Add(i)
	}
	return nil
}

// outcomes of core, as deliver counts them.
var outcomes = map[core.Outcome]string{
	core.Delivered: OutcomeDelivered, core.Skipped: OutcomeSkipped, core.Coalesced: OutcomeCoalesced,
	core.Overtaken: OutcomeOvertaken, core.Discarded: OutcomeDiscarded, core.Redecided: OutcomeRedecided, core.Dead: OutcomeDead,
}

// apply applies what core decided: rows and letters are written together with the
// positions that pass their changes, see saver.
func (w *worker) apply() {
	effects := w.core.Effects()
	if len(effects) == 0 && !w.touched {
		return
	}
	w.touched = false
	w.s.step(func() {
		for _, e := range effects {
			w.applyEffect(e)
		}
		w.finish()
		status := w.core.Status()
		w.queue.SetBusy(w.core.Hand() > 0, w.core.Room() == 0)
		w.parked = status.Rows
		w.condition.park(status)
	})
}

func (w *worker) applyEffect(e core.Effect) {
	v, _ := e.Item.Data.(*delivery)
	p := e.Item.Owner.(*core.Partition)
	switch e.Kind {
	case core.Put:
		w.putRow(p, e.Item, v)
	case core.End:
		p.Edit(w.key(e.Item), core.RowEdit{Ended: true})
	case core.Letter:
		p.Edit(w.key(e.Item), core.RowEdit{Letter: v.letter, Parked: e.Item.Row})
	case core.Settle:
		if v == nil {
			v = &delivery{} // a row whose change is not loaded
		}
		if e.Outcome == core.Abandoned {
			v.abandoned = true
			return
		}
		if e.By != nil && v.slice != nil {
			v.replacement, _ = e.By.Data.(*delivery)
		}
		if first := e.Item.KeepsPosition(); first != nil && e.Outcome == core.Coalesced {
			v.passed = true
			first.Data.(*delivery).replacement = v.replacement
		}
		w.recordOutcome(v, outcomes[e.Outcome])
	}
}

// finish advances the slices in hand to the first change that is not settled, and ends those
// without any, and those of revoked partitions; part of step.
func (w *worker) finish() {
	w.slices = slices.DeleteFunc(w.slices, func(sl *slice) bool {
		for len(sl.todo) > 0 && (sl.todo[0].passed || sl.todo[0].settled()) {
			w.endSpans(sl.todo[:1])
			sl.Entities += int64(sl.todo[0].change.Effect)
			sl.todo = sl.todo[1:]
		}
		over := len(sl.todo) == 0 || sl.Lane.Partition.Revoked() // then the rest is the next owner's
		if over {
			w.endSpans(sl.todo)
			w.s.flow.Finish(sl.Slice)
		} else {
			w.s.flow.Advance(sl.Slice, sl.todo[0].change.Position())
		}
		w.keepMark(sl.Lane)
		return over
	})
}

func (w *worker) backoff() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.Multiplier = 2
	b.InitialInterval, b.MaxInterval = w.opt.Retry.MinBackoff, w.opt.Retry.MaxBackoff
	return b
}

// superseded notes that a change was dropped for a newer one of its entity.
func (w *worker) superseded(entity string, newer change.Version) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	if p := w.s.parts[w.s.opt.Partition(entity, newer)]; p != nil {
		p.Superseded(newer)
	}
}

// recordOutcome records the outcome of a change: it is done, unless a newer one replaces
// it.
func (w *worker) recordOutcome(v *delivery, outcome string) {
	w.m.outcomes[outcome].Inc()
	if v.span != nil {
		v.span.Set(tracing.OutcomeKey.String(outcome))
	}
	if v.replacement == nil {
		v.done = true
		w.endSpan(v, nil) // the rest of its frame may take longer
	}
}

// rows reads the dam rows of entities, by entity.
func (w *worker) rows(work, stop context.Context, of []string) (map[string]store.Row, error) {
	var keys []store.Key
	rows := map[string]store.Row{}
	for _, entity := range of {
		if _, seen := rows[entity]; !seen {
			rows[entity] = store.Row{}
			keys = append(keys, store.Key{Service: w.opt.Number, Entity: entity})
		}
	}
	if len(keys) == 0 {
		return rows, nil
	}
	err := w.s.retryUntil(work, stop, "read dam rows", func() error {
		found, err := w.s.opt.Store.Rows(work, keys)
		for _, r := range found {
			rows[r.Entity] = r
		}
		return err
	})
	return rows, err
}

// open opens the sink; it retries until stop ends.
func (w *worker) open(work, stop context.Context) error {
	if w.opened {
		return nil
	}
	if err := w.until(work, stop, w.opt.Sink.Open); err != nil {
		return err
	}
	w.opened = true
	w.recovered()
	return nil
}

// until retries a sink's preparations (Open, Resume) until they succeed, stop ends, or no
// partition is left (errRevoked). It waits as a write does: with the other services of a target
// that is down, and while paused.
func (w *worker) until(work, stop context.Context, do func(context.Context) error) error {
	pause := w.backoff()
	for {
		ctx, cancel := wait.WithGrace(work, stop, w.s.opt.StopGrace)
		err := do(ctx)
		cancel()
		if err == nil {
			return nil
		}
		e := sinks.Classify(err)
		w.reportFailure(e, nil)
		if !w.await(stop, e, pause.NextBackOff()) {
			return errStopped
		}
		if _, err := w.awaitResumed(stop); err != nil {
			return err
		}
		if w.idle() {
			w.recovered()
			return errRevoked
		}
	}
}

// idle reports whether this process lost all partitions of the service.
func (w *worker) idle() bool {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	return len(w.arrived) == 0 && !slices.ContainsFunc(w.parts, func(p *core.Partition) bool { return !p.Revoked() })
}

// retryUntil repeats an operation on the store until it works or stop ends.
func (s *Stage) retryUntil(work, stop context.Context, what string, op func() error) error {
	stopped, err := wait.Retry(work, stop, s.log, what, op)
	if stopped {
		return errStopped
	}
	return err
}

// reportFailure counts a failure of the sink, and logs the first one and one a minute, for all
// services of a target that is down. about is the span of a change that failed, or nil.
func (w *worker) reportFailure(e *sinks.Error, about *tracing.Span) {
	w.m.failures.WithLabelValues(e.Class.String()).Inc()
	changed, failures := w.condition.failed(e)
	if changed {
		w.stateChanged()
	}
	if failures == 0 {
		return
	}
	log := w.log.With("failures", failures)
	if about != nil {
		log = log.With("trace_id", about.ID())
	}
	if e.Class == sinks.Pause {
		log.Error("paused: the target refuses the whole service; probing", "event", "delivery.paused", "cause", PausedByRefusal, "error", e)
		return
	}
	log.Warn("delivery fails; retrying", "event", "delivery.failing", "error", e)
}

// recovered sets the service running again.
func (w *worker) recovered() {
	changed, reported := w.condition.recovered()
	if reported {
		w.log.Info("delivery resumed", "event", "delivery.resumed")
	}
	if changed {
		w.stateChanged()
	}
}

// stateChanged tells the flow that the sink fails or works: the log may be read for the service.
func (w *worker) stateChanged() {
	w.s.step(func() { w.s.flow.SetFailing(w.queue, w.failing()) })
}
