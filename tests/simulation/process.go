package simulation

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/ingest"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/store"
)

// process is one run of the pipeline: all stages, wired as package
// pipeline does it, around the product's own code.
type process struct {
	w    *world
	slot int
	name string
	ctx  context.Context // ends with the process
	kill context.CancelFunc
	dead atomic.Bool // nothing of it takes effect any more

	writer  *transport.Producer // of ingest and of deliver's control records
	built   chan struct{}       // closed when every stage runs
	stopped sync.Once
	stops   []func() // in order, for an end in order
	decider atomic.Pointer[decide.Decider]
	stage   atomic.Pointer[deliver.Stage]
	dials   int64 // of the database; guarded by its lock

	configuring chan struct{} // capacity 1, as virtual time waits for a mutex: full while stages are made and while they change
	reloaded    chan struct{} // closed by reload

	mu      sync.Mutex
	plan    *decide.Plan // guarded by mu
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
	p := &process{w: w, slot: slot, name: fmt.Sprintf("p%d.%d", slot, w.births), built: make(chan struct{}), configuring: make(chan struct{}, 1), reloaded: make(chan struct{}), plan: w.newest().plan}
	p.ctx, p.kill = context.WithCancel(w.all)
	w.slots[slot] = p
	w.mu.Unlock()
	var err error
	if p.writer, err = p.producer("writer"); err != nil {
		panic(err) // its clients can always be made
	}
	context.AfterFunc(p.ctx, func() { _ = p.writer.Close(p.ctx) })
	w.note("%s starts", p.name)
	p.ingest()
	p.work()
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

// work keeps a subscription to the inbox and to the log of frames, as package pipeline does.
func (p *process) work() {
	p.stops = append(p.stops, p.loop(func(ctx context.Context) {
		for n := 0; ctx.Err() == nil; n++ {
			err := p.subscription(ctx, n)
			if err == nil {
				continue
			}
			p.w.note("%s: %v", p.name, err)
			if errors.Is(err, deliver.ErrLost) {
				p.w.count("deliver begins anew")
			}
			if errors.Is(err, store.ErrSuperseded) {
				p.w.count("superseded")
				select { // its configuration does not come back
				case <-p.reloaded:
				case <-ctx.Done():
				}
			}
		}
	}))
}

func (p *process) subscription(ctx context.Context, n int) error {
	db := p.client("decide")
	for i := range p.w.setup.workers {
		db.workers = append(db.workers, &laneLink{w: p.w, dice: p.w.dice(p.name+" worker", int64(n), int64(i))})
	}
	known, err := p.w.mem.KnownInbox(ctx, inboxTopic, p.w.inbox.id)
	if err != nil {
		return err
	}
	select {
	case p.configuring <- struct{}{}:
	case <-ctx.Done():
		return nil
	}
	newer, plan := make(chan struct{}, 1), p.now()
	stage := p.newStage(fmt.Sprint(p.name, " deliver ", n), func() { wait.Offer(newer, struct{}{}) })
	o := decide.Options{
		Store: db, Plan: plan, Next: p.next, Workers: p.w.setup.workers, MaxEvents: p.w.setup.maxEvents,
		MaxOutcome: p.w.setup.maxOutcome, MaxFrame: p.w.setup.maxFrame, Inbox: known,
		HandOver: p.handOver, Ends: stage.Ends,
		RetakeDelay: 250 * time.Millisecond, Logger: p.w.log, Metrics: p.w.Fixture.decide,
		Cache: p.w.setup.cache, FaultInjection: p.w.rules.Cache,
	}
	if p.w.rules.NoEnds {
		o.Ends = nil
	}
	d := decide.New(o)
	p.decider.Store(d)
	p.stage.Store(stage)
	<-p.configuring
	defer p.decider.Store(nil)
	defer p.stage.Store(nil)
	ended := make(chan error, 2)
	stopDecider := p.loop(func(ctx context.Context) { ended <- d.Run(ctx) })
	stopStage := p.loop(func(ctx context.Context) { ended <- stage.Run(ctx) })
	m := p.join(p.w.works, deliver.Owner{Decider: d, Stage: stage}, map[string]func(*message.Message) error{inboxTopic: d.Handle})
	subscriber := stage.Subscriber()
	p.hear(fmt.Sprint(p.name, " changes ", n), subscriber, stage.Handle)
	end := func(grace time.Duration) {
		m.finish(grace)
		closed := make(chan struct{})
		p.w.spawn(func() { _ = subscriber.Close(); close(closed) })
		if grace > 0 {
			select {
			case <-closed:
			case <-time.After(grace):
			}
		}
		stopDecider()
		stopStage() // what is in the hands of the sinks is the partitions' last
		<-closed
		m.giveBack()
	}
	for err == nil {
		select {
		case <-ctx.Done():
			end(grace)
			return nil
		case <-newer:
			if p.next(ctx, plan) != nil {
				continue // it is being reconfigured
			}
			end(grace)
			return store.ErrSuperseded
		case err = <-ended:
		case err = <-m.failed:
		}
	}
	end(0)
	for len(ended) > 0 {
		err = errors.Join(err, <-ended)
	}
	return err
}

// now is the configuration of the process.
func (p *process) now() *decide.Plan {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.plan
}

// next returns the configuration that has replaced one, nil if none has.
func (p *process) next(_ context.Context, superseded *decide.Plan) *decide.Plan {
	if now := p.now(); now.Revision > superseded.Revision {
		return now
	}
	return nil
}

// reload reconfigures a running process, first its decider and then its stage. Services
// of both have another sink, or keep theirs.
func (p *process) reload(plan *decide.Plan, d *dice) {
	select {
	case p.configuring <- struct{}{}:
		defer func() { <-p.configuring }()
	case <-p.ctx.Done():
		return
	}
	p.w.note("%s is reconfigured", p.name)
	before := p.now()
	p.mu.Lock()
	p.plan = plan
	p.mu.Unlock()
	defer close(p.reloaded)
	decider, stage := p.decider.Load(), p.stage.Load()
	if decider == nil || stage == nil {
		return
	}
	p.w.count("reload")
	decider.Adopt(plan)
	if sleep(p.ctx, d.trip()) != nil {
		return
	}
	r := deliver.Reconfiguration{Revision: plan.Revision}
	for _, s := range before.Services {
		if !slices.ContainsFunc(plan.Services, func(o decide.Service) bool { return o.Number == s.Number }) || d.chance(0.5) {
			r.Remove = append(r.Remove, s.Number)
		}
	}
	for _, s := range plan.Services {
		if slices.Contains(r.Remove, s.Number) || !slices.ContainsFunc(before.Services, func(o decide.Service) bool { return o.Number == s.Number }) {
			r.Add = append(r.Add, p.service(p.name+" reload", s))
		}
	}
	if err := stage.Reconfigure(p.ctx, r); err != nil {
		p.w.note("%s is not reconfigured: %v", p.name, err)
	}
}

// hear calls the handler with the messages of a subscription, as a router does.
func (p *process) hear(name string, s message.Subscriber, handle func(*message.Message) error) {
	messages, err := s.Subscribe(p.ctx, changesTopic)
	if err != nil {
		panic(err) // it is the first
	}
	var mu sync.Mutex
	all := map[int32]*dice{} // guarded by mu
	of := func(partition int32) *dice {
		mu.Lock()
		defer mu.Unlock()
		if all[partition] == nil {
			all[partition] = p.w.dice(name, int64(partition))
		}
		return all[partition]
	}
	p.w.spawn(func() {
		for msg := range messages {
			p.w.spawn(func() {
				frame, _ := transport.FrameOf(msg)
				d := of(frame.Partition)
				if sleep(msg.Context(), d.upTo(4*time.Millisecond)) == nil && p.ready() == nil && handle(msg) == nil && !p.w.fault(d, "acknowledgement lost", 0.5) {
					msg.Ack()
				} else {
					msg.Nack()
				}
			})
		}
	})
}

// handOver hands a frame over that was just decided.
func (p *process) handOver(f *store.Frame) {
	if p.w.rules.HandBlind {
		f = &store.Frame{Partition: f.Partition, To: f.To, Body: unlinked(f.Body)}
	}
	if stage := p.stage.Load(); stage != nil {
		if p.w.traced {
			p.w.note("%s: decided a frame of %d to %v", p.name, f.Partition.Number, f.To)
		}
		stage.HandOver(f)
	}
}

// changesTopic names the log of frames as a router does.
const changesTopic = "changes"

// newStage makes the stage that delivers.
func (p *process) newStage(name string, superseded func()) *deliver.Stage {
	var services []deliver.Service
	parts, plan := p.w.setup.inboxParts, p.now()
	if p.w.rules.WholeRate {
		parts = 1
	}
	for _, service := range plan.Services {
		services = append(services, p.service(name, service))
	}
	again, ends := p.w.dice(name+" refreshes"), p.w.dice(name+" inbox")
	return deliver.New(deliver.Options{
		Services: services, Revision: plan.Revision, Superseded: superseded, Store: p.client(name),
		Feed: transport.GroupConfig{ID: changesTopic, Topic: changesTopic, CloseTimeout: grace, Limit: p.ctx},
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
}

// service makes a service with a sink of its own.
func (p *process) service(name string, service decide.Service) deliver.Service {
	pace := p.w.setup.paces[service.Name]
	if p.w.rules.RestsForever && pace.Settle > 0 {
		pace.SettleMax = patience
	}
	return deliver.Service{
		Name: service.Name, Number: service.Number, Sink: &sink{p: p, c: p.w.customer(service.Name), dice: p.w.dice(name + " " + service.Name), made: time.Now()}, Pace: pace, Refresh: p.w.setup.refreshes[service.Name],
		Retry: deliver.Retry{For: retryFor, MinBackoff: time.Nanosecond, MaxBackoff: time.Nanosecond}, // the sinks say how long to wait
	}
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
