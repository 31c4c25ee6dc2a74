package projections

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/big"
	"regexp"
	"strconv"
	"strings"

	"github.com/seed-86dfc502/weir/canonicaltree"
)

// A number of an expression has one form for all its spellings: an int if it is whole and
// fits into 64 bits, else a float64 if that prints as the number, else a wide. Equal numbers
// have equal forms.

// wide is a number that neither an int nor a float64 holds, in the normal form of
// [canonicaltree.AppendDecimal]. It is compared, copied and printed exactly, and not computed
// with.
type wide string

// number is an int64, a float64 if real, or wide unless that is empty.
type number struct {
	i    int64
	f    float64
	real bool
	wide wide
}

const (
	exactFloat = 1 << 53 // up to here a float64 holds every whole number
	halves     = 1 << 52 // from here on it holds no fraction
	beyondInt  = 1 << 63
)

// Errors of arithmetic, with how to avoid them.
var (
	errOverflow = errors.New("integer overflow: the result exceeds 64 bits; show the parts as fields of their own")
	errRounded  = errors.New("the result has more digits than 64 bits hold; show the parts as fields of their own")
	errWide     = errors.New("cannot compute with a number of more digits than 64 bits hold; compare it, or show it by a path")
	errZero     = errors.New("cannot divide by zero; test the divisor first, such as doc.n == 0 ? null : doc.m / doc.n")
)

func toNumber(v any) (number, bool) {
	switch v := v.(type) {
	case int:
		return number{i: int64(v)}, true
	case float64:
		return number{f: v, real: true}, true
	case wide:
		return number{wide: v}, true
	}
	return number{}, false
}

// numberOf returns the form of a JSON number.
func numberOf(literal string) any {
	if i, err := strconv.Atoi(literal); err == nil {
		return i
	}
	f, err := strconv.ParseFloat(literal, 64)
	// A float64 holds any number of up to 15 digits.
	if len(literal) <= 15 && !strings.ContainsAny(literal, "eE") {
		return normal(f)
	}
	decimal := string(canonicaltree.AppendDecimal(nil, []byte(literal)))
	digits, power, _ := strings.Cut(decimal, "e")
	if p, err := strconv.Atoi("0" + power); err == nil && p <= 18 && len(digits) <= 20 {
		if i, err := strconv.Atoi(digits + strings.Repeat("0", p)); err == nil {
			return i
		}
	}
	if err == nil && holds(f, decimal) {
		return normal(f)
	}
	return wide(decimal)
}

// holds reports whether a program that prints f, with as many digits as it likes, may print
// decimal. A whole number has to be the shortest text of f: its digits are not guessed at.
func holds(f float64, decimal string) bool {
	if string(decimalOf(number{f: f, real: true})) == decimal {
		return true
	}
	digits, _, _ := strings.Cut(strings.TrimPrefix(decimal, "-"), "e")
	if math.Abs(f) >= exactFloat || len(digits) > 800 {
		return false
	}
	printed := strconv.AppendFloat(nil, f, 'e', len(digits)-1, 64)
	return string(canonicaltree.AppendDecimal(nil, printed)) == decimal
}

// decimalOf returns the normal form of a number's shortest text.
func decimalOf(n number) wide {
	switch {
	case n.wide != "":
		return n.wide
	case n.real:
		return wide(canonicaltree.AppendDecimal(nil, strconv.AppendFloat(nil, n.f, 'e', -1, 64)))
	}
	return wide(canonicaltree.AppendDecimal(nil, strconv.AppendInt(nil, n.i, 10)))
}

// normal returns the form of a finite float64.
func normal(f float64) any {
	if f >= -beyondInt && f < beyondInt && math.Trunc(f) == f {
		return int(f)
	}
	return f
}

// compare compares exactly, also an int64 with a float64 that cannot hold it. ok is false if
// either is not a number by IEEE 754.
func (x number) compare(y number) (order int, ok bool) {
	switch {
	case x.wide != "" || y.wide != "":
		return compareDecimals(decimalOf(x), decimalOf(y)), true
	case !x.real && !y.real:
		return cmp.Compare(x.i, y.i), true
	case x.real && y.real:
		return cmp.Compare(x.f, y.f), !math.IsNaN(x.f) && !math.IsNaN(y.f)
	case x.real:
		order, ok = y.compare(x)
		return -order, ok
	}
	switch whole := math.Trunc(y.f); {
	case math.IsNaN(y.f):
		return 0, false
	case whole >= beyondInt:
		return -1, true
	case whole < -beyondInt:
		return 1, true
	default:
		if c := cmp.Compare(x.i, int64(whole)); c != 0 {
			return c, true
		}
		return cmp.Compare(0, y.f-whole), true
	}
}

// compareDecimals compares two normal forms.
func compareDecimals(a, b wide) int {
	if x, y := sign(a), sign(b); x != y || x == 0 {
		return cmp.Compare(x, y)
	}
	if a[0] == '-' {
		return compareDecimals(b[1:], a[1:])
	}
	x, p, _ := strings.Cut(string(a), "e")
	y, q, _ := strings.Cut(string(b), "e")
	if c := magnitude(x, p).Cmp(magnitude(y, q)); c != 0 {
		return c
	}
	return cmp.Compare(x, y) // digits have no zeros at their end
}

