package decide

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/projections/merge"
	"github.com/stretchr/testify/require"
)

// cameTo is what each remembered record came to for each service.
func cameTo(t *testing.T, s *Simulator, entity string) []string {
	t.Helper()
	history := historyOf(t, s.entities[entity])
	lines := make([]string, len(history.Entries))
	for i := range history.Entries {
		lines[i] = history.Entries[i].Outcome
		for service := range s.plan.Services {
			lines[i] += " " + history.Decided(s.plan, i, service)
		}
	}
	return lines
}

// The mistake that this catches: an entity that a filter keeps out, or that lacks a
// required source, is called a duplicate of the customer's content, which is nothing.
func TestOnlyWhatACustomerHasIsHeldBack(t *testing.T) {
	p := bananaPlan(t)
	m := merge.Compile(merge.Spec{Sources: []merge.Source{{Name: "registry"}, {Name: "lab", Patch: true}}, Required: []string{"registry"}})
	p.Merge = m
	s := NewSimulator(p)
	step := func(source, payload string) Step {
		e := &change.Event{Origin: change.Origin{Source: source, Topic: "t", Offset: s.offset}, Op: change.Upsert, Payload: []byte(payload)}
		if payload == "" {
			e.Op, e.Payload = change.Delete, nil
		}
		found, err := s.Apply(change.Record{Entity: "B-007", Event: e}, time.Unix(1000, 0))
		require.NoError(t, err)
		return found
	}
	both := []string{"one/ripeness@a", "two/list@a"}
	require.Equal(t, both, step("lab", `{"sugar":1}`).Incomplete)

	excluded := step("registry", `{"id":"B-007","origin":"XX"}`)
	require.Equal(t, both[:1], excluded.Filtered)
	require.Len(t, excluded.Sent, 1)
	excluded = step("registry", `{"id":"B-007","origin":"XX","ripeness_level":2}`)
	require.Equal(t, both[:1], excluded.Filtered)
	require.Equal(t, both[1:], excluded.Pruned)
	require.Empty(t, excluded.Held)

	require.Len(t, step("registry", `{"id":"B-007","origin":"EC","ripeness_level":2}`).Sent, 1)
	require.Equal(t, both[:1], step("registry", `{"id":"B-007","origin":"CO","ripeness_level":2}`).Held)
	require.Len(t, step("registry", ``).Sent, 2, "retracted: the required source has nothing any more")
	require.Equal(t, both, step("lab", `{"sugar":2}`).Incomplete)

	require.Equal(t, []string{
		"incomplete incomplete incomplete",
		"merged filtered sent",
		"merged filtered pruned",
		"merged sent pruned",
		"merged held_back pruned",
		"incomplete sent sent",
		"incomplete incomplete incomplete",
	}, cameTo(t, s, "B-007"))
}

// What deliver says of the refusals of services leaves the history to events, and the
// audit to people.
func TestRefusalsAreNeitherHistoryNorAudit(t *testing.T) {
	s := NewSimulator(bananaPlan(t))
	feed(t, s, `registry:e1 {"id":"B-007"}`)
	before := s.entities["B-007"]
	for i := range 20 {
		apply(t, s, change.Record{Entity: "B-007", Control: &change.Control{
			ID: fmt.Sprint(i), Action: change.Refuse, Services: []string{"two/list@a"}, Version: before.Version, Actor: change.Deliver,
		}}, "refuse")
	}
	require.Equal(t, []string{"merged sent sent"}, cameTo(t, s, "B-007"))
	after := s.entities["B-007"]
	after.States, after.Writes = before.States, before.Writes
	require.Equal(t, before, after, "nothing of it is written to the entity but the state")

	refused := &record{Record: change.Record{Entity: "B-007", Control: &change.Control{Action: change.Refuse, Services: []string{"two/list@a"}, Version: 1, Actor: change.Deliver}}}
	asked := &record{Record: change.Record{Entity: "B-007", Control: &change.Control{Action: change.Reset, Actor: "alice"}}}
	ev, err := newEvaluation(newVerdict(s.plan, unbounded), before)
	require.NoError(t, err)
	require.NoError(t, ev.apply(refused))
	require.NoError(t, ev.apply(asked))
	for _, c := range []change.Control{{Action: change.Reset}, {Action: change.Redecide, Force: true}} {
		c.Actor, c.Operation = "alice", "job-1"
		require.NoError(t, ev.apply(&record{Record: change.Record{Entity: "B-007", Control: &c}}))
	}
	require.Len(t, ev.out.Audit, 1, "a part of an operator's request has no row of its own")
	require.Equal(t, "alice", ev.out.Audit[0].Actor)
}

// A batch that decides several records of an entity keeps the changes sent for each, and
// drops the history of one service too many rather than guess it.
func TestHistoryOfManyServices(t *testing.T) {
	p := bananaPlan(t)
	for i := range 100 {
		p.Services = append(p.Services, Service{Name: fmt.Sprintf("two/list@b%d", i), Number: int32(1000 + i), Projection: 1})
	}
	require.NoError(t, p.Prepare())
	s := NewSimulator(p)
	feed(t, s, `registry:e1 {"id":"B-007"}`)
	first := historyOf(t, s.entities["B-007"])
	require.Equal(t, DecisionSent, first.Decided(p, 0, 101))
	feed(t, s, `registry:e2 {"id":"B-007","ripeness_level":2}`)
	second := historyOf(t, s.entities["B-007"])
	require.Empty(t, second.Decided(p, 0, 101), "of an older record so many are not kept")
	require.Equal(t, DecisionSent, second.Decided(p, 1, 0))
	require.Equal(t, DecisionPruned, second.Decided(p, 1, 101))

	var tr history
	for i := range 3 {
		r := &record{version: change.NewVersion(1, int64(i)), Record: change.Record{Event: &change.Event{EventID: fmt.Sprint(i)}}}
		tr.note(r, HistoryMerged)
		tr.evaluating(p)
		tr.evaluated(p, 0)
		if i > 0 {
			r.sent = []int{0}
		}
		tr.sent(p, r)
	}
	found := tr.public()
	require.Equal(t, []string{DecisionHeldBack, DecisionSent, DecisionSent},
		[]string{found.Decided(p, 0, 0), found.Decided(p, 1, 0), found.Decided(p, 2, 0)})
}
