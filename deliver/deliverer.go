package deliver

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cenkalti/backoff/v5"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/inbox"
	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/internal/gather"
	"github.com/seed-86dfc502/weir/internal/pause"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/tracing"
	"github.com/seed-86dfc502/weir/transport"
)

var errStopped = errors.New("deliver is stopping")

// Store is what deliver needs of the store.
type Store interface {
	store.Deliveries
	AddLetters(ctx context.Context, letters []store.DeadLetter) error
	Active(ctx context.Context) (store.Revision, error)
}

// Retry bounds the attempts at one change.
type Retry struct {
	// Attempts is how often a change is tried whose failure may be its own
	// (sinks.RetryBounded). Defaults to 10.
	Attempts int
	// MinBackoff and MaxBackoff bound the wait between attempts. Default to
	// 200ms and 30s.
	MinBackoff, MaxBackoff time.Duration
}

// Options of a Deliverer. All fields are needed unless they say a default.
type Options struct {
	Service string // name
	Number  int32  // the store's number of it
	// Revision is that of this process's configuration. A change of an older one
	// that the sink refuses is decided again; one of a newer one is not this
	// process's to deliver, unless the store went back and has no such revision
	// any more: then it is one of an older configuration.
	Revision int64
	// Superseded is called, from any goroutine and perhaps often, when a change of
	// a newer revision came. It must not block. Without it all revisions are alike.
	Superseded func()
	Sink       sinks.Sink
	Store      Store
	Confirmer  *Confirmer
	// Control appends a control record to the inbox and returns when it is durable.
	Control func(ctx context.Context, entity string, c inbox.Control) error
	Retry   Retry
	// StopGrace is how long a write that is under way at a shutdown may go on.
	// Defaults to 5s.
	StopGrace time.Duration
	// Limit, if given, ends everything that a shutdown lets finish, a write, reads
	// and confirmations: the changes come again, with their keys.
	Limit   context.Context
	Logger  *slog.Logger
	Metrics *Metrics
	// Tracer makes spans of traced changes. Defaults to none: sinks pass no trace
	// context on then.
	Tracer *tracing.Tracer
}

// State says how a service is doing.
type State string

// The states of a service.
const (
	StateRunning  State = "running"
	StateRetrying State = "retrying" // the last attempt failed and is repeated
	StatePaused   State = "paused"   // refused as a whole; probed now and then
)

// Deliverer delivers one service. Handle may be called from any goroutine,
// Run once.
type Deliverer struct {
	opt      Options
	traits   sinks.Traits
	frames   *gather.Queue[*frame]
	log      *slog.Logger
	m        *serviceMetrics
	opened   bool                            // owned by Run
	spans    map[*change.Trace]*tracing.Span // owned by Run: of the batch in hand; nil if none is traced
	state    atomic.Value
	asking   chan struct{} // held, when full, by who asks for the active revision
	wentBack sync.Once     // says that the store did
}

// frame is what one message brought.
type frame struct {
	ctx     context.Context // ends with the assignment
	changes []delivery
	letters []store.DeadLetter // of records that are none of this service's
	newest  int64              // revision that decided one of the changes in its turn
	size    int                // bytes of the documents

	abandoned bool // owned by Run: the assignment ended before all of it was delivered
}

// delivery is one change of the service's topic.
type delivery struct {
	change      change.Change
	frame       *frame
	redelivered bool // it may have been in hand before
	span        *tracing.Span
}

// New makes a deliverer.
func New(opt Options) *Deliverer {
	if opt.Retry.Attempts <= 0 {
		opt.Retry.Attempts = 10
	}
	if opt.Retry.MinBackoff <= 0 {
		opt.Retry.MinBackoff = 200 * time.Millisecond
	}
	if opt.Retry.MaxBackoff <= 0 {
		opt.Retry.MaxBackoff = 30 * time.Second
	}
	if opt.StopGrace <= 0 {
		opt.StopGrace = 5 * time.Second
	}
	t := opt.Sink.Traits()
	d := &Deliverer{
		opt: opt, traits: t, m: opt.Metrics.of(opt.Service),
		log: opt.Logger.With("stage", "deliver", "service", opt.Service), asking: make(chan struct{}, 1),
		frames: gather.New[*frame](gather.Config{MaxItems: t.MaxBatch, MaxBytes: t.MaxBytes, Linger: t.Linger, Limit: opt.Limit}),
	}
	d.state.Store(StateRunning)
	return d
}

