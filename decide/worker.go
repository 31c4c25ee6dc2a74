package decide

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/transport"
)

// idleTick is how long a worker is idle before it deletes the outbox rows that
// the last decisions left.
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

	// work serialises the callers of store and producer for this worker: the
	// worker's own loop, and takeover at an assignment. It is held when full, and
	// for as long as the store is unreachable: an assignment that ends must not wait for it.
	work     chan struct{}
	producer Producer    // its calls are guarded by work
	compared time.Time   // guarded by work; see ownDue
	cache    *cache      // guarded by work
	scratch  scratch     // guarded by work
	writer   frameWriter // guarded by work
	most     int         // guarded by work; see decideAll
	inHand   inHand

	mu    sync.Mutex
	owned map[int32]*ownership // guarded by mu
	// unpublished are the bytes of each partition's frames that the producer has and
	// did not answer, also of earlier ownerships. guarded by mu
	unpublished map[int32]int64
	changed     chan struct{} // guarded by mu; closed and replaced at every change of these
	halted      error         // guarded by mu
}

// ownership is the state of a partition that a worker took over. Its fields are
// guarded by the worker's mutex.
type ownership struct {
	token     store.Token
	after     uint64                 // only frames of assignments above it are of this ownership
	next      int64                  // watermark
	lastTo    change.Version         // where the partition's newest frame ends
	floors    map[string]store.Floor // guarded by the worker's work; by log
	published []int64                // outbox rows to delete
	sequence  transport.Sequence
	// leftOut is the offset behind the first record that was left out since the partition
	// had to wait; of no meaning up to next. Records behind it are left out too
	// until it is decided: the watermark would pass it.
	leftOut int64

	// stale is why it has to be taken over again: from due on, and when nothing of it is
	// unpublished any more, since a publish under way could land behind those of the
	// takeover. Until then nothing is decided of it; nil: no reason.
	stale error
	due   time.Time
	pause time.Duration // before the next takeover if a publish fails again
}

