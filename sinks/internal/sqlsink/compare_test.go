package sqlsink

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/config"
)

func TestDiffering(t *testing.T) {
	columns := config.Columns{{Name: "c", Path: "v"}}
	for _, tc := range []struct {
		doc, held, wanted string // "" is NULL
		same              bool
	}{
		{`1`, `1`, `1`, true},
		{`1`, ``, `1`, false},
		{`null`, ``, ``, true},
		{`null`, `null`, `false`, false},
		{`1.5`, `1.50`, `1.5`, true},
		{`1e400`, `10e399`, `1e400`, true},
		{`1`, `"1"`, `1`, false},
		{`{"a":1,"b":[2]}`, `{"b":[2.0],"a":1}`, `{"a":1,"b":[2]}`, true},
		{`{"a":1}`, `{"a":1,"b":null}`, `{"a":1}`, false},
		{`[1,2]`, `[2,1]`, `[1,2]`, false},
		{`"1.5"`, `"1.50"`, `"1.5"`, false},
		// A text column of other JSON.
		{`1.5`, `"1.50"`, `"1.5"`, true},
		{`{"a":1,"b":2}`, `"{\"b\": 2, \"a\":1}"`, `"{\"a\":1,\"b\":2}"`, true},
		{`{"a":1}`, `"{\"a\":2}"`, `"{\"a\":1}"`, false},
		{`{"a":1}`, `"{\"a\":"`, `"{\"a\":1}"`, false},
		{`["1.5",1.5]`, `["1.5","1.50"]`, `["1.5","1.5"]`, true},
		{`["1.5",1.5]`, `["1.50","1.5"]`, `["1.5","1.5"]`, false},
		{`{"k":{"a":1,"b":2}}`, `{"k":"{\"b\":2,\"a\":1}"}`, `{"k":"{\"a\":1,\"b\":2}"}`, true},
	} {
		pointer := func(s string) *string {
			if s == "" {
				return nil
			}
			return &s
		}
		names := Differing(columns, []byte(`{"v":`+tc.doc+`}`), []*string{pointer(tc.held)}, []*string{pointer(tc.wanted)})
		require.Equal(t, tc.same, len(names) == 0, "%+v", tc)
	}
}
