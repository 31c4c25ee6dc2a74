package deliver

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/internal/defaults"
	"github.com/seed-86dfc502/weir/internal/tracing"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
)

// worker brings the slices of one service, of all partitions, to its sink.
type worker struct {
	s      *Stage
	opt    Service
	traits sinks.Traits
	log    *slog.Logger
	m      *serviceMetrics
	wakeUp chan struct{} // capacity 1: queue grew

	condition condition
	history   *ring // nil: none is kept

	// Guarded by the stage's mutex.
	queue []*slice // that wait
	held  int64    // bytes of those that wait or are in flight
	since time.Time
	busy  bool

	// Owned by run.
	opened bool
	found  uint64 // of the sink, in metrics
}

// delivery is one change in flight.
type delivery struct {
	change    change.Change
	slice     *slice
	done      bool
	abandoned bool // the next owner of its partition delivers it
	// replacement is the newer change of the entity that is delivered instead.
	replacement *delivery
	span        *tracing.Span
	tries       int  // failed bounded attempts
	failedAlone bool // it failed in a batch of which others succeeded
}

// settled reports whether v, or the change that replaces it, was delivered or is another
// owner's: the replacement may be of another partition than v. A repetition of a change
// that was itself replaced has a replacement with a replacement.
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
	opt.Retry.Attempts = defaults.Positive(opt.Retry.Attempts, 10)
	opt.Retry.MinBackoff = defaults.Positive(opt.Retry.MinBackoff, 200*time.Millisecond)
	opt.Retry.MaxBackoff = defaults.Positive(opt.Retry.MaxBackoff, 30*time.Second)
	w := &worker{
		s: s, opt: opt, traits: opt.Sink.Traits(), m: s.opt.Metrics.of(opt.Name),
		log: s.log.With("service", opt.Name), wakeUp: make(chan struct{}, 1),
	}
	w.condition.state, w.condition.suspension = StateRunning, suspensionOf(s.opt.Suspended, opt.Name)
	w.condition.changed, w.condition.change = context.WithCancel(context.Background())
	return w
}

func (w *worker) failing() bool { return w.condition.now().State != StateRunning }

// run delivers until stop ends, and closes the sink.
func (w *worker) run(stop context.Context) {
	defer w.opt.Sink.Close()
	work, cancel := context.WithCancel(context.WithoutCancel(stop))
	defer cancel()
	defer context.AfterFunc(w.s.limit, cancel)()
	for stop.Err() == nil {
		batch := w.take()
		if len(batch) == 0 {
			select {
			case <-w.wakeUp:
				w.linger(stop)
			case <-stop.Done():
			}
			continue
		}
		// What an error leaves unfinished stays pending in its cursor, and is redelivered.
		_ = w.handle(work, stop, batch)
		w.release(batch)
	}
}

// linger lets a batch grow for Traits.Linger.
func (w *worker) linger(stop context.Context) {
	if w.traits.Linger > 0 {
		wait.Sleep(stop, w.traits.Linger)
	}
}

// take dequeues slices, up to what the sink takes at once.
func (w *worker) take() []*slice {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	n, items := 0, 0
	var bytes int64
	for _, sl := range w.queue {
		items += sl.changes.Count
		bytes += int64(sl.changes.Bytes())
		if n > 0 && (items > max(1, w.traits.MaxBatch) || w.traits.MaxBytes > 0 && bytes > int64(w.traits.MaxBytes)) {
			break
		}
		sl.inHand = true
		n++
	}
	batch := slices.Clone(w.queue[:n])
	w.queue = slices.Delete(w.queue, 0, n)
	w.busy = n > 0
	if n > 0 {
		w.since = time.Now()
	}
	return batch
}

// release returns a batch's share of the budget.
func (w *worker) release(batch []*slice) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.busy = false
	for _, sl := range batch {
		w.s.releaseSlice(sl)
		if !sl.c.live {
			sl.c.p.poke()
		}
	}
	w.s.wake()
	w.s.saver.poke()
}

// dropPartition drops the queued slices of a partition. The caller holds the stage's mutex.
func (w *worker) dropPartition(p *partition) {
	w.queue = slices.DeleteFunc(w.queue, func(sl *slice) bool {
		if sl.c.p != p {
			return false
		}
		w.s.releaseSlice(sl)
		return true
	})
}

