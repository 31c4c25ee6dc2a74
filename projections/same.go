package projections

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/seed-86dfc502/weir/canonicaltree"
)

// maxRound bounds the decimal places of round, on both sides of the point.
const maxRound = 15

// sameness checks the rules of a field.
func (c *compiler) sameness(f Field, fault func(part, msg, want string)) *Same {
	s := f.Same
	if s == nil {
		return nil
	}
	c.same = true
	switch {
	case c.carried:
		fault("same", "is a rule for a carried field, which is not compared", "drop it")
	case f.Const != nil:
		fault("same", "is a rule for a constant, which never changes", "drop it")
	case f.Each != nil && (s.Round != nil || s.Fold || s.Trim):
		fault("same", "has a rule for the elements of a mapped array", "give it to their fields; only set is for the array")
	case s.Round == nil && !s.Set && !s.Fold && !s.Trim:
		fault("same", "has no rule", "use round, set, fold or trim")
	case s.Round != nil && (*s.Round < -maxRound || *s.Round > maxRound):
		fault("same", fmt.Sprintf("rounds to %d decimal places", *s.Round), fmt.Sprintf("use %d to %d", -maxRound, maxRound))
	}
	return s
}

// String returns the rules as a file has them.
func (s *Same) String() string {
	if s == nil {
		return ""
	}
	var rules []string
	if s.Round != nil {
		rules = append(rules, "round: "+strconv.Itoa(*s.Round))
	}
	for _, rule := range []struct {
		set  bool
		text string
	}{{s.Set, "elements: set"}, {s.Fold, "fold: case"}, {s.Trim, "trim: true"}} {
		if rule.set {
			rules = append(rules, rule.text)
		}
	}
	return strings.Join(rules, ", ")
}

// normalised is sum for a projection with rules of sameness.
func (p *Projection) normalised(doc source) (d canonicaltree.Digest, match bool, err error) {
	text, match, err := p.project(nil, doc, true)
	if err != nil || !match {
		return canonicaltree.Digest{}, match, err
	}
	if d, err = p.Content(text); err != nil {
		return canonicaltree.Digest{}, false, err
	}
	return d, true, nil
}

// Content returns the digest of an output. For the output of [Projection.Project] it equals
// [Projection.Sum] of the document. Carried fields are left out, and values with rules of
// sameness are normalised. The error is an *[OutputError].
func (p *Projection) Content(out []byte) (d canonicaltree.Digest, err error) {
	if !p.Exact() {
		out, err = p.normal(out)
	}
	if err == nil {
		d, err = canonicaltree.Sum(out, p.spec.Numbers)
	}
	if err != nil {
		return d, &OutputError{p.spec.Customer, p.spec.Name, err}
	}
	return d, nil
}

// Exact reports whether equal contents are equal outputs: nothing is carried or normalised.
func (p *Projection) Exact() bool { return !p.same && len(p.spec.Carry) == 0 }

// normal returns an output as it is compared.
func (p *Projection) normal(out []byte) ([]byte, error) {
	tree, err := canonicaltree.Parse(out)
	if err != nil {
		return nil, err
	}
	defer tree.Release()
	n := normaliser{numbers: p.spec.Numbers}
	text, _ := n.object(nil, p.outputs, tree.Root())
	return text, n.err
}

// normaliser writes outputs as they are compared.
type normaliser struct {
	numbers canonicaltree.Numbers
	err     error
}

// object appends an object of the outputs and reports whether it has members.
func (n *normaliser) object(dst []byte, outputs []*output, v canonicaltree.Node) (_ []byte, any bool) {
	if v.Kind() != canonicaltree.Object {
		return append(dst, v.Raw()...), true // not of this projection
	}
	return appendMembers(dst, v, func(dst []byte, name string, member canonicaltree.Node) ([]byte, bool) {
		i := slices.IndexFunc(outputs, func(o *output) bool { return o.name == name })
		switch {
		case i < 0:
			return append(dst, member.Raw()...), true
		case outputs[i].field == nil:
			return n.object(dst, outputs[i].group, member)
		case outputs[i].field.carried:
			return dst, false
		}
		return n.field(dst, outputs[i].field, member), true
	})
}

// appendMembers appends an object of the members that value appends, and reports whether it has any.
func appendMembers(dst []byte, v canonicaltree.Node, value func([]byte, string, canonicaltree.Node) ([]byte, bool)) (_ []byte, any bool) {
	dst = append(dst, '{')
	for name, member := range v.Members() {
		before := len(dst)
		if any {
			dst = append(dst, ',')
		}
		written := false
		if dst, written = value(append(canonicaltree.AppendString(dst, name), ':'), name, member); !written {
			dst = dst[:before]
		}
		any = any || written
	}
	return append(dst, '}'), any
}