func sign(d wide) int {
	switch d[0] {
	case '0':
		return 0
	case '-':
		return -1
	}
	return 1
}

// magnitude returns the place of the first digit. An exponent may have any length.
func magnitude(digits, power string) *big.Int {
	m := new(big.Int)
	if power != "" {
		m.SetString(power, 10)
	}
	return m.Add(m, big.NewInt(int64(len(digits))))
}

// append appends the digits, with an exponent only where they would be many more.
func (d wide) append(dst []byte) []byte {
	const zeros = 40 // that are written out
	text := string(d)
	if text[0] == '-' {
		dst, text = append(dst, '-'), text[1:]
	}
	digits, exponent, _ := strings.Cut(text, "e")
	power, err := strconv.Atoi(exponent)
	switch point := len(digits) + power; {
	case exponent == "":
		return append(dst, digits...)
	case err != nil || power > zeros || point < -6:
		return append(dst, text...)
	case power > 0:
		return append(append(dst, digits...), strings.Repeat("0", power)...)
	case point > 0:
		return append(append(append(dst, digits[:point]...), '.'), digits[point:]...)
	default:
		return append(append(append(dst, "0."...), strings.Repeat("0", -point)...), digits...)
	}
}

// operands returns two numbers to compute with.
func operands(operator string, x, y any) (a, b number, err error) {
	a, ok1 := toNumber(x)
	b, ok2 := toNumber(y)
	switch {
	case x == nil || y == nil:
		err = fmt.Errorf("cannot compute %s %s %s; write (doc.x ?? 0) where a value may be absent", typeOf(x), operator, typeOf(y))
	case !ok1 || !ok2:
		err = fmt.Errorf("cannot compute %s %s %s; convert with int(), float() or string()", typeOf(x), operator, typeOf(y))
	case a.wide != "" || b.wide != "":
		err = errWide
	}
	return a, b, err
}

// float returns the number and whether a float64 holds it.
func (x number) float() (float64, bool) {
	if x.real {
		return x.f, true
	}
	f := float64(x.i)
	return f, f < beyondInt && int64(f) == x.i
}

// big returns the number exactly.
func (x number) big() *big.Float {
	if x.real {
		return big.NewFloat(x.f)
	}
	return new(big.Float).SetInt64(x.i)
}

// nearest returns the form of a result: the nearest float64 if it is below halves, else only an
// exact one.
func nearest(f float64, exact bool) (any, error) {
	if math.IsInf(f, 0) || math.Abs(f) >= halves && !exact {
		return nil, errRounded
	}
	return normal(f), nil
}

// fraction returns the result of operator where an operand or the result has a fraction. f is the
// result for a and b as float64, and remainder its rounding error.
func fraction(a, b number, operator func(z, x, y *big.Float) *big.Float, float func(x, y float64) (f, remainder float64)) (any, error) {
	x, ok1 := a.float()
	y, ok2 := b.float()
	if ok1 && ok2 {
		if f, remainder := float(x, y); remainder == 0 || math.Abs(f) < halves {
			return nearest(f, remainder == 0)
		}
	}
	const exactly = 192 // bits, which hold any whole result within 64
	z := operator(new(big.Float).SetPrec(exactly), a.big(), b.big())
	if i, exact := z.Int64(); exact == big.Exact && z.Acc() == big.Exact {
		return int(i), nil
	}
	f, exact := z.Float64()
	return nearest(f, exact == big.Exact && z.Acc() == big.Exact)
}

// twoSum returns the sum and its rounding error.
func twoSum(x, y float64) (sum, remainder float64) {
	sum = x + y
	part := sum - x
	return sum, (x - (sum - part)) + (y - part)
}

func add(x, y any) (any, error) {
	if s, ok := x.(string); ok {
		if t, ok := y.(string); ok {
			return s + t, nil
		}
	}
	a, b, err := operands("+", x, y)
	if err != nil {
		return nil, err
	}
	if a.real || b.real {
		return fraction(a, b, (*big.Float).Add, twoSum)
	}
	if s := a.i + b.i; (s > a.i) == (b.i > 0) {
		return int(s), nil
	}
	return nil, errOverflow
}

func subtract(x, y any) (any, error) {
	a, b, err := operands("-", x, y)
	if err != nil {
		return nil, err
	}
	if a.real || b.real {
		return fraction(a, b, (*big.Float).Sub, func(x, y float64) (float64, float64) { return twoSum(x, -y) })
	}
	if d := a.i - b.i; (d < a.i) == (b.i > 0) {
		return int(d), nil
	}
	return nil, errOverflow
}

