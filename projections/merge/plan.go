package merge

import (
	"fmt"
	"io"
	"iter"
	"slices"

	"github.com/seed-86dfc502/weir/canonicaltree"
)

// version goes into the fingerprint: it changes when the same Spec begins to
// mean something else.
const version = 1

// Source is one source of an entity's documents.
type Source struct {
	Name string
	// Patch says that an event is a JSON merge patch (RFC 7396) on the stored
	// document, on an empty object if there is none; else it is the whole new document.
	Patch bool
	// MaxBytes bounds the document that patches make, each of which may be small; 0
	// is no bound.
	MaxBytes int
	// Mount is the place of the document in the merged one, as names of members.
	// Empty means the root.
	Mount canonicaltree.Path
}

// Spec says how the documents of an entity are merged.
type Spec struct {
	Sources []Source
	// Precedence lists sources, the one that wins first. Sources that it does not
	// list come after, in the order of Sources.
	Precedence []string
	// Required lists the sources that must have a document before the merged one
	// is complete.
	Required []string
}

// Plan is a compiled Spec.
type Plan struct {
	sources  map[string]Source
	order    []Source // by precedence, the one that wins first
	required []string
}

// Compile returns the Plan of a spec that package config found nothing wrong with.
func Compile(spec Spec) *Plan {
	p := &Plan{sources: make(map[string]Source, len(spec.Sources)), order: slices.Clone(spec.Sources), required: slices.Clone(spec.Required)}
	for _, s := range spec.Sources {
		p.sources[s.Name] = s
	}
	rank := func(s Source) int {
		if i := slices.Index(spec.Precedence, s.Name); i >= 0 {
			return i
		}
		return len(spec.Precedence)
	}
	slices.SortStableFunc(p.order, func(a, b Source) int { return rank(a) - rank(b) })
	return p
}

// Mounts yields the sources with their places in the merged document.
func (p *Plan) Mounts() iter.Seq2[string, canonicaltree.Path] {
	return func(yield func(string, canonicaltree.Path) bool) {
		for _, s := range p.order {
			if !yield(s.Name, s.Mount) {
				return
			}
		}
	}
}

// Fingerprint writes everything that NextNode and Compose depend on besides the
// documents and limits, in a form that no other plan shares: sources by precedence,
// with mode and mount, and the required ones. w is to be a hash.Hash:
// errors of writing are ignored.
func (p *Plan) Fingerprint(w io.Writer) {
	fmt.Fprintf(w, "merge/%d %d\n", version, len(p.order))
	for _, s := range p.order {
		mode := "replace"
		if s.Patch {
			mode = "patch"
		}
		fmt.Fprintf(w, "%q %s %q\n", s.Name, mode, []string(s.Mount))
	}
	required := slices.Sorted(slices.Values(p.required))
	fmt.Fprintf(w, "required %q\n", required)
}
