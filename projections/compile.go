package projections

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/seed-86dfc502/weir/canonicaltree"
)

// Projection is a compiled Spec. It is immutable: any number of goroutines may
// use it.
type Projection struct {
	spec    Spec
	filter  *filter
	outputs []*output
	sorted  []*output // the same by name, the order of the encoding
	reads   []read    // of the compared fields, and of the filter
	carries []read    // of carried fields
	same    bool      // a field has rules of sameness
	paths   [][]step  // that fields and filter read of the document, up to a hash
}

// output is a member of an output object: either a field, or a group of them
// that share the beginning of their output paths.
type output struct {
	name  string
	key   []byte // the name as JSON, with a colon
	bytes []byte // the name
	field *field
	group []*output
	// sorted is group by name.
	sorted []*output
}

type field struct {
	out      string // as written, for errors
	path     path
	expr     *expression        // nil unless it is computed, without a path
	constant canonicaltree.Node // exists for a constant, which has no path
	fallback canonicaltree.Node // exists if there is a default
	each     []*output          // of each element; nil if it is not mapped
	sorted   []*output          // each by name
	carried  bool               // sent and not compared
	same     *Same              // nil compares values as they are
}

// Compile checks spec and returns its Projection. The error is a *[CompileError]
// with all faults. spec must not be changed afterwards.
func Compile(spec Spec) (*Projection, error) {
	c := compiler{secrets: spec.Secrets}
	p := &Projection{spec: spec}
	root := &output{}
	c.fields(root, spec.Fields, nil)
	c.carried = true
	c.fields(root, spec.Carry, nil)
	c.carried = false
	p.outputs, p.same = root.group, c.same
	p.sorted = byName(p.outputs)
	if len(spec.Fields) == 0 {
		c.fault(Fault{Part: "fields", Msg: "there is none", Want: "name at least one field to send"})
	}
	if spec.Numbers != canonicaltree.Literal && spec.Numbers != canonicaltree.Decimal {
		c.fault(Fault{Part: "numbers", Msg: "is unknown", Want: "use literal or decimal"})
	}
	if spec.When != "" {
		var faults []Fault
		p.filter, faults = compileFilter(spec.When, spec.Secrets)
		c.faults = append(c.faults, faults...)
	}
	if len(c.faults) > 0 {
		return nil, &CompileError{spec.Customer, spec.Name, c.faults}
	}
	r := reads{}
	r.of(p.outputs, "", canonicaltree.Path{})
	p.reads, p.carries = r.compared, r.carried
	p.number(p.outputs)
	if p.filter != nil {
		for i := range p.filter.slots {
			p.reads = append(p.reads, read{"when", prefix(p.filter.slots[i].steps)})
		}
		p.numberSlots(p.filter.expression)
		if p.filter.required != nil {
			p.filter.required.number = p.add(p.filter.required.steps)
		}
	}
	return p, nil
}

// number numbers the paths of fields that are read of the document itself.
func (p *Projection) number(outputs []*output) {
	for _, o := range outputs {
		f := o.field
		if f == nil {
			p.number(o.group)
			continue
		}
		if !f.constant.Exists() && f.expr == nil {
			f.path.number = p.add(f.path.steps[:f.path.fixed])
		}
		p.numberExpressions(o)
	}
}

// numberExpressions numbers the paths that the computed fields of o read of the document.
func (p *Projection) numberExpressions(o *output) {
	for _, below := range o.group {
		p.numberExpressions(below)
	}
	if o.field == nil {
		return
	}
	if o.field.expr != nil {
		p.numberSlots(o.field.expr)
	}
	for _, inner := range o.field.each {
		p.numberExpressions(inner)
	}
}

func (p *Projection) numberSlots(e *expression) {
	for i := range e.slots {
		if s := &e.slots[i]; !s.item {
			s.number = p.add(s.steps)
		}
	}
}

func (p *Projection) add(steps []step) int {
	p.paths = append(p.paths, steps)
	return len(p.paths) - 1
}

// Numbers says when two outputs of the projection are the same.
func (p *Projection) Numbers() canonicaltree.Numbers { return p.spec.Numbers }

// Spec returns the source of the projection. It must not be changed.
func (p *Projection) Spec() Spec { return p.spec }

type compiler struct {
	faults  []Fault
	secrets map[string][]byte
	carried bool // the fields are
	same    bool // a field has rules of sameness
}

func (c *compiler) fault(f Fault) { c.faults = append(c.faults, f) }

// fields compiles the fields of one object into root. At are the indexes of the fields that they
// are inside of.
func (c *compiler) fields(root *output, fields []Field, at []int) {
	for i, f := range fields {
		here := append(append([]int(nil), at...), i)
		fault := func(part, msg, want string) {
			c.fault(Fault{Part: part, Field: here, Carried: c.carried, Out: f.Out, Msg: msg, Want: want})
		}
		compiled := c.field(f, here, fault)
		names, fault1 := parseOut(f.Out)
		if fault1 != nil {
			fault("out", fault1.msg, fault1.want)
			continue
		}
		if !root.place(names, compiled) {
			fault("out", "has the place of another field, or is inside it", "give every field a place of its own")
		}
	}
}