func multiply(x, y any) (any, error) {
	a, b, err := operands("*", x, y)
	if err != nil {
		return nil, err
	}
	if a.real || b.real {
		return fraction(a, b, (*big.Float).Mul, func(x, y float64) (float64, float64) {
			p := x * y
			return p, math.FMA(x, y, -p)
		})
	}
	if a.i == 0 || b.i == 0 {
		return 0, nil
	}
	if p := a.i * b.i; p/b.i == a.i && (p < 0) == ((a.i < 0) != (b.i < 0)) {
		return int(p), nil
	}
	return nil, errOverflow
}

func divide(x, y any) (any, error) {
	a, b, err := operands("/", x, y)
	switch {
	case err != nil:
		return nil, err
	case !b.real && b.i == 0:
		return nil, errZero
	case !a.real && !b.real && b.i != -1 && a.i%b.i == 0:
		return int(a.i / b.i), nil
	case !a.real && !b.real && b.i == -1:
		return negate(x)
	}
	return fraction(a, b, (*big.Float).Quo, func(x, y float64) (float64, float64) {
		q := x / y
		return q, math.FMA(q, y, -x)
	})
}

// whole returns two whole numbers within 64 bits.
func whole(operator string, x, y any) (a, b int64, err error) {
	m, n, err := operands(operator, x, y)
	if err == nil && (m.real || n.real) {
		err = fmt.Errorf("cannot compute %s of a fraction; it needs whole numbers within 64 bits, use round(), floor() or ceil() first", operator)
	}
	return m.i, n.i, err
}

func modulo(x, y any) (any, error) {
	a, b, err := whole("%", x, y)
	switch {
	case err != nil:
		return nil, err
	case b == 0:
		return nil, errZero
	}
	return int(a % b), nil
}

func power(x, y any) (any, error) {
	base, exponent, err := whole("**", x, y)
	if err != nil {
		return nil, err
	}
	if exponent < 0 {
		return nil, errors.New("cannot compute ** of a negative exponent; divide instead, such as 1 / 10 ** 3")
	}
	var result, square any = 1, int(base)
	for {
		if exponent&1 == 1 {
			if result, err = multiply(result, square); err != nil {
				return nil, err
			}
		}
		if exponent >>= 1; exponent == 0 {
			return result, nil
		}
		if square, err = multiply(square, square); err != nil {
			return nil, err
		}
	}
}

func negate(x any) (any, error) {
	n, ok := toNumber(x)
	switch {
	case x == nil:
		return nil, errors.New("cannot compute - of null; write (doc.x ?? 0) where a value may be absent")
	case !ok:
		return nil, fmt.Errorf("cannot compute - of %s; convert with int() or float()", typeOf(x))
	case n.wide != "" && n.wide[0] == '-':
		return n.wide[1:], nil
	case n.wide != "":
		return "-" + n.wide, nil
	case n.real:
		return normal(-n.f), nil
	case n.i == math.MinInt64:
		return nil, errOverflow
	}
	return int(-n.i), nil
}

func absolute(x any) (any, error) {
	if order, _ := mustNumber(x).compare(number{}); order < 0 {
		return negate(x)
	}
	return x, nil
}

// rounded returns one of the functions that make a number whole.
func rounded(to func(float64) float64) func(any) (any, error) {
	return func(x any) (any, error) {
		switch n := mustNumber(x); {
		case n.wide != "":
			return nil, errWide
		case n.real:
			return normal(to(n.f)), nil
		}
		return x, nil
	}
}

func mustNumber(x any) number {
	n, _ := toNumber(x) // the caller checked
	return n
}

var (
	wholeText   = regexp.MustCompile(`^[+-]?[0-9]+$`)
	decimalText = regexp.MustCompile(`^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?$`)
)

// integer is int: without the digits behind the point, or the whole number that a text is.
func integer(x any) (any, error) {
	switch x := x.(type) {
	case string:
		if !wholeText.MatchString(x) {
			return nil, errors.New("int(string) cannot be computed, it needs the digits of a whole number; use float() for others")
		}
		i, err := strconv.ParseInt(x, 10, 64)
		if err != nil {
			return nil, errOverflow
		}
		return int(i), nil
	case float64:
		if i, ok := normal(math.Trunc(x)).(int); ok {
			return i, nil
		}
		return nil, errOverflow
	case wide:
		return nil, errWide
	case int:
		return x, nil
	}
	return nil, cannot("int", []any{x}, "a number or a string")
}

// decimal is float: the number that a text is, as JSON writes it.
func decimal(x any) (any, error) {
	switch x := x.(type) {
	case string:
		if !decimalText.MatchString(x) {
			return nil, errors.New("float(string) cannot be computed, it needs a number as JSON writes it")
		}
		return numberOf(x), nil
	case int, float64, wide:
		return x, nil
	}
	return nil, cannot("float", []any{x}, "a number or a string")
}

// sum adds up a list.
func sum(list any) (total any, err error) {
	elements, ok := list.([]any)
	if !ok {
		return nil, cannot("sum", []any{list}, "an array")
	}
	total = 0
	for i := 0; i < len(elements) && err == nil; i++ {
		total, err = add(total, elements[i])
	}
	return total, err
}
