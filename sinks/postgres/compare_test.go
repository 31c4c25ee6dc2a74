package postgres

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/sinks/sinktest"
	"github.com/seed-86dfc502/weir/tests/servers"
)

// comparable are columns with documents' values, and another value as SQL. A value may have a
// second spelling that is equal by structure.
var comparable = []struct {
	config.Column
	table  string // type in the table, if another one
	values []string
	other  string
}{
	{Column: config.Column{Name: "flag", Type: "boolean"}, values: []string{`true`, `false`, `"yes"`, `null`}, other: `NOT coalesce(flag, false)`},
	{Column: config.Column{Name: "tiny", Type: "smallint"}, values: []string{`-32768`, `7`, `"12"`, `12.0|1.2e1`}, other: `tiny / 2 + 1`},
	{Column: config.Column{Name: "whole", Type: "bigint"}, values: []string{`9223372036854775807`, `0`}, other: `whole / 2 + 1`},
	{Column: config.Column{Name: "exact", Type: "numeric"}, values: []string{`1.5|1.50`, `1e2|100`, `-0.0001`, `123456789012345678901234567890.5`}, other: `exact + 0.00001`},
	{Column: config.Column{Name: "price", Type: "numeric(12,2)"}, table: "numeric(14,4)", values: []string{`1.5|1.50`, `-3`, `"7.25"`}, other: `price + 0.0001`},
	{Column: config.Column{Name: "real4", Type: "real"}, values: []string{`0.1|1e-1`, `16777216`}, other: `real4 * 1.0000002`},
	{Column: config.Column{Name: "real8", Type: "double precision"}, values: []string{`0.1`, `"NaN"`, `1e300|10e299`, `0.30000000000000004`}, other: `real8 * 1.0000000000000002`},
	{Column: config.Column{Name: "cash", Type: "money"}, values: []string{`12.5|12.50`}, other: `cash + 0.01::money`},
	{Column: config.Column{Name: "words", Type: "text"}, values: []string{`"a"`, `"ä\n\"x\""`, `""`, `" a "`, `1.5|1.50`, `{"b":1,"a":[2.0]}|{ "a":[2], "b":1}`, `[true]`}, other: `words || ' '`},
	{Column: config.Column{Name: "short", Type: "varchar(10)"}, table: "varchar(20)", values: []string{`"abc"`, `"abc  "`}, other: `short || '!'`},
	{Column: config.Column{Name: "padded", Type: "char(5)"}, table: "char(9)", values: []string{`"abc"`, `""`}, other: `trim(padded) || '!'`},
	{Column: config.Column{Name: "raw", Type: "bytea"}, values: []string{`"\\x00ff"|"\\x00FF"`}, other: `raw || '\x00'`},
	{Column: config.Column{Name: "day", Type: "date"}, values: []string{`"2026-07-01"`, `"0001-01-01"`, `"infinity"`}, other: `'2020-02-02'`},
	{Column: config.Column{Name: "days", Type: "date", Unit: "days"}, values: []string{`20123`, `-1`, `-735160`}, other: `days + 1`},
	{Column: config.Column{Name: "moment", Type: "timestamptz"}, table: "timestamptz(3)", values: []string{`"2026-07-01T10:30:00.12349+02:00"`, `"1960-01-01T00:00:00Z"`}, other: `moment + interval '1 ms'`},
	{Column: config.Column{Name: "wall", Type: "timestamp", Unit: "millis"}, values: []string{`1709208000001`, `"2026-07-01 10:30:00"`}, other: `wall + interval '1 us'`},
	{Column: config.Column{Name: "clock", Type: "time"}, values: []string{`"10:30:00.5"`, `"24:00:00"`}, other: `'01:00'`},
	{Column: config.Column{Name: "zoned", Type: "timetz"}, values: []string{`"10:30:00+02:00"`, `"10:30:00"`}, other: `'10:30:01Z'`},
	{Column: config.Column{Name: "span", Type: "interval"}, table: "interval(0)", values: []string{`"1 day 02:03:04"`, `"00:00:01.6"`}, other: `span + interval '1 s'`},
	{Column: config.Column{Name: "id", Type: "uuid"}, values: []string{`"61F0C404-5cb3-11e7-907b-a6006ad3dba0"`}, other: `gen_random_uuid()`},
	{Column: config.Column{Name: "address", Type: "inet"}, values: []string{`"10.0.0.1"`, `"::1"`}, other: `address + 1`},
	{Column: config.Column{Name: "place", Type: "point"}, values: []string{`"(1.5,2)"`}, other: `place + point '(0,1)'`},
	{Column: config.Column{Name: "area", Type: "box"}, values: []string{`"(2,2),(0,0)"`}, other: `area + point '(1,1)'`},
	{Column: config.Column{Name: "bits", Type: "bit(4)"}, values: []string{`"0101"`}, other: `~bits`},
	{Column: config.Column{Name: "between", Type: "tstzrange"}, values: []string{`"[2026-07-01 10:00:00+02,2026-07-02)"`}, other: `'empty'`},
	{Column: config.Column{Name: "search", Type: "tsvector"}, values: []string{`"a b a"`}, other: `search || 'c'::tsvector`},
	{Column: config.Column{Name: "markup", Type: "xml"}, values: []string{`"<a/>"`}, other: `'<b/>'`},
	{Column: config.Column{Name: "colour", Type: "colour"}, values: []string{`"red"`, `"green"`}, other: `'blue'`},
	{Column: config.Column{Name: "code", Type: "code"}, values: []string{`"abc"`}, other: `'xyz'`},
	{Column: config.Column{Name: "pair", Type: "pair"}, values: []string{`{"a":1.50,"b":{"y":1,"x":2}}|{"b":{"x":2,"y":1},"a":1.5}`}, other: `ROW(2, '')`},
	{Column: config.Column{Name: "deep", Type: "jsonb"}, values: []string{`{"b":1e2,"a":[1.50]}|{"a":[1.5],"b":100}`, `"text"`, `[]`, `7`}, other: `jsonb_build_array(deep)`},
	{Column: config.Column{Name: "verbatim", Type: "json"}, values: []string{`{"b":1e400,"a":"x"}|{"a":"x", "b":10e399}`, `null`}, other: `'{"b":1}'`},
	{Column: config.Column{Name: "numbers", Type: "int[]"}, values: []string{`[1,null,3]`, `[]`, `[[1,2],[3,4]]`}, other: `numbers || 5`},
	{Column: config.Column{Name: "texts", Type: "text[]"}, values: []string{`["a","b,\"c"]`, `[{"b":1,"a":2}]|[{"a":2,"b":1.0}]`}, other: `texts || 'x'::text`},
	{Column: config.Column{Name: "prices", Type: "numeric(6,2)[]"}, values: []string{`[1.5,2]|[1.50,2.0]`}, other: `prices || 9.99`},
	{Column: config.Column{Name: "moments", Type: "timestamptz[]"}, values: []string{`["2026-07-01T10:30:00Z"]`}, other: `moments || now()`},
	{Column: config.Column{Name: "jsons", Type: "json[]"}, values: []string{`[{"b":1,"a":2}]|[{"a":2,"b":1}]`}, other: `jsons || '1'::json`},
	{Column: config.Column{Name: "missing", Type: "text"}, values: []string{`null`}, other: `'here'`},
}