// Handle is the router's handler. It returns nil when every change of the
// message's frame is delivered and confirmed, or a dead letter, or asked for
// again, or needs no delivery. Its error wraps store.ErrSuperseded if a newer
// configuration decided one of the changes: nothing of the frame is delivered,
// until it is handed in again to a process that has that configuration. Any
// other error is one of the store, of a shutdown or of the end of the
// assignment; the frame is to be handed in again, and what was confirmed of it
// is left out then.
func (d *Deliverer) Handle(msg *message.Message) error {
	received, ok := transport.FrameOf(msg)
	if !ok {
		return errors.New("deliver: a message without a frame")
	}
	f := d.decode(msg.Context(), received)
	if d.opt.Superseded != nil && f.newest > d.opt.Revision {
		known, err := d.known(msg.Context(), f.newest)
		if err != nil {
			return fmt.Errorf("a change of revision %d came to revision %d: %w", f.newest, d.opt.Revision, err)
		}
		if known {
			d.opt.Superseded()
			return fmt.Errorf("a change of revision %d came to revision %d: %w", f.newest, d.opt.Revision, store.ErrSuperseded)
		}
		d.wentBack.Do(func() {
			d.log.Warn("the store was restored to before the configuration of some changes: they are delivered like those of an older one", "revision", d.opt.Revision, "newer", f.newest)
		})
	}
	for i := range f.changes {
		v := &f.changes[i]
		v.span = d.opt.Tracer.Deliver(v.change.Trace, d.opt.Service)
		v.change.Trace = v.span.Trace() // what the sink passes on
	}
	err := d.frames.Submit(msg.Context(), f, len(f.changes), f.size)
	for i := range f.changes {
		d.endSpan(&f.changes[i], err)
	}
	return err
}

// decode reads the changes of a frame.
func (d *Deliverer) decode(ctx context.Context, received *transport.Frame) *frame {
	f := &frame{ctx: ctx, changes: make([]delivery, 0, len(received.Records))}
	for i := range received.Records {
		r := &received.Records[i]
		redelivered := r.Redelivered || r.HeaderBytes(change.RepublishedHeader) != nil
		begin := len(f.changes)
		for c, err := range change.DecodeAll(r.Value) {
			if err == nil && c.Service != d.opt.Service {
				err = fmt.Errorf("%w: it is of another service", change.ErrMalformed)
			}
			if err != nil {
				// Nothing of such a record was written by Weir.
				f.letters = append(f.letters, d.malformed(received, r, err))
				f.changes = f.changes[:begin]
				break
			}
			f.changes = append(f.changes, delivery{change: c, frame: f, redelivered: redelivered})
		}
	}
	for i := range f.changes {
		c := &f.changes[i].change
		if c.Resent == 0 {
			f.newest = max(f.newest, c.Revision)
		}
		f.size += len(c.Doc)
	}
	return f
}

