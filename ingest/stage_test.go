package ingest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/ingest"
	"github.com/seed-86dfc502/weir/ingest/gate"
	"github.com/seed-86dfc502/weir/internal/tracing"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait.
const patience = 60 * time.Second

// world is everything that a stage talks to, and what happened in its order.
type world struct {
	t     *testing.T
	gate  gate.Gate
	stage *ingest.Stage
	reg   *prometheus.Registry

	mu       sync.Mutex
	happened []string
	inbox    []string // entity=payload
	letters  []store.DeadLetter
	appends  func(context.Context) error // nil works
	lettered func() error
	gateDown bool
	gateMute bool         // it answers and takes no marks
	log      bytes.Buffer // of the stage; none writes while a test reads
	asked    func()       // before the gate answers; nil does nothing
	offset   int64
	inboxIs  string   // its identity
	parents  []string // traceparent of the events that are handed in next, by their places
	traces   []string // of each record: the headers behind the first
}

func (w *world) note(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.happened = append(w.happened, what)
}

func (w *world) Append(ctx context.Context, records []transport.Record) error {
	if appends := w.appends; appends != nil { // without the lock: it may take its time
		if err := appends(ctx); err != nil {
			w.note("append failed")
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.happened = append(w.happened, fmt.Sprint("append ", len(records)))
	for _, r := range records {
		w.inbox = append(w.inbox, string(r.Key)+"="+string(r.Value))
		if r.Topic != "weir.inbox" || len(r.Headers) == 0 || r.Headers[0].Key != change.InboxHeader {
			w.happened = append(w.happened, "a wrong record")
			continue
		}
		trace := ""
		for _, h := range r.Headers[1:] {
			trace += h.Key + " " + string(h.Value)
		}
		w.traces = append(w.traces, trace)
	}
	return nil
}

func (w *world) AddLetters(_ context.Context, letters []store.DeadLetter) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lettered != nil {
		if err := w.lettered(); err != nil {
			return err
		}
	}
	w.letters = append(w.letters, letters...)
	w.happened = append(w.happened, fmt.Sprint("letters ", len(letters)))
	return nil
}

var errDown = errors.New("down")

func (w *world) down() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gateDown {
		return errDown
	}
	return nil
}

// watchedGate is the real memory gate with the world's eye on it.
type watchedGate struct {
	*gate.Memory
	w *world
}

func (g watchedGate) Seen(ctx context.Context, entries []gate.Entry) ([]bool, error) {
	if asked := g.w.asked; asked != nil {
		asked()
	}
	if err := g.w.down(); err != nil {
		return nil, err
	}
	return g.Memory.Seen(ctx, entries)
}

func (g watchedGate) Mark(ctx context.Context, entries []gate.Entry) error {
	if err := g.w.down(); err != nil {
		return err
	}
	g.w.mu.Lock()
	mute := g.w.gateMute
	g.w.mu.Unlock()
	if mute {
		return errDown
	}
	g.w.note(fmt.Sprint("mark ", len(entries)))
	return g.Memory.Mark(ctx, entries)
}

func newWorld(t *testing.T) *world { return newTracedWorld(t, nil) }

func newTracedWorld(t *testing.T, tracer *tracing.Tracer) *world {
	return newWorldWith(t, func(o *ingest.Options) { o.Tracer = tracer })
}

func newWorldWith(t *testing.T, with func(*ingest.Options)) *world {
	w := &world{t: t, reg: prometheus.NewRegistry(), inboxIs: "a/1"}
	w.gate = watchedGate{gate.NewMemory(time.Hour, 1000), w}
	opt := ingest.Options{
		Extractor: shape(t), Gate: w.gate, Inbox: w, Topic: "weir.inbox", Letters: w,
		InboxID: func() string { return w.inboxIs },
		Logger:  slog.New(slog.NewTextHandler(&w.log, nil)), Metrics: ingest.NewMetrics(w.reg),
	}
	with(&opt)
	w.stage = ingest.New(opt)
	return w
}

