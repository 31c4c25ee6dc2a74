package projections

import (
	"errors"
	"fmt"
	"strings"

	"github.com/seed-86dfc502/weir/canonicaltree"
)

// Spec is a projection as it is configured.
type Spec struct {
	// Customer and Name identify the projection in errors.
	Customer, Name string
	// When is the filter, an expression on doc; empty matches every document.
	When string
	// Fields are the members of the output, in its order.
	Fields []Field
	// Carry are members that follow: they are sent with a change and never the cause of
	// one. Neither the content hash nor the read-set knows them.
	Carry []Field
	// Secrets are the keys of hmac in expressions, by name.
	Secrets map[string][]byte
	// OmitEmpty leaves out members whose value is null, "", [] or {}.
	OmitEmpty bool
	// Numbers says when two outputs are the same. The projection itself copies literals.
	Numbers canonicaltree.Numbers
}

// Field is one member of the output.
type Field struct {
	// Out is its place in the output: names joined by dots. \. and \\ are a dot and a
	// backslash in a name.
	Out string
	// Path is the place of its value, in the syntax of gjson.
	Path string
	// Expr computes its value from doc, and inside Each from item, the element; there is no
	// Path then. Null is no value.
	Expr string
	// Const is JSON that it always shows; there is no Path then.
	Const []byte
	// Default is JSON that it shows when Path or Expr returns nothing or null, or Expr fails.
	Default []byte
	// Each makes it an array: Path selects an array, and each of its elements
	// is projected by these fields, whose paths begin at the element.
	Each []Field
	// Same, if given, says which of its values are equal.
	Same *Same
}

// Same are rules of sameness: the normalised value is compared, the real one is sent.
type Same struct {
	Round *int `json:"round,omitempty"` // rounds numbers to this many decimal places, half away from zero
	Set   bool `json:"set,omitempty"`   // the elements of the array, without order and repetition
	Fold  bool `json:"fold,omitempty"`  // texts, without case
	Trim  bool `json:"trim,omitempty"`  // texts, without space at both ends
}

// Fault is one thing that is wrong with a Spec.
type Fault struct {
	// Part is the part at fault: "when", "fields", "out", "path", "expr", "const",
	// "default", "each", "same" or "numbers".
	Part string
	// Field is the place of the field, an index for each level of Each, nil if no field is at
	// fault.
	Field []int
	// Carried says that Field is in Carry.
	Carried bool
	// Out is the output path of that field as it is written.
	Out string
	// Line and Column, from 1 and in characters, say where in When or Expr or, on line
	// 1, in Path. They are 0 when the whole of it is at fault.
	Line, Column int
	Msg          string // what is wrong
	Want         string // what would be right
}

// String returns the fault in one line.
func (f Fault) String() string {
	var b strings.Builder
	for i, index := range f.Field {
		if i > 0 {
			b.WriteString(".each")
		} else if f.Carried {
			b.WriteString("carry")
		} else {
			b.WriteString("fields")
		}
		fmt.Fprintf(&b, "[%d]", index)
	}
	if f.Out != "" {
		fmt.Fprintf(&b, " (%s)", f.Out)
	}
	if b.Len() > 0 {
		b.WriteByte(' ')
	}
	b.WriteString(f.Part)
	if f.Line > 0 {
		fmt.Fprintf(&b, " %d:%d", f.Line, f.Column)
	}
	fmt.Fprintf(&b, ": %s; %s", f.Msg, f.Want)
	return b.String()
}

// CompileError lists everything that is wrong with a Spec. Find it with
// errors.As.
type CompileError struct {
	Customer, Name string
	Faults         []Fault
}

// Error returns one line for each fault.
func (e *CompileError) Error() string {
	lines := make([]string, len(e.Faults))
	for i, f := range e.Faults {
		lines[i] = fmt.Sprintf("projection %s/%s: %v", e.Customer, e.Name, f)
	}
	return strings.Join(lines, "\n")
}

// FilterError says that the filter has no answer for a document. It holds types
// but nothing of the document's content. Trying again does not help.
type FilterError struct {
	Customer, Name string
	Line, Column   int // in When, from 1
	Msg            string
}

// Own returns an error of Sum or Project of a projection of the same shape as p's own, with
// the names of p.
func (p *Projection) Own(err error) error {
	var filter *FilterError
	var value *ValueError
	var output *OutputError
	switch customer, name := p.spec.Customer, p.spec.Name; {
	case errors.As(err, &filter):
		own := *filter
		own.Customer, own.Name = customer, name
		return &own
	case errors.As(err, &value):
		own := *value
		own.Customer, own.Name = customer, name
		return &own
	case errors.As(err, &output):
		return &OutputError{customer, name, output.Err}
	}
	return err
}

// OutputError says that an output breaks a limit. It holds nothing of the document's
// content. Trying again does not help.
type OutputError struct {
	Customer, Name string
	Err            error // of canonicaltree
}

// Error returns the projection and the reason.
func (e *OutputError) Error() string {
	return fmt.Sprintf("projection %s/%s: output: %v", e.Customer, e.Name, e.Err)
}

// Unwrap returns the error of canonicaltree.
func (e *OutputError) Unwrap() error { return e.Err }

// Error returns the place in the filter and the reason.
func (e *FilterError) Error() string {
	return fmt.Sprintf("projection %s/%s: when %d:%d: %s", e.Customer, e.Name, e.Line, e.Column, e.Msg)
}

// ValueError says that a field has no value for a document: its expression fails, its path
// returns a text that is not JSON by the rules of canonicaltree, or either exceeds the budget. It
// holds nothing of the document's content. Trying again does not help.
type ValueError struct {
	Customer, Name string
	Out            string
	Err            error // of canonicaltree.Parse, of the expression, or of the budget
}

// Error returns the field and the reason.
func (e *ValueError) Error() string {
	why := "the path returns a text that is not JSON"
	if computed := (*expressionError)(nil); errors.As(e.Err, &computed) {
		return fmt.Sprintf("projection %s/%s: field %s: expr %v", e.Customer, e.Name, e.Out, e.Err)
	} else if errors.Is(e.Err, errSteps) {
		why = "the path has no value"
	}
	return fmt.Sprintf("projection %s/%s: field %s: %s: %v", e.Customer, e.Name, e.Out, why, e.Err)
}

// Unwrap returns the cause.
func (e *ValueError) Unwrap() error { return e.Err }