// compared is a table with a column of each type, in either mode.
func compared(t *testing.T, mode Mode) *Sink {
	url := servers.Postgres(t)
	execute(t, url, "CREATE TYPE colour AS ENUM ('red', 'green', 'blue'); CREATE DOMAIN code AS varchar(5) CHECK (value <> ''); CREATE TYPE pair AS (a numeric, b text)")
	o := Options{URL: url, Table: "compared", Mode: mode}
	for _, c := range comparable {
		o.Columns = append(o.Columns, c.Column)
	}
	s := opened(t, o)
	for _, c := range comparable {
		if c.table != "" {
			execute(t, url, fmt.Sprintf("DROP VIEW IF EXISTS compared_current; ALTER TABLE compared ALTER COLUMN %s TYPE %s", quote(c.Name), c.table))
		}
	}
	require.NoError(t, s.Open(t.Context()))
	return s
}

// A document that was written is in step, also in another spelling of equal structure, for
// all types, in a session with settings of its own.
func TestWrittenDocumentsAreInStep(t *testing.T) {
	for _, mode := range []Mode{Upsert, Append} {
		s := compared(t, mode)
		offset, round := int64(0), 0
		rapid.Check(t, func(rt *rapid.T) {
			var changes []change.Change
			var expected []sinks.Expected
			round++
			for i := range rapid.IntRange(1, 8).Draw(rt, "rows") {
				var written, again []string
				for _, c := range comparable {
					value := rapid.SampledFrom(c.values).Draw(rt, c.Name)
					first, second, ok := strings.Cut(value, "|")
					if !ok {
						second = first
					}
					written = append(written, fmt.Sprintf("%q:%s", c.Name, first))
					again = append(again, fmt.Sprintf("%q: %s", c.Name, second))
				}
				offset++
				slices.Reverse(again)
				id := fmt.Sprintf("%d-%d", round, i)
				changes = append(changes, sinktest.Change(service, id, change.NewVersion(1, offset), []byte("{"+strings.Join(written, ",")+"}")))
				expected = append(expected, sinks.Expected{Entity: id, Version: change.NewVersion(1, offset), Doc: []byte("{" + strings.Join(again, ", ") + "}")})
			}
			require.NoError(rt, s.Write(t.Context(), changes))
			got, err := s.Compare(t.Context(), expected)
			require.NoError(rt, err)
			require.Len(rt, got, len(expected))
			for id, columns := range got {
				require.Empty(rt, columns, id)
			}
		})
	}
}

