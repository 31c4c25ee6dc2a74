package config

import (
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/projections"
	"github.com/seed-86dfc502/weir/stripper"
)

// Compiled returns projection i as Load compiled it. It compiles one that was changed
// or added since.
func (c *Config) Compiled(i int) (*projections.Projection, error) {
	spec := c.Projections[i].Spec()
	if i < len(c.compiled) && c.compiled[i] != nil && reflect.DeepEqual(c.compiled[i].Spec(), spec) {
		return c.compiled[i], nil
	}
	compiled, err := projections.Compile(spec)
	if err != nil {
		return nil, fmt.Errorf("projection %s/%s: %w", spec.Customer, spec.Name, err)
	}
	return compiled, nil
}

// Spec returns the projection in the form that package projections compiles.
func (p *Projection) Spec() projections.Spec {
	customer, name, _ := strings.Cut(p.first(), "/")
	spec := projections.Spec{Customer: customer, Name: name, When: p.When,
		Fields: p.Fields.spec(), Carry: p.Carry.spec(), OmitEmpty: p.OmitEmpty, Numbers: canonicaltree.Literal}
	for name, secret := range p.Secrets {
		if spec.Secrets == nil {
			spec.Secrets = map[string][]byte{}
		}
		spec.Secrets[name] = hmacKey(secret)
	}
	if p.leaving {
		spec.When = "false"
	}
	if p.Numbers == Decimal {
		spec.Numbers = canonicaltree.Decimal
	}
	return spec
}

// leastKey is the shortest key of hmac, in bytes: a shorter one can be guessed from a few pseudonyms.
const leastKey = 16

// hmacKey returns a key without the line ends that variables often have at their end.
func hmacKey(secret Secret) []byte { return []byte(strings.TrimRight(secret.Reveal(), "\r\n")) }

func (f Fields) spec() []projections.Field {
	if f == nil {
		return nil
	}
	all := make([]projections.Field, len(f))
	for i, field := range f {
		all[i] = projections.Field{Out: field.Out, Path: field.Path, Expr: field.Expr,
			Const: field.Const, Default: field.Default, Each: field.Each.spec(), Same: field.Same.spec()}
	}
	return all
}

// projectionCheck finds the faults of one projection and its sinks.
type projectionCheck struct {
	l    *loader
	p    *Projection
	doc  *document // its file
	path string    // of the projection in it
}

func (l *loader) checkProjection(i int) {
	c := projectionCheck{l, &l.config.Projections[i], l.owner[i], member("projections", l.config.Projections[i].Name)}
	if l.config.compiled[i] == nil { // else it is a cached file's
		l.config.compiled[i] = c.content()
	}
	for j := range c.p.Deliver {
		c.delivery(&c.p.Deliver[j])
	}
}

// at returns the path of a key of the projection.
func (c projectionCheck) at(key string) string { return member(c.path, key) }

// content checks a projection without its sinks, and compiles it.
func (c projectionCheck) content() (compiled *projections.Projection) {
	checkName(c.doc, c.path, c.p.Name)
	spec := c.p.Spec()
	spec.When = c.p.When
	if c.doc.values[c.at("when")].unresolved {
		spec.When = ""
	}
	if len(c.p.Fields) > 0 {
		c.notations(c.p.Fields, c.at("fields"), true)
		c.notations(c.p.Carry, c.at("carry"), true)
		var err error
		compiled, err = projections.Compile(spec)
		var bad *projections.CompileError
		if errors.As(err, &bad) {
			for _, f := range bad.Faults {
				c.fault(f)
			}
		}
		c.reads()
	} else if c.doc.has(c.at("fields")) {
		c.doc.faultKey(c.at("fields"), "is empty", "at least one field")
	}
	if len(c.p.Deliver) == 0 && c.doc.has(c.at("deliver")) {
		c.doc.faultKey(c.at("deliver"), "is empty", "at least one sink")
	}
	return compiled
}

