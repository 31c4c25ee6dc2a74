package deliver_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/inbox"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/store/sqlite"
	"github.com/seed-86dfc502/weir/transport"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("database/sql.(*DB).connectionOpener"))
}

const service = "acme/all@out"

// patience bounds every wait.
const patience = 60 * time.Second

// sink keeps what it was given and answers as told.
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
	defer s.mu.Unlock()
	if s.open != nil {
		return s.open()
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
	return append([]string(nil), s.taken...)
}

func (s *sink) attempts() [][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([][]string(nil), s.writes...)
}

// fixture is a deliverer over a real store.
type fixture struct {
	t      *testing.T
	store  store.Store
	number int32
	sink   *sink
	reg    *prometheus.Registry
	d      *deliver.Deliverer
	stop   func()

	superseded atomic.Int32

	mu       sync.Mutex
	offset   int64 // of the next record
	controls []inbox.Control
	events   []string // order of releases and letters
	confirms []int    // sizes of confirmations
}

func (f *fixture) AddLetters(ctx context.Context, letters []store.DeadLetter) error {
	f.mu.Lock()
	for _, l := range letters {
		f.events = append(f.events, "letter "+l.Entity)
	}
	f.mu.Unlock()
	return f.store.AddLetters(ctx, letters)
}

func (f *fixture) Active(ctx context.Context) (store.Revision, error) { return f.store.Active(ctx) }

// recording is the store with the fixture's eye on letters and confirmations.
type recording struct {
	store.Deliveries
	*fixture
}

type confirming struct {
	store.Deliveries
	f *fixture
}

func (c confirming) Confirm(ctx context.Context, items []store.Confirmation) error {
	err := c.Deliveries.Confirm(ctx, items)
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	if err == nil {
		c.f.confirms = append(c.f.confirms, len(items))
	}
	return err
}

func newFixture(t *testing.T, traits sinks.Traits) *fixture { return newFixtureOf(t, traits, 1) }

// newFixtureOf is one whose configuration has another revision than the first,
// which all changes have.
func newFixtureOf(t *testing.T, traits sinks.Traits, revision int64) *fixture {
	return newFixtureWith(t, traits, revision, func(*deliver.Options) {})
}

// newFixtureWith is one with other options.
func newFixtureWith(t *testing.T, traits sinks.Traits, revision int64, with func(*deliver.Options)) *fixture {
	f := &fixture{t: t, sink: &sink{traits: traits}, reg: prometheus.NewRegistry()}
	s, err := sqlite.Open(t.Context(), sqlite.Options{Path: filepath.Join(t.TempDir(), "state.db")})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Migrate(t.Context()))
	numbers, err := s.Services(t.Context(), []string{service})
	require.NoError(t, err)
	for n := range revision {
		_, err := s.Activate(t.Context(), []byte{byte(n)}, false)
		require.NoError(t, err)
	}
	f.store, f.number = s, numbers[service]
	f.start(revision, with)
	return f
}

// restart is the next process: the same store, and a sink that took nothing yet.
func (f *fixture) restart() *fixture {
	next := &fixture{t: f.t, sink: &sink{traits: f.sink.traits}, reg: prometheus.NewRegistry(), store: f.store, number: f.number, offset: f.offset}
	next.start(1, func(*deliver.Options) {})
	return next
}

func (f *fixture) start(revision int64, with func(*deliver.Options)) {
	confirmer := deliver.NewConfirmer(confirming{f.store, f}, slog.New(slog.DiscardHandler))
	opt := deliver.Options{
		Service: service, Number: f.number, Sink: f.sink, Store: recording{f.store, f}, Confirmer: confirmer,
		Revision: revision, Superseded: func() { f.superseded.Add(1) },
		Control: func(_ context.Context, entity string, c inbox.Control) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.controls = append(f.controls, c)
			f.events = append(f.events, string(c.Action)+" "+entity)
			return nil
		},
		Retry:  deliver.Retry{Attempts: 3, MinBackoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond},
		Logger: slog.New(slog.DiscardHandler), Metrics: deliver.NewMetrics(f.reg), StopGrace: 10 * time.Millisecond,
	}
	with(&opt)
	f.d = deliver.New(opt)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { confirmer.Run(ctx) })
	running, stopRunning := context.WithCancel(context.Background())
	var deliverer sync.WaitGroup
	deliverer.Go(func() { _ = f.d.Run(running) })
	f.stop = sync.OnceFunc(func() { stopRunning(); deliverer.Wait(); cancel(); wg.Wait() })
	f.t.Cleanup(f.stop)
}

// change makes one whose dam row was decided with it.
func (f *fixture) change(entity string, offset int64) change.Change {
	doc := []byte(fmt.Sprintf(`{"n":%d}`, offset))
	digest, err := canonicaltree.Sum(doc, canonicaltree.Literal)
	require.NoError(f.t, err)
	c := change.Change{
		Service: service, Entity: entity, Op: change.Upsert, Version: change.NewVersion(1, offset),
		Content: change.Hashed(canonicaltree.Scheme, digest), Time: time.Now(), Doc: doc, Revision: 1,
	}
	c.Key = change.Key(c.Service, c.Entity, c.Version, c.Content)
	_, err = f.store.CompareAndSwap(f.t.Context(), []store.Check{{Key: f.key(entity), Content: c.Content, Version: c.Version}})
	require.NoError(f.t, err)
	return c
}

