package imports

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/ingest"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRowsAreTakenInOnceAndInOrder(t *testing.T) {
	w := newWorld(t)
	text, payloads := many(2*perChunk + 5)
	i := w.file(JSONL, Options{}, text)
	worker := w.worker()
	w.step(worker)
	require.Equal(t, payloads, w.effects)
	got := w.found(i)
	require.Equal(t, store.ImportDone, got.State)
	require.Equal(t, store.ImportCounts{Accepted: int64(len(payloads))}, got.Counts)
	require.Equal(t, []string{""}, w.errorsOf(i, JSONL))
	worked, err := worker.Step(t.Context())
	require.NoError(t, err)
	require.False(t, worked)
	require.True(t, worker.Idle())
	require.Len(t, payloads, w.records)
}

func TestEveryRowHasItsResult(t *testing.T) {
	w := newWorld(t)
	earlier := w.file(JSONL, Options{}, `{"id":"old","event":"e-old","n":1}`)
	w.step(w.worker())
	require.Equal(t, store.ImportDone, w.found(earlier).State)
	w.effects = nil
	i := w.file(JSONL, Options{}, strings.Join([]string{
		`{"id":"a","event":"1","n":1}`,
		`{"n":1, "event":"1","id":"a"}`,      // the same, spelled differently
		`{"id":"a","event":"1","n":2}`,       // other content under the id
		`{"id":"old","event":"e-old","n":1}`, // taken in by another file
		`{"id":"old","event":"e-old","n":2}`,
		`{"id":"old","event":"e-old","n":1}`,
		`{"id":`,
		``,
		`{"n":1}`,
		strings.Repeat("x", maxRow+1),
		`{"id":"b"}`, // without event id: each row is an event of its own
		`{"id":"b"}`,
	}, "\n"))
	w.step(w.worker())
	got := w.found(i)
	require.Equal(t, store.ImportCounts{Accepted: 3, Duplicate: 3, Invalid: 3, Conflicting: 2}, got.Counts)
	require.Equal(t, []string{`{"id":"a","event":"1","n":1}`, `{"id":"b"}`, `{"id":"b"}`}, w.effects)
	lines := w.errorsOf(i, JSONL)
	require.Len(t, lines, 8)
	require.Equal(t, `{"row":2,"line":2,"status":"duplicate","reason":"row 1 has the same event"}`, lines[0])
	require.Equal(t, `{"row":3,"line":3,"status":"conflicting","reason":"row 1 has the same event id and other content"}`, lines[1])
	require.Equal(t, `{"row":4,"line":4,"status":"duplicate","reason":"the event was taken in before"}`, lines[2])
	require.Equal(t, `{"row":5,"line":5,"status":"conflicting","reason":"row 4 has the same event id and other content"}`, lines[3])
	require.Equal(t, `{"row":6,"line":6,"status":"duplicate","reason":"row 4 has the same event"}`, lines[4])
	require.Contains(t, lines[5], `{"row":7,"line":7,"status":"invalid","reason":"bad_json: `)
	require.Contains(t, lines[6], `{"row":8,"line":9,"status":"invalid","reason":"no_entity: `)
	require.Equal(t, `{"row":9,"line":10,"status":"invalid","reason":"oversized: the row is larger than an event of the source may be"}`, lines[7])
	table := w.errorsOf(i, CSV)
	require.Equal(t, "row,line,status,reason", table[0])
	require.Equal(t, "2,2,duplicate,row 1 has the same event", table[1])
	require.Len(t, table, 9)
}

// A row whose id conflicts in the ledger decides nothing about later rows with
// the same id: they are compared with what the ledger has.
func TestRowsBehindAConflictAreComparedWithTheLedger(t *testing.T) {
	w := newWorld(t)
	w.file(JSONL, Options{}, `{"id":"a","event":"1","n":1}`)
	w.step(w.worker())
	i := w.file(JSONL, Options{}, `{"id":"a","event":"1","n":2}`+"\n"+`{"id":"a","event":"1","n":1}`+"\n"+`{"id":"a","event":"1","n":2}`+"\n"+`{"id":"a","event":"1","n":1}`)
	w.step(w.worker())
	require.Equal(t, store.ImportCounts{Duplicate: 2, Conflicting: 2}, w.found(i).Counts)
	require.Len(t, w.effects, 1)
}

