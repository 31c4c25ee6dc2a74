package imports

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/internal/defaults"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/store"
)

// Intake takes the rows of a chunk in, see Taker.Take.
type Intake interface {
	Take(ctx context.Context, i store.Import, rows []Row) ([]Result, error)
}

// GoneError says in one sentence, without payload, that an import can never continue, for
// a reason that is not a row's: its source is gone. An Intake returns it.
type GoneError struct{ Reason string }

func (e *GoneError) Error() string { return e.Reason }

// WorkerOptions of a Worker.
type WorkerOptions struct {
	Store  store.Imports
	Intake Intake
	// May reports whether work may be taken now; optional.
	May func() bool
	// Active returns store.ErrSuperseded when another configuration is active than the
	// one by which Intake takes rows apart. It is asked before work is taken and before
	// each try at a chunk; optional.
	Active func(ctx context.Context) error
	// Lease is how long an import is kept from other workers after the last sign
	// of life; a third of it lies between two. Defaults to 30s.
	Lease time.Duration
	// Turn is how long an import is worked on while others wait; then it goes
	// behind them. Defaults to 30s.
	Turn time.Duration
	// Poll is how often work is looked for. Defaults to 1s.
	Poll    time.Duration
	Logger  *slog.Logger
	Metrics *Metrics
}

// Worker works off imports, one at a time, in turn with the workers of other
// processes.
type Worker struct {
	opt  WorkerOptions
	idle atomic.Bool
}

// NewWorker makes one.
func NewWorker(opt WorkerOptions) *Worker {
	opt.Lease = defaults.Positive(opt.Lease, 30*time.Second)
	opt.Turn = defaults.Positive(opt.Turn, 30*time.Second)
	opt.Poll = defaults.Positive(opt.Poll, time.Second)
	if opt.May == nil {
		opt.May = func() bool { return true }
	}
	if opt.Active == nil {
		opt.Active = func(context.Context) error { return nil }
	}
	return &Worker{opt: opt}
}

// Idle reports whether the worker found nothing to do when it looked last.
func (w *Worker) Idle() bool { return w.idle.Load() }

// Run works until ctx ends. The chunk under way is then given up: another worker
// does it again, at once, since its lease is given back.
func (w *Worker) Run(ctx context.Context) {
	failing := false
	for ctx.Err() == nil {
		if !w.opt.May() {
			wait.Sleep(ctx, w.opt.Poll)
			continue
		}
		worked, err := w.Step(ctx)
		switch {
		case err != nil && ctx.Err() == nil && !failing:
			w.opt.Logger.Warn("imports wait until it works again", "error", err)
		case err == nil && failing:
			w.opt.Logger.Info("imports go on")
		}
		failing = err != nil
		if !worked {
			wait.Sleep(ctx, w.opt.Poll)
		}
	}
}

// Step works one import off, if there is one to take. An error means that the
// store did not answer, or that another configuration is active; what was begun goes
// on with the next Step of some worker.
func (w *Worker) Step(ctx context.Context) (worked bool, err error) {
	if err := w.opt.Active(ctx); err != nil {
		return false, fmt.Errorf("import: %w", err)
	}
	i, err := w.opt.Store.TakeImport(ctx, w.opt.Lease)
	if errors.Is(err, store.ErrNotFound) {
		w.idle.Store(true)
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("import: %w", err)
	}
	w.idle.Store(false) // before that a look found nothing, and the import is open until it is done
	w.opt.Logger.Info("import taken up", "import", i.ID, "source", i.Source, "attempt", i.Attempt, "chunk", i.Next, "of", i.Chunks)
	r := &run{
		WorkerOptions: w.opt, i: i,
		last: store.ImportStep{ID: i.ID, Attempt: i.Attempt, Next: i.Next, Row: i.Row, Cursor: i.Cursor, Counts: i.Counts, State: store.ImportRunning, Lease: w.opt.Lease},
	}
	err = r.work(ctx)
	switch {
	case errors.Is(err, store.ErrFenced):
		w.opt.Logger.Info("import left to others, or cancelled", "import", i.ID)
		return true, nil
	case err != nil:
		return false, fmt.Errorf("import %s: %w", i.ID, err)
	}
	return true, nil
}

// run is one import under one lease.
type run struct {
	WorkerOptions
	i       store.Import
	decoder *decoder // of CSV

	mu   sync.Mutex
	last store.ImportStep // guarded by mu: what the store has
}

// work goes from chunk to chunk.
func (r *run) work(ctx context.Context) (err error) {
	ctx, lost := context.WithCancelCause(ctx)
	var beat sync.WaitGroup
	beat.Go(func() { r.beat(ctx, lost) })
	defer func() {
		if cause := context.Cause(ctx); errors.Is(cause, store.ErrFenced) {
			err = cause
		}
		lost(nil)
		beat.Wait()
		if err != nil && !errors.Is(err, store.ErrFenced) {
			r.release(ctx)
		}
	}()
	for began := time.Now(); r.last.State == store.ImportRunning; {
		if time.Since(began) >= r.Turn && r.last.Next > r.i.Next && r.othersWait(ctx) {
			r.release(ctx) // there is more of it, in a later turn
			return nil
		}
		if r.last.Next >= r.i.Chunks {
			return r.end(ctx, store.ImportDone, "")
		}
		step, err := r.chunk(ctx)
		var gone *GoneError
		switch {
		case errors.As(err, &gone):
			return r.end(ctx, store.ImportFailed, gone.Reason)
		case store.ClassOf(err) == store.Poison:
			return r.end(ctx, store.ImportFailed, "the store cannot hold an event of the file")
		case err != nil:
			return err
		}
		if err := r.step(ctx, step); err != nil {
			return err
		}
	}
	return nil
}

