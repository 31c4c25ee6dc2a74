package config

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/agnivade/levenshtein"
	"go.yaml.in/yaml/v4"
)

// decoder turns the tree of one document into Go values.
type decoder struct {
	doc        *document
	env        func(string) (string, bool)
	allowUnset bool
	noFiles    bool       // references to files have no value, in a file of tokens
	allowed    *allowance // nil in the main file, which may refer to everything
	kinds      Registry
}

// shorthand is a struct that a file may also have as a plain text: the member
// of that name.
type shorthand interface{ shorthand() string }

func (Field) shorthand() string { return "path" }

func (Column) shorthand() string { return "type" }

func (Same) shorthand() string { return "elements" }

// refuser is a struct that says why it has no such member.
type refuser interface {
	refuses(key string) (*mistake, bool)
}

var (
	textType     = reflect.TypeFor[encoding.TextUnmarshaler]()
	secretType   = reflect.TypeFor[Secret]()
	jsonType     = reflect.TypeFor[JSON]()
	positionType = reflect.TypeFor[Position]()
	durationType = reflect.TypeFor[Duration]()
	sizeType     = reflect.TypeFor[Size]()
)

// decode reads a node into v, which is zero.
func (d *decoder) decode(n *yaml.Node, v reflect.Value, path string, tag reflect.StructTag) {
	if !d.supported(n, path) {
		return
	}
	t := v.Type()
	switch {
	case t == jsonType:
		data, ok := d.json(n, path)
		if !ok {
			data = JSON("null") // so that nothing else seems wrong
		}
		v.SetBytes(data)
	case reflect.PointerTo(t).Implements(textType):
		d.scalar(n, v, path, tag)
	case t.Kind() == reflect.Pointer:
		v.Set(reflect.New(t.Elem()))
		d.decode(n, v.Elem(), path, tag)
	case t.Kind() == reflect.Struct:
		d.object(n, v, path)
	case t.Kind() == reflect.Map:
		d.mapping(n, v, path)
	case t.Kind() == reflect.Slice:
		if _, named := keyField(t.Elem()); named {
			d.named(n, v, path)
			return
		}
		d.list(n, v, path, tag)
	default:
		d.scalar(n, v, path, tag)
	}
}

// supported refuses the parts of YAML that a configuration does not need, and
// that make positions and secrets hard to follow.
func (d *decoder) supported(n *yaml.Node, path string) bool {
	what := "tags"
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		what = aliases
	case n.Style&yaml.TaggedStyle == 0:
		return true
	}
	d.doc.faultAt(d.doc.place(n), path, "uses "+what+" of YAML, which are not supported", "the value itself")
	return false
}

// recordPosition notes the place of a value that is no scalar.
func (d *decoder) recordPosition(path string, n *yaml.Node) {
	if _, ok := d.doc.keys[path]; !ok {
		d.doc.keys[path] = d.doc.place(n)
	}
}

// entry is a member of a mapping in a file.
type entry struct {
	key  string
	path string
	node *yaml.Node
}

// entries returns the members of a mapping, or reports that n is none. A null is
// an empty mapping.
func (d *decoder) entries(n *yaml.Node, path, want string) ([]entry, bool) {
	switch {
	case isNull(n):
		return nil, true
	case n.Kind != yaml.MappingNode:
		d.wrongType(n, path, want)
		return nil, false
	}
	var all []entry
	seen := map[string]bool{}
	for i := 0; i < len(n.Content); i += 2 {
		key, text := n.Content[i], n.Content[i].Value
		if key.Kind != yaml.ScalarNode || key.Anchor != "" || key.Style&yaml.TaggedStyle != 0 || key.Tag == "!!merge" {
			d.doc.add(d.doc.place(key), path, "", mistake{problem: "has a key that is not a plain name", want: "a name"})
			continue
		}
		p := member(path, text)
		at := d.doc.place(key)
		if seen[text] {
			d.doc.add(at, p, "", mistake{problem: fmt.Sprintf("key is already set in line %d", d.doc.keys[p].Line), want: "each key once"})
			continue
		}
		seen[text] = true
		d.doc.keys[p] = at
		all = append(all, entry{text, p, n.Content[i+1]})
	}
	return all, true
}

