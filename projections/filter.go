package projections

import (
	"errors"
	"strconv"
	"sync"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/checker"
	"github.com/expr-lang/expr/conf"
	"github.com/expr-lang/expr/file"
	"github.com/expr-lang/expr/parser"
	"github.com/expr-lang/expr/types"
	"github.com/expr-lang/expr/vm"

	"github.com/seed-86dfc502/weir/canonicaltree"
)

// Limits of a filter, beside maxSteps. The library bounds neither its time nor the
// memory of its functions.
const (
	maxNodes  = 1000      // of the expression's tree
	maxLoops  = 3         // predicates inside one another
	maxRange  = 10_000    // numbers in a range a..b
	maxMemory = 1_000_000 // values that one evaluation may create
)

// filter is a compiled expression. Its uses of doc are slots: each is a path that
// is read from the document before the expression runs, so only the values that a filter
// uses are ever converted.
type filter struct {
	required *requirement // nil: see requirementOf
	program  *vm.Program
	slots    []slot
	runs     sync.Pool // of *run
}

type slot struct {
	name   string // of the variable in the program
	steps  []step
	number int // among the paths of the projection
}

// run is the state of one evaluation.
type run struct {
	budget
	vm  vm.VM
	env map[string]any
}

// runName is the variable that holds the run.
const runName = "$run"

// compileFilter compiles text. The faults are all that can be told at once; the
// library stops at its first.
func compileFilter(text string) (*filter, []Fault) {
	check := conf.CreateNew()
	expr.Env(types.Map{"doc": types.Any, "null": types.Nil})(check)
	expr.AsBool()(check)
	expr.MaxNodes(maxNodes)(check)
	for name := range check.Builtins {
		if !offered(name) {
			check.Disabled[name] = true
			delete(check.Builtins, name)
		}
	}
	tree, err := parser.ParseWithConfig(text, check)
	if err != nil {
		f := filterFault(err, `see "Filter" in docs/projections.md`)
		if f.Msg == `unexpected token Operator("=")` {
			f.Want = "write == to compare"
		}
		return nil, []Fault{f}
	}
	v := &validator{source: tree.Source, refused: map[ast.Node]bool{}}
	ast.Walk(&tree.Node, v)
	v.loops(tree.Node)
	v.condition(tree.Node)
	if len(v.faults) > 0 {
		return nil, v.faults
	}
	if _, err := checker.Check(tree, check); err != nil {
		return nil, []Fault{filterFault(err, wantCondition)}
	}

	required := requirementOf(tree.Node)
	t := &translator{paths: make(map[ast.Node][]step), bodies: make(map[ast.Node]int)}
	options := []expr.Option{
		expr.Env(map[string]any{}), expr.AllowUndefinedVariables(), // names are checked
		expr.AsBool(), expr.MaxNodes(0), expr.Optimize(false),
		expr.Patch(t), expr.Patch((*slotter)(t)),
	}
	program, err := expr.Compile(text, append(options, functions()...)...)
	if err != nil {
		return nil, []Fault{filterFault(err, "see \"Filter\" in docs/projections.md")}
	}
	f := &filter{required: required, program: program, slots: t.slots}
	f.runs.New = func() any { return &run{vm: vm.VM{MemoryBudget: maxMemory}, env: make(map[string]any, len(f.slots))} }
	return f, nil
}

// filterFault makes a fault of an error of the library.
func filterFault(err error, want string) Fault {
	f := Fault{Part: "when", Line: 1, Column: 1, Msg: err.Error(), Want: want}
	if at := (*file.Error)(nil); errors.As(err, &at) {
		f.Line, f.Column, f.Msg = at.Line, at.Column+1, at.Message
	}
	return f
}

// wantCondition is what to do about a filter that is none.
const wantCondition = `write a condition on doc, such as doc.origin == "EC"`

