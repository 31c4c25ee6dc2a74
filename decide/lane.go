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

	"github.com/cenkalti/backoff/v5"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/internal/gather"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/transport"
)

// idleTick is how long a lane is idle before it deletes the outbox rows that
// the last decisions left.
const idleTick = 300 * time.Millisecond

// ownTick is how often an idle lane compares its watermarks with the store: one
// that went back has to be decided again, although nothing new came.
const ownTick = 5 * time.Second

// lane decides the records of its partitions, one transaction at a time.
type lane struct {
	d      *Decider
	number int
	log    *slog.Logger
	frames *gather.Queue[[]record] // the records of each

	// work serialises whoever talks to store and producer for this lane: the
	// lane's own loop, and take-over at an assignment. It is held when full, and
	// for as long as a store is away: an assignment that ends must not wait for it.
	work     chan struct{}
	producer Producer  // its calls are guarded by work
	compared time.Time // guarded by work; see stale
	cache    *cache    // guarded by work
	most     int       // guarded by work; see decideAll

	mu    sync.Mutex
	owned map[int32]*ownership // guarded by mu
	// unpublished are the bytes of each partition's frames that the producer has and
	// did not answer, also of earlier ownerships. guarded by mu
	unpublished map[int32]int64
	changed     chan struct{} // guarded by mu; closed and replaced at every change of these
	halted      error         // guarded by mu
}

// ownership is what a lane knows of a partition that it took over. Its fields are
// guarded by the lane's mutex.
type ownership struct {
	token     store.Token
	after     uint64         // only frames of assignments above it are of this ownership
	next      int64          // watermark
	lastTo    change.Version // where the partition's newest frame ends
	published []int64        // outbox rows to delete
	sequence  transport.Sequence

	// stale is why it has to be taken over again: from due on, and when nothing of it is
	// unpublished any more, since what is under way could land behind what the take-over
	// publishes. Until then nothing is decided of it; nil: no reason.
	stale error
	due   time.Time
	pause time.Duration // before the next take-over if a publish fails again
}

func newLane(d *Decider, number int) (*lane, error) {
	producer, err := d.opt.NewProducer()
	if err != nil {
		return nil, err
	}
	return &lane{
		d: d, number: number, producer: producer, most: d.opt.MaxEvents,
		cache:  newCache(d.opt.Cache/int64(d.opt.Lanes), d.opt.Metrics, d.opt.Unsound),
		log:    d.opt.Logger.With("stage", "decide", "lane", number),
		frames: gather.New[[]record](gather.Config{MaxItems: d.opt.MaxEvents, MaxBytes: d.opt.MaxBytes, Limit: d.opt.Limit}),
		owned:  map[int32]*ownership{}, unpublished: map[int32]int64{}, changed: make(chan struct{}), work: make(chan struct{}, 1),
	}, nil
}

func (l *lane) partition(n int32) store.Partition {
	return store.Partition{Generation: l.d.opt.Inbox.Generation, Number: n}
}

// assigned is called by the transport before it fetches.
func (l *lane) assigned(ctx context.Context, partitions []int32, starts map[int32]int64) error {
	ctx, cancel := l.stopping(ctx)
	defer cancel()
	select {
	case l.work <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-l.work }()
	left, err := l.left(ctx, partitions)
	if err != nil {
		return err
	}
	taken, err := l.takeOver(ctx, slices.Concat(partitions, left))
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	// Assignments are numbered through the process and this one is still to begin:
	// frames of earlier ones, which may be on their way yet, are not its own.
	after := transport.LastAssignment()
	defer l.signal()
	for n, o := range taken {
		o.after = after
		l.owned[n] = o
		if !slices.Contains(left, n) {
			starts[n] = o.next
		}
	}
	return nil
}

func (l *lane) revoked(partition int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.signal()
	for n := range l.owned {
		if n == partition || l.d.heir(n) == partition {
			delete(l.owned, n)
		}
	}
}

// signal wakes whoever waits for a change. The caller holds mu.
func (l *lane) signal() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// takes reports whether a record of a partition can be decided: what the log of changes
// does not take is bounded, for each partition by itself. The caller holds mu.
func (l *lane) takes(n int32, o *ownership) bool {
	return o.stale == nil && l.unpublished[n] < max(1, l.d.opt.MaxUnpublished/int64(len(l.owned)))
}

