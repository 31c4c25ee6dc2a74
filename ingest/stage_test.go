package ingest_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/gate"
	"github.com/seed-86dfc502/weir/inbox"
	"github.com/seed-86dfc502/weir/ingest"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/tracing"
	"github.com/seed-86dfc502/weir/transport"
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
	stop  func()

	mu       sync.Mutex
	happened []string
	inbox    []string // entity=payload
	letters  []store.DeadLetter
	appends  func() error // nil works
	lettered func() error
	gateDown bool
	seq      uint64
	parents  []string // traceparent of the messages that are handed in next, by their places
	traces   []string // of each record: the headers behind the first
}

func (w *world) note(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.happened = append(w.happened, what)
}

func (w *world) Append(ctx context.Context, records []transport.Record) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.appends != nil {
		if err := w.appends(); err != nil {
			w.happened = append(w.happened, "append failed")
			return err
		}
	}
	w.happened = append(w.happened, fmt.Sprint("append ", len(records)))
	for _, r := range records {
		w.inbox = append(w.inbox, string(r.Key)+"="+string(r.Value))
		if r.Topic != "weir.inbox" || len(r.Headers) == 0 || r.Headers[0].Key != inbox.Header {
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
	if err := g.w.down(); err != nil {
		return nil, err
	}
	return g.Memory.Seen(ctx, entries)
}

func (g watchedGate) Mark(ctx context.Context, entries []gate.Entry) error {
	if err := g.w.down(); err != nil {
		return err
	}
	g.w.note(fmt.Sprint("mark ", len(entries)))
	return g.Memory.Mark(ctx, entries)
}

func newWorld(t *testing.T) *world { return newTracedWorld(t, nil) }

func newTracedWorld(t *testing.T, tracer *tracing.Tracer) *world {
	w := &world{t: t, reg: prometheus.NewRegistry()}
	memory, err := gate.NewMemory(gate.MemoryOptions{})
	require.NoError(t, err)
	w.gate = watchedGate{memory, w}
	w.stage = ingest.New(ingest.Options{
		Shape: shape(t), Gate: w.gate, Inbox: w, Topic: "weir.inbox", Letters: w,
		Logger: slog.New(slog.DiscardHandler), Metrics: ingest.NewMetrics(w.reg), Tracer: tracer,
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = w.stage.Run(ctx) }()
	w.stop = func() { cancel(); <-done }
	t.Cleanup(w.stop)
	return w
}

// hand hands events in as one source partition has them.
func (w *world) hand(values ...string) []<-chan error {
	results := make([]<-chan error, len(values))
	first := w.seq
	w.seq += uint64(len(values))
	for i := len(values) - 1; i >= 0; i-- {
		m := message.NewMessage(fmt.Sprint(i), []byte(values[i]))
		p := position
		p.Offset, p.Claim, p.Seq = int64(first)+int64(i), 1, first+uint64(i)
		if i < len(w.parents) {
			m.Metadata.Set("traceparent", w.parents[i])
		}
		m.SetContext(transport.WithPosition(context.Background(), p))
		result := make(chan error, 1)
		results[i] = result
		go func() { result <- w.stage.Handle(m) }()
	}
	return results
}

func (w *world) take(values ...string) {
	w.t.Helper()
	for _, r := range w.hand(values...) {
		select {
		case err := <-r:
			require.NoError(w.t, err)
		case <-time.After(patience):
			require.FailNow(w.t, "an event was not taken in")
		}
	}
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
	require.EqualValues(t, 1, w.metric("weir_ingested_total", ingest.OutcomeRepeated))
}

// What the gate would stop one by one it stops within one batch: an old
// repetition could stand behind more events than the fence remembers.
func TestRepetitionInOneBatch(t *testing.T) {
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

func TestFailedAppendIsRepeatedInOrder(t *testing.T) {
	w := newWorld(t)
	failures := 2
	w.appends = func() error {
		if failures--; failures >= 0 {
			return errDown
		}
		return nil
	}
	var values, want []string
	for i := range 50 {
		values = append(values, event(fmt.Sprint(i), fmt.Sprint("B", i), "1"))
		want = append(want, fmt.Sprintf("B%d=1", i))
	}
	w.take(values...)
	require.Equal(t, want, w.entities())
	story := w.story()
	require.Equal(t, []string{"append failed", "append failed"}, story[:2])
	require.NotContains(t, story[2], "mark")
}

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
	require.Len(t, w.letters, 2)
	require.EqualValues(t, 2, w.metric("weir_ingested_total", ingest.OutcomeDead))
}

func TestStopWhileTheInboxIsAway(t *testing.T) {
	w := newWorld(t)
	w.appends = func() error { return errDown }
	result := w.hand(event("1", "B", "1"))[0]
	require.Eventually(t, func() bool { return len(w.story()) > 1 }, patience, time.Millisecond)
	w.stop()
	require.ErrorIs(t, <-result, errDown, "it is not acknowledged")
	require.NotContains(t, w.story(), "mark 1")
	seen, err := w.gate.Seen(t.Context(), []gate.Entry{{Source: "registry", EventID: "1"}})
	require.NoError(t, err)
	require.Equal(t, []bool{false}, seen)
}
