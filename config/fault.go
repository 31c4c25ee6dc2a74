package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Fault is one problem of a configuration, with its place.
type Fault struct {
	// File, as it was found; Line and Column count from 1, 0 if the problem is
	// with the file as a whole.
	File   string `json:"file"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	// Path of the key, like sources.registry.strip[2], empty for the file.
	Path string `json:"path,omitempty"`
	// Value as it is written in the file, "***" for a secret, empty where the problem is not with
	// a value.
	Value string `json:"value,omitempty"`
	// Problem describes the fault. Want names a right value, Fix says in a
	// sentence how to repair it; one of the two is empty.
	Problem string `json:"problem"`
	Want    string `json:"want,omitempty"`
	Fix     string `json:"fix,omitempty"`
}

// String returns the fault as one line: file:line:column: path: problem: value
// "x"; want …, or what to do.
func (f Fault) String() string {
	var b strings.Builder
	b.WriteString(f.File)
	if f.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", f.Line, f.Column)
	}
	if f.Path != "" {
		b.WriteString(": " + f.Path)
	}
	b.WriteString(": " + f.Problem)
	if f.Value != "" {
		fmt.Fprintf(&b, ": value %q", f.Value)
	}
	return b.String() + hint(f.Want, f.Fix)
}

func hint(want, fix string) string {
	switch {
	case fix != "":
		return "; " + fix
	case want != "":
		return "; want " + want
	}
	return ""
}

// Faults is the error of Load: all problems, by file and line. It marshals to
// JSON as {"faults": […]}.
type Faults struct {
	List []Fault `json:"faults"`
}

// Error returns one fault per line.
func (f *Faults) Error() string {
	lines := make([]string, len(f.List))
	for i, fault := range f.List {
		lines[i] = fault.String()
	}
	return strings.Join(lines, "\n")
}

func (f *Faults) add(fault Fault) { f.List = append(f.List, fault) }

// sorted orders the faults by place and takes out repetitions.
func (f *Faults) sorted() *Faults {
	slices.SortStableFunc(f.List, func(a, b Fault) int {
		return cmp.Or(
			cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column),
			cmp.Compare(a.Path, b.Path), cmp.Compare(a.Problem, b.Problem))
	})
	f.List = slices.Compact(f.List)
	return f
}
