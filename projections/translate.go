package projections

import (
	"fmt"
	"math"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"

	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/builtin"
	"github.com/expr-lang/expr/file"

	"github.com/seed-86dfc502/weir/canonicaltree"
)

// validator refuses expressions that the library accepts and a projection must not have.
type validator struct {
	source file.Source
	faults []Fault
	// refused are the nodes that condition found.
	refused map[ast.Node]bool
	secrets map[string][]byte
}

func (v *validator) fault(node ast.Node, msg, want string) {
	v.faults = append(v.faults, expressionFault((&file.Error{Location: node.Location(), Message: msg}).Bind(v.source), want))
}

// Visit implements ast.Visitor.
func (v *validator) Visit(node *ast.Node) {
	switch n := (*node).(type) {
	case *ast.FloatNode:
		v.literal(n)
	case *ast.BytesNode:
		v.fault(n, "is a list of bytes", "write a string, without the b before it")
	case *ast.IdentifierNode:
		if n.Value == "$env" {
			v.fault(n, "unknown name $env", "the names are doc and null; inside each also item")
		}
	case *ast.VariableDeclaratorNode:
		if n.Name[0] == '$' {
			v.fault(n, "the name "+n.Name+" is reserved", "begin a name with a letter")
		}
	case *ast.BuiltinNode:
		if !offered(n.Name) {
			v.refuse(n, n.Name)
		}
		if p := predicateOf(n); p != nil {
			v.condition(p.Node)
		}
	case *ast.CallNode:
		switch callee := n.Callee.(type) {
		case *ast.IdentifierNode:
			if _, known := extras()[callee.Value]; known {
				v.extra(n, callee.Value)
			} else {
				v.refuse(n, callee.Value)
			}
		default:
			v.fault(n, "calls a value", "only functions can be called; members of doc have none")
		}
	case *ast.BinaryNode:
		v.binary(n)
	case *ast.UnaryNode:
		if n.Operator == "not" || n.Operator == "!" {
			v.condition(n.Node)
		}
	case *ast.ConditionalNode:
		v.condition(n.Cond)
	}
}

// literal refuses a number that the program would hold with other digits.
func (v *validator) literal(n *ast.FloatNode) {
	at, source := n.Location(), []rune(v.source.String())
	text := strings.ReplaceAll(string(source[at.From:min(at.To, len(source))]), "_", "")
	if text != "" && !holds(n.Value, string(canonicaltree.AppendDecimal(nil, []byte(text)))) {
		v.fault(n, "is a number of more digits than 64 bits hold", "write fewer digits")
	}
}

// condition refuses a node in the place of a condition that can never be true or false. A node
// whose type depends on the document passes.
func (v *validator) condition(node ast.Node) {
	what := ""
	switch n := node.(type) {
	case *ast.IntegerNode, *ast.FloatNode:
		what = "a number"
	case *ast.StringNode:
		what = "a text"
	case *ast.ArrayNode, *ast.SliceNode:
		what = "a list"
	case *ast.MapNode:
		what = "an object"
	case *ast.UnaryNode:
		if n.Operator == "-" || n.Operator == "+" {
			what = "a number"
		}
	case *ast.BinaryNode:
		switch n.Operator {
		case "+":
			what = "a number or a text"
		case "-", "*", "/", "%", "**", "^":
			what = "a number"
		case "..":
			what = "a list"
		case "??":
			v.condition(n.Left)
			v.condition(n.Right)
		}
	case *ast.ConditionalNode:
		v.condition(n.Exp1)
		v.condition(n.Exp2)
	case *ast.ChainNode:
		v.condition(n.Node)
	case *ast.SequenceNode:
		v.condition(n.Nodes[len(n.Nodes)-1])
	case *ast.VariableDeclaratorNode:
		v.condition(n.Expr)
	case *ast.BuiltinNode:
		what = results[n.Name]
	case *ast.CallNode:
		if callee, ok := n.Callee.(*ast.IdentifierNode); ok && extras()[callee.Value].do != nil {
			what = "a value"
		}
	}
	if what != "" && !v.refused[node] {
		v.refused[node] = true
		v.fault(node, "is "+what+", which is neither true nor false", "compare it with something, such as doc.count > 1")
	}
}

