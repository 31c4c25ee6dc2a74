package deliver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cenkalti/backoff/v5"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/inbox"
	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/internal/pause"
	"github.com/seed-86dfc502/weir/sequencer"
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
	// StopGrace is how long a write that is under way at a stop may go on.
	// Defaults to 5s.
	StopGrace time.Duration
	// Limit, if given, ends everything that a stop lets finish, a write, reads
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
	seq      *sequencer.Sequencer[delivery]
	log      *slog.Logger
	m        *serviceMetrics
	opened   bool                            // owned by Run
	spans    map[*change.Trace]*tracing.Span // owned by Run: of the batch in hand; nil if none is traced
	state    atomic.Value
	asking   chan struct{} // held, when full, by who asks for the active revision
	wentBack sync.Once     // says that the store did
}

// delivery is one message of the service's topic.
type delivery struct {
	change change.Change
	bad    error  // the message is not a change
	raw    []byte // its bytes then
	again  bool   // published from the outbox: it may stand in the topic twice
	span   *tracing.Span
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
		seq: sequencer.New[delivery](sequencer.Config{MaxItems: t.MaxBatch, MaxBytes: t.MaxBytes, Linger: t.Linger, Limit: opt.Limit}),
	}
	d.state.Store(StateRunning)
	return d
}

// Handle is the router's handler. It returns nil when the change is
// delivered and confirmed, or a dead letter, or asked for again, or needs no
// delivery. Its error wraps store.ErrSuperseded for a change of a newer
// configuration: nothing behind it is delivered either, until it is handed in
// again to a process that has that configuration. Any other error is one of the
// store or of a stop; the message is to be handed in again.
func (d *Deliverer) Handle(msg *message.Message) error {
	p, ok := transport.PositionOf(msg.Context())
	if !ok {
		return errors.New("deliver: a message without position")
	}
	var v delivery
	c, rest, err := change.Decode(msg.Payload)
	switch {
	case err != nil:
		v.bad, v.raw = err, msg.Payload
	case len(rest) > 0 || c.Service != d.opt.Service:
		v.bad, v.raw = change.ErrMalformed, msg.Payload
	default:
		v.change = c
		if d.opt.Superseded != nil && c.Revision > d.opt.Revision && c.Resent == 0 {
			known, err := d.known(msg.Context(), c.Revision)
			if err != nil {
				return fmt.Errorf("a change of revision %d came to revision %d: %w", c.Revision, d.opt.Revision, err)
			}
			if known {
				d.opt.Superseded()
				return fmt.Errorf("a change of revision %d came to revision %d: %w", c.Revision, d.opt.Revision, store.ErrSuperseded)
			}
			d.wentBack.Do(func() {
				d.log.Warn("the store was restored to before the configuration of some changes: they are delivered like those of an older one", "revision", d.opt.Revision, "newer", c.Revision)
			})
		}
	}
	v.again = msg.Metadata.Get(change.AgainHeader) != ""
	v.span = d.opt.Tracer.Deliver(v.change.Trace, d.opt.Service)
	v.change.Trace = v.span.Trace() // what the sink passes on
	err = d.seq.Submit(msg.Context(), p, v, len(msg.Payload))
	d.traced(&v.change, v.span, err)
	return err
}

