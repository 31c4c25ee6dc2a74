package imports

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
)

func TestAFileComesInInChunks(t *testing.T) {
	w := newWorld(t)
	var payloads []string
	for n := range 2*chunkRows + 5 {
		payloads = append(payloads, fmt.Sprintf(`{"n":%d}`, n))
	}
	text := strings.Join(payloads, "\n") + "\n\n\n"
	i := w.file(JSONL, Options{}, text)
	sum := sha256.Sum256([]byte(text))
	require.Equal(t, sum[:], i.Fingerprint)
	require.EqualValues(t, 3, i.Chunks)
	require.EqualValues(t, len(text), i.Bytes)
	require.Equal(t, store.ImportQueued, i.State)
	n := 0
	for c := range i.Chunks {
		b, err := w.store.ImportChunk(t.Context(), i.ID, c)
		require.NoError(t, err)
		rows, err := rowsOf(b)
		require.NoError(t, err)
		for _, r := range rows {
			require.Equal(t, payloads[n], string(r.text))
			n++
			require.EqualValues(t, n, r.line)
		}
	}
	require.Len(t, payloads, n)
	require.Equal(t, i.ID, w.file(JSONL, Options{}, text).ID, "the same file is the same import")
	require.NotEqual(t, i.ID, w.file(CSV, Options{}, "a\n"+text).ID)
}

// A large row needs a chunk of its own size and no more.
func TestChunksCloseByBytes(t *testing.T) {
	w := newWorld(t)
	row := strings.Repeat("x", 999) + "\n"
	i := w.file(JSONL, Options{}, strings.Repeat(row, 3000))
	require.EqualValues(t, 3, i.Chunks)
}

func TestFilesThatAreNotTaken(t *testing.T) {
	w := newWorld(t)
	broken := errors.New("the connection broke")
	cancelled, cancel := context.WithCancel(t.Context())
	for name, c := range map[string]struct {
		format Format
		o      Options
		in     io.Reader
		size   int64
		ctx    context.Context
		want   func(err error)
	}{
		"too large":      {format: JSONL, in: strings.NewReader("12345\n1"), size: 6, want: func(err error) { require.ErrorIs(t, err, ErrTooLarge) }},
		"broken off":     {format: JSONL, in: io.MultiReader(strings.NewReader("{}\n"), iotest.ErrReader(broken)), want: func(err error) { require.ErrorIs(t, err, ErrRead); require.ErrorIs(t, err, broken) }},
		"no header":      {format: CSV, in: strings.NewReader("\n\n"), want: bad(t)},
		"wrong header":   {format: CSV, in: strings.NewReader("a,a\n1,2\n"), want: bad(t)},
		"large header":   {format: CSV, in: strings.NewReader(strings.Repeat("a", 2000) + "\n1,2\n"), want: bad(t)},
		"unknown column": {format: CSV, o: Options{Types: map[string]Type{"b": Number}}, in: strings.NewReader("a\n1\n"), want: bad(t)},
		"wrong options":  {format: JSONL, o: Options{EmptyNull: true}, in: strings.NewReader("{}"), want: bad(t)},
		"given up":       {format: JSONL, in: io.MultiReader(strings.NewReader(strings.Repeat("{}\n", chunkRows+1)), stopper{cancel}, strings.NewReader("{}")), ctx: cancelled, want: func(err error) { require.ErrorIs(t, err, context.Canceled) }},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, size := c.ctx, c.size
			if ctx == nil {
				ctx = t.Context()
			}
			if size == 0 {
				size = 1 << 30
			}
			_, _, err := Receive(ctx, w.store, File{Tenant: tenant, Source: "lab", Format: c.format, Options: c.o, MaxRow: 1000, MaxSize: size}, c.in)
			c.want(err)
		})
	}
	all, err := w.store.ListImports(t.Context(), tenant, store.ClaimID{}, 100)
	require.NoError(t, err)
	for _, i := range all {
		require.Equal(t, store.ImportCancelled, i.State)
	}
	n, err := w.store.OpenImports(t.Context())
	require.NoError(t, err)
	require.Zero(t, n)
}

func bad(t *testing.T) func(err error) {
	return func(err error) {
		var file *BadFile
		require.ErrorAs(t, err, &file)
	}
}

// stopper cancels when it is read.
type stopper struct{ cancel func() }

func (s stopper) Read([]byte) (int, error) { s.cancel(); return 0, io.EOF }

// Exactly the limit is allowed, and the store's being away for a moment costs
// nothing.
func TestReceiveInsists(t *testing.T) {
	w := newWorld(t)
	s := &flaky{Imports: w.store}
	text, _ := many(perChunk + 1)
	i, fresh, err := Receive(t.Context(), s, File{Tenant: tenant, Source: "lab", Format: JSONL, MaxRow: maxRow, MaxSize: int64(len(text))}, strings.NewReader(text))
	require.NoError(t, err)
	require.True(t, fresh)
	require.EqualValues(t, 2, i.Chunks)
	require.EqualValues(t, len(text), i.Bytes, "no chunk is counted twice")
	require.Positive(t, s.failed)
}

// flaky fails every second call, once before and once after it did its work.
type flaky struct {
	store.Imports
	calls, failed int
}

var errDown = errors.New("down")

func (f *flaky) AddImportChunk(ctx context.Context, id store.ClaimID, n, size int64, chunk []byte, most int64) error {
	switch f.calls++; f.calls % 3 {
	case 1:
		f.failed++
		return errDown
	case 2:
		f.failed++
		return errors.Join(f.Imports.AddImportChunk(ctx, id, n, size, chunk, most), store.WithClass(errDown, store.Unknown))
	}
	return f.Imports.AddImportChunk(ctx, id, n, size, chunk, most)
}