func (c *compiler) field(f Field, here []int, fault func(part, msg, want string)) *field {
	compiled := &field{out: f.Out, carried: c.carried, same: c.sameness(f, fault)}
	parse := func(part string, text []byte) canonicaltree.Node {
		tree, err := canonicaltree.Parse(append([]byte(nil), text...))
		if err != nil {
			fault(part, "is not JSON: "+err.Error(), "write one JSON value")
			return canonicaltree.Node{}
		}
		return tree.Root()
	}
	if f.Default != nil {
		compiled.fallback = parse("default", f.Default)
	}
	if f.Const != nil {
		compiled.constant = parse("const", f.Const)
		switch {
		case f.Path != "":
			fault("const", "is set together with a path", "keep one of them")
		case f.Expr != "":
			fault("const", "is set together with an expression", "keep one of them")
		case f.Default != nil:
			fault("const", "is set together with a default", "drop the default, which is never used")
		case f.Each != nil:
			fault("const", "is set together with an array mapping", "keep one of them")
		}
		return compiled
	}
	inside := func(faults ...Fault) {
		for _, of := range faults {
			of.Field, of.Carried, of.Out = here, c.carried, f.Out
			c.fault(of)
		}
	}
	if f.Expr != "" {
		if f.Path != "" {
			fault("expr", "is set together with a path", "keep one of them")
		}
		var faults []Fault
		compiled.expr, _, faults = compileExpression(f.Expr, dialect{item: len(here) > 1, secrets: c.secrets})
		for i := range faults {
			faults[i].Part = "expr"
		}
		inside(faults...)
	} else {
		p, bad := parsePath(f.Path)
		if bad != nil {
			inside(Fault{Part: "path", Line: 1, Column: 1 + utf8.RuneCountInString(f.Path[:min(bad.at, len(f.Path))]), Msg: bad.msg, Want: bad.want})
		}
		if p.fixed = slices.IndexFunc(p.steps, func(s step) bool { return s.hash }); p.fixed < 0 {
			p.fixed = len(p.steps)
		}
		compiled.path = p
	}
	if f.Each != nil {
		if len(f.Each) == 0 {
			fault("each", "has no fields", "name at least one field of the element")
		}
		root := &output{}
		c.fields(root, f.Each, here)
		compiled.each = root.group
		compiled.sorted = byName(compiled.each)
	}
	return compiled
}

// byName returns the compared outputs, and those of their groups, in the byte order of their
// names.
func byName(outputs []*output) []*output {
	sorted := slices.SortedFunc(slices.Values(outputs), func(a, b *output) int { return strings.Compare(a.name, b.name) })
	sorted = slices.DeleteFunc(sorted, func(o *output) bool { return o.field != nil && o.field.carried })
	for _, o := range sorted {
		o.sorted = byName(o.group)
	}
	return sorted
}

// place puts a field at the output path names, and creates the groups above it. It reports
// whether the place was free.
func (o *output) place(names []string, f *field) bool {
	var next *output
	for _, m := range o.group {
		if m.name == names[0] {
			next = m
		}
	}
	last := len(names) == 1
	switch {
	case next == nil:
		next = &output{name: names[0], bytes: []byte(names[0]), key: append(canonicaltree.AppendString(nil, names[0]), ':')}
		o.group = append(o.group, next)
	case last || next.field != nil:
		return false
	}
	if last {
		next.field = f
		return true
	}
	return next.place(names[1:], f)
}

// parseOut splits an output path into names.
func parseOut(out string) ([]string, *pathFault) {
	if !utf8.ValidString(out) {
		return nil, &pathFault{0, "is not valid UTF-8", "write it in UTF-8"}
	}
	var names []string
	var name strings.Builder
	for i := 0; i <= len(out); i++ {
		switch {
		case i == len(out) || out[i] == '.':
			if name.Len() == 0 {
				return nil, &pathFault{i, "has an empty name", `put one dot between names; write \. for a dot in a name`}
			}
			names = append(names, name.String())
			name.Reset()
		case out[i] == '\\':
			i++
			if i == len(out) || out[i] != '.' && out[i] != '\\' {
				return nil, &pathFault{i, "has a backslash that escapes nothing", `write \. for a dot and \\ for a backslash`}
			}
			name.WriteByte(out[i])
		default:
			name.WriteByte(out[i])
		}
	}
	return names, nil
}

// key returns a step as an element of a read-set's path. A hash has the name Elements.
func (s step) key() string {
	if s.index >= 0 {
		return strconv.Itoa(s.index)
	}
	return s.name
}
