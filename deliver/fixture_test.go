package deliver_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/store/sqlite"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("database/sql.(*DB).connectionOpener"))
}

const service = "acme/all@out"

// patience bounds every wait: below the minute that a fault of tests/mutants has to be found in.
const patience = 45 * time.Second

// sink records its writes and answers as configured.
type sink struct {
	traits sinks.Traits

	mu     sync.Mutex
	write  func(changes []change.Change) error // nil takes everything
	open   func() error
	writes [][]string // as entity:version, whatever the answer
	taken  []string
	closed bool
}

func (s *sink) Traits() sinks.Traits { return s.traits }

func (s *sink) Open(context.Context) error {
	s.mu.Lock()
	open := s.open
	s.mu.Unlock()
	if open != nil {
		return open()
	}
	return nil
}

func name(c change.Change) string { return fmt.Sprintf("%s:%d", c.Entity, c.Version.Offset()) }

func (s *sink) Write(ctx context.Context, changes []change.Change) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := make([]string, len(changes))
	for i, c := range changes {
		names[i] = name(c)
	}
	s.writes = append(s.writes, names)
	var err error
	if s.write != nil {
		err = s.write(changes)
	}
	var be *sinks.BatchError
	for i, n := range names {
		if err == nil || errors.As(err, &be) && be.Failed[i] == nil {
			s.taken = append(s.taken, n)
		}
	}
	return err
}

func (s *sink) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

func (s *sink) answer(f func([]change.Change) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write = f
}

func (s *sink) has() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.taken)
}

func (s *sink) attempts() [][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.writes)
}

// world is what outlives a process: the store, with the log of one partition.
type world struct {
	t     testing.TB
	store interface {
		store.Store
		store.Operations
		store.Attempts
	}
	token   store.Token
	part    store.Partition
	next    int64        // inbox offset to decide
	inbox   atomic.Int64 // its end
	prev    change.Version
	numbers map[string]int32

	written []int               // bytes of each frame of the log
	spoil   func([]byte) []byte // frames, if given

	mu       sync.Mutex
	running  []*deliver.Stage // that frames are handed to
	controls []change.Control
	events   []string // order of control records and letters
}

func newWorld(t testing.TB, services ...string) *world {
	s, err := sqlite.Open(t.Context(), sqlite.Options{Path: filepath.Join(t.TempDir(), "state.db")})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Migrate(t.Context()))
	w := &world{t: t, store: s, token: store.Token{1}, part: store.Partition{Generation: 1}}
	w.numbers, err = s.Services(t.Context(), services)
	require.NoError(t, err)
	_, err = s.TakeOver(t.Context(), []store.Partition{w.part}, w.token)
	require.NoError(t, err)
	w.activate(1)
	return w
}

func (w *world) activate(revision int64) {
	r, err := w.store.Activate(w.t.Context(), []byte{byte(revision)}, false, store.Inbox{}, nil)
	require.NoError(w.t, err)
	require.Equal(w.t, revision, r.Number)
}

func (w *world) AddLetters(ctx context.Context, letters []store.DeadLetter) error {
	w.mu.Lock()
	for _, l := range letters {
		w.events = append(w.events, "letter "+l.Entity)
	}
	w.mu.Unlock()
	return w.store.AddLetters(ctx, letters)
}

func (w *world) DueLetters(ctx context.Context, services []string, after int64, limit int) ([]store.DeadLetter, error) {
	return w.store.DueLetters(ctx, services, after, limit)
}

func (w *world) Letter(ctx context.Context, id int64) (store.DeadLetter, error) {
	return w.store.Letter(ctx, id)
}

// recording is the store with the world's eye on letters.
type recording struct {
	store.Deliveries
	*world
}

func (w *world) Admit(ctx context.Context, a store.Admission) ([]store.Admitted, *store.Pause, error) {
	return w.store.Admit(ctx, a)
}

func (w *world) Offered(ctx context.Context, ids []int64) error { return w.store.Offered(ctx, ids) }

// SwapProgress notes the letters that it wrote.
func (r recording) SwapProgress(ctx context.Context, revision int64, swaps []store.ProgressSwap) ([]bool, error) {
	done, err := r.Deliveries.SwapProgress(ctx, revision, swaps)
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range done {
		for _, l := range swaps[i].Letters {
			if done[i] {
				r.events = append(r.events, "letter "+l.Entity)
			}
		}
	}
	return done, err
}

func (w *world) control(_ context.Context, controls ...change.Record) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range controls {
		w.controls = append(w.controls, *c.Control)
		w.events = append(w.events, string(c.Control.Action)+" "+c.Entity)
	}
	return nil
}

func (w *world) order() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.events)
}

