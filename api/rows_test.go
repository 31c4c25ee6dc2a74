package api_test

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"testing"

	"github.com/seed-86dfc502/weir/api"
	"github.com/stretchr/testify/require"
)

func TestSplit(t *testing.T) {
	for _, c := range []struct {
		name, body string
		lines      bool
		rows       []string
		status     int
	}{
		{"array", ` [{"a": 1},2 , []]`, false, []string{`{"a": 1}`, "2", "[]"}, 0},
		{"lines", "{\"a\":1}\r\n\n 2 \nsecret", true, []string{`{"a":1}`, "2", "secret"}, 0},
		{"array of none", "[]", false, nil, 422},
		{"no lines", "\n \n", true, nil, 422},
		{"no array", `{"secret":1}`, false, nil, 422},
		{"no JSON", `["secret"`, false, nil, 400},
		{"nothing", "", false, nil, 400},
		{"array of too many", "[1,2,3,4]", false, nil, 413},
		{"too many lines", "1\n2\n3\n4", true, nil, 413},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := httptest.NewRecorder()
			rows, ok := api.Rows{Most: 3, Lines: c.lines}.Split(w, []byte(c.body))
			require.Equal(t, c.status == 0, ok)
			if !ok {
				require.Equal(t, c.status, w.Code)
				require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
				require.NotContains(t, w.Body.String(), "secret")
				return
			}
			require.Len(t, rows, len(c.rows))
			for i := range rows {
				require.Equal(t, c.rows[i], string(rows[i]))
			}
			require.Zero(t, w.Body.Len())
		})
	}
}

func FuzzBatch(f *testing.F) {
	for _, seed := range []string{`[{"a":1},2]`, "[]", "{\"a\":1}\n\n2\r\n", "[1,", "\n \n", `[[[]]]`} {
		f.Add(true, []byte(seed))
		f.Add(false, []byte(seed))
	}
	f.Fuzz(func(t *testing.T, inLines bool, body []byte) {
		const limit = 5
		w := httptest.NewRecorder()
		rows, ok := api.Rows{Most: limit, Lines: inLines}.Split(w, body)
		if !ok {
			require.Empty(t, rows)
			require.Contains(t, []int{400, 413, 422}, w.Code)
			return
		}
		require.NotEmpty(t, rows)
		require.LessOrEqual(t, len(rows), limit)
		if !inLines {
			var want []json.RawMessage
			require.NoError(t, json.Unmarshal(body, &want))
			require.Len(t, rows, len(want))
			for i := range want {
				require.Equal(t, string(want[i]), string(rows[i]))
			}
			return
		}
		var want [][]byte
		for _, line := range bytes.Split(body, []byte("\n")) {
			if line = bytes.TrimSpace(line); len(line) > 0 {
				want = append(want, line)
			}
		}
		require.Equal(t, want, rows)
	})
}
