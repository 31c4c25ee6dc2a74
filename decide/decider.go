package decide

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/defaults"
	"github.com/seed-86dfc502/weir/internal/fieldcount"
	"github.com/seed-86dfc502/weir/internal/parallel"
	"github.com/seed-86dfc502/weir/internal/tracing"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/store"
)

// Options of a Decider. All fields are needed unless they say a default.
type Options struct {
	Store store.Decisions
	Inbox store.Inbox
	// TakenOver, if given, is called after each takeover, before the first decision, until it
	// succeeds. ErrInboxReplaced ends Run.
	TakenOver func(ctx context.Context, token store.Token, taken []store.TakenOver) error
	// Plan is the first one; see Decider.Adopt.
	Plan *Plan
	// Next, if given, returns the plan that replaces a superseded one, or nil to end Run. It may
	// wait, until ctx ends, for a reload that is under way.
	Next func(ctx context.Context, superseded *Plan) *Plan
	// HandOver, if given, gets each frame of the changes log after its commit, the frames of one partition
	// in their order, as long as the partition is owned. It must not block.
	HandOver func(f *store.Frame)
	// Ends, if given, is told where the log of a partition ends when it was taken over again.
	Ends func(partition int32, to change.Version)
	// Workers decide in parallel, each over its own partitions. Defaults to 2.
	Workers int
	// MaxEvents bounds the records of one transaction. Defaults to 1000.
	MaxEvents int
	// MaxOutcome bounds their outcome, in bytes: documents, changes and dead letters. A
	// batch with a larger outcome is cut. Defaults to 64 MiB.
	MaxOutcome int
	// MaxFrame bounds a frame of the changes log, in bytes before compression. Defaults
	// to MaxFrame.
	MaxFrame int
	// Cache bounds the cached entities of all workers, in bytes. 0 means that every decision
	// loads its entities.
	Cache int64
	// FaultInjection is for tests.
	FaultInjection FaultInjection
	// RetakeDelay is how long an owner that was fenced waits before it takes
	// over again: long enough to learn that the partition has another owner. Defaults
	// to 1s.
	RetakeDelay time.Duration
	// Limit, if given, ends the work that a shutdown lets finish: a transaction, whose outcome
	// is unknown then.
	Limit   context.Context
	Logger  *slog.Logger
	Metrics *Metrics
	// Noise, if given, collects which fields cause suppressed events.
	Noise *fieldcount.Collector
	// Tracer makes spans of traced records. Defaults to none: trace contexts of other
	// systems are not passed on then.
	Tracer *tracing.Tracer
}

// ErrReread says that the store's watermark went back behind what this
// process has read: the subscription must start again from the store.
var ErrReread = errors.New("the store's watermark went back: reading the inbox again from there")

// ErrInboxReplaced says that the inbox is another one than the decider was made
// for: its topic was deleted and created again, so that offsets start over and
// versions need a higher generation; or another process has opened one.
var ErrInboxReplaced = errors.New("the inbox was replaced: a new generation begins")

// Decider is decide for one process. Handle and the methods of
// transport.PartitionListener may be called from any goroutine.
type Decider struct {
	opt     Options
	plan    atomic.Pointer[Plan]
	workers []*worker
	stop    context.Context // done when Run ends
	halt    context.CancelCauseFunc
}

// New makes a decider.
func New(opt Options) *Decider {
	opt.Workers = defaults.Positive(opt.Workers, 2)
	opt.MaxEvents = defaults.Positive(opt.MaxEvents, 1000)
	opt.MaxOutcome = defaults.Positive(opt.MaxOutcome, 64<<20)
	opt.MaxFrame = defaults.Positive(opt.MaxFrame, MaxFrame)
	opt.RetakeDelay = defaults.Positive(opt.RetakeDelay, time.Second)
	if opt.Limit == nil {
		opt.Limit = context.Background()
	}
	d := &Decider{opt: opt}
	d.plan.Store(opt.Plan)
	d.stop, d.halt = context.WithCancelCause(context.Background())
	for i := range opt.Workers {
		d.workers = append(d.workers, newWorker(d, i))
	}
	return d
}

// Adopt makes later decisions under another plan. Owners keep their partitions and caches.
func (d *Decider) Adopt(plan *Plan) { d.plan.Store(plan) }

// replaced reports whether another plan has replaced one that the store refused as
// superseded.
func (d *Decider) replaced(ctx context.Context, superseded *Plan) bool {
	if d.plan.Load() != superseded {
		return true
	}
	if d.opt.Next == nil {
		return false
	}
	next := d.opt.Next(ctx, superseded)
	if next == nil {
		return false
	}
	d.plan.CompareAndSwap(superseded, next)
	return true
}

func (d *Decider) workerOf(partition int32) *worker { return d.workers[int(partition)%len(d.workers)] }

// owningPartition returns the partition whose owner has this one, too: itself, unless the
// inbox has become smaller.
func (d *Decider) owningPartition(partition int32) int32 {
	if n := d.opt.Inbox.Partitions; n > 0 {
		return partition % n
	}
	return partition
}

// Handle is the router's handler: it parses the records of the message's frame,
// hands them to the worker of their partition and returns when the decision is
// durable. An error means that the frame must be redelivered.
func (d *Decider) Handle(msg *message.Message) error {
	f, ok := transport.FrameOf(msg)
	if !ok {
		return errors.New("decide: a message without a frame")
	}
	if f.TopicID != d.opt.Inbox.TopicID {
		d.halt(ErrInboxReplaced)
		return ErrInboxReplaced
	}
	records := make([]record, len(f.Records))
	parallel.Do(len(records), func(i int) {
		r := &records[i]
		d.parse(r, f, i)
		if d.opt.Tracer != nil {
			r.span = d.spanOf(d.opt.Tracer.Decide(f.Records[i].Header), r)
		}
	})
	w := d.workerOf(f.Partition)
	err := errLater
	for errors.Is(err, errLater) {
		if err = w.await(msg.Context(), f.Partition); err == nil {
			err = w.frames.Submit(msg.Context(), records, len(records), f.Bytes)
		}
	}
	if d.opt.Tracer != nil {
		for i := range records {
			d.endSpan(&records[i], err)
		}
	}
	return err
}

