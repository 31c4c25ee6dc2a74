package checkhttp

import (
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/api"
	"github.com/seed-86dfc502/weir/api/checks"
	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/change"
)

// Any body is parsed or refused, the same as a batch and one by one; parsed requests are
// within the limits.
func FuzzDecode(f *testing.F) {
	for _, body := range []string{
		`{"entity":"banana-1","payload":{"a":[1,null]},"event_id":"e","sequence":12}`,
		`[{"entity":"e","hash":"h","sequence":"0/16B"},{"entity":"e","version":17,"outcome":"refused"}]`,
		"{\"entity\":\"e\",\"version\":1}\n\n[]\nnull\n{",
		`{"entity":"\u0000","payload":1}`, `{"entity":"e","entity":"e"}`, ``, `[`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		d := decoder{numbers: canonicaltree.Literal, maxEntity: 32}
		one := func(n canonicaltree.Node) {
			var refused refusal
			if r, err := d.check(n); err == nil {
				require.NotNil(t, r.Content)
				require.NotEmpty(t, r.Entity)
				require.LessOrEqual(t, len(r.Entity), 32)
				require.LessOrEqual(t, len(r.EventID), maxEventID)
				require.LessOrEqual(t, len(r.Sequence), maxSequence)
				if payload := n.Get("payload"); payload.Exists() {
					digest, err := canonicaltree.Sum(payload.Raw(), canonicaltree.Literal)
					require.NoError(t, err)
					require.Equal(t, change.Hashed(canonicaltree.Scheme, digest), r.Content)
				}
			} else {
				require.ErrorAs(t, err, &refused)
			}
			if c, err := d.confirm(n); err == nil {
				require.NotZero(t, c.Version)
				require.NotEmpty(t, c.Entity)
			} else {
				require.ErrorAs(t, err, &refused)
			}
			if r, err := d.release(n); err == nil {
				require.NotZero(t, r.Version)
				require.Contains(t, []checks.Outcome{checks.Unknown, checks.Refused}, r.Outcome)
			} else {
				require.ErrorAs(t, err, &refused)
			}
		}
		if tree, err := canonicaltree.Parse(body); err == nil {
			one(tree.Root())
		}
		for _, lines := range []bool{false, true} {
			values, ok := api.Rows{Most: 5, Lines: lines}.Split(httptest.NewRecorder(), body)
			if !ok {
				continue
			}
			rows, done := parse(values)
			require.Len(t, rows, len(values))
			for _, r := range rows {
				if r.err == nil {
					one(r.node)
				}
			}
			done()
		}
	})
}
