package deliver

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/seed-86dfc502/weir/deliver/core"
	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/internal/defaults"
	"github.com/seed-86dfc502/weir/internal/tracing"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
)

// worker brings the slices of one service, of all partitions, to its sink. core decides
// which changes to write, park or give up; the worker applies its effects.
type worker struct {
	s       *helpers
	opt     Service
	traits  sinks.Traits
	log     *slog.Logger
	m       *serviceMetrics
	wakeUp  chan struct{} // capacity 1: the queue grew, or a partition arrived or was revoked
	ctx     context.Context
	cancel  context.CancelFunc
	ended   chan struct{} // closed when run has ended
	history *recorder     // nil: none is kept

	// Guarded by the stage's mutex.
	queue   *core.Queue
	parked  int // rows
	arrived []arrival

	// Owned by run.
	core     *core.Service
	target   target
	letters  deadLetters
	guard    admission
	recovery recovery
	known    known
	slices   []*slice          // in hand
	parts    []*core.Partition // that may have changes or rows in core
	// touched: slices may have moved without an effect of core.
	touched bool
}

// helpers are the parts of a stage that its workers call.
type helpers struct {
	*shared
	saver   *saver
	others  *othersEntities
	history *recorder
	large   *largeWrites
}

// arrival is a partition that was taken over, with its rows of the service.
type arrival struct {
	p    *core.Partition
	rows []*core.Item
}

func newWorker(s *helpers, opt Service) *worker {
	opt.Retry.For = defaults.Positive(opt.Retry.For, 24*time.Hour)
	opt.Retry.MinBackoff = defaults.Positive(opt.Retry.MinBackoff, 200*time.Millisecond)
	opt.Retry.MaxBackoff = defaults.Positive(opt.Retry.MaxBackoff, 30*time.Second)
	w := &worker{
		s: s, opt: opt, traits: opt.Sink.Traits(), m: s.opt.Metrics.of(opt.Name),
		log: s.log.With("service", opt.Name), wakeUp: make(chan struct{}, 1), ended: make(chan struct{}),
		history: s.history.of(&opt),
		known:   known{most: s.opt.Memory / knownShare / int64(max(1, len(s.opt.Services)))},
	}
	sink, holds := opt.Sink.(sinks.Recoverer)
	own := opt.Pace
	pace := core.Pace{Linger: w.traits.Linger, Burst: own.Burst, Settle: own.Settle, SettleMax: own.SettleMax}
	if own.Rate > 0 {
		pace.Every = time.Duration(float64(time.Second)/own.Rate + 1)
	}
	if holds {
		pace.Settle = 0
	}
	w.core = core.New(core.Config{
		Log: w.traits.Kind == sinks.Log, Holds: holds,
		For: opt.Retry.For, MinBackoff: opt.Retry.MinBackoff, MaxBackoff: opt.Retry.MaxBackoff,
		MaxBatch: w.traits.MaxBatch, MaxBytes: w.traits.MaxBytes, Pace: pace,
	})
	w.target = target{
		sink: opt.Sink, retry: opt.Retry, grace: s.opt.StopGrace, log: w.log, m: w.m,
		changedState: w.stateChanged, idle: w.idle,
	}
	w.target.condition.pause = pauseOf(s.opt.Paused, opt.Name)
	w.target.condition.changed, w.target.condition.change = context.WithCancel(context.Background())
	w.queue = &core.Queue{
		Name: opt.Name, Number: opt.Number, MaxBytes: int64(w.traits.MaxBytes), Failing: w.target.condition.stuck(),
		Paced: own != Pace{}, Refresh: opt.Refresh, Data: w,
	}
	with := &calls{opt: s.opt, log: w.log}
	w.letters = deadLetters{calls: with, s: s.shared, service: &w.opt, kind: w.traits.Kind, m: w.m}
	w.guard = admission{calls: with, limits: opt.Guard, others: s.others, queue: w.queue}
	w.recovery = recovery{sink: sink, target: &w.target, m: w.m, mu: &s.mu, queue: w.queue, saved: s.saver.await}
	return w
}

