package decide

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/projections"
	"github.com/seed-86dfc502/weir/projections/merge"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
)

// bananaPlan is the example of the design: two sources, customer one sees
// ripeness, customer two the id only.
func bananaPlan(t testing.TB) *Plan {
	t.Helper()
	m := merge.Compile(merge.Spec{Sources: []merge.Source{{Name: "registry"}, {Name: "lab", Patch: true}}})
	project := func(s projections.Spec) *projections.Projection {
		p, err := projections.Compile(s)
		require.NoError(t, err)
		return p
	}
	p := &Plan{
		Merge: m,
		Projections: []*projections.Projection{
			project(projections.Spec{Customer: "one", Name: "ripeness", When: `doc.origin != "XX"`, Fields: []projections.Field{{Out: "banana_id", Path: "id"}, {Out: "ripeness", Path: "ripeness_level"}}}),
			project(projections.Spec{Customer: "two", Name: "list", Fields: []projections.Field{{Out: "banana_id", Path: "id"}}}),
		},
		Services: []Service{
			{Name: "one/ripeness@a", Number: 1, Projection: 0},
			{Name: "two/list@a", Number: 2, Projection: 1},
		},
		Fingerprint: []byte("fingerprint"), Revision: 1, MaxChange: 1 << 20,
	}
	require.NoError(t, p.Prepare())
	return p
}

// feed applies events written as "source:id payload"; the payload - is a
// delete, and an empty id is none. It returns one line per step: the changes sent.
func feed(t *testing.T, s *Simulator, events ...string) []string {
	t.Helper()
	var lines []string
	for i, text := range events {
		head, payload, _ := strings.Cut(text, " ")
		source, id, _ := strings.Cut(head, ":")
		e := &change.Event{Origin: change.Origin{Source: source, Topic: "t", Offset: s.offset}, EventID: id, Op: change.Upsert, Payload: []byte(payload)}
		if payload == "-" {
			e.Op, e.Payload = change.Delete, nil
		}
		lines = append(lines, apply(t, s, change.Record{Entity: "B-007", Event: e}, fmt.Sprint(i)))
	}
	return lines
}

func apply(t *testing.T, s *Simulator, r change.Record, name string) string {
	t.Helper()
	step, err := s.Apply(r, time.Unix(1000, 0))
	require.NoError(t, err, name)
	line := step.Outcome
	for _, c := range step.Sent {
		line += " " + c.Service + "=" + string(c.Op)
		if c.Op == change.Upsert {
			line += string(c.Doc)
		}
	}
	for _, l := range step.Letters {
		line += " dead:" + l.Code
	}
	return line
}

const (
	both1 = `merged one/ripeness@a=upsert{"banana_id":"B-007","ripeness":1} two/list@a=upsert{"banana_id":"B-007"}`
	one1  = `merged one/ripeness@a=upsert{"banana_id":"B-007","ripeness":1}`
	one2  = `merged one/ripeness@a=upsert{"banana_id":"B-007","ripeness":2}`
)

// The mistake that this catches: a source field that one customer does not
// see sends that customer an update.
func TestBananaExample(t *testing.T) {
	s := NewSimulator(bananaPlan(t))
	require.Equal(t, []string{both1, "merged", "noise", "merged", one2}, feed(t, s,
		`registry: {"id":"B-007","origin":"EC","ripeness_level":1}`,
		`lab: {"ripeness_level":9}`, // the registry wins: nothing changes for anybody
		`registry: {"origin":"EC","ripeness_level":1,"id":"B-007"}`,
		`registry: {"id":"B-007","origin":"CO","ripeness_level":1}`,
		`registry: {"id":"B-007","origin":"CO","ripeness_level":2}`,
	))
}

