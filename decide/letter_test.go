package decide

import (
	"strings"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/projections"
	"github.com/seed-86dfc502/weir/projections/merge"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
)

// The mistakes that this catches: a letter that stays open although the customer has the
// view, because the dam holds it back or nothing was ever sent; one that an event closes
// which the projection does not read; letters of another service.
func TestALetterOfAFailedEvaluationEndsWithASuccess(t *testing.T) {
	plan := &Plan{
		Merge:    merge.Compile(merge.Spec{Sources: []merge.Source{{Name: "registry"}}}),
		Services: []Service{{Name: "one/ripe@a", Number: 40, Projection: 0}, {Name: "two/list@a", Number: 2, Projection: 1}, {Name: "one/ripe@b", Number: 7, Projection: 0}},
		Revision: 1, MaxChange: 1 << 10, Fingerprint: []byte("f"),
	}
	for _, s := range []projections.Spec{
		{Customer: "one", Name: "ripe", When: "doc.level > 3", Fields: []projections.Field{{Out: "id", Path: "id"}, {Out: "note", Path: "note"}}},
		{Customer: "two", Name: "list", Fields: []projections.Field{{Out: "id", Path: "id"}}},
	} {
		p, err := projections.Compile(s)
		require.NoError(t, err)
		plan.Projections = append(plan.Projections, p)
	}
	require.NoError(t, plan.Prepare())
	for name, c := range map[string]struct {
		events  []string // the last one ends the letters
		letters int      // of each service
	}{
		"held back":     {[]string{`{"id":1,"level":4}`, `{"id":1,"level":"green"}`, `{"id":1,"level":"green","other":1}`, `{"id":1,"level":4}`}, 1},
		"sent":          {[]string{`{"id":1,"level":4}`, `{"id":1,"level":"green"}`, `{"id":1,"level":"red"}`, `{"id":2,"level":5}`}, 2},
		"filtered":      {[]string{`{"id":1,"level":"green"}`, `{"id":1,"level":"red","other":1}`, `{"id":1,"level":2}`}, 2},
		"deleted":       {[]string{`{"id":1,"level":"green"}`, `-`}, 1},
		"was too large": {[]string{`{"id":1,"level":4,"note":"` + strings.Repeat("x", 2000) + `"}`, `{"id":1,"level":1}`}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := NewSimulator(plan)
			letters := map[string]int{}
			for i, payload := range c.events {
				e := &change.Event{Origin: change.Origin{Source: "registry", Topic: "t", Offset: int64(i)}, Op: change.Upsert, Payload: []byte(payload)}
				if payload == "-" {
					e.Op, e.Payload = change.Delete, nil
				}
				step, err := s.Apply(change.Record{Entity: "B-007", Event: e}, time.Unix(1000, 0))
				require.NoError(t, err)
				for _, l := range step.Letters {
					letters[l.Service]++
				}
				if i < len(c.events)-1 {
					require.Empty(t, step.Settled, payload)
					continue
				}
				ended := func(service string) store.LetterResolution {
					return store.LetterResolution{Stage: store.StageDecide, Service: service, Entity: "B-007", State: store.LetterObsolete, Version: change.NewVersion(1, int64(i))}
				}
				require.ElementsMatch(t, []store.LetterResolution{ended("one/ripe@a"), ended("one/ripe@b")}, step.Settled)
			}
			require.Equal(t, map[string]int{"one/ripe@a": c.letters, "one/ripe@b": c.letters}, letters)
			again, err := s.Apply(change.Record{Entity: "B-007", Control: &change.Control{Action: change.Redecide}}, time.Unix(1000, 0))
			require.NoError(t, err)
			require.Empty(t, again.Settled, "once")
		})
	}
}
