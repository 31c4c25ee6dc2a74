package simulation

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/ingest"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/transport"
)

// process is one run of the pipeline: all three stages, wired as package
// pipeline does it, around the product's own code.
type process struct {
	w    *world
	slot int
	name string
	ctx  context.Context // ends with the process
	kill context.CancelFunc
	dead atomic.Bool // nothing of it takes effect any more

	plan    *decide.Plan
	writer  *transport.Producer // of ingest and of deliver's control records
	built   chan struct{}       // closed when every stage runs
	stopped sync.Once
	stops   []func() // in order, for an end in order
	decider atomic.Pointer[decide.Decider]
	stage   atomic.Pointer[deliver.Stage]
	dials   int64 // of the database; guarded by its lock

	mu      sync.Mutex
	members []*member    // guarded by mu
	frozen  atomic.Int64 // nothing of it happens until then, in nanoseconds since the schedule began
}

// start fills a slot that is empty.
func (w *world) start(slot int) {
	w.mu.Lock()
	if w.slots[slot] != nil || w.over {
		w.mu.Unlock()
		return
	}
	w.births++
	p := &process{w: w, slot: slot, name: fmt.Sprintf("p%d.%d", slot, w.births), built: make(chan struct{}), plan: w.newest().plan}
	p.ctx, p.kill = context.WithCancel(w.all)
	w.slots[slot] = p
	w.mu.Unlock()
	var err error
	if p.writer, err = p.producer("writer", nil); err != nil {
		panic(err) // its clients can always be made
	}
	context.AfterFunc(p.ctx, func() { _ = p.writer.Close(p.ctx) })
	w.note("%s starts", p.name)
	p.ingest()
	p.decide()
	p.deliver()
	close(p.built)
}

// loop runs f in the background; the returned function ends f and waits.
func (p *process) loop(f func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(p.ctx)
	done := make(chan struct{})
	p.w.spawn(func() { defer close(done); f(ctx) })
	return func() { cancel(); <-done }
}

func (p *process) join(g *group, listener transport.PartitionListener, handle map[string]func(*message.Message) error) *member {
	m := g.join(p, listener, handle)
	p.mu.Lock()
	p.members = append(p.members, m)
	p.mu.Unlock()
	return m
}

func (p *process) client(name string) *client {
	name = p.name + " store " + name
	return &client{Memory: p.w.mem, p: p, name: name, dice: p.w.dice(name)}
}

const grace = 2 * time.Second

func (p *process) ingest() {
	handle := map[string]func(*message.Message) error{}
	for _, shape := range p.w.shapes {
		d := p.w.dice(p.name + " ingest " + shape.Source)
		stage := ingest.New(ingest.Options{
			Extractor: shape, Gate: p.w.gate, Inbox: p.writer, Topic: inboxTopic,
			InboxID: func() string { return "inbox" },
			Letters: p.client("ingest " + shape.Source), Logger: p.w.log, Metrics: p.w.Fixture.ingest,
		})
		if handle[shape.Source] = stage.Handle; shape.Source == shop {
			p.readTables(stage, d)
		}
	}
	m := p.join(p.w.ingests, nil, handle)
	p.stops = append(p.stops, func() { m.leave(grace) })
}

// decide keeps a subscription to the inbox, as package pipeline does.
func (p *process) decide() {
	p.stops = append(p.stops, p.loop(func(ctx context.Context) {
		for n := 0; ctx.Err() == nil; n++ {
			err := p.subscription(ctx, n)
			if err != nil && !errors.Is(err, decide.ErrReread) {
				p.w.note("%s: decide: %v", p.name, err)
			}
			if errors.Is(err, store.ErrSuperseded) {
				p.w.count("decide superseded")
				<-ctx.Done() // its configuration does not come back
			}
		}
	}))
}