// known reports whether the store has seen a revision become active. It must be
// asked after a change of it came: that one was decided under it, so a store
// that does not know it was restored, or failed over without its last commits.
// Nobody may ever have that configuration again.
func (d *Deliverer) known(ctx context.Context, revision int64) (bool, error) {
	select {
	case d.asking <- struct{}{}: // one at a time: the frames of all partitions may have such changes
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	defer func() { <-d.asking }()
	active, err := d.opt.Store.Active(ctx)
	return active.Number >= revision, err
}

// Run delivers until ctx is cancelled; the write that is under way then is
// finished unless its sink fails or Options.Limit ends, and the sink closed.
func (d *Deliverer) Run(ctx context.Context) error {
	defer d.opt.Sink.Close()
	d.frames.Run(ctx, func(work context.Context, frames []*gather.Entry[*frame]) {
		err := d.handle(work, ctx, frames)
		for _, f := range frames {
			if f.Value.abandoned && err == nil {
				f.Fail(context.Cause(f.Value.ctx))
			} else if err != nil {
				f.Fail(err)
			}
		}
	}, 0, nil)
	return nil
}

// State returns how the service is doing.
func (d *Deliverer) State() State { return d.state.Load().(State) }

// Idle reports whether nothing waits and nothing is under way.
func (d *Deliverer) Idle() bool { return d.frames.Idle() }

// handle brings one batch of frames to its end. work is for effects and is not
// cancelled at a shutdown; stop ends waiting and retrying.
func (d *Deliverer) handle(work, stop context.Context, frames []*gather.Entry[*frame]) error {
	var letters []store.DeadLetter
	n := 0
	for _, f := range frames {
		n += len(f.Value.changes)
		letters = append(letters, f.Value.letters...)
	}
	todo := make([]*delivery, 0, n)
	d.spans = nil
	for _, f := range frames {
		for i := range f.Value.changes {
			v := &f.Value.changes[i]
			d.follow(v)
			todo = append(todo, v)
		}
	}
	if len(letters) > 0 {
		if err := d.patiently(work, stop, "store dead letters", func() error { return d.opt.Store.AddLetters(work, letters) }); err != nil {
			return err
		}
		d.m.dead.Add(float64(len(letters)))
	}
	crash.At(crash.DeliverBatch, d.opt.Service)
	todo, err := d.dropObsolete(work, stop, todo)
	if err != nil {
		return err
	}
	if err := d.open(work, stop); err != nil {
		return err
	}
	a := &attempt{d: d, work: work, stop: stop, wait: d.backoff()}
	var chunk []change.Change
	for {
		if todo = dropAbandoned(todo); len(todo) == 0 {
			return nil
		}
		n := d.chunk(todo)
		chunk = chunk[:0]
		for _, v := range todo[:n] {
			chunk = append(chunk, v.change)
		}
		if err := a.deliver(chunk); err != nil {
			return err
		}
		// Chunk by chunk: what a crash can repeat at a target without a guard is one.
		if err := d.opt.Confirmer.Submit(work, a.confirmed); err != nil {
			return err
		}
		a.confirmed = a.confirmed[:0]
		for _, v := range todo[:n] {
			d.endSpan(v, nil) // whatever becomes of the rest of its frame
		}
		todo = todo[n:]
	}
}

// dropAbandoned leaves out the changes of frames whose assignment ended. The
// next owner of the partition has them, and delivers newer ones behind them.
func dropAbandoned(todo []*delivery) []*delivery {
	return slices.DeleteFunc(todo, func(v *delivery) bool {
		f := v.frame
		f.abandoned = f.abandoned || f.ctx.Err() != nil
		return f.abandoned
	})
}

func (d *Deliverer) backoff() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = d.opt.Retry.MinBackoff, d.opt.Retry.MaxBackoff
	return b
}

// dropObsolete leaves out what is confirmed already (unless the target sees to
// that), repetitions within the batch, and for a state sink all but the newest
// change of each entity. A change that may have been in hand before, coalesced
// with others by a process that died or lost its partition, or that was
// published once more from the outbox, is worth while for a state sink only if
// it is the newest that was decided: the newer one may be there already,
// unconfirmed, and this one would come behind it. A resent change of a log sink
// always goes out.
func (d *Deliverer) dropObsolete(work, stop context.Context, all []*delivery) ([]*delivery, error) {
	newest := make(map[string]change.Version, len(all))
	var rows map[string]store.Row
	if !d.traits.Guarded {
		var err error
		if rows, err = d.rows(work, stop, func(yield func(entity string) bool) {
			for _, v := range all {
				if !yield(v.change.Entity) {
					return
				}
			}
		}); err != nil {
			return nil, err
		}
		for entity, row := range rows {
			newest[entity] = row.DeliveredVersion
		}
	}
	keep := all[:0]
	for _, v := range all {
		c := &v.change
		if c.Resent != 0 && d.traits.Kind == sinks.Log {
			// A dead letter of an operator's, late by its nature: what was confirmed
			// since says nothing about it, and it says nothing about the others.
			keep = append(keep, v)
			continue
		}
		if c.Version <= newest[c.Entity] {
			d.m.skipped.Inc()
			d.recordOutcome(c, OutcomeSkipped)
			continue
		}
		if d.traits.Kind == sinks.State && v.redelivered && rows[c.Entity].Version > c.Version {
			d.m.overtaken.Inc()
			d.recordOutcome(c, OutcomeOvertaken)
			continue
		}
		newest[c.Entity] = c.Version
		keep = append(keep, v)
	}
	if d.traits.Kind != sinks.State {
		return keep, nil
	}
	return slices.DeleteFunc(keep, func(v *delivery) bool {
		older := v.change.Version < newest[v.change.Entity]
		if older {
			d.m.coalesced.Inc()
			d.recordOutcome(&v.change, OutcomeCoalesced)
		}
		return older
	}), nil
}

