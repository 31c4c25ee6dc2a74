package imports

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRowsAreIngestedOnceAndInOrder(t *testing.T) {
	w := newWorld(t)
	text, payloads := many(2*perBatch + 5)
	i := w.file(JSONL, Options{}, text)
	require.Equal(t, payloads, w.effects)
	require.Equal(t, Position{Bytes: i.Bytes, Rows: i.Rows, Accepted: int64(len(payloads))}, i.Position)
	require.EqualValues(t, len(text), i.Bytes)
	require.Equal(t, []string{""}, w.errorsOf(i, JSONL))
	again := w.file(JSONL, Options{}, text)
	require.Equal(t, i.ID, again.ID, "the same file is the same import")
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
		`{"id":"c","n":NaN}`,
	}, "\n"))
	require.Equal(t, Position{Bytes: i.Bytes, Rows: i.Rows, Accepted: 3, Duplicate: 3, Refused: 6}, i.Position)
	require.Equal(t, []string{`{"id":"a","event":"1","n":1}`, `{"id":"b"}`, `{"id":"b"}`}, w.effects)
	lines := w.errorsOf(i, JSONL)
	require.Len(t, lines, 6)
	require.Equal(t, `{"row":3,"line":3,"code":"conflicting","reason":"another event was ingested under this event id"}`, lines[0])
	require.Contains(t, lines[1], `{"row":5,"line":5,"code":"conflicting"`)
	require.Contains(t, lines[2], `{"row":7,"line":7,"code":"bad_json","reason":"`)
	require.Contains(t, lines[3], `{"row":8,"line":9,"code":"no_entity","reason":"`)
	require.Equal(t, `{"row":9,"line":10,"code":"oversized","reason":"the row is larger than an event of the source may be"}`, lines[4])
	require.Contains(t, lines[5], "NaN and infinity, which DuckDB and Python write, are no JSON")
	require.Equal(t, "row,line,code,reason", w.errorsOf(i, CSV)[0])
	letters, err := w.store.ListLetters(t.Context(), store.LetterFilter{Stage: store.StageIngest, Source: "lab", State: store.LetterOpen})
	require.NoError(t, err)
	require.Len(t, letters, 6)
	l, err := w.store.Letter(t.Context(), letters[2].ID)
	require.NoError(t, err)
	require.Equal(t, `{"id":`, string(l.Payload))
	require.JSONEq(t, `{"import":"`+i.ID+`","row":"7","line":"7"}`, string(l.Headers))
}

var errDown = errors.New("down")

