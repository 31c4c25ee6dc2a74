package clickhouse

import (
	"fmt"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/sinks/sinktest"
	"github.com/seed-86dfc502/weir/tests/servers"
)

// Values of public bug reports about other writers, and of every type: each arrives as it is, under the
// type's spelling in the configuration and the server's, or its change is refused.
func TestReportedValues(t *testing.T) {
	dsn, database := servers.ClickHouseHTTP(t)
	options, err := clickhouse.ParseDSN(dsn)
	require.NoError(t, err)
	conn, err := clickhouse.Open(options)
	require.NoError(t, err)
	defer conn.Close()
	for i, tc := range []struct{ typeName, literal, want string }{ // want "": refused
		{"Decimal(18, 0)", `1000000000000000000`, ""},
		{"Decimal(38, 2)", `"1e40"`, ""},
		{"UInt256", `"115792089237316195423570985008687907853269984665640564039457584007913129639936"`, ""},
		{"Int128", `"-170141183460469231731687303715884105729"`, ""},
		{"Decimal(6, 2)", `100`, "100"},
		{"Decimal(6, 2)", `1e2`, "100"},
		{"Nullable(Decimal(9, 4))", `-0.0171`, "-0.0171"},
		{"DateTime64(9)", `"2025-09-29T10:00:00.123Z"`, "2025-09-29 10:00:00.123000000"},
		{"Array(DateTime64(3))", `["2025-09-29T10:00:00.123Z"]`, "['2025-09-29 10:00:00.123']"},
		{"IPv6", `"1.2.3.4"`, "::ffff:1.2.3.4"},
		{"LowCardinality(FixedString(8))", `"abcdefgh"`, "abcdefgh"},
		{"Date", `null`, ""},
		{"Enum16('a' = -300, 'b' = 300)", `"a"`, "a"},
		{"Float64", `"NaN"`, "nan"},
		{"Float64", `9007199254740993`, ""},
		{"Float64", `0.1`, "0.1"},
		{"Float32", `16777217`, ""},
		{"Bool", `"false"`, ""},
		{"UUID", `"{61f0c404-5cb3-11e7-907b-a6006ad3dba0}"`, "61f0c404-5cb3-11e7-907b-a6006ad3dba0"},
		{"UUID", `"61f0c4045cb311e7907ba6006ad3dba0"`, "61f0c404-5cb3-11e7-907b-a6006ad3dba0"},
		{"Float64", `9007199254740992`, "9007199254740992"},
		{"Map(String, String)", `{"a":"1","a":"2"}`, "{'a':'1','a':'2'}"},
		{"String", `"\ud83c\udf4c\u0000"`, "🍌\x00"},
		{"Date", `"1970-01-01T00:00:00+05:00"`, ""},
		{"DateTime('Europe/Berlin')", `"2026-03-29 02:30:00"`, "2026-03-29 04:30:00"},
		{"DateTime64(3, 'UTC')", `"1960-05-05T12:00:00.0019Z"`, "1960-05-05 12:00:00.001"},
		{"DateTime64(3,'Europe/Berlin')", `"2026-07-01T10:00:00Z"`, "2026-07-01 12:00:00.000"},
		{"Nullable(DateTime64(6, 'UTC'))", `"2026-07-01 10:00:00+02:00"`, "2026-07-01 08:00:00.000000"},
		{"Date32", `"1960-05-05T12:00:00Z"`, "1960-05-05"},
		{"LowCardinality(Nullable(String))", `"a"`, "a"},
		{"Enum8('a b'=1,'c'=2)", `"a b"`, "a b"},
		{"Decimal64(3)", `"1.5"`, "1.5"},
		{"Nullable(Decimal(38,10))", `-1e-10`, "-0.0000000001"},
		{"FixedString(2)", `"ab"`, "ab"},
		{"Array(Nullable(Date))", `["2026-07-01",null]`, "['2026-07-01',NULL]"},
		{"Map(String,DateTime64(3,'UTC'))", `{"b":"2026-07-01T10:00:00Z"}`, "{'b':'2026-07-01 10:00:00.000'}"},
		{"Map(LowCardinality(String), Array(Nullable(UInt8)))", `{"b":[1,null],"a":[]}`, "{'b':[1,NULL],'a':[]}"},
		{"Tuple(UInt8,String)", `[1,"x"]`, "(1,'x')"},
		{"Tuple(a UInt8, b Tuple(DateTime64(3, 'UTC'), Nullable(String)))", `{"b":["2026-07-01",null],"a":1}`, "(1,('2026-07-01 00:00:00.000',NULL))"},
		{"Array(Tuple(a UInt8, b String))", `[{"a":1,"b":"x"}]`, "[(1,'x')]"},
		{"UInt256", `"115792089237316195423570985008687907853269984665640564039457584007913129639935"`, "115792089237316195423570985008687907853269984665640564039457584007913129639935"},
		{"IPv6", `"::1"`, "::1"},
		{"Time64(3)", `"10:30:00.5"`, "10:30:00.500"},
		{"SimpleAggregateFunction(max, DateTime64(3, 'UTC'))", `"2026-07-01T10:00:00Z"`, "2026-07-01 10:00:00.000"},
	} {
		table := fmt.Sprintf("%s.r_%d", database, i)
		spelling := tc.typeName
		for n := range 2 {
			s := newSink(t, Options{URL: dsn, Table: table, Service: service, Columns: config.Columns{{Name: "v", Type: spelling}}})
			if err := s.Open(t.Context()); err != nil {
				require.ErrorContains(t, err, "enable_time_time64_type", "a type behind a switch")
				break
			}
			spelling = s.session.Load().types["v"]
			entity := fmt.Sprint("e", n)
			err := s.Write(t.Context(), []change.Change{sinktest.Change(service, entity, change.NewVersion(1, 1), []byte(`{"v":`+tc.literal+`}`))})
			var got string
			if err == nil {
				require.NoError(t, conn.QueryRow(t.Context(), "SELECT toString(v) FROM "+table+" WHERE entity = ?", entity).Scan(&got))
			}
			if got != tc.want {
				t.Errorf("%s %s: %q, not %q: %v", tc.typeName, tc.literal, got, tc.want, err)
			}
			var failed *sinks.BatchError
			if err != nil {
				require.ErrorAs(t, err, &failed)
			}
		}
	}
	// More distinct values than two bytes number.
	const rows = 70_000
	s := opened(t, Options{URL: dsn, Table: database + ".many", MaxBatch: rows, Columns: config.Columns{{Name: "v", Path: "text", Type: "LowCardinality(String)"}}})
	batch := batchOf(rows, 1)
	for i := range batch {
		batch[i].Doc = fmt.Appendf(nil, `{"text":"t%d"}`, i)
	}
	require.NoError(t, s.Write(t.Context(), batch))
	var n uint64
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT uniqExact(v) FROM "+database+".many").Scan(&n))
	require.EqualValues(t, rows, n)
}