// frame is the next one of the source, of events with these values.
func (w *world) frame(values ...string) *transport.Frame {
	records := make([]transport.Received, len(values))
	for i, v := range values {
		records[i] = transport.Received{Value: []byte(v), Offset: w.offset}
		w.offset++
		if i < len(w.parents) {
			records[i].Headers = []transport.Header{{Key: "traceparent", Value: []byte(w.parents[i])}}
		}
	}
	return frame(records...)
}

// hand hands a frame in and returns what will become of it.
func (w *world) hand(ctx context.Context, f *transport.Frame) <-chan error {
	result := make(chan error, 1)
	go func() { result <- w.stage.Handle(transport.NewMessage(ctx, f)) }()
	return result
}

func (w *world) await(result <-chan error) error {
	w.t.Helper()
	select {
	case err := <-result:
		return err
	case <-time.After(patience):
		require.FailNow(w.t, "a frame was not taken in")
		return nil
	}
}

func (w *world) takeFrame(f *transport.Frame) {
	w.t.Helper()
	require.NoError(w.t, w.await(w.hand(context.Background(), f)))
}

// take takes events in as one frame.
func (w *world) take(values ...string) {
	w.t.Helper()
	w.takeFrame(w.frame(values...))
}

func (w *world) entities() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.inbox...)
}

func (w *world) story() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.happened...)
}

func (w *world) metric(name, label string) (sum float64) {
	families, err := w.reg.Gather()
	require.NoError(w.t, err)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			for _, l := range m.GetLabel() {
				if family.GetName() == name && l.GetValue() == label {
					sum += m.GetCounter().GetValue()
				}
			}
		}
	}
	return sum
}

func event(id, entity, doc string) string {
	return fmt.Sprintf(`{"m":{"id":%q,"event":%q},"d":%s}`, entity, id, doc)
}

func TestMarkComesAfterTheAppend(t *testing.T) {
	w := newWorld(t)
	w.take(event("1", "B", `{"a":1}`))
	require.Equal(t, []string{"append 1", "mark 1"}, w.story())
	w.take(event("1", "B", `{"a":1,"updated_at":5}`), event("1", "B", `{"a":2}`))
	require.Equal(t, []string{`B={"a":1}`, `B={"a":2}`}, w.entities(), "the same id with other content is another event")
	require.EqualValues(t, 1, w.metric("weir_ingest_events_total", ingest.OutcomeRepeated))
}

// Events of a lost inbox may come again. The mistake that this catches: the gate rejects
// them for as long as it remembers.
func TestMarksAreOfAnInbox(t *testing.T) {
	w := newWorld(t)
	take := func() []string {
		w.take(event("1", "B", `1`))
		return w.entities()
	}
	require.Len(t, take(), 1)
	require.Len(t, take(), 1)
	w.inboxIs = "b/1"
	require.Len(t, take(), 2)
	require.Len(t, take(), 2)
}

// Duplicates that the gate rejects one by one are rejected within one frame: an old
// one could follow more events than the fence remembers.
func TestRepetitionInOneFrame(t *testing.T) {
	w := newWorld(t)
	w.take(event("1", "B", `1`), event("2", "B", `2`), event("1", "B", `1`), event("2", "B", `3`), event("2", "B", `2`), event("2", "B", `2`))
	require.Equal(t, []string{"B=1", "B=2", "B=3", "B=2"}, w.entities())
}

func TestGateDownLetsThroughAndCounts(t *testing.T) {
	w := newWorld(t)
	w.take(event("1", "B", `1`))
	w.gateDown = true
	w.take(event("1", "B", `1`), `{"m":{"id":"B"},"d":2}`)
	require.Equal(t, []string{"B=1", "B=1", "B=2"}, w.entities())
	require.EqualValues(t, 1, w.metric("weir_gate_unchecked_total", "registry"), "an event without id is not the gate's")
	w.mu.Lock()
	w.gateDown = false
	w.mu.Unlock()
	w.take(event("1", "B", `1`))
	require.Len(t, w.entities(), 3)
}