func newWorker(d *Decider, number int) (*worker, error) {
	producer, err := d.opt.NewProducer()
	if err != nil {
		return nil, err
	}
	return &worker{
		d: d, number: number, producer: producer, most: d.opt.MaxEvents,
		cache:  newCache(d.opt.Cache/int64(d.opt.Workers), d.opt.Metrics, d.opt.FaultInjection),
		log:    d.opt.Logger.With("stage", "decide", "worker", number),
		frames: newQueue[[]record](queueConfig{MaxItems: d.opt.MaxEvents, MaxBytes: maxBatchBytes, Limit: d.opt.Limit}),
		owned:  map[int32]*ownership{}, unpublished: map[int32]int64{}, changed: make(chan struct{}), work: make(chan struct{}, 1),
	}, nil
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

// accepts reports whether a record of a partition can be decided: unpublished frames are bounded,
// per partition. The caller holds mu.
func (w *worker) accepts(n int32, o *ownership) bool {
	return o.stale == nil && w.unpublished[n] < max(1, w.d.opt.MaxUnpublished/int64(len(w.d.workers)*len(w.owned)))
}

// retakeDue reports whether a partition is to be taken over again now. The caller holds mu.
func (w *worker) retakeDue(n int32, o *ownership) bool {
	return o.stale != nil && w.unpublished[n] == 0 && !time.Now().Before(o.due)
}

// await returns when the worker decides records of a partition, or does not own it.
func (w *worker) await(ctx context.Context, n int32) error {
	for {
		w.mu.Lock()
		o, changed := w.owned[n], w.changed
		free := o == nil || w.accepts(n, o) || w.retakeDue(n, o)
		w.mu.Unlock()
		if free {
			return nil
		}
		select {
		case <-changed:
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
// owner of these has to take over, too: no other process fences their owners and publishes
// their outboxes.
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

// takeOver makes this worker the owner of partitions and hands the producer what their
// outboxes hold. It tries until ctx ends. The caller holds work.
func (w *worker) takeOver(ctx context.Context, partitions []int32) (map[int32]*ownership, error) {
	parts := make([]store.Partition, len(partitions))
	for i, n := range partitions {
		parts[i] = w.partition(n)
	}
	var token store.Token
	var found []store.TakenOver
	if err := w.retry(ctx, "take over", func() (err error) {
		rand.Read(token[:])
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
	w.mu.Lock()
	for _, f := range found {
		o := &ownership{token: token, next: f.NextOffset, lastTo: f.LastTo, floors: floorsByLog(f.Floors)}
		if old := w.owned[f.Partition.Number]; old != nil {
			o.pause = old.pause
		}
		taken[f.Partition.Number] = o
	}
	w.mu.Unlock()
	w.republish(ctx, found, taken)
	return taken, nil
}

// republish sends what outboxes hold.
func (w *worker) republish(ctx context.Context, found []store.TakenOver, taken map[int32]*ownership) {
	var outbox []store.OutboxFrame
	for _, f := range found {
		n, o := f.Partition.Number, taken[f.Partition.Number]
		w.mu.Lock()
		if len(f.Outbox) > 0 && w.unpublished[n] > 0 {
			o.stale = errUnanswered
		} else {
			outbox = append(outbox, f.Outbox...)
		}
		w.mu.Unlock()
	}
	if len(outbox) == 0 {
		return
	}
	w.log.Info("publishing the outbox again", "event", "decide.republished", "records", len(outbox))
	if crash.Enabled && len(outbox) > 1 && crash.Due(crash.RepublishHalf, "") {
		w.dieHalfway(ctx, outbox)
	}
	// It may be in the log already, before what this process publishes next.
	w.publish(ctx, taken, outbox, crash.Republished, transport.Header{Key: change.RepublishedHeader, Value: []byte("1")})
}

// firstPause is the pause before the second takeover after a failed publish.
const firstPause = 20 * time.Millisecond

// errUnanswered is why a partition that was taken over has to be taken over once more.
var errUnanswered = errors.New("what was published before is not answered yet")

// record is the log record of an outbox row.
func (w *worker) record(f *store.OutboxFrame, headers ...transport.Header) transport.Record {
	return transport.Record{Topic: w.d.opt.ChangesTopic, Value: f.Frame, Headers: headers, Pinned: true, Partition: f.Partition.Number}
}

// publish hands committed frames, those of a partition one after the other, to the
// producer. A later transaction deletes their outbox rows once they are acknowledged.
func (w *worker) publish(ctx context.Context, owners map[int32]*ownership, outbox []store.OutboxFrame, point string, headers ...transport.Header) {
	for len(outbox) > 0 {
		part := outbox[0].Partition
		n, o := part.Number, owners[part.Number]
		var records []transport.Record
		var ids []int64
		size := int64(0)
		for len(outbox) > 0 && outbox[0].Partition == part {
			records, ids = append(records, w.record(&outbox[0], headers...)), append(ids, outbox[0].ID)
			size += int64(len(outbox[0].Frame))
			outbox = outbox[1:]
		}
		w.mu.Lock()
		w.unpublished[n] += size
		w.mu.Unlock()
		w.producer.AppendAsync(ctx, &o.sequence, records, func(err error) {
			crash.At(point, "")
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.unpublished[n] -= size; w.unpublished[n] == 0 {
				delete(w.unpublished, n)
			}
			if err == nil {
				o.published, o.pause = append(o.published, ids...), 0
			} else if o.stale == nil {
				if o.pause == 0 {
					w.log.Warn("publishing failed; taking over again from the store", "event", "decide.publish_failed", "partition", n, "error", err)
				}
				o.stale, o.due = err, time.Now().Add(o.pause)
				o.pause = min(max(2*o.pause, firstPause), 2*time.Second)
			}
			w.signal()
		})
	}
}

// dieHalfway publishes half of some frames and ends the process, under the build tag
// crash.
func (w *worker) dieHalfway(ctx context.Context, outbox []store.OutboxFrame) {
	for i := range outbox[:len(outbox)/2] {
		done := make(chan struct{})
		w.producer.AppendAsync(ctx, new(transport.Sequence), []transport.Record{w.record(&outbox[i])}, func(error) { close(done) })
		<-done // it dies either way
	}
	crash.Die()
}

func (w *worker) allPublished() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.owned {
		if o.stale != nil {
			return false
		}
	}
	return len(w.unpublished) == 0
}

// idle deletes outbox rows that nothing else would delete soon, and takes over again
// the stale partitions.
func (w *worker) idle(ctx context.Context) {
	w.work <- struct{}{}
	defer func() { <-w.work }()
	ctx, cancel := w.stopping(ctx)
	defer cancel()
	w.cache.retain(w.owns)
	if err := w.retake(ctx); err != nil {
		return // it is tried again at the next tick
	}
	w.discard(ctx, false)
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

// discard deletes the outbox rows whose publish was acknowledged, by an empty decision.
// Every ownTick it is one of all partitions, which compares their watermarks. Where it is
// fenced they are taken over again. last is for who ends: of partitions that had to be
// taken over again, too, if they are still its own. The caller holds work.
func (w *worker) discard(ctx context.Context, last bool) {
	all := !last && w.ownDue()
	if all {
		w.compared = time.Now()
	}
	plan := w.d.plan.Load()
	d := store.Decision{Revision: plan.Revision}
	deleted := map[*ownership]int{}
	w.mu.Lock()
	for n, o := range w.owned {
		if (all || len(o.published) > 0) && (last || o.stale == nil) {
			d.Moves = append(d.Moves, store.WatermarkStep{Partition: w.partition(n), From: o.next, To: o.next, Token: o.token})
			d.Published = append(d.Published, o.published...)
			deleted[o] = len(o.published)
		}
	}
	w.mu.Unlock()
	if len(d.Moves) == 0 {
		return
	}
	err := w.decideNothing(ctx, d)
	if !last && errors.Is(err, store.ErrSuperseded) && w.d.replaced(ctx, plan) {
		return // the next tick does it under the other plan
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case err == nil:
		for o, n := range deleted {
			o.published = o.published[n:]
		}
	case !last && errors.Is(err, store.ErrSuperseded):
		w.d.halt(err) // without events nothing else would say so, also of a store that went back
	case !last && store.ClassOf(err) == store.Fenced:
		for _, m := range d.Moves {
			w.markStale(m.Partition.Number, err)
		}
	default:
		w.log.Debug("outbox rows stay until the next decision", "error", err)
	}
}

// ownDue reports whether all watermarks are to be compared. The caller holds work.
func (w *worker) ownDue() bool { return time.Since(w.compared) >= ownTick }

// decideNothing makes a decision without an outcome.
func (w *worker) decideNothing(ctx context.Context, d store.Decision) error {
	ctx, cancel := context.WithTimeout(ctx, discardTimeout)
	defer cancel()
	if len(d.Published) > 0 {
		crash.At(crash.Discarding, "")
	}
	_, err := w.d.opt.Store.Decide(ctx, d, func(store.Loaded) (store.Outcome, error) { return store.Outcome{}, nil })
	if err == nil && len(d.Published) > 0 {
		crash.At(crash.Discarded, "")
	}
	return err
}

const discardTimeout = 5 * time.Second

// retake takes over again the stale partitions whose publishes are answered. ErrReread, which
// also ends Run, when the store moved below the records read. The caller holds work.
func (w *worker) retake(ctx context.Context) error {
	var partitions []int32
	w.mu.Lock()
	for n, o := range w.owned {
		if w.retakeDue(n, o) {
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
	for n, o := range w.owned {
		if w.halted == nil && o.stale != nil && o.pause > firstPause {
			return fmt.Errorf("partition %d of %s takes nothing: %w", n, w.d.opt.ChangesTopic, o.stale)
		}
	}
	return w.halted
}

// stopping returns a context that also ends with the decider.
func (w *worker) stopping(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(w.d.stop, func() { cancel(errStopped) })
	return ctx, func() { unhook(); cancel(nil) }
}

// close waits a little for publishes that are under way and deletes published rows
// from the outbox. The next owner publishes the rest again.
func (w *worker) close() {
	w.work <- struct{}{}
	defer func() { <-w.work }()
	deadline := time.NewTimer(discardTimeout)
	defer deadline.Stop()
	for waiting := true; waiting; {
		w.mu.Lock()
		changed := w.changed
		waiting = len(w.unpublished) > 0
		w.mu.Unlock()
		if waiting {
			select {
			case <-changed:
			case <-deadline.C:
				waiting = false
			case <-w.d.opt.Limit.Done():
				waiting = false
			}
		}
	}
	w.discard(w.d.opt.Limit, true)
	w.cache.close()
	ctx, cancel := context.WithTimeout(w.d.opt.Limit, time.Second)
	defer cancel()
	_ = w.producer.Close(ctx) // what it could not send stays in the outbox
}
