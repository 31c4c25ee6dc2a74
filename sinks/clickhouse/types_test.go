package clickhouse

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/sinks/sinktest"
	"github.com/seed-86dfc502/weir/tests/servers"
)

// Every type is written in the spelling of the configuration and in that of the server,
// and the server reads back the same.
func TestTypesAsTheServerSpellsThem(t *testing.T) {
	dsn, database := servers.ClickHouseHTTP(t)
	options, err := clickhouse.ParseDSN(dsn)
	require.NoError(t, err)
	conn, err := clickhouse.Open(options)
	require.NoError(t, err)
	defer conn.Close()
	for i, tc := range []struct{ typeName, literal, want string }{
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
		t.Run(tc.typeName, func(t *testing.T) {
			table := fmt.Sprintf("%s.typed_%d", database, i)
			if err := conn.Exec(t.Context(), "CREATE TABLE "+table+"_probe (v "+tc.typeName+") ENGINE = Memory"); err != nil {
				require.ErrorContains(t, err, "enable_time_time64_type", "a type behind a switch")
				return
			}
			var printed string
			require.NoError(t, conn.QueryRow(t.Context(), "SELECT type FROM system.columns WHERE database = ? AND table = ?",
				database, strings.TrimPrefix(table, database+".")+"_probe").Scan(&printed))
			for n, spelling := range []string{tc.typeName, printed} {
				s := opened(t, Options{URL: dsn, Table: table, Columns: config.Columns{{Name: "v", Type: spelling}}})
				c := sinktest.Change(service, fmt.Sprint("e", n), change.NewVersion(1, 1), []byte(`{"v":`+tc.literal+`}`))
				require.NoError(t, s.Write(t.Context(), []change.Change{c}), spelling)
				var got string
				require.NoError(t, conn.QueryRow(t.Context(), "SELECT toString(v) FROM "+table+" WHERE entity = ?", c.Entity).Scan(&got))
				require.Equal(t, tc.want, got, spelling)
			}
		})
	}
}