// The mistake that this catches: a Valkey that only reads was "not answering" and
// "answering again" with every batch, 99 lines for 50, and in no metric.
func TestAGateThatTakesNoMarksIsSaidOnceAndCounted(t *testing.T) {
	w := newWorld(t)
	w.mu.Lock()
	w.gateMute = true
	w.mu.Unlock()
	for i := range 50 {
		w.take(event(fmt.Sprint(i), "B", `1`), event(fmt.Sprint(i, "b"), "C", `1`))
	}
	require.Len(t, w.entities(), 100)
	require.EqualValues(t, 100, w.metric("weir_gate_unmarked_total", "registry"))
	require.EqualValues(t, 0, w.metric("weir_gate_unchecked_total", "registry"), "it was asked, and answered")
	require.Equal(t, 1, strings.Count(w.log.String(), "event=gate."), w.log.String())
	w.mu.Lock()
	w.gateMute = false
	w.mu.Unlock()
	w.take(event("x", "B", `2`))
	w.take(event("y", "B", `3`))
	require.Equal(t, 2, strings.Count(w.log.String(), "event=gate."), w.log.String())
	require.Contains(t, w.log.String(), "event=gate.read_only")
	require.Contains(t, w.log.String(), "event=gate.writable")
}

// many are so many events of as many entities, and their inbox records.
func many(n int) (values, inbox []string) {
	for i := range n {
		values = append(values, event(fmt.Sprint(i), fmt.Sprint("B", i), "1"))
		inbox = append(inbox, fmt.Sprintf("B%d=1", i))
	}
	return values, inbox
}

// The events of a frame are parsed by several goroutines, and are in the
// inbox in their order, by one append.
func TestAFrameKeepsItsOrder(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	w := newWorld(t)
	values, want := many(2000)
	for i := 0; i < len(values); i += 100 { // not all of them take the same time
		values[i] = event(fmt.Sprint(i), fmt.Sprint("B", i), strings.Repeat(" ", 100)+"1")
	}
	w.take(values...)
	require.Equal(t, want, w.entities())
	require.Equal(t, []string{"append 2000", "mark 2000"}, w.story())
}

func TestFailedAppendIsRepeatedInOrder(t *testing.T) {
	w := newWorld(t)
	failures := 2
	w.appends = func(context.Context) error {
		if failures--; failures >= 0 {
			return errDown
		}
		return nil
	}
	values, want := many(50)
	w.take(values...)
	require.Equal(t, want, w.entities())
	story := w.story()
	require.Equal(t, []string{"append failed", "append failed"}, story[:2])
	require.NotContains(t, story[2], "mark")
}

// Letters are durable before anything of their frame is in the inbox.
func TestBrokenEventsBlockNothing(t *testing.T) {
	w := newWorld(t)
	failures := 1
	w.lettered = func() error {
		if failures--; failures >= 0 {
			return errDown
		}
		return nil
	}
	w.take(event("1", "A", "1"), `{`, event("2", "B", "1"), `{"d":1}`, event("3", "C", "1"))
	require.Equal(t, []string{"A=1", "B=1", "C=1"}, w.entities())
	require.Equal(t, []string{"letters 2", "append 3", "mark 3"}, w.story())
	require.Equal(t, []int64{1, 3}, []int64{w.letters[0].Offset, w.letters[1].Offset})
	require.EqualValues(t, 2, w.metric("weir_ingest_events_total", ingest.OutcomeDead))
}

func TestLettersThatCannotBeStoredHoldUpTheirFrame(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	failures := 0
	w.lettered = func() error {
		if failures++; failures == 2 {
			cancel()
		}
		return errDown
	}
	require.ErrorIs(t, w.await(w.hand(ctx, w.frame(event("1", "A", "1"), `{`))), errDown)
	require.Empty(t, w.story())
}

