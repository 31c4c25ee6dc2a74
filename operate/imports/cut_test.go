package imports

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/internal/bom"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// rowsIn reads a file whose bytes come in pieces of the given sizes, in turn.
func rowsIn(t require.TestingT, file []byte, f Format, o Options, limit int, pieces ...int) []row {
	c, err := newCutter(&pieced{file, pieces, 0}, f, o, limit)
	require.NoError(t, err)
	var rows []row
	for {
		r, err := c.next()
		if errors.Is(err, io.EOF) {
			return rows
		}
		require.NoError(t, err)
		rows = append(rows, r)
	}
}

// pieced reads pieces of given sizes.
type pieced struct {
	left   []byte
	pieces []int
	next   int
}

func (p *pieced) Read(b []byte) (int, error) {
	if len(p.left) == 0 {
		return 0, io.EOF
	}
	n := len(b)
	if len(p.pieces) > 0 {
		n = min(n, p.pieces[p.next%len(p.pieces)])
		p.next++
	}
	n = copy(b[:n], p.left)
	p.left = p.left[n:]
	return n, nil
}

// asTheLibrary reads a whole file with encoding/csv: per record its line and its
// cells, or only its line when it is none.
func asTheLibrary(t require.TestingT, file []byte, delim rune) (lines []int64, records [][]string) {
	r := csv.NewReader(bytes.NewReader(file))
	r.FieldsPerRecord, r.Comma = -1, delim
	for {
		cells, err := r.Read()
		var wrong *csv.ParseError
		switch {
		case errors.Is(err, io.EOF):
			return lines, records
		case errors.As(err, &wrong):
			lines, records = append(lines, int64(wrong.StartLine)), append(records, nil)
		default:
			require.NoError(t, err)
			line, _ := r.FieldPos(0)
			lines, records = append(lines, int64(line)), append(records, cells)
		}
	}
}

// checkCSV compares the cutter with encoding/csv over the whole file.
func checkCSV(t require.TestingT, file []byte, delim byte, pieces ...int) {
	o := Options{Delimiter: string(delim)}
	lines, records := asTheLibrary(t, bytes.TrimPrefix(file, []byte("\xef\xbb\xbf")), rune(delim))
	rows := rowsIn(t, file, CSV, o, 1<<20, pieces...)
	d := &decoder{delim: delim}
	require.Len(t, rows, len(records))
	for n, r := range rows {
		cells, err := d.record(r.text)
		if records[n] == nil {
			require.Error(t, err, "row %d", n)
		} else {
			require.NoError(t, err, "row %d", n)
			kept := make([]string, len(cells))
			for i := range kept { // which the library changes, and a cell keeps
				kept[i] = strings.ReplaceAll(cells[i].text, "\r\n", "\n")
			}
			require.Equal(t, records[n], kept, "row %d", n)
		}
		require.Equal(t, lines[n], r.line, "row %d", n)
	}
}

var hardCSV = []string{
	"", "\n", "\r\n", "\r", "a", "a\n", "a,b\r\nc,d\r\n", "a\n\n\nb", "\"a\nb\",c\nd,e", "\"a\"\"b\n\"\"c\",d\ne",
	"a\"b,\"c\nd\",e\nf", "\"a\"x,\"\nb\nc", "\"never closed\nx\ny", "\"a\"\r\nb", "\"\r\n\"\r\r\n", "\"a\"\r", "\"a\"\r\r\nb", "x\r\r\ny", "\r\r\n",
	"\xef\xbb\xbfa,b\nc", "\xef\xbb", ",\n\"\"\n,,", "a,\"b\"\"\nc\"\nd", "a\rb\nc", "\"a\rb\"\nc", "\"\"\"\n\"\nx",
}

func TestRecordsEndWhereTheLibrarySaysThatTheyEnd(t *testing.T) {
	for _, file := range hardCSV {
		for _, pieces := range [][]int{nil, {1}, {2, 3}} {
			t.Run(fmt.Sprintf("%q %v", file, pieces), func(t *testing.T) { checkCSV(t, []byte(file), ',', pieces...) })
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "\"", "\"", ",", ";", "\n", "\r\n", "\r", "é", "\"\"", "long text"}), 0, 60).Draw(t, "parts")
		delim := rapid.SampledFrom([]byte{',', ';', '\t', 'a'}).Draw(t, "delimiter")
		checkCSV(t, []byte(strings.Join(parts, "")), delim, rapid.SliceOfN(rapid.IntRange(1, 9), 0, 4).Draw(t, "pieces")...)
	})
}

