package imports

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
)

func TestRowsAreIngestedOnceAndInOrder(t *testing.T) {
	w := newWorld(t)
	text, payloads := many(2*perBatch + 5)
	i := w.file(JSONL, Options{}, text)
	require.Equal(t, payloads, w.effects)
	require.Equal(t, store.ImportCounts{Accepted: int64(len(payloads))}, i.Counts)
	require.EqualValues(t, len(text), i.Bytes)
	require.Equal(t, []string{""}, w.errorsOf(i, JSONL))
	again := w.file(JSONL, Options{}, text)
	require.Equal(t, i.ID, again.ID, "the same file is the same import")
	require.EqualValues(t, 1, again.Attempt)
	require.Len(t, payloads, w.records)
	require.NotEqual(t, i.ID, w.file(CSV, Options{}, "a\n"+text).ID)
}

func TestEveryRowHasItsResult(t *testing.T) {
	w := newWorld(t)
	w.file(JSONL, Options{}, `{"id":"old","event":"e-old","n":1}`)
	w.effects = nil
	i := w.file(JSONL, Options{}, strings.Join([]string{
		`{"id":"a","event":"1","n":1}`,
		`{"n":1, "event":"1","id":"a"}`,      // the same, spelled differently
		`{"id":"a","event":"1","n":2}`,       // other content under the id
		`{"id":"old","event":"e-old","n":1}`, // ingested from another file
		`{"id":"old","event":"e-old","n":2}`,
		`{"id":"old","event":"e-old","n":1}`,
		`{"id":`,
		``,
		`{"n":1}`,
		strings.Repeat("x", maxRow+1),
		`{"id":"b"}`, // without event id: each row is an event of its own
		`{"id":"b"}`,
	}, "\n"))
	require.Equal(t, store.ImportCounts{Accepted: 3, Duplicate: 3, Invalid: 3, Conflicting: 2}, i.Counts)
	require.Equal(t, []string{`{"id":"a","event":"1","n":1}`, `{"id":"b"}`, `{"id":"b"}`}, w.effects)
	lines := w.errorsOf(i, JSONL)
	require.Len(t, lines, 8)
	require.Equal(t, `{"row":2,"line":2,"status":"duplicate","reason":"row 1 has the same event"}`, lines[0])
	require.Equal(t, `{"row":3,"line":3,"status":"conflicting","reason":"row 1 has the same event id and other content"}`, lines[1])
	require.Contains(t, lines[2], `{"row":4,"line":4,"status":"duplicate","reason":"`)
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
// the same id: they are compared with the ledger.
func TestRowsBehindAConflictAreComparedWithTheLedger(t *testing.T) {
	w := newWorld(t)
	w.file(JSONL, Options{}, `{"id":"a","event":"1","n":1}`)
	i := w.file(JSONL, Options{}, `{"id":"a","event":"1","n":2}`+"\n"+`{"id":"a","event":"1","n":1}`+"\n"+`{"id":"a","event":"1","n":2}`+"\n"+`{"id":"a","event":"1","n":1}`)
	require.Equal(t, store.ImportCounts{Duplicate: 2, Conflicting: 2}, i.Counts)
	require.Len(t, w.effects, 1)
}

var errDown = errors.New("down")

// A request that breaks off anywhere leaves an incomplete import. The same file posted again
// continues it: each row has one effect and one result.
func TestAnInterruptedImportContinues(t *testing.T) {
	const cut = perBatch + 10
	text, payloads := many(2*perBatch + 4)
	text += payloads[0] // a duplicate
	for name, c := range map[string]struct {
		kill func(w *world, m *Importer)
		upTo int64 // rows with results
	}{
		"before the append": {kill: func(w *world, _ *Importer) { w.appends = onceAt(2, errDown) }, upTo: perBatch},
		"after the append":  {kill: func(w *world, _ *Importer) { w.after = onceAt(2, errDown) }, upTo: perBatch},
		"before the step":   {kill: func(_ *world, m *Importer) { m.opt.Store = &lostStep{Imports: m.opt.Store, n: 2} }, upTo: perBatch},
		"after the step":    {kill: func(_ *world, m *Importer) { m.opt.Store = &lostStep{Imports: m.opt.Store, n: 2, written: true} }, upTo: 2 * perBatch},
		"with the reader":   {upTo: perBatch},
		"without leases back": {kill: func(w *world, _ *Importer) {
			w.after = onceAt(2, errDown)
			w.taker.Ledger = noAbandon{w.taker.Ledger}
			w.taker.Lease = 50 * time.Millisecond
		}, upTo: perBatch},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			m := w.importer()
			m.opt.Patience = time.Nanosecond
			var in io.Reader = strings.NewReader(text)
			if c.kill != nil {
				c.kill(w, m)
			} else {
				in = io.MultiReader(strings.NewReader(text[:cut*len(payloads[0])]), iotest.ErrReader(errDown))
			}
			i, err := m.Run(t.Context(), lab(JSONL, Options{}, text), in)
			require.ErrorIs(t, err, errDown)
			require.False(t, Final(err))
			i = w.found(i)
			require.Equal(t, store.ImportIncomplete, i.State)
			require.Equal(t, c.upTo, i.Row)
			before := w.records
			i = w.file(JSONL, Options{}, text)
			require.EqualValues(t, 2, i.Attempt)
			require.Equal(t, payloads, w.effects)
			require.Equal(t, store.ImportCounts{Accepted: int64(len(payloads)), Duplicate: 1}, i.Counts)
			require.Len(t, w.errorsOf(i, JSONL), 1)
			require.LessOrEqual(t, int64(w.records-before), int64(len(payloads))-c.upTo, "rows with results are skipped")
		})
	}
}

