package config

import (
	"reflect"
	"strings"
)

// memberOf is a struct's field as a file has it.
type memberOf struct {
	name  string
	index []int
	tag   reflect.StructTag
	typ   reflect.Type
}

// membersOf lists the members of a struct in order, those of inlined structs included. A field of
// a kind is a member for each kind.
func (k Registry) membersOf(t reflect.Type) []memberOf {
	var all []memberOf
	for i := range t.NumField() {
		f := t.Field(i)
		name, option, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case option == "inline":
			for _, m := range k.membersOf(f.Type) {
				m.index = append([]int{i}, m.index...)
				all = append(all, m)
			}
		case option == "kind":
			all = append(all, k.members(f.Type, i)...)
		case name != "" && name != "-":
			all = append(all, memberOf{name, []int{i}, f.Tag, f.Type})
		}
	}
	return all
}

// keyField returns the index of the field that holds the name of an element, for
// lists that a file has as a mapping.
func keyField(t reflect.Type) (int, bool) {
	if t.Kind() != reflect.Struct {
		return 0, false
	}
	for i := range t.NumField() {
		if t.Field(i).Tag.Get("key") == "true" {
			return i, true
		}
	}
	return 0, false
}

func find(members []memberOf, name string) (memberOf, bool) {
	for _, m := range members {
		if m.name == name {
			return m, true
		}
	}
	return memberOf{}, false
}

// describe describes the form of a member's value.
func describe(m memberOf) string {
	if words := m.tag.Get("enum"); words != "" {
		return strings.ReplaceAll(words, "|", " or ")
	}
	if name := m.tag.Get("yaml"); name != "" && m.typ.Kind() == reflect.Slice {
		if strings.HasSuffix(name, ",single") {
			return describe(memberOf{typ: m.typ.Elem()})
		}
		if _, named := keyField(m.typ.Elem()); !named {
			return "a list, like [a, b]"
		}
	}
	switch {
	case m.typ == durationType:
		return `a duration with a unit, like "10s"`
	case m.typ == sizeType:
		return `a size with a unit, like "8MiB"`
	case m.typ == reflect.TypeFor[Locator]():
		return "a gjson path, header:NAME or key"
	case m.typ == secretType || m.typ.Kind() == reflect.String:
		if m.tag.Get("path") == "true" {
			return "a path"
		}
		return "text"
	case m.typ.Kind() == reflect.Bool:
		return "true or false"
	case m.typ.Kind() == reflect.Int:
		return "a whole number"
	}
	return "a mapping"
}