// parse does everything about the record at i of a frame that needs no state.
// What cannot be decided becomes a dead letter, in its order.
func (d *Decider) parse(r *record, f *transport.Frame, i int) {
	in := &f.Records[i]
	r.version = change.NewVersion(d.opt.Inbox.Generation, in.Offset)
	r.at, r.partition, r.offset, r.assignment = in.Time, f.Partition, in.Offset, f.Assignment
	bad := func(code string, err error) {
		r.Entity = string(in.Key)
		w := letterOf(r, code, err.Error())
		w.Payload = in.Value
		r.deadLetter = &w
	}
	rec, err := change.DecodeRecord(in.Key, in.HeaderBytes(change.InboxHeader), in.Value)
	if err != nil {
		bad("malformed", err)
		return
	}
	r.Record = rec
	e := rec.Event
	if e == nil {
		return
	}
	if e.Claim != "" && e.Replay == nil {
		if r.claimID, err = store.ParseClaimID(e.Claim); err != nil {
			bad("malformed", fmt.Errorf("claim: %w", err))
			return
		}
		if err := r.used(e.Use); err != nil {
			bad("malformed", err)
			return
		}
	}
	if e.Op == change.Upsert {
		if r.tree, err = canonicaltree.Parse(e.Payload); err != nil {
			bad("bad_json", err)
			return
		}
	}
	if e.EventID != "" && e.Mark == "" {
		var content canonicaltree.Digest
		if r.tree != nil {
			content = r.tree.Root().Sum(canonicaltree.Literal)
		}
		e.SetMark(content)
	}
}

// Assigned takes partitions over and returns the offsets to read from.
// store.ErrRepartitioned for a partition that was added to the inbox: entities
// keep their partitions, so nothing for it to decide may ever be there.
func (d *Decider) Assigned(ctx context.Context, topic string, partitions []int32) (map[int32]int64, error) {
	byWorker := map[*worker][]int32{}
	for _, p := range partitions {
		if n := d.opt.Inbox.Partitions; n > 0 && p >= n {
			return nil, fmt.Errorf("partition %d of %s, which was opened with %d: %w", p, topic, n, store.ErrRepartitioned)
		}
		byWorker[d.workerOf(p)] = append(byWorker[d.workerOf(p)], p)
	}
	starts := make(map[int32]int64, len(partitions))
	for w, ps := range byWorker {
		if err := w.assigned(ctx, ps, starts); err != nil {
			d.Revoked(topic, partitions) // nobody else tells the workers that succeeded
			return nil, err
		}
	}
	return starts, nil
}

// Owned returns partitions of the inbox and, of those that this process owns, the partitions of larger
// inboxes before that belong to them.
func (d *Decider) Owned(partitions []int32) []int32 {
	all := slices.Clone(partitions)
	for _, w := range d.workers {
		w.mu.Lock()
		for n := range w.owned {
			if of := d.owningPartition(n); of != n && slices.Contains(partitions, of) {
				all = append(all, n)
			}
		}
		w.mu.Unlock()
	}
	return all
}

// Revoked drops partitions. A decision that is running for them is fenced by the store, or
// durable.
func (d *Decider) Revoked(_ string, partitions []int32) {
	for _, p := range partitions {
		d.workerOf(p).revoked(p)
	}
}

var _ transport.PartitionListener = (*Decider)(nil)

// endIfReplaced ends Run where another process has opened a newer generation of the inbox:
// no partition of this one can be taken over.
func (d *Decider) endIfReplaced(ctx context.Context) {
	marks, err := d.opt.Store.Watermarks(ctx)
	if err != nil {
		return // the next attempt asks again
	}
	for p := range marks {
		if p.Generation > d.opt.Inbox.Generation {
			d.halt(ErrInboxReplaced)
			return
		}
	}
}

// Run decides until ctx is cancelled, then waits for running decisions. It
// returns nil then; ErrReread, ErrInboxReplaced or store.ErrSuperseded, wrapped,
// when this subscription must end.
func (d *Decider) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// stop ends retries inside the workers; ctx ends their loops.
	context.AfterFunc(ctx, func() { d.halt(nil) })
	context.AfterFunc(d.stop, cancel)
	var wg sync.WaitGroup
	for _, w := range d.workers {
		wg.Go(func() { w.frames.Run(ctx, w.handle, idleTick, w.idle) })
	}
	wg.Wait()
	for _, w := range d.workers {
		w.close()
	}
	if cause := context.Cause(d.stop); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// Idle reports whether nothing waits and nothing is being decided.
func (d *Decider) Idle() bool {
	for _, w := range d.workers {
		if !w.frames.Idle() || w.stale() {
			return false
		}
	}
	return true
}

// Decided returns up to where the partitions that this process owns are decided:
// the next offset of each.
func (d *Decider) Decided() map[store.Partition]int64 {
	next := map[store.Partition]int64{}
	for _, w := range d.workers {
		w.decided(next)
	}
	return next
}

// Halted returns why nothing is decided at the moment; nil when deciding works. For
// readiness.
func (d *Decider) Halted() error {
	for _, w := range d.workers {
		if err := w.haltedBy(); err != nil {
			return fmt.Errorf("worker %d: %w", w.number, err)
		}
	}
	return nil
}
