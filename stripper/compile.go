package stripper

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// version goes into the fingerprint: it changes when the same patterns begin to
// mean something else.
const version = 1

// Rules is a compiled list of patterns. The zero value and nil strip nothing.
type Rules struct {
	patterns []string
	root     []*state // where matching starts, nil without patterns
}

// state is a position in the patterns: all that begin with the same parts share
// it. It holds the steps to the next states.
type state struct {
	names   map[string]*state // a member of that name
	numbers map[string]*state // a member of that name or the element of that index
	any     *state            // any one member or element
	deep    *state            // any number of steps, entered without one
	loops   bool              // this state is behind "**": it also stays
	accepts bool              // a member that leads here is removed
}

// Fault is an error of one pattern.
type Fault struct {
	Index   int    // of the pattern in the list given to Compile
	Pattern string // as given
	Msg     string // what is wrong
	Want    string // what would be right
}

// CompileError lists every bad pattern. Find it with errors.As.
type CompileError struct {
	Faults []Fault
}

// Error returns one line for each fault.
func (e *CompileError) Error() string {
	lines := make([]string, len(e.Faults))
	for i, f := range e.Faults {
		lines[i] = fmt.Sprintf("strip pattern %d (%q): %s; %s", f.Index, f.Pattern, f.Msg, f.Want)
	}
	return strings.Join(lines, "\n")
}

// Compile reads patterns as the package documentation defines them. The error
// is a *[CompileError] with all bad ones. A pattern that occurs twice, or below
// another, does no harm.
func Compile(patterns []string) (*Rules, error) {
	var faults []Fault
	root := &state{}
	for i, pattern := range patterns {
		steps, fault := parse(pattern)
		if fault != nil {
			fault.Index, fault.Pattern = i, pattern
			faults = append(faults, *fault)
			continue
		}
		root.add(steps)
	}
	if len(faults) > 0 {
		return nil, &CompileError{Faults: faults}
	}
	r := &Rules{patterns: append([]string(nil), patterns...)}
	if len(patterns) > 0 {
		r.root = enter(nil, root)
	}
	return r, nil
}

// Empty reports whether there is nothing to strip.
func (r *Rules) Empty() bool { return r == nil || len(r.root) == 0 }

// Fingerprint writes everything that Strip depends on besides the document, in
// a form that no other rules share. w is to be a hash.Hash: errors of
// writing are ignored.
func (r *Rules) Fingerprint(w io.Writer) {
	var patterns []string
	if r != nil {
		patterns = r.patterns
	}
	fmt.Fprintf(w, "strip/%d %d\n", version, len(patterns))
	for _, p := range patterns {
		fmt.Fprintf(w, "%q\n", p)
	}
}

type stepKind uint8

const (
	stepName stepKind = iota
	stepNumber
	stepAny
	stepDeep
)

type step struct {
	kind stepKind
	text string
}

func (s *state) add(steps []step) {
	for _, st := range steps {
		switch st.kind {
		case stepName:
			s = child(&s.names, st.text)
		case stepNumber:
			s = child(&s.numbers, st.text)
		case stepAny:
			if s.any == nil {
				s.any = &state{}
			}
			s = s.any
		case stepDeep:
			if s.loops {
				continue // "**.**" is "**"
			}
			if s.deep == nil {
				s.deep = &state{loops: true}
			}
			s = s.deep
		}
	}
	s.accepts = true
}

func child(m *map[string]*state, key string) *state {
	if *m == nil {
		*m = make(map[string]*state)
	}
	next := (*m)[key]
	if next == nil {
		next = &state{}
		(*m)[key] = next
	}
	return next
}

func parse(pattern string) ([]step, *Fault) {
	if pattern == "" {
		return nil, &Fault{Msg: "is empty", Want: "name a member, such as updated_at"}
	}
	if !utf8.ValidString(pattern) {
		return nil, &Fault{Msg: "is not valid UTF-8", Want: "write it in UTF-8: no other member can be there"}
	}
	var steps []step
	var text []byte
	escaped, stars := false, 0
	for i := 0; i <= len(pattern); i++ {
		if i < len(pattern) && pattern[i] != '.' {
			switch c := pattern[i]; c {
			case '\\':
				i++
				if i == len(pattern) {
					return nil, &Fault{Msg: "ends in a single backslash", Want: `write \\ for a backslash in a name`}
				}
				escaped = true
				text = append(text, pattern[i])
			case '*':
				stars++
				text = append(text, c)
			default:
				text = append(text, c)
			}
			continue
		}
		st, fault := toStep(string(text), escaped, stars)
		if fault != nil {
			return nil, fault
		}
		steps = append(steps, st)
		text, escaped, stars = text[:0], false, 0
	}
	switch last := steps[len(steps)-1]; last.kind {
	case stepNumber:
		return nil, &Fault{
			Msg:  "would remove an element of an array",
			Want: fmt.Sprintf(`name a member of the element (….%s.seen_at), or escape the number if it is the name of a member (\%s)`, last.text, last.text),
		}
	case stepDeep:
		return nil, &Fault{Msg: "ends in **", Want: "name the member to remove at any depth, such as **.trace_id"}
	}
	return steps, nil
}

func toStep(text string, escaped bool, stars int) (step, *Fault) {
	switch {
	case text == "":
		return step{}, &Fault{Msg: "has an empty part", Want: `put one dot between parts, and write \. for a dot in a name`}
	case stars > 0 && (escaped || stars < len(text) || stars > 2):
		return step{}, &Fault{Msg: "has a star inside a name", Want: `a part is *, ** or a whole name; write \* for a star in a name`}
	case stars == 1:
		return step{kind: stepAny}, nil
	case stars == 2:
		return step{kind: stepDeep}, nil
	case escaped || !digits(text):
		return step{kind: stepName, text: text}, nil
	}
	if n, err := strconv.Atoi(text); err != nil || strconv.Itoa(n) != text {
		return step{}, &Fault{Msg: "has an index that is not written plainly", Want: fmt.Sprintf(`drop leading zeros, or write \%s for a member of that name`, text)}
	}
	return step{kind: stepNumber, text: text}, nil
}

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}