// I4: what counts is the last thing seen, not everything ever seen.
func TestI4LastSeen(t *testing.T) {
	s := NewSimulator(bananaPlan(t))
	a, b := `registry: {"id":"B-007","ripeness_level":1}`, `registry: {"id":"B-007","ripeness_level":2}`
	require.Equal(t, []string{both1, one2, one1, one2}, feed(t, s, a, b, a, b))
	s = NewSimulator(bananaPlan(t))
	require.Equal(t, []string{both1, "noise", "noise", one2}, feed(t, s, a, a, a, b))
}

// I5: the fence comes before the noise check. Event 2 is noise; its late
// repetition after event 3 must not bring its content back.
func TestI5NoiseIsRememberedByTheFence(t *testing.T) {
	s := NewSimulator(bananaPlan(t))
	require.Equal(t, []string{both1, "noise", one2, "stale", "stale"}, feed(t, s,
		`registry:e1 {"id":"B-007","ripeness_level":1}`,
		`registry:e2 {"id":"B-007","ripeness_level":1}`,
		`registry:e3 {"id":"B-007","ripeness_level":2}`,
		`registry:e2 {"id":"B-007","ripeness_level":1}`,
		`registry:e1 {"ripeness_level":1,"id":"B-007"}`,
	))
}

// An event id that is used again for other content is another event.
func TestReusedEventID(t *testing.T) {
	s := NewSimulator(bananaPlan(t))
	require.Equal(t, []string{both1, one2}, feed(t, s,
		`registry:e1 {"id":"B-007","ripeness_level":1}`,
		`registry:e1 {"id":"B-007","ripeness_level":2}`,
	))
}

// I5: a position that the entity has passed, and an older sequence, are stale.
func TestI5PositionAndSequence(t *testing.T) {
	s := NewSimulator(bananaPlan(t))
	event := func(topic string, offset int64, seq string, level int) string {
		return apply(t, s, change.Record{Entity: "B-007", Event: &change.Event{
			Origin: change.Origin{Source: "registry", Topic: topic, Offset: offset}, Sequence: seq, Op: change.Upsert,
			Payload: fmt.Appendf(nil, `{"id":"B-007","ripeness_level":%d}`, level),
		}}, topic)
	}
	require.Equal(t, both1, event("t", 10, "9", 1))
	require.Equal(t, one2, event("t", 11, "10", 2), "10 is newer than 9")
	require.Equal(t, "stale", event("t", 10, "11", 1), "read again")
	require.Equal(t, "stale", event("t", 12, "9", 1), "an older sequence")
	require.Equal(t, one1, event("recreated", 0, "12", 1), "a topic with another identity starts at 0")
}

// sequenced applies events with these sequences, each of other content, and returns their
// outcomes.
func sequenced(t *testing.T, s *Simulator, sequences ...string) (lines []string) {
	for _, seq := range sequences {
		s.offset++
		line := apply(t, s, change.Record{Entity: "B-007", Event: &change.Event{
			Origin: change.Origin{Source: "registry"}, Sequence: seq, Op: change.Upsert,
			Payload: fmt.Appendf(nil, `{"id":"B-007","ripeness_level":%d}`, s.offset),
		}}, seq)
		outcome, _, _ := strings.Cut(line, " ")
		lines = append(lines, outcome)
	}
	return lines
}

// I5: sequences are in order by value, however they are written.
func TestI5SequencesByValue(t *testing.T) {
	for _, list := range [][]string{
		{"-2", "-1", "9.5", "10.5", "1e3", "1001"},
		{"2026-07-01T10:00:00Z", "2026-07-01T10:00:00.25Z"}, {"2026-07-01T10:00:00.1Z", "2026-07-01T10:00:00.15Z"},
		{"2026-07-01T10:00Z", "2026-07-01T10:00:30Z"}, {"2026-07-01T12:00+02:00", "2026-07-01T10:30Z"},
	} {
		s := NewSimulator(bananaPlan(t))
		for i, seq := range list {
			require.Equal(t, []string{"merged"}, sequenced(t, s, seq), seq)
			if i > 0 {
				require.Equal(t, []string{"stale"}, sequenced(t, s, list[i-1]))
			}
		}
	}
}