// onceAt fails the n-th call.
func onceAt(n int, err error) func(int) error {
	return func(int) error {
		if n--; n == 0 {
			return err
		}
		return nil
	}
}

// lostStep loses the n-th step, or, written, its answer.
type lostStep struct {
	store.Imports
	n       int
	written bool
}

func (l *lostStep) StepImport(ctx context.Context, i store.Import, to store.ImportPosition, rows []store.ImportRow) error {
	if l.n--; l.n > 0 {
		return l.Imports.StepImport(ctx, i, to, rows)
	}
	if l.written {
		if err := l.Imports.StepImport(ctx, i, to, rows); err != nil {
			return err
		}
	}
	return store.WithClass(errDown, store.Unknown)
}

// noAbandon is the ledger of a process that is killed before it can end leases.
type noAbandon struct{ store.Ledger }

func (noAbandon) AbandonClaims(context.Context, string, []store.ClaimID) error { return errDown }

// A store or an inbox that fails for a moment costs no second request.
func TestABatchIsRepeated(t *testing.T) {
	w := newWorld(t)
	w.appends, w.after = onceAt(1, errDown), onceAt(2, errDown)
	text, payloads := many(perBatch + 1)
	m := w.importer()
	m.opt.Store = &failsOnce{Imports: w.store}
	i, err := m.Run(t.Context(), lab(JSONL, Options{}, text), strings.NewReader(text))
	require.NoError(t, err)
	require.Equal(t, store.ImportCounts{Accepted: perBatch + 1}, i.Counts)
	require.EqualValues(t, 1, i.Attempt)
	require.Equal(t, payloads, w.effects)
}

// failsOnce fails every first of two steps.
type failsOnce struct {
	store.Imports
	calls int
}

func (f *failsOnce) StepImport(ctx context.Context, i store.Import, to store.ImportPosition, rows []store.ImportRow) error {
	if f.calls++; f.calls%2 == 1 {
		return errDown
	}
	return f.Imports.StepImport(ctx, i, to, rows)
}

