package simulation

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/dam"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/gate"
	"github.com/seed-86dfc502/weir/ingest"
	"github.com/seed-86dfc502/weir/merge"
	"github.com/seed-86dfc502/weir/projections"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/stripper"
)

// Rules switches rules of the protocol off, one by one, in what surrounds the
// product's code. The zero value keeps all of them. A checker that finds
// nothing under a broken rule is worth nothing.
type Rules struct {
	NoWatermark     bool // the store takes decisions of owners that lost their partitions
	MarkerFirst     bool // publishes are acknowledged before they took effect
	NoOutbox        bool // the duty to publish is not stored with the decision
	TokenOnly       bool // a take-over writes its token and does not give the outbox
	NoKeyCheck      bool // the log sink does not skip known keys
	NoVersionCheck  bool // the state sink takes what comes last for newest
	AckFirst        bool // messages are acknowledged when they are handed out
	GateFirst       bool // the gate marks an event when it is asked for it
	SplitDecision   bool // the watermark moves although the decision is lost
	ForgetsReleases bool // release records get lost on their way to the inbox
	LostConfirms    bool // confirmations are acknowledged and not written
	ForgetsClaims   bool // which claims had their effect is not stored
}

// Report says what a schedule was and what it found.
type Report struct {
	Seed      uint64
	Events    int // in the sources
	Records   int // in the inbox
	Changes   int // that services must have seen
	Faults    map[string]int
	Trace     uint64   // digest of all effects with their virtual times, of a traced run
	Lines     []string // the effects themselves
	Violation error
}

var errDead = errors.New("the process is dead")

// Fixture is what does not depend on a seed: compiled once, shared by any
// number of schedules at the same time.
type Fixture struct {
	plan    *dam.Plan
	shapes  []ingest.Shape
	decide  *dam.Metrics
	deliver *deliver.Metrics
	ingest  *ingest.Metrics
}

const inboxTopic = "inbox"

// Services of the simulated configuration. The first two see the same view.
const (
	logService   = "one/ripeness@log"
	stateService = "one/ripeness@state"
	dumbService  = "two/list@dumb"
)

// NewFixture compiles the configuration: two sources, two projections, three services.
func NewFixture() (*Fixture, error) {
	m, err := merge.Compile(merge.Spec{Sources: []merge.Source{{Name: "registry"}, {Name: "lab"}}})
	if err != nil {
		return nil, err
	}
	ripeness, err := projections.Compile(projections.Spec{Customer: "one", Name: "ripeness", When: `doc.origin != "XX"`,
		Fields: []projections.Field{{Out: "banana_id", Path: "id"}, {Out: "ripeness", Path: "ripeness_level"}, {Out: "weight", Path: "weight"}}})
	if err != nil {
		return nil, err
	}
	list, err := projections.Compile(projections.Spec{Customer: "two", Name: "list",
		Fields: []projections.Field{{Out: "banana_id", Path: "id"}, {Out: "weight", Path: "weight"}}})
	if err != nil {
		return nil, err
	}
	strip, err := stripper.Compile([]string{"event", "seq", "op"})
	if err != nil {
		return nil, err
	}
	reg := prometheus.NewRegistry()
	f := &Fixture{
		plan: &dam.Plan{
			Merge: m, Projections: []*projections.Projection{ripeness, list},
			Services: []dam.Service{
				{Name: logService, Number: 1, Projection: 0, Topic: logService},
				{Name: stateService, Number: 2, Projection: 0, Topic: stateService},
				{Name: dumbService, Number: 3, Projection: 1, Topic: dumbService},
			},
			Fingerprint: []byte("configuration"), Revision: 1, MaxChange: 1 << 20,
		},
		decide: dam.NewMetrics(reg), deliver: deliver.NewMetrics(reg), ingest: ingest.NewMetrics(reg),
	}
	for _, source := range []string{"registry", "lab"} {
		f.shapes = append(f.shapes, ingest.Shape{
			Source: source, Entity: ingest.Locator{Path: "id"}, EventID: ingest.Locator{Path: "event"},
			Operation: ingest.Locator{Path: "op"}, Sequence: ingest.Locator{Path: "seq"},
			IsDelete: func(op string) bool { return op == "delete" }, Strip: strip, MaxEvent: 1 << 20, MaxEntity: 256,
		})
	}
	return f, f.plan.Prepare(func(service string) string { return service })
}