// A run that breaks off anywhere leaves an incomplete import. The same file continues it:
// each row has one effect and one result.
func TestAnInterruptedImportContinues(t *testing.T) {
	const cut = perBatch + 10
	text, payloads := many(2*perBatch + 4)
	text += payloads[0] + "\n{" // a duplicate and no JSON
	for name, c := range map[string]struct {
		kill func(w *world)
		upTo int64 // rows with results
	}{
		"before the append": {func(w *world) { w.appends = onceAt(2, errDown) }, perBatch},
		"after the append":  {func(w *world) { w.after = onceAt(2, errDown) }, perBatch},
		"before the step":   {func(w *world) { w.desk.Store = &lostStep{Store: w.store, n: 2} }, perBatch},
		"after the step":    {func(w *world) { w.desk.Store = &lostStep{Store: w.store, n: 2, written: true} }, 2 * perBatch},
		"with the reader":   {nil, perBatch},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			var in io.Reader = strings.NewReader(text)
			if c.kill != nil {
				c.kill(w)
			} else {
				in = io.MultiReader(strings.NewReader(text[:cut*len(payloads[0])]), iotest.ErrReader(errDown))
			}
			i, err := Run(t.Context(), lab(JSONL, Options{}, text), in, w.desk.Ingest)
			require.ErrorIs(t, err, errDown)
			require.False(t, Final(err))
			i = w.found(i)
			require.Equal(t, Incomplete, i.State)
			require.Equal(t, c.upTo, i.Rows)
			before := w.records
			w.desk.Store = w.store
			require.Eventually(t, func() bool { i, err = w.run(JSONL, Options{}, text); return err == nil }, time.Minute, 5*time.Millisecond)
			require.Equal(t, Done, i.State)
			require.Equal(t, payloads, w.effects)
			require.Equal(t, Position{Bytes: i.Bytes, Rows: i.Rows, Accepted: int64(len(payloads)), Duplicate: 1, Refused: 1}, i.Position)
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
	Store
	n       int
	written bool
}

func (l *lostStep) SaveJob(ctx context.Context, j *store.Job, letters ...store.DeadLetter) error {
	if l.n--; l.n > 0 {
		return l.Store.SaveJob(ctx, j, letters...)
	}
	if l.written {
		if err := l.Store.SaveJob(ctx, j, letters...); err != nil {
			return err
		}
	}
	return store.WithClass(errDown, store.Unknown)
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
		_, err := Run(t.Context(), lab(CSV, o, text), io.MultiReader(strings.NewReader(text[:part]), iotest.ErrReader(errDown)), w.desk.Ingest)
		require.ErrorIs(t, err, errDown)
	}
	i := w.file(CSV, o, text)
	require.Equal(t, Position{Bytes: i.Bytes, Rows: i.Rows, Accepted: first + 1, Refused: 2}, i.Position)
	require.Equal(t, `{"id":"e-38","doc":{"n":38},"pad":"`+pad+`"}`, w.effects[38])
	require.Equal(t, `{"id":"e-\nz","doc":{"n":1},"pad":""}`, w.effects[39])
	require.Equal(t, []string{
		"row,line,code,reason",
		`40,41,bad_csv,"the row has 1 cells, the header has 3"`,
		`41,42,bad_csv,"the cell of column ""doc.n"" is no JSON number"`,
	}, w.errorsOf(i, CSV))
}

// Any number of runs may import one file at a time: each row has one effect, in order.
func TestRunsAtATime(t *testing.T) {
	w := newWorld(t)
	text, payloads := many(3*perBatch + 4)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			_, err := Run(t.Context(), lab(JSONL, Options{}, text), strings.NewReader(text), func(ctx context.Context, b Batch) (i Import, err error) {
				for i, err = w.desk.Ingest(ctx, b); err != nil && !Final(err); i, err = w.desk.Ingest(ctx, b) {
				}
				return i, err
			})
			assert.NoError(t, err)
		})
	}
	all.Wait()
	i := w.file(JSONL, Options{}, text)
	require.Equal(t, payloads, w.effects)
	require.Equal(t, Position{Bytes: i.Bytes, Rows: i.Rows, Accepted: int64(len(payloads))}, i.Position)
}

// I1: an import of an earlier inbox begins again in any state. The rows of a file may have been lost
// with that inbox, and an answer that the import is done would lose them for good.
func TestAnImportOfAnEarlierInboxBeginsAgain(t *testing.T) {
	w := newWorld(t)
	text, payloads := many(2 * perBatch)
	another := func(identity string) {
		_, err := w.store.ResolveInbox(t.Context(), "inbox", identity, 1, nil)
		require.NoError(t, err)
		w.records = 0
	}
	another("first")
	w.file(JSONL, Options{}, text)
	another("second")
	w.appends = onceAt(2, errDown)
	i, err := w.run(JSONL, Options{}, text)
	require.ErrorIs(t, err, errDown)
	require.EqualValues(t, perBatch, w.found(i).Rows)
	require.Equal(t, perBatch, w.records)
	another("third")
	i = w.file(JSONL, Options{}, text)
	require.EqualValues(t, len(payloads), i.Rows)
	require.Len(t, payloads, w.records)
	w.file(JSONL, Options{}, text)
	require.Len(t, payloads, w.records)
}