// handle processes one batch. work is for effects and is not cancelled at a shutdown;
// stop ends waiting and retrying.
func (w *worker) handle(work, stop context.Context, batch []*slice) error {
	all, err := w.decode(work, stop, batch)
	if err != nil {
		return err
	}
	defer w.endSpans(all)
	crash.At(crash.DeliverBatch, w.opt.Name)
	todo, err := w.dropObsolete(work, stop, all)
	if err != nil {
		return err
	}
	w.finish(batch, all)
	waited, err := w.awaitResumed(stop)
	if err != nil {
		return err
	}
	if err := w.open(work, stop); err != nil {
		return err
	}
	if err := w.resume(work, stop, batch); err != nil {
		return err
	}
	a := &attempt{w: w, work: work, stop: stop, wait: w.backoff(), waited: waited}
	return w.deliver(a, batch, all, todo)
}

// deliver writes what is left of a batch, as much at a time as the sink takes, and
// advances the slices after each write.
func (w *worker) deliver(a *attempt, batch []*slice, all, todo []*delivery) error {
	for len(todo) > 0 {
		n := w.chunk(todo)
		if err := a.deliver(todo[:n]); err != nil {
			return err
		}
		w.finish(batch, all)
		todo = todo[n:]
		if !w.traits.Guarded {
			// Chunk by chunk: what a crash can repeat at such a target is one.
			if err := w.s.saver.await(a.work, batch); err != nil {
				return err
			}
		} else {
			w.s.saver.poke()
		}
	}
	return nil
}

// decode reads the changes of slices and drops those below the service's position.
func (w *worker) decode(work, stop context.Context, batch []*slice) ([]*delivery, error) {
	n := 0
	for _, sl := range batch {
		n += sl.changes.Count
	}
	all := make([]*delivery, 0, n)
	values := make([]delivery, n)
	var letters []store.DeadLetter
	for _, sl := range batch {
		for c, err := range sl.changes.All(w.opt.Name) {
			if err != nil {
				letters = append(letters, store.DeadLetter{
					Stage: store.StageDeliver, Code: "malformed", Reason: err.Error(), State: store.LetterOpen,
					Service: w.opt.Name, Part: sl.c.p.number, Offset: sl.record, Version: sl.frame.From,
					DedupKey: "deliver/" + w.opt.Name + "/" + sl.frame.From.String() + "/" + sl.frame.To.String(),
				})
				break
			}
			if c.Position() < sl.below {
				continue
			}
			v := &values[len(all)]
			*v = delivery{change: c, slice: sl}
			v.span = w.s.opt.Tracer.Deliver(c.Trace, w.opt.Name)
			v.change.Trace = v.span.Trace() // what the sink passes on
			v.change.Partition = sl.c.p.number
			all = append(all, v)
		}
	}
	w.m.outcomes[OutcomeDead].Add(float64(len(letters)))
	return all, w.s.addLetters(work, stop, letters)
}

// finish advances the slices of a batch to the first change that is not settled.
func (w *worker) finish(batch []*slice, all []*delivery) {
	at := make(map[*slice]change.Version, len(batch))
	for _, v := range all {
		if _, undone := at[v.slice]; !undone && !v.settled() {
			at[v.slice] = v.change.Position()
		}
	}
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	for _, sl := range batch {
		if first, undone := at[sl]; undone {
			sl.at = first
			// Changes of one position that were cut into parts are done together.
			if sl.frame.Partial() {
				sl.at = max(sl.frame.From, sl.below)
			}
		} else {
			sl.finished = true
		}
		c := sl.c
		for len(c.pending) > 0 && c.pending[0].finished {
			if f := c.pending[0].frame; f.Partial() {
				// The other parts have nothing for this service: it need not wait for them, and
				// gets none of them again.
				c.floor = max(c.floor, f.To)
			}
			c.pending[0] = nil
			c.pending = c.pending[1:]
		}
		w.keepMark(c)
		c.p.edits++
	}
}

// dropAbandoned drops the changes of revoked partitions. The next owner has them, and
// delivers newer ones after them; this one may be fenced for as long as it tries.
func (w *worker) dropAbandoned(todo []*delivery) []*delivery {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	return slices.DeleteFunc(todo, func(v *delivery) bool {
		v.abandoned = v.slice.c.p.gone
		return v.abandoned
	})
}

func (w *worker) backoff() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.Multiplier = 2
	b.InitialInterval, b.MaxInterval = w.opt.Retry.MinBackoff, w.opt.Retry.MaxBackoff
	return b
}

