package decide

import (
	"context"
	"errors"
	"time"

	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/internal/gather"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/store"
)

// handle decides the frames of one batch. It returns when every one of them is
// durable, or failed for a reason that the subscription must hear of.
func (l *lane) handle(ctx context.Context, frames []*gather.Entry[[]record]) {
	l.work <- struct{}{}
	defer func() { <-l.work }()
	ctx, cancel := l.stopping(ctx)
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
	if err := l.decideAll(ctx, batch); err != nil {
		if errors.Is(err, store.ErrSuperseded) {
			l.d.halt(err)
		}
		for _, f := range frames {
			f.Fail(err)
		}
	}
}

// decideAll decides as many records at a time as were decided to no more than
// MaxOutcome lately: how much one comes to depends on how many services it changes.
func (l *lane) decideAll(ctx context.Context, batch []*record) error {
	for len(batch) > 0 {
		n := min(len(batch), l.most)
		if err := l.decide(ctx, batch[:n]); err != nil {
			return err
		}
		l.most = min(l.most+l.most/8+1, l.d.opt.MaxEvents)
		batch = batch[n:]
	}
	return nil
}

// decide brings records, in order per partition, to a durable decision. It
// goes on until that is done or ctx ends: after a failure that wrote nothing
// it tries again, after anything else it takes over again first.
func (l *lane) decide(ctx context.Context, batch []*record) error {
	pause := 50 * time.Millisecond
	for failures := 0; ; failures++ {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := l.repair(ctx); err != nil {
			return err
		}
		if err := l.room(); err != nil {
			return err
		}
		todo, moves, ends := l.admit(batch)
		if len(todo) == 0 {
			return nil
		}
		err := l.transact(ctx, todo, moves, ends)
		if err == nil {
			l.setHalted(nil)
			return nil
		}
		if errors.Is(err, errLargeOutcome) && len(todo) > 1 {
			l.most = max(1, len(todo)/2)
			return l.halves(ctx, todo)
		}
		switch store.ClassOf(err) {
		case store.Superseded:
			return err
		case store.Poison:
			return l.bisect(ctx, todo, err)
		case store.Fenced, store.Unknown:
			l.d.opt.Metrics.fenced.Inc()
			l.log.Warn("taking over again from the store", "because", err)
			if store.ClassOf(err) == store.Fenced {
				// Somebody else may own the partition by now, and the message about
				// it be under way: taking it back at once would only make both stumble.
				if !wait.Sleep(ctx, l.d.opt.RetakeDelay) {
					return context.Cause(ctx)
				}
			}
			if err := l.reclaim(ctx, partitionsOf(moves)); err != nil {
				return err
			}
		default:
			if failures == 1 && l.haltedBy() == nil {
				l.log.Warn("halted: the store does not take decisions; trying again until it does", "error", err)
			}
			if failures >= 1 {
				l.setHalted(err)
			}
			if !wait.Sleep(ctx, pause) {
				return context.Cause(ctx)
			}
			pause = min(2*pause, 2*time.Second)
		}
		if failures+1 >= tooOften && len(todo) > 1 {
			// Something about the whole of it may be what the store does not take,
			// whatever it says. The later half is tried whole again.
			return l.halves(ctx, todo)
		}
	}
}

// tooOften is after how many failures a batch is halved.
const tooOften = 5

func partitionsOf(moves []store.WatermarkStep) []int32 {
	ps := make([]int32, len(moves))
	for i, m := range moves {
		ps[i] = m.Partition.Number
	}
	return ps
}

// admit leaves out records of partitions that are no longer owned, those of an
// earlier assignment (behind them others may be missing) and those that were
// decided already, and gives the watermark steps for the rest, and where the
// newest frames of these partitions end.
func (l *lane) admit(batch []*record) ([]*record, []store.WatermarkStep, frameEnds) {
	l.mu.Lock()
	defer l.mu.Unlock()
	todo := make([]*record, 0, len(batch))
	at := map[int32]int{}
	ends := frameEnds{}
	var moves []store.WatermarkStep
	for _, r := range batch {
		o := l.owned[r.part]
		if o == nil || r.assignment <= o.after || r.offset < o.next {
			continue
		}
		i, ok := at[r.part]
		if !ok {
			i = len(moves)
			at[r.part] = i
			moves = append(moves, store.WatermarkStep{Partition: l.partition(r.part), From: o.next, Token: o.token})
			ends[moves[i].Partition] = o.lastTo
		}
		moves[i].To = r.offset + 1
		todo = append(todo, r)
	}
	return todo, moves, ends
}

// bisect finds the records that the store cannot hold and makes them dead
// letters; everything else of the batch is decided as usual.
func (l *lane) bisect(ctx context.Context, batch []*record, cause error) error {
	if len(batch) == 1 {
		r := batch[0]
		if r.bad != nil {
			// Not even its dead letter can be stored.
			return store.WithClass(cause, store.Fatal)
		}
		bad := letterOf(r, "poison", "the store cannot hold it: "+cause.Error())
		r.bad = &bad
		return l.decide(ctx, batch)
	}
	return l.halves(ctx, batch)
}