// rows reads the dam rows of entities.
func (d *Deliverer) rows(work, stop context.Context, entities iter.Seq[string]) (map[string]store.Row, error) {
	var keys []store.Key
	rows := map[string]store.Row{}
	for entity := range entities {
		if _, seen := rows[entity]; !seen {
			rows[entity] = store.Row{}
			keys = append(keys, store.Key{Service: d.opt.Number, Entity: entity})
		}
	}
	if len(keys) == 0 {
		return rows, nil
	}
	err := d.patiently(work, stop, "read dam rows", func() error {
		found, err := d.opt.Store.Rows(work, keys)
		for _, r := range found {
			rows[r.Entity] = r
		}
		return err
	})
	return rows, err
}

// open opens the sink, for as long as that takes.
func (d *Deliverer) open(work, stop context.Context) error {
	if d.opened {
		return nil
	}
	wait := d.backoff()
	for {
		ctx, cancel := pause.Outlast(work, stop, d.opt.StopGrace)
		err := d.opt.Sink.Open(ctx)
		cancel()
		if err == nil {
			d.opened = true
			d.running()
			return nil
		}
		e := sinks.Classify(err)
		d.reportFailure(e, nil)
		if !e.Await(stop, wait.NextBackOff()) {
			return errStopped
		}
	}
}

// chunk returns how many changes the sink takes at once.
func (d *Deliverer) chunk(todo []*delivery) int {
	n, bytes := 0, 0
	for n < len(todo) && n < max(1, d.traits.MaxBatch) {
		bytes += len(todo[n].change.Doc)
		if n > 0 && d.traits.MaxBytes > 0 && bytes > d.traits.MaxBytes {
			break
		}
		n++
	}
	return n
}

// patiently repeats an operation on the store until it works or stop ends.
func (d *Deliverer) patiently(work, stop context.Context, what string, op func() error) error {
	wait := 50 * time.Millisecond
	for failures := 0; ; failures++ {
		err := op()
		if err == nil {
			return nil
		}
		if failures == 1 {
			d.log.Warn("halted: trying again until it works", "doing", what, "error", err)
		}
		if !pause.For(stop, wait) {
			return errStopped
		}
		wait = min(2*wait, 2*time.Second)
	}
}

// reportFailure notes a failure of the sink; it logs when the state changes, not at every attempt.
// about is the context of a change that it happened to, or nil.
func (d *Deliverer) reportFailure(e *sinks.Error, about *change.Trace) {
	state := StateRetrying
	if e.Class == sinks.Pause {
		state = StatePaused
	}
	d.m.failures.WithLabelValues(d.opt.Service, e.Class.String()).Inc()
	if d.state.Swap(state) == state {
		return
	}
	log := d.log
	if s := d.spans[about]; s != nil {
		log = log.With("trace_id", s.ID())
	}
	if state == StatePaused {
		d.m.paused.Set(1)
		log.Error("paused: the sink refuses this service as a whole; it is probed until that changes", "error", e)
		return
	}
	log.Warn("delivery fails; trying again", "error", e)
}

func (d *Deliverer) running() {
	if d.state.Swap(StateRunning) != StateRunning {
		d.m.paused.Set(0)
		d.log.Info("delivering again")
	}
}

// Service returns the service's name.
func (d *Deliverer) Service() string { return d.opt.Service }