// I11: a tenant's imports are its own; they list the latest first.
func TestImportsOfTenants(t *testing.T) {
	w := newWorld(t)
	var want []string
	for n := range 3 {
		want = append([]string{w.file(JSONL, Options{}, fmt.Sprintf(`{"id":"%d"}`, n)).ID}, want...)
	}
	ids := func(tenant, before string) (ids []string) {
		all, err := List(t.Context(), w.store, tenant, before, 2)
		require.NoError(t, err)
		for _, i := range all {
			ids = append(ids, i.ID)
		}
		return ids
	}
	require.Equal(t, want[:2], ids(tenant, ""))
	require.Equal(t, want[2:], ids(tenant, want[1]))
	require.Empty(t, ids("globex", ""))
	_, err := Find(t.Context(), w.store, "globex", want[0])
	require.ErrorIs(t, err, store.ErrNotFound)
}

// A file that changes while it is read is noticed, and does not count as imported.
func TestAFileThatChanges(t *testing.T) {
	w := newWorld(t)
	text, payloads := many(perBatch + 4)
	for _, other := range []string{text + "{}", text[:len(text)/2]} {
		i, err := Run(t.Context(), lab(JSONL, Options{}, text), strings.NewReader(other), w.desk.Ingest)
		require.ErrorContains(t, err, "it changed meanwhile")
		require.True(t, Final(err))
		require.Equal(t, Incomplete, w.found(i).State)
	}
	w.file(JSONL, Options{}, text)
	require.Equal(t, payloads, w.effects[:len(payloads)])
}

// I12: rows are parsed under the active configuration only.
func TestAnotherConfigurationIsActive(t *testing.T) {
	w := newWorld(t)
	text, payloads := many(2 * perBatch)
	w.after = func(int) error { w.active = store.ErrSuperseded; return nil }
	_, err := w.run(JSONL, Options{}, text)
	require.ErrorIs(t, err, store.ErrSuperseded)
	require.True(t, Final(err))
	require.Len(t, w.effects, perBatch)
	w.active, w.after = nil, nil
	w.file(JSONL, Options{}, text)
	require.Equal(t, payloads, w.effects)
}

func TestFilesThatAreRefused(t *testing.T) {
	w := newWorld(t)
	for name, c := range map[string]struct {
		format Format
		o      Options
		in     string
		says   string
	}{
		"no header":      {format: CSV, in: "\n\n", says: "the file is empty"},
		"wrong header":   {format: CSV, in: "a,a\n1,2\n", says: "same place"},
		"large header":   {format: CSV, in: strings.Repeat("a", 2000) + "\n1,2\n", says: "header is larger"},
		"unknown column": {format: CSV, o: Options{Types: map[string]Type{"b": Number}}, in: "a\n1\n", says: "does not have"},
		"UTF-16 LE":      {format: JSONL, in: "\xff\xfe{\x00}\x00", says: "UTF-16"},
		"UTF-16 BE":      {format: CSV, in: "\x00a\x00,\x00b\x00\n", says: "UTF-16"},
		"names":          {format: CSV, in: "id,event," + strings.Repeat("n", 17_000) + "\n1,2,3", says: "16384 bytes of every event"},
	} {
		t.Run(name, func(t *testing.T) {
			f := lab(c.format, c.o, c.in)
			if f.MaxRow = 1000; name == "names" {
				f.MaxRow = 1 << 20
			}
			_, err := Run(t.Context(), f, strings.NewReader(c.in), w.desk.Ingest)
			require.ErrorContains(t, err, c.says)
			require.True(t, Final(err))
		})
	}
	require.Empty(t, w.effects)
}

// A row of CSV becomes an event with the names of all columns: a batch has no more
// rows than its events have memory, however short the rows are.
func TestLongHeadersDoNotMakeLargeBatches(t *testing.T) {
	w := newWorld(t)
	var sizes []int
	text := "id,event," + strings.Repeat("n", 16_000) + "\n" + strings.Repeat("1,,\n", 500)
	_, err := Run(t.Context(), lab(CSV, Options{}, text), strings.NewReader(text), func(ctx context.Context, b Batch) (Import, error) {
		n := 0
		for _, r := range b.Rows {
			n += len(r.Value)
		}
		sizes = append(sizes, n)
		return w.desk.Ingest(ctx, b)
	})
	require.NoError(t, err)
	require.LessOrEqual(t, slices.Max(sizes), batchBytes+2*16_000)
	require.Greater(t, len(sizes), 20)
}