// A sequence of another kind has no order: it is a dead letter, and the events after it are
// in order as before. An operator drops the order.
func TestASequenceOfAnotherKindIsADeadLetter(t *testing.T) {
	s := NewSimulator(bananaPlan(t))
	event := func(seq string, level int) change.Record {
		return change.Record{Entity: "B-007", Event: &change.Event{
			Origin: change.Origin{Source: "registry"}, Sequence: seq, Op: change.Upsert, Payload: fmt.Appendf(nil, `{"id":"B-007","ripeness_level":%d}`, level),
		}}
	}
	require.Equal(t, both1, apply(t, s, event("10", 1), "first"))
	bad, err := s.Apply(event("abc", 5), time.Unix(1000, 0))
	require.NoError(t, err)
	require.Len(t, bad.Letters, 1)
	require.Equal(t, "bad_sequence", bad.Letters[0].Code)
	require.Contains(t, bad.Letters[0].Reason, "the sequence is a text and the last one of this entity a number")
	require.Equal(t, "dead dead:bad_sequence", apply(t, s, event("2026-07-01T10:00Z", 5), "a time"))
	for seq := 11; seq <= 15; seq++ {
		require.Equal(t, map[bool]string{true: one1, false: one2}[seq%2 == 0], apply(t, s, event(fmt.Sprint(seq), 2-(seq+1)%2), "later"))
	}
	require.Equal(t, "control", apply(t, s, change.Record{Entity: "B-007", Control: &change.Control{ID: "1", Action: change.ResetOrder, Actor: "me"}}, "reset"))
	require.Equal(t, one1, apply(t, s, event("abc", 1), "in order"))
	require.Equal(t, "stale", apply(t, s, event("abb", 2), "older"))
}

// A document that stops matching, and a deleted entity, are retracted once;
// an entity that was never sent is not retracted.
func TestRetraction(t *testing.T) {
	s := NewSimulator(bananaPlan(t))
	require.Equal(t, []string{
		`merged two/list@a=upsert{"banana_id":"B-007"}`,
		one1,
		`merged one/ripeness@a=retract`,
		`merged two/list@a=retract`,
		`noise`,
		both1,
	}, feed(t, s,
		`registry: {"id":"B-007","origin":"XX","ripeness_level":1}`,
		`registry: {"id":"B-007","origin":"EC","ripeness_level":1}`,
		`registry: {"id":"B-007","origin":"XX","ripeness_level":2}`,
		`registry: -`,
		`registry: -`,
		`registry: {"id":"B-007","origin":"EC","ripeness_level":1}`,
	))
}

// command applies a control record for customer one.
func command(t *testing.T, s *Simulator, c change.Control) string {
	t.Helper()
	c.Services = []string{"one/ripeness@a"}
	return apply(t, s, change.Record{Entity: "B-007", Control: &c}, string(c.Action))
}

// rowOf is the dam row of customer one.
func rowOf(s *Simulator) store.Row {
	e := s.entities["B-007"]
	return e.States.Get(1)
}