func TestCSVContinuesBehindItsHeader(t *testing.T) {
	w := newWorld(t)
	var b strings.Builder
	const first = 2*perBatch + 7
	b.WriteString("id,doc.n,pad\r\n")
	for n := range first {
		fmt.Fprintf(&b, "e-%d,%d,%s\r\n", n, n, pad)
	}
	b.WriteString("e-x\r\ne-y,no number,\r\n\"e-\nz\",1,\r\n")
	text, o := b.String(), Options{Types: map[string]Type{"doc.n": Number}}
	for _, part := range []int{len(text) / 2, len(text) - 10} {
		_, err := w.importer().Run(t.Context(), lab(CSV, o, text), io.MultiReader(strings.NewReader(text[:part]), iotest.ErrReader(errDown)))
		require.ErrorIs(t, err, ErrRead)
	}
	i := w.file(CSV, o, text)
	require.Equal(t, store.ImportCounts{Accepted: first + 1, Invalid: 2}, i.Counts)
	require.EqualValues(t, 3, i.Attempt)
	require.Equal(t, `{"id":"e-38","doc":{"n":38},"pad":"`+pad+`"}`, w.effects[38])
	require.Equal(t, `{"id":"e-\nz","doc":{"n":1},"pad":""}`, w.effects[39])
	require.Equal(t, []string{
		"row,line,status,reason",
		`40,41,invalid,"bad_csv: the row has 1 cells, the header has 3"`,
		`41,42,invalid,"bad_csv: the cell of column ""doc.n"" is no JSON number"`,
	}, w.errorsOf(i, CSV))
}

// held is an intake that holds its first batch.
type held struct {
	Intake
	later       atomic.Bool
	began, free chan struct{}
}

func (h *held) Take(ctx context.Context, i store.Import, rows []Row) ([]Result, error) {
	if !h.later.Swap(true) {
		close(h.began)
		select {
		case <-h.free:
		case <-ctx.Done():
		}
	}
	return h.Intake.Take(ctx, i, rows)
}

// holding starts an import whose first batch is held.
func (w *world) holding(text string) (m *Importer, h *held, ended <-chan error) {
	h = &held{Intake: w.taker, began: make(chan struct{}), free: make(chan struct{})}
	m = w.importer()
	m.opt.Intake = h
	errs := make(chan error, 1)
	go func() {
		_, err := m.Run(w.Context(), lab(JSONL, Options{}, text), strings.NewReader(text))
		errs <- err
	}()
	<-h.began
	return m, h, errs
}

// I5: a later request with the same file takes the import over; steps and late appends of the
// earlier one change nothing. Other imports do not wait for it.
func TestALaterRequestTakesOver(t *testing.T) {
	w := newWorld(t)
	text, payloads := many(perBatch + 4)
	m, h, ended := w.holding(text)
	require.Equal(t, 1, m.Open())
	i, err := m.Run(t.Context(), lab(JSONL, Options{}, text), strings.NewReader(text))
	require.NoError(t, err)
	require.EqualValues(t, 2, i.Attempt)
	other, err := m.Run(t.Context(), lab(JSONL, Options{}, `{"id":"x"}`), strings.NewReader(`{"id":"x"}`))
	require.NoError(t, err)
	require.Equal(t, store.ImportDone, other.State)
	close(h.free)
	err = <-ended
	require.ErrorIs(t, err, ErrTakenOver)
	require.True(t, Final(err))
	require.Equal(t, store.ImportCounts{Accepted: perBatch + 4}, w.found(i).Counts)
	require.Equal(t, append(payloads, `{"id":"x"}`), w.effects)
	require.Zero(t, m.Open())
}

