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
	"github.com/seed-86dfc502/weir/internal/wait"
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

	mu          sync.Mutex
	owned       map[int32]*ownership
	unpublished int   // batches handed to the producer and not answered
	broken      error // first publish failure since the last mend
	halted      error
	published   chan struct{} // capacity 1: signalled at every answer of the producer
	lost        bool          // publishes failed: what they held must be published from the store
}

// ownership is what a lane knows of a partition that it took over.
type ownership struct {
	token     store.Token
	after     uint64         // only frames of assignments above it are of this ownership
	next      int64          // watermark
	lastTo    change.Version // where the partition's newest frame ends
	published []int64        // outbox rows to delete
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
		owned:  map[int32]*ownership{}, published: make(chan struct{}, 1), work: make(chan struct{}, 1),
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
	for n := range l.owned {
		if n == partition || l.d.heir(n) == partition {
			delete(l.owned, n)
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

// takeOver makes this lane the owner of partitions and publishes what their
// outboxes hold. It tries until ctx ends. The caller holds work.
func (l *lane) takeOver(ctx context.Context, partitions []int32) (map[int32]*ownership, error) {
	parts := make([]store.Partition, len(partitions))
	for i, n := range partitions {
		parts[i] = l.partition(n)
	}
	var taken map[int32]*ownership
	err := l.retry(ctx, "take over", func() error {
		var token store.Token
		rand.Read(token[:])
		found, err := l.d.opt.Store.TakeOver(ctx, parts, token)
		if errors.Is(err, store.ErrFenced) {
			l.d.endIfReplaced(ctx)
		}
		if err != nil {
			return err
		}
		crash.At(crash.TakenOver, "")
		taken = make(map[int32]*ownership, len(found))
		for _, f := range found {
			o := &ownership{token: token, next: f.NextOffset, lastTo: f.LastTo}
			for _, b := range f.Outbox {
				o.published = append(o.published, b.ID)
			}
			taken[f.Partition.Number] = o
		}
		return l.republish(ctx, found)
	})
	if err == nil {
		l.d.opt.Metrics.takeOvers.Add(float64(len(partitions)))
	}
	return taken, err
}

// republish sends what outboxes hold and waits for the acknowledgements.
func (l *lane) republish(ctx context.Context, found []store.TakenOver) error {
	if err := l.mend(ctx); err != nil {
		return err
	}
	var records []transport.Record
	// It may stand in the log already, before what this process publishes next.
	republished := transport.Header{Key: change.RepublishedHeader, Value: []byte("1")}
	for _, f := range found {
		for i := range f.Outbox {
			r := l.record(&f.Outbox[i])
			r.Headers = []transport.Header{republished}
			records = append(records, r)
		}
	}
	if len(records) == 0 {
		return nil
	}
	l.log.Info("publishing what the outbox holds", "records", len(records))
	if crash.Enabled && len(records) > 1 && crash.Due(crash.RepublishHalf, "") {
		l.dieHalfway(ctx, records)
	}
	done := make(chan error, 1)
	l.producer.AppendAsync(ctx, records, func(err error) { done <- err })
	select {
	case err := <-done:
		if err != nil {
			l.breakProducer(err)
			return fmt.Errorf("publish from the outbox: %w", err)
		}
		crash.At(crash.Republished, "")
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// record is what is published of an outbox row.
func (l *lane) record(f *store.OutboxFrame) transport.Record {
	return transport.Record{Topic: l.d.opt.ChangesTopic, Value: f.Frame, Pinned: true, Partition: f.Partition.Number}
}

// publish hands the frames of a committed decision to the producer. A later
// transaction deletes their outbox rows once all of them are acknowledged.
func (l *lane) publish(ctx context.Context, moves []store.WatermarkStep, outbox []store.OutboxFrame) {
	if len(outbox) == 0 {
		return
	}
	records := make([]transport.Record, len(outbox))
	published := make(map[store.Partition][]int64, len(moves))
	for i := range outbox {
		records[i] = l.record(&outbox[i])
		published[outbox[i].Partition] = append(published[outbox[i].Partition], outbox[i].ID)
	}
	if crash.Enabled && len(records) > 1 && crash.Due(crash.PublishHalf, "") {
		l.dieHalfway(ctx, records)
	}
	l.mu.Lock()
	l.unpublished++
	l.mu.Unlock()
	l.producer.AppendAsync(ctx, records, func(err error) {
		crash.At(crash.Published, "")
		l.mu.Lock()
		defer l.mu.Unlock()
		l.unpublished--
		if err != nil && l.broken == nil {
			l.broken = err
		}
		for _, m := range moves {
			if o := l.owned[m.Partition.Number]; err == nil && o != nil && o.token == m.Token {
				o.published = append(o.published, published[m.Partition]...)
			}
		}
		select {
		case l.published <- struct{}{}:
		default:
		}
	})
}

// dieHalfway publishes half of records and ends the process, under the build
// tag crash.
func (l *lane) dieHalfway(ctx context.Context, records []transport.Record) {
	done := make(chan struct{})
	l.producer.AppendAsync(ctx, records[:len(records)/2], func(error) { close(done) })
	<-done // it dies either way
	crash.Die()
}

func (l *lane) breakProducer(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken == nil {
		l.broken = err
	}
}

// mend makes the producer usable again after a failure: when everything that
// was handed in is answered. The caller holds work and publishes from the store
// what failed: it is in the outbox.
func (l *lane) mend(ctx context.Context) error {
	for {
		l.mu.Lock()
		broken, n := l.broken, l.unpublished
		if broken != nil && n == 0 {
			l.broken, l.lost = nil, true
		}
		l.mu.Unlock()
		if broken == nil {
			return nil
		}
		if n == 0 {
			l.log.Warn("publishing failed; taking over again from the store", "error", broken)
			l.producer.Reset()
			return nil
		}
		select {
		case <-l.published:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// room waits until fewer than the allowed batches are unpublished.
func (l *lane) room() error {
	for {
		l.mu.Lock()
		n, broken := l.unpublished, l.broken
		l.mu.Unlock()
		if broken != nil || n < l.d.opt.MaxUnpublished {
			return nil //nolint:nilerr // a broken producer is mended by the next take-over
		}
		select {
		case <-l.published:
		case <-l.d.stop.Done():
			return gather.ErrStopped
		}
	}
}

func (l *lane) allPublished() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.broken == nil && !l.lost && l.unpublished == 0
}

// idle deletes outbox rows that nothing else would delete soon, and repairs a
// producer that broke after the last decision.
func (l *lane) idle(ctx context.Context) {
	l.work <- struct{}{}
	defer func() { <-l.work }()
	ctx, cancel := l.stopping(ctx)
	defer cancel()
	l.cache.retain(l.owns)
	if err := l.repair(ctx); err != nil {
		return // it is tried again at the next tick
	}
	if err := l.discard(ctx); err != nil && store.ClassOf(err) != store.Fenced || !l.stale(ctx, err) {
		return
	}
	var all []int32
	l.mu.Lock()
	for n := range l.owned {
		all = append(all, n)
	}
	l.mu.Unlock()
	l.log.Warn("taking over again from the store", "because", store.ErrFenced)
	if !wait.Sleep(ctx, l.d.opt.RetakeDelay) {
		return
	}
	if err := l.reclaim(ctx, all); err != nil {
		l.log.Debug("the next decision takes over again", "error", err)
	}
}

// stale reports whether the store has the watermark of a partition as somebody
// else's: err says so, or an empty decision, which is made now and then.
func (l *lane) stale(ctx context.Context, err error) bool {
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
		moves = append(moves, store.WatermarkStep{Partition: l.partition(n), From: o.next, To: o.next, Token: o.token})
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

// repair takes everything over again after a publish failed. The caller holds work.
func (l *lane) repair(ctx context.Context) error {
	l.mu.Lock()
	needed := l.broken != nil || l.lost
	l.mu.Unlock()
	if !needed {
		return nil
	}
	var all []int32
	l.mu.Lock()
	for n := range l.owned {
		all = append(all, n)
	}
	l.mu.Unlock()
	if err := l.mend(ctx); err != nil {
		return err
	}
	if err := l.reclaim(ctx, all); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost = l.broken != nil
	return nil
}

func (l *lane) discard(ctx context.Context) error {
	var moves []store.WatermarkStep
	var ids []int64
	l.mu.Lock()
	for n, o := range l.owned {
		if len(o.published) > 0 {
			moves = append(moves, store.WatermarkStep{Partition: l.partition(n), From: o.next, To: o.next, Token: o.token})
			ids = append(ids, o.published...)
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
	l.forget(moves, ids)
	return nil
}

const discardTimeout = 5 * time.Second

// forget drops ids of outbox rows that were deleted.
func (l *lane) forget(moves []store.WatermarkStep, ids []int64) {
	gone := make(map[int64]bool, len(ids))
	for _, id := range ids {
		gone[id] = true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range moves {
		if o := l.owned[m.Partition.Number]; o != nil && o.token == m.Token {
			o.published = slices.DeleteFunc(o.published, func(id int64) bool { return gone[id] })
		}
	}
}

// reclaim takes over again those of partitions that are still assigned.
// ErrReread, which also ends Run, when the store went back behind what was read.
func (l *lane) reclaim(ctx context.Context, partitions []int32) error {
	l.mu.Lock()
	partitions = slices.DeleteFunc(slices.Clone(partitions), func(n int32) bool { return l.owned[n] == nil })
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
		waiting = l.unpublished > 0 && l.broken == nil
		l.mu.Unlock()
		if waiting {
			select {
			case <-l.published:
			case <-deadline.C:
				waiting = false
			case <-l.d.opt.Limit.Done():
				waiting = false
			}
		}
	}
	l.discard(l.d.opt.Limit)
	l.cache.close()
	ctx, cancel := context.WithTimeout(l.d.opt.Limit, time.Second)
	defer cancel()
	_ = l.producer.Close(ctx) // what it could not send stays in the outbox
}