// results are the result types of functions that never return a condition.
var results = map[string]string{
	"len": "a number", "abs": "a number", "ceil": "a number", "floor": "a number", "round": "a number",
	"int": "a number", "float": "a number", "indexOf": "a number", "lastIndexOf": "a number", "count": "a number",
	"sum": "a number", "mean": "a number", "median": "a number", "findIndex": "a number", "findLastIndex": "a number",
	"type": "a text", "string": "a text", "trim": "a text", "trimPrefix": "a text", "trimSuffix": "a text",
	"upper": "a text", "lower": "a text", "replace": "a text", "join": "a text",
	"split": "a list", "filter": "a list", "map": "a list", "sortBy": "a list", "take": "a list", "reverse": "a list",
	"concat": "a list", "flatten": "a list", "uniq": "a list", "sort": "a list", "groupBy": "an object",
}

func (v *validator) binary(n *ast.BinaryNode) {
	switch n.Operator {
	case "and", "&&", "or", "||":
		v.condition(n.Left)
		v.condition(n.Right)
	case "contains", "startsWith", "endsWith":
		v.operand(n.Operator, n.Left)
		v.operand(n.Operator, n.Right)
	case "%":
		for _, node := range []ast.Node{n.Left, n.Right} {
			if f, ok := node.(*ast.FloatNode); ok && math.Trunc(f.Value) != f.Value {
				v.fault(node, "is a fraction, of which % is not computed", "use a whole number, or round(), floor() or ceil()")
			}
		}
	case "matches":
		v.operand(n.Operator, n.Left)
		if _, constant := n.Right.(*ast.StringNode); !constant {
			v.fault(n, "matches a pattern that is not a constant", `write the pattern as a string, such as doc.id matches "^B-"`)
		}
	case "..":
		from, ok1 := n.Left.(*ast.IntegerNode)
		to, ok2 := n.Right.(*ast.IntegerNode)
		if !ok1 || !ok2 || to.Value-from.Value >= maxRange {
			v.fault(n, "is a range without a fixed size", fmt.Sprintf("write both ends as numbers, at most %d in all, or compare with < and <=", maxRange))
		}
	}
}

// operand refuses a literal that no operator of texts takes.
func (v *validator) operand(operator string, node ast.Node) {
	var sample any
	switch node.(type) {
	case *ast.IntegerNode, *ast.FloatNode:
		sample = 0
	case *ast.BoolNode:
		sample = false
	case *ast.ArrayNode:
		sample = []any{}
	case *ast.MapNode:
		sample = map[string]any{}
	}
	if _, err := operand(operator, sample); err != nil {
		msg, want, _ := strings.Cut(err.Error(), "; ")
		v.fault(node, msg, want)
	}
}

func (v *validator) refuse(node ast.Node, name string) {
	switch name {
	case "now", "date", "timezone", "duration":
		v.fault(node, name+"() depends on time or time zones", "a projection depends on the document alone; compare times as text in one format, such as RFC 3339 in UTC")
	case "keys", "values", "toPairs":
		v.fault(node, name+"() gives members in no certain order", "name the members, or test one with \"name\" in doc.object")
	default:
		if _, known := builtin.Index[name]; known {
			v.fault(node, name+"() is not offered", "see the functions in docs/projections.md")
		} else {
			v.fault(node, "unknown function "+name+"()", "see the functions in docs/projections.md")
		}
	}
}

// loops refuses predicates that are nested too deep: each level multiplies the
// work by the length of an array.
func (v *validator) loops(root ast.Node) {
	depth := make(map[ast.Node]int) // of predicates; the walk visits children first
	var tooDeep ast.Node
	ast.Walk(&root, visitor(func(n ast.Node) {
		p, ok := n.(*ast.PredicateNode)
		if !ok {
			return
		}
		ast.Walk(&p.Node, visitor(func(inner ast.Node) { depth[p] = max(depth[p], 1+depth[inner]) }))
		if depth[p] > maxLoops && tooDeep == nil {
			tooDeep = p
		}
	}))
	if tooDeep != nil {
		v.fault(tooDeep, fmt.Sprintf("has more than %d predicates inside one another", maxLoops), "let the document carry what is searched for so deep")
	}
}

// visitor is an ast.Visitor of a function.
type visitor func(ast.Node)

// Visit implements ast.Visitor.
func (v visitor) Visit(node *ast.Node) { v(*node) }