// known tells whether the store has seen a revision become active. It must be
// asked after a change of it came: that one was decided under it, so a store
// that does not know it was restored, or failed over without its last commits.
// Nobody may ever have that configuration again.
func (d *Deliverer) known(ctx context.Context, revision int64) (bool, error) {
	select {
	case d.asking <- struct{}{}: // one at a time: a window may be full of such changes
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
	defer func() { <-d.asking }()
	active, err := d.opt.Store.Active(ctx)
	return active.Number >= revision, err
}

// Run delivers until ctx is cancelled; the batch that is under way then is
// finished unless its sink fails or Options.Limit ends, and the sink closed.
func (d *Deliverer) Run(ctx context.Context) error {
	defer d.opt.Sink.Close()
	return d.seq.Run(ctx, func(work context.Context, runs []*sequencer.Run[delivery]) {
		if err := d.handle(work, ctx, runs); err != nil {
			for _, r := range runs {
				r.Fail(err)
			}
		}
	}, 0, nil)
}

// State tells how the service is doing.
func (d *Deliverer) State() State { return d.state.Load().(State) }

// Idle tells whether nothing waits and nothing is under way.
func (d *Deliverer) Idle() bool { return d.seq.Idle() }

// handle brings one batch to its end. work is for effects and is not
// cancelled at a stop; stop ends waiting and retrying.
func (d *Deliverer) handle(work, stop context.Context, runs []*sequencer.Run[delivery]) error {
	var letters []store.DeadLetter
	n := 0
	for _, r := range runs {
		n += len(r.Items)
	}
	all, again := make([]change.Change, 0, n), make([]bool, 0, n)
	d.spans = nil
	for _, r := range runs {
		for _, item := range r.Items {
			if item.Value.bad != nil {
				letters = append(letters, d.malformed(item))
				continue
			}
			d.follow(&item.Value)
			all, again = append(all, item.Value.change), append(again, item.Value.again || item.Position.Again)
		}
	}
	if len(letters) > 0 {
		if err := d.patiently(work, stop, "store dead letters", func() error { return d.opt.Store.AddLetters(work, letters) }); err != nil {
			return err
		}
		d.m.dead.Add(float64(len(letters)))
	}
	crash.At(crash.DeliverBatch, d.opt.Service)
	todo, err := d.worth(work, stop, all, again)
	if err != nil {
		return err
	}
	if err := d.open(work, stop); err != nil {
		return err
	}
	a := &attempt{d: d, work: work, stop: stop, wait: d.backoff()}
	for len(todo) > 0 {
		n := d.chunk(todo)
		if err := a.deliver(todo[:n]); err != nil {
			return err
		}
		todo = todo[n:]
	}
	return d.opt.Confirmer.Submit(work, a.confirmed)
}

func (d *Deliverer) backoff() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = d.opt.Retry.MinBackoff, d.opt.Retry.MaxBackoff
	return b
}

// worth leaves out what is confirmed already (unless the target sees to that),
// repetitions within the batch, and for a state sink all but the newest change
// of each entity. A change that may have been in hand before, coalesced with
// others by a process that died or lost its partition, or that was published
// once more from the outbox, is worth while for a state sink only if it is the
// newest that was decided: the newer one may be there already, unconfirmed, and
// this one would come behind it. A resent change of a log sink always goes out.
func (d *Deliverer) worth(work, stop context.Context, all []change.Change, again []bool) ([]change.Change, error) {
	newest := make(map[string]change.Version, len(all))
	var rows map[string]store.Row
	if !d.traits.Guarded {
		var err error
		if rows, err = d.rows(work, stop, all); err != nil {
			return nil, err
		}
		for entity, row := range rows {
			newest[entity] = row.DeliveredVersion
		}
	}
	keep := all[:0]
	for i, c := range all {
		if c.Resent != 0 && d.traits.Kind == sinks.Log {
			// A dead letter of an operator's, late by its nature: what was confirmed
			// since says nothing about it, and it says nothing about the others.
			keep = append(keep, c)
			continue
		}
		if c.Version <= newest[c.Entity] {
			d.m.skipped.Inc()
			d.became(&c, "skipped")
			continue
		}
		if d.traits.Kind == sinks.State && again[i] && rows[c.Entity].Version > c.Version {
			d.m.overtaken.Inc()
			d.became(&c, "overtaken")
			continue
		}
		newest[c.Entity] = c.Version
		keep = append(keep, c)
	}
	if d.traits.Kind != sinks.State {
		return keep, nil
	}
	last := keep[:0]
	for _, c := range keep {
		if c.Version < newest[c.Entity] {
			d.m.coalesced.Inc()
			d.became(&c, "coalesced")
			continue
		}
		last = append(last, c)
	}
	return last, nil
}

// rows reads the dam rows of the entities of changes.
func (d *Deliverer) rows(work, stop context.Context, changes []change.Change) (map[string]store.Row, error) {
	keys := make([]store.Key, 0, len(changes))
	rows := make(map[string]store.Row, len(changes))
	for _, c := range changes {
		if _, seen := rows[c.Entity]; !seen {
			rows[c.Entity] = store.Row{}
			keys = append(keys, store.Key{Service: d.opt.Number, Entity: c.Entity})
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
		d.trouble(e, nil)
		if !pause.For(stop, max(e.RetryAfter, wait.NextBackOff())) {
			return errStopped
		}
	}
}

// chunk tells how many changes the sink takes at once.
func (d *Deliverer) chunk(todo []change.Change) int {
	n, bytes := 0, 0
	for n < len(todo) && n < max(1, d.traits.MaxBatch) {
		bytes += len(todo[n].Doc)
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

// trouble notes a failure; it logs when the state changes, not at every attempt.
// about is the context of a change that it happened to, or nil.
func (d *Deliverer) trouble(e *sinks.Error, about *change.Trace) {
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

// Service gives the service's name.
func (d *Deliverer) Service() string { return d.opt.Service }
