package oracle

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Record is one change as a sink has it.
type Record struct {
	Service string          `json:"service"`
	Entity  string          `json:"entity"`
	Op      string          `json:"op"`
	Version uint64          `json:"version"`
	Key     string          `json:"key"`
	Doc     json.RawMessage `json:"doc"`
}

// CheckLog compares the records of a log sink of one service with the model: every
// change, once, in order per entity, and nothing else.
func CheckLog(want Expected, service string, got []Record) error {
	keys := map[string]bool{}
	by := map[string][]Record{}
	for _, r := range got {
		if r.Service != service {
			return fmt.Errorf("%s has a record of %s", service, r.Service)
		}
		if keys[r.Key] {
			return fmt.Errorf("%s, entity %s: version %d is there twice", service, r.Entity, r.Version)
		}
		keys[r.Key] = true
		by[r.Entity] = append(by[r.Entity], r)
	}
	for _, id := range entities(want[service], by) {
		w, g := want[service][id], by[id]
		for i := range max(len(w), len(g)) {
			switch {
			case i >= len(g):
				return fmt.Errorf("%s, entity %s: lost %s", service, id, show(w[i]))
			case i >= len(w):
				return fmt.Errorf("%s, entity %s: %s %d is one too many", service, id, g[i].Op, g[i].Version)
			}
			if err := same(w[i], g[i]); err != nil {
				return fmt.Errorf("%s, entity %s, change %d of %d: %w", service, id, i+1, len(w), err)
			}
		}
	}
	return nil
}

// CheckState compares the records of a state sink of one service, one per entity,
// with the model. A sink that removes retracted entities has no record then;
// one that keeps a mark has a record with op retract. The record may have an older version with the
// content of the newest: it is not sent again.
func CheckState(want Expected, service string, got map[string]Record) error {
	for _, id := range entities(want[service], got) {
		changes := want[service][id]
		g, has := got[id]
		if len(changes) == 0 {
			return fmt.Errorf("%s, entity %s: %s %d, want nothing", service, id, g.Op, g.Version)
		}
		newest := changes[len(changes)-1]
		if !has && newest.Op == "retract" {
			continue
		}
		if !has {
			return fmt.Errorf("%s, entity %s: lost %s", service, id, show(newest))
		}
		if i := slices.IndexFunc(changes, func(c Change) bool { return c.Version == g.Version }); i >= 0 && changes[i].Same(newest) {
			newest = changes[i]
		}
		if err := same(newest, g); err != nil {
			return fmt.Errorf("%s, entity %s: %w", service, id, err)
		}
	}
	return nil
}

// CheckAttempts holds every attempt that a receiver of one service saw against
// the model: each is a change that the model knows, one key always has the same
// bytes, and keys are not shared.
func CheckAttempts(want Expected, service string, got []Record) error {
	keys := map[string]Record{}
	for _, r := range got {
		i := slices.IndexFunc(want[service][r.Entity], func(c Change) bool { return c.Version == r.Version })
		if i < 0 {
			return fmt.Errorf("%s, entity %s: version %d is no change", service, r.Entity, r.Version)
		}
		if err := same(want[service][r.Entity][i], r); err != nil {
			return fmt.Errorf("%s, entity %s: %w", service, r.Entity, err)
		}
		if old, ok := keys[r.Key]; ok && (old.Entity != r.Entity || old.Version != r.Version || string(old.Doc) != string(r.Doc)) {
			return fmt.Errorf("%s: key %s has two contents", service, r.Key)
		}
		keys[r.Key] = r
	}
	return nil
}

// Newest is the state of a receiver that follows versions.
func Newest(records []Record) map[string]Record {
	state := map[string]Record{}
	for _, r := range records {
		if old, ok := state[r.Entity]; !ok || r.Version > old.Version {
			state[r.Entity] = r
		}
	}
	return state
}

func same(w Change, g Record) error {
	if g.Version != w.Version || g.Op != w.Op {
		return fmt.Errorf("%s %d, want %s", g.Op, g.Version, show(w))
	}
	if w.Op == "retract" {
		return nil
	}
	doc, err := Decode(g.Doc)
	if err != nil {
		return fmt.Errorf("version %d: document: %w", g.Version, err)
	}
	if !Equal(doc, w.Doc) {
		return fmt.Errorf("version %d: %s, want %s", g.Version, Text(doc), Text(w.Doc))
	}
	return nil
}

func show(c Change) string { return fmt.Sprintf("%s %d %s", c.Op, c.Version, Text(c.Doc)) }

func entities[A, B any](a map[string]A, b map[string]B) []string {
	all := map[string]bool{}
	for id := range a {
		all[id] = true
	}
	for id := range b {
		all[id] = true
	}
	return slices.Sorted(maps.Keys(all))
}