// translator replaces every operation whose meaning on null or on numbers the
// library leaves open by a function of this package, and every use of doc with
// fixed members by a variable. The walk goes from the inside out, so doc.a.b is
// doc, then doc.a, then doc.a.b.
type translator struct {
	uses    map[ast.Node]use // of the nodes that are a path of doc or item
	slots   []slot
	secrets map[string][]byte
	// bodies are the steps of the predicates, without those of the predicates in them.
	bodies map[ast.Node]int
	lists  int // variables of sortBy
}

func call(name string, arguments ...ast.Node) ast.Node {
	return &ast.CallNode{Callee: &ast.IdentifierNode{Value: "$" + name}, Arguments: arguments}
}

// charged is call for a function that charges for its work; bounded says that the
// expression alone bounds the work.
func charged(name string, bounded bool, arguments ...ast.Node) ast.Node {
	if bounded {
		return call(name, arguments...)
	}
	return call("$"+name, append([]ast.Node{&ast.IdentifierNode{Value: runName}}, arguments...)...)
}

// texted charges for reading the value of node if it is a string.
func texted(node ast.Node, steps int) ast.Node {
	if fixed(node) {
		return node
	}
	c := charged("text", false, node, &ast.IntegerNode{Value: steps})
	c.SetLocation(node.Location())
	return c
}

// Visit implements ast.Visitor.
func (t *translator) Visit(node *ast.Node) {
	switch n := (*node).(type) {
	case *ast.IdentifierNode:
		switch n.Value {
		case "doc", "item":
			t.read(node, use{item: n.Value == "item"})
		case "null":
			ast.Patch(node, &ast.NilNode{})
		}
	case *ast.MemberNode:
		t.member(node, n)
	case *ast.ChainNode:
		// Every access bears null, so a chain of ?. has nothing left to do.
		*node = n.Node
	case *ast.SliceNode:
		t.slice(node, n)
	case *ast.FloatNode:
		if i, ok := normal(n.Value).(int); ok {
			ast.Patch(node, &ast.IntegerNode{Value: i})
		}
	case *ast.UnaryNode:
		t.unary(node, n)
	case *ast.BinaryNode:
		t.binary(node, n)
	case *ast.ConditionalNode:
		n.Cond = asBool(n.Cond)
	case *ast.BuiltinNode:
		t.builtin(node, n)
	case *ast.CallNode:
		t.extra(node, n)
	case *ast.PairNode:
		n.Key = operandOf("key", n.Key, 1)
	}
}

// operandOf makes node an operand of an operator of texts, with a charge for reading it.
func operandOf(operator string, node ast.Node, steps int) ast.Node {
	if _, constant := node.(*ast.StringNode); constant {
		return node
	}
	c := charged("operand", false, &ast.StringNode{Value: operator}, node, &ast.IntegerNode{Value: steps})
	c.SetLocation(node.Location())
	return c
}

func (t *translator) slice(node *ast.Node, n *ast.SliceNode) {
	from, to := n.From, n.To
	if from == nil {
		from = &ast.IntegerNode{Value: 0}
	}
	if to == nil {
		to = &ast.IntegerNode{Value: math.MaxInt}
	}
	ast.Patch(node, charged("cut", false, n.Node, from, to))
}

func (t *translator) unary(node *ast.Node, n *ast.UnaryNode) {
	switch n.Operator {
	case "not", "!":
		n.Node = asBool(n.Node)
	case "-":
		switch v := n.Node.(type) {
		case *ast.IntegerNode:
			ast.Patch(node, &ast.IntegerNode{Value: -v.Value})
		case *ast.FloatNode:
			ast.Patch(node, &ast.FloatNode{Value: -v.Value})
		default:
			ast.Patch(node, call("negate", n.Node))
		}
	case "+":
		ast.Patch(node, call("add", &ast.IntegerNode{Value: 0}, n.Node))
	}
}

// read makes a node a use of a path.
func (t *translator) read(node *ast.Node, of use) {
	name := &ast.IdentifierNode{Value: "$doc"}
	ast.Patch(node, name)
	t.uses[name] = of
}