// of makes a change of a service that an inbox offset causes.
func of(service, entity string, offset int64) change.Change {
	doc := fmt.Appendf(nil, `{"n":%d}`, offset)
	digest, err := canonicaltree.Sum(doc, canonicaltree.Literal)
	if err != nil {
		panic(err)
	}
	c := change.Change{
		Service: service, Entity: entity, Op: change.Upsert, Version: change.NewVersion(1, offset),
		Content: change.Hashed(canonicaltree.Scheme, digest), Time: time.Now().UTC().Truncate(time.Millisecond), Doc: doc, Revision: 1,
	}
	c.Key = change.Key(c.Service, c.Entity, c.Version, c.Content)
	return c
}

func at(offset int64) change.Version { return change.NewVersion(1, offset) }

// encode makes a frame.
func (w *world) encode(h change.Frame, changes ...change.Change) *store.Frame {
	slices.SortStableFunc(changes, func(a, b change.Change) int { return int(w.numbers[a.Service] - w.numbers[b.Service]) })
	var b change.FrameBuilder
	for i := range changes {
		b.Add(w.numbers[changes[i].Service], &changes[i])
	}
	return &store.Frame{Partition: w.part, To: h.To, Body: b.AppendTo(nil, h)}
}

// decide moves the watermark behind the changes and writes their dam rows and their frame, which it
// returns. Its changes must be of offsets at or above the watermark.
func (w *world) decide(changes ...change.Change) *store.Frame {
	return w.decideFrom(w.next, changes...)
}

// decideFrom is decide of a frame that begins lower, as a restored store may have it.
func (w *world) decideFrom(from int64, changes ...change.Change) *store.Frame {
	w.t.Helper()
	to := w.next + 1
	rows := map[store.Key]change.Change{}
	for _, c := range changes {
		to = max(to, c.Position().Offset()+1)
		if c.Resent == 0 {
			rows[store.Key{Service: w.numbers[c.Service], Entity: c.Entity}] = c
		}
	}
	byEntity := map[string]bool{}
	for k := range rows {
		byEntity[k.Entity] = true
	}
	active, err := w.store.Active(w.t.Context())
	require.NoError(w.t, err)
	frame := w.encode(change.Frame{From: at(from), To: at(to), Prev: min(w.prev, at(from)), Revision: active.Number}, changes...)
	if w.spoil != nil {
		frame.Body = w.spoil(frame.Body)
	}
	d := store.Decision{Revision: active.Number, Moves: []store.WatermarkStep{{Partition: w.part, From: w.next, To: to, Token: w.token}}, Entities: slices.Sorted(maps.Keys(byEntity))}
	err = w.store.Decide(w.t.Context(), d, func(loaded store.Loaded) (store.Outcome, error) {
		for i := range loaded.Entities {
			e := &loaded.Entities[i]
			for k, c := range rows {
				if k.Entity == e.ID {
					has := e.States.Get(k.Service)
					e.States.Set(store.Row{Key: k, Content: c.Content, Version: max(has.Version, c.Version)})
				}
			}
		}
		return store.Outcome{Frames: []store.Frame{*frame}, Entities: loaded.Entities}, nil
	})
	require.NoError(w.t, err)
	w.next, w.prev, w.written = to, at(to), append(w.written, len(frame.Body))
	w.inbox.Store(max(to, w.inbox.Load()))
	return frame
}

// publish decides changes and hands their frame over.
func (w *world) publish(changes ...change.Change) {
	w.t.Helper()
	w.handOver(w.decide(changes...))
}

func (w *world) handOver(f *store.Frame) {
	w.mu.Lock()
	running := slices.Clone(w.running)
	w.mu.Unlock()
	for _, s := range running {
		s.HandOver(f)
	}
}

// expire removes the oldest frames of the log, by its size.
func (w *world) expire(n int) {
	left := int64(0)
	for _, bytes := range w.written[n:] {
		left += int64(bytes)
	}
	w.written = w.written[n:]
	dropped, err := w.store.DropFrames(w.t.Context(), time.Time{}, max(left, 1))
	require.NoError(w.t, err)
	require.EqualValues(w.t, n, dropped)
}

func (w *world) letters() []store.DeadLetter {
	letters, err := w.store.ListLetters(w.t.Context(), store.LetterFilter{})
	require.NoError(w.t, err)
	return letters
}

// concluded waits until there are so many open letters, and no change waits for an attempt.
func (p *process) concluded(open int) {
	p.t.Helper()
	require.Eventually(p.t, func() bool {
		n := 0
		for _, l := range p.letters() {
			if l.State != store.LetterOpen {
				return false
			}
			n++
		}
		return n == open && p.stage.Idle()
	}, patience, time.Millisecond, "%d letters", open)
}

// position is the one that the store has of a service.
func (w *world) position(service string) change.Version {
	rows, err := w.store.AllProgress(w.t.Context())
	require.NoError(w.t, err)
	for _, r := range rows {
		for _, p := range r.Positions {
			if p.Service == w.numbers[service] {
				return p.Version
			}
		}
	}
	return 0
}

// process is one that delivers services of a world.
type process struct {
	*world
	sinks map[string]*sink
	reg   *prometheus.Registry
	stage *deliver.Stage
	stop  func() error

	superseded atomic.Int32
	handled    atomic.Int64 // frames that were handed out
	handling   sync.WaitGroup
	halt       context.CancelFunc
	ended      chan struct{} // closed when Run returned
	errs       chan error    // of Handle
}