// halves decides one half after the other.
func (l *lane) halves(ctx context.Context, batch []*record) error {
	half := len(batch) / 2
	if err := l.decide(ctx, batch[:half]); err != nil {
		return err
	}
	return l.decide(ctx, batch[half:])
}

// transact runs one decision transaction and publishes what it decided.
func (l *lane) transact(ctx context.Context, records []*record, moves []store.WatermarkStep, ends frameEnds) error {
	plan := l.d.opt.Plan
	following := l.d.opt.Tail.following()
	for _, r := range records {
		r.followed = following
	}
	l.cache.begin(moves)
	b := newBatch(plan, records, l.d.opt.MaxOutcome, l.cache.take)
	if len(records) == 1 {
		b.room = maxOutcomeOfOne
	}
	b.noise = l.d.opt.Noise
	unknown := b.unknown()
	l.d.opt.Metrics.cacheUsed.WithLabelValues(cacheHit).Add(float64(len(b.subjects) - len(unknown)))
	l.d.opt.Metrics.cacheUsed.WithLabelValues(cacheMiss).Add(float64(len(unknown)))
	var published []int64
	l.mu.Lock()
	for _, m := range moves {
		if o := l.owned[m.Partition.Number]; o != nil {
			published = append(published, o.published...)
		}
	}
	l.mu.Unlock()

	start := time.Now()
	within, cancel := l.graceful(ctx)
	defer cancel()
	span := l.batchSpan(records)
	crash.At(crash.DecideBatch, "")
	d := store.Decision{Revision: plan.Revision, Moves: moves, Entities: unknown, Claims: b.claimed, Keys: b.keys, Published: published}
	var v verdict
	decided := false
	ids, err := l.d.opt.Store.Decide(within, d, func(loaded store.Loaded) (_ store.Outcome, err error) {
		crash.At(crash.DecideBegun, "")
		if v, err = decideBatch(b, loaded); err != nil {
			return v.out, err
		}
		v.out.Outbox, v.out.LastTo = pack(plan, &v.result, moves, ends, l.d.opt.MaxFrame)
		decided = true
		crash.At(crash.DecideOutcome, "")
		return v.out, nil
	})
	decidedSpans(span, records, v.result.changes, err)
	if err != nil {
		l.unclear(b, moves, decided)
		return err
	}
	crash.At(crash.DecideCommitted, "")
	l.d.opt.Metrics.decided(plan, v.tally, v.result, v.out.Letters, len(records), time.Since(start))
	v.seen.report(v.tally, v.result.causes)
	l.d.opt.Tail.note(plan, records)
	l.cache.committed(moves)
	b.remember(l.cache)
	l.forget(moves, published)
	l.mu.Lock()
	for _, m := range moves {
		if o := l.owned[m.Partition.Number]; o != nil && o.token == m.Token {
			o.next = m.To
			if to, ok := v.out.LastTo[m.Partition]; ok {
				o.lastTo = to
			}
		}
	}
	l.mu.Unlock()
	if len(ids) == 0 {
		return nil // the store has published them, or there are none
	}
	for i := range v.out.Outbox {
		v.out.Outbox[i].ID = ids[i]
	}
	l.publish(ctx, moves, v.out.Outbox)
	return nil
}

// unclear drops what is remembered of the partitions of a batch that was not
// committed, or nobody knows.
func (l *lane) unclear(b *batch, moves []store.WatermarkStep, decided bool) {
	if l.cache.unsound.KeepUnclear && decided {
		l.cache.committed(moves)
		b.remember(l.cache)
		for _, m := range moves {
			l.cache.partitions[m.Partition.Number].unclear = true
		}
		return
	}
	l.cache.dropAll(moves)
}

// commitGrace is how long a transaction that is under way at a stop may take
// to end: to cut it off would only leave its outcome unknown.
const commitGrace = 5 * time.Second

// graceful returns a context that ends commitGrace after ctx does, or with the
// decider's limit.
func (l *lane) graceful(ctx context.Context) (context.Context, context.CancelFunc) {
	within, cancel := wait.WithGrace(context.WithoutCancel(ctx), ctx, commitGrace)
	unlimit := context.AfterFunc(l.d.opt.Limit, cancel)
	return within, func() { unlimit(); cancel() }
}

// maxOutcomeOfOne bounds in bytes what is decided of a single record, which cannot
// be cut: what databases take in one statement (PostgreSQL: 1 GiB), with room.
const maxOutcomeOfOne = 512 << 20

// errLargeOutcome says that a decision would come to more than it may.
var errLargeOutcome = errors.New("its changes are more than one decision may have")