// retakes reports whether a partition is to be taken over again now. The caller holds mu.
func (l *lane) retakes(n int32, o *ownership) bool {
	return o.stale != nil && l.unpublished[n] == 0 && !time.Now().Before(o.due)
}

// await returns when the lane decides records of a partition, or does not own it.
func (l *lane) await(ctx context.Context, n int32) error {
	for {
		l.mu.Lock()
		o, changed := l.owned[n], l.changed
		free := o == nil || l.takes(n, o) || l.retakes(n, o)
		l.mu.Unlock()
		if free {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-l.d.stop.Done():
			return gather.ErrStopped
		}
	}
}

func (l *lane) owns(partition int32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.owned[partition] != nil
}

// left returns the partitions of larger inboxes, of older generations, that the
// owner of these has to take over as well: nobody else ends their owners and
// publishes what those left.
func (l *lane) left(ctx context.Context, partitions []int32) (left []int32, err error) {
	err = l.retry(ctx, "read the watermarks", func() error {
		marks, err := l.d.opt.Store.Watermarks(ctx)
		left = nil
		for p := range marks {
			if heir := l.d.heir(p.Number); heir != p.Number && slices.Contains(partitions, heir) && !slices.Contains(left, p.Number) {
				left = append(left, p.Number)
			}
		}
		return err
	})
	return left, err
}

// takeOver makes this lane the owner of partitions and hands the producer what their
// outboxes hold. It tries until ctx ends. The caller holds work.
func (l *lane) takeOver(ctx context.Context, partitions []int32) (map[int32]*ownership, error) {
	parts := make([]store.Partition, len(partitions))
	for i, n := range partitions {
		parts[i] = l.partition(n)
	}
	var token store.Token
	var found []store.TakenOver
	if err := l.retry(ctx, "take over", func() (err error) {
		rand.Read(token[:])
		found, err = l.d.opt.Store.TakeOver(ctx, parts, token)
		if errors.Is(err, store.ErrFenced) {
			l.d.endIfReplaced(ctx)
		}
		return err
	}); err != nil {
		return nil, err
	}
	crash.At(crash.TakenOver, "")
	l.d.opt.Metrics.takeOvers.Add(float64(len(partitions)))
	taken := make(map[int32]*ownership, len(found))
	l.mu.Lock()
	for _, f := range found {
		o := &ownership{token: token, next: f.NextOffset, lastTo: f.LastTo}
		if old := l.owned[f.Partition.Number]; old != nil {
			o.pause = old.pause
		}
		taken[f.Partition.Number] = o
	}
	l.mu.Unlock()
	l.republish(ctx, found, taken)
	return taken, nil
}

// republish sends what outboxes hold.
func (l *lane) republish(ctx context.Context, found []store.TakenOver, taken map[int32]*ownership) {
	var outbox []store.OutboxFrame
	for _, f := range found {
		n, o := f.Partition.Number, taken[f.Partition.Number]
		l.mu.Lock()
		if len(f.Outbox) > 0 && l.unpublished[n] > 0 {
			o.stale = errUnanswered
		} else {
			outbox = append(outbox, f.Outbox...)
		}
		l.mu.Unlock()
	}
	if len(outbox) == 0 {
		return
	}
	l.log.Info("publishing what the outbox holds", "records", len(outbox))
	if crash.Enabled && len(outbox) > 1 && crash.Due(crash.RepublishHalf, "") {
		l.dieHalfway(ctx, outbox)
	}
	// It may stand in the log already, before what this process publishes next.
	l.publish(ctx, taken, outbox, crash.Republished, transport.Header{Key: change.RepublishedHeader, Value: []byte("1")})
}

// firstPause is before the second take-over because of a publish that failed.
const firstPause = 20 * time.Millisecond

// errUnanswered is why a partition that was taken over has to be taken over once more.
var errUnanswered = errors.New("what was published before is not answered yet")

// record is what is published of an outbox row.
func (l *lane) record(f *store.OutboxFrame, headers ...transport.Header) transport.Record {
	return transport.Record{Topic: l.d.opt.ChangesTopic, Value: f.Frame, Headers: headers, Pinned: true, Partition: f.Partition.Number}
}

