package decide

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/store"
)

// idleTick is how often an idle worker looks for partitions to take over again.
const idleTick = 300 * time.Millisecond

// ownTick is how often a worker compares its watermarks with the store: one that went
// back has to be decided again, although nothing new came.
const ownTick = 5 * time.Second

// maxBatchBytes bounds the payloads of one transaction.
const maxBatchBytes = 16 << 20

// worker decides the records of its partitions, one transaction at a time.
type worker struct {
	d      *Decider
	number int
	log    *slog.Logger
	frames *queue[[]record] // the records of each

	// work serialises the callers of the store for this worker: the
	// worker's own loop, and takeover at an assignment. It is held when full, and
	// for as long as the store is unreachable: an assignment that ends must not wait for it.
	work     chan struct{}
	compared time.Time   // guarded by work; see ownDue
	cache    *cache      // guarded by work
	scratch  scratch     // guarded by work
	writer   frameWriter // guarded by work
	most     int         // guarded by work; how many records are decided at a time
	fit      int         // guarded by work; how many may fit into one decision
	inHand   inHand

	mu      sync.Mutex
	owned   map[int32]*ownership // guarded by mu
	changed chan struct{}        // guarded by mu; closed and replaced at every change of owned
	halted  error                // guarded by mu
}

// ownership is the state of a partition that a worker took over. Its fields are
// guarded by the worker's mutex.
type ownership struct {
	token  store.Token
	after  uint64                 // only frames of assignments above it are of this ownership
	next   int64                  // watermark
	lastTo change.Version         // where the partition's newest frame ends
	floors map[string]store.Floor // guarded by the worker's work; by log
	// leftOut is the offset behind the first record that was left out since the partition
	// had to wait; of no meaning up to next. Records behind it are left out too
	// until it is decided: the watermark would pass it.
	leftOut int64

	// stale is why it has to be taken over again, from due on. Until then nothing is decided of
	// it; nil: no reason.
	stale error
	due   time.Time
}

func newWorker(d *Decider, number int) *worker {
	return &worker{
		d: d, number: number, most: d.opt.MaxEvents, fit: d.opt.MaxEvents,
		cache:  newCache(d.opt.Cache/int64(d.opt.Workers), d.opt.Metrics, d.opt.FaultInjection),
		log:    d.opt.Logger.With("stage", "decide", "worker", number),
		frames: newQueue[[]record](queueConfig{MaxItems: d.opt.MaxEvents, MaxBytes: maxBatchBytes, Limit: d.opt.Limit}),
		owned:  map[int32]*ownership{}, changed: make(chan struct{}), work: make(chan struct{}, 1),
	}
}

func (w *worker) partition(n int32) store.Partition {
	return store.Partition{Generation: w.d.opt.Inbox.Generation, Number: n}
}

// assigned is called by the transport before it fetches.
func (w *worker) assigned(ctx context.Context, partitions []int32, starts map[int32]int64) error {
	ctx, cancel := w.stopping(ctx)
	defer cancel()
	select {
	case w.work <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-w.work }()
	orphans, err := w.orphaned(ctx, partitions)
	if err != nil {
		return err
	}
	taken, err := w.takeOver(ctx, slices.Concat(partitions, orphans))
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	// Assignments are numbered through the process and this one is still to begin:
	// frames of earlier ones, which may be on their way yet, are not its own.
	after := transport.LastAssignment()
	defer w.signal()
	for n, o := range taken {
		o.after = after
		w.owned[n] = o
		if !slices.Contains(orphans, n) {
			starts[n] = o.next
		}
	}
	return nil
}

func (w *worker) revoked(partition int32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.signal()
	for n := range w.owned {
		if n == partition || w.d.owningPartition(n) == partition {
			delete(w.owned, n)
		}
	}
}

// signal wakes all that wait for a change. The caller holds mu.
func (w *worker) signal() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// retakeDue reports whether a partition is to be taken over again now. The caller holds mu.
func (o *ownership) retakeDue() bool { return o.stale != nil && !time.Now().Before(o.due) }

