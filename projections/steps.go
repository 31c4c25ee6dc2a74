package projections

import (
	"errors"
	"fmt"
	"math/bits"
	"strings"

	"github.com/expr-lang/expr/ast"
)

// maxSteps bounds one evaluation of a projection: its filter, and all its fields
// together. A step is about the work of one operation on two numbers, some tens of
// nanoseconds. Steps follow from the expression and the sizes of the values alone, so the
// same document is refused everywhere.
const maxSteps = 10_000_000

// Costs.
const (
	bytesRead     = 16  // bytes read in a step
	bytesCompared = 512 // bytes compared in a step, by a search
	bytesWritten  = 4   // bytes written in a step
	bytesQueried  = 32  // bytes that gjson reads in a step
	elementsRead  = 4   // elements compared in a step
	valueWritten  = 4   // steps to create a value
	valuePrinted  = 8   // steps to print a value
	hashSteps     = 20  // steps for a hash
	hashedBlock   = 3   // steps to hash bytesRead bytes
	sortRounds    = 20  // comparisons of a sort key, at most: log2 of the elements
	instructions  = 32  // instructions of a pattern that read a byte in a step
)

var errSteps = fmt.Errorf("takes more than %d steps", maxSteps)

// budget counts the steps down that an evaluation has left.
type budget struct{ left int }

// spend takes n steps; errSteps when fewer are left.
func (b *budget) spend(n int) error {
	if n > b.left {
		b.left = -1
		return errSteps
	}
	b.left -= n
	return nil
}

// read charges for reading a value with all that is in it.
func (b *budget) read(v any) error {
	switch v := v.(type) {
	case nil, bool, int, float64:
		return b.spend(1)
	case string:
		return b.spend(1 + len(v)/bytesRead)
	case wide:
		return b.spend(1 + len(v)/bytesRead)
	case []any:
		err := b.spend(1)
		for i := 0; i < len(v) && err == nil; i++ {
			err = b.read(v[i])
		}
		return err
	case map[string]any:
		err := b.spend(1)
		for name, member := range v {
			if err != nil {
				break
			}
			if err = b.spend(len(name) / bytesRead); err == nil {
				err = b.read(member)
			}
		}
		return err
	case groups:
		err := b.spend(1)
		for _, of := range v {
			if err != nil {
				break
			}
			err = b.read(of)
		}
		return err
	}
	return b.spend(1)
}

// text charges steps per bytesRead bytes for reading v if it is a string.
func (b *budget) text(v any, steps int) error {
	if s, ok := v.(string); ok {
		return b.spend(1 + len(s)/bytesRead*steps)
	}
	return nil
}

func lengthOf(v any) int {
	switch v := v.(type) {
	case nil:
		return 0
	case []any:
		return len(v)
	case map[string]any:
		return len(v)
	case groups:
		return len(v)
	case string:
		return len(v)
	}
	return 0
}

// constantTime are the functions whose work does not depend on the size of their arguments.
var constantTime = map[string]bool{
	"type": true, "abs": true, "ceil": true, "floor": true, "round": true, "first": true, "last": true, "take": true, "get": true,
}

// charge charges for a call of a scalar function.
func (b *budget) charge(name string, args []any) error {
	if len(args) == 0 {
		return nil
	}
	size, n := 0, lengthOf(args[0])
	switch name {
	case "len":
		return b.text(args[0], 1)
	case "concat", "reverse":
		for _, a := range args {
			size += lengthOf(a)
		}
		return b.spend(1 + valueWritten*size)
	}
	before := b.left
	for _, a := range args {
		if err := b.read(a); err != nil {
			return err
		}
	}
	size = before - b.left
	switch name {
	case "upper", "lower":
		return b.spend(n / bytesWritten)
	case "split", "replace":
		s, _ := args[0].(string)
		part, _ := args[min(1, len(args)-1)].(string)
		if name == "split" {
			return b.spend(valueWritten * (1 + strings.Count(s, part)))
		}
		with, _ := args[len(args)-1].(string)
		if len(args) > 2 {
			with, _ = args[2].(string)
		}
		return b.spend((n + strings.Count(s, part)*len(with)) / bytesWritten)
	case "join":
		glue, _ := args[len(args)-1].(string)
		return b.spend(size*bytesRead/bytesWritten + n*len(glue)/bytesWritten)
	case "string", "json", "format":
		return b.spend(size * valuePrinted)
	case "sha256", "hmac":
		return b.spend(hashSteps + size*hashedBlock)
	case "flatten":
		return b.spend(size * valueWritten)
	case "uniq":
		return b.spend(size * n / (2 * elementsRead))
	case "sort", "median":
		return b.spend(size * bits.Len(uint(n)))
	}
	return nil
}

// equal is [equal] with its cost, for values of any size.
func (b *budget) equal(x, y any) (any, error) {
	if err := b.read(x); err != nil {
		return nil, err
	}
	return equal(x, y), nil
}

// in is [in] with its cost.
func (b *budget) in(v, container any) (any, error) {
	list, n := 1, lengthOf(container)
	if _, object := container.(map[string]any); !object {
		list += n / elementsRead
	}
	if err := b.spend(list); err != nil {
		return nil, err
	}
	before := b.left
	err := b.read(v)
	switch v := v.(type) {
	case string:
		err = errors.Join(err, b.spend(n*len(v)/bytesCompared))
	case []any, map[string]any:
		err = errors.Join(err, b.spend(n*(before-b.left)/elementsRead))
	}
	if err != nil {
		return nil, errSteps
	}
	return in(v, container)
}

// add is the operator +.
func (b *budget) add(x, y any) (any, error) {
	s, _ := x.(string)
	t, _ := y.(string)
	if err := b.spend(1 + (len(s)+len(t))/bytesWritten); err != nil {
		return nil, err
	}
	return add(x, y)
}

// cut is [cut] with its cost.
func (b *budget) cut(v, from, to any) (any, error) {
	if err := b.text(v, 1); err != nil {
		return nil, err
	}
	return cut(v, from, to)
}

// operand is [operand] with the cost of reading v.
func (b *budget) operand(operator string, v any, steps int) (any, error) {
	if err := b.text(v, steps); err != nil {
		return nil, err
	}
	return operand(operator, v)
}

// loop charges for a loop over v before its first round: the steps of its body for each
// element, also where it may end early.
func (b *budget) loop(v any, body int) (any, error) {
	elements, err := list(v)
	if err == nil {
		err = b.spend(1 + lengthOf(elements)*body)
	}
	return elements, err
}

// query charges for a piece of a path that gjson reads from size bytes: each path in it may read
// them all, and @tostr may make six bytes of one.
func (b *budget) query(piece string, size int) error {
	reads := 1 + strings.Count(piece, ",")
	for range strings.Count(piece, "@tostr") {
		if reads *= 6; reads > maxSteps {
			return errSteps
		}
	}
	return b.spend(1 + size/bytesQueried*reads)
}

// fixed reports whether the expression alone bounds the size of a node's value.
func fixed(node ast.Node) bool {
	switch node.(type) {
	case *ast.NilNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.StringNode, *ast.ConstantNode:
		return true
	}
	return false
}
