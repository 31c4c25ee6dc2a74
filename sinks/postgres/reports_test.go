package postgres

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/tests/servers"
)

// Values of public bug reports about other writers: each arrives as it is, or its change
// is refused.
func TestReportedValues(t *testing.T) {
	address := servers.Postgres(t)
	for i, tc := range []struct{ typeName, literal, want string }{ // want "": refused
		{"timestamptz", `"-infinity"`, "-infinity"},
		{"timestamp", `"0001-01-01T00:00:00Z"`, "0001-01-01 00:00:00"},
		{"jsonb", `{"id":750727362669608961,"f":10.0,"g":6.67000}`, `{"f": 10.0, "g": 6.67000, "id": 750727362669608961}`},
		{"bytea", `"AQID"`, ""},
		{"bytea", `"\\x010203"`, `\x010203`},
		{"bytea", `"010203"`, ""},
		{"varchar(3)", `"ab    "`, ""},
		{"char(3)", `"ab"`, "ab "},
		{"int", `1.0`, "1"}, {"int", `1.5`, ""}, {"int", `1e3`, "1000"}, {"smallint", `-3.2768e4`, "-32768"}, {"smallint", `3.2768e4`, ""},
		{"bigint", `9.223372036854775807e18`, "9223372036854775807"}, {"bigint", `"-12.0"`, "-12"}, {"bigint", `" 7 "`, "7"}, {"bigint", `true`, ""}, {"bigint", `9223372036854775808`, ""},
		{"int[]", `[1e2,null,[2.0]]`, ""}, {"int[]", `[1e2,null,2.0]`, "{100,NULL,2}"}, {"int[]", `[[1e2],[2.0]]`, "{{100},{2}}"},
		{"date", `"0044-03-15 BC"`, "0044-03-15 BC"}, {"date", `"-0043-03-15"`, "0044-03-15 BC"}, {"date", `"0000-02-29"`, "0001-02-29 BC"}, {"date", `"1970-01-01Z"`, "1970-01-01"}, {"date", `"0001-02-29"`, ""}, {"date", `"-0001-02-29"`, ""},
		{"date", `"4714-11-24 BC"`, "4714-11-24 BC"}, {"date", `"4714-11-23 BC"`, ""}, {"date", `"5874897-12-31"`, "5874897-12-31"}, {"date", `"5874898-01-01"`, ""},
		{"timestamp", `"0044-03-15 12:00:00.5 BC"`, "0044-03-15 12:00:00.5 BC"}, {"timestamp", `"12026-07-01 10:00:00"`, "12026-07-01 10:00:00"},
		{"timestamptz", `"0044-03-15 12:00:00+02 BC"`, "0044-03-15 10:00:00+00 BC"}, {"timestamptz", `"+12026-07-01T10:00:00Z"`, "12026-07-01 10:00:00+00"},
		{"timestamptz", `"0001-01-01T00:00:00+01:00"`, "0001-12-31 23:00:00+00 BC"}, {"timestamp(0)", `"0001-01-01 00:00:00.999 BC"`, "0001-01-01 00:00:00 BC"},
		{"timestamptz[]", `["0044-03-15 12:00:00+00 BC"]`, `{"0044-03-15 12:00:00+00 BC"}`},
		{"date in days", `-735160`, "0044-03-15 BC"}, {"timestamp in micros", `-63517780800000000`, "0044-03-15 12:00:00 BC"}, {"timestamptz in micros", `-63517780800000001`, "0044-03-15 11:59:59.999999+00 BC"},
		{"timestamp in micros", `9223371331200000000`, "294247-01-02 00:00:00"}, {"date in days", `2145031948`, "5874868-01-01"}, {"date in days", `99999999999`, ""},
		{"timetz", `"10:30:00+02"`, "10:30:00+02"}, {"time", `"10:30:00+00"`, "10:30:00"}, {"time", `"10:30:00+02"`, ""},
		{"bigint", `9223372036854775807`, "9223372036854775807"},
		{"double precision", `9007199254740993`, ""},
		{"double precision", `0.1`, "0.1"},
		{"real", `16777217`, ""},
		{"real", `0.1`, "0.1"},
		{"numeric", `1e-30`, "0.000000000000000000000000000001"},
		{"bit(3)", `"10"`, ""}, {"bit(3)", `"101"`, "101"},
		{"boolean", `"off"`, "f"},
		{"text[]", `["a",null,"NULL","{}"]`, `{a,NULL,"NULL","{}"}`},
		{"int[]", `"{1,2}"`, `{1,2}`},
		{"uuid", `"61f0c4045cb311e7907ba6006ad3dba0"`, "61f0c404-5cb3-11e7-907b-a6006ad3dba0"},
		{"interval", `"P1DT2H"`, "1 day 02:00:00"},
		{"timestamp(0)", `"2026-07-01T10:00:00.999Z"`, "2026-07-01 10:00:00"},
		{"inet", `"10.0.0.1/8"`, "10.0.0.1/8"}, {"cidr", `"10.0.0.1/8"`, ""},
		{"time", `"24:00:00"`, "24:00:00"},
	} {
		table := fmt.Sprint("r_", i)
		typeName, unit, _ := strings.Cut(tc.typeName, " in ")
		s := opened(t, Options{URL: address, Table: table, Columns: config.Columns{{Name: "v", Path: "v", Type: typeName, Unit: unit}}})
		c, other := upsert("a", 1, ""), upsert("b", 1, "")
		c.Doc, other.Doc = []byte(`{"v":`+tc.literal+`}`), []byte(`{}`)
		err := s.Write(t.Context(), []change.Change{other, c})
		var got *string
		require.NoError(t, s.pool.Load().QueryRow(t.Context(), "SELECT max(CASE WHEN entity = 'a' THEN format('%s', v) END) FROM "+table).Scan(&got))
		if got == nil {
			got = new("")
		}
		if *got != tc.want {
			t.Errorf("%s %s: %q, not %q: %v", tc.typeName, tc.literal, *got, tc.want, err)
		}
		var failed *sinks.BatchError
		if err != nil {
			require.ErrorAs(t, err, &failed)
		}
	}
}
