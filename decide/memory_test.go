package decide

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/projections"
	"github.com/seed-86dfc502/weir/projections/merge"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
)

// A batch holds the parsed documents of its entities once, however many of its events
// change them; more than its bound cuts it.
func TestDocumentsOfABatchAreBounded(t *testing.T) {
	var spec merge.Spec
	var mounts []canonicaltree.Path
	for i := range 8 {
		mounts = append(mounts, canonicaltree.Path{fmt.Sprint("m", i)})
		spec.Sources = append(spec.Sources, merge.Source{Name: fmt.Sprint("s", i), Patch: i%2 == 0, Mount: mounts[i]})
	}
	projection, err := projections.Compile(projections.Spec{Customer: "c", Name: "p", Fields: []projections.Field{{Out: "n", Path: "m0.n"}}})
	require.NoError(t, err)
	plan := &Plan{Merge: merge.Compile(spec), Projections: []*projections.Projection{projection}, Services: []Service{{Name: "c/p@k", Number: 1}},
		Fingerprint: []byte("f"), Revision: 1, MaxChange: 1 << 20}
	require.NoError(t, plan.Prepare())

	filler := strings.Repeat(`"0123456789abcdef",`, 120<<10/19) + `0`
	offset := int64(0)
	event := func(entity string, source int, text string) *record {
		tree, err := canonicaltree.Parse([]byte(text))
		require.NoError(t, err)
		offset++
		return &record{Record: change.Record{Entity: entity, Event: &change.Event{Origin: change.Origin{Source: spec.Sources[source].Name}, Op: change.Upsert, Payload: []byte(text)}},
			tree: tree, version: change.NewVersion(1, offset), at: time.UnixMilli(1), offset: offset}
	}
	known := map[string]store.Entity{}
	decide := func(records []*record) (peak int, err error) {
		b := newBatch(plan, records, unbounded, noCache)
		b.scratch = new(scratch)
		b.begin = func(*record) { peak = max(peak, b.scratch.trees.Size()) }
		var loaded store.Loaded
		for _, id := range b.toLoad() {
			e := known[id]
			e.ID = id
			loaded.Entities = append(loaded.Entities, e)
		}
		v, err := decideBatch(b, loaded)
		if err != nil {
			return peak, err
		}
		for _, e := range v.out.Entities {
			e.Found, e.States = true, e.States.Stored()
			known[e.ID] = e
		}
		b.scratch.reset()
		require.Zero(t, b.scratch.trees.Size())
		return peak, nil
	}
	const entities = 28
	for e := range entities {
		var first []*record
		for s := range 8 {
			first = append(first, event(fmt.Sprint("e", e), s, fmt.Sprintf(`{"n":0,"filler":[%s]}`, filler)))
		}
		_, err := decide(first)
		require.NoError(t, err)
	}
	var changes []*record
	for n := range 130 {
		changes = append(changes, event("e0", 0, fmt.Sprintf(`{"n":%d}`, n+1)))
	}
	peak, err := decide(changes)
	require.NoError(t, err)
	require.Less(t, peak, 16<<20)

	var wide []*record
	for e := range entities {
		wide = append(wide, event(fmt.Sprint("e", e), 1, `{"n":7}`))
	}
	_, err = decide(wide)
	require.ErrorIs(t, err, errLargeOutcome)
	for _, r := range wide {
		_, err = decide([]*record{r})
		require.NoError(t, err)
	}
}