// run delivers until stop ends, and closes the sink. Changes in hand stay pending in
// their cursors then, and are redelivered.
func (w *worker) run(stop context.Context) {
	defer close(w.ended)
	defer w.opt.Sink.Close()
	work, cancel := context.WithCancel(context.WithoutCancel(stop))
	defer cancel()
	defer context.AfterFunc(w.s.opt.Limit, cancel)()
	for stop.Err() == nil {
		if err := w.step(work, stop); err != nil && !errors.Is(err, errRevoked) {
			break
		}
	}
	w.s.step(func() {
		for _, sl := range w.slices {
			endSpans(sl.todo)
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
	if w.opt.Pace != (Pace{}) {
		n := w.core.Paced()
		w.m.paced.Set(float64(n))
		w.target.condition.waitForPace(n)
	}
	switch next.Kind {
	case core.Write:
		return (&attempt{worker: w, step: next}).write(work, stop)
	case core.Retry:
		return (&attempt{worker: w, step: next}).retry(work, stop)
	case core.Conclude:
		return w.conclude(work, stop, next.Items)
	case core.AwaitUp:
		if !w.target.await(stop, w.target.last, time.Until(next.Until)) {
			return errStopped
		}
		return nil
	case core.Wait:
		w.target.condition.retryAt(next.Until)
		if !w.canTake() { // else the changes that were received needed no delivery
			w.wait(stop, next.Until)
		}
	}
	return nil
}

func (w *worker) canTake() bool {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	return w.queue.CanTake(w.core.Hand.Room())
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
	case <-w.target.requested().Done():
		w.target.changed = nil
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
	taken := w.queue.Take(w.core.Hand.Room(), time.Now())
	crowded := w.queue.Crowded()
	w.s.mu.Unlock()
	w.core.Hand.Crowded = crowded
	w.touched = w.touched || len(taken)+len(arrived) > 0
	for _, a := range arrived {
		w.parts = append(w.parts, a.p)
		w.core.Restore(a.rows)
	}
	if len(arrived) > 0 {
		w.core.Rate.Share(len(w.parts), w.s.opt.Partitions, time.Now())
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
		w.core.Rate.Share(len(w.parts), w.s.opt.Partitions, time.Now())
	}
	if len(w.parts) == 0 && w.target.opened && w.traits.Exclusive {
		w.target.opened = false
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
				l := unreadable(sl.Lane.Partition.Number, sl.Frame.From, w.opt.Name+"/"+sl.Frame.From.String()+"/"+sl.Frame.To.String(), err)
				l.Service, l.Offset = w.opt.Name, sl.Frame.From.Offset()
				letters = append(letters, l)
				break
			}
			if c.Position() < sl.SkipBelow {
				continue
			}
			v := &values[len(all)]
			*v = delivery{change: c, slice: sl.Slice}
			v.trace(w.s.opt.Tracer, w.opt.Name)
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
	rows, err := w.s.rows(work, stop, w.opt.Number, doubtful)
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
		w.queue.SetBusy(w.core.Hand.Len() > 0, w.core.Hand.Room() == 0)
		w.parked = status.Rows
		w.target.condition.park(status)
	})
}

func (w *worker) applyEffect(e core.Effect) {
	v, _ := e.Item.Data.(*delivery)
	p := e.Item.Owner.(*core.Partition)
	switch e.Kind {
	case core.Put:
		w.letters.putRow(p, e.Item, v)
	case core.End:
		p.Edit(w.letters.key(e.Item), core.RowEdit{Ended: true})
	case core.Letter:
		p.Edit(w.letters.key(e.Item), core.RowEdit{Letter: v.letter, Parked: e.Item.Row})
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
			endSpans(sl.todo[:1])
			sl.Entities += int64(sl.todo[0].change.Effect)
			sl.todo = sl.todo[1:]
		}
		over := len(sl.todo) == 0 || sl.Lane.Partition.Revoked() // then the rest is the next owner's
		if over {
			endSpans(sl.todo)
			w.s.flow.Finish(sl.Slice)
		} else {
			w.s.flow.Advance(sl.Slice, sl.todo[0].change.Position())
		}
		w.recovery.keepMark(sl.Lane)
		return over
	})
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
		v.end(nil) // the rest of its frame may take longer
	}
}

// idle reports whether this process lost all partitions of the service.
func (w *worker) idle() bool {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	return len(w.arrived) == 0 && !slices.ContainsFunc(w.parts, func(p *core.Partition) bool { return !p.Revoked() })
}

// stateChanged tells the flow that the sink fails or works: the log may be read for the service.
func (w *worker) stateChanged() {
	w.s.step(func() { w.s.flow.SetFailing(w.queue, w.target.condition.stuck()) })
}

// pause sets the pause of the service in the store, nil for none, and reports whether that is new.
func (w *worker) pause(p *Pause) bool {
	if !w.target.condition.paused(p) {
		return false
	}
	if p != nil {
		w.log.Warn("paused", "event", "delivery.paused", "cause", p.Cause, "by", p.Actor, "why", p.Reason)
	} else {
		w.log.Info("resumed", "event", "delivery.resumed")
	}
	w.stateChanged()
	return true
}

// obsoleteAfter reports whether a change may have been replaced while the service was paused, so
// that a state sink gets only the newest.
func (w *worker) obsoleteAfter(v *delivery) bool {
	if w.traits.Kind != sinks.State {
		return false
	}
	_, resumed := w.target.condition.resumed()
	return v.change.Time.Before(resumed)
}

// saved returns when the progress of the items' partitions is saved.
func (w *worker) saved(work context.Context, items []*core.Item) error {
	parts := make([]*core.Partition, 0, len(items))
	for _, i := range items {
		if p := i.Owner.(*core.Partition); !slices.Contains(parts, p) {
			parts = append(parts, p)
		}
	}
	return w.s.saver.await(work, parts)
}

// conclude ends changes that were refused or given up: as dead letters, or by a new
// decision. The letters are saved with the positions that pass their changes.
func (w *worker) conclude(work, stop context.Context, items []*core.Item) error {
	if err := w.letters.load(work, stop, items); err != nil {
		return err
	}
	for _, i := range items {
		v, ok := i.Data.(*delivery)
		if !ok {
			w.core.Leave(i, core.Skipped)
			continue
		}
		replaceable, err := w.letters.replaceable(work, stop, v)
		if err != nil {
			return err
		}
		outcome := AttemptGaveUp
		switch {
		case replaceable:
			outcome = OutcomeRedecided
			err = w.letters.redecide(work, stop, i, v)
		case i.State() == core.Refused:
			outcome = AttemptRefused
			fallthrough
		default:
			if err = w.letters.deadLetter(work, stop, i, v); err == nil && i.Err != nil {
				w.target.condition.refuse(i.Err)
			}
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

// reportLost reports changes that the service lost.
func (w *worker) reportLost(e core.Signal) {
	w.s.opt.Metrics.gapsOf(w.opt.Name).Inc()
	level, text := slog.LevelWarn, "changes expired before delivery; their entities are decided again"
	if w.traits.Kind == sinks.Log {
		level, text = slog.LevelError, "changes expired before delivery; this service's log has a gap"
	}
	w.log.Log(context.Background(), level, text, "event", "delivery.lost", "partition", e.Partition.Number, "from", e.From.String(), "to", e.To.String())
}