// object decodes a mapping into a struct.
func (d *decoder) object(n *yaml.Node, v reflect.Value, path string) {
	t := v.Type()
	members := d.kinds.membersOf(t)
	if s, ok := v.Interface().(shorthand); ok && n.Kind != yaml.MappingNode {
		for _, m := range members {
			if m.name == s.shorthand() {
				d.decode(n, v.FieldByIndex(m.index), path, m.tag)
			} else {
				d.applyDefault(v.FieldByIndex(m.index), m.tag)
			}
		}
		d.setPosition(v, path)
		return
	}
	entries, ok := d.entries(n, path, "a mapping")
	if !ok {
		d.applyDefault(v, "") // so that nothing else seems wrong
		return
	}
	d.recordPosition(path, n)
	d.setPosition(v, path)
	given, meant := map[string]bool{}, map[string]bool{}
	for _, e := range entries {
		m, found := find(members, e.key)
		if !found {
			if r, ok := v.Interface().(refuser); ok {
				if m, refused := r.refuses(e.key); refused {
					d.doc.mistake(d.doc.keyAt(e.path), e.path, *m)
					continue
				}
			}
			meant[d.unknownKey(e, members)] = true
			continue
		}
		given[e.key] = true
		field := v.FieldByIndex(m.index)
		if field.Kind() == reflect.Interface { // of several kinds the first one counts
			kind := reflect.New(m.typ.Elem())
			if field.IsNil() {
				field.Set(kind)
			}
			field = kind.Elem()
		}
		d.decode(e.node, field, e.path, m.tag)
	}
	d.exactlyOne(members, given, meant, path)
	for _, m := range members {
		if given[m.name] {
			continue
		}
		if meant[m.name] { // it is there under a misspelt name, so its absence is no fault
			d.doc.bad[member(path, m.name)] = true
		} else if m.tag.Get("required") == "true" {
			d.doc.faultKey(path, "lacks "+m.name, describe(m))
		}
		d.applyDefault(v.FieldByIndex(m.index), m.tag)
	}
}

func (d *decoder) setPosition(v reflect.Value, path string) {
	if f := v.FieldByName("Pos"); f.IsValid() && f.Type() == positionType {
		at, ok := d.doc.keys[path]
		if !ok {
			at = d.doc.at(path)
		}
		f.Set(reflect.ValueOf(at))
	}
}

// isNull reports whether a value is null or empty.
func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// applyDefault sets the default of a value that is not in the file.
func (d *decoder) applyDefault(v reflect.Value, tag reflect.StructTag) {
	if text, ok := tag.Lookup("default"); ok {
		if v.Kind() == reflect.Slice {
			v.Set(reflect.ValueOf(strings.Split(text, ",")))
			return
		}
		// The tags are checked by a test: a default is always right.
		if m := set(v, text); m == nil && tag.Get("path") == "true" {
			v.SetString(d.doc.relative(text))
		}
		return
	}
	if v.Kind() != reflect.Struct || reflect.PointerTo(v.Type()).Implements(textType) {
		return
	}
	for _, m := range d.kinds.membersOf(v.Type()) {
		d.applyDefault(v.FieldByIndex(m.index), m.tag)
	}
}

// unknownKey reports an unknown key with the most similar known one, and returns that. The value
// is not shown: it may be a secret under a misspelt name.
func (d *decoder) unknownKey(e entry, members []memberOf) (meant string) {
	nearest, best := "", 1+max(2, utf8.RuneCountInString(e.key)/3)
	names := make([]string, len(members))
	for i, m := range members {
		names[i] = m.name
		if distance := levenshtein.ComputeDistance(strings.ToLower(e.key), m.name); distance < best && distance < len(m.name) {
			nearest, best = m.name, distance
		}
	}
	want := "one of " + strings.Join(names, ", ")
	if nearest != "" {
		want = fmt.Sprintf("%q", nearest)
	}
	d.doc.faultKey(e.path, "unknown key", want)
	return nearest
}