// publish hands committed frames, those of a partition one after the other, to the
// producer. A later transaction deletes their outbox rows once they are acknowledged.
func (l *lane) publish(ctx context.Context, owners map[int32]*ownership, outbox []store.OutboxFrame, point string, headers ...transport.Header) {
	for len(outbox) > 0 {
		part := outbox[0].Partition
		n, o := part.Number, owners[part.Number]
		var records []transport.Record
		var ids []int64
		size := int64(0)
		for len(outbox) > 0 && outbox[0].Partition == part {
			records, ids = append(records, l.record(&outbox[0], headers...)), append(ids, outbox[0].ID)
			size += int64(len(outbox[0].Frame))
			outbox = outbox[1:]
		}
		l.mu.Lock()
		l.unpublished[n] += size
		l.mu.Unlock()
		l.producer.AppendAsync(ctx, &o.sequence, records, func(err error) {
			crash.At(point, "")
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.unpublished[n] -= size; l.unpublished[n] == 0 {
				delete(l.unpublished, n)
			}
			if err == nil {
				o.published, o.pause = append(o.published, ids...), 0
			} else if o.stale == nil {
				if o.pause == 0 {
					l.log.Warn("publishing failed; taking over again from the store", "partition", n, "error", err)
				}
				o.stale, o.due = err, time.Now().Add(o.pause)
				o.pause = min(max(2*o.pause, firstPause), 2*time.Second)
			}
			l.signal()
		})
	}
}

// dieHalfway publishes half of some frames and ends the process, under the build tag
// crash.
func (l *lane) dieHalfway(ctx context.Context, outbox []store.OutboxFrame) {
	for i := range outbox[:len(outbox)/2] {
		done := make(chan struct{})
		l.producer.AppendAsync(ctx, new(transport.Sequence), []transport.Record{l.record(&outbox[i])}, func(error) { close(done) })
		<-done // it dies either way
	}
	crash.Die()
}

func (l *lane) allPublished() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range l.owned {
		if o.stale != nil {
			return false
		}
	}
	return len(l.unpublished) == 0
}

// idle deletes outbox rows that nothing else would delete soon, and takes over again
// what has to be.
func (l *lane) idle(ctx context.Context) {
	l.work <- struct{}{}
	defer func() { <-l.work }()
	ctx, cancel := l.stopping(ctx)
	defer cancel()
	l.cache.retain(l.owns)
	if err := l.retake(ctx); err != nil {
		return // it is tried again at the next tick
	}
	if err := l.discard(ctx, false); err != nil && store.ClassOf(err) != store.Fenced || !l.isStale(ctx, err) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for n := range l.owned {
		l.lose(n, store.ErrFenced)
	}
}

// lose has a partition taken over again. Where somebody else may own it by now, and the
// message about it be under way, not at once: that would only make both stumble. The
// caller holds mu.
func (l *lane) lose(n int32, why error) {
	o := l.owned[n]
	if o == nil || o.stale != nil {
		return
	}
	l.log.Warn("taking over again from the store", "partition", n, "because", why)
	if o.stale = why; store.ClassOf(why) == store.Fenced {
		o.due = time.Now().Add(l.d.opt.RetakeDelay)
	}
}

// isStale reports whether the store has the watermark of a partition as somebody
// else's: err says so, or an empty decision, which is made now and then.
func (l *lane) isStale(ctx context.Context, err error) bool {
	if err != nil {
		return true
	}
	if time.Since(l.compared) < ownTick {
		return false
	}
	l.compared = time.Now()
	var moves []store.WatermarkStep
	l.mu.Lock()
	for n, o := range l.owned {
		if o.stale == nil {
			moves = append(moves, l.stays(n, o))
		}
	}
	l.mu.Unlock()
	if len(moves) == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, discardTimeout)
	defer cancel()
	_, err = l.d.opt.Store.Decide(ctx, store.Decision{Revision: l.d.opt.Plan.Revision, Moves: moves},
		func(store.Loaded) (store.Outcome, error) { return store.Outcome{}, nil })
	return err != nil && store.ClassOf(err) == store.Fenced
}

// stays is a step that compares the watermark of a partition and leaves it.
func (l *lane) stays(n int32, o *ownership) store.WatermarkStep {
	return store.WatermarkStep{Partition: l.partition(n), From: o.next, To: o.next, Token: o.token}
}

