package decide

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/store"
)

// handle decides the frames of one batch. It returns when every one of them is
// durable, or failed for a reason that ends the subscription or redelivers the frame.
func (w *worker) handle(ctx context.Context, frames []*entry[[]record]) {
	w.work <- struct{}{}
	defer func() { <-w.work }()
	ctx, cancel := w.stopping(ctx)
	defer cancel()
	n := 0
	for _, f := range frames {
		n += len(f.Value)
	}
	batch := make([]*record, 0, n)
	for _, f := range frames {
		for i := range f.Value {
			batch = append(batch, &f.Value[i])
		}
	}
	err := w.decideAll(ctx, batch)
	if errors.Is(err, store.ErrSuperseded) {
		w.d.halt(err)
	}
	if err == nil && w.ownDue() {
		w.compare(ctx) // partitions without events need it as well
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range frames {
		last := &f.Value[len(f.Value)-1]
		if err != nil {
			f.Fail(err)
		} else if o := w.owned[last.partition]; o != nil && last.assignment > o.after && last.offset >= o.next {
			f.Fail(errLater)
		} else {
			for i := range f.Value {
				f.Value[i].release()
			}
		}
	}
}

// release ends the use of the record's document, when it is decided.
func (r *record) release() {
	if r.tree != nil {
		r.tree.Release()
		r.tree = nil
	}
}

// errLater says that a frame is not decided to its end, because its partition waits for
// being taken over again. The others of its batch are.
var errLater = errors.New("its partition waits")

// decideAll decides as many records at a time as fit into one decision by the size of the last outcome: that
// depends on how many services a record changes. What does not fit is evaluated in vain.
func (w *worker) decideAll(ctx context.Context, batch []*record) error {
	for len(batch) > 0 {
		n := min(len(batch), w.most)
		if err := w.decide(ctx, batch[:n]); err != nil {
			return err
		}
		w.most = min(2*w.most, w.fit, w.d.opt.MaxEvents)
		batch = batch[n:]
	}
	return nil
}

// decide brings records, in order per partition, to a durable decision. It
// retries until that is done or ctx ends: after a failure that wrote nothing
// it tries again, after anything else it takes over again first. Partitions that have to
// wait are left out.
func (w *worker) decide(ctx context.Context, batch []*record) error {
	failures := 0
	return w.retry(ctx, "decide", func() error {
		for ; ; failures++ {
			if ctx.Err() != nil {
				return wait.Permanent(context.Cause(ctx))
			}
			if err := w.retake(ctx); err != nil {
				return wait.Permanent(err)
			}
			todo, moves, owners := w.filterOwned(batch)
			if len(todo) == 0 {
				return nil
			}
			if failures >= maxFailures && len(todo) > 1 {
				// The store may refuse the size of the batch under any error. The later half
				// is tried whole again.
				return wait.Permanent(w.halves(ctx, todo))
			}
			plan := w.d.plan.Load()
			err := w.transact(ctx, plan, todo, moves, owners)
			if errors.Is(err, errLargeOutcome) && len(todo) > 1 {
				w.most = max(1, len(todo)/2)
				return wait.Permanent(w.halves(ctx, todo))
			}
			switch class := store.ClassOf(err); {
			case err == nil:
				return nil
			case class == store.Superseded:
				if !w.d.replaced(ctx, plan) {
					return err
				}
			case class == store.Poison:
				return wait.Permanent(w.bisect(ctx, todo, err))
			case class == store.Fenced || class == store.Unknown:
				w.d.opt.Metrics.fenced.Inc()
				w.mu.Lock()
				for n := range owners {
					w.markStale(n, err)
				}
				w.mu.Unlock()
			default:
				failures++
				return err
			}
		}
	})
}

// maxFailures is the number of failures after which a batch is halved.
const maxFailures = 5

// filterOwned leaves out records of partitions that are no longer owned or have to wait,
// records behind those that waited, those of an earlier assignment (behind them others
// may be missing) and those that were decided already. It returns the rest, with their
// watermark steps and ownerships.
func (w *worker) filterOwned(batch []*record) ([]*record, []store.WatermarkStep, map[int32]*ownership) {
	w.mu.Lock()
	defer w.mu.Unlock()
	todo := make([]*record, 0, len(batch))
	at := map[int32]int{}
	owners := map[int32]*ownership{}
	var moves []store.WatermarkStep
	for _, r := range batch {
		o := w.owned[r.partition]
		if o == nil || r.assignment <= o.after || r.offset < o.next {
			continue
		}
		if o.leftOut > o.next && r.offset >= o.leftOut {
			continue
		}
		if o.stale != nil {
			o.leftOut = r.offset + 1
			continue
		}
		o.leftOut = 0
		i, ok := at[r.partition]
		if !ok {
			i = len(moves)
			at[r.partition], owners[r.partition] = i, o
			moves = append(moves, store.WatermarkStep{Partition: w.partition(r.partition), From: o.next, Token: o.token})
		}
		moves[i].To = r.offset + 1
		todo = append(todo, r)
	}
	return todo, moves, owners
}

// bisect finds the records that the store cannot hold and makes them dead
// letters; everything else of the batch is decided as usual.
func (w *worker) bisect(ctx context.Context, batch []*record, cause error) error {
	if len(batch) == 1 {
		r := batch[0]
		if r.deadLetter != nil {
			// Not even its dead letter can be stored.
			return store.WithClass(cause, store.Fatal)
		}
		letter := letterOf(r, "poison", "the store cannot hold it: "+cause.Error())
		r.deadLetter = &letter
		return w.decide(ctx, batch)
	}
	return w.halves(ctx, batch)
}

// halves decides one half after the other.
func (w *worker) halves(ctx context.Context, batch []*record) error {
	half := len(batch) / 2
	if err := w.decide(ctx, batch[:half]); err != nil {
		return err
	}
	return w.decide(ctx, batch[half:])
}

// transact runs one decision transaction and hands its frames over.
func (w *worker) transact(ctx context.Context, plan *Plan, records []*record, moves []store.WatermarkStep, owners map[int32]*ownership) error {
	w.cache.begin(moves)
	b := newBatch(plan, records, w.d.opt.MaxOutcome, w.cache.take)
	if len(records) == 1 {
		b.room, b.single = outcomeOfOne*w.d.opt.MaxOutcome, true
	}
	b.scratch, b.noise, b.begin = &w.scratch, w.d.opt.Noise, w.inHand.begin
	b.hearing = &hearing{owners: owners}
	defer w.scratch.reset()
	unknown := b.toLoad()
	w.d.opt.Metrics.cacheUsed.WithLabelValues(cacheHit).Add(float64(len(b.subjects) - len(unknown)))
	w.d.opt.Metrics.cacheUsed.WithLabelValues(cacheMiss).Add(float64(len(unknown)))
	ends := frameEnds{}
	w.mu.Lock()
	for n, o := range owners {
		ends[w.partition(n)] = o.lastTo
	}
	w.mu.Unlock()

	start := time.Now()
	within, cancel := w.graceful(ctx)
	defer cancel()
	span := w.batchSpan(records)
	crash.At(crash.DecideBatch, "")
	d := store.Decision{Revision: plan.Revision, Moves: moves, Entities: unknown, Claims: b.claimed, Keys: b.keys}
	var v *verdict
	err := w.d.opt.Store.Decide(within, d, func(loaded store.Loaded) (_ store.Outcome, err error) {
		crash.At(crash.DecideBegun, "")
		v, err = decideBatch(b, loaded)
		w.inHand.end()
		if err != nil {
			return store.Outcome{}, err
		}
		v.out.Frames = w.writer.pack(plan, v.changes, moves, ends, w.d.opt.MaxFrame)
		b.hearing.write(&v.out, w.partition)
		crash.At(crash.DecideOutcome, "")
		return v.out, nil
	})
	endBatchSpan(span, records, err)
	if err != nil {
		if store.ClassOf(err) != store.Superseded { // by which nothing of the partitions moved
			w.dropUncertain(b, moves, v != nil)
		} else if v == nil {
			b.putBack(w.cache)
		}
		return err
	}
	crash.At(crash.DecideCommitted, "")
	w.d.opt.Metrics.decided(v, len(records), time.Since(start))
	v.observer.report(v.outcomes)
	w.fit = b.fit(v, w.d.opt.MaxOutcome)
	w.cache.committed(moves)
	b.remember(w.cache)
	for _, f := range v.out.Floors {
		owners[f.Partition.Number].floors[f.Log] = f
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range moves {
		owners[m.Partition.Number].next = m.To
	}
	for i := range v.out.Frames {
		f := &v.out.Frames[i]
		o := owners[f.Partition.Number]
		o.lastTo = f.To
		if w.d.opt.HandOver != nil && w.owned[f.Partition.Number] == o {
			w.d.opt.HandOver(f)
		}
	}
	return nil
}

// dropUncertain drops the cached entities of a batch that was not committed, or whose
// outcome is unknown.
func (w *worker) dropUncertain(b *batch, moves []store.WatermarkStep, decided bool) {
	if w.cache.faults.KeepUnclear && decided {
		w.cache.committed(moves)
		b.remember(w.cache)
		for _, m := range moves {
			w.cache.partitions[m.Partition.Number].unclear = true
		}
		return
	}
	w.cache.dropAll(moves)
}

// commitGrace is how long a transaction that is under way at shutdown may take to
// end: to cancel it would only leave its outcome unknown.
const commitGrace = 5 * time.Second

// graceful returns a context that ends commitGrace after ctx does, or with the
// decider's limit.
func (w *worker) graceful(ctx context.Context) (context.Context, context.CancelFunc) {
	within, cancel := wait.WithGrace(context.WithoutCancel(ctx), ctx, commitGrace)
	unlimit := context.AfterFunc(w.d.opt.Limit, cancel)
	return within, func() { unlimit(); cancel() }
}

// outcomeOfOne is how many times MaxOutcome the outcome of a single record may have, which
// cannot be cut: a document counts once, however many services it is for.
const outcomeOfOne = 8

// unbounded is the room of what decides in memory alone.
const unbounded = math.MaxInt

// errLargeOutcome says that the outcome of a decision is larger than it may be.
var errLargeOutcome = errors.New("its changes are more than one decision may have")