// exactlyOne checks the members that exclude one another.
func (d *decoder) exactlyOne(members []memberOf, given, meant map[string]bool, path string) {
	var group, set []string
	required, misspelt := false, false
	for _, m := range members {
		rule, ok := m.tag.Lookup("oneof")
		if !ok {
			continue
		}
		required = required || rule == "required"
		group = append(group, m.name)
		if given[m.name] {
			set = append(set, m.name)
		}
		misspelt = misspelt || meant[m.name]
	}
	switch {
	case len(set) > 1:
		d.doc.faultKey(member(path, set[1]), fmt.Sprintf("excludes %s, which is set too", set[0]),
			"only one of "+strings.Join(group, ", "))
	case len(set) == 0 && required && !misspelt: // one typo is one fault
		d.doc.faultKey(path, "has none of "+strings.Join(group, ", "), "exactly one of them")
	}
}

// named decodes a mapping into a list whose elements know their names.
func (d *decoder) named(n *yaml.Node, v reflect.Value, path string) {
	entries, ok := d.entries(n, path, "a mapping by name")
	if !ok {
		return
	}
	d.recordPosition(path, n)
	key, _ := keyField(v.Type().Elem())
	list := reflect.MakeSlice(v.Type(), len(entries), len(entries))
	for i, e := range entries {
		list.Index(i).Field(key).SetString(e.key)
		d.decode(e.node, list.Index(i), e.path, "")
	}
	v.Set(list)
}

// mapping decodes a mapping into a map.
func (d *decoder) mapping(n *yaml.Node, v reflect.Value, path string) {
	entries, ok := d.entries(n, path, "a mapping")
	if !ok {
		return
	}
	d.recordPosition(path, n)
	v.Set(reflect.MakeMap(v.Type()))
	for _, e := range entries {
		value := reflect.New(v.Type().Elem()).Elem()
		d.decode(e.node, value, e.path, "")
		v.SetMapIndex(reflect.ValueOf(e.key), value)
	}
}

// list decodes a sequence, or where the tag allows it a single value.
func (d *decoder) list(n *yaml.Node, v reflect.Value, path string, tag reflect.StructTag) {
	if n.Kind != yaml.SequenceNode {
		if strings.HasSuffix(tag.Get("yaml"), ",single") && n.Kind != yaml.MappingNode {
			list := reflect.MakeSlice(v.Type(), 1, 1)
			d.decode(n, list.Index(0), path, "")
			v.Set(list)
			return
		}
		d.wrongType(n, path, "a list, like [a, b]")
		return
	}
	d.recordPosition(path, n)
	list := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, value := range n.Content {
		d.decode(value, list.Index(i), element(path, i), "")
	}
	v.Set(list)
	if len(n.Content) == 0 && tag.Get("required") == "true" {
		d.doc.faultKey(path, "is empty", "at least one")
	}
}

// scalar decodes a text, a number or a truth value.
func (d *decoder) scalar(n *yaml.Node, v reflect.Value, path string, tag reflect.StructTag) {
	want := describe(memberOf{typ: v.Type(), tag: tag})
	secret := v.Type() == secretType
	text, isText, ok := d.text(n, path, want, secret)
	if !ok {
		return
	}
	written := d.doc.values[path]
	// Numbers and truth values are never meant as text, nor the other way round. Only the value
	// of a reference may be either.
	wantsText := v.Kind() == reflect.String || v.Kind() == reflect.Struct
	plainWord := v.Kind() == reflect.Bool || v.Kind() == reflect.Int
	switch {
	case wantsText && !isText:
		d.doc.fault(path, "is not text", want+", in quotes")
		return
	case plainWord && written.plain && quotedScalar(n):
		d.doc.fault(path, "is text", want+", without quotes")
		return
	case written.unresolved && !wantsText:
		d.applyDefault(v, tag)
		return
	}
	m := set(v, text)
	switch {
	case written.unresolved: // nothing is known about the value
		return
	case m != nil:
		if m.want == "" && m.fix == "" {
			m.want = want
		}
		d.doc.mistake(d.doc.at(path), path, *m)
		return
	}
	d.limits(v, path, tag)
	if tag.Get("path") == "true" {
		if text == "" {
			d.doc.fault(path, "is empty", want)
		}
		v.SetString(d.doc.relative(text))
		d.doc.files[path] = v.String()
	}
}

