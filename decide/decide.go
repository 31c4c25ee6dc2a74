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
	err := l.decideAll(ctx, batch)
	if errors.Is(err, store.ErrSuperseded) {
		l.d.halt(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range frames {
		last := &f.Value[len(f.Value)-1]
		if err != nil {
			f.Fail(err)
		} else if o := l.owned[last.partition]; o != nil && last.assignment > o.after && last.offset >= o.next {
			f.Fail(errLater)
		}
	}
}

// errLater says that a frame is not decided to its end, because its partition waits for
// its publishes, or for being taken over again. The others of its batch are.
var errLater = errors.New("its partition waits")

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
// it tries again, after anything else it takes over again first. Partitions that have to
// wait are left out.
func (l *lane) decide(ctx context.Context, batch []*record) error {
	pause := 50 * time.Millisecond
	for failures := 0; ; failures++ {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := l.retake(ctx); err != nil {
			return err
		}
		todo, moves, owners := l.admit(batch)
		if len(todo) == 0 {
			return nil
		}
		err := l.transact(ctx, todo, moves, owners)
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
			l.mu.Lock()
			for n := range owners {
				l.lose(n, err)
			}
			l.mu.Unlock()
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

// admit leaves out records of partitions that are no longer owned or have to wait,
// those of an earlier assignment (behind them others may be missing) and those that were
// decided already, and gives the watermark steps for the rest, and who owns these
// partitions.
func (l *lane) admit(batch []*record) ([]*record, []store.WatermarkStep, map[int32]*ownership) {
	l.mu.Lock()
	defer l.mu.Unlock()
	todo := make([]*record, 0, len(batch))
	at := map[int32]int{}
	owners := map[int32]*ownership{}
	var moves []store.WatermarkStep
	for _, r := range batch {
		o := l.owned[r.partition]
		if o == nil || r.assignment <= o.after || r.offset < o.next || !l.takes(r.partition, o) {
			continue
		}
		i, ok := at[r.partition]
		if !ok {
			i = len(moves)
			at[r.partition], owners[r.partition] = i, o
			moves = append(moves, store.WatermarkStep{Partition: l.partition(r.partition), From: o.next, Token: o.token})
		}
		moves[i].To = r.offset + 1
		todo = append(todo, r)
	}
	return todo, moves, owners
}

// bisect finds the records that the store cannot hold and makes them dead
// letters; everything else of the batch is decided as usual.
func (l *lane) bisect(ctx context.Context, batch []*record, cause error) error {
	if len(batch) == 1 {
		r := batch[0]
		if r.deadLetter != nil {
			// Not even its dead letter can be stored.
			return store.WithClass(cause, store.Fatal)
		}
		letter := letterOf(r, "poison", "the store cannot hold it: "+cause.Error())
		r.deadLetter = &letter
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
func (l *lane) transact(ctx context.Context, records []*record, moves []store.WatermarkStep, owners map[int32]*ownership) error {
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
	deleted, ends := map[*ownership]int{}, frameEnds{}
	l.mu.Lock()
	for n, o := range owners {
		published, deleted[o], ends[l.partition(n)] = append(published, o.published...), len(o.published), o.lastTo
	}
	l.mu.Unlock()

	start := time.Now()
	within, cancel := l.graceful(ctx)
	defer cancel()
	span := l.batchSpan(records)
	crash.At(crash.DecideBatch, "")
	d := store.Decision{Revision: plan.Revision, Moves: moves, Entities: unknown, Claims: b.claimed, Keys: b.keys, Published: published}
	var v *verdict
	ids, err := l.d.opt.Store.Decide(within, d, func(loaded store.Loaded) (_ store.Outcome, err error) {
		crash.At(crash.DecideBegun, "")
		if v, err = decideBatch(b, loaded); err != nil {
			return store.Outcome{}, err
		}
		v.out.Outbox, v.out.LastTo = pack(plan, v.changes, moves, ends, l.d.opt.MaxFrame)
		crash.At(crash.DecideOutcome, "")
		return v.out, nil
	})
	decidedSpans(span, records, err)
	if err != nil {
		l.unclear(b, moves, v != nil)
		return err
	}
	crash.At(crash.DecideCommitted, "")
	l.d.opt.Metrics.decided(v, len(records), time.Since(start))
	v.observer.report(v.tally.outcomes)
	l.d.opt.Tail.note(plan, records)
	l.cache.committed(moves)
	b.remember(l.cache)
	l.mu.Lock()
	for _, m := range moves {
		o := owners[m.Partition.Number]
		o.published, o.next = o.published[deleted[o]:], m.To
		if to, ok := v.out.LastTo[m.Partition]; ok {
			o.lastTo = to
		}
	}
	l.mu.Unlock()
	if len(ids) == 0 {
		return nil // the store has published them, or there are none
	}
	for i := range v.out.Outbox {
		v.out.Outbox[i].ID = ids[i]
	}
	if crash.Enabled && len(v.out.Outbox) > 1 && crash.Due(crash.PublishHalf, "") {
		l.dieHalfway(ctx, v.out.Outbox)
	}
	l.publish(ctx, owners, v.out.Outbox, crash.Published)
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