func TestACancelledImport(t *testing.T) {
	w := newWorld(t)
	text, payloads := many(perBatch + 4)
	_, h, ended := w.holding(text)
	file := lab(JSONL, Options{}, text)
	_, err := w.store.CancelImport(t.Context(), tenant, file.job())
	require.NoError(t, err)
	close(h.free)
	err = <-ended
	require.ErrorIs(t, err, ErrCancelled)
	require.True(t, Final(err))
	i := w.file(JSONL, Options{}, text)
	require.Equal(t, store.ImportCounts{Accepted: int64(len(payloads))}, i.Counts)
	require.Equal(t, payloads, w.effects)
}

// The end of the process interrupts imports, which continue elsewhere.
func TestStop(t *testing.T) {
	w := newWorld(t)
	text, payloads := many(perBatch + 4)
	m, _, ended := w.holding(text)
	m.Stop()
	err := <-ended
	require.ErrorIs(t, err, ErrEnding)
	require.False(t, Final(err))
	_, err = m.Run(t.Context(), lab(JSONL, Options{}, text), strings.NewReader(text))
	require.ErrorIs(t, err, ErrEnding, "it begins no other")
	w.file(JSONL, Options{}, text)
	require.Equal(t, payloads, w.effects)
}

// A file that is not the one of its id is noticed, and does not stay half skipped.
func TestOtherContentUnderAnID(t *testing.T) {
	w := newWorld(t)
	text, payloads := many(perBatch + 4)
	file := lab(JSONL, Options{}, text)
	file.Content = "id:monday"
	_, err := w.importer().Run(t.Context(), file, io.MultiReader(strings.NewReader(text[:len(text)-10]), iotest.ErrReader(errDown)))
	require.ErrorIs(t, err, ErrRead)
	for name, other := range map[string]string{"another row": strings.Replace(text, `"n":3`, `"n":4`, 1), "fewer rows": text[:len(text)/2]} {
		i, err := w.importer().Run(t.Context(), file, strings.NewReader(other))
		require.ErrorIs(t, err, errOther, name)
		require.Equal(t, store.ImportFailed, w.found(i).State)
		require.Equal(t, errOther.Error(), w.found(i).Failure)
		_, err = w.importer().Run(t.Context(), file, io.MultiReader(strings.NewReader(text[:len(text)-10]), iotest.ErrReader(errDown)))
		require.ErrorIs(t, err, ErrRead, "it began anew")
		require.EqualValues(t, perBatch, w.found(i).Row)
	}
	i, err := w.importer().Run(t.Context(), file, strings.NewReader(text))
	require.NoError(t, err)
	require.Equal(t, store.ImportCounts{Accepted: int64(len(payloads))}, i.Counts)
	require.Equal(t, payloads, w.effects)

	changed := lab(JSONL, Options{}, text)
	i, err = w.importer().Run(t.Context(), changed, strings.NewReader(text+"{}"))
	var bad *BadFile
	require.ErrorAs(t, err, &bad)
	require.Contains(t, bad.Reason, "it changed meanwhile")
	require.Equal(t, store.ImportFailed, w.found(i).State)
	w.file(JSONL, Options{}, text)
}

// I12: rows are parsed under the active configuration only, also in the retries of a batch.
func TestAnotherConfigurationIsActive(t *testing.T) {
	w := newWorld(t)
	text, payloads := many(2 * perBatch)
	for name, replace := range map[string]func(replace func()){
		"between two batches":     func(replace func()) { w.after = func(int) error { replace(); return nil } },
		"while the inbox is down": func(replace func()) { w.appends = func(int) error { replace(); return errDown } },
	} {
		m := w.importer()
		var active error
		m.opt.Active = func(context.Context) error { return active }
		replace(func() { active = store.ErrSuperseded })
		_, err := m.Run(t.Context(), lab(JSONL, Options{}, text), strings.NewReader(text))
		require.ErrorIs(t, err, store.ErrSuperseded, name)
		w.appends, w.after = nil, nil
		require.LessOrEqual(t, len(w.effects), perBatch, name)
	}
	w.file(JSONL, Options{}, text)
	require.Equal(t, payloads, w.effects)
}