// I9: refused content is suppressed, through any other events, and no other service
// is evaluated for it. Any other content passes, also the one before, and with it
// the refused one may come again.
func TestI9RefusedContentIsHeldBack(t *testing.T) {
	const a, b = `registry: {"id":"B-007","ripeness_level":1}`, `registry: {"id":"B-007","ripeness_level":2}`
	const c = `registry: {"id":"B-007","ripeness_level":2,"n":%d}`
	s := NewSimulator(bananaPlan(t))
	feed(t, s, a, b)
	refused := rowOf(s).Version
	require.Equal(t, "control", command(t, s, change.Control{Action: change.Refuse, Version: refused - 1}))
	require.False(t, rowOf(s).Refused, "another version: no effect")
	require.Equal(t, "control", command(t, s, change.Control{Action: change.Refuse, Version: refused}))
	require.True(t, rowOf(s).Refused)
	require.Equal(t, []string{"noise"}, feed(t, s, b))
	for n := range 6 {
		step, err := s.Apply(change.Record{Entity: "B-007", Event: &change.Event{
			Origin: change.Origin{Source: "registry", Topic: "t", Offset: s.offset}, Op: change.Upsert, Payload: fmt.Appendf(nil, strings.TrimPrefix(c, "registry: "), n),
		}}, time.Unix(1000, 0))
		require.NoError(t, err)
		require.Empty(t, step.Sent)
		require.Equal(t, []string{"one/ripeness@a", "two/list@a"}, step.Pruned)
	}
	require.Equal(t, []string{one1}, feed(t, s, a), "the content before passes: the target may hold the refused one")
	require.False(t, rowOf(s).Refused)
	require.Equal(t, []string{one2}, feed(t, s, b))
	require.Equal(t, "control", command(t, s, change.Control{Action: change.Refuse, Version: refused}))
	require.False(t, rowOf(s).Refused, "late: the row has moved on")
}

// The same when the entity is evaluated anew for all services: equal content is
// compared and held back, under another configuration as well.
func TestI9RefusedContentIsHeldBackWhenEvaluated(t *testing.T) {
	s := NewSimulator(bananaPlan(t))
	feed(t, s, `registry: {"id":"B-007","ripeness_level":1}`)
	command(t, s, change.Control{Action: change.Refuse, Version: rowOf(s).Version})
	require.Equal(t, "control", apply(t, s, change.Record{Entity: "B-007", Control: &change.Control{Action: change.Redecide}}, "replay"))
	s.plan.Fingerprint = []byte("another")
	require.NoError(t, s.plan.Prepare())
	require.Equal(t, []string{"merged"}, feed(t, s, `registry: {"id":"B-007","ripeness_level":1,"n":1}`))
	require.True(t, rowOf(s).Refused)
}

// A retraction that was refused is held back like any other content, and a
// document that comes passes.
func TestI9RefusedRetraction(t *testing.T) {
	s := NewSimulator(bananaPlan(t))
	feed(t, s, `registry: {"id":"B-007","ripeness_level":1}`, `registry: -`)
	command(t, s, change.Control{Action: change.Refuse, Version: rowOf(s).Version})
	require.True(t, rowOf(s).Content.IsRetracted())
	require.Equal(t, "control", command(t, s, change.Control{Action: change.Redecide}))
	require.True(t, rowOf(s).Refused)
	require.Equal(t, []string{both1}, feed(t, s, `registry: {"id":"B-007","ripeness_level":1}`))
	require.False(t, rowOf(s).Refused)
}

// An operator lets a refused content pass: by a replay of its letter, by force, or
// by a reset. Content in the dam that is not refused passes by force only.
func TestI9WhatLetsRefusedContentPass(t *testing.T) {
	const a, again = `registry: {"id":"B-007","ripeness_level":1}`, `control one/ripeness@a=upsert{"banana_id":"B-007","ripeness":1}`
	for name, c := range map[string]change.Control{
		"replay of the letter": {Action: change.Redecide, Letter: 7},
		"force":                {Action: change.Redecide, Force: true},
		"reset":                {Action: change.Reset},
	} {
		t.Run(name, func(t *testing.T) {
			s := NewSimulator(bananaPlan(t))
			feed(t, s, a)
			refused := rowOf(s).Version
			command(t, s, change.Control{Action: change.Refuse, Version: refused})
			require.Equal(t, "control", command(t, s, change.Control{Action: change.Redecide}), "a replay that is of no letter")
			if c.Letter != 0 {
				c.Version = refused
			}
			got := command(t, s, c)
			if c.Action == change.Reset {
				require.Equal(t, "control", got)
				require.Equal(t, "control", command(t, s, change.Control{Action: change.Refuse, Version: refused}), "late: the operator has the last word")
				require.False(t, rowOf(s).Refused)
				got = strings.Replace(feed(t, s, a)[0], "merged", "control", 1)
			}
			require.Equal(t, again, got)
			require.False(t, rowOf(s).Refused)
			require.Equal(t, "control", command(t, s, change.Control{Action: change.Redecide, Letter: 7, Version: rowOf(s).Version}), "it is not refused any more")
		})
	}
}