func (w *world) marked(ids ...string) (marked []bool) {
	entries := make([]gate.Entry, len(ids))
	for i, id := range ids {
		entries[i] = gate.Entry{Source: "1/registry", EventID: id}
	}
	seen, err := w.gate.Seen(w.t.Context(), entries)
	require.NoError(w.t, err)
	return seen
}

// A frame whose append fails until the end of its message is refused as a
// whole, nothing of it is marked, and all of it is taken in when it comes again.
func TestStopWhileTheInboxIsAway(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	failures := 0
	w.appends = func(context.Context) error {
		if failures++; failures == 2 {
			cancel()
		}
		return errDown
	}
	f := w.frame(event("1", "A", "1"), `{`, event("2", "B", "1"))
	require.ErrorIs(t, w.await(w.hand(ctx, f)), errDown, "it is not acknowledged")
	require.Equal(t, []string{"letters 1", "append failed", "append failed"}, w.story())
	require.Equal(t, []bool{false, false}, w.marked("1", "2"))
	w.appends = nil
	w.takeFrame(f.Redelivered())
	require.Equal(t, []string{"A=1", "B=1"}, w.entities())
	require.Equal(t, w.letters[0].DedupKey, w.letters[1].DedupKey, "its letter is the same one")
}

// No append begins too late.
func TestAFrameWhoseMessageHasEnded(t *testing.T) {
	w := newWorld(t)
	ended, end := context.WithCancelCause(context.Background())
	end(errDown)
	require.ErrorIs(t, w.await(w.hand(ended, w.frame(event("1", "A", "1"), `{`))), errDown)
	require.Empty(t, w.story())
	require.True(t, w.stage.Idle())

	// It ends while the gate is asked: another process has the partition by then.
	ctx, cancel := context.WithCancelCause(context.Background())
	w.asked = func() { cancel(errDown) }
	require.ErrorIs(t, w.await(w.hand(ctx, w.frame(event("1", "A", "1")))), errDown)
	require.Empty(t, w.story())
}

func TestAMessageWithoutAFrame(t *testing.T) {
	w := newWorld(t)
	require.Error(t, w.stage.Handle(message.NewMessage("", []byte(event("1", "A", "1")))))
	require.Empty(t, w.story())
}

// Frames of several partitions are in work at the same time; a stage is idle
// when none is.
func TestFramesDoNotWaitForEachOther(t *testing.T) {
	w := newWorld(t)
	require.True(t, w.stage.Idle())
	held, release := make(chan struct{}), make(chan struct{})
	var first atomic.Bool
	w.appends = func(context.Context) error {
		if !first.Swap(true) {
			close(held)
			<-release
		}
		return nil
	}
	slow := w.hand(context.Background(), w.frame(event("1", "A", "1")))
	<-held
	w.takeFrame(transport.NewFrame("registry.events", "T1", 4, 2, []transport.Received{{Value: []byte(event("2", "B", "1"))}}))
	require.Equal(t, []string{"B=1"}, w.entities())
	require.False(t, w.stage.Idle())
	close(release)
	require.NoError(t, w.await(slow))
	require.Equal(t, []string{"B=1", "A=1"}, w.entities())
	require.True(t, w.stage.Idle())
}

// An append that does not answer is given up when the time for a shutdown is over.
func TestLimitEndsAnAppend(t *testing.T) {
	limit, over := context.WithCancel(context.Background())
	w := newWorldWith(t, func(o *ingest.Options) { o.Limit = limit })
	ctx, cancel := context.WithCancel(context.Background())
	w.appends = func(append context.Context) error {
		cancel() // the message ends while the append is under way
		over()
		<-append.Done()
		return context.Cause(append)
	}
	require.ErrorIs(t, w.await(w.hand(ctx, w.frame(event("1", "A", "1")))), context.Canceled)
	require.Equal(t, []string{"append failed"}, w.story())
}
