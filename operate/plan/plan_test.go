package plan_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/operate/plan"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
)

const mainFile = `
sources:
  registry:
    file: {path: registry.jsonl}
    entity: id
    strip: [ts]
customers: ["customers/*.yaml"]
`

const acme = `
customer: acme
projections:
  ripeness:
    when: doc.origin in ["EC", "CO"]
    fields: {id: id, level: level}
    deliver: {a: {file: {path: a.jsonl}}}
`

const zest = `
customer: zest
projections:
  list:
    fields: {id: id}
    deliver: {z: {file: {path: z.jsonl}}}
`

const (
	ripe = "acme/ripeness@a"
	list = "zest/list@z"
)

func load(t testing.TB, replace ...string) *config.Config {
	t.Helper()
	edit := strings.NewReplacer(replace...)
	dir := t.TempDir()
	for name, text := range map[string]string{"weir.yaml": mainFile, "customers/acme.yaml": acme, "customers/zest.yaml": zest} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(edit.Replace(text)), 0o644))
	}
	c, err := assemble.Load(filepath.Join(dir, "weir.yaml"), os.LookupEnv)
	require.NoError(t, err)
	return c
}

// state is a store that a simulated pipeline filled under an old configuration.
type state struct {
	t       testing.TB
	active  *config.Config
	numbers map[string]int32
	sim     *decide.Simulator
	ids     []string
	change  func(service string, r *store.Row)

	maxPage, maxStates, pages int
}

func newState(t testing.TB) *state {
	s := &state{t: t, active: load(t), numbers: map[string]int32{}, change: func(string, *store.Row) {}}
	for i, x := range s.active.Services() {
		s.numbers[x.Name] = int32(i + 1)
	}
	p, err := assemble.Plan(s.active, s.numbers, 1)
	require.NoError(t, err)
	s.sim = decide.NewSimulator(p)
	return s
}

// put decides one event; an empty payload deletes.
func (s *state) put(id, payload string) {
	e := &change.Event{Origin: change.Origin{Source: "registry"}, Op: change.Upsert, Payload: []byte(payload)}
	if payload == "" {
		e.Op, e.Payload = change.Delete, nil
	}
	_, err := s.sim.Apply(change.Record{Entity: id, Event: e}, time.Unix(0, 0))
	require.NoError(s.t, err)
	if !slices.Contains(s.ids, id) {
		s.ids = append(s.ids, id)
		slices.Sort(s.ids)
	}
}

func (s *state) Active(context.Context) (store.Revision, error) {
	f := s.active.Fingerprint()
	return store.Revision{Number: 1, Fingerprint: f[:]}, nil
}
func (s *state) KnownServices(context.Context) (map[string]int32, error) { return s.numbers, nil }
func (s *state) CountEntities(context.Context) (int64, error)            { return int64(len(s.ids)), nil }

func (s *state) Entities(_ context.Context, after string, limit int) ([]store.Entity, error) {
	s.pages++
	var page []store.Entity
	for _, id := range s.ids {
		if id > after && len(page) < limit {
			e, states := s.sim.Stored(id), 0
			for name, number := range s.numbers {
				if r := e.States.Get(number); r.Found {
					s.change(name, &r)
					e.States.Set(r)
					states++
				}
			}
			s.maxStates = max(s.maxStates, limit*states)
			page = append(page, e)
		}
	}
	s.maxPage = max(s.maxPage, len(page))
	return page, nil
}

func (s *state) plan(candidate, against *config.Config, samples int) *plan.Effect {
	s.t.Helper()
	e, err := plan.Compute(s.t.Context(), plan.Input{Candidate: candidate, Against: against, Store: s, Samples: samples})
	require.NoError(s.t, err)
	require.NoError(s.t, e.Write(&bytes.Buffer{}))
	return e
}