// match evaluates the filter.
func (f *filter) match(doc source) (bool, *FilterError) {
	if f.required != nil {
		if met := f.required.met(doc); !met || f.required.whole {
			return met, nil
		}
	}
	r := f.runs.Get().(*run)
	r.left = maxSteps
	r.env[runName] = r
	for i := range f.slots {
		r.env[f.slots[i].name] = toValue(doc.read(f.slots[i].number, f.slots[i].steps))
	}
	result, err := r.vm.Run(f.program, r.env)
	clear(r.env)
	f.runs.Put(r)
	if err != nil {
		e := &FilterError{Line: 1, Column: 1, Msg: "has no answer"}
		if at := (*file.Error)(nil); errors.As(err, &at) {
			e.Line, e.Column, e.Msg = at.Line, at.Column+1, at.Message
		}
		return false, e
	}
	match, _ := result.(bool) // the program ends in a conversion to bool
	return match, nil
}

// toValue converts a value for an expression. An integer that fits is an int,
// any other number the nearest float64, beyond its range an infinity.
func toValue(n canonicaltree.Node) any {
	switch n.Kind() {
	case canonicaltree.False:
		return false
	case canonicaltree.True:
		return true
	case canonicaltree.Number:
		literal := string(n.Raw())
		if i, err := strconv.Atoi(literal); err == nil {
			return i
		}
		f, _ := strconv.ParseFloat(literal, 64)
		return f
	case canonicaltree.String:
		text, _ := n.Text()
		return text
	case canonicaltree.Array:
		list := make([]any, 0, n.Len())
		for _, v := range n.Elements() {
			list = append(list, toValue(v))
		}
		return list
	case canonicaltree.Object:
		members := make(map[string]any, n.Len())
		for name, v := range n.Members() {
			members[name] = toValue(v)
		}
		return members
	}
	return nil // null, or absent
}

// functions returns the functions of a translated expression. Those that begin with $$
// have the run as their first argument and charge for their work.
var functions = sync.OnceValue(func() []expr.Option {
	options := []expr.Option{
		expr.Function("$get", func(a ...any) (any, error) { return get(a[0], a[1]), nil }, new(func(any, any) any)),
		expr.Function("$sliced", func(a ...any) (any, error) { return sliced(a[0]), nil }, new(func(any) any)),
		expr.Function("$bool", func(a ...any) (any, error) { return truth(a[0]) }, new(func(any) bool)),
		expr.Function("$equal", func(a ...any) (any, error) { return equal(a[0], a[1]), nil }, new(func(any, any) bool)),
		expr.Function("$in", func(a ...any) (any, error) { return in(a[0], a[1]) }, new(func(any, any) bool)),
		expr.Function("$$list", func(a ...any) (any, error) { return a[0].(*run).loop(a[1], a[2].(int)) }, new(func(any, any, int) any)),
		expr.Function("$$equal", func(a ...any) (any, error) { return a[0].(*run).equal(a[1], a[2]) }, new(func(any, any, any) bool)),
		expr.Function("$$in", func(a ...any) (any, error) { return a[0].(*run).in(a[1], a[2]) }, new(func(any, any, any) bool)),
		expr.Function("$$add", func(a ...any) (any, error) { return a[0].(*run).add(a[1], a[2]) }, new(func(any, any, any) any)),
		expr.Function("$$text", func(a ...any) (any, error) { return a[1], a[0].(*run).text(a[1], a[2].(int)) }, new(func(any, any, int) any)),
	}
	for operator, holds := range orderings {
		options = append(options, expr.Function("$"+operator, func(a ...any) (any, error) {
			return ordered(operator, holds, a[0], a[1])
		}, new(func(any, any) bool)), expr.Function("$$"+operator, func(a ...any) (any, error) {
			if err := a[0].(*run).text(a[1], 1); err != nil {
				return nil, err
			}
			return ordered(operator, holds, a[1], a[2])
		}, new(func(any, any, any) bool)))
	}
	for name, fn := range library() {
		options = append(options, expr.Function("$"+name, fn), expr.Function("$$"+name, func(a ...any) (any, error) {
			if err := a[0].(*run).charge(name, a[1:]); err != nil {
				return nil, err
			}
			return fn(a[1:]...)
		}))
	}
	return options
})
