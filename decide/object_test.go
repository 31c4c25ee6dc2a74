package decide

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/projections"
	"github.com/seed-86dfc502/weir/projections/merge"
)

// A payload without members would show an empty view: it is a dead letter, but where no
// projection reads a member of it.
func TestAPayloadThatIsNoObject(t *testing.T) {
	plan := func(path string, mount canonicaltree.Path) *Plan {
		p, err := projections.Compile(projections.Spec{Customer: "one", Name: "x", Fields: []projections.Field{{Out: "o", Path: path}, {Out: "c", Const: []byte("1")}}})
		require.NoError(t, err)
		plan := &Plan{
			Merge:       merge.Compile(merge.Spec{Sources: []merge.Source{{Name: "registry", Mount: mount}, {Name: "lab", Mount: canonicaltree.Path{"lab"}}}}),
			Projections: []*projections.Projection{p}, Services: []Service{{Name: "one/x@a", Number: 1}},
			Fingerprint: []byte("f"), Revision: 1, MaxChange: 1 << 20,
		}
		require.NoError(t, plan.Prepare())
		return plan
	}
	const text, list, number = `"{\"id\":1}"`, `[{"id":1}]`, `7`
	for _, c := range []struct {
		path  string
		mount canonicaltree.Path
		bad   []string
		good  []string
	}{
		{path: "id", bad: []string{text, list, number, "true"}, good: []string{`{}`, `{"id":1}`}},
		{path: "0.id", bad: []string{text, number}, good: []string{list}},
		{path: "#.id", bad: []string{text, number}, good: []string{list}},
		{path: "@this", good: []string{text, list, number}},
		{path: "at", mount: canonicaltree.Path{"at"}, good: []string{text, list, number}},
		{path: "at.id", mount: canonicaltree.Path{"at"}, bad: []string{text, list, number}},
		{path: "lab.id", mount: canonicaltree.Path{"at"}, good: []string{text, list, number}},
	} {
		apply := func(payload string) (codes []string) {
			step, err := NewSimulator(plan(c.path, c.mount)).Apply(change.Record{Entity: "B", Event: &change.Event{
				Origin: change.Origin{Source: "registry"}, Op: change.Upsert, Payload: []byte(payload),
			}}, time.Unix(1000, 0))
			require.NoError(t, err)
			for _, l := range step.Letters {
				codes = append(codes, l.Code)
			}
			return codes
		}
		for _, payload := range c.bad {
			require.Equal(t, []string{"not_an_object"}, apply(payload), "%s of %s", c.path, payload)
		}
		for _, payload := range c.good {
			require.Empty(t, apply(payload), "%s of %s", c.path, payload)
		}
	}
}
