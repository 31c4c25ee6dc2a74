package clickhouse

import (
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/ClickHouse/clickhouse-go/v2/lib/column"
	"github.com/tidwall/gjson"
)

// converter turns a JSON value into what a column of its type takes, or says
// why that cannot be; its errors hold no value.
type converter func(gjson.Result) (any, error)

var (
	errKind  = errors.New("a JSON value of the wrong kind")
	errRange = errors.New("a number that does not fit")
	errTime  = errors.New("not a point in time")
	errNull  = errors.New("null or absent, and the type is not Nullable")

	// hugeExponent is one that big.Rat would take minutes for.
	hugeExponent = regexp.MustCompile(`[eE][+-]?\d{4,}`)
	wholeNumber  = regexp.MustCompile(`^(U?)Int(8|16|32|64|128|256)$`)
	decimalType  = regexp.MustCompile(`^Decimal\((\d+),(\d+)\)$`)
	decimalSize  = regexp.MustCompile(`^Decimal(32|64|128|256)\((\d+)\)$`)
)

// canonicalType spells a type as servers report it, without spaces but those in the
// names of an enumeration's members.
func canonicalType(t string) string {
	quoted, escaped := false, false
	t = strings.Map(func(r rune) rune {
		switch {
		case !quoted && unicode.IsSpace(r):
			return -1
		case escaped:
			escaped = false
		case r == '\\':
			escaped = true
		case r == '\'':
			quoted = !quoted
		}
		return r
	}, t)
	if m := decimalSize.FindStringSubmatch(t); m != nil {
		digits := map[string]string{"32": "9", "64": "18", "128": "38", "256": "76"}[m[1]]
		return "Decimal(" + digits + "," + m[2] + ")"
	}
	if outer, inner, ok := wrapped(t); ok {
		return outer + "(" + canonicalType(inner) + ")"
	}
	return t
}

// wrapped takes Nullable(T), LowCardinality(T) and Array(T) apart.
func wrapped(t string) (outer, inner string, ok bool) {
	outer, inner, ok = strings.Cut(t, "(")
	if !ok || outer != "Nullable" && outer != "LowCardinality" && outer != "Array" || !strings.HasSuffix(inner, ")") {
		return "", "", false
	}
	return outer, strings.TrimSuffix(inner, ")"), true
}

// newConverter makes the converter of a type.
func newConverter(t string) (converter, error) {
	t = canonicalType(t)
	// The client library must know it, too, with all its parameters.
	if _, err := column.Type(t).Column("", &column.ServerContext{Timezone: time.UTC}); err != nil {
		return nil, fmt.Errorf("%q is not a type that can be written", t)
	}
	convert, nullable, err := converterOf(t)
	if err != nil {
		return nil, err
	}
	return func(v gjson.Result) (any, error) {
		if v.Type == gjson.Null {
			if nullable {
				return nil, nil
			}
			return nil, errNull
		}
		return convert(v)
	}, nil
}

func converterOf(t string) (convert converter, nullable bool, err error) {
	if outer, inner, ok := wrapped(t); ok {
		if outer == "Array" {
			element, err := newConverter(inner)
			return arrays(element), false, err
		}
		convert, nullable, err = converterOf(inner)
		return convert, nullable || outer == "Nullable", err
	}
	if m := wholeNumber.FindStringSubmatch(t); m != nil {
		bits, _ := strconv.Atoi(m[2]) // digits by the pattern
		return integers(bits, m[1] == ""), false, nil
	}
	if m := decimalType.FindStringSubmatch(t); m != nil {
		precision, _ := strconv.Atoi(m[1]) // digits by the pattern
		scale, _ := strconv.Atoi(m[2])
		return decimals(precision, scale), false, nil
	}
	name, _, _ := strings.Cut(t, "(")
	switch name {
	case "String":
		return func(v gjson.Result) (any, error) {
			if v.Type == gjson.String {
				return v.Str, nil
			}
			return v.Raw, nil
		}, false, nil
	case "Bool":
		return func(v gjson.Result) (any, error) {
			if !v.IsBool() {
				return nil, errKind
			}
			return v.Bool(), nil
		}, false, nil
	case "Float32", "Float64":
		bits, _ := strconv.Atoi(name[len("Float"):])
		return floats(bits), false, nil
	case "Date", "Date32", "DateTime", "DateTime64":
		span := spans[name]
		return func(v gjson.Result) (any, error) {
			t, err := parseTime(v)
			if err == nil && (t.Before(span[0]) || !t.Before(span[1])) {
				err = errTime
			}
			return t, err
		}, false, nil
	case "UUID", "IPv4", "IPv6", "Enum8", "Enum16":
		return func(v gjson.Result) (any, error) {
			if v.Type != gjson.String {
				return nil, errKind
			}
			return v.Str, nil
		}, false, nil
	}
	return nil, false, fmt.Errorf("%q is not a type that this sink writes", t)
}