// A letter of refused content is superseded by later changes.
func TestI9AnOldLetterIsObsolete(t *testing.T) {
	s := NewSimulator(bananaPlan(t))
	feed(t, s, `registry: {"id":"B-007","ripeness_level":1}`)
	first := rowOf(s).Version
	command(t, s, change.Control{Action: change.Refuse, Version: first})
	feed(t, s, `registry: {"id":"B-007","ripeness_level":2}`)
	command(t, s, change.Control{Action: change.Refuse, Version: rowOf(s).Version})
	require.Equal(t, "control", command(t, s, change.Control{Action: change.Redecide, Letter: 7, Version: first}))
	require.True(t, rowOf(s).Refused)
}

// The letters of content that a newer change replaces are closed, unless the sink keeps every
// change.
func TestI9NewerContentClosesLetters(t *testing.T) {
	for _, log := range []bool{false, true} {
		s := NewSimulator(bananaPlan(t))
		s.plan.Services[0].Log = log
		var settled []store.LetterResolution
		for n := range 3 {
			if n == 2 {
				command(t, s, change.Control{Action: change.Refuse, Version: rowOf(s).Version})
			}
			step, err := s.Apply(change.Record{Entity: "B-007", Event: &change.Event{
				Origin: change.Origin{Source: "registry", Topic: "t", Offset: int64(n)}, Op: change.Upsert, Payload: fmt.Appendf(nil, `{"id":"B-007","ripeness_level":%d}`, n),
			}}, time.Unix(1000, 0))
			require.NoError(t, err)
			require.NotEmpty(t, step.Sent)
			settled = append(settled, step.Settled...)
		}
		if log {
			require.Empty(t, settled)
			continue
		}
		require.Equal(t, []store.LetterResolution{{Stage: store.StageDeliver, Service: "one/ripeness@a", Entity: "B-007", State: store.LetterObsolete, Version: rowOf(s).Version}}, settled)
	}
}

// A log sink's change that is sent again as it was is under way, not refused, until
// it is refused again.
func TestI9AResentChangeIsUnderWay(t *testing.T) {
	s := NewSimulator(bananaPlan(t))
	step, err := s.Apply(change.Record{Entity: "B-007", Event: &change.Event{Origin: change.Origin{Source: "registry", Topic: "t"}, Op: change.Upsert, Payload: []byte(`{"id":"B-007","ripeness_level":1}`)}}, time.Unix(1000, 0))
	require.NoError(t, err)
	c := step.Sent[0]
	for range 2 {
		command(t, s, change.Control{Action: change.Refuse, Version: c.Version})
		require.True(t, rowOf(s).Refused)
		require.Contains(t, command(t, s, change.Control{Action: change.Resend, Letter: 7, Change: c.AppendBinary(nil)}), `control one/ripeness@a=upsert`)
		require.False(t, rowOf(s).Refused)
	}
	require.Equal(t, c.Version, rowOf(s).Version)
}

func TestReset(t *testing.T) {
	s := NewSimulator(bananaPlan(t))
	feed(t, s, `registry: {"id":"B-007","ripeness_level":1}`)
	reset := change.Record{Entity: "B-007", Control: &change.Control{Action: change.Reset, Services: []string{"two/list@a"}}}
	require.Equal(t, "control", apply(t, s, reset, "reset"))
	require.Equal(t, []string{`merged two/list@a=upsert{"banana_id":"B-007"}`}, feed(t, s, `registry: {"id":"B-007","ripeness_level":1}`))
}