// othersWait reports whether there are imports beside this one.
func (r *run) othersWait(ctx context.Context) bool {
	n, err := r.Store.OpenImports(ctx)
	return err == nil && n > 1
}

// beat shows signs of life while a chunk is worked on.
func (r *run) beat(ctx context.Context, lost context.CancelCauseFunc) {
	tick := time.NewTicker(r.Lease / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		r.mu.Lock()
		s := r.last
		var err error
		if s.State == store.ImportRunning {
			err = r.Store.StepImport(ctx, s)
		}
		r.mu.Unlock()
		// Another error is the store's, which the work meets as well.
		if errors.Is(err, store.ErrFenced) {
			lost(err)
			return
		}
	}
}

// release returns the lease, as well as it can: it ends by itself.
func (r *run) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonTime)
	defer cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.last
	s.Lease = 0
	_ = r.Store.StepImport(ctx, s)
}

// step records what was done.
func (r *run) step(ctx context.Context, s store.ImportStep) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.Store.StepImport(ctx, s); err != nil {
		return err
	}
	crash.At(crash.ImportStepped, r.i.Source)
	r.Metrics.add(r.i.Source, s.Counts, r.last.Counts)
	s.Rows = nil
	r.last = s
	return nil
}

func (r *run) end(ctx context.Context, state store.ImportState, failure string) error {
	s := r.last
	s.State, s.Failure = state, failure
	if err := r.step(ctx, s); err != nil {
		return err
	}
	r.Metrics.ended.WithLabelValues(string(state)).Inc()
	c := s.Counts
	log := r.Logger.Info
	if state == store.ImportFailed {
		log = r.Logger.Error
	}
	log("import ended", "import", r.i.ID, "source", r.i.Source, "state", state, "failure", failure,
		"accepted", c.Accepted, "duplicate", c.Duplicate, "invalid", c.Invalid, "conflicting", c.Conflicting)
	return nil
}

// chunk takes the next chunk in and returns the step behind it.
func (r *run) chunk(ctx context.Context) (store.ImportStep, error) {
	s := r.last
	body, err := r.Store.ImportChunk(ctx, r.i.ID, s.Next)
	if errors.Is(err, store.ErrNotFound) {
		return s, store.ErrFenced // it went with a step of another worker
	} else if err != nil {
		return s, err
	}
	cut, err := rowsOf(body)
	if err != nil {
		return s, err
	}
	crash.At(crash.ImportTaken, r.i.Source)
	rows, err := r.rows(&s, &cut)
	if err != nil {
		return s, err
	}
	results, err := r.take(ctx, rows)
	if err != nil {
		return s, err
	}
	s.Next++
	s.Row += int64(len(rows))
	s.Rows = nil
	for n, x := range results {
		switch x.Status {
		case Accepted:
			s.Counts.Accepted++
			continue
		case Duplicate:
			s.Counts.Duplicate++
		case Invalid:
			s.Counts.Invalid++
		case Conflicting:
			s.Counts.Conflicting++
		}
		s.Rows = append(s.Rows, store.ImportRow{Row: rows[n].Number, Line: cut[n].line, Status: x.Status, Reason: x.Reason})
	}
	return s, nil
}

// rows makes events of the rows of a chunk. The header of a CSV file, its first
// row, becomes the cursor, and is taken away from cut.
func (r *run) rows(s *store.ImportStep, cut *[]row) ([]Row, error) {
	if Format(r.i.Format) == CSV && r.decoder == nil {
		if s.Next == 0 {
			if len(*cut) == 0 {
				return nil, errChunk
			}
			s.Cursor, *cut = (*cut)[0].text, (*cut)[1:]
		}
		options, err := DecodeOptions(r.i.Options)
		if err == nil {
			r.decoder, err = newDecoder(s.Cursor, options)
		}
		if err != nil {
			return nil, &GoneError{err.Error()}
		}
	}
	rows := make([]Row, len(*cut))
	var buffer []byte
	for n, x := range *cut {
		rows[n] = Row{Number: s.Row + int64(n) + 1, Value: x.text}
		if x.large {
			rows[n].Reason = "oversized: the row is larger than an event of the source may be"
			continue
		}
		if r.decoder == nil {
			continue
		}
		from := len(buffer)
		longer, err := r.decoder.decode(buffer, x.text)
		if err != nil {
			rows[n].Value, rows[n].Reason = nil, "bad_csv: "+err.Error()
			continue
		}
		buffer = longer
		rows[n].Value = buffer[from:len(buffer):len(buffer)]
	}
	return rows, nil
}

// take repeats the intake until it works, while other attempts at the rows are
// under way or the inbox is away.
func (r *run) take(ctx context.Context, rows []Row) (results []Result, err error) {
	var final error
	_, err = wait.Retry(ctx, ctx, r.Logger.With("import", r.i.ID), "an import", func() error {
		results, err = r.try(ctx, rows)
		for busy := (*errBusy)(nil); errors.As(err, &busy) && wait.Sleep(ctx, min(busy.wait, r.Lease)); {
			results, err = r.try(ctx, rows)
		}
		gone, class := (*GoneError)(nil), store.ClassOf(err)
		if errors.As(err, &gone) || class == store.Poison || class == store.Superseded {
			final, err = err, nil // another try is of no use
		}
		return err
	})
	return results, cmp.Or(final, err)
}

// try is one try at the intake. Under another configuration the rows may be of
// another entity, and a source that this one does not have may be there.
func (r *run) try(ctx context.Context, rows []Row) ([]Result, error) {
	if err := r.Active(ctx); err != nil {
		return nil, err
	}
	return r.Intake.Take(ctx, r.i, rows)
}
