package postgres

import (
	"fmt"
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
		{"int", `1.0`, ""}, {"int", `1.5`, ""}, {"int", `1e3`, ""},
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
		s := opened(t, Options{URL: address, Table: table, Columns: config.Columns{{Name: "v", Path: "v", Type: tc.typeName}}})
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