// line sums a service up.
func line(e *plan.Effect, service string) string {
	for _, s := range e.Services {
		if s.Service == service {
			text := fmt.Sprintf("%s send %d retract %d unchanged %d nothing %d fail %d", s.State, s.Send, s.Retract, s.Unchanged, s.Nothing, s.Fail)
			if s.NewlyHeld != nil {
				text += fmt.Sprintf(" anyway %d newly held %d", *s.Anyway, *s.NewlyHeld)
			}
			return text
		}
	}
	return "not there"
}

// some fills: 2 seen by acme, 1 kept out by its filter, 1 deleted.
func some(t testing.TB) *state {
	s := newState(t)
	s.put("A", `{"id":"A","origin":"EC","level":1,"weight":5}`)
	s.put("B", `{"id":"B","origin":"CO","level":2.0,"weight":6}`)
	s.put("C", `{"id":"C","origin":"PH","level":3,"weight":7}`)
	s.put("D", `{"id":"D","origin":"EC","level":4}`)
	s.put("D", "")
	return s
}

// The mistake that this catches: a configuration that means the same is said
// to send something, or one that does not is said not to.
func TestEffects(t *testing.T) {
	for name, c := range map[string]struct {
		replace    []string
		ripe, list string
	}{
		"the same": {nil, "kept send 0 retract 0 unchanged 3 nothing 1 fail 0", "kept send 0 retract 0 unchanged 4 nothing 0 fail 0"},
		"a field is added": {[]string{"level: level", "level: level, weight: weight"},
			"kept send 2 retract 0 unchanged 1 nothing 1 fail 0", "kept send 0 retract 0 unchanged 4 nothing 0 fail 0"},
		"the filter is wider": {[]string{`["EC", "CO"]`, `["EC", "CO", "PH"]`},
			"kept send 1 retract 0 unchanged 3 nothing 0 fail 0", "kept send 0 retract 0 unchanged 4 nothing 0 fail 0"},
		"the filter is narrower": {[]string{`["EC", "CO"]`, `["EC"]`},
			"kept send 0 retract 1 unchanged 2 nothing 1 fail 0", "kept send 0 retract 0 unchanged 4 nothing 0 fail 0"},
		"numbers compare by value": {[]string{"{id: id, level: level}", "{id: id, level: level}\n    numbers: decimal"},
			"kept send 1 retract 0 unchanged 2 nothing 1 fail 0", "kept send 0 retract 0 unchanged 4 nothing 0 fail 0"},
		"more is stripped": {[]string{"strip: [ts]", "strip: [ts, level]", "level: level", "level: {path: weight}"},
			"kept send 2 retract 0 unchanged 1 nothing 1 fail 0", "kept send 0 retract 0 unchanged 4 nothing 0 fail 0"},
		"the filter fails": {[]string{`doc.origin in ["EC", "CO"]`, `upper(doc.weight) == "A"`},
			"kept send 0 retract 0 unchanged 1 nothing 0 fail 3", "kept send 0 retract 0 unchanged 4 nothing 0 fail 0"},
	} {
		t.Run(name, func(t *testing.T) {
			s := some(t)
			candidate := load(t, c.replace...)
			e := s.plan(candidate, nil, 1)
			require.EqualValues(t, 4, e.Entities)
			require.Equal(t, name == "the same", e.Active)
			require.Equal(t, c.ripe, line(e, ripe))
			require.Equal(t, c.list, line(e, list))
			require.Equal(t, name != "the same", e.Changes() > 0)
			compared := s.plan(candidate, s.active, 1)
			require.Equal(t, c.ripe+" anyway 0 newly held 0", line(compared, ripe))
		})
	}
}

