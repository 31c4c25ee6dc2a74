package simulation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/ingest/gate"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/tests/oracle"
)

// Rules switches rules of the protocol off, one by one, in what surrounds the
// product's code. The zero value keeps all of them. A checker that finds
// nothing under a broken rule is worth nothing.
type Rules struct {
	NoWatermark     bool // the store takes decisions of owners that lost their partitions
	MarkerFirst     bool // appends to the inbox are acknowledged before they took effect
	NoKeyCheck      bool // the log sink does not skip known keys
	NoVersionCheck  bool // the state sink takes what comes last for newest
	AckFirst        bool // messages are acknowledged when they are handed out
	SplitDecision   bool // the watermark moves although the decision is lost
	ForgetsRefusals bool // refusals get lost on their way to the inbox
	EarlyAnswer     bool // a sink's answer comes before the effect, so that the position does, too
	NoToken         bool // the store does not compare the token of a progress row
	HandEarly       bool // frames are handed over before their commit is known
	HandBlind       bool // frames from memory are taken whatever precedes them
	NoPrev          bool // nobody sees that frames are missing before others
	NoEnd           bool // nobody sees that the last frames are missing
	EndLate         bool // where the log ends is read after its frames
	StartEnd        bool // a service without a position begins at the end of the log
	NoEnds          bool // a decider that took over again does not say where the log ends
	PassesSlices    bool // the position of every service is that of the one that is farthest
	KeepsProgress   bool // a restore leaves the progress as it is
	PurgesPast      bool // tombstones are purged past the owners of their partitions
	TokenAlone      bool // the store compares watermarks by their token alone
	NoRevision      bool // the store takes decisions of any revision
	Cache           decide.FaultInjection
	MarkFirst       bool   // changes of a table are acknowledged before they are in the inbox
	OldSnapshot     bool   // exported rows lack the last commit before their position
	HiddenMove      bool   // the server does not show that another program moved the slot
	ForgetsStored   bool   // the entities that are stored of a table are not listed
	OldTimeline     bool   // a promoted server keeps its timeline
	Hides           string // a part of a table's identity that the server does not show
	NoSwap          bool   // the row of a slot is written whoever wrote it last
	WholeRate       bool   // every process takes the whole rate of a service
	RestsForever    bool   // an entity that changes again and again is never quiet enough
	AnyVersion      bool   // a refresh does not name the version that it repeats
	LosesRefreshes  bool   // refreshes get lost on their way to the inbox
}

// concern reports whether the rules that are off can matter in a seed's schedule.
func (r Rules) concern(seed uint64) bool {
	w := &world{seed: seed}
	s := draw(w.dice("setup"))
	s.pace(w.dice("pace"))
	s.refresh(w.dice("refresh"))
	switch {
	case r.NoVersionCheck:
		return s.variant.state
	case r.Hides != "":
		_, reshaped, plain := w.reshapes()
		return s.variant.tables && reshaped && (plain || r.Hides != "listed")
	case r.MarkFirst || r.OldSnapshot || r.HiddenMove || r.ForgetsStored || r.OldTimeline || r.NoSwap:
		return s.variant.tables
	case r.RestsForever:
		return s.gentle && s.paces[stateService].SettleMax > 0
	case r.AnyVersion || r.LosesRefreshes:
		return s.period > 0
	case r.PurgesPast:
		return s.purges > 0
	}
	return true
}

// shown reports whether an act that changes these parts of a table's identity can show that the rules are off: while
// a part is hidden others change nothing.
func (r Rules) shown(changes string) bool {
	return r.Hides == "" || r.Hides == "listed" || slices.Contains(strings.Fields(changes), r.Hides)
}

// Report describes a schedule and its violation.
type Report struct {
	Seed      uint64
	Events    int // in the sources
	Records   int // in the inbox
	Changes   int // that services must have seen
	Faults    map[string]int
	Lines     []string // of a traced run: all effects with their virtual times
	Violation error
}

var errDead = errors.New("the process is dead")