// dropObsolete drops repetitions within the batch, and for a state sink all but the
// newest change of each entity. A redelivered change goes to a state sink that does not
// guard itself only if it is the newest that was decided: a newer one may be there
// already, and this one would overwrite it. A resent change of a log sink is always
// delivered.
func (w *worker) dropObsolete(work, stop context.Context, all []*delivery) ([]*delivery, error) {
	state := w.traits.Kind == sinks.State
	var doubtful []*delivery
	for _, v := range all {
		if v.slice.redelivered && state && !w.traits.Guarded {
			doubtful = append(doubtful, v)
		}
	}
	rows, err := w.rows(work, stop, doubtful)
	if err != nil {
		return nil, err
	}
	// A log sink is owed every version, even an older one that follows a newer one from
	// another partition: an older inbox may have had another number of partitions.
	type key struct {
		entity  string
		version change.Version // 0 for a state sink
	}
	newest := make(map[key]*delivery, len(all))
	keep := make([]*delivery, 0, len(all))
	for _, v := range all {
		c := &v.change
		if c.Resent != 0 && !state {
			// A dead letter of an operator's, late by its nature.
			keep = append(keep, v)
			continue
		}
		k := key{entity: c.Entity}
		if !state {
			k.version = c.Version
		}
		if old := newest[k]; old != nil && c.Version <= old.change.Version {
			v.replacement = old
			w.recordOutcome(v, OutcomeSkipped)
			continue
		}
		if v.slice.redelivered && rows[c.Entity].Version > c.Version {
			w.raiseFloor(c.Entity, rows[c.Entity].Version)
			w.recordOutcome(v, OutcomeOvertaken)
			continue
		}
		newest[k] = v
		keep = append(keep, v)
	}
	if !state {
		return keep, nil
	}
	return slices.DeleteFunc(keep, func(v *delivery) bool {
		n := newest[key{entity: v.change.Entity}]
		if n == v {
			return false
		}
		v.replacement = n
		w.recordOutcome(v, OutcomeCoalesced)
		return true
	}), nil
}

// raiseFloor notes that a change was dropped for a newer one of its entity, which was
// decided at version newer: a store whose watermark of that partition is below has
// forgotten that decision.
func (w *worker) raiseFloor(entity string, newer change.Version) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	if p := w.s.parts[w.s.opt.Partition(entity, newer)]; p != nil {
		p.floor = max(p.floor, newer+1)
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
		w.endSpan(v, nil) // whatever becomes of the rest of its frame
	}
}

// rows reads the dam rows of the entities of changes, by entity.
func (w *worker) rows(work, stop context.Context, of []*delivery) (map[string]store.Row, error) {
	var keys []store.Key
	rows := map[string]store.Row{}
	for _, v := range of {
		entity := v.change.Entity
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

// until retries what a sink does before it writes, until it works or stop ends. It waits
// as a write does: with the other services of a target that is down, and while suspended.
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
	}
}

// chunk returns how many changes the sink takes at once.
func (w *worker) chunk(todo []*delivery) int {
	n, bytes := 0, 0
	for n < len(todo) && n < max(1, w.traits.MaxBatch) {
		bytes += len(todo[n].change.Doc)
		if n > 0 && w.traits.MaxBytes > 0 && bytes > w.traits.MaxBytes {
			break
		}
		n++
	}
	return n
}

// retryUntil repeats an operation on the store until it works or stop ends.
func (s *Stage) retryUntil(work, stop context.Context, what string, op func() error) error {
	stopped, err := wait.Retry(work, stop, s.log, what, op)
	if stopped {
		return errStopped
	}
	return err
}

// reportFailure counts a failure of the sink, and logs it when the state changes. about is
// the span of a change that failed, or nil.
func (w *worker) reportFailure(e *sinks.Error, about *tracing.Span) {
	state := StateRetrying
	if e.Class == sinks.Pause {
		state = StatePaused
	}
	w.m.failures.WithLabelValues(w.opt.Name, e.Class.String()).Inc()
	if !w.condition.failed(e, state) {
		return
	}
	w.wakeTails() // which need not wait for it now
	log := w.log
	if about != nil {
		log = log.With("trace_id", about.ID())
	}
	if state == StatePaused {
		w.m.paused.Set(1)
		log.Error("paused: the sink refuses this service as a whole; it is probed until that changes", "error", e)
		return
	}
	log.Warn("delivery fails; trying again", "error", e)
}

// recovered sets the service running again.
func (w *worker) recovered() {
	if w.condition.recovered() {
		w.m.paused.Set(0)
		w.log.Info("delivering again")
		w.wakeTails()
	}
}

func (w *worker) wakeTails() {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	for _, p := range w.s.parts {
		p.poke()
	}
	w.s.wake()
}
