package projections

import (
	"errors"
	"fmt"
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

// Limits of an expression, beside maxSteps. The library bounds neither its time nor the
// memory of its functions.
const (
	maxNodes  = 1000      // of the expression's tree
	maxLoops  = 3         // predicates inside one another
	maxRange  = 10_000    // numbers in a range a..b
	maxMemory = 1_000_000 // values that one evaluation may create
)

// expression is a compiled filter or computed field. Its uses of doc and item are slots: each
// is a path that is read before the program runs, so only the values that it uses are
// converted.
type expression struct {
	program *vm.Program
	slots   []slot
	runs    sync.Pool // of *run
}

type slot struct {
	name string // of the variable in the program
	use
	number int // among the paths of the projection; of doc only
}

// use is a path that an expression reads.
type use struct {
	item  bool // of the element that each maps, not of doc
	steps []step
}

// run is the state of one evaluation.
type run struct {
	budget
	vm  vm.VM
	env map[string]any
}

// runName is the variable that holds the run.
const runName = "$run"

// dialect says which expressions are allowed.
type dialect struct {
	condition bool // a filter
	item      bool // inside each
	secrets   map[string][]byte
}

// compileExpression compiles text. The faults are all that can be found at once. The library
// stops at its first.
func compileExpression(text string, d dialect) (*expression, *requirement, []Fault) {
	check := conf.CreateNew()
	names := types.Map{"doc": types.Any, "null": types.Nil}
	if d.item {
		names["item"] = types.Any
	}
	expr.Env(names)(check)
	see, result := `see "Filter" in docs/projections.md`, expr.AsAny()
	if d.condition {
		result = expr.AsBool()
	}
	result(check)
	expr.MaxNodes(maxNodes)(check)
	for name := range check.Builtins {
		if !offered(name) {
			check.Disabled[name] = true
			delete(check.Builtins, name)
		}
	}
	for name, f := range extras() {
		expr.Function(name, f.do, f.signature)(check)
	}
	tree, err := parser.ParseWithConfig(text, check)
	if err != nil {
		f := expressionFault(err, see)
		if f.Msg == `unexpected token Operator("=")` {
			f.Want = "write == to compare"
		}
		return nil, nil, []Fault{f}
	}
	v := &validator{source: tree.Source, refused: map[ast.Node]bool{}, secrets: d.secrets}
	ast.Walk(&tree.Node, v)
	v.loops(tree.Node)
	if d.condition {
		v.condition(tree.Node)
		see = wantCondition
	}
	if len(v.faults) > 0 {
		return nil, nil, v.faults
	}
	if _, err := checker.Check(tree, check); err != nil {
		return nil, nil, []Fault{expressionFault(err, see)}
	}

	required := requirementOf(tree.Node)
	t := &translator{uses: make(map[ast.Node]use), bodies: make(map[ast.Node]int), secrets: d.secrets}
	options := []expr.Option{
		expr.Env(map[string]any{}), expr.AllowUndefinedVariables(), // names are checked
		expr.AsAny(), expr.MaxNodes(0), expr.Optimize(false),
		expr.Patch(t), expr.Patch((*slotter)(t)),
	}
	program, err := expr.Compile(text, append(options, functions()...)...)
	if err != nil {
		return nil, nil, []Fault{expressionFault(err, see)}
	}
	e := &expression{program: program, slots: t.slots}
	e.runs.New = func() any { return &run{vm: vm.VM{MemoryBudget: maxMemory}, env: make(map[string]any, len(e.slots))} }
	return e, required, nil
}

// expressionFault makes a fault of an error of the library.
func expressionFault(err error, want string) Fault {
	f := Fault{Part: "when", Line: 1, Column: 1, Msg: err.Error(), Want: want}
	if at := (*file.Error)(nil); errors.As(err, &at) {
		f.Line, f.Column, f.Msg = at.Line, at.Column+1, at.Message
	}
	return f
}

// wantCondition is the remedy for a filter that is no condition.
const wantCondition = `write a condition on doc, such as doc.origin == "EC"`

// expressionError says where an expression failed, and why: types, never values.
type expressionError struct {
	line, column int
	msg          string
}

// Error returns the place and the reason.
func (e *expressionError) Error() string { return fmt.Sprintf("%d:%d: %s", e.line, e.column, e.msg) }

// evaluate runs the expression within b, which is below 0 when it was exceeded.
func (e *expression) evaluate(b *budget, doc source, item canonicaltree.Node) (any, *expressionError) {
	r := e.runs.Get().(*run)
	r.budget = *b
	r.env[runName] = r
	for i := range e.slots {
		s := &e.slots[i]
		var v canonicaltree.Node
		if s.item {
			v, _ = follow(item, s.steps)
		} else {
			v = doc.read(s.number, s.steps)
		}
		r.env[s.name] = toValue(v)
	}
	result, err := r.vm.Run(e.program, r.env)
	*b = r.budget
	clear(r.env)
	e.runs.Put(r)
	if err == nil {
		return result, nil
	}
	failed := &expressionError{line: 1, column: 1, msg: "has no answer"}
	if at := (*file.Error)(nil); errors.As(err, &at) {
		failed.line, failed.column, failed.msg = at.Line, at.Column+1, at.Message
	}
	return nil, failed
}

// toValue converts a value for an expression.
func toValue(n canonicaltree.Node) any {
	switch n.Kind() {
	case canonicaltree.False:
		return false
	case canonicaltree.True:
		return true
	case canonicaltree.Number:
		return numberOf(string(n.Raw()))
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
		expr.Function("$group", func(a ...any) (any, error) { return group(a[0]) }, new(func(any) any)),
		expr.Function("$sortBy", func(a ...any) (any, error) {
			list, _ := a[0].([]any) // the loop over it checked
			return sortedBy("sortBy", list, a[1].([]any), a[2:])
		}),
		expr.Function("$bool", func(a ...any) (any, error) { return truth(a[0]) }, new(func(any) bool)),
		expr.Function("$equal", func(a ...any) (any, error) { return equal(a[0], a[1]), nil }, new(func(any, any) bool)),
		expr.Function("$in", func(a ...any) (any, error) { return in(a[0], a[1]) }, new(func(any, any) bool)),
		expr.Function("$$list", func(a ...any) (any, error) { return a[0].(*run).loop(a[1], a[2].(int)) }, new(func(any, any, int) any)),
		expr.Function("$$equal", func(a ...any) (any, error) { return a[0].(*run).equal(a[1], a[2]) }, new(func(any, any, any) bool)),
		expr.Function("$$in", func(a ...any) (any, error) { return a[0].(*run).in(a[1], a[2]) }, new(func(any, any, any) bool)),
		expr.Function("$$add", func(a ...any) (any, error) { return a[0].(*run).add(a[1], a[2]) }, new(func(any, any, any) any)),
		expr.Function("$add", func(a ...any) (any, error) { return add(a[0], a[1]) }, new(func(any, any) any)),
		expr.Function("$subtract", func(a ...any) (any, error) { return subtract(a[0], a[1]) }, new(func(any, any) any)),
		expr.Function("$divide", func(a ...any) (any, error) { return divide(a[0], a[1]) }, new(func(any, any) any)),
		expr.Function("$modulo", func(a ...any) (any, error) { return modulo(a[0], a[1]) }, new(func(any, any) any)),
		expr.Function("$power", func(a ...any) (any, error) { return power(a[0], a[1]) }, new(func(any, any) any)),
		expr.Function("$negate", func(a ...any) (any, error) { return negate(a[0]) }, new(func(any) any)),
		expr.Function("$multiply", func(a ...any) (any, error) { return multiply(a[0], a[1]) }, new(func(any, any) any)),
		expr.Function("$sum", func(a ...any) (any, error) { return sum(a[0]) }, new(func(any) any)),
		expr.Function("$$cut", func(a ...any) (any, error) { return a[0].(*run).cut(a[1], a[2], a[3]) }, new(func(any, any, any, any) any)),
		expr.Function("$$operand", func(a ...any) (any, error) { return a[0].(*run).operand(a[1].(string), a[2], a[3].(int)) }, new(func(any, any, any, any) any)),
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