func TestFilesThatAreRefused(t *testing.T) {
	w := newWorld(t)
	bad := new(*BadFile)
	for name, c := range map[string]struct {
		format Format
		o      Options
		in     string
		size   int64
		says   string
	}{
		"too large":      {format: JSONL, in: strings.Repeat(strings.Repeat("1", 99)+"\n", 3), size: 299, says: "larger than the limit"},
		"no header":      {format: CSV, in: "\n\n", says: "the file is empty"},
		"wrong header":   {format: CSV, in: "a,a\n1,2\n", says: "same place"},
		"large header":   {format: CSV, in: strings.Repeat("a", 2000) + "\n1,2\n", says: "header is larger"},
		"unknown column": {format: CSV, o: Options{Types: map[string]Type{"b": Number}}, in: "a\n1\n", says: "does not have"},
		"wrong options":  {format: JSONL, o: Options{EmptyNull: true}, in: "{}", says: "options of csv"},
		"UTF-16 LE":      {format: JSONL, in: "\xff\xfe{\x00}\x00", says: "UTF-16"},
		"UTF-16 BE":      {format: CSV, in: "\x00a\x00,\x00b\x00\n", says: "UTF-16"},
		"names":          {format: CSV, in: "id,event," + strings.Repeat("n", 17_000) + "\n1,2,3", says: "16384 bytes of every event"},
		// 900 bytes of names and 8 of a row: 100 rows become 90 kB.
		"large events": {format: CSV, in: "id,event," + strings.Repeat("n", 900) + "\n" + strings.Repeat("1,2,345\n", 100), size: 80_000, says: "become more than 80000 bytes"},
		"tiny rows":    {format: JSONL, in: strings.Repeat("1\n", 2000), size: 100_000, says: "counts as 64 at least"},
	} {
		t.Run(name, func(t *testing.T) {
			f := lab(c.format, c.o, c.in)
			if f.MaxRow = 1000; name == "names" {
				f.MaxRow = 1 << 20
			}
			if c.size > 0 {
				f.MaxSize = c.size
			}
			i, err := w.importer().Run(t.Context(), f, strings.NewReader(c.in))
			require.ErrorContains(t, err, c.says)
			require.True(t, Final(err))
			require.True(t, errors.Is(err, ErrTooLarge) || errors.As(err, bad))
			if i.ID != "" {
				require.Equal(t, store.ImportFailed, w.found(i).State)
			}
		})
	}
	require.Empty(t, w.effects, "refused before their first batch was full")
	for _, f := range []File{{}, {Content: "x"}, {Content: "sha256:" + strings.Repeat("A", 64)}, {Content: "id:"}, {Content: "id:\x00"}, {Content: "id:" + strings.Repeat("x", 300)}} {
		require.Error(t, f.Check(), f)
	}
}

// A row of CSV becomes an event with the names of all columns: a batch has no more
// rows than its events have memory, however short the rows are.
func TestLongHeadersDoNotMakeLargeBatches(t *testing.T) {
	w := newWorld(t)
	sizes := &measuring{Intake: w.taker}
	m := w.importer()
	m.opt.Intake = sizes
	text := "id,event," + strings.Repeat("n", 16_000) + "\n" + strings.Repeat("1,,\n", 500)
	_, err := m.Run(t.Context(), lab(CSV, Options{}, text), strings.NewReader(text))
	require.NoError(t, err)
	require.LessOrEqual(t, slices.Max(sizes.bytes), batchBytes+2*16_000)
	require.Greater(t, len(sizes.bytes), 20)
}

type measuring struct {
	Intake
	bytes []int
}

func (m *measuring) Take(ctx context.Context, i store.Import, rows []Row) ([]Result, error) {
	n := 0
	for _, r := range rows {
		n += len(r.Value)
	}
	m.bytes = append(m.bytes, n)
	return m.Intake.Take(ctx, i, rows)
}
