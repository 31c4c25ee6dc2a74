package sketch

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
)

const (
	// MaxSets is how many sets of paths are kept per source.
	MaxSets = 256
	// MaxPaths is the most paths in a set; events that changed more are counted
	// as one kind.
	MaxPaths = 8
)

// Observation is one event that changed something and led to no send.
type Observation struct {
	Entity string
	// Paths that it changed, as Locate returns them; more than MaxPaths are not kept.
	Paths []Path
	// Example is one of them as it was, with its indexes.
	Example string
	// Weight is how many events it represents.
	Weight int64
	// Projections that were evaluated for it, in vain.
	Projections int64
}

// Set is a set of paths and the events that changed them and nothing else.
type Set struct {
	Paths []Path `json:"paths"`
	// Count is how many events, at most; Error is how much of it may be wrong.
	Count int64 `json:"count"`
	Error int64 `json:"error,omitempty"`
	// Projections that were evaluated for them, in vain.
	Projections int64  `json:"projections,omitempty"`
	Entity      string `json:"entity"`  // of one such event
	Example     string `json:"example"` // a path that it changed
}

// Least is how many events it certainly was, but for sampling.
func (s *Set) Least() int64 { return s.Count - s.Error }

// Sketch is about one source. The zero value is empty. Not for concurrent use.
type Sketch struct {
	// Events that were decided, without stale ones and dead letters; Noise are
	// those of them that changed nothing.
	Events, Noise int64
	// Suppressed changed something and led to no send; Wide are those of them
	// that changed more than MaxPaths paths.
	Suppressed, Wide int64

	sets map[string]*Set
	root names
	size int // of root
}

// Add counts an observation.
func (s *Sketch) Add(o Observation) {
	s.Suppressed += o.Weight
	if len(o.Paths) > MaxPaths {
		s.Wide += o.Weight
		return
	}
	s.learn(o.Paths)
	s.store(Set{Paths: s.general(o.Paths), Count: o.Weight, Projections: o.Projections * o.Weight, Entity: o.Entity, Example: o.Example})
}

// learn makes the names of paths known, and brings all sets into the form that
// this returns them.
func (s *Sketch) learn(paths []Path) {
	folded := false
	for _, p := range paths {
		_, f := s.add(p)
		folded = folded || f
	}
	if !folded {
		return
	}
	before := s.Sets()
	s.sets = nil
	for _, set := range before {
		set.Paths = s.general(set.Paths)
		s.store(set)
	}
}

// general returns paths, whose names are known, in the form that they have now: in
// order, none twice, none below another.
func (s *Sketch) general(paths []Path) []Path {
	all := make([]Path, len(paths))
	for i, p := range paths {
		all[i], _ = s.add(p)
	}
	slices.SortFunc(all, func(a, b Path) int { return slices.Compare(a, b) })
	out := all[:0]
	for _, p := range all {
		if !slices.ContainsFunc(out, func(q Path) bool { return q.Covers(p) }) {
			out = append(out, p)
		}
	}
	return out
}

// store adds a set to the same one, or takes the smallest counter over for it.
func (s *Sketch) store(set Set) {
	if s.sets == nil {
		s.sets = map[string]*Set{}
	}
	key := keyOf(set.Paths)
	if have := s.sets[key]; have != nil {
		have.Count, have.Error, have.Projections = have.Count+set.Count, have.Error+set.Error, have.Projections+set.Projections
		return
	}
	if len(s.sets) >= MaxSets {
		smallest, least := "", int64(-1)
		for k, other := range s.sets {
			if least < 0 || other.Count < least || other.Count == least && k < smallest {
				smallest, least = k, other.Count
			}
		}
		delete(s.sets, smallest)
		set.Count, set.Error = set.Count+least, set.Error+least
	}
	s.sets[key] = &set
}

// floor is the lowest count of a set that is not kept.
func (s *Sketch) floor() int64 {
	if len(s.sets) < MaxSets {
		return 0
	}
	least := int64(-1)
	for _, set := range s.sets {
		if least < 0 || set.Count < least {
			least = set.Count
		}
	}
	return least
}

// Merge adds another sketch, which stays as it is.
func (s *Sketch) Merge(other *Sketch) {
	s.Events += other.Events
	s.Noise += other.Noise
	s.Suppressed += other.Suppressed
	s.Wide += other.Wide
	mine, theirs := s.floor(), other.floor()
	added := other.Sets()
	for _, set := range added {
		s.learn(set.Paths)
	}
	all := map[string]*Set{}
	for _, set := range s.Sets() {
		set.Count, set.Error = set.Count+theirs, set.Error+theirs
		all[keyOf(set.Paths)] = &set
	}
	new := map[string]bool{} // those that only the other one has
	for _, set := range added {
		set.Paths = s.general(set.Paths)
		key := keyOf(set.Paths)
		have := all[key]
		switch {
		case have == nil:
			set.Count, set.Error = set.Count+mine, set.Error+mine
			all[key], new[key] = &set, true
			continue
		case !new[key] && s.sets[key] != nil:
			// Both have it: its count among the dropped is known now.
			have.Count, have.Error = have.Count-theirs, have.Error-theirs
			new[key] = true
		}
		have.Count, have.Error, have.Projections = have.Count+set.Count, have.Error+set.Error, have.Projections+set.Projections
	}
	s.sets = all
	if sorted := s.Sets(); len(sorted) > MaxSets {
		s.sets = nil
		for _, set := range sorted[:MaxSets] {
			s.store(set)
		}
	}
}

// Sets returns all sets, those with the highest counts first.
func (s *Sketch) Sets() []Set {
	all := make([]Set, 0, len(s.sets))
	for _, set := range s.sets {
		c := *set
		c.Paths = slices.Clone(set.Paths)
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b Set) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(keyOf(a.Paths), keyOf(b.Paths)))
	})
	return all
}

// keyOf is the key of a set: no two sets have the same one.
func keyOf(paths []Path) string {
	var b strings.Builder
	for _, p := range paths {
		for _, name := range p {
			b.WriteString(strings.ReplaceAll(name, "\x00", "\x00\x01"))
			b.WriteString("\x00\x02")
		}
		b.WriteString("\x00\x03")
	}
	return b.String()
}

type stored struct {
	Events     int64 `json:"events"`
	Noise      int64 `json:"noise"`
	Suppressed int64 `json:"suppressed"`
	Wide       int64 `json:"wide,omitempty"`
	Sets       []Set `json:"sets"`
}

// MarshalJSON returns the form that is stored.
func (s *Sketch) MarshalJSON() ([]byte, error) {
	return json.Marshal(stored{s.Events, s.Noise, s.Suppressed, s.Wide, s.Sets()})
}

// UnmarshalJSON reads it.
func (s *Sketch) UnmarshalJSON(text []byte) error {
	var in stored
	if err := json.Unmarshal(text, &in); err != nil {
		return err
	}
	*s = Sketch{Events: in.Events, Noise: in.Noise, Suppressed: in.Suppressed, Wide: in.Wide}
	for _, set := range in.Sets {
		s.learn(set.Paths)
		set.Paths = s.general(set.Paths)
		s.store(set)
	}
	return nil
}