func (p *process) subscription(ctx context.Context, n int) error {
	run, worker, db := int64(n), 0, p.client("decide")
	for i := range p.w.setup.workers {
		db.workers = append(db.workers, &laneLink{w: p.w, dice: p.w.dice(p.name+" worker", run, int64(i))})
	}
	known, err := p.w.mem.KnownInbox(ctx, inboxTopic, p.w.inbox.id)
	if err != nil {
		return err
	}
	d, err := decide.New(decide.Options{
		Store: db, Plan: p.plan, Workers: p.w.setup.workers, MaxEvents: p.w.setup.maxEvents,
		MaxOutcome: p.w.setup.maxOutcome, MaxFrame: p.w.setup.maxFrame,
		Inbox:        known,
		ChangesTopic: changesTopic, RetakeDelay: 250 * time.Millisecond, MaxUnpublished: int64(1+p.w.setup.frame/2) << 8, Logger: p.w.log, Metrics: p.w.Fixture.decide,
		Cache: p.w.setup.cache, FaultInjection: p.w.rules.Cache,
		NewProducer: func() (decide.Producer, error) {
			worker++
			return p.producer(fmt.Sprint("producer ", run, " ", worker), db.workers[worker-1])
		},
	})
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	stop := p.loop(func(ctx context.Context) { ended <- d.Run(ctx) })
	defer stop()
	m := p.join(p.w.decides, d, map[string]func(*message.Message) error{inboxTopic: d.Handle})
	p.decider.Store(d)
	defer p.decider.Store(nil)
	select {
	case <-ctx.Done():
		m.leave(grace)
		return nil
	case err = <-ended:
	case err = <-m.failed:
	}
	m.leave(0)
	return err
}

// deliver keeps a stage and its subscription to the changes log, as package
// pipeline does.
func (p *process) deliver() {
	p.stops = append(p.stops, p.loop(func(ctx context.Context) {
		for n := 0; ctx.Err() == nil; n++ {
			if err := p.outlet(ctx, n); err != nil {
				p.w.note("%s: deliver: %v", p.name, err)
				if errors.Is(err, deliver.ErrLost) {
					p.w.count("deliver begins anew")
				}
				if errors.Is(err, store.ErrSuperseded) {
					p.w.count("deliver superseded")
					<-ctx.Done()
				}
			}
		}
	}))
}

func (p *process) outlet(ctx context.Context, n int) error {
	name := fmt.Sprint(p.name, " deliver ", n)
	var services []deliver.Service
	parts := p.w.setup.inboxParts
	if p.w.rules.WholeRate {
		parts = 1
	}
	for _, service := range p.plan.Services {
		pace := p.w.setup.paces[service.Name]
		if p.w.rules.RestsForever && pace.Settle > 0 {
			pace.SettleMax = patience
		}
		services = append(services, deliver.Service{
			Name: service.Name, Number: service.Number, Sink: &sink{p: p, c: p.w.customer(service.Name), dice: p.w.dice(name + " " + service.Name), made: time.Now()}, Pace: pace, Refresh: p.w.setup.refreshes[service.Name],
			Retry: deliver.Retry{For: retryFor, MinBackoff: time.Nanosecond, MaxBackoff: time.Nanosecond}, // the sinks say how long to wait
		})
	}
	again, ends, newer := p.w.dice(name+" refreshes"), p.w.dice(name+" inbox"), make(chan struct{}, 1)
	superseded := func() { wait.Offer(newer, struct{}{}) }
	stage := deliver.New(deliver.Options{
		Services: services, Revision: p.plan.Revision, Superseded: superseded, Store: p.client(name), Log: &changesLog{p: p, name: name, dice: p.w.dice(name + " ends")},
		Control: func(ctx context.Context, controls ...change.Record) error {
			if p.w.rules.ForgetsRefusals && controls[0].Control.Action == change.Refuse || p.w.rules.LosesRefreshes && controls[0].Control.Actor == change.Refresh {
				return nil
			}
			for _, c := range controls {
				if c.Control.Actor == change.Refresh && p.w.fault(again, "refresh repeated", 8) {
					_ = p.control(ctx, c)
				}
				if p.w.rules.AnyVersion && c.Control.Actor == change.Refresh {
					c.Control.Version = math.MaxInt64
				}
			}
			return p.control(ctx, controls...)
		},
		Partition: func(entity string, _ change.Version) int32 { return int32(p.w.inbox.partitionOf([]byte(entity))) },
		InboxEnd: func(ctx context.Context, partition int32) (change.Version, error) {
			if err := p.reach(ctx, ends.trip()); err != nil {
				return 0, err
			}
			return change.Version(p.w.versionAt(int(partition), int(p.w.inbox.end(int(partition))))), nil
		},
		Partitions: parts, Memory: p.w.setup.memory, StopGrace: grace, Limit: p.ctx, Logger: p.w.log.With("process", p.name), Metrics: p.w.Fixture.deliver,
	})
	ended := make(chan error, 1)
	stop := p.loop(func(ctx context.Context) { ended <- stage.Run(ctx) })
	m := p.join(p.w.outs, stage, map[string]func(*message.Message) error{changesTopic: stage.Handle})
	p.stage.Store(stage)
	defer p.stage.Store(nil)
	var err error
	select {
	case <-ctx.Done():
		m.finish(grace)
		stop() // what is in the hands of the sinks is the partitions' last
		m.giveBack()
		return nil
	case <-newer:
		m.finish(grace)
		stop()
		m.giveBack()
		return store.ErrSuperseded
	case err = <-ended:
	case err = <-m.failed:
	}
	stop()
	m.leave(0)
	return err
}

