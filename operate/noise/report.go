package noise

import (
	"maps"
	"slices"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/internal/sketch"
	"github.com/seed-86dfc502/weir/projections"
)

// Source describes a configured source.
type Source struct {
	Name  string
	Strip []string           // its rules, as they are
	Mount canonicaltree.Path // where its document stands in the merged one
}

// Report is about one source.
type Report struct {
	Source string `json:"source"`
	// Events that were decided, without repetitions, stale ones and dead letters.
	Events int64 `json:"events"`
	// Noise changed nothing: it ended before any projection was looked at.
	Noise int64 `json:"noise"`
	// Suppressed changed something, and no service got anything by it. Where many
	// events come, this and all below is estimated from samples.
	Suppressed int64 `json:"suppressed"`
	// Wide are suppressed events that changed too many fields to tell which.
	Wide int64 `json:"wide,omitempty"`
	// Causes are the sets of fields that only together caused suppressed events,
	// the most frequent first.
	Causes []Cause `json:"causes"`
	// Strip is the list of rules for the source: those that it has, and those that
	// are offered. Nil when none is.
	Strip []string `json:"strip,omitempty"`
	// Offered are the new rules alone.
	Offered []string `json:"offered,omitempty"`
	// Saved is what these rules would have saved.
	Saved Saved `json:"saved"`
}

// Cause is a set of fields.
type Cause struct {
	Fields []Field `json:"fields"`
	// Events is at least how many events changed these and no others, and led to
	// no send; Share is that of the source's events, 0 to 1.
	Events int64   `json:"events"`
	Share  float64 `json:"share"`
	// Projections were evaluated for them, in vain.
	Projections int64 `json:"projections"`
	// Example is a path that one of them changed, for Entity.
	Example string `json:"example"`
	Entity  string `json:"entity"`
	// Strippable: no projection reads any of the fields.
	Strippable bool `json:"strippable"`
}

// Field is a path of a source's document.
type Field struct {
	Pattern string `json:"pattern"` // as a strip rule; empty for the whole document
	// ReadBy are the projections that can read there, with what reads it:
	// customer/projection (field). None means that it can be stripped.
	ReadBy []string `json:"read_by,omitempty"`
}

// Saved is what rules would have saved.
type Saved struct {
	// Events that would have been noise: no merge, no search for what changed.
	Events int64   `json:"events"`
	Share  float64 `json:"share"` // of the source's events, 0 to 1
	// Projections that would not have been evaluated.
	Projections int64 `json:"projections"`
}

// minShare is the share of a source's events below which no rule is offered, so that the
// list stays short.
const minShare = 0.001

// Make holds a summary against a configuration. The reports come in the order of
// sources, those of sources without events being empty.
func Make(summary sketch.Summary, sources []Source, views []*projections.Projection) []Report {
	reads := readersOf(views)
	reports := make([]Report, len(sources))
	for i, source := range sources {
		s := summary[source.Name]
		if s == nil {
			s = &sketch.Sketch{}
		}
		reports[i] = report(s, source, reads)
	}
	return reports
}

func report(s *sketch.Sketch, source Source, reads []reader) Report {
	r := Report{Source: source.Name, Events: s.Events, Noise: s.Noise, Suppressed: s.Suppressed, Wide: s.Wide, Causes: []Cause{}}
	share := func(n int64) float64 {
		if r.Events == 0 {
			return 0
		}
		return min(1, float64(n)/float64(r.Events))
	}
	sets := slices.DeleteFunc(s.Sets(), func(set sketch.Set) bool { return set.Least() <= 0 })
	slices.SortStableFunc(sets, func(a, b sketch.Set) int { return int(b.Least() - a.Least()) })
	var rules []sketch.Path
	for _, set := range sets {
		c := Cause{
			Events: set.Least(), Share: share(set.Least()), Projections: set.Projections,
			Example: set.Example, Entity: set.Entity, Strippable: true,
		}
		for _, p := range set.Paths {
			f := Field{Pattern: p.Pattern(), ReadBy: readBy(p, source.Mount, reads)}
			c.Strippable = c.Strippable && len(p) > 0 && len(f.ReadBy) == 0
			c.Fields = append(c.Fields, f)
		}
		c.Strippable = c.Strippable && len(c.Fields) > 0
		r.Causes = append(r.Causes, c)
		if c.Strippable && c.Share >= minShare {
			rules = append(rules, set.Paths...)
		}
	}
	rules = shortest(rules)
	for _, set := range sets {
		if len(set.Paths) > 0 && !slices.ContainsFunc(set.Paths, func(p sketch.Path) bool { return !covered(p, rules) }) {
			r.Saved.Events += set.Least()
			r.Saved.Projections += set.Projections
		}
	}
	r.Saved.Share = share(r.Saved.Events)
	for _, p := range rules {
		if pattern := p.Pattern(); !slices.Contains(source.Strip, pattern) {
			r.Offered = append(r.Offered, pattern)
		}
	}
	if r.Offered != nil {
		r.Strip = slices.Concat(source.Strip, r.Offered)
	}
	return r
}

// shortest leaves out paths below others.
func shortest(paths []sketch.Path) []sketch.Path {
	unique := map[string]sketch.Path{}
	for _, p := range paths {
		unique[p.Pattern()] = p
	}
	var out []sketch.Path
	for _, pattern := range slices.Sorted(maps.Keys(unique)) {
		p := unique[pattern]
		below := false
		for other, q := range unique {
			below = below || other != pattern && q.Covers(p)
		}
		if !below {
			out = append(out, p)
		}
	}
	return out
}

func covered(p sketch.Path, rules []sketch.Path) bool {
	return slices.ContainsFunc(rules, func(rule sketch.Path) bool { return rule.Covers(p) })
}

// reader is something that reads a path of the merged document.
type reader struct {
	name string
	path canonicaltree.Path
}

func readersOf(views []*projections.Projection) (all []reader) {
	for _, v := range views {
		name := v.Spec().Customer + "/" + v.Spec().Name
		for what, path := range v.Reads() {
			all = append(all, reader{name + " (" + what + ")", slices.Clone(path)})
		}
	}
	return all
}

// readBy names what can read at a path of a source that is mounted somewhere.
func readBy(p sketch.Path, mount canonicaltree.Path, reads []reader) (names []string) {
	whole := append(sketch.Path(slices.Clone(mount)), p...)
	for _, r := range reads {
		if whole.Meets(r.path) && !slices.Contains(names, r.name) {
			names = append(names, r.name)
		}
	}
	return names
}