func TestRedecide(t *testing.T) {
	s := NewSimulator(bananaPlan(t))
	feed(t, s, `registry: {"id":"B-007","ripeness_level":1}`)
	again := func(force bool) string {
		return apply(t, s, change.Record{Entity: "B-007", Control: &change.Control{Action: change.Redecide, Services: []string{"one/ripeness@a"}, Force: force}}, "redecide")
	}
	require.Equal(t, "control", again(false), "the dam is respected")
	require.Equal(t, `control one/ripeness@a=upsert{"banana_id":"B-007","ripeness":1}`, again(true))
}

// One change that is too large for one customer is a dead letter of that
// customer and stops no other.
func TestOversizedChange(t *testing.T) {
	p := bananaPlan(t)
	p.MaxChange = 400
	s := NewSimulator(p)
	large := `registry: {"id":"B-007","ripeness_level":"` + strings.Repeat("x", 400) + `"}`
	require.Equal(t, []string{`merged two/list@a=upsert{"banana_id":"B-007"} dead:oversized`}, feed(t, s, large))

	s = NewSimulator(p)
	small := `registry: {"id":"B-007","ripeness_level":1}`
	require.Equal(t, []string{both1, "merged dead:oversized", "merged"}, feed(t, s, small, large, small), "the customer has the small one still")
}

// A filter that fails on a document fails for its customer only.
func TestFilterErrorIsADeadLetterOfItsService(t *testing.T) {
	p := bananaPlan(t)
	bad, err := projections.Compile(projections.Spec{Customer: "one", Name: "ripeness", When: `doc.ripeness_level > 3`, Fields: []projections.Field{{Out: "banana_id", Path: "id"}}})
	require.NoError(t, err)
	p.Projections[0] = bad
	require.NoError(t, p.Prepare())
	s := NewSimulator(p)
	require.Equal(t, []string{`merged two/list@a=upsert{"banana_id":"B-007"} dead:projection`},
		feed(t, s, `registry: {"id":"B-007","ripeness_level":"green"}`))
}

// Carried values go with an update and cause none. A forced request sends those of its own
// time; one that fails is a dead letter of its service, and no stop of the partition.
func TestCarriedFieldsCauseNothing(t *testing.T) {
	p := bananaPlan(t)
	carrying, err := projections.Compile(projections.Spec{Customer: "one", Name: "ripeness", Fields: []projections.Field{{Out: "ripeness", Path: "ripeness_level"}},
		Carry: []projections.Field{{Out: "at", Path: "at"}, {Out: "next", Expr: "doc.at + 1"}}})
	require.NoError(t, err)
	p.Projections[0] = carrying
	require.NoError(t, p.Prepare())
	s := NewSimulator(p)
	require.Equal(t, []string{
		`merged one/ripeness@a=upsert{"ripeness":1,"at":1,"next":2} two/list@a=upsert{"banana_id":"B"}`, "merged",
		`merged one/ripeness@a=upsert{"ripeness":2,"at":3,"next":4}`, "merged dead:projection",
	}, feed(t, s, `registry: {"id":"B","ripeness_level":1,"at":1}`, `registry: {"id":"B","ripeness_level":1,"at":2}`,
		`registry: {"id":"B","ripeness_level":2,"at":3}`, `registry: {"id":"B","ripeness_level":3,"at":"late"}`))
	require.Equal(t, []string{`merged`}, feed(t, s, `registry: {"id":"B","ripeness_level":2,"at":5}`), "the customer has the second one still")
	again := change.Control{Action: change.Redecide, Services: []string{"one/ripeness@a"}, Force: true}
	require.Equal(t, `control one/ripeness@a=upsert{"ripeness":2,"at":5,"next":6}`, apply(t, s, change.Record{Entity: "B-007", Control: &again}, "replay"))
}