// A carried field sends nothing, a computed one its new values, and a rule of sameness holds back
// values that are equal by it.
func TestEffectsOfComputedCarriedAndSame(t *testing.T) {
	const nothing, all = "kept send 0 retract 0 unchanged 3 nothing 1 fail 0", "kept send 2 retract 0 unchanged 1 nothing 1 fail 0"
	for replace, want := range map[string]string{
		"{id: id, level: level}\n    carry: {weight: weight}":        nothing,
		"{id: {expr: doc.id}, level: level}":                         nothing,
		"{id: id, level: {path: level, same: {trim: true}}}":         nothing,
		"{id: id, level: level, twice: {expr: \"doc.id + doc.id\"}}": all,
	} {
		s := some(t)
		require.Equal(t, want, line(s.plan(load(t, "{id: id, level: level}", replace), nil, 1), ripe), replace)
	}
}

// A document that is the same by the projection's rules of sameness is not called older.
func TestSamplesOfSame(t *testing.T) {
	const same = "{id: id, level: {path: level, same: {trim: true}}}"
	s := some(t)
	s.active = load(t, "{id: id, level: level}", same)
	e := s.plan(load(t, "{id: id, level: level}", "{id: id, level: {path: level, same: {trim: true}}, kind: {const: fruit}}"), load(t, "{id: id, level: level}", same), 1)
	require.NotEmpty(t, e.Services[0].Samples)
	require.False(t, e.Services[0].Samples[0].Exact)
	var out bytes.Buffer
	require.NoError(t, e.Write(&out))
	require.NotContains(t, out.String(), "older than")
}

func TestNewAndRemovedServices(t *testing.T) {
	s := some(t)
	e := s.plan(load(t, "  list:", "  names:"), s.active, 9)
	require.Equal(t, "new send 3 retract 0 unchanged 0 nothing 1 fail 0 anyway 0 newly held 0", line(e, "zest/names@z"))
	last := e.Services[len(e.Services)-1]
	require.Equal(t, plan.Removed, last.State)
	require.Equal(t, list, last.Service)
	require.EqualValues(t, 3, last.Keeps, "the deleted one was retracted")
	require.EqualValues(t, 3, e.Changes())
	var out bytes.Buffer
	require.NoError(t, e.Write(&out))
	require.Contains(t, out.String(), "zest/list@z is removed: its customer keeps 3 entities, nothing is retracted.")
}

// A change that would be sent anyway is no effect of the candidate; one that the candidate
// stops is reported.
func TestAnywayAndNewlyHeldBack(t *testing.T) {
	s := some(t)
	s.change = func(service string, r *store.Row) { // somebody reset all of acme
		if service == ripe {
			r.Content = nil
		}
	}
	require.Equal(t, "kept send 2 retract 1 unchanged 0 nothing 1 fail 0 anyway 3 newly held 0", line(s.plan(s.active, s.active, 9), ripe))
	require.Zero(t, s.plan(s.active, s.active, 9).Changes())
	require.EqualValues(t, 3, s.plan(s.active, nil, 9).Changes(), "nobody can tell without the other")

	// The state has the documents of this candidate, not of the active one.
	narrow := load(t, "level: level", "level: {const: 0}")
	other := newState(t)
	other.put("A", `{"id":"A","origin":"EC","level":0}`)
	s = newState(t)
	s.put("A", `{"id":"A","origin":"EC","level":1}`)
	shown := other.sim.Stored("A")
	s.change = func(_ string, r *store.Row) { r.Content = shown.States.Get(r.Service).Content }
	e := s.plan(narrow, s.active, 9)
	require.Equal(t, "kept send 0 retract 0 unchanged 1 nothing 0 fail 0 anyway 0 newly held 1", line(e, ripe))
}

