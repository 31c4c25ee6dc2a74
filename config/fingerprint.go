package config

import (
	"crypto/sha256"
	"encoding/json"
	"hash"
	"slices"
	"strings"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/projections/merge"
	"github.com/seed-86dfc502/weir/stripper"
)

// MergeSpec returns the sources and rules in the form that package merge compiles.
func (c *Config) MergeSpec() merge.Spec {
	spec := merge.Spec{Precedence: c.Merge.Precedence, Required: c.Merge.Required}
	for i := range c.Sources {
		s := &c.Sources[i]
		spec.Sources = append(spec.Sources, merge.Source{Name: s.Name, Patch: s.Mode == Patch, MaxBytes: int(s.MaxEvent), Mount: s.MountPath()})
	}
	return spec
}

// MountPath returns Mount as the names of members; empty is the root.
func (s *Source) MountPath() canonicaltree.Path {
	if s.Mount == "" {
		return nil
	}
	return splitPath(s.Mount)
}

// splitPath splits a path at its dots. A backslash makes the next character part of a name.
func splitPath(path string) canonicaltree.Path {
	var parts canonicaltree.Path
	var part []byte
	for i := 0; i < len(path); i++ {
		switch {
		case path[i] == '\\' && i+1 < len(path):
			i++
			part = append(part, path[i])
		case path[i] == '.':
			parts = append(parts, string(part))
			part = part[:0]
		default:
			part = append(part, path[i])
		}
	}
	return append(parts, string(part))
}

// Fingerprint identifies everything that decisions depend on: how events become
// source documents, how those are merged, the projections and the
// services, together with the versions of the code that interprets
// it. It does not depend on the layout of files, the order of keys, comments, where a sink
// sends to, or secrets, those of expressions excepted. It may be called on a Config of Load only.
func (c *Config) Fingerprint() [32]byte { return c.fingerprint }

// identify computes Fingerprint and Prints.
func (c *Config) identify() {
	h := sha256.New()
	c.writeBase(h)
	views := make([]int, len(c.Projections))
	for i := range views {
		views[i] = i
	}
	slices.SortFunc(views, func(a, b int) int {
		x, y := &c.Projections[a], &c.Projections[b]
		return strings.Compare(x.Customer+"/"+x.Name, y.Customer+"/"+y.Name)
	})
	shapes := make([][]byte, len(c.Projections))
	for _, i := range views {
		spec := c.Projections[i].Spec()
		spec.Fields, spec.Carry = c.Projections[i].Fields.canonical().spec(), c.Projections[i].Carry.canonical().spec()
		shape := sha256.New()
		spec.Fingerprint(h)
		spec.Shape(shape)
		shapes[i] = shape.Sum(nil)
	}
	base := sha256.New()
	c.writeBase(base)
	c.prints = Prints{Base: Print(base.Sum(nil)[:len(Print{})]), Services: map[string]Print{}}
	services := []string{}
	for _, s := range c.Services() {
		sum := sha256.Sum256(append([]byte(s.Name+"\n"), shapes[s.Projection]...))
		c.prints.Services[s.Name] = Print(sum[:])
		services = append(services, s.Name)
	}
	slices.Sort(services)
	_ = json.NewEncoder(h).Encode([]any{"services", services}) // cannot fail, as in writeBase
	c.fingerprint = [32]byte(h.Sum(nil))
}

// writeBase writes the settings on which decisions about all services depend: how events become
// source documents and how those are merged.
func (c *Config) writeBase(h hash.Hash) {
	write := func(v any) {
		// Encoding to a hash cannot fail, nor can these values.
		_ = json.NewEncoder(h).Encode(v)
	}
	write([]any{"weir configuration", 1, canonicaltree.Scheme})
	sources := slices.Clone(c.Sources)
	slices.SortFunc(sources, func(a, b Source) int { return strings.Compare(a.Name, b.Name) })
	for _, s := range sources {
		write([]any{
			"source", s.Name, s.Format, s.Entity, s.EventID, s.Payload, s.Operation, sorted(s.DeleteValues), s.Sequence,
			s.RowImage, sorted(s.UnchangedAsNull), s.UnavailableValue,
		})
		if e, ok := s.Input.(SelfDescribing); ok {
			write(append([]any{s.Input.Kind()}, e.Fingerprint()...))
		}
		if rules, err := stripper.Compile(sorted(s.Strip)); err == nil {
			rules.Fingerprint(h)
		}
	}
	merge.Compile(c.MergeSpec()).Fingerprint(h)
}

// sorted returns the different values of a list whose order has no meaning.
func sorted(list []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(list)))
}

// canonical returns the fields in the order of their outputs, with values in
// canonical form.
func (f Fields) canonical() Fields {
	sorted := slices.Clone(f)
	slices.SortFunc(sorted, func(a, b Field) int { return strings.Compare(a.Out, b.Out) })
	for i := range sorted {
		field := &sorted[i]
		field.Const, field.Default, field.Each = field.Const.canonical(), field.Default.canonical(), field.Each.canonical()
	}
	return sorted
}

// canonical returns the value with its members in order.
func (j JSON) canonical() JSON {
	t, err := canonicaltree.Parse(j)
	if err != nil {
		return j
	}
	defer t.Release()
	return t.Root().AppendCanonical(nil)
}