func TestCSVGoesOnFromItsCursor(t *testing.T) {
	w := newWorld(t)
	var b strings.Builder
	const first = 2*perChunk + 7
	b.WriteString("id,doc.n,pad\r\n")
	for n := range first {
		fmt.Fprintf(&b, "e-%d,%d,%s\r\n", n, n, pad)
	}
	b.WriteString("e-x\r\ne-y,no number,\r\n\"e-\nz\",1,\r\n")
	i := w.file(CSV, Options{Types: map[string]Type{"doc.n": Number}}, b.String())
	for range 3 { // each step of a worker of its own
		stopAfterOneChunk(w)
	}
	got := w.found(i)
	require.Equal(t, store.ImportDone, got.State)
	require.Equal(t, store.ImportCounts{Accepted: first + 1, Invalid: 2}, got.Counts)
	require.EqualValues(t, 3, got.Chunks)
	require.Equal(t, `{"id":"e-46","doc":{"n":46},"pad":"`+pad+`"}`, w.effects[46])
	require.Equal(t, `{"id":"e-\nz","doc":{"n":1},"pad":""}`, w.effects[47])
	require.Equal(t, []string{
		"row,line,status,reason",
		`48,49,invalid,"bad_csv: the row has 1 cells, the header has 3"`,
		`49,50,invalid,"bad_csv: the cell of column ""doc.n"" is no JSON number"`,
	}, w.errorsOf(i, CSV))
}

// stopAfterOneChunk runs a worker that is stopped when it wants the second chunk.
func stopAfterOneChunk(w *world) {
	w.Helper()
	ctx, cancel := context.WithCancel(w.Context())
	defer cancel()
	worker := w.worker()
	worker.opt.Store = &stopping{w.store, cancel, 0}
	_, _ = worker.Step(ctx)
}

type stopping struct {
	store.Imports
	cancel func()
	chunks int
}

func (s *stopping) ImportChunk(ctx context.Context, id store.ClaimID, n int64) ([]byte, error) {
	if s.chunks++; s.chunks > 1 {
		s.cancel()
		return nil, ctx.Err()
	}
	return s.Imports.ImportChunk(ctx, id, n)
}

// A worker that ends anywhere in a chunk leaves rows that are appended, or
// answered, and not recorded. The next one does the chunk again: each row has one
// effect, and is told as accepted, once.
func TestAChunkIsDoneAgain(t *testing.T) {
	fail := errors.New("killed")
	for name, kill := range map[string]func(w *world, worker *Worker){
		"before the append":    func(w *world, _ *Worker) { w.appends = once(fail) },
		"after the append":     func(w *world, _ *Worker) { w.after = once(fail) },
		"after the completion": func(_ *world, worker *Worker) { worker.opt.Store = &noStep{Imports: worker.opt.Store} },
		"with an unknown end": func(_ *world, worker *Worker) {
			worker.opt.Store, worker.opt.Lease = &noStep{Imports: worker.opt.Store, really: true}, 300*time.Millisecond
		},
		"without giving leases": func(w *world, worker *Worker) {
			w.after = once(fail)
			w.taker.Ledger = noAbandon{w.taker.Ledger}
			w.taker.Lease = 50 * time.Millisecond
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			text, payloads := many(perChunk + 10)
			i := w.file(JSONL, Options{}, text+payloads[0])
			first := w.worker()
			kill(w, first)
			ctx, cancel := context.WithCancel(t.Context())
			first.opt.Intake = killed{w.taker, cancel}
			_, _ = first.Step(ctx)
			cancel()
			for w.found(i).State != store.ImportDone {
				_, err := w.worker().Step(t.Context())
				require.NoError(t, err)
			}
			require.Equal(t, payloads, w.effects)
			require.Equal(t, store.ImportCounts{Accepted: int64(len(payloads)), Duplicate: 1}, w.found(i).Counts)
			require.Len(t, w.errorsOf(i, JSONL), 1)
		})
	}
}

