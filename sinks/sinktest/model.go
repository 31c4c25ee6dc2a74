package sinktest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/sinks"
)

// model is the target's expected content for the entities of one check.
type model struct {
	kind sinks.Kind
	rows map[string]Row             // State: newest by version
	log  map[string][]change.Change // Log: first arrivals, in order
	keys map[string]bool            // Log
}

func newModel(kind sinks.Kind) *model {
	return &model{kind: kind, rows: map[string]Row{}, log: map[string][]change.Change{}, keys: map[string]bool{}}
}

// apply takes in changes as a compliant target does.
func (m *model) apply(changes ...change.Change) {
	for _, c := range changes {
		if m.kind == sinks.State {
			if old, ok := m.rows[c.Entity]; !ok || c.Version > old.Version {
				m.rows[c.Entity] = Row{Version: c.Version, Op: c.Op, Doc: c.Doc}
			}
			continue
		}
		if _, ok := m.log[c.Entity]; !ok {
			m.log[c.Entity] = nil
		}
		if !m.keys[c.Key] {
			m.keys[c.Key] = true
			m.log[c.Entity] = append(m.log[c.Entity], c)
		}
	}
}

// absent says that the target must hold nothing for an entity.
func (m *model) absent(entity string) {
	if m.kind == sinks.Log {
		m.log[entity] = nil
		return
	}
	m.rows[entity] = Row{Op: change.Retract}
}

// differences compares the target with the model, for the model's entities.
func (m *model) differences(t testing.TB, tg *Target) []string {
	t.Helper()
	if m.kind == sinks.State {
		return m.stateDifferences(tg.State(t))
	}
	return m.logDifferences(tg.Log(t))
}

func (m *model) stateDifferences(state map[string]Row) (diffs []string) {
	for entity, want := range m.rows {
		got, ok := state[entity]
		switch {
		case !ok && want.Op == change.Retract:
		case !ok:
			diffs = append(diffs, fmt.Sprintf("entity %.60q: absent, want version %v", entity, want.Version))
		case got.Version != want.Version || got.Op != want.Op:
			diffs = append(diffs, fmt.Sprintf("entity %.60q: has %s of version %v, want %s of %v",
				entity, got.Op, got.Version, want.Op, want.Version))
		case want.Op == change.Upsert && !sameJSON(got.Doc, want.Doc):
			diffs = append(diffs, fmt.Sprintf("entity %.60q version %v: has document %.200q, want %.200q",
				entity, want.Version, got.Doc, want.Doc))
		}
	}
	slices.Sort(diffs)
	return diffs
}

func (m *model) logDifferences(log []change.Change) (diffs []string) {
	have := map[string][]change.Change{}
	for _, c := range log {
		have[c.Entity] = append(have[c.Entity], c)
	}
	for entity, want := range m.log {
		got := have[entity]
		if g, w := versions(got), versions(want); !slices.Equal(g, w) {
			diffs = append(diffs, fmt.Sprintf("entity %.60q: versions %v, want %v", entity, g, w))
			continue
		}
		for i := range want {
			switch {
			case got[i].Key != want[i].Key || got[i].Op != want[i].Op:
				diffs = append(diffs, fmt.Sprintf("entity %.60q version %v: has %s with key %s, want %s with key %s",
					entity, want[i].Version, got[i].Op, got[i].Key, want[i].Op, want[i].Key))
			case want[i].Op == change.Upsert && !sameJSON(got[i].Doc, want[i].Doc):
				diffs = append(diffs, fmt.Sprintf("entity %.60q version %v: has document %.200q, want %.200q",
					entity, want[i].Version, got[i].Doc, want[i].Doc))
			}
		}
	}
	slices.Sort(diffs)
	return diffs
}

func versions(changes []change.Change) []change.Version {
	out := make([]change.Version, len(changes))
	for i := range changes {
		out[i] = changes[i].Version
	}
	return out
}

func sameJSON(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && assert.ObjectsAreEqual(x, y)
}