// await returns when the worker decides records of a partition, or does not own it.
func (w *worker) await(ctx context.Context, n int32) error {
	for {
		w.mu.Lock()
		o, changed := w.owned[n], w.changed
		free := o == nil || o.stale == nil || o.retakeDue()
		w.mu.Unlock()
		if free {
			return nil
		}
		select {
		case <-changed:
		case <-time.After(idleTick):
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-w.d.stop.Done():
			return errStopped
		}
	}
}

func (w *worker) owns(partition int32) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.owned[partition] != nil
}

// orphaned returns the partitions of larger inboxes, of older generations, that the
// owner of these has to take over, too: no other process fences their owners.
func (w *worker) orphaned(ctx context.Context, partitions []int32) (orphans []int32, err error) {
	err = w.retry(ctx, "read the watermarks", func() error {
		marks, err := w.d.opt.Store.Watermarks(ctx)
		orphans = nil
		for p := range marks {
			if of := w.d.owningPartition(p.Number); of != p.Number && slices.Contains(partitions, of) && !slices.Contains(orphans, p.Number) {
				orphans = append(orphans, p.Number)
			}
		}
		return err
	})
	return orphans, err
}

// takeOver makes this worker the owner of partitions. It tries until ctx ends. The caller
// holds work.
func (w *worker) takeOver(ctx context.Context, partitions []int32) (map[int32]*ownership, error) {
	parts := make([]store.Partition, len(partitions))
	for i, n := range partitions {
		parts[i] = w.partition(n)
	}
	var token store.Token
	var found []store.TakenOver
	if err := w.retry(ctx, "take over", func() (err error) {
		token = store.NewToken()
		found, err = w.d.opt.Store.TakeOver(ctx, parts, token)
		if errors.Is(err, store.ErrFenced) {
			w.d.endIfReplaced(ctx)
		}
		if err == nil && w.d.opt.TakenOver != nil {
			if err = w.d.opt.TakenOver(ctx, token, found); errors.Is(err, ErrInboxReplaced) {
				w.d.halt(err)
			}
		}
		return err
	}); err != nil {
		return nil, err
	}
	crash.At(crash.TakenOver, "")
	w.d.opt.Metrics.takeOvers.Add(float64(len(partitions)))
	taken := make(map[int32]*ownership, len(found))
	for _, f := range found {
		taken[f.Partition.Number] = &ownership{token: token, next: f.NextOffset, lastTo: f.LastTo, floors: floorsByLog(f.Floors)}
	}
	return taken, nil
}

// stale reports whether a partition has to be taken over again.
func (w *worker) stale() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.owned {
		if o.stale != nil {
			return true
		}
	}
	return false
}

// idle takes over again the stale partitions, and compares the others with the store.
func (w *worker) idle(ctx context.Context) {
	w.work <- struct{}{}
	defer func() { <-w.work }()
	ctx, cancel := w.stopping(ctx)
	defer cancel()
	w.cache.retain(w.owns)
	if err := w.retake(ctx); err != nil {
		return // it is tried again at the next tick
	}
	if w.ownDue() {
		w.compare(ctx)
	}
}

// markStale has a partition taken over again. One that was fenced may have another owner by
// now: it waits for RetakeDelay first, or the two would fence each other in turns. The
// caller holds mu.
func (w *worker) markStale(n int32, why error) {
	o := w.owned[n]
	if o == nil || o.stale != nil {
		return
	}
	w.log.Warn("taking over again from the store", "event", "decide.retake", "partition", n, "because", why)
	if o.stale = why; store.ClassOf(why) == store.Fenced {
		o.due = time.Now().Add(w.d.opt.RetakeDelay)
	}
}