// The mistake that this catches: a change was lost from the log, and its
// replacement is too large. The row said that the customer had the lost
// change: its content was held back, and the repair of the gap waited for it to move.
func TestALostChangeThatCannotBeMadeAgain(t *testing.T) {
	small := `registry: {"id":"B-007","ripeness_level":1}`
	for name, large := range map[string]string{
		"oversized":  `registry: {"id":"B-007","ripeness_level":"` + strings.Repeat("x", 400) + `"}`,
		"projection": `registry: {"id":"B-007","ripeness_level":"green"}`,
	} {
		p := bananaPlan(t)
		p.MaxChange = 400
		if name == "projection" {
			bad, err := projections.Compile(projections.Spec{Customer: "one", Name: "ripeness", When: `doc.ripeness_level > 0`,
				Fields: []projections.Field{{Out: "banana_id", Path: "id"}, {Out: "ripeness", Path: "ripeness_level"}}})
			require.NoError(t, err)
			p.Projections[0] = bad
			require.NoError(t, p.Prepare())
		}
		for version, next := range map[int64]string{0: one1, 7: "merged"} {
			s := NewSimulator(p)
			require.Equal(t, []string{both1, "merged dead:" + name}, feed(t, s, small, large))
			lost := change.Control{Action: change.Redecide, Services: []string{"one/ripeness@a"}, Version: change.NewVersion(1, version), Force: true, Actor: change.Deliver}
			require.Equal(t, "control dead:"+name, apply(t, s, change.Record{Entity: "B-007", Control: &lost}, name))
			require.Equal(t, []string{next}, feed(t, s, small), "%s, version %d", name, version)
		}
	}
}

// A record that an earlier assignment of the partition handed out is not
// decided by the next one: those before it may not have been handed out again yet.
func TestRecordsOfAnEarlierAssignmentAreLeftOut(t *testing.T) {
	l := &worker{d: &Decider{}, owned: map[int32]*ownership{3: {next: 7, after: 5, lastTo: 4}}}
	l.d.workers = []*worker{l}
	todo, moves, _ := l.filterOwned([]*record{{partition: 3, offset: 10, assignment: 5}, {partition: 4, offset: 1, assignment: 9}})
	require.Empty(t, todo)
	require.Empty(t, moves)
	todo, moves, owners := l.filterOwned([]*record{{partition: 3, offset: 6, assignment: 6}, {partition: 3, offset: 7, assignment: 6}, {partition: 3, offset: 8, assignment: 6}})
	require.Len(t, todo, 2, "what was decided already is left out")
	require.Equal(t, int64(7), moves[0].From)
	require.Equal(t, int64(9), moves[0].To)
	require.Equal(t, l.owned, owners)
}

// A filter that would run for minutes over a document costs its service a dead letter, and
// neither the other services nor other entities their updates.
func TestAnExpensiveFilterConcernsItsServiceOnly(t *testing.T) {
	expensive, err := projections.Compile(projections.Spec{Customer: "one", Name: "blocked", When: `any(doc.items, # in doc.blocked)`, Fields: []projections.Field{{Out: "id", Path: "id"}}})
	require.NoError(t, err)
	plan := bananaPlan(t)
	plan.Projections = append(plan.Projections, expensive)
	plan.Services = append(plan.Services, Service{Name: "one/blocked@a", Number: 3, Projection: 2})
	require.NoError(t, plan.Prepare())
	list := func(prefix string) string {
		return strings.TrimSuffix(strings.Repeat(`"`+prefix+`",`, 300_000), ",")
	}
	require.Equal(t, []string{both1 + " dead:projection", "merged one/ripeness@a=upsert{\"banana_id\":\"B-007\",\"ripeness\":2} one/blocked@a=upsert{\"id\":\"B-007\"}"}, feed(t, NewSimulator(plan),
		`registry: {"id":"B-007","ripeness_level":1,"items":[`+list("a")+`],"blocked":[`+list("b")+`]}`,
		`registry: {"id":"B-007","ripeness_level":2,"items":["a"],"blocked":["a"]}`))
}
