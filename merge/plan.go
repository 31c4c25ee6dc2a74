package merge

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/seed-86dfc502/weir/canonicaltree"
)

// version goes into the fingerprint: it changes when the same Spec begins to
// mean something else.
const version = 1

// Mode says what the events of a source carry.
type Mode int

const (
	// Replace: an event is the whole new document.
	Replace Mode = iota
	// Patch: an event is a JSON merge patch (RFC 7396) on the stored document,
	// on an empty object if there is none.
	Patch
)

// String returns the mode as it is written in a configuration.
func (m Mode) String() string {
	switch m {
	case Replace:
		return "replace"
	case Patch:
		return "patch"
	}
	return fmt.Sprintf("mode(%d)", int(m))
}

// Source is one source of an entity's documents.
type Source struct {
	Name string
	Mode Mode
	// MaxBytes bounds the document that patches make, each of which may be small; 0
	// is no bound.
	MaxBytes int
	// Mount is where the document stands in the merged one, as names of members.
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

// Fault is one thing that is wrong with a Spec.
type Fault struct {
	// Field is "sources", "precedence" or "required", Index the entry in it, -1
	// for the field as a whole.
	Field string
	Index int
	Msg   string // what is wrong
	Want  string // what would be right
}

// SpecError lists everything that is wrong with a Spec. Find it with errors.As.
type SpecError struct {
	Faults []Fault
}

// Error returns one line for each fault.
func (e *SpecError) Error() string {
	lines := make([]string, len(e.Faults))
	for i, f := range e.Faults {
		at := f.Field
		if f.Index >= 0 {
			at = fmt.Sprintf("%s[%d]", f.Field, f.Index)
		}
		lines[i] = fmt.Sprintf("merge %s: %s; %s", at, f.Msg, f.Want)
	}
	return strings.Join(lines, "\n")
}

// Compile checks spec and returns its Plan. The error is a *[SpecError] with all
// faults.
func Compile(spec Spec) (*Plan, error) {
	p := &Plan{sources: make(map[string]Source, len(spec.Sources))}
	var faults []Fault
	fault := func(field string, index int, msg, want string) {
		faults = append(faults, Fault{field, index, msg, want})
	}

	if len(spec.Sources) == 0 {
		fault("sources", -1, "there is none", "declare at least one source")
	}
	names := make([]string, len(spec.Sources))
	for i, s := range spec.Sources {
		names[i] = s.Name
		if s.Name == "" || !utf8.ValidString(s.Name) {
			fault("sources", i, "the name is empty or not valid UTF-8", "give the source a name")
			continue
		}
		if _, twice := p.sources[s.Name]; twice {
			fault("sources", i, fmt.Sprintf("%q is declared twice", s.Name), "give every source its own name")
		}
		if s.Mode != Replace && s.Mode != Patch {
			fault("sources", i, fmt.Sprintf("unknown %v", s.Mode), "use replace or patch")
		}
		for _, name := range s.Mount {
			if name == "" || !utf8.ValidString(name) {
				fault("sources", i, "the mount has an empty part or one that is not valid UTF-8", "name a member, such as lab or lab.results")
				break
			}
		}
		p.sources[s.Name] = s
	}
	known := func(field string, list []string) {
		seen := make(map[string]bool, len(list))
		for i, name := range list {
			if _, ok := p.sources[name]; !ok {
				fault(field, i, fmt.Sprintf("there is no source %q", name), "use one of "+strings.Join(names, ", "))
			} else if seen[name] {
				fault(field, i, fmt.Sprintf("%q is listed twice", name), "list it once")
			}
			seen[name] = true
		}
	}
	known("precedence", spec.Precedence)
	known("required", spec.Required)
	if len(faults) > 0 {
		return nil, &SpecError{Faults: faults}
	}

	for _, s := range spec.Sources {
		s.Mount = slices.Clone(s.Mount)
		p.order = append(p.order, s)
	}
	rank := func(s Source) int {
		if i := slices.Index(spec.Precedence, s.Name); i >= 0 {
			return i
		}
		return len(spec.Precedence) + slices.Index(names, s.Name)
	}
	slices.SortStableFunc(p.order, func(a, b Source) int { return rank(a) - rank(b) })
	p.required = slices.Clone(spec.Required)
	return p, nil
}

// Fingerprint writes everything that NextNode and Compose depend on besides the
// documents and limits, in a form that no other plan shares: sources by precedence,
// with mode and mount, and the required ones. w is to be a hash.Hash:
// errors of writing are ignored.
func (p *Plan) Fingerprint(w io.Writer) {
	fmt.Fprintf(w, "merge/%d %d\n", version, len(p.order))
	for _, s := range p.order {
		fmt.Fprintf(w, "%q %v %q\n", s.Name, s.Mode, []string(s.Mount))
	}
	required := slices.Sorted(slices.Values(p.required))
	fmt.Fprintf(w, "required %q\n", required)
}