func (t *translator) member(node *ast.Node, n *ast.MemberNode) {
	if base, ok := t.uses[n.Node]; ok {
		size := len(base.steps)
		next := use{base.item, append(base.steps[:size:size], step{index: -1})}
		last := &next.steps[size]
		switch property := n.Property.(type) {
		case *ast.StringNode:
			last.name = property.Value
			t.read(node, next)
			return
		case *ast.IntegerNode:
			if property.Value >= 0 {
				last.index = property.Value
				t.read(node, next)
				return
			}
		}
	}
	ast.Patch(node, call("get", n.Node, texted(n.Property, 1)))
}

func (t *translator) binary(node *ast.Node, n *ast.BinaryNode) {
	switch n.Operator {
	case "==":
		ast.Patch(node, charged("equal", fixed(n.Left) || fixed(n.Right), n.Left, n.Right))
	case "!=":
		ast.Patch(node, &ast.UnaryNode{Operator: "not", Node: charged("equal", fixed(n.Left) || fixed(n.Right), n.Left, n.Right)})
	case "<", "<=", ">", ">=":
		ast.Patch(node, charged(n.Operator, fixed(n.Left) || fixed(n.Right), n.Left, n.Right))
	case "..": // the validator takes numbers alone
		from, to := n.Left.(*ast.IntegerNode).Value, n.Right.(*ast.IntegerNode).Value
		numbers := make([]any, 0, max(0, to-from+1))
		for i := from; i <= to; i++ {
			numbers = append(numbers, i)
		}
		ast.Patch(node, &ast.ConstantNode{Value: numbers})
	case "in":
		list := constant(n.Right)
		ast.Patch(node, charged("in", fixed(list), n.Left, list))
	case "+":
		ast.Patch(node, charged("add", isNumber(n.Left) || isNumber(n.Right), n.Left, n.Right))
	case "-":
		ast.Patch(node, call("subtract", n.Left, n.Right))
	case "*":
		ast.Patch(node, call("multiply", n.Left, n.Right))
	case "/":
		ast.Patch(node, call("divide", n.Left, n.Right))
	case "%":
		ast.Patch(node, call("modulo", n.Left, n.Right))
	case "**", "^":
		ast.Patch(node, call("power", n.Left, n.Right))
	case "contains", "startsWith", "endsWith":
		n.Left, n.Right = operandOf(n.Operator, n.Left, 1), operandOf(n.Operator, n.Right, 1)
	case "matches":
		n.Left = operandOf(n.Operator, n.Left, bytesRead*patternSteps(n.Right))
	case "and", "&&", "or", "||":
		n.Left, n.Right = asBool(n.Left), asBool(n.Right)
	}
}

func isNumber(node ast.Node) bool {
	switch node.(type) {
	case *ast.IntegerNode, *ast.FloatNode:
		return true
	}
	return false
}

// patternSteps returns the steps for a byte that a pattern reads.
func patternSteps(pattern ast.Node) int {
	text, _ := pattern.(*ast.StringNode) // the validator takes no other
	parsed, err := syntax.Parse(text.Value, syntax.Perl)
	if err != nil {
		return 1 // the compiler refuses it
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return 1
	}
	return 1 + len(program.Inst)/instructions
}

// constant makes one value of an array of literals, which is else built again at
// every evaluation.
func constant(node ast.Node) ast.Node {
	array, ok := node.(*ast.ArrayNode)
	if !ok {
		return node
	}
	values := make([]any, len(array.Nodes))
	for i, n := range array.Nodes {
		switch n := n.(type) {
		case *ast.StringNode:
			values[i] = n.Value
		case *ast.IntegerNode:
			values[i] = n.Value
		default:
			return node
		}
	}
	c := &ast.ConstantNode{Value: values}
	c.SetLocation(array.Location())
	return c
}

func (t *translator) builtin(node *ast.Node, n *ast.BuiltinNode) {
	if !predicates[n.Name] {
		bounded := constantTime[n.Name] || !slices.ContainsFunc(n.Arguments, func(a ast.Node) bool { return !fixed(a) })
		ast.Patch(node, charged(n.Name, bounded, n.Arguments...))
		return
	}
	if n.Name == "count" && len(n.Arguments) == 1 { // counts what is true
		n.Arguments = append(n.Arguments, &ast.PredicateNode{Node: &ast.PointerNode{}})
	}
	body := 1
	if len(n.Arguments) > 1 {
		if p, ok := n.Arguments[1].(*ast.PredicateNode); ok {
			switch n.Name {
			case "sortBy":
				p.Node = texted(p.Node, sortRounds)
				body += sortRounds
			case "groupBy":
				p.Node = call("group", texted(p.Node, 1))
			}
			body += t.weigh(p)
		}
	}
	n.Arguments[0] = charged("list", false, n.Arguments[0], &ast.IntegerNode{Value: body})
	if p := predicateOf(n); p != nil {
		p.Node = asBool(p.Node)
	}
	switch n.Name {
	case "sortBy":
		t.sortBy(node, n)
	case "sum": // the library's wraps around
		summands := n.Arguments[0]
		if len(n.Arguments) > 1 {
			summands = &ast.BuiltinNode{Name: "map", Arguments: n.Arguments}
		}
		ast.Patch(node, call("sum", summands))
	}
}

