package imports

import (
	"fmt"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
)

// A row of a CSV file becomes an event with the names of all columns: a chunk
// holds no more rows than its events have room in memory, however short the rows are.
func TestLongHeadersDoNotMakeLargeEvents(t *testing.T) {
	w := newWorld(t)
	const rows = 1000
	name := strings.Repeat("n", 16_000)
	file := "id,event," + name + "\n"
	for n := range rows {
		file += fmt.Sprintf("%d,%d,\n", n, n)
	}
	i := w.file(CSV, Options{}, file)

	total := 0
	step := store.ImportStep{}
	r := &run{WorkerOptions: WorkerOptions{Store: w.store}, i: i}
	for n := range i.Chunks {
		body, err := w.store.ImportChunk(t.Context(), i.ID, n)
		require.NoError(t, err)
		cut, err := rowsOf(body)
		require.NoError(t, err)
		step.Next = n
		events, err := r.rows(&step, &cut)
		require.NoError(t, err)
		size := 0
		for _, e := range events {
			require.Empty(t, e.Reason)
			size += len(e.Value)
		}
		require.LessOrEqual(t, size, chunkEvents+2*len(name), "events of one chunk, in bytes")
		total += len(events)
		step.Row += int64(len(events))
	}
	require.Equal(t, rows, total)
}

// The names of columns are in every event: what they are in all is bounded, and
// what rows become counts as the file does.
func TestRowsDoNotBecomeMoreThanTheLimit(t *testing.T) {
	w := newWorld(t)
	receive := func(format Format, limit int64, text string) error {
		_, _, err := Receive(t.Context(), w.store, File{
			Tenant: tenant, Source: "lab", Format: format, Name: "lab", MaxRow: 1 << 20, MaxSize: limit,
		}, strings.NewReader(text))
		return err
	}
	rows := func(names string, n int) string { return names + "\n" + strings.Repeat("1,2,345\n", n) }
	long := "id,event," + strings.Repeat("n", 262_000)
	err := receive(CSV, 1<<30, rows(long, 1000))
	var bad *BadFile
	require.ErrorAs(t, err, &bad)
	require.Contains(t, bad.Reason, "16384 bytes of every event")

	// 16,000 bytes of names and 8 of a row: 1,000 rows become 16 MB.
	allowed := rows("id,event,"+strings.Repeat("n", 16_000), 1000)
	err = receive(CSV, 15_000_000, allowed)
	require.ErrorAs(t, err, &bad)
	require.Contains(t, bad.Reason, "15000000 bytes")
	require.NoError(t, receive(CSV, 17_000_000, allowed))

	// Rows of a byte: what is kept of each is more than the row.
	err = receive(JSONL, 1_000_000, strings.Repeat("1\n", 20_000))
	require.ErrorAs(t, err, &bad)
	require.Contains(t, bad.Reason, "counts as 64 at least")
	require.NoError(t, receive(JSONL, 1_000_000, strings.Repeat("1\n", 10_000)))

	// What was refused left nothing behind that is worked off.
	open, err := w.store.OpenImports(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2, open)
}

// What a header costs grows with its size alone.
func TestManyColumns(t *testing.T) {
	var header strings.Builder
	for n := 0; header.Len() < maxHeader-10; n++ {
		fmt.Fprintf(&header, "%x,", n)
	}
	header.WriteString("last")
	d, err := newDecoder([]byte(header.String()), Options{})
	require.NoError(t, err)
	require.Len(t, d.columns, strings.Count(header.String(), ",")+1)
}