// world is one schedule. What is mutable has a lock that is never held while
// virtual time passes.
type world struct {
	*Fixture
	seed   uint64
	rules  Rules
	traced bool
	setup  setup
	log    *slog.Logger

	mem     *Memory
	gate    gate.Gate
	sources []*topic
	inbox   *topic
	changes []*topic // as plan.Services
	ingests *group
	decides *group
	outs    *group
	sinks   []*customer // as plan.Services

	calm   atomic.Bool // no more faults
	flying atomic.Int64
	all    context.Context // ends with the schedule
	end    context.CancelFunc

	mu      sync.Mutex
	points  int
	crashAt map[int]bool
	slots   []*process // guarded by mu; the living process of each slot, nil while there is none
	births  int
	faults  map[string]int
	trace   uint64
	lines   []string
	restore bool // a restore happened
	over    bool // no more processes
}

// setup is what a seed draws at first.
type setup struct {
	processes, inboxParts, changeParts, lanes, entities, events int
	maxEvents, maxBatch, window                                 int
	fault                                                       float64 // chance of a failure per call
	crashes, disturbances                                       int
	gentle                                                      bool // nothing happens to processes and deliveries: even a sink without guard must be exact
	refusals                                                    bool
	guarded                                                     bool
	sequences                                                   bool
	span                                                        time.Duration
}

func draw(d *dice) setup {
	s := setup{
		processes: 2 + d.n(2), inboxParts: 1 + d.n(2), changeParts: 1 + d.n(2), lanes: 1 + d.n(2),
		entities: 1 + d.n(4), events: 5 + d.n(26), maxEvents: 1 + d.n(8), maxBatch: 1 + d.n(6), window: 1 + d.n(8),
		fault: []float64{0, 0.02, 0.06, 0.15}[d.n(4)], crashes: d.n(4), disturbances: d.n(8),
		gentle: d.chance(0.25), refusals: d.chance(0.4), guarded: d.chance(0.5), sequences: d.chance(0.4),
		span: time.Duration(200+d.n(3000)) * time.Millisecond,
	}
	if s.gentle {
		s.crashes = 0
	}
	return s
}

// dice are the draws of one actor. They depend on the seed, its name and how
// often it drew, not on what other actors did in between.
type dice struct {
	mu sync.Mutex
	r  *rand.Rand
}

func (w *world) dice(name string) *dice {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))
	return &dice{r: rand.New(rand.NewPCG(w.seed, h.Sum64()))}
}

func (d *dice) n(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.r.IntN(n)
}

func (d *dice) chance(p float64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.r.Float64() < p
}

// upTo gives a duration to the nanosecond, so that no two are equal.
func (d *dice) upTo(limit time.Duration) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return 1 + time.Duration(d.r.Int64N(int64(limit)))
}