// discard deletes the outbox rows whose publish was acknowledged. last is for who ends:
// of partitions that had to be taken over again, too, if they are still its own.
func (l *lane) discard(ctx context.Context, last bool) error {
	var moves []store.WatermarkStep
	var ids []int64
	deleted := map[*ownership]int{}
	l.mu.Lock()
	for n, o := range l.owned {
		if len(o.published) > 0 && (last || o.stale == nil) {
			moves, ids = append(moves, l.stays(n, o)), append(ids, o.published...)
			deleted[o] = len(o.published)
		}
	}
	l.mu.Unlock()
	if len(ids) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, discardTimeout)
	defer cancel()
	crash.At(crash.Discarding, "")
	if err := l.d.opt.Store.Discard(ctx, moves, ids); err != nil {
		l.log.Debug("outbox rows stay until the next decision", "error", err)
		return err
	}
	crash.At(crash.Discarded, "")
	l.mu.Lock()
	defer l.mu.Unlock()
	for o, n := range deleted {
		o.published = o.published[n:]
	}
	return nil
}

const discardTimeout = 5 * time.Second

// retake takes over again what has to be and can be. ErrReread, which also ends Run,
// when the store went back behind what was read. The caller holds work.
func (l *lane) retake(ctx context.Context) error {
	var partitions []int32
	l.mu.Lock()
	for n, o := range l.owned {
		if l.retakes(n, o) {
			partitions = append(partitions, n)
		}
	}
	l.mu.Unlock()
	if len(partitions) == 0 {
		return nil
	}
	taken, err := l.takeOver(ctx, partitions)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.signal()
	for n, o := range taken {
		old := l.owned[n]
		if old == nil {
			continue // revoked in between
		}
		if o.next < old.next {
			err = fmt.Errorf("partition %d, from offset %d back to %d: %w", n, old.next, o.next, ErrReread)
			l.d.halt(err)
			return err
		}
		o.after = old.after
		l.owned[n] = o
	}
	return nil
}

// decided adds the next offset of every partition that the lane owns.
func (l *lane) decided(next map[store.Partition]int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for n, o := range l.owned {
		next[l.partition(n)] = o.next
	}
}

// retry repeats op with back-off until it succeeds, ctx ends, or its error is
// one that time does not heal. It says once that it halts and once that it goes on.
func (l *lane) retry(ctx context.Context, what string, op func() error) error {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = 20*time.Millisecond, 2*time.Second
	for attempt := 1; ; attempt++ {
		err := op()
		if err == nil {
			l.setHalted(nil)
			return nil
		}
		if c := store.ClassOf(err); c == store.Superseded || c == store.Poison {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		// One failure may be a hiccup; from the second on the operator should know.
		if attempt == 2 {
			l.log.Warn("halted; trying again until it works", "doing", what, "error", err)
		}
		if attempt >= 2 {
			l.setHalted(err)
		}
		select {
		case <-time.After(wait.NextBackOff()):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (l *lane) setHalted(err error) {
	l.mu.Lock()
	was := l.halted
	l.halted = err
	l.mu.Unlock()
	if was != nil && err == nil {
		l.log.Info("going on")
	}
}

func (l *lane) haltedBy() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for n, o := range l.owned {
		if l.halted == nil && o.stale != nil && o.pause > firstPause {
			return fmt.Errorf("partition %d of %s takes nothing: %w", n, l.d.opt.ChangesTopic, o.stale)
		}
	}
	return l.halted
}

// stopping returns a context that also ends with the decider.
func (l *lane) stopping(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(l.d.stop, func() { cancel(gather.ErrStopped) })
	return ctx, func() { unhook(); cancel(nil) }
}

// close waits a little for publishes that are under way and leaves a clean
// outbox where it can. What stays is published again by the next owner.
func (l *lane) close() {
	l.work <- struct{}{}
	defer func() { <-l.work }()
	deadline := time.NewTimer(discardTimeout)
	defer deadline.Stop()
	for waiting := true; waiting; {
		l.mu.Lock()
		changed := l.changed
		waiting = len(l.unpublished) > 0
		l.mu.Unlock()
		if waiting {
			select {
			case <-changed:
			case <-deadline.C:
				waiting = false
			case <-l.d.opt.Limit.Done():
				waiting = false
			}
		}
	}
	l.discard(l.d.opt.Limit, true)
	l.cache.close()
	ctx, cancel := context.WithTimeout(l.d.opt.Limit, time.Second)
	defer cancel()
	_ = l.producer.Close(ctx) // what it could not send stays in the outbox
}
