package clickhouse

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/sinks/sinktest"
	"github.com/seed-86dfc502/weir/tests/servers"
)

// comparable are types with documents' values, and another value as SQL. A value may have a
// second spelling that is equal by structure.
var comparable = []struct {
	config.Column
	values []string
	other  string
}{
	{Column: config.Column{Type: "String"}, values: []string{`"a"`, `""`, `"ä\u0000\""`, `1.5|1.50`, `{"b":1,"a":[2.0]}|{ "a":[2], "b":1}`, `[true]`}, other: `concat(v, ' ')`},
	{Column: config.Column{Type: "LowCardinality(Nullable(String))"}, values: []string{`"a"`, `null`}, other: `concat(ifNull(v, ''), ' ')`},
	{Column: config.Column{Type: "Nullable(String)"}, values: []string{`"a"`, `null`}, other: `'by hand'`},
	{Column: config.Column{Type: "FixedString(3)"}, values: []string{`"ab"`, `"abc"`}, other: `toFixedString('x', 3)`},
	{Column: config.Column{Type: "Bool"}, values: []string{`true|1`, `false`, `0|false`}, other: `NOT v`},
	{Column: config.Column{Type: "UInt8"}, values: []string{`true`, `255`, `"7"`}, other: `intDiv(v, 2) + 3`},
	{Column: config.Column{Type: "Int64"}, values: []string{`-9223372036854775808`, `"9223372036854775807"`, `12.0|1.2e1`}, other: `intDiv(v, 2)`},
	{Column: config.Column{Type: "Nullable(Int32)"}, values: []string{`1`, `null`}, other: `ifNull(v, 0) + 1`},
	{Column: config.Column{Type: "UInt256"}, values: []string{`"115792089237316195423570985008687907853269984665640564039457584007913129639935"`}, other: `v - 1`},
	{Column: config.Column{Type: "Int128"}, values: []string{`-170141183460469231731687303715884105728`}, other: `v + 1`},
	{Column: config.Column{Type: "Float32"}, values: []string{`0.1|1e-1`, `16777216`}, other: `v * 2`},
	{Column: config.Column{Type: "Float64"}, values: []string{`0.1`, `"NaN"`, `"-Infinity"`, `1e300|10e299`, `0.30000000000000004`}, other: `v * 1.0000000000000002`},
	{Column: config.Column{Type: "Array(Tuple(a Nullable(Float64), b Map(String, Float32)))"}, values: []string{`[{"a":"NaN","b":{"x":"Infinity"}},{"a":null,"b":{}}]`, `[{"a":1.5,"b":{}}]`}, other: `arrayPopBack(v)`},
	{Column: config.Column{Type: "Decimal(9, 2)"}, values: []string{`1.5|1.50`, `"-3"`}, other: `v + toDecimal32('0.01', 2)`},
	{Column: config.Column{Type: "Nullable(Decimal(38,10))"}, values: []string{`-1e-10|-0.1e-9`, `null`}, other: `toDecimal128('7', 10)`},
	{Column: config.Column{Type: "Decimal256(3)"}, values: []string{`12345678901234567890123456789012345678901234567890.5`}, other: `v + 1`},
	{Column: config.Column{Type: "Date"}, values: []string{`"2026-07-01"`, `"2024-02-29T23:59:59Z"`}, other: `v + 1`},
	{Column: config.Column{Type: "Date32", Unit: "days"}, values: []string{`-1`, `"1960-05-05"`}, other: `v + 1`},
	{Column: config.Column{Type: "DateTime"}, values: []string{`"2026-07-01T10:00:00+02:00"`, `1709208000`}, other: `v + 1`},
	{Column: config.Column{Type: "DateTime('Europe/Berlin')"}, values: []string{`"2026-10-25T00:30:00Z"`, `"2026-10-25T01:30:00Z"`}, other: `v + 3600`},
	{Column: config.Column{Type: "DateTime64(3, 'Asia/Tokyo')"}, values: []string{`"1960-05-05T12:00:00.0019Z"`, `"2026-07-01"`}, other: `v + toIntervalSecond(1)`},
	{Column: config.Column{Type: "DateTime64(9)", Unit: "nanos"}, values: []string{`1709208000000000001`}, other: `v + toIntervalNanosecond(1)`},
	{Column: config.Column{Type: "Time64(3)"}, values: []string{`"10:30:00.5"`}, other: `v + toIntervalSecond(1)`},
	{Column: config.Column{Type: "UUID"}, values: []string{`"61f0c404-5cb3-11e7-907b-a6006ad3dba0"|"61F0C404-5CB3-11E7-907B-A6006AD3DBA0"`}, other: `generateUUIDv4()`},
	{Column: config.Column{Type: "IPv4"}, values: []string{`"10.0.0.1"`}, other: `toIPv4('10.0.0.2')`},
	{Column: config.Column{Type: "IPv6"}, values: []string{`"::1"|"0:0::1"`}, other: `toIPv6('::2')`},
	{Column: config.Column{Type: "Enum8('a b'=1,'c'=2)"}, values: []string{`"a b"`}, other: `'c'`},
	{Column: config.Column{Type: "Array(Nullable(Int32))"}, values: []string{`[1,null]`, `[]`}, other: `arrayPushBack(v, 7)`},
	{Column: config.Column{Type: "Array(Array(String))"}, values: []string{`[["a"],[]]`, `[[{"b":1,"a":2}]]|[[{"a":2,"b":1.0}]]`}, other: `arrayPushBack(v, ['x'])`},
	{Column: config.Column{Type: "Array(DateTime64(3, 'Asia/Tokyo'))"}, values: []string{`["2026-07-01T10:00:00Z"]`}, other: `arrayPushBack(v, now64(3))`},
	{Column: config.Column{Type: "Map(String, UInt8)"}, values: []string{`{"b":1,"a":2}|{"a":2,"b":1}`, `{}`}, other: `map('x', 1)`},
	{Column: config.Column{Type: "Map(LowCardinality(String), Array(Nullable(DateTime('UTC'))))"}, values: []string{`{"b":["2026-07-01",null],"a":[]}|{"a":[],"b":["2026-07-01",null]}`}, other: `map('x', [now()])`},
	{Column: config.Column{Type: "Map(UInt8, String)"}, values: []string{`{"1":"x"}`}, other: `map(2, 'x')`},
	{Column: config.Column{Type: "Tuple(UInt8, Nullable(String))"}, values: []string{`[1,"x"]`, `[1,null]`}, other: `tuple(2, 'x')`},
	{Column: config.Column{Type: "Tuple(a UInt8, b Tuple(DateTime64(3, 'UTC'), Nullable(String)))"}, values: []string{`{"b":["2026-07-01",null],"a":1}|{"a":1,"b":["2026-07-01T00:00:00Z",null]}`}, other: `tuple(v.1, tuple(now64(3), NULL))`},
	{Column: config.Column{Type: "Tuple(UInt8, Array(Tuple(String, Tuple(Int8))))"}, values: []string{`[1,[["a",[2]]]]`}, other: `tuple(v.1, [tuple('a', tuple(3))])`},
	{Column: config.Column{Type: "Array(Tuple(a UInt8, b String))"}, values: []string{`[{"a":1,"b":"x"}]|[{"b":"x","a":1}]`}, other: `arrayPushBack(v, tuple(2, 'y'))`},
	{Column: config.Column{Type: "SimpleAggregateFunction(max, DateTime64(3, 'UTC'))"}, values: []string{`"2026-07-01T10:00:00Z"`}, other: `now64(3)`},
}