func TestSamples(t *testing.T) {
	s := some(t)
	candidate := load(t, "level: level", `level: {const: "x"}, weight: weight`, `["EC", "CO"]`, `["EC"]`)
	e := s.plan(candidate, s.active, 9)
	text, err := json.Marshal(e.Services[0].Samples)
	require.NoError(t, err)
	require.JSONEq(t, `[
		{"entity":"A","op":"upsert","before":{"id":"A","level":1},"after":{"id":"A","level":"x","weight":5},"exact":true,
		 "diff":[{"path":"level","before":1,"after":"x"},{"path":"weight","after":5}]},
		{"entity":"B","op":"retract","before":{"id":"B","level":2.0},"exact":true}]`, string(text))
	var out bytes.Buffer
	require.NoError(t, e.Write(&out))
	require.Contains(t, out.String(), "acme/ripeness@a  A  upsert\n  ~ level: 1 → \"x\"\n  + weight: 5\n")
	require.Contains(t, out.String(), "acme/ripeness@a  B  retract\n  - {\"id\":\"B\",\"level\":2.0}\n")

	require.Len(t, s.plan(candidate, s.active, 1).Services[0].Samples, 1)
	require.Empty(t, s.plan(candidate, s.active, 0).Services[0].Samples)
	alone := s.plan(candidate, nil, 1).Services[0].Samples[0]
	require.Nil(t, alone.Before)
	require.JSONEq(t, `{"id":"A","level":"x","weight":5}`, string(alone.After))

	// The compared document is not the sent one: a note says so.
	s.change = func(_ string, r *store.Row) { r.Content = change.Hashed(1, [32]byte{1}) }
	old := s.plan(load(t, `["EC", "CO"]`, `["EC"]`), s.active, 9)
	require.Empty(t, old.Services[0].Samples, "sent anyway, so no sample of what the candidate causes")
}

// Notes name the gaps of the numbers.
func TestNotes(t *testing.T) {
	s := some(t)
	notes := func(against *config.Config, replace ...string) string {
		return strings.Join(s.plan(load(t, replace...), against, 0).Notes, "\n")
	}
	require.Contains(t, notes(nil, "level: level", "level: weight"), "give --against")
	require.Empty(t, notes(s.active, "level: level", "level: weight"))
	require.Contains(t, notes(s.active, "strip: [ts]", "strip: [other]"), "Source registry strips less than now (ts)")
	require.Contains(t, notes(s.active, "strip: [ts]", "payload: data"), "takes its document from another place (data instead of the whole value)")
	require.Contains(t, notes(s.active, "entity: id", "entity: other"), "takes the entity's id from another place")
	require.Contains(t, notes(s.active, "strip: [ts]", "strip: [ts]\n    mode: patch"), "changes its mode to patch")
	require.Contains(t, notes(s.active, "  registry:", "  register:"), "Source register is new")
	require.Contains(t, notes(s.active, "  registry:", "  register:"), "Source registry is gone")
	require.Contains(t, notes(load(t, "level: level", "level: weight")), "is not the active one")
	require.Contains(t, notes(s.active, "customer: zest", "customer: zest\npace: 50/s"),
		"zest/list@z changes its pace from none to at most 50/s, 50 at once: what waits continues under the new one, and nothing is sent again.")
	require.Contains(t, notes(s.active, "z: {", "z: {refresh: 30d, "), "zest/list@z changes its refresh from none to 30d: at once it sends nothing again.")
	require.Contains(t, notes(nil), "decides as the active configuration does")
}

// Memory is bounded by a page: so many entities and rows at a time, however
// many there are.
func TestPagesAreBounded(t *testing.T) {
	s := newState(t)
	const n = 3*plan.PageEntities + 7
	for i := range n {
		s.put(fmt.Sprintf("E%05d", i), fmt.Sprintf(`{"id":%d,"origin":"EC","level":1}`, i))
	}
	var last, total int64
	e, err := plan.Compute(t.Context(), plan.Input{Candidate: load(t, "level: level", "level: {const: 2}"), Store: s, Samples: 2, Progress: func(d, of int64) { last, total = d, of }})
	require.NoError(t, err)
	require.EqualValues(t, n, e.Entities)
	require.EqualValues(t, n, e.Services[0].Send)
	require.Len(t, e.Services[0].Samples, 2)
	require.Equal(t, []int64{n, n}, []int64{last, total})
	require.LessOrEqual(t, s.maxPage, plan.PageEntities)
	require.LessOrEqual(t, s.maxStates, plan.PageRows)
	require.Equal(t, 4, s.pages)

	// Many services make smaller pages.
	for i := range 200 {
		s.numbers[fmt.Sprintf("old/p@s%d", i)] = int32(100 + i)
	}
	s.maxPage, s.maxStates = 0, 0
	s.plan(s.active, nil, 0)
	require.LessOrEqual(t, s.maxStates, plan.PageRows)
	require.Less(t, s.maxPage, plan.PageEntities)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = plan.Compute(ctx, plan.Input{Candidate: s.active, Store: s})
	require.ErrorIs(t, err, context.Canceled)
}

