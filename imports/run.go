package imports

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/store"
)

// File is a file and its target.
type File struct {
	Tenant  string
	Source  string
	Format  Format
	Options Options
	Content string // its identity: "sha256:" and the hash in hex, or "id:" and an id of the client
	Name    string // for people
	Actor   string // for people
	MaxRow  int    // bytes of a row; larger ones are invalid rows
	MaxSize int64  // bytes of the file, and of the events of its rows
	MaxOpen int    // incomplete imports of the tenant, this one included; 0 is no bound
}

var contents = regexp.MustCompile(`^(sha256:[0-9a-f]{64}|id:[ -~]{1,256})$`)

// Check returns an error if the identity of the content is malformed, or the options do not
// fit the format.
func (f *File) Check() error {
	if !contents.MatchString(f.Content) {
		return errors.New("file must be sha256: and the file's SHA-256 in 64 hexadecimal digits, or id: and an id of up to 256 ASCII characters")
	}
	return f.Options.Check(f.Format)
}

// job is the id of the import: a hash of all that identifies it.
func (f *File) job() string {
	h := sha256.New()
	for _, part := range []string{f.Content, f.Tenant, f.Source, string(f.Format), string(f.Options.Encode())} {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
		h.Write([]byte(part))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// Errors of Importer.Run, beside *BadFile, store.ErrTooMany and those of store and inbox,
// after which the file is to be posted again.
var (
	// ErrTooLarge says that a file is larger than MaxSize.
	ErrTooLarge = errors.New("the file is larger than the limit")
	// ErrRead wraps an error of the reader.
	ErrRead = errors.New("the file could not be read to its end")
	// ErrCancelled says that the import was cancelled meanwhile.
	ErrCancelled = errors.New("the import was cancelled")
	// ErrTakenOver says that a later request continues the import.
	ErrTakenOver = errors.New("a later request with the same file took the import over")
	// ErrEnding says that the process is ending.
	ErrEnding = errors.New("the process is ending")
)

func readError(err error) error { return fmt.Errorf("%w: %w", ErrRead, err) }

// Final reports whether posting the same file again is of no use.
func Final(err error) bool {
	var bad *BadFile
	if errors.As(err, &bad) {
		return true
	}
	for _, final := range []error{ErrTooLarge, ErrCancelled, ErrTakenOver, store.ErrTooMany, store.ErrSuperseded} {
		if errors.Is(err, final) {
			return true
		}
	}
	return false
}

// ImporterOptions are those of an Importer. All fields are needed unless they say otherwise.
type ImporterOptions struct {
	Store  store.Imports
	Intake Intake
	// Ready returns why no rows can be ingested now, nil when they can; optional.
	Ready func() error
	// Active returns store.ErrSuperseded when another configuration is active than that
	// of Intake. It is checked before each attempt at a batch; optional.
	Active func(ctx context.Context) error
	// Patience bounds the attempts at a batch. Defaults to 30s.
	Patience time.Duration
	Logger   *slog.Logger
	Metrics  *Metrics
}

// Intake ingests the rows of a batch, see Taker.Take.
type Intake interface {
	Take(ctx context.Context, i store.Import, rows []Row) ([]Result, error)
}

// batchesAtATime bounds the batches that are ingested at a time; imports take turns.
const batchesAtATime = 2

// Importer runs imports. It may be used concurrently.
type Importer struct {
	opt   ImporterOptions
	turns *semaphore.Weighted

	ending context.Context
	end    context.CancelCauseFunc
	mu     sync.Mutex
	open   int // guarded by mu
	idle   *sync.Cond
}

// NewImporter makes one.
func NewImporter(opt ImporterOptions) *Importer {
	if opt.Patience <= 0 {
		opt.Patience = 30 * time.Second
	}
	if opt.Ready == nil {
		opt.Ready = func() error { return nil }
	}
	if opt.Active == nil {
		opt.Active = func(context.Context) error { return nil }
	}
	m := &Importer{opt: opt, turns: semaphore.NewWeighted(batchesAtATime)}
	m.ending, m.end = context.WithCancelCause(context.Background())
	m.idle = sync.NewCond(&m.mu)
	return m
}

// Open returns the number of imports that run.
func (m *Importer) Open() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.open
}

// Ending returns the context of all imports of this process.
func (m *Importer) Ending() context.Context { return m.ending }

// Stop interrupts the imports that run, and waits for them. Their rows up to the last
// batch are recorded. A reader that blocks is its caller's to interrupt, see Ending.
func (m *Importer) Stop() {
	m.end(ErrEnding)
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.open > 0 {
		m.idle.Wait()
	}
}

func (m *Importer) enter(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open += n
	m.opt.Metrics.open.Set(float64(m.open))
	m.idle.Broadcast()
}

// Run imports a file, or continues its import, and returns the job; see Final for its
// errors. It has one batch in memory.
func (m *Importer) Run(ctx context.Context, f File, in io.Reader) (store.Import, error) {
	if err := f.Check(); err != nil {
		return store.Import{}, &BadFile{err.Error()}
	}
	m.enter(1)
	defer m.enter(-1)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(m.ending, func() { cancel(ErrEnding) })()
	r := &run{Importer: m, f: f}
	err := r.work(ctx, in)
	if errors.Is(err, store.ErrFenced) {
		err = r.fenced(ctx)
	}
	if err != nil && m.ending.Err() != nil { // it may have ended the reader before ctx
		err = context.Cause(m.ending)
	}
	if c := r.i.Counts; err == nil && r.fresh {
		m.opt.Logger.Info("import done", "event", "import.done", "import", r.i.ID, "source", f.Source,
			"accepted", c.Accepted, "duplicate", c.Duplicate, "invalid", c.Invalid, "conflicting", c.Conflicting)
	}
	return r.i, err
}

// run is one request with a file.
type run struct {
	*Importer
	f     File
	i     store.Import // as the store has it
	fresh bool         // this request has something to do

	cutter  *cutter
	decoder *decoder // of CSV
	names   int      // bytes that an event has beside its row
	left    int64    // of what rows become
	row     int64    // rows that were cut
}

// fenced returns the reason why the store refused a step.
func (r *run) fenced(ctx context.Context) error {
	now, err := r.opt.Store.Import(ctx, r.f.Tenant, r.i.ID)
	switch {
	case err != nil:
		return err
	case now.State == store.ImportCancelled && now.Attempt == r.i.Attempt:
		return ErrCancelled
	}
	return ErrTakenOver
}

func (r *run) work(ctx context.Context, in io.Reader) (err error) {
	if r.cutter, err = newCutter(in, r.f.Format, r.f.Options, r.f.MaxRow, r.f.MaxSize); err != nil {
		return err
	}
	r.left = r.f.MaxSize
	if r.f.Format == CSV {
		if err := r.header(); err != nil {
			return err
		}
	}
	r.i, err = r.opt.Store.BeginImport(ctx, store.Import{
		ID: r.f.job(), Tenant: r.f.Tenant, Source: r.f.Source, Format: string(r.f.Format), Options: r.f.Options.Encode(),
		File: r.f.Content, Name: r.f.Name, Actor: r.f.Actor,
	}, r.f.MaxOpen)
	if err != nil || r.i.State == store.ImportDone {
		return err
	}
	r.fresh = true
	r.opt.Logger.Info("import begun", "event", "import.begun", "import", r.i.ID, "source", r.i.Source, "attempt", r.i.Attempt, "rows", r.i.Row)
	crash.At(crash.ImportBegun, r.f.Source)
	err = r.rows(ctx)
	var bad *BadFile
	switch {
	case errors.As(err, &bad):
		return errors.Join(err, r.fail(ctx, bad.Reason))
	case errors.Is(err, ErrTooLarge):
		return errors.Join(err, r.fail(ctx, err.Error()))
	case store.ClassOf(err) == store.Poison:
		const reason = "the store cannot hold an event of the file"
		return errors.Join(badFile(reason), r.fail(ctx, reason))
	}
	return err
}

// header reads the first row of a CSV file.
func (r *run) header() error {
	head, err := r.cutter.next()
	if errors.Is(err, io.EOF) {
		return badFile("the file is empty: its first line names the columns")
	} else if err != nil {
		return err
	}
	if most := min(r.f.MaxRow, maxHeader); head.large || len(head.text) > most {
		return badFile("the header is larger than %d bytes", most)
	}
	if r.decoder, err = newDecoder(head.text, r.f.Options); err == nil {
		r.names = r.decoder.root.size()
	}
	return err
}

// rows goes from batch to batch.
func (r *run) rows(ctx context.Context) error {
	if err := r.skip(ctx); err != nil {
		return err
	}
	for {
		b, ended, err := r.fill(ctx)
		if err != nil {
			return err
		}
		to := store.ImportPosition{Bytes: r.cutter.read, Row: r.row, Cursor: r.cutter.state(), Counts: r.i.Counts, State: store.ImportIncomplete}
		if ended {
			if sum := hex.EncodeToString(r.cutter.hash.Sum(nil)); strings.HasPrefix(r.f.Content, "sha256:") && r.f.Content != "sha256:"+sum {
				return badFile("the SHA-256 of the file is %s, not the given one: it changed meanwhile", sum)
			}
			to.State = store.ImportDone
		}
		results, err := r.take(ctx, b.rows)
		if err != nil {
			return err
		}
		if err := r.step(ctx, to, b.note(results, &to.Counts)); err != nil {
			return err
		}
		if ended {
			return nil
		}
	}
}

var errOther = badFile("the file does not begin with the rows that were imported before under the same id; post it again to import all of it")

// skip cuts the rows that have their results.
func (r *run) skip(ctx context.Context) error {
	for r.row < r.i.Row {
		if _, err := r.next(ctx); errors.Is(err, io.EOF) {
			return errOther
		} else if err != nil {
			return err
		}
	}
	if r.row > 0 && !bytes.Equal(r.cutter.state(), r.i.Cursor) {
		return errOther
	}
	return nil
}

// leastRow is the least that a row counts as, in bytes: the store keeps a claim of it, or
// the reason why it was not accepted.
const leastRow = 64

// next cuts a row.
func (r *run) next(ctx context.Context) (row, error) {
	if ctx.Err() != nil {
		return row{}, context.Cause(ctx)
	}
	x, err := r.cutter.next()
	if err != nil {
		return row{}, err
	}
	r.row++
	if r.left -= int64(max(len(x.text)+r.names, leastRow)); r.left < 0 {
		return row{}, badFile("its rows become more than %d bytes: each has the names of its columns, and counts as %d at least", r.f.MaxSize, leastRow)
	}
	return x, nil
}

// A batch is full with this much.
const (
	batchBytes = 256 << 10 // of its events
	batchRows  = 2000
)

// batch is rows that are ingested together.
type batch struct {
	rows  []Row
	lines []int64
}

// fill cuts the rows of the next batch; ended tells that they are the last.
func (r *run) fill(ctx context.Context) (b batch, ended bool, err error) {
	for size := 0; size < batchBytes && len(b.rows) < batchRows; {
		x, err := r.next(ctx)
		if errors.Is(err, io.EOF) {
			return b, true, nil
		} else if err != nil {
			return b, false, err
		}
		made := Row{Number: r.row, Value: x.text}
		switch {
		case x.large:
			made.Reason = "oversized: the row is larger than an event of the source may be"
		case r.decoder != nil:
			if made.Value, err = r.decoder.decode(make([]byte, 0, len(x.text)+r.names), x.text); err != nil {
				made.Value, made.Reason = nil, "bad_csv: "+err.Error()
			}
		}
		size += len(made.Value)
		b.rows, b.lines = append(b.rows, made), append(b.lines, x.line)
	}
	return b, false, nil
}

// note counts results and returns those that are kept.
func (b *batch) note(results []Result, counts *store.ImportCounts) (kept []store.ImportRow) {
	for n, x := range results {
		switch x.Status {
		case Accepted:
			counts.Accepted++
			continue
		case Duplicate:
			counts.Duplicate++
		case Invalid:
			counts.Invalid++
		case Conflicting:
			counts.Conflicting++
		}
		kept = append(kept, store.ImportRow{Row: b.rows[n].Number, Line: b.lines[n], Status: x.Status, Reason: x.Reason})
	}
	return kept
}

// take ingests rows, in turn with other imports. It is repeated while another attempt has
// claims of these rows, or store or inbox do not answer, until Patience is used up.
func (r *run) take(ctx context.Context, rows []Row) (results []Result, err error) {
	err = r.retry(ctx, "ingest rows of the import", func() error {
		if err := r.turns.Acquire(ctx, 1); err != nil {
			return wait.Permanent(err)
		}
		defer r.turns.Release(1)
		err := r.opt.Ready()
		if err != nil {
			return err
		}
		// Under another configuration the rows may be of another entity.
		if err = r.opt.Active(ctx); err == nil {
			results, err = r.opt.Intake.Take(ctx, r.i, rows)
		}
		if class := store.ClassOf(err); class == store.Poison || class == store.Superseded {
			return wait.Permanent(err)
		}
		return err
	})
	return results, err
}

// step records results and position.
func (r *run) step(ctx context.Context, to store.ImportPosition, rows []store.ImportRow) error {
	err := r.retry(ctx, "store the import's progress", func() error {
		err := r.opt.Store.StepImport(ctx, r.i, to, rows)
		if class := store.ClassOf(err); err != nil && class != store.Retry && class != store.Unknown {
			return wait.Permanent(err)
		}
		return err
	})
	if err != nil {
		return err
	}
	crash.At(crash.ImportStepped, r.i.Source)
	r.opt.Metrics.add(r.i.Source, to.Counts, r.i.Counts)
	r.i.Updated = time.Now().UTC()
	if r.i.ImportPosition = to; to.State != store.ImportIncomplete {
		r.opt.Metrics.ended.WithLabelValues(string(to.State)).Inc()
	}
	return nil
}

// fail ends the import as a whole.
func (r *run) fail(ctx context.Context, reason string) error {
	to := r.i.ImportPosition
	to.State, to.Failure = store.ImportFailed, reason
	return r.step(ctx, to, nil)
}

// retry repeats op, which may be repeated, until Patience is used up.
func (r *run) retry(ctx context.Context, what string, op func() error) error {
	patient, cancel := context.WithTimeout(ctx, r.opt.Patience)
	defer cancel()
	stopped, err := wait.Retry(ctx, patient, nil, what, op)
	if stopped && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
