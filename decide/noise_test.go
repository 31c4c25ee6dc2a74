package decide

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/fieldcount"
	"github.com/seed-86dfc502/weir/projections"
	"github.com/seed-86dfc502/weir/projections/merge"
	"github.com/stretchr/testify/require"
)

// fields are the fields of a source as lines: pattern, events, saves, projections.
func fields(c *fieldcount.Counts) (lines []string) {
	for _, f := range c.Fields {
		lines = append(lines, fmt.Sprintf("%s: %d, saves %d, %d projections, such as %s of %s", f.Path.Pattern(), f.Events, f.Saves, f.Projections, f.Example, f.Entity))
	}
	slices.Sort(lines)
	return lines
}

// The fields that an event changed are counted if, and only if, no service was sent anything
// and only fields changed. The mistakes that this catches: fields are counted that were sent,
// or that were there for the first time, or that were evaluated for another reason; and a
// field counts as one to strip that a projection would read, were it not hidden now.
func TestSuppressedEventsAreObserved(t *testing.T) {
	s := NewSimulator(bananaPlan(t))
	s.collector = fieldcount.NewCollector()
	feed(t, s,
		`registry: {"id":"B-007","origin":"EC","ripeness_level":1,"seen":{"at":0}}`, // sent
		`lab: {"weight":1}`, // the source's first: no field of it changed
		`registry: {"id":"B-007","origin":"EC","ripeness_level":1,"seen":{"at":1}}`, // nobody reads it
		`registry: {"id":"B-007","origin":"CO","ripeness_level":1,"seen":{"at":1}}`, // read, and held back
		`registry: {"id":"B-007","origin":"CO","ripeness_level":2,"seen":{"at":2}}`, // sent
		`registry: {"seen":{"at":2},"id":"B-007","origin":"CO","ripeness_level":2}`, // noise
		`registry: {"id":"B-007","origin":"XX","ripeness_level":2,"seen":{"at":3}}`, // retracted from one
		`registry: {"id":"B-007","origin":"XX","ripeness_level":3,"seen":{"at":3}}`, // does not match its filter
		`registry: {"id":"B-007","origin":"XX","ripeness_level":4,"seen":{"at":4}}`, // the same, both fields
		`lab: {"weight":2}`,         // of another source, nobody reads it
		`lab: {"ripeness_level":7}`, // hidden behind the registry's
	)
	apply(t, s, change.Record{Entity: "B-007", Control: &change.Control{ID: "c1", Action: change.Reset, Services: []string{"one/ripeness@a"}}}, "reset")
	feed(t, s,
		`lab: {"weight":3}`, // all is evaluated because of the reset
	)
	s.plan.Fingerprint = []byte("another")
	require.NoError(t, s.plan.Prepare())
	last := feed(t, s,
		`lab: {"weight":4}`, // all is evaluated because of the configuration
		`lab: -`,            // a whole document goes
		`registry: -`,       // this retracts
	)
	require.Equal(t, []string{"merged", "merged", "merged two/list@a=retract"}, last)
	got := s.collector.Take()
	require.Equal(t, []string{
		"origin: 1, saves 0, 1 projections, such as origin of B-007",
		"ripeness_level: 2, saves 0, 2 projections, such as ripeness_level of B-007",
		"seen.at: 2, saves 1, 1 projections, such as seen.at of B-007",
	}, fields(got["registry"]))
	require.Equal(t, []string{
		"ripeness_level: 1, saves 0, 0 projections, such as ripeness_level of B-007",
		"weight: 1, saves 1, 0 projections, such as weight of B-007",
	}, fields(got["lab"]))
	require.Equal(t, []int64{9, 1}, []int64{got["registry"].Events, got["registry"].Noise})
	require.Equal(t, []int64{6, 0}, []int64{got["lab"].Events, got["lab"].Noise})
	require.Len(t, got, 2)
}

// TestMembersOfElementsThatNoFieldShows: an event that changed such members alone evaluates
// nothing, and stripping them would have made it noise.
func TestMembersOfElementsThatNoFieldShows(t *testing.T) {
	shown, err := projections.Compile(projections.Spec{Customer: "c", Name: "plans", Fields: []projections.Field{
		{Out: "plans", Path: "plans", Each: []projections.Field{{Out: "name", Path: "name"}, {Out: "currency", Const: []byte(`"EUR"`)}}},
		{Out: "names", Path: "plans.#.name"},
	}})
	require.NoError(t, err)
	plan := &Plan{
		Merge: merge.Compile(merge.Spec{Sources: []merge.Source{{Name: "s"}}}), Projections: []*projections.Projection{shown},
		Services: []Service{{Name: "c/plans@k", Number: 1}}, Fingerprint: []byte("f"), Revision: 1, MaxChange: 1 << 20,
	}
	require.NoError(t, plan.Prepare())
	s := NewSimulator(plan)
	s.collector = fieldcount.NewCollector()
	outcomes := feed(t, s,
		`s: {"id":"a","plans":[{"name":"S","margin":1},{"name":"M","margin":2}]}`,
		`s: {"id":"a","plans":[{"name":"S","margin":3},{"name":"M","margin":4}]}`,
		`s: {"id":"a","plans":[{"name":"S","margin":3},{"name":"M","margin":4},{"margin":5}]}`,
		`s: {"id":"a","plans":[{"name":"S","margin":3}]}`,
	)
	require.Equal(t, "merged", outcomes[1])
	for _, i := range []int{0, 2, 3} {
		require.Contains(t, outcomes[i], "c/plans@k=upsert", "an element more or less shows")
	}
	require.Equal(t, []string{"plans.*.margin: 1, saves 1, 0 projections, such as plans.0.margin of B-007"}, fields(s.collector.Take()["s"]))
}

// A change that is too large becomes a dead letter: that is no suppression.
func TestDeadLettersAreNotSuppressed(t *testing.T) {
	p := bananaPlan(t)
	p.MaxChange = 1200
	s := NewSimulator(p)
	s.collector = fieldcount.NewCollector()
	lines := feed(t, s,
		`registry: {"id":"B-007","ripeness_level":1}`,
		`registry: {"id":"B-007","ripeness_level":"`+strings.Repeat("x", 2000)+`"}`)
	require.Equal(t, "merged dead:oversized", lines[1])
	require.Empty(t, s.collector.Take()["registry"].Fields)
}

// An event that changes very much is looked into no further than needed.
func TestEventsThatChangeVeryMuch(t *testing.T) {
	s := NewSimulator(bananaPlan(t))
	s.collector = fieldcount.NewCollector()
	doc := func(value int) string {
		var b strings.Builder
		for i := range 500 {
			fmt.Fprintf(&b, `,"f%d":%d`, i, value)
		}
		return `registry: {"id":"B-007"` + b.String() + `}`
	}
	feed(t, s, doc(1), doc(2))
	got := s.collector.Take()["registry"]
	require.EqualValues(t, 1, got.Other.Events)
	require.Empty(t, got.Fields)
}

// Of many events, a sample is observed and counts for all.
func TestManyAreSampled(t *testing.T) {
	s := NewSimulator(bananaPlan(t))
	s.collector = fieldcount.NewCollector()
	const events = 8000
	for i := range events {
		feed(t, s, fmt.Sprintf(`registry: {"id":"B-007","seen":%d}`, i))
	}
	got := s.collector.Take()["registry"]
	require.EqualValues(t, events, got.Events)
	require.InEpsilon(t, events, got.Suppressed, 0.1)
	require.Len(t, got.Fields, 1)
	require.Equal(t, got.Suppressed, got.Fields[0].Events)
}