// world is one schedule. Its mutable parts have a lock that is never held while
// virtual time passes.
type world struct {
	*Fixture
	configuration // the first
	background
	// later is brought by a deploy to one process after the other; nil without one.
	later    *configuration
	deployed atomic.Bool
	// renewed: the inbox has a second generation, from these offsets on.
	renewed atomic.Bool
	second  map[int32]int64
	since   map[int32]int64 // set with deployed: up to where each partition was decided before
	seed    uint64
	rules   Rules
	traced  bool
	began   time.Time // in virtual time
	setup   setup
	log     *slog.Logger

	mem      *Memory
	gate     gate.Gate
	sources  []*topic
	database *database // nil without one
	inbox    *topic
	ingests  *group
	works    *group      // decides and delivers
	sinks    []*customer // of the services of all configurations

	opened atomic.Bool // the groups give partitions to whoever joins
	calm   atomic.Bool // no more faults
	flying atomic.Int64
	all    context.Context // ends with the schedule
	end    context.CancelFunc

	mu        sync.Mutex
	points    int
	crashAt   map[int]bool
	slots     []*process // guarded by mu; the living process of each slot, nil while there is none
	births    int
	faults    map[string]int
	lines     []string
	restore   bool                      // a restore happened
	model     *oracle.Model             // of the inbox; set at the end
	refused   map[oracle.ID]bool        // by a record of the inbox, which a restore leaves; likewise
	refreshed map[oracle.ID][]time.Time // when a refresh was in the inbox that sends something; likewise
	idle      [2]time.Time              // nothing but refreshes happened between; zero without any
	gaps      []missing                 // guarded by mu; what operators were told of
	over      bool                      // no more processes
}

// note adds an effect to the trace. Back-off in nanoseconds does not show in it.
func (w *world) note(format string, args ...any) {
	if !w.traced {
		return
	}
	line := fmt.Sprintf("%v ", time.Since(w.began).Round(time.Microsecond)) + fmt.Sprintf(format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines, line)
}

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
// effect. It must be called inside a bubble of testing/synctest, and returns when everything of the
// schedule has ended.
func (f *Fixture) Run(seed uint64, rules Rules, traced bool) Report {
	// Every schedule begins at a whole second of virtual time.
	time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(time.Second)))
	w := &world{Fixture: f, began: time.Now(), seed: seed, rules: rules, traced: traced, mem: NewMemory(), refused: map[oracle.ID]bool{}, refreshed: map[oracle.ID][]time.Time{}, faults: map[string]int{}, crashAt: map[int]bool{}}
	w.mem.rules = rules
	w.log = slog.New(&journal{w: w})
	w.all, w.end = context.WithCancel(context.Background())
	defer w.end()
	w.setup = draw(w.dice("setup"))
	w.setup.pace(w.dice("pace"))
	w.setup.refresh(w.dice("refresh"))
	w.mem.state.tokenAlone = rules.TokenAlone
	w.mem.state.blind = rules.Cache != (decide.FaultInjection{})
	w.configuration = f.variants[w.setup.variant]
	if err := w.open(); err != nil {
		return Report{Seed: seed, Violation: err}
	}
	for i := range w.slots {
		w.start(i)
	}
	w.opened.Store(true)
	w.balance()
	var tasks sync.WaitGroup
	tasks.Go(w.feed)
	tasks.Go(w.disturb)
	tasks.Go(w.housekeep)
	tasks.Wait()
	w.calm.Store(true)
	w.note("calm")
	// Lost changes stay lost; late ones must come now.
	for i := range w.slots {
		w.start(i)
	}
	w.balance()
	drained := w.drain()
	if w.setup.period > 0 && drained == nil {
		w.idle[0] = time.Now()
		time.Sleep(2*w.setup.period + 2*lapTime)
		w.idle[1] = time.Now()
		drained = w.drain()
	}
	report := Report{Seed: seed, Events: w.events(), Records: w.inbox.size()}
	w.mu.Lock()
	report.Lines = slices.Clone(w.lines)
	w.mu.Unlock()
	w.stop()
	if n := w.running.Load(); n > 0 && drained == nil {
		drained = fmt.Errorf("%d functions still run after the end", n)
	}
	report.Faults = w.faults
	if drained != nil {
		report.Violation = drained
		return report
	}
	report.Changes, report.Violation = w.check()
	return report
}