// text returns the text of a scalar, references replaced, and whether the file has
// as text. It notes the literal, and reports a value that is no scalar.
func (d *decoder) text(n *yaml.Node, path, want string, secret bool) (text string, isText, ok bool) {
	if n.Kind != yaml.ScalarNode || isNull(n) {
		d.wrongType(n, path, want)
		return "", false, false
	}
	s := scalar{at: d.doc.place(n), raw: n.Value, text: n.Value}
	isText = typeOf(n) == "is text"
	var problems []mistake
	if isText {
		problems = d.expand(&s, secret)
	}
	text = s.text
	s.plain = text == s.raw && !secret && !s.unresolved
	if secret {
		// No message repeats a secret, also not one that contains a word of it by chance.
		s.text, s.pieces = "", nil
		if !wholeReference(s.raw) {
			s.raw = masked
		}
	}
	d.doc.values[path] = s
	for _, p := range problems {
		d.doc.mistake(d.doc.at(path), path, p)
	}
	return text, isText, len(problems) == 0
}

// wholeReference reports whether a text is one reference without a default. It
// tells nothing about the value, and helps to find the fault.
func wholeReference(raw string) bool {
	return strings.HasPrefix(raw, "${") && strings.Index(raw, "}") == len(raw)-1 && !strings.Contains(raw, ":-")
}

func quotedScalar(n *yaml.Node) bool {
	return n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0
}

// set reads a text into a scalar.
func set(v reflect.Value, text string) *mistake {
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		err := u.UnmarshalText([]byte(text))
		var m *mistake
		if err != nil && !errors.As(err, &m) {
			m = &mistake{problem: "is not understood"}
		}
		return m
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		switch text {
		case "true", "false":
			v.SetBool(text == "true")
		default:
			return &mistake{problem: "is not a truth value"}
		}
	case reflect.Int:
		i, err := strconv.Atoi(text)
		if err != nil {
			return &mistake{problem: "is not a whole number"}
		}
		v.SetInt(int64(i))
	}
	return nil
}

// limits checks the ranges and words that the tag allows.
func (d *decoder) limits(v reflect.Value, path string, tag reflect.StructTag) {
	if words, ok := tag.Lookup("enum"); ok {
		for word := range strings.SplitSeq(words, "|") {
			if v.String() == word {
				return
			}
		}
		d.doc.fault(path, "is not allowed", describe(memberOf{typ: v.Type(), tag: tag}))
		if len(d.doc.values[path].pieces) > 0 { // messages about other keys may repeat it
			v.SetZero()
			d.applyDefault(v, tag)
		}
	}
	if bounds, ok := tag.Lookup("range"); ok {
		least, most, _ := strings.Cut(bounds, "..")
		low, high := reflect.New(v.Type()).Elem(), reflect.New(v.Type()).Elem()
		if set(low, least) != nil || set(high, most) != nil || v.Int() < low.Int() || v.Int() > high.Int() {
			d.doc.fault(path, "is out of range", least+" to "+most)
		}
	}
	if tag.Get("required") == "true" && empty(v) {
		d.doc.fault(path, "is empty", describe(memberOf{typ: v.Type(), tag: tag}))
	}
}

// empty reports whether a scalar says nothing.
func empty(v reflect.Value) bool {
	if s, ok := v.Interface().(Secret); ok {
		return s.IsZero()
	}
	return v.IsZero()
}

// wrongType reports a value of another type than the one wanted.
func (d *decoder) wrongType(n *yaml.Node, path, want string) {
	if d.supported(n, path) {
		d.doc.faultAt(d.doc.place(n), path, typeOf(n), want)
	}
}

// typeOf names the type of a value.
func typeOf(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "is a mapping"
	case n.Kind == yaml.SequenceNode:
		return "is a list"
	}
	switch n.Tag {
	case "!!null":
		return "is empty"
	case "!!bool":
		return "is a truth value"
	case "!!int", "!!float":
		return "is a number"
	}
	return "is text" // also a time, which is none here
}