func once(err error) func(int) error {
	return func(int) error { e := err; err = nil; return e }
}

// killed is an intake whose process ends with its first error.
type killed struct {
	Intake
	die func()
}

func (k killed) Take(ctx context.Context, i store.Import, rows []Row) ([]Result, error) {
	results, err := k.Intake.Take(ctx, i, rows)
	if err != nil {
		k.die()
	}
	return results, err
}

// noStep loses its first steps; really says that they were written.
type noStep struct {
	store.Imports
	really bool
	lost   bool
}

func (n *noStep) StepImport(ctx context.Context, s store.ImportStep) error {
	if n.lost || s.Next == 0 {
		return n.Imports.StepImport(ctx, s) // the lease is given back
	}
	n.lost = true
	if n.really {
		if err := n.Imports.StepImport(ctx, s); err != nil {
			return err
		}
	}
	return store.WithClass(errDown, store.Unknown)
}

// noAbandon is the ledger of a process that is killed before it can end leases.
type noAbandon struct{ store.Ledger }

func (noAbandon) AbandonClaims(context.Context, string, []store.ClaimID) error { return errDown }

// A worker that is held up loses its lease: another one takes the import, and
// the steps and the late appends of the first change nothing.
func TestAWorkerThatWasHeldUp(t *testing.T) {
	w := newWorld(t)
	text, payloads := many(20)
	i := w.file(JSONL, Options{}, text)
	held, goOn := make(chan struct{}), make(chan struct{})
	slow := w.worker()
	slow.opt.Lease = 10 * time.Millisecond
	slow.opt.Intake = intakeFunc(func(ctx context.Context, i store.Import, rows []Row) ([]Result, error) {
		results, err := w.taker.Take(ctx, i, rows)
		close(held)
		<-goOn
		return results, err
	})
	slow.opt.Store = noBeat{w.store}
	done := make(chan struct{})
	go func() {
		defer close(done)
		worked, err := slow.Step(t.Context())
		assert.NoError(t, err)
		assert.True(t, worked)
	}()
	<-held
	for worked := false; !worked; { // once the lease is over
		var err error
		worked, err = w.worker().Step(t.Context())
		require.NoError(t, err)
	}
	close(goOn)
	<-done
	got := w.found(i)
	require.Equal(t, store.ImportDone, got.State)
	require.EqualValues(t, 2, got.Attempt)
	require.Equal(t, store.ImportCounts{Accepted: 20}, got.Counts)
	require.Equal(t, payloads, w.effects)
}

// noBeat lets no sign of life through: a step that moves nothing.
type noBeat struct{ store.Imports }

func (n noBeat) StepImport(ctx context.Context, s store.ImportStep) error {
	if s.Next == 0 {
		return errDown
	}
	return n.Imports.StepImport(ctx, s)
}

type intakeFunc func(ctx context.Context, i store.Import, rows []Row) ([]Result, error)

func (f intakeFunc) Take(ctx context.Context, i store.Import, rows []Row) ([]Result, error) {
	return f(ctx, i, rows)
}