func (n *normaliser) field(dst []byte, f *field, v canonicaltree.Node) []byte {
	element := f.same.append
	if f.each != nil {
		element = func(dst []byte, v canonicaltree.Node) []byte {
			dst, _ = n.object(dst, f.each, v)
			return dst
		}
	}
	if v.Kind() != canonicaltree.Array {
		return element(dst, v)
	}
	elements := elementsOf(v, element)
	if f.same != nil && f.same.Set {
		elements = n.set(elements)
	}
	return appendArray(dst, elements)
}

// elementsOf returns the elements of an array as element appends them.
func elementsOf(v canonicaltree.Node, element func([]byte, canonicaltree.Node) []byte) (all [][]byte) {
	for _, e := range v.Elements() {
		all = append(all, element(nil, e))
	}
	return all
}

func appendArray(dst []byte, elements [][]byte) []byte {
	return append(append(append(dst, '['), bytes.Join(elements, []byte{','})...), ']')
}

// set returns one of each of the equal elements, in an order of their own.
func (n *normaliser) set(elements [][]byte) [][]byte {
	byDigest := make(map[canonicaltree.Digest][]byte, len(elements))
	var digests []canonicaltree.Digest
	for _, e := range elements {
		d, err := canonicaltree.Sum(e, n.numbers)
		n.err = errors.Join(n.err, err)
		if _, known := byDigest[d]; !known {
			byDigest[d], digests = e, append(digests, d)
		}
	}
	slices.SortFunc(digests, func(a, b canonicaltree.Digest) int { return bytes.Compare(a[:], b[:]) })
	elements = elements[:0]
	for _, d := range digests {
		elements = append(elements, byDigest[d])
	}
	return elements
}

// append appends a value with its numbers and texts normalised. Without rules as it is.
func (s *Same) append(dst []byte, v canonicaltree.Node) []byte {
	switch kind := v.Kind(); {
	case s == nil:
	case kind == canonicaltree.Number && s.Round != nil:
		return appendRounded(dst, v.Raw(), *s.Round)
	case kind == canonicaltree.String:
		text, _ := v.Text()
		if s.Trim {
			text = strings.TrimSpace(text)
		}
		if s.Fold {
			text = strings.Map(folded, text)
		}
		return canonicaltree.AppendString(dst, text)
	case kind == canonicaltree.Array:
		return appendArray(dst, elementsOf(v, s.append))
	case kind == canonicaltree.Object:
		dst, _ = appendMembers(dst, v, func(dst []byte, _ string, m canonicaltree.Node) ([]byte, bool) { return s.append(dst, m), true })
		return dst
	}
	return append(dst, v.Raw()...)
}

// folded returns the lowest of the runes that differ from r in case alone.
func folded(r rune) rune {
	lowest := r
	for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
		lowest = min(lowest, next)
	}
	return lowest
}

// appendRounded appends a number rounded to places decimal places, half away from zero, as its
// digits and a power of ten. It is exact for literals of any length.
func appendRounded(dst, literal []byte, places int) []byte {
	normal := canonicaltree.AppendDecimal(nil, literal)
	mantissa, exponent, _ := bytes.Cut(normal, []byte{'e'})
	power, err := strconv.Atoi(string(exponent))
	if len(exponent) > 0 && err != nil { // beyond any literal of digits
		if exponent[0] == '-' {
			return append(dst, '0')
		}
		return append(dst, normal...)
	}
	surplus := -places - power // digits to drop
	if surplus <= 0 {
		return append(dst, normal...)
	}
	sign, digits := []byte(nil), mantissa
	if digits[0] == '-' {
		sign, digits = digits[:1], digits[1:]
	}
	if surplus > len(digits) {
		return append(dst, '0')
	}
	kept := append([]byte{'0'}, digits[:len(digits)-surplus]...)
	if digits[len(digits)-surplus] >= '5' {
		i := len(kept) - 1
		for ; kept[i] == '9'; i-- {
			kept[i] = '0'
		}
		kept[i]++
	}
	if kept = bytes.TrimLeft(kept, "0"); len(kept) == 0 {
		return append(dst, '0')
	}
	return canonicaltree.AppendDecimal(dst, fmt.Appendf(nil, "%s%se%d", sign, kept, -places))
}