// trip is how long a request or its answer is under way: mostly short.
func (d *dice) trip() time.Duration {
	if d.chance(0.08) {
		return d.upTo(600 * time.Millisecond)
	}
	return d.upTo(12 * time.Millisecond)
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// note adds an effect to the trace. Back-off in nanoseconds does not show in it.
func (w *world) note(format string, args ...any) {
	if !w.traced {
		return
	}
	line := fmt.Sprintf("%v ", time.Since(epoch).Round(time.Microsecond)) + fmt.Sprintf(format, args...)
	h := fnv.New64a()
	_, _ = h.Write([]byte(line))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trace += h.Sum64() // effects at one instant have no order
	w.lines = append(w.lines, line)
}

// epoch is when virtual time begins in every bubble.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// fault draws whether a call of an actor fails now.
func (w *world) fault(d *dice, name string, factor float64) bool {
	hit := d.chance(w.setup.fault * factor)
	if !hit || w.calm.Load() {
		return false
	}
	w.mu.Lock()
	w.faults[name]++
	w.mu.Unlock()
	return true
}

// point is a place where the process may die: before and after every effect.
func (w *world) point(p *process) {
	w.mu.Lock()
	w.points++
	hit := w.crashAt[w.points] && !w.calm.Load()
	w.mu.Unlock()
	if hit {
		p.crash()
	}
}

// Run runs one schedule, checks it and, when traced, writes down what took
// effect. It must be called inside a bubble of
// testing/synctest, and returns when every goroutine of it has ended.
func (f *Fixture) Run(seed uint64, rules Rules, traced bool) Report {
	w := &world{Fixture: f, seed: seed, rules: rules, traced: traced, mem: NewMemory(), faults: map[string]int{}, crashAt: map[int]bool{},
		log: slog.New(slog.DiscardHandler)}
	w.all, w.end = context.WithCancel(context.Background())
	defer w.end()
	w.setup = draw(w.dice("setup"))
	if err := w.open(); err != nil {
		return Report{Seed: seed, Violation: err}
	}
	d := w.dice("starts")
	for i := range w.slots {
		w.start(i)
		time.Sleep(d.upTo(20 * time.Millisecond))
	}
	var tasks sync.WaitGroup
	tasks.Go(w.feed)
	tasks.Go(w.post)
	tasks.Go(w.disturb)
	tasks.Wait()
	w.calm.Store(true)
	w.note("calm")
	// Whatever was lost stays lost; what is late must come now.
	for i := range w.slots {
		w.start(i)
	}
	w.ingests.balance()
	w.decides.balance()
	w.outs.balance()
	drained := w.drain()
	report := Report{Seed: seed, Events: w.events(), Records: w.inbox.size()}
	w.mu.Lock()
	report.Trace, report.Lines = w.trace, slices.Clone(w.lines)
	w.mu.Unlock()
	w.stop()
	report.Faults = w.faults
	if drained != nil {
		report.Violation = drained
		return report
	}
	report.Changes, report.Violation = w.check()
	return report
}

// open makes what processes share.
func (w *world) open() error {
	s := w.setup
	ctx := context.Background()
	if _, err := w.mem.Activate(ctx, w.plan.Fingerprint, false); err != nil {
		return err
	}
	names := make([]string, len(w.plan.Services))
	for i, service := range w.plan.Services {
		names[i] = service.Name
		w.changes = append(w.changes, newTopic(service.Topic, "id-"+service.Topic, s.changeParts))
		w.sinks = append(w.sinks, newCustomer(w, service.Name))
	}
	numbers, err := w.mem.Services(ctx, names)
	if err != nil {
		return err
	}
	for _, service := range w.plan.Services {
		if numbers[service.Name] != service.Number {
			return fmt.Errorf("service %s has number %d", service.Name, numbers[service.Name])
		}
	}
	w.inbox = newTopic(inboxTopic, "id-inbox", s.inboxParts)
	if _, err := w.mem.ResolveInbox(ctx, inboxTopic, w.inbox.id, int32(s.inboxParts), 1); err != nil {
		return err
	}
	// The laboratory pushes: its events have no positions.
	w.sources = []*topic{newTopic("registry", "id-registry", 2), newTopic("lab", "", 1)}
	memory, err := gate.NewMemory(gate.MemoryOptions{Entries: 10})
	if err != nil {
		return err
	}
	w.gate = memory
	w.ingests = newGroup(w, "ingest", w.sources)
	w.decides = newGroup(w, "decide", []*topic{w.inbox})
	w.outs = newGroup(w, "deliver", w.changes)
	w.slots = make([]*process, s.processes)
	d := w.dice("crashes")
	for range s.crashes {
		w.crashAt[20+d.n(40+20*s.events)] = true
	}
	return nil
}

func (w *world) traits(service string) sinks.Traits {
	t := sinks.Traits{Kind: sinks.Log, MaxBatch: w.setup.maxBatch, Guarded: w.setup.guarded}
	switch service {
	case stateService:
		t.Kind = sinks.State
		t.Guarded = t.Guarded && !w.setup.gentle
	case dumbService:
		t.Guarded = false
	}
	return t
}

// live gives the living processes.
func (w *world) live() []*process {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []*process
	for _, p := range w.slots {
		if p != nil {
			all = append(all, p)
		}
	}
	return all
}

// patience is how much virtual time the end of all work may take.
const patience = 10 * time.Minute

// drain waits until everything that was sent has arrived.
func (w *world) drain() error {
	var why string
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if why = w.busy(); why == "" {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return fmt.Errorf("lost: not done after %v without faults: %s", patience, why)
}

// busy says what is not done; empty when all is.
func (w *world) busy() string {
	for _, g := range []*group{w.ingests, w.decides, w.outs} {
		if why := g.behind(); why != "" {
			return why
		}
	}
	if n := w.flying.Load(); n > 0 {
		return fmt.Sprint(n, " requests are under way")
	}
	for _, p := range w.live() {
		if d := p.decider.Load(); d == nil || !d.Settled() {
			return "decided changes of " + p.name + " are not published"
		}
	}
	return ""
}

func (w *world) events() int {
	n := 0
	for _, s := range w.sources {
		n += s.size()
	}
	return n
}

// stop ends all processes in order.
func (w *world) stop() {
	w.mu.Lock()
	w.over = true
	w.mu.Unlock()
	var wg sync.WaitGroup
	for _, p := range w.live() {
		wg.Go(p.shutdown)
	}
	wg.Wait()
	w.end()
	// Whatever still sleeps wakes up once more and ends: virtual time stands still
	// when the bubble's first goroutine has returned.
	time.Sleep(time.Minute)
}

var _ store.Store = (*client)(nil)