// A long chunk does not lose its lease, and a cancel ends it in the middle.
func TestSignsOfLife(t *testing.T) {
	w := newWorld(t)
	i := w.file(JSONL, Options{}, "{}")
	worker := w.worker()
	worker.opt.Lease = 300 * time.Millisecond
	beats := &counted{Imports: w.store}
	worker.opt.Store = beats
	worker.opt.Intake = intakeFunc(func(ctx context.Context, _ store.Import, _ []Row) ([]Result, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		worked, err := worker.Step(t.Context())
		assert.NoError(t, err, "a cancelled import is no failure")
		assert.True(t, worked)
	}()
	require.Eventually(t, func() bool { return beats.load() >= 3 }, time.Minute, 10*time.Millisecond)
	_, err := w.store.CancelImport(t.Context(), tenant, i.ID)
	require.NoError(t, err)
	<-done
	require.Equal(t, store.ImportCancelled, w.found(i).State)
}

func TestAnImportThatCannotGoOn(t *testing.T) {
	w := newWorld(t)
	i := w.file(JSONL, Options{}, `{"id":"a"}`)
	other := w.worker()
	other.opt.Intake = &Taker{Shape: func(string) (*ingest.Extractor, error) { return nil, &GoneError{"there is no source lab"} }}
	w.step(other)
	got := w.found(i)
	require.Equal(t, store.ImportFailed, got.State)
	require.Equal(t, "there is no source lab", got.Failure)
	require.NotEqual(t, i.ID, w.file(JSONL, Options{}, `{"id":"a"}`).ID, "it can be tried again")
}

// I12: rows are taken apart under the active configuration only. A worker whose own is
// replaced, between two chunks or while it waits with one, ends no import, gives back
// what it has, and takes no other.
func TestAnotherConfigurationIsActive(t *testing.T) {
	for name, replace := range map[string]func(w *world, replace func()){
		"between two chunks": func(w *world, replace func()) { w.after = func(int) error { replace(); return nil } },
		"while the inbox is away": func(w *world, replace func()) {
			fail := once(errDown)
			w.appends = func(n int) error { replace(); return fail(n) }
		},
		"without its source": func(w *world, replace func()) {
			w.taker.Shape = func(string) (*ingest.Extractor, error) { return nil, &GoneError{"there is no source lab"} }
			replace()
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			text, payloads := many(2 * perChunk)
			i := w.file(JSONL, Options{}, text)
			old, right := w.worker(), *w.taker
			var active error
			old.opt.Active = func(context.Context) error { return active }
			replace(w, func() { active = store.ErrSuperseded })
			for range 2 {
				worked, err := old.Step(t.Context())
				require.ErrorIs(t, err, store.ErrSuperseded)
				require.False(t, worked)
			}
			require.Contains(t, []store.ImportState{store.ImportQueued, store.ImportRunning}, w.found(i).State)
			require.LessOrEqual(t, w.found(i).Attempt, int64(1))
			w.appends, w.after, w.taker = nil, nil, &right
			w.step(w.worker()) // at once: the lease was given back
			require.Equal(t, store.ImportDone, w.found(i).State)
			require.Equal(t, payloads, w.effects)
		})
	}
}

// The log says once why imports wait, and not that they go on while none may be taken.
func TestRunSaysThatAnotherConfigurationIsActive(t *testing.T) {
	w := newWorld(t)
	var log bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	worker := w.worker()
	worker.opt.Logger = slog.New(slog.NewTextHandler(&log, nil))
	worker.opt.Active = func(context.Context) error { return store.ErrSuperseded }
	looks := 0
	worker.opt.May = func() bool {
		if looks++; looks > 3 {
			cancel()
		}
		return looks <= 2
	}
	worker.Run(ctx)
	require.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
	require.Contains(t, log.String(), "another configuration revision is active")
}

// Run goes on by itself when what it needs is there again, and ends when it is
// told to, also in the middle of work that does not end.
func TestRun(t *testing.T) {
	w := newWorld(t)
	failures := 3
	w.appends = func(int) error {
		if failures--; failures >= 0 {
			return errDown
		}
		return nil
	}
	i := w.file(JSONL, Options{}, `{"id":"a"}`)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	first := w.worker()
	first.opt.Store = unhurried{w.store}
	go func() { defer close(done); first.Run(ctx) }()
	require.Eventually(t, func() bool { return w.found(i).State == store.ImportDone }, time.Minute, 5*time.Millisecond)
	w.mu.Lock()
	w.appends = func(int) error { return errDown }
	w.mu.Unlock()
	second := w.file(JSONL, Options{}, `{"id":"b"}`)
	require.Eventually(t, func() bool { return w.found(second).State == store.ImportRunning }, time.Minute, 5*time.Millisecond)
	cancel()
	<-done
	require.Len(t, w.effects, 1)
	w.appends = nil
	w.step(w.worker()) // at once: the lease was given back
	require.Equal(t, store.ImportDone, w.found(second).State)
}