// A document that was written is in step, also in another spelling of equal structure, for
// all types. A value changed by hand is found; a row of another version, a retraction and a
// document that no longer fits are not compared.
func TestCompare(t *testing.T) {
	for name, server := range map[string]func(testing.TB) (string, string){"engine": servers.ClickHouseHTTP, "old server": servers.ClickHouseNative} {
		dsn, database := server(t)
		for i, tc := range comparable {
			t.Run(name+" "+tc.Type, func(t *testing.T) {
				column := tc.Column
				column.Name, column.Path = "v", "c"
				table := fmt.Sprintf("%s.compared_%d", database, i)
				s := newSink(t, Options{URL: dsn, Table: table, Service: service, Columns: config.Columns{column, {Name: "n", Type: "Int64"}}})
				if err := s.Open(t.Context()); err != nil {
					require.Regexp(t, "code (44|50|62)|enable_time_time64_type", err.Error(), "a type that this server lacks")
					t.Log("lacks the type")
					return
				}
				var changes []change.Change
				var expected []sinks.Expected
				add := func(value string) {
					first, second, ok := strings.Cut(value, "|")
					if !ok {
						second = first
					}
					id := fmt.Sprint("e", len(changes))
					changes = append(changes, sinktest.Change(service, id, change.NewVersion(1, 5), []byte(`{"c":`+first+`,"n":1}`)))
					expected = append(expected, sinks.Expected{Entity: id, Version: change.NewVersion(1, 5), Doc: []byte(`{"n":1, "c": ` + second + `}`)})
				}
				want := map[string][]string{}
				for i, value := range tc.values {
					add(value)
					want[fmt.Sprint("e", i)] = nil
				}
				for range 3 {
					add(tc.values[0])
				}
				n := len(tc.values)
				changes[n].Op = change.Retract
				require.NoError(t, s.Write(t.Context(), changes))
				expected[n+1].Version++
				expected[n+2].Doc = []byte(`{"c":[[[{}]]],"n":"x"}`)
				expected = append(expected, sinks.Expected{Entity: "z", Version: 1, Doc: expected[0].Doc})
				got, err := s.Compare(t.Context(), expected)
				if name == "old server" && strings.Count(tc.Type, "Tuple(") > 1 {
					require.ErrorContains(t, err, "code 62", "names of inner elements")
					return
				}
				require.NoError(t, err)
				require.Equal(t, want, got)

				execute(t, dsn, fmt.Sprintf("INSERT INTO %[1]s (service, entity, version, is_deleted, key, changed_at, v, n) "+
					"SELECT service, entity, version, is_deleted, key, changed_at, %[2]s AS w, n FROM %[1]s WHERE entity = 'e0'", table, tc.other))
				got, err = s.Compare(t.Context(), expected)
				require.NoError(t, err)
				want["e0"] = []string{"v"}
				require.Equal(t, want, got)
			})
		}
	}
}
