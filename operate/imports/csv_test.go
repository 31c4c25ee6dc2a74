package imports

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestColumnsBecomeMembers(t *testing.T) {
	o := Options{Delimiter: ";", Types: map[string]Type{"weight": Number, "origin.ripe": Bool, "tags": JSON}}
	d, err := newDecoder([]byte("id;origin.country;weight;origin.ripe;tags;a\\.b;\"quo\"\"ted\"\r\n"), o)
	require.NoError(t, err)
	for _, c := range []struct{ row, want string }{
		{`B-1;EC;1.50;TRUE;"[1,""x""]";dot;q`, `{"id":"B-1","origin":{"country":"EC","ripe":true},"weight":1.50,"tags":[1,"x"],"a.b":"dot","quo\"ted":"q"}`},
		{`;;;;;;`, `{"id":"","origin":{"country":"","ripe":null},"weight":null,"tags":null,"a.b":"","quo\"ted":""}`},
		{"\"B\r\n1\r\n\";a\r;1;true;{};\"\r\";\"\n\"", `{"id":"B\r\n1\r\n","origin":{"country":"a\r","ripe":true},"weight":1,"tags":{},"a.b":"\r","quo\"ted":"\n"}`},
		{"\"B\n1\";<é&>;-1e-5;false;\" {} \";\x01;\"\"\"\"", `{"id":"B\n1","origin":{"country":"<é&>","ripe":false},"weight":-1e-5,"tags": {} ,"a.b":"\u0001","quo\"ted":"\""}`},
	} {
		got, err := d.decode([]byte("before"), []byte(c.row+"\r\n"))
		require.NoError(t, err, c.row)
		require.Equal(t, "before"+c.want, string(got), "literals and the order of columns stay")
		require.True(t, json.Valid(got[len("before"):]))
	}
	for row, reason := range map[string]string{
		"a;b":                     "the row has 2 cells, the header has 7",
		";;;;;;;":                 "the row has 8 cells, the header has 7",
		";;01;;;;":                `the cell of column "weight" is no JSON number`,
		";; 1;;;;":                `the cell of column "weight" is no JSON number`,
		";;1 ;;;;":                `the cell of column "weight" is no JSON number`,
		";;NaN;;;;":               `the cell of column "weight" is no JSON number: NaN and infinity, which DuckDB and Python write, are no JSON; write null or a string`,
		";;;yes;;;":               `the cell of column "origin.ripe" is neither true nor false`,
		";;;;{;;":                 `the cell of column "tags" is no JSON value`,
		"\xff;;;;;;":              "the row is not valid UTF-8",
		`a"b;;;;;;`:               "a quote inside a cell that does not begin with one",
		`"ab"c;;;;;;`:             "a quoted cell has no end, or text follows its end",
		`"abc;;;;;;`:              "a quoted cell has no end, or text follows its end",
		"B-secret;;secret!;;;;\n": `the cell of column "weight" is no JSON number`,
	} {
		_, err := d.decode(nil, []byte(row))
		require.EqualError(t, err, reason, row)
	}
}

func text(s string) *string { return &s }