// number returns a number's literal, also out of a string, which is how JSON
// often carries numbers that JavaScript would spoil.
func number(v gjson.Result) (string, error) {
	switch v.Type {
	case gjson.Number:
		return v.Raw, nil
	case gjson.String:
		return v.Str, nil
	}
	return "", errKind
}

func integers(bits int, signed bool) converter {
	return func(v gjson.Result) (any, error) {
		if v.IsBool() && bits == 8 { // servers without the type Bool
			if v.Bool() {
				return integer(big.NewInt(1), bits, signed)
			}
			return integer(new(big.Int), bits, signed)
		}
		literal, err := number(v)
		if err != nil {
			return nil, err
		}
		n, ok := new(big.Int), false
		if len(literal) <= 80 { // UInt256 has 78 digits
			n, ok = n.SetString(literal, 10)
		}
		if !ok {
			return nil, errRange
		}
		return integer(n, bits, signed)
	}
}

func integer(n *big.Int, bits int, signed bool) (any, error) {
	if signed && n.Sign() < 0 {
		if new(big.Int).Not(n).BitLen() >= bits {
			return nil, errRange
		}
	} else if n.Sign() < 0 || signed && n.BitLen() >= bits || n.BitLen() > bits {
		return nil, errRange
	}
	i, u := n.Int64(), n.Uint64()
	switch {
	case bits > 64:
		return n, nil
	case signed:
		return map[int]any{8: int8(i), 16: int16(i), 32: int32(i), 64: i}[bits], nil
	default:
		return map[int]any{8: uint8(u), 16: uint16(u), 32: uint32(u), 64: u}[bits], nil
	}
}

func floats(bits int) converter {
	return func(v gjson.Result) (any, error) {
		literal, err := number(v)
		if err != nil {
			return nil, err
		}
		f, err := strconv.ParseFloat(literal, bits)
		if err != nil {
			return nil, errRange
		}
		if bits == 32 {
			return float32(f), nil
		}
		return f, nil
	}
}

// decimals refuses digits behind the scale rather than to cut them off, and more
// digits than the precision: client library and server store what the bits hold.
func decimals(precision, scale int) converter {
	ten := big.NewInt(10)
	shift := new(big.Rat).SetInt(new(big.Int).Exp(ten, big.NewInt(int64(scale)), nil))
	limit := new(big.Int).Exp(ten, big.NewInt(int64(precision)), nil)
	return func(v gjson.Result) (any, error) {
		literal, err := number(v)
		if err != nil {
			return nil, err
		}
		if len(literal) > 400 || hugeExponent.MatchString(literal) || strings.ContainsAny(literal, "/xXpP_") {
			return nil, errRange
		}
		n, ok := new(big.Rat).SetString(literal)
		if !ok {
			return nil, errRange
		}
		if digits := new(big.Rat).Mul(n, shift); !digits.IsInt() || digits.Num().CmpAbs(limit) >= 0 {
			return nil, errRange
		}
		return n.FloatString(scale), nil
	}
}

// spans are the first and the first impossible time of each type; a
// DateTime64 in nanoseconds, and the client library, end in 2262.
var spans = map[string][2]time.Time{
	"Date":       {time.Unix(0, 0), time.Date(2149, 6, 7, 0, 0, 0, 0, time.UTC)},
	"Date32":     {time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC)},
	"DateTime":   {time.Unix(0, 0), time.Unix(1<<32, 0)},
	"DateTime64": {time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2262, 4, 11, 0, 0, 0, 0, time.UTC)},
}

// parseTime takes RFC 3339, a date, a date and time in UTC, or Unix seconds.
func parseTime(v gjson.Result) (t time.Time, err error) {
	if v.Type == gjson.Number {
		if hugeExponent.MatchString(v.Raw) || len(v.Raw) > 40 {
			return t, errTime
		}
		n, ok := new(big.Rat).SetString(v.Raw)
		if !ok {
			return t, errTime
		}
		n.Mul(n, new(big.Rat).SetInt64(int64(time.Second)))
		nanos := new(big.Int).Quo(n.Num(), n.Denom())
		if !nanos.IsInt64() {
			return t, errTime
		}
		return time.Unix(0, nanos.Int64()).UTC(), nil
	}
	if v.Type != gjson.String {
		return t, errKind
	}
	for _, layout := range []string{time.RFC3339Nano, time.DateOnly, "2006-01-02 15:04:05.999999999", "2006-01-02T15:04:05.999999999"} {
		if t, err := time.Parse(layout, v.Str); err == nil {
			return t.UTC(), nil
		}
	}
	return t, errTime
}

func arrays(element converter) converter {
	return func(v gjson.Result) (any, error) {
		if !v.IsArray() {
			return nil, errKind
		}
		list := []any{}
		var failure error
		v.ForEach(func(_, item gjson.Result) bool {
			var value any
			value, failure = element(item)
			list = append(list, value)
			return failure == nil
		})
		return list, failure
	}
}