// balance lets every group give its partitions.
func (w *world) balance() {
	for _, g := range []*group{w.ingests, w.works} {
		g.balance()
	}
}

// open makes what processes share.
func (w *world) open() error {
	s := w.setup
	ctx := context.Background()
	if err := w.activate(&w.configuration); err != nil {
		return err
	}
	if s.deploys {
		next := w.variants[s.next]
		w.later = &next
	}
	for _, c := range []*configuration{&w.configuration, w.later} {
		for i := 0; c != nil && i < len(c.plan.Services); i++ {
			if name := c.plan.Services[i].Name; w.customer(name) == nil {
				w.sinks = append(w.sinks, newCustomer(w, name))
			}
		}
	}
	w.inbox = newTopic(inboxTopic, "id-inbox", s.inboxParts)
	if _, err := w.mem.ResolveInbox(ctx, inboxTopic, w.inbox.id, int32(s.inboxParts), nil); err != nil {
		return err
	}
	// The laboratory pushes: its events have no positions.
	w.sources = []*topic{newTopic("registry", "id-registry", s.registryParts)}
	if s.variant.lab {
		w.sources = append(w.sources, newTopic("lab", "", 1))
	}
	if s.variant.tables {
		w.database = newDatabase(w)
	}
	w.gate = gate.NewMemory(24*time.Hour, 10)
	w.ingests = newGroup(w, "ingest", w.sources)
	w.works = newGroup(w, "work", []*topic{w.inbox})
	w.slots = make([]*process, s.processes)
	d := w.dice("crashes")
	for range s.crashes {
		w.crashAt[10+d.n(10+12*s.events)] = true
	}
	return nil
}

func (w *world) traits(service string) sinks.Traits {
	t := sinks.Traits{Kind: sinks.Log, MaxBatch: w.setup.maxBatch, Guarded: w.setup.guarded}
	switch service {
	case stateService:
		t.Kind = sinks.State
		t.Guarded = t.Guarded && !w.setup.polite()
	case dumbService:
		t.Guarded = false
	}
	return t
}

// live returns the living processes.
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

// busy returns the unfinished work; empty when all is done.
func (w *world) busy() string {
	for _, g := range []*group{w.ingests, w.works} {
		if why := g.behind(); why != "" {
			return why
		}
	}
	if n := w.flying.Load(); n > 0 {
		return fmt.Sprint(n, " requests are under way")
	}
	if w.database != nil {
		why := ""
		_ = w.mem.look(context.Background(), func(s *state) {
			why = w.database.behind(func(id string) string { return s.document(id, shop) })
		})
		if why != "" {
			return why
		}
	}
	for _, p := range w.live() {
		if d := p.decider.Load(); d == nil || !d.Idle() {
			return p.name + " decides"
		}
		switch s := p.stage.Load(); {
		case s == nil:
			return p.name + " delivers nothing"
		case !s.Idle():
			return "changes are in the hands of services of " + p.name
		case len(s.Behind()) > 0:
			return fmt.Sprint("services of ", p.name, " are behind: ", s.Behind())
		}
	}
	return w.mem.undone(w.inbox, w.newest().plan.Services, func(service string, p int32, to change.Version) bool {
		old := slices.ContainsFunc(w.plan.Services, func(s decide.Service) bool { return s.Name == service })
		return !old && to.Offset() <= w.since[p]
	})
}

func (w *world) events() int {
	n := 0
	for _, s := range w.sources {
		n += s.size()
	}
	return n
}

// stop ends all processes at once: nothing is left to do.
func (w *world) stop() {
	w.mu.Lock()
	w.over = true
	w.mu.Unlock()
	for _, p := range w.live() {
		p.dead.Store(true)
	}
	w.end()
	// Sleeping goroutines wake up once more and end: virtual time does not move
	// when the bubble's first goroutine has returned.
	time.Sleep(time.Minute)
}

var _ store.Store = (*client)(nil)