// The files of other tools: options read them, and without these a reason names the tool. Each
// has the form of COPY … CSV (PostgreSQL), SELECT … INTO OUTFILE (MariaDB) or DuckDB, by their manuals.
func TestFilesOfOtherTools(t *testing.T) {
	typed := map[string]Type{"n": Number}
	for name, c := range map[string]struct {
		o         Options
		file      string
		want, err string // of each row
	}{
		"COPY":                       {Options{Null: text("")}, "id,a\nx,\ny,\"\"\n", `{"id":"x","a":null}|{"id":"y","a":""}`, ""},
		"COPY, without option":       {Options{}, "id,a\nx,\ny,\"\"\n", `{"id":"x","a":""}|{"id":"y","a":""}`, ""},
		"COPY, one column":           {Options{Null: text("")}, "a\nx\n\n\"\"\n", `{"a":"x"}|{"a":null}|{"a":""}`, ""},
		"OUTFILE":                    {Options{Escape: `\`, Types: typed}, "id,a,n\n\"x\",\"q\\\"u,\\\\\n\",\\N\ny\\,z,\\N,1\n", `{"id":"x","a":"q\"u,\\\n","n":null}|{"id":"y,z","a":null,"n":1}`, ""},
		"OUTFILE, lines":             {Options{Escape: `\`}, "id,a\nx,1\\\n2\ny,\\0\n", `{"id":"x","a":"1\n2"}|{"id":"y","a":"\u0000"}`, ""},
		"\\N":                        {Options{Null: text(`\N`)}, "id,a\nx,\\N\ny,\"\\N\"\n", `{"id":"x","a":null}|{"id":"y","a":"\\N"}`, ""},
		"\\N, without option":        {Options{}, "id,a\nx,\\N\n", "", `which MySQL and PostgreSQL write for NULL: import with --null '\N'`},
		"OUTFILE without option":     {Options{}, "id,a\n\"x\",\"q\\\"u\"\n", "", `where a backslash escapes, as in MySQL's files, import with --escape '\'`},
		"a comma behind a backslash": {Options{}, "id,a\ny\\,z,1\n", "", `the row has 3 cells, the header has 2; where a backslash escapes`},
		"DuckDB":                     {Options{Types: typed}, "id,n\nx,nan\n", "", `no JSON number: NaN and infinity, which DuckDB`},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, c.o.Check(CSV))
			r := run{f: File{Format: CSV, Options: c.o, MaxRow: maxRow, SHA256: sha256.Sum256([]byte(c.file))}}
			var err error
			r.cutter, err = newCutter(strings.NewReader(c.file), CSV, c.o, maxRow)
			require.NoError(t, err)
			require.NoError(t, r.header())
			b, err := r.fill(0)
			require.NoError(t, err)
			var got []string
			for _, x := range b.Rows {
				if c.err == "" {
					require.Empty(t, x.Reason)
				} else {
					require.Contains(t, x.Reason, c.err)
				}
				got = append(got, string(x.Value))
			}
			require.NotEmpty(t, got)
			if c.err == "" {
				require.Equal(t, c.want, strings.Join(got, "|"))
			}
		})
	}
}

func TestHeadersThatCannotBe(t *testing.T) {
	for header, reason := range map[string]string{
		"a,a":                          `column 2 ("a"): another column has the same place`,
		"a.b,a":                        `column 2 ("a"): another column has the same place`,
		"a,a.b":                        `column 2 ("a.b"): another column has the same place`,
		"a,":                           `column 2 (""): its name is empty, or a part of it`,
		"a..b":                         `column 1 ("a..b"): its name is empty, or a part of it`,
		"a\xff":                        "the header is not valid UTF-8",
		"a,\"b":                        "the header is no record of CSV: a quoted cell has no end, or text follows its end",
		strings.Repeat("a.", 64) + "a": `column 1 ("` + strings.Repeat("a.", 32) + `…"): its name nests deeper than 64`,
	} {
		_, err := newDecoder([]byte(header), Options{})
		var bad *BadFile
		require.ErrorAs(t, err, &bad, header)
		require.Equal(t, reason, bad.Reason, header)
	}
	_, err := newDecoder([]byte("a,b"), Options{Types: map[string]Type{"c": Number}})
	require.EqualError(t, err, `a type is given for the column "c", which the header does not have`)
}