func (f *fixture) key(entity string) store.Key { return store.Key{Service: f.number, Entity: entity} }

// hand hands in the next frame of the topic, with one record of these changes,
// and returns what will become of it.
func (f *fixture) hand(changes ...change.Change) <-chan error {
	return f.handFrame(f.frame(record(changes...)))
}

// record is what decide publishes of one decision.
func record(changes ...change.Change) transport.Received {
	var b []byte
	for i := range changes {
		b = changes[i].AppendBinary(b)
	}
	return transport.Received{Value: change.AppendPacked(nil, b)}
}

// frame is the next one of the first partition.
func (f *fixture) frame(records ...transport.Received) *transport.Frame {
	for i := range records {
		records[i].Offset = f.offset
		f.offset++
	}
	return transport.NewFrame("changes", "id", 0, 1, records)
}

// waitedFor tells when somebody waits for the end of a context: Handle does when
// its frame lies in the queue.
type waitedFor struct {
	context.Context
	waits func()
}

func (w waitedFor) Done() <-chan struct{} { w.waits(); return w.Context.Done() }

// handFrame returns when the frame waits to be delivered.
func (f *fixture) handFrame(frame *transport.Frame) <-chan error {
	return f.handFrameUnder(context.Background(), frame)
}

func (f *fixture) handFrameUnder(ctx context.Context, frame *transport.Frame) <-chan error {
	result := make(chan error, 1)
	queued := make(chan struct{})
	waits := sync.OnceFunc(func() { close(queued) })
	m := transport.NewMessage(waitedFor{ctx, waits}, frame)
	go func() { result <- f.d.Handle(m); waits() }()
	<-queued
	return result
}

func (f *fixture) await(result <-chan error) error {
	f.t.Helper()
	select {
	case err := <-result:
		return err
	case <-time.After(patience):
		require.FailNow(f.t, "a frame was not delivered")
		return nil
	}
}

func (f *fixture) done(result <-chan error) {
	f.t.Helper()
	require.NoError(f.t, f.await(result))
}

func (f *fixture) row(entity string) store.Row {
	rows, err := f.store.Rows(f.t.Context(), []store.Key{f.key(entity)})
	require.NoError(f.t, err)
	return rows[0]
}

func (f *fixture) letters() []store.DeadLetter {
	letters, err := f.store.ListLetters(f.t.Context(), store.LetterFilter{})
	require.NoError(f.t, err)
	return letters
}

func (f *fixture) order() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.events...)
}

func (f *fixture) count(outcome string) float64 { return f.metric("weir_deliveries_total", outcome) }