// A value changed by hand is found in each column; a row of another version, a retraction and
// a document that no longer fits are not compared.
func TestValuesChangedByHand(t *testing.T) {
	s := compared(t, Upsert)
	var members []string
	for _, c := range comparable {
		first, _, _ := strings.Cut(c.values[0], "|")
		members = append(members, fmt.Sprintf("%q:%s", c.Name, first))
	}
	doc := []byte("{" + strings.Join(members, ",") + "}")
	var changes []change.Change
	var expected []sinks.Expected
	add := func(id string) {
		changes = append(changes, sinktest.Change(service, id, change.NewVersion(1, 1), doc))
		expected = append(expected, sinks.Expected{Entity: id, Version: change.NewVersion(1, 1), Doc: doc})
	}
	want := map[string][]string{"same": nil}
	for _, c := range comparable {
		add(c.Name)
		want[c.Name] = []string{c.Name}
	}
	for _, id := range []string{"same", "older", "retracted"} {
		add(id)
	}
	expected = append(expected, sinks.Expected{Entity: "same", Version: change.NewVersion(1, 1), Doc: []byte(`{"tiny":"x"}`)},
		sinks.Expected{Entity: "absent", Version: change.NewVersion(1, 1), Doc: doc}, sinks.Expected{Entity: "unfit", Version: change.NewVersion(1, 1), Doc: []byte(`{"day":1}`)})
	changes[len(changes)-1].Op = change.Retract
	require.NoError(t, s.Write(t.Context(), changes))
	execute(t, s.options.URL, "UPDATE compared SET version = version + 1 WHERE entity = 'older'")
	for _, c := range comparable {
		execute(t, s.options.URL, fmt.Sprintf("UPDATE compared SET %s = %s WHERE entity = '%s'", quote(c.Name), c.other, c.Name))
	}
	got, err := s.Compare(t.Context(), expected)
	require.NoError(t, err)
	require.Equal(t, want, got, "%v", slices.Sorted(maps.Keys(got)))
}

// Whole documents are compared in jsonb.
func TestCompareWholeDocuments(t *testing.T) {
	s := opened(t, Options{URL: servers.Postgres(t), Table: "whole"})
	at := change.NewVersion(1, 1)
	require.NoError(t, s.Write(t.Context(), []change.Change{sinktest.Change(service, "a", at, []byte(`{"b":1e2,"a":1}`)), sinktest.Change(service, "b", at, []byte(`{"b":1}`))}))
	execute(t, s.options.URL, `UPDATE whole SET doc = '{"b":2}' WHERE entity = 'b'`)
	got, err := s.Compare(t.Context(), []sinks.Expected{{Entity: "a", Version: at, Doc: []byte(`{"a":1,"b":100.0}`)}, {Entity: "b", Version: at, Doc: []byte(`{"b":1}`)}})
	require.NoError(t, err)
	require.Equal(t, map[string][]string{"a": nil, "b": {"doc"}}, got)
}
