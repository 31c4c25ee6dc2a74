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
	name := strings.Repeat("n", 50_000)
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