// metric sums the series of a name that have a label of this value, or all.
func (f *fixture) metric(name, label string) (sum float64) {
	families, err := f.reg.Gather()
	require.NoError(f.t, err)
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

var state = sinks.Traits{Kind: sinks.State, MaxBatch: 100, Linger: 20 * time.Millisecond}

func refuse(class sinks.Class, ambiguous bool) *sinks.Error {
	return &sinks.Error{Class: class, Ambiguous: ambiguous, Op: "test", Err: errors.New("no")}
}

func TestStateSinkGetsTheNewestVersion(t *testing.T) {
	f := newFixture(t, state)
	// By version, not by place: a change that comes late is left out.
	x1, x3, x2, y := f.change("X", 1), f.change("X", 3), f.change("X", 2), f.change("Y", 2)
	f.done(f.hand(x1, y, x3, x2))
	has := f.sink.has()
	require.Contains(t, has, "Y:2")
	require.Equal(t, "X:3", lastOf(has, "X"))
	require.Equal(t, change.NewVersion(1, 3), f.row("X").DeliveredVersion)
	require.Equal(t, x3.Content, f.row("X").Delivered)

	// Confirmed already: skipped without an attempt.
	attempts := len(f.sink.attempts())
	f.done(f.hand(x1, x3, x2))
	require.Len(t, f.sink.attempts(), attempts)
	require.GreaterOrEqual(t, f.count(deliver.OutcomeSkipped), 3.0)
}

func lastOf(names []string, entity string) (last string) {
	for _, n := range names {
		if n[:len(entity)] == entity {
			last = n
		}
	}
	return last
}

func TestLogSinkGetsEveryChangeInOrder(t *testing.T) {
	f := newFixture(t, sinks.Traits{Kind: sinks.Log, MaxBatch: 3})
	fails := 4
	f.sink.answer(func(changes []change.Change) error {
		if fails--; fails > 0 {
			return refuse(sinks.Retry, true)
		}
		return nil
	})
	var changes []change.Change
	var want []string
	for i := range int64(10) {
		changes = append(changes, f.change("X", i+1))
		want = append(want, fmt.Sprintf("X:%d", i+1))
	}
	f.done(f.hand(changes...))
	require.Equal(t, want, f.sink.has())
	for _, w := range f.sink.attempts() {
		require.LessOrEqual(t, len(w), 3)
	}
}

func TestRefusedChangeIsFoundByBisection(t *testing.T) {
	f := newFixture(t, state)
	f.sink.answer(func(changes []change.Change) error {
		for _, c := range changes {
			if c.Entity == "bad" {
				return refuse(sinks.Reject, false)
			}
		}
		return nil
	})
	changes := []change.Change{f.change("bad", 9)}
	for i := range 20 {
		changes = append(changes, f.change(fmt.Sprint("e", i), int64(i+1)))
	}
	f.done(f.hand(changes...))
	require.Len(t, f.sink.has(), 20)
	letters := f.letters()
	require.Len(t, letters, 1)
	require.Equal(t, store.StageDeliver, letters[0].Stage)
	require.Equal(t, "refused", letters[0].Code)
	require.Equal(t, "bad", letters[0].Entity)
	require.Equal(t, []string{"release bad", "letter bad"}, f.order(), "a crash in between repeats both")
	require.Equal(t, inbox.Release, f.controls[0].Action)
	require.Equal(t, []string{service}, f.controls[0].Services)
	require.Equal(t, change.NewVersion(1, 9), f.controls[0].Version)
	require.Zero(t, f.row("bad").DeliveredVersion)
	shown, err := f.store.Letter(t.Context(), letters[0].ID)
	require.NoError(t, err)
	require.Equal(t, string(changes[0].AppendRecord(nil)), string(shown.Payload))
}

func TestBoundedAttemptsEndInALetter(t *testing.T) {
	f := newFixture(t, state)
	f.sink.answer(func(changes []change.Change) error {
		failed := map[int]error{}
		for i, c := range changes {
			if c.Entity == "bad" {
				failed[i] = refuse(sinks.RetryBounded, true)
			}
		}
		if len(failed) == 0 {
			return nil
		}
		return &sinks.BatchError{Failed: failed}
	})
	f.done(f.hand(f.change("bad", 1), f.change("good", 1)))
	require.Equal(t, []string{"good:1"}, f.sink.has())
	tries := 0
	for _, w := range f.sink.attempts() {
		for _, n := range w {
			if n == "bad:1" {
				tries++
			}
		}
	}
	require.Equal(t, 3, tries)
	require.Equal(t, "gave_up", f.letters()[0].Code)
	require.EqualValues(t, 1, f.count(deliver.OutcomeDead))
}

func TestPauseAndGoOn(t *testing.T) {
	f := newFixture(t, state)
	f.sink.answer(func([]change.Change) error { return refuse(sinks.Pause, false) })
	results := f.hand(f.change("X", 1))
	require.Eventually(t, func() bool { return f.d.State() == deliver.StatePaused }, patience, time.Millisecond)
	require.Eventually(t, func() bool { return len(f.sink.attempts()) > 5 }, patience, time.Millisecond, "it is probed")
	require.EqualValues(t, 1, f.metric("weir_service_paused", ""))
	require.Empty(t, f.letters())
	f.sink.answer(nil)
	f.done(results)
	require.Equal(t, deliver.StateRunning, f.d.State())
}

func TestRetryLeavesOutWhatWasOvertaken(t *testing.T) {
	f := newFixture(t, state)
	f.sink.answer(func([]change.Change) error { return refuse(sinks.Retry, true) })
	old := f.hand(f.change("X", 1))
	require.Eventually(t, func() bool { return len(f.sink.attempts()) > 0 }, patience, time.Millisecond)
	newer := f.change("X", 2) // decided while the first one is being tried
	f.done(old)
	require.Empty(t, f.sink.has())
	require.EqualValues(t, 1, f.count(deliver.OutcomeOvertaken))
	f.sink.answer(nil)
	f.done(f.hand(newer))
	require.Equal(t, []string{"X:2"}, f.sink.has())
}

func TestOpenIsTriedAgain(t *testing.T) {
	f := newFixture(t, state)
	tries := 0
	f.sink.open = func() error {
		if tries++; tries < 3 {
			return refuse(sinks.Pause, false)
		}
		return nil
	}
	f.done(f.hand(f.change("X", 1)))
	require.Equal(t, []string{"X:1"}, f.sink.has())
	require.Equal(t, 3, tries)
}

func TestStopWhileTheSinkIsAway(t *testing.T) {
	f := newFixture(t, state)
	f.sink.answer(func([]change.Change) error { return refuse(sinks.Retry, false) })
	results := f.hand(f.change("X", 1))
	require.Eventually(t, func() bool { return len(f.sink.attempts()) > 0 }, patience, time.Millisecond)
	f.stop()
	require.Error(t, f.await(results), "it comes again")
	require.True(t, f.sink.closed)
	require.Zero(t, f.row("X").DeliveredVersion)
	require.Empty(t, f.letters())
}
