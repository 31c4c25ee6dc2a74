package decide

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/projections"
	"github.com/seed-86dfc502/weir/store"
)

// freshPlan has ten customers with a projection each; changed has another one, and knows
// since which fingerprint.
func freshPlan(t *testing.T, fingerprint string, changed int, earlier ...string) *Plan {
	t.Helper()
	plan := alikePlan(t, 10, func(i int, s *projections.Spec) {
		s.Fields = append(s.Fields, projections.Field{Out: "of", Const: fmt.Append(nil, i)})
		if i == changed {
			s.Fields = append(s.Fields, projections.Field{Out: "more", Path: "more"})
		}
	})
	plan.Fingerprint = []byte(fingerprint)
	require.NoError(t, plan.Prepare())
	for _, e := range earlier {
		fresh := make([]bool, 10)
		fresh[changed] = true
		plan.Learn([]byte(e), fresh)
	}
	return plan
}

// An entity that is outdated after a change of the configuration evaluates the projections
// that are new to it, and those that its event touches.
func TestAnOutdatedEntityEvaluatesOnlyWhatIsNewToIt(t *testing.T) {
	event := func(payload string) change.Record {
		return change.Record{Entity: "B", Event: &change.Event{Origin: change.Origin{Source: "registry"}, Op: change.Upsert, Payload: []byte(payload)}}
	}
	backfill := change.Record{Entity: "B", Control: &change.Control{ID: "1", Action: change.Redecide, Outdated: true}}
	replay := change.Record{Entity: "B", Control: &change.Control{ID: "1", Action: change.Redecide}}
	for name, c := range map[string]struct {
		r           change.Record
		known       bool
		evaluations int
		sent        []string
	}{
		"backfill":                      {r: backfill, known: true, evaluations: 1, sent: []string{"c3/x@a"}},
		"replay":                        {r: replay, known: true, evaluations: 10, sent: []string{"c3/x@a"}},
		"an event of no effect":         {r: event(`{"id":1,"text":"a","more":2}`), known: true, evaluations: 1, sent: []string{"c3/x@a"}},
		"an event that touches nothing": {r: event(`{"id":1,"text":"a","more":2,"other":1}`), known: true, evaluations: 1, sent: []string{"c3/x@a"}},
		"an event that touches all":     {r: event(`{"id":2,"text":"a","more":2}`), known: true, evaluations: 10},
		"an event, nothing known":       {r: event(`{"id":1,"text":"a","more":2}`), evaluations: 10, sent: []string{"c3/x@a"}},
		"a backfill, nothing known":     {r: backfill, evaluations: 10, sent: []string{"c3/x@a"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := NewSimulator(freshPlan(t, "before", -1))
			_, err := s.Apply(event(`{"id":1,"text":"a","more":2}`), time.Unix(1000, 0))
			require.NoError(t, err)
			after := freshPlan(t, "after", 3)
			if c.known {
				after = freshPlan(t, "after", 3, "before")
			}
			r := &record{Record: c.r, version: change.NewVersion(1, 7), at: time.Unix(1000, 0)}
			if r.Event != nil {
				r.tree = registryEvent(string(r.Event.Payload), 7).tree
			}
			v, err := decideBatch(newBatch(after, []*record{r}, unbounded, noCache), store.Loaded{Entities: []store.Entity{s.Stored("B")}})
			require.NoError(t, err)
			require.Equal(t, c.evaluations, v.evaluations)
			var sent []string
			for i := range v.changes {
				sent = append(sent, v.changes[i].Service)
			}
			if c.sent != nil {
				require.Equal(t, c.sent, sent)
			} else {
				require.Len(t, sent, 10)
			}
			require.Len(t, v.out.Entities, 1)
			require.True(t, after.Current(v.out.Entities[0]))
		})
	}
}

// A reset entity evaluates everything, with any history of earlier configurations.
func TestAResetEntityIsNewToAllServices(t *testing.T) {
	plan := freshPlan(t, "after", 3, "before", "after")
	_, known := plan.newTo(&store.Entity{Found: true})
	require.False(t, known)
	before := freshPlan(t, "before", -1).Stamp()
	_, known = plan.newTo(&store.Entity{Found: true, Fingerprint: before})
	require.True(t, known)
	_, known = plan.newTo(&store.Entity{Fingerprint: before})
	require.False(t, known, "not stored")
}

// A customer that was forgotten and returns under the configuration that it had is new to all
// entities, also to those that no event touched in between; the others are not evaluated. The
// fault that this catches: the entity counts as evaluated, because the configuration is the same.
func TestAForgottenServiceIsNewToEntities(t *testing.T) {
	const returning = 3
	event := func(payload string) change.Record {
		return change.Record{Entity: "B", Event: &change.Event{Origin: change.Origin{Source: "registry"}, Op: change.Upsert, Payload: []byte(payload)}}
	}
	without := func() *Plan {
		p := freshPlan(t, "without", -1)
		p.Services = slices.Delete(p.Services, returning, returning+1)
		for i := range p.Services {
			require.NotEqual(t, returning, p.Services[i].Projection)
		}
		require.NoError(t, p.Prepare())
		return p
	}
	returned := func() *Plan {
		p := freshPlan(t, "same", -1)
		p.Services[returning].Number = 99
		require.NoError(t, p.Prepare())
		fresh := make([]bool, len(p.Services))
		fresh[returning] = true
		p.Learn([]byte("without"), fresh)
		return p
	}
	redecide := func(c change.Control) change.Record {
		c.ID, c.Action = "1", change.Redecide
		return change.Record{Entity: "B", Control: &c}
	}
	for name, c := range map[string]struct {
		r       change.Record
		between bool // an event while the customer was away
		held    int
	}{
		"an event that touches nothing": {r: event(`{"id":1,"text":"a","more":2,"other":1}`)},
		"an event of no effect":         {r: event(`{"id":1,"text":"a","more":2}`)},
		"a backfill":                    {r: redecide(change.Control{Outdated: true})},
		"a replay":                      {r: redecide(change.Control{}), held: 9},
		"an event that touches nothing, touched in between": {r: event(`{"id":1,"text":"a","more":2,"other":2}`), between: true},
		"a backfill, touched in between":                    {r: redecide(change.Control{Outdated: true}), between: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := NewSimulator(freshPlan(t, "same", -1))
			apply := func(r change.Record) (sent []string, held int) {
				step, err := s.Apply(r, time.Unix(1000, 0))
				require.NoError(t, err)
				for _, c := range step.Sent {
					sent = append(sent, c.Service)
				}
				return sent, len(step.Held)
			}
			sent, _ := apply(event(`{"id":1,"text":"a","more":2}`))
			require.Len(t, sent, 10)
			s.plan = without()
			if c.between {
				sent, _ = apply(event(`{"id":1,"text":"a","more":2,"other":1}`))
				require.Empty(t, sent)
			}
			s.plan = returned()
			require.False(t, s.plan.Current(s.Stored("B")))
			sent, held := apply(c.r)
			require.Equal(t, []string{s.plan.Services[returning].Name}, sent)
			require.Equal(t, c.held, held, "only a replay of everything compares the others")
			require.True(t, s.plan.Current(s.Stored("B")))
			sent, _ = apply(redecide(change.Control{Outdated: true}))
			require.Empty(t, sent)
		})
	}
}