func TestOptions(t *testing.T) {
	require.Equal(t, `{}`, string(Options{}.Encode()))
	require.Equal(t, Options{}.Encode(), Options{Delimiter: ",", Types: map[string]Type{"a": String}}.Encode(), "what is the default anyway makes no other job")
	o := Options{Delimiter: "\t", Types: map[string]Type{"b": Number, "a": Bool, "c:d": JSON}, Null: text(""), Escape: `\`}
	require.NoError(t, o.Check(CSV))
	require.Error(t, o.Check(JSONL))
	types, err := ParseTypes([]string{"a:bool", "b:number", "c:d:json"})
	require.NoError(t, err)
	require.Equal(t, o.Types, types)
	for _, wrong := range [][]string{{"a"}, {":number"}, {"a:number", "a:bool"}, {""}} {
		_, err := ParseTypes(wrong)
		require.Error(t, err, wrong)
	}
	for _, escape := range []string{"\"", "\n", "é", ",", "ab"} {
		require.Error(t, Options{Escape: escape}.Check(CSV), "%q", escape)
	}
	for _, delimiter := range []string{"\"", "\n", "\r", ",,", "é", "\x00"} {
		require.Error(t, Options{Delimiter: delimiter}.Check(CSV), "%q", delimiter)
	}
	require.Error(t, Options{Types: map[string]Type{"a": "date"}}.Check(CSV))
	require.Equal(t, CSV, FormatOf("x/Y.CSV"))
	require.Equal(t, JSONL, FormatOf("y.ndjson"))
	require.Empty(t, FormatOf("y.json"))
	_, err = ParseFormat("xml")
	require.Error(t, err)
}

// The object holds exactly the cells, of any content.
func TestCellsComeThrough(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cells := rapid.SliceOfN(rapid.String(), 1, 5).Draw(t, "cells")
		var header, line []string
		for n, c := range cells {
			header = append(header, "n."+string(rune('a'+n)))
			line = append(line, `"`+strings.ReplaceAll(c, `"`, `""`)+`"`)
		}
		d, err := newDecoder([]byte(strings.Join(header, ",")), Options{})
		require.NoError(t, err)
		got, err := d.decode(nil, []byte(strings.Join(line, ",")+"\n"))
		require.NoError(t, err)
		var object struct{ N map[string]string }
		require.NoError(t, json.Unmarshal(got, &object))
		require.Len(t, object.N, len(cells))
		for n, c := range cells {
			require.Equal(t, c, object.N[string(rune('a'+n))])
		}
	})
}

func FuzzDecodeCSV(f *testing.F) {
	f.Add([]byte("a,b.c,d"), []byte("1,\"x\"\"y\",true"), true)
	f.Add([]byte("a\\.b,c"), []byte("1,"), false)
	f.Fuzz(func(t *testing.T, header, record []byte, typed bool) {
		o := Options{}
		d, err := newDecoder(header, o)
		if err != nil {
			var bad *BadFile
			require.ErrorAs(t, err, &bad)
			return
		}
		if typed {
			o.Types = map[string]Type{}
			for n, c := range d.columns {
				o.Types[c.name] = []Type{Number, Bool, JSON, String}[n%4]
			}
			if d, err = newDecoder(header, o); err != nil {
				return // two columns of one name cannot be
			}
		}
		got, err := d.decode(nil, record)
		if err != nil {
			require.LessOrEqual(t, len(err.Error()), 600)
			return
		}
		require.True(t, json.Valid(got), "%q", got)
		require.True(t, utf8.Valid(got))
	})
}

// Lines that end as on an old Mac are one line, which would be a header alone: an
// import that is done and took nothing in.
func TestLinesThatEndWithCarriageReturnsAlone(t *testing.T) {
	w := newWorld(t)
	for _, text := range []string{"id,event\rB-1,e1\rB-2,e2\r", "id,event\rB-1,e1\rB-2,e2", "\"id\r\",event\nB-1,e1\n"} {
		_, err := w.run(CSV, Options{}, text)
		var bad *BadFile
		require.ErrorAs(t, err, &bad, "%q", text)
		require.Contains(t, bad.Reason, "line feed")
	}
	require.EqualValues(t, 1, w.file(CSV, Options{}, "id,event\r\nB-1,e1\r\n").Accepted)
}

// The cost of a header grows with its size alone.
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