// retryFor is how long deliver tries a change that its target answers with an error.
const retryFor = 2 * time.Second

func (p *process) control(ctx context.Context, controls ...change.Record) error {
	records := make([]transport.Record, len(controls))
	for i, c := range controls {
		key, head, value, err := change.EncodeRecord(c)
		if err != nil {
			return err
		}
		records[i] = transport.Record{Topic: inboxTopic, Key: key, Value: value, Headers: []transport.Header{{Key: change.InboxHeader, Value: head}}}
	}
	return p.writer.Append(ctx, records)
}

// reach brings a request to a server, which takes as long as its way. An error means that
// it never got there.
func (p *process) reach(ctx context.Context, way time.Duration) error {
	if err := p.ready(); err != nil {
		return err
	}
	if err := sleep(ctx, way); err != nil {
		return err
	}
	p.thaw()
	p.w.point(p)
	if p.dead.Load() {
		return errDead
	}
	return nil
}

// ready waits while the process is frozen and says whether it is alive.
func (p *process) ready() error {
	p.thaw()
	if p.dead.Load() {
		return errDead
	}
	return nil
}

// freeze stops everything that the process does for a while; it does not know.
func (p *process) freeze(d time.Duration) {
	p.frozen.Store(int64(time.Since(p.w.began) + d))
}

func (p *process) frozenFor() time.Duration {
	until := time.Duration(p.frozen.Load())
	if until == 0 {
		return 0
	}
	return until - time.Since(p.w.began)
}

func (p *process) thaw() {
	for {
		wait := p.frozenFor()
		if wait <= 0 || p.dead.Load() {
			return
		}
		time.Sleep(wait + 1)
	}
}

// all returns the members that the process has been.
func (p *process) all() []*member {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]*member(nil), p.members...)
}

// crash ends the process at once. The groups learn of it after a time-out, and
// another one takes its slot.
func (p *process) crash() {
	if p.dead.Swap(true) {
		return
	}
	w := p.w
	w.note("%s dies", p.name)
	w.mu.Lock()
	w.faults["crash"]++
	w.mu.Unlock()
	p.kill()
	d := w.dice(p.name + " crash")
	w.spawn(func() {
		time.Sleep(d.upTo(time.Second))
		for _, m := range p.all() {
			m.g.evict(m)
		}
	})
	w.spawn(func() {
		time.Sleep(d.upTo(1500 * time.Millisecond))
		w.empty(p)
		w.start(p.slot)
	})
}

func (w *world) empty(p *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.slots[p.slot] == p {
		w.slots[p.slot] = nil
	}
}

// shutdown ends the process in order.
func (p *process) shutdown() {
	p.stopped.Do(func() {
		<-p.built
		for _, stop := range p.stops {
			stop()
		}
		p.dead.Store(true)
		p.kill()
		p.w.note("%s has stopped", p.name)
	})
}
