package noise

import (
	"cmp"
	"maps"
	"slices"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/internal/fieldcount"
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
	// Suppressed counts the events that changed a document and no service's content. For a
	// source with many events, this and all fields below are estimated from samples.
	Suppressed int64 `json:"suppressed"`
	// Other are suppressed events that changed fields beyond those that are counted.
	Other int64 `json:"other,omitempty"`
	// Fields are the fields that suppressed events changed, the most frequent first.
	Fields []Field `json:"fields"`
	// Strip is the list of rules for the source: those that it has, and those that
	// are offered. Nil when none is.
	Strip []string `json:"strip,omitempty"`
	// Offered are the new rules alone.
	Offered []string `json:"offered,omitempty"`
	// Saved is at least how many events would have been noise under these rules, SavedShare
	// their share of the source's events, 0 to 1.
	Saved      int64   `json:"saved"`
	SavedShare float64 `json:"saved_share"`
}

// Field is a path of a source's document.
type Field struct {
	Pattern string `json:"pattern"` // as a strip rule; empty for the whole document
	// Events are the suppressed events that changed it. Share is their share of the source's
	// events, 0 to 1. Saves are the events that would be noise without the fields that no
	// projection reads.
	Events int64   `json:"events"`
	Share  float64 `json:"share"`
	Saves  int64   `json:"saves"`
	// Projections were evaluated for these events, in vain.
	Projections int64 `json:"projections"`
	// Example is the path that one of them changed, for Entity.
	Example string `json:"example"`
	Entity  string `json:"entity"`
	// ReadBy are the projections that can read at the path, with the reading field:
	// customer/projection (field). If empty, the path can be stripped.
	ReadBy []string `json:"read_by,omitempty"`
	// Strippable: no projection reads it, and a rule can name it.
	Strippable bool `json:"strippable"`
}

// minShare is the share of a source's events below which no rule is offered, so that the
// list stays short.
const minShare = 0.001

// Make holds a summary against a configuration. The reports come in the order of
// sources, those of sources without events being empty.
func Make(summary fieldcount.Summary, sources []Source, views []*projections.Projection) []Report {
	reads := readersOf(views)
	reports := make([]Report, len(sources))
	for i, source := range sources {
		s := summary[source.Name]
		if s == nil {
			s = &fieldcount.Counts{}
		}
		reports[i] = report(s, source, reads)
	}
	return reports
}

func report(c *fieldcount.Counts, source Source, reads []reader) Report {
	r := Report{Source: source.Name, Events: c.Events, Noise: c.Noise, Suppressed: c.Suppressed, Other: c.Other.Events, Fields: []Field{}}
	share := func(n int64) float64 {
		if r.Events == 0 {
			return 0
		}
		return min(1, float64(n)/float64(r.Events))
	}
	counted := slices.Clone(c.Fields)
	slices.SortFunc(counted, func(a, b *fieldcount.Field) int {
		return cmp.Or(cmp.Compare(b.Events, a.Events), slices.Compare(a.Path, b.Path))
	})
	var rules []fieldcount.Path
	for _, f := range counted {
		p := f.Path.Trim()
		readers := readBy(f.Path, source.Mount, reads)
		strippable := len(p) > 0 && len(readers) == 0
		r.Fields = append(r.Fields, Field{
			Pattern: p.Pattern(), Events: f.Events, Share: share(f.Events), Saves: f.Saves, Projections: f.Projections,
			Example: f.Example, Entity: f.Entity, ReadBy: readers, Strippable: strippable,
		})
		if strippable && share(f.Saves) >= minShare {
			rules = append(rules, p)
		}
	}
	rules = shortest(rules)
	for _, p := range rules {
		if pattern := p.Pattern(); !slices.Contains(source.Strip, pattern) {
			r.Offered = append(r.Offered, pattern)
		}
	}
	if r.Offered == nil {
		return r
	}
	r.Strip = slices.Concat(source.Strip, r.Offered)
	// An event that changed nothing that is read is not saved if it changed a field that no rule
	// covers: at most the sum of these.
	r.Saved = c.Unread - c.Other.Saves
	for _, f := range counted {
		if !slices.ContainsFunc(rules, func(rule fieldcount.Path) bool { return rule.Covers(f.Path) }) {
			r.Saved -= f.Saves
		}
	}
	r.Saved = max(0, r.Saved)
	r.SavedShare = share(r.Saved)
	return r
}

// shortest leaves out paths below others.
func shortest(paths []fieldcount.Path) []fieldcount.Path {
	unique := map[string]fieldcount.Path{}
	for _, p := range paths {
		unique[p.Pattern()] = p
	}
	var out []fieldcount.Path
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

// readBy names the fields and filters that can read at a path of a source with that mount.
func readBy(p fieldcount.Path, mount canonicaltree.Path, reads []reader) (names []string) {
	whole := append(fieldcount.Path(slices.Clone(mount)), p...)
	for _, r := range reads {
		if whole.Meets(r.path) && !slices.Contains(names, r.name) {
			names = append(names, r.name)
		}
	}
	return names
}