// sortBy replaces the library's, which does not order by number and leaves equal keys unordered.
func (t *translator) sortBy(node *ast.Node, n *ast.BuiltinNode) {
	t.lists++
	list := func() ast.Node { return &ast.IdentifierNode{Value: "$list" + strconv.Itoa(t.lists)} }
	keys := &ast.BuiltinNode{Name: "map", Arguments: append([]ast.Node{list()}, n.Arguments[1:]...)}
	arguments := []ast.Node{list(), list()}
	if len(n.Arguments) > 1 {
		keys.Arguments = keys.Arguments[:2]
		arguments = append([]ast.Node{list(), keys}, n.Arguments[2:]...)
	}
	sorted := call("sortBy", arguments...)
	sorted.SetLocation(n.Location())
	name := list().(*ast.IdentifierNode).Value
	ast.Patch(node, &ast.VariableDeclaratorNode{Name: name, Value: n.Arguments[0], Expr: sorted})
}

// weigh returns the steps of one round of a predicate's operations, except inner loops, which
// charge on their own.
func (t *translator) weigh(p *ast.PredicateNode) (steps int) {
	ast.Walk(&p.Node, visitor(func(node ast.Node) {
		steps++
		switch n := node.(type) {
		case *ast.StringNode:
			steps += len(n.Value) / bytesRead
		case *ast.CallNode: // one without a charge of its own may compare all of a constant
			for _, a := range n.Arguments {
				if c, ok := a.(*ast.ConstantNode); ok && !strings.HasPrefix(n.Callee.(*ast.IdentifierNode).Value, "$$") {
					steps += lengthOf(c.Value) / elementsRead
				}
			}
		case *ast.PredicateNode:
			steps -= t.bodies[n]
		}
	}))
	t.bodies[p] = steps
	return steps
}

// predicateOf returns the condition of a function that loops over an array, or nil where it has
// none.
func predicateOf(n *ast.BuiltinNode) *ast.PredicateNode {
	switch n.Name {
	case "map", "sum", "groupBy", "sortBy", "reduce":
		return nil // their predicates return values
	}
	if !predicates[n.Name] || len(n.Arguments) < 2 {
		return nil
	}
	p, _ := n.Arguments[1].(*ast.PredicateNode)
	return p
}

// asBool makes node a condition, in which null is false. Type information is
// not used: it is stale while the tree changes.
func asBool(node ast.Node) ast.Node {
	switch n := node.(type) {
	case *ast.BoolNode:
		return node
	case *ast.UnaryNode:
		if n.Operator == "not" || n.Operator == "!" {
			return node
		}
	case *ast.CallNode:
		switch n.Callee.(*ast.IdentifierNode).Value {
		case "$equal", "$in", "$<", "$<=", "$>", "$>=", "$bool", "$$equal", "$$in", "$$<", "$$<=", "$$>", "$$>=":
			return node
		}
	}
	c := call("bool", node)
	c.SetLocation(node.Location())
	return c
}

// slotter is the translator's second walk: it names the uses of doc that are
// left, one name for each path.
type slotter translator

// Visit implements ast.Visitor.
func (s *slotter) Visit(node *ast.Node) {
	name, ok := (*node).(*ast.IdentifierNode)
	if !ok {
		return
	}
	of, ok := s.uses[name]
	if !ok {
		return
	}
	for _, known := range s.slots {
		if known.item == of.item && slices.Equal(known.steps, of.steps) {
			name.Value = known.name
			return
		}
	}
	name.Value = "$" + strconv.Itoa(len(s.slots))
	s.slots = append(s.slots, slot{name: name.Value, use: of})
}
