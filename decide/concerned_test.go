package decide

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/projections"
	"github.com/seed-86dfc502/weir/store"
)

// Of many services whose filters require other values, a new, a deleted and a restored entity
// evaluate those that can get something; the others are filtered all the same.
func TestAnEntityEvaluatesTheServicesThatItConcerns(t *testing.T) {
	const n = 500
	plan := alikePlan(t, n, func(i int, s *projections.Spec) { s.When = fmt.Sprintf(`doc.region == "r%d"`, i%250) })
	entity := store.Entity{ID: "B"}
	for i, c := range []struct {
		payload                     string
		sent, filtered, evaluations int
	}{
		{`{"id":1,"region":"r7"}`, 2, n - 2, 1},
		{`{"id":2,"region":"r7"}`, 2, 0, 1},
		{`{"id":2,"region":"r8"}`, 4, 0, 2},
		{"", 2, n - 4, 0}, // those of r7 hold a retraction
		{`{"id":2,"region":"r9"}`, 2, n - 2, 3},
	} {
		r := registryEvent(`{}`, int64(i))
		if r.tree = registryEvent(cmp.Or(c.payload, "{}"), 0).tree; c.payload == "" {
			r.Event.Op = change.Delete
		}
		b := newBatch(plan, []*record{r}, unbounded, noCache)
		v, err := decideBatch(b, store.Loaded{Entities: []store.Entity{entity}})
		require.NoError(t, err)
		filtered := 0
		for s := range plan.Services {
			filtered += v.decisions.get(s, kindOf(DecisionFiltered))
		}
		require.Equal(t, []int{c.sent, c.filtered, c.evaluations}, []int{len(v.changes), filtered, v.evaluations}, c.payload)
		entity = v.out.Entities[0]
		entity.Found, entity.States = true, entity.States.Stored()
	}
}

// A filter has the same effect whether the index knows the value that it requires or not.
func TestAFilterHasTheSameEffectInTheIndex(t *testing.T) {
	indexed := alikePlan(t, 70, func(i int, s *projections.Spec) { s.When = fmt.Sprintf(`doc.region == "r%d"`, i%7) })
	plain := alikePlan(t, 70, func(i int, s *projections.Spec) { s.When = fmt.Sprintf(`!(doc.region != "r%d")`, i%7) })
	rapid.Check(t, func(rt *rapid.T) {
		a, b := NewSimulator(indexed), NewSimulator(plain)
		for i := range rapid.IntRange(1, 8).Draw(rt, "records") {
			r := change.Record{Entity: "B"}
			switch rapid.IntRange(0, 5).Draw(rt, "kind") {
			case 0:
				r.Event = &change.Event{Origin: change.Origin{Source: "registry"}, Op: change.Delete}
			case 1:
				r.Control = &change.Control{Action: change.Reset, ID: fmt.Sprint(i)}
			case 2:
				r.Control = &change.Control{Action: change.Redecide, ID: fmt.Sprint(i)}
			default:
				payload := fmt.Appendf(nil, `{"id":%d,"region":"r%d"}`, rapid.IntRange(0, 1).Draw(rt, "id"), rapid.IntRange(0, 9).Draw(rt, "region"))
				r.Event = &change.Event{Origin: change.Origin{Source: "registry"}, Op: change.Upsert, Payload: payload}
			}
			x, err := a.Apply(r, time.Unix(1000, 0))
			require.NoError(rt, err)
			y, err := b.Apply(r, time.Unix(1000, 0))
			require.NoError(rt, err)
			require.Equal(rt, y.Outcome, x.Outcome)
			require.ElementsMatch(rt, sentBy(y), sentBy(x))
			require.ElementsMatch(rt, y.Held, x.Held)
			require.ElementsMatch(rt, slices.Concat(y.Filtered, y.Pruned), slices.Concat(x.Filtered, x.Pruned))
			if len(x.Pruned) == 0 {
				require.Equal(rt, newestOf(t, b), newestOf(t, a))
			}
		}
	})
}

func sentBy(s Step) (all []string) {
	for _, c := range s.Sent {
		all = append(all, fmt.Sprint(c.Service, c.Op, string(c.Doc)))
	}
	return all
}

// newestOf is the history of the newest record, by service.
func newestOf(t *testing.T, s *Simulator) (all []string) {
	t.Helper()
	in, err := s.plan.Inspect(s.Stored("B"))
	require.NoError(t, err)
	for i := range s.plan.Services {
		if n := len(in.History.Entries); n > 0 {
			all = append(all, in.History.Decided(s.plan, n-1, i))
		}
	}
	return all
}