func retry() deliver.Retry {
	return deliver.Retry{For: 20 * time.Millisecond, MinBackoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond}
}

// seldom lets attempts follow one another so slowly that nothing is given up in a test.
func seldom(o *deliver.Options) {
	for i := range o.Services {
		o.Services[i].Retry = deliver.Retry{MinBackoff: 100 * time.Millisecond, MaxBackoff: 100 * time.Millisecond}
	}
}

// patiently lets no change be given up in a test.
func patiently(o *deliver.Options) {
	for i := range o.Services {
		o.Services[i].Retry.For = 0
	}
}

// start makes a process that has the partition and follows the log.
func (w *world) start(traits map[string]sinks.Traits, with ...func(*deliver.Options)) *process {
	p := &process{world: w, sinks: map[string]*sink{}, reg: prometheus.NewRegistry(), errs: make(chan error, 1000)}
	opt := deliver.Options{
		Revision: 1, Superseded: func() { p.superseded.Add(1) },
		Store: recording{w.store, w}, Control: w.control, Feed: transport.GroupConfig{ID: "changes", Topic: "changes", CloseTimeout: time.Second, Limit: context.Background()},
		Partition: func(string, change.Version) int32 { return 0 },
		InboxEnd:  func(context.Context, int32) (change.Version, error) { return at(w.inbox.Load()), nil },
		StopGrace: 10 * time.Millisecond, Logger: slog.New(slog.DiscardHandler), Metrics: deliver.NewMetrics(p.reg),
	}
	for name, t := range traits {
		p.sinks[name] = &sink{traits: t}
		opt.Services = append(opt.Services, deliver.Service{Name: name, Number: w.numbers[name], Sink: p.sinks[name], Retry: retry()})
	}
	for _, f := range with {
		f(&opt)
	}
	p.stage = deliver.New(opt)
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	p.ended = make(chan struct{})
	go func() { defer close(p.ended); result <- p.stage.Run(ctx) }()
	following, halt := context.WithCancel(context.Background())
	p.halt = halt
	p.stop = sync.OnceValue(func() error {
		halt()
		p.handling.Wait()
		cancel()
		return <-result
	})
	w.t.Cleanup(func() { _ = p.stop() })
	messages, err := p.stage.Subscriber().Subscribe(following, "changes")
	require.NoError(w.t, err)
	p.handling.Go(func() { p.follow(messages) })
	require.NoError(w.t, p.stage.Assigned(w.t.Context(), []int32{0}))
	w.mu.Lock()
	w.running = append(w.running, p.stage)
	w.mu.Unlock()
	return p
}

// follow handles messages as a router does.
func (p *process) follow(messages <-chan *message.Message) {
	for m := range messages {
		if err := p.stage.Handle(m); err != nil {
			select {
			case p.errs <- err:
			default:
			}
			m.Nack()
			continue
		}
		f, _ := transport.FrameOf(m)
		p.handled.Add(int64(len(f.Records)))
		m.Ack()
	}
}

// only is a process with one service, and its sink.
func only(t *testing.T, traits sinks.Traits, with ...func(*deliver.Options)) (*process, *sink) {
	p := newWorld(t, service).start(map[string]sinks.Traits{service: traits}, with...)
	return p, p.sinks[service]
}

// delivered waits until the store has it that a service got everything.
func (p *process) delivered(services ...string) {
	p.t.Helper()
	if len(services) == 0 {
		services = []string{service}
	}
	for _, s := range services {
		require.Eventually(p.t, func() bool { return p.position(s) >= p.prev }, patience, time.Millisecond, "%s got everything", s)
	}
}

func (p *process) count(outcome string) float64 { return p.metric("weir_deliveries_total", outcome) }

// metric sums the series of a name that have a label of this value, or all.
func (p *process) metric(name, label string) (sum float64) {
	families, err := p.reg.Gather()
	require.NoError(p.t, err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			has := label == ""
			for _, l := range m.GetLabel() {
				has = has || l.GetValue() == label
			}
			if has && family.GetName() == name {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

var state = sinks.Traits{Kind: sinks.State, MaxBatch: 100}

func logOf(batch int) sinks.Traits { return sinks.Traits{Kind: sinks.Log, MaxBatch: batch} }

// refuse returns a failure. One to retry that is not ambiguous is that of a target that takes no connection.
func refuse(class sinks.Class, ambiguous bool) *sinks.Error {
	return &sinks.Error{Class: class, Ambiguous: ambiguous, Unreachable: class == sinks.Retry && !ambiguous, Op: "test", Err: errors.New("no")}
}

// many are changes of as many entities, with the offsets from first on.
func many(first int64, n int) (changes []change.Change, names []string) {
	for i := range n {
		c := of(service, fmt.Sprint("e", i), first+int64(i))
		changes, names = append(changes, c), append(names, name(c))
	}
	return changes, names
}