// compare compares the watermarks of all partitions with the store, by an empty decision. Where it is
// fenced they are taken over again. The caller holds work.
func (w *worker) compare(ctx context.Context) {
	w.compared = time.Now()
	plan := w.d.plan.Load()
	d := store.Decision{Revision: plan.Revision}
	w.mu.Lock()
	for n, o := range w.owned {
		if o.stale == nil {
			d.Moves = append(d.Moves, store.WatermarkStep{Partition: w.partition(n), From: o.next, To: o.next, Token: o.token})
		}
	}
	w.mu.Unlock()
	if len(d.Moves) == 0 {
		return
	}
	within, cancel := context.WithTimeout(ctx, compareTimeout)
	defer cancel()
	err := w.d.opt.Store.Decide(within, d, func(store.Loaded) (store.Outcome, error) { return store.Outcome{}, nil })
	if errors.Is(err, store.ErrSuperseded) && w.d.replaced(ctx, plan) {
		return // the next tick does it under the other plan
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case errors.Is(err, store.ErrSuperseded):
		w.d.halt(err) // without events nothing else would say so, also of a store that went back
	case store.ClassOf(err) == store.Fenced:
		for _, m := range d.Moves {
			w.markStale(m.Partition.Number, err)
		}
	}
}

const compareTimeout = 5 * time.Second

// ownDue reports whether all watermarks are to be compared. The caller holds work.
func (w *worker) ownDue() bool { return time.Since(w.compared) >= ownTick }

// retake takes over again the stale partitions that are due. ErrReread, which also ends Run, when the
// store moved below the records read. The caller holds work.
func (w *worker) retake(ctx context.Context) error {
	var partitions []int32
	w.mu.Lock()
	for n, o := range w.owned {
		if o.retakeDue() {
			partitions = append(partitions, n)
		}
	}
	w.mu.Unlock()
	if len(partitions) == 0 {
		return nil
	}
	taken, err := w.takeOver(ctx, partitions)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.signal()
	for n, o := range taken {
		old := w.owned[n]
		if old == nil {
			continue // revoked in between
		}
		if o.next < old.next {
			err = fmt.Errorf("partition %d, from offset %d back to %d: %w", n, old.next, o.next, ErrReread)
			w.d.halt(err)
			return err
		}
		o.after, o.leftOut = old.after, old.leftOut
		w.owned[n] = o
		if w.d.opt.Ends != nil { // a commit of unknown outcome may have written frames
			w.d.opt.Ends(n, o.lastTo)
		}
	}
	return nil
}

// decided adds the next offset of every partition that the worker owns.
func (w *worker) decided(next map[store.Partition]int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for n, o := range w.owned {
		next[w.partition(n)] = o.next
	}
}

// retry repeats op with back-off until it succeeds, ctx ends, or its error is permanent. The
// second failure in a row halts the worker.
func (w *worker) retry(ctx context.Context, what string, op func() error) error {
	failures := 0
	stopped, err := wait.Retry(ctx, ctx, nil, what, func() error {
		err := op()
		switch c := store.ClassOf(err); {
		case err == nil:
			w.setHalted(what, nil)
		case wait.IsPermanent(err) || c == store.Superseded || c == store.Poison:
			return wait.Permanent(err)
		case ctx.Err() != nil: // the end of the retries
		case failures > 0:
			w.setHalted(what, err)
		}
		failures++
		return err
	})
	if stopped {
		return context.Cause(ctx)
	}
	return err
}

// setHalted logs when the worker halts, and when it resumes.
func (w *worker) setHalted(what string, err error) {
	w.mu.Lock()
	was := w.halted
	w.halted = err
	w.mu.Unlock()
	switch {
	case was == nil && err != nil:
		w.log.Warn("halted; trying again until it works", "event", "decide.halted", "doing", what, "error", err)
	case was != nil && err == nil:
		w.log.Info("resumed", "event", "decide.resumed")
	}
}

func (w *worker) haltedBy() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.halted
}

// stopping returns a context that also ends with the decider.
func (w *worker) stopping(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(w.d.stop, func() { cancel(errStopped) })
	return ctx, func() { unhook(); cancel(nil) }
}

// close releases the memory of the worker.
func (w *worker) close() {
	w.work <- struct{}{}
	defer func() { <-w.work }()
	w.cache.close()
}