// A row that is longer than the reader's buffer, with a line end where two
// buffers meet.
func TestLongRows(t *testing.T) {
	for _, length := range []int{piece - 1, piece, piece + 1, 3*piece - 2} {
		long := strings.Repeat("x", length)
		file := []byte("a\r\n" + long + "\r\n\"" + long + "\n" + long + "\"\nb")
		checkCSV(t, file, ',')
		lines := rowsIn(t, file, JSONL, Options{}, 1<<20)
		require.Equal(t, []string{"a", long, `"` + long, long + `"`, "b"}, texts(lines))
	}
}

func texts(rows []row) (all []string) {
	for _, r := range rows {
		all = append(all, string(r.text))
	}
	return all
}

func TestLines(t *testing.T) {
	rows := rowsIn(t, []byte("\xef\xbb\xbf{\"a\":1}\r\n\n \t\r\n  {\"b\": \"\u00a0\"} \n\u00a0\nlast"), JSONL, Options{}, 100)
	require.Equal(t, []string{`{"a":1}`, "{\"b\": \"\u00a0\"}", "\u00a0", "last"}, texts(rows), "white space of JSON is no part of a row, other is")
	require.Equal(t, []int64{1, 4, 5, 6}, []int64{rows[0].line, rows[1].line, rows[2].line, rows[3].line})
	require.Empty(t, rowsIn(t, nil, JSONL, Options{}, 100))
}

// A row above the limit has no text; one of exactly the limit has.
func TestRowsAboveTheLimit(t *testing.T) {
	for _, end := range []string{"\n", "\r\n"} {
		file := "12345" + end + "123456" + end + strings.Repeat("y", 3*piece) + end + "1" + end + "123456"
		for _, f := range []Format{JSONL, CSV} {
			rows := rowsIn(t, []byte(file), f, Options{}, 5)
			var large []bool
			for _, r := range rows {
				large = append(large, r.large)
				require.Equal(t, r.large, r.text == nil)
			}
			require.Equal(t, []bool{false, true, true, false, true}, large, f)
			require.EqualValues(t, 4, rows[3].line)
		}
	}
	require.Equal(t, []string{"1"}, texts(rowsIn(t, []byte(strings.Repeat(" ", 3*piece)+"\n1\n"+strings.Repeat("\t", 6)), JSONL, Options{}, 5)),
		"a blank line is no row, however long")
	rows := rowsIn(t, []byte("a\n\"1234\n56789\n\",x\nb\n"), CSV, Options{}, 5)
	require.Len(t, rows, 3, "the lines within quotes are no rows")
	require.True(t, rows[1].large)
	require.EqualValues(t, 5, rows[2].line)
}

// The rows do not depend on how the bytes arrive, nor on the limit.
func TestArrivalDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOf(rapid.SampledFrom([]string{"a", "\"", ",", "\n", "\r\n", " ", "{}", "0123456789"})).Draw(t, "parts")
		file := []byte(strings.Join(parts, ""))
		f := rapid.SampledFrom([]Format{JSONL, CSV}).Draw(t, "format")
		limit := rapid.IntRange(1, 30).Draw(t, "limit")
		want := rowsIn(t, file, f, Options{}, limit)
		require.Equal(t, want, rowsIn(t, file, f, Options{}, limit, rapid.SliceOfN(rapid.IntRange(1, 5), 1, 3).Draw(t, "pieces")...))
		all := rowsIn(t, file, f, Options{}, 1<<20)
		require.Len(t, want, len(all))
		for n, r := range all {
			require.Equal(t, r.line, want[n].line)
			if !want[n].large {
				require.Equal(t, r.text, want[n].text)
			}
		}
	})
}

func FuzzCutCSV(f *testing.F) {
	for _, file := range hardCSV {
		f.Add([]byte(file), byte(','), 3)
	}
	f.Fuzz(func(t *testing.T, file []byte, delim byte, size int) {
		if (Options{Delimiter: string(rune(delim))}).Check(CSV) != nil || bom.UTF16(file) {
			return
		}
		checkCSV(t, file, delim, 1+max(size, -size-1)%100)
	})
}