// An entity that cannot be decided does not stop the others.
func TestUndecidableEntity(t *testing.T) {
	s := some(t)
	deep := strings.Repeat(`{"a":`, 511) + "1" + strings.Repeat("}", 511)
	s.put("X", `{"id":"X","deep":`+deep[5:len(deep)-1]+`}`)
	e := s.plan(load(t, "strip: [ts]", "mount: a.b.c", "id: id", "id: a.b.c.id", "level: level", "level: a.b.c.level", "doc.origin", "doc.a.b.c.origin"), nil, 0)
	require.EqualValues(t, 1, e.Failed)
	require.Equal(t, []string{"X"}, e.FailedIDs)
	require.Equal(t, "kept send 0 retract 0 unchanged 3 nothing 1 fail 0", line(e, ripe))
}

// Producers wrote ids, member names and values: none of them steers a terminal.
func TestWhatProducersWroteIsShownHarmless(t *testing.T) {
	const steers = "B\x1b[31m\u009b\nX"
	e := plan.Effect{Failed: 1, FailedIDs: []string{steers}, Services: []plan.Service{{Samples: []plan.Sample{{
		Entity: steers, Op: "upsert", Before: json.RawMessage(`1`), After: json.RawMessage(`2`),
		Diff: []plan.Difference{{Path: steers, Before: json.RawMessage("\"\u009b\""), After: json.RawMessage("\"\x1b\"")}},
	}}}}}
	var out bytes.Buffer
	require.NoError(t, e.Write(&out))
	require.NotRegexp(t, "[\x1b\u009b]|\nX", out.String())
	require.Equal(t, 3, strings.Count(out.String(), `"B\x1b[31m\u009b\nX"`))
}

// A renamed service is the same service: nothing is sent, to the last entity. A rename
// without was is a new and a removed one, and the notes say how to mend that.
func TestARenameSendsNothing(t *testing.T) {
	s := newState(t)
	for i := range 7 {
		s.put(fmt.Sprintf("B-%d", i), `{"id": 1, "origin": "EC", "level": 3}`)
	}
	e := s.plan(load(t, "  list:", "  wares:\n    was: zest/list", "customer: acme", "customer: acme-corp\nwas: acme"), nil, 2)
	require.True(t, e.Active)
	require.Equal(t, []plan.Service{
		{Service: ripe, Renamed: "acme-corp/ripeness@a", State: plan.Kept, Unchanged: 7},
		{Service: list, Renamed: "zest/wares@z", State: plan.Kept, Unchanged: 7},
	}, e.Services)
	require.Zero(t, e.Changes())
	var text bytes.Buffer
	require.NoError(t, e.Write(&text))
	require.Contains(t, text.String(), "zest/wares@z is renamed from zest/list@z and keeps its state: the rename sends nothing.")

	e = s.plan(load(t, "  list:", "  wares:"), nil, 0)
	require.EqualValues(t, 7, e.Changes())
	require.Contains(t, strings.Join(e.Notes, "\n"), "zest/wares@z is new and zest/list@z is removed.")

	_, err := plan.Compute(t.Context(), plan.Input{Candidate: load(t, "  list:", "  wares:\n    was: zest/lists"), Store: s})
	require.ErrorContains(t, err, "zest.yaml:7:15: zest/wares@z: was zest/lists@z first, which the store does not know")
}