// notations finds paths of fields that can only be mistakes. Those at the
// top begin at the merged document.
func (c projectionCheck) notations(fields Fields, path string, top bool) {
	for _, f := range fields {
		key := member(path, f.Out)
		at := key
		if c.doc.has(member(key, "path")) {
			at = member(key, "path")
		}
		if c.doc.known(at) {
			m := checkNotation(f.Path)
			if rest, isDoc := strings.CutPrefix(f.Path, "doc."); m == nil && top && isDoc && !c.mounted("doc") && !strings.Contains(f.Path, `\`) {
				m = &mistake{problem: "begins with doc, which names the document in a filter; a path begins inside it",
					fix: fmt.Sprintf(`write %s; write \%s for a member named doc`, rest, f.Path)}
			}
			if m != nil {
				c.doc.mistake(c.doc.at(at), at, *m)
			}
		}
		c.notations(f.Each, member(key, "each"), false)
	}
}

// mounted reports whether a source is mounted at, or below, a member of the root.
func (c projectionCheck) mounted(name string) bool {
	return slices.ContainsFunc(c.l.config.Sources, func(s Source) bool {
		mount := s.MountPath()
		return len(mount) > 0 && mount[0] == name
	})
}

// fault reports a fault of a projection at its place in the file.
func (c projectionCheck) fault(f projections.Fault) {
	at, fields := c.at("fields"), c.p.Fields
	if f.Carried {
		at, fields = c.at("carry"), c.p.Carry
	}
	for depth, index := range f.Field {
		if depth > 0 {
			at = member(at, "each")
		}
		if index >= len(fields) {
			break
		}
		at, fields = member(at, fields[index].Out), fields[index].Each
	}
	switch {
	case f.Part == "when":
		at = c.at("when")
	case f.Part == "out" || len(f.Field) == 0:
		if !c.doc.bad[at] {
			c.doc.add(c.doc.keyAt(at), at, "", mistake{problem: f.Msg, fix: f.Want})
		}
		return
	case c.doc.has(member(at, f.Part)):
		at = member(at, f.Part)
	}
	if f.Part == "same" && (c.doc.bad[member(at, "within")] || c.doc.bad[member(at, "round")]) {
		return // the fault is reported where the rule is defined
	}
	if c.doc.values[at].unresolved {
		return
	}
	c.doc.mistake(c.doc.within(at, f.Line, f.Column), at, mistake{problem: f.Msg, fix: f.Want})
}

// reads finds fields and filters that read what no source provides.
func (c projectionCheck) reads() {
	for key, reads := range c.p.Reads() {
		at := c.path + "." + key
		for _, part := range []string{"path", "expr"} {
			if c.doc.has(member(at, part)) {
				at = member(at, part)
			}
		}
		if problem, want := c.unprovided(reads); problem != "" && c.doc.known(at) {
			c.doc.fault(at, problem, want)
		}
	}
}

// Reads yields what fields, and the filter, read of the merged document, by their keys in the
// projection: fields.NAME, carry.NAME and when. It leaves out those with faults.
func (p *Projection) Reads() iter.Seq2[string, []canonicaltree.Path] {
	return func(yield func(string, []canonicaltree.Path) bool) {
		secrets := p.Spec().Secrets
		for i, f := range slices.Concat(p.Fields, p.Carry) {
			f.Same = nil
			key := "fields"
			if i >= len(p.Fields) {
				key = "carry"
			}
			if reads, ok := readSet(projections.Spec{Fields: Fields{f}.spec(), Secrets: secrets}); ok && !yield(member(key, f.Out), reads) {
				return
			}
		}
		constant := []projections.Field{{Out: "x", Const: []byte("0")}}
		if reads, ok := readSet(projections.Spec{When: p.When, Fields: constant, Secrets: secrets}); ok && p.When != "" {
			yield("when", reads)
		}
	}
}

// Place returns the place of a key of Reads in the file.
func (p *Projection) Place(key string) Position {
	for i, f := range slices.Concat(p.Fields, p.Carry) {
		if i < len(p.Fields) && key == member("fields", f.Out) || i >= len(p.Fields) && key == member("carry", f.Out) {
			return f.Pos
		}
	}
	return p.Pos
}

func readSet(spec projections.Spec) ([]canonicaltree.Path, bool) {
	p, err := projections.Compile(spec)
	if err != nil {
		return nil, false
	}
	return p.ReadSet(), true
}

// unprovided returns the problem of the first path that no source provides.
func (c projectionCheck) unprovided(reads []canonicaltree.Path) (problem, want string) {
	for _, read := range reads {
		if i := slices.Index(read, projections.Elements); i >= 0 {
			read = read[:i] // no element is stripped
		}
		var stripped []string
		provided := false
		for i := range c.l.config.Sources {
			s := &c.l.config.Sources[i]
			mount := s.MountPath()
			switch {
			case c.l.main.values[member(s.path(), "mount")].unresolved: // it may be anywhere
				provided = true
			case begins(mount, read): // the read holds the whole document
				provided = true
			case begins(read, mount):
				rules, err := stripper.Compile(s.Strip)
				if err == nil && rules.Covers(read[len(mount):]) {
					stripped = append(stripped, s.Name)
				} else {
					provided = true
				}
			}
		}
		switch {
		case provided || len(c.l.config.Sources) == 0:
		case len(stripped) > 0:
			return "reads " + read.String() + ", which is stripped from " + strings.Join(stripped, ", ") + " and comes from nowhere else",
				"another path, or no such strip pattern"
		default:
			return "reads " + read.String() + ", where no source is mounted", "a path at or below the mount of a source"
		}
	}
	return "", ""
}

// delivery checks one sink alone.
func (c projectionCheck) delivery(d *Delivery) {
	path := member(c.at("deliver"), d.Name)
	checkName(c.doc, path, d.Name)
	retry := member(path, "retry")
	unset := c.doc.values[member(retry, "min_backoff")].unresolved || c.doc.values[member(retry, "max_backoff")].unresolved
	if d.Retry.MinBackoff > d.Retry.MaxBackoff && !unset {
		c.doc.faultKey(retry, "has min_backoff above max_backoff", "min_backoff at or below max_backoff")
	}
	if d.Sink != nil {
		d.Sink.Check(&Checker{l: c.l, doc: c.doc, owner: path, kind: member(path, d.Sink.Kind()), projection: c.p}, d)
	}
}

// Columns checks that each column shows something that the projection has.
func (c *Checker) Columns(columns Columns, reserved []string) {
	var outs []string
	for _, f := range slices.Concat(c.projection.Fields, c.projection.Carry) {
		if out := splitPath(f.Out)[0]; !slices.Contains(outs, out) {
			outs = append(outs, out)
		}
	}
	for _, column := range columns {
		at := member(c.path("columns"), column.Name)
		if slices.Contains(reserved, column.Name) {
			c.doc.faultKey(at, "is a column that every table has", "another name")
			continue
		}
		if p := member(at, "path"); checkNotation(column.Path) != nil && c.doc.known(p) {
			c.doc.mistake(c.doc.at(p), p, *checkNotation(column.Path))
			continue
		}
		// Paths with more than names are for the sink to judge.
		if strings.ContainsAny(column.Path, `@#*?|()[]{}!`) || c.doc.values[member(at, "path")].unresolved {
			continue
		}
		if !slices.Contains(outs, splitPath(column.Path)[0]) {
			problem := c.doc.hide(member(at, "path"), "shows "+column.Path+", which the projection does not have", wrongPiece)
			c.doc.faultKey(at, problem, "one of "+strings.Join(outs, ", "))
		}
	}
}