// unhurried returns leases, however long that takes.
type unhurried struct{ store.Imports }

func (u unhurried) StepImport(ctx context.Context, s store.ImportStep) error {
	return u.Imports.StepImport(context.WithoutCancel(ctx), s)
}

// held is an intake that keeps the rows of one source until it is let go on.
type held struct {
	Intake
	source string
	began  chan struct{}
	goOn   chan struct{}
}

func (h *held) Take(ctx context.Context, i store.Import, rows []Row) ([]Result, error) {
	if i.Source == h.source {
		h.began <- struct{}{}
		select {
		case <-h.goOn:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return slices.Repeat([]Result{{Status: Accepted}}, len(rows)), nil
}

// While one worker of a process has a long import, another one works off those
// of other sources; of the same source none.
func TestALongImportHoldsUpItsSourceOnly(t *testing.T) {
	w := newWorld(t)
	h := &held{source: "long", began: make(chan struct{}, 100), goOn: make(chan struct{})}
	file := func(source, text string) store.Import {
		i, _, err := Receive(t.Context(), w.store, File{
			Tenant: tenant, Source: source, Format: JSONL, MaxRow: maxRow, MaxSize: 1 << 20,
		}, strings.NewReader(text))
		require.NoError(t, err)
		return i
	}
	long, behind := file("long", "1\n"), file("long", "2\n")
	var small []store.Import
	for n := range 5 {
		small = append(small, file(fmt.Sprint("small", n), "1\n"))
	}
	opt := WorkerOptions{
		Store: w.store, Intake: h, Lease: time.Minute, Poll: time.Millisecond,
		Logger: slog.New(slog.DiscardHandler), Metrics: NewMetrics(prometheus.NewRegistry()),
	}
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	for range 2 {
		all.Go(func() { NewWorker(opt).Run(ctx) })
	}
	<-h.began
	ended := func(i store.Import) bool { return w.found(i).State == store.ImportDone }
	for _, i := range small {
		require.Eventually(t, func() bool { return ended(i) }, time.Minute, 5*time.Millisecond)
	}
	require.Equal(t, store.ImportRunning, w.found(long).State)
	require.Equal(t, store.ImportQueued, w.found(behind).State, "rows of a source keep the order of their files")
	close(h.goOn)
	require.Eventually(t, func() bool { return ended(long) && ended(behind) }, time.Minute, 5*time.Millisecond)
}

// turns notes whose chunks are taken.
type turns struct{ taken []string }

func (t *turns) Take(_ context.Context, i store.Import, rows []Row) ([]Result, error) {
	t.taken = append(t.taken, i.Source)
	results := make([]Result, len(rows))
	for n := range results {
		results[n] = Result{Status: Accepted}
	}
	return results, nil
}

// A large file does not keep the others waiting until its end: imports take turns.
func TestImportsTakeTurns(t *testing.T) {
	w := newWorld(t)
	file, _ := many(3 * perChunk)
	for _, source := range []string{"large", "small", "other"} {
		_, _, err := Receive(t.Context(), w.store, File{Tenant: tenant, Source: source, Format: JSONL, MaxRow: maxRow, MaxSize: 1 << 30}, strings.NewReader(file))
		require.NoError(t, err)
	}
	var seen turns
	worker := NewWorker(WorkerOptions{
		Store: w.store, Intake: &seen, Lease: time.Minute, Turn: time.Nanosecond, Logger: slog.New(slog.DiscardHandler), Metrics: NewMetrics(prometheus.NewRegistry()),
	})
	for range 20 {
		worked, err := worker.Step(t.Context())
		require.NoError(t, err)
		if !worked {
			break
		}
	}
	want := []string{"large", "small", "other"}
	require.Equal(t, slices.Concat(want, want, want), seen.taken[:9])
	open, err := w.store.OpenImports(t.Context())
	require.NoError(t, err)
	require.Zero(t, open, "all of them end")
}
