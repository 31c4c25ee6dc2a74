package clickhouse

import (
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/column"
	"github.com/tidwall/gjson"

	"github.com/seed-86dfc502/weir/sinks/internal/sqlsink"
)

// converter turns a JSON value into the client library's form for a column, or returns the reason
// why that is impossible. Its errors hold no value.
type converter func(gjson.Result) (any, error)

var wholeNumber = regexp.MustCompile(`^(U?)Int(8|16|32|64|128|256)$`)

// newConverter makes the converter of a type, whose numbers count unit where it is a
// date or time.
func newConverter(t string, unit sqlsink.Unit) (converter, error) {
	if _, err := libraryColumn(t); err != nil {
		return nil, fmt.Errorf("%q is not a type that can be written", t)
	}
	if !unit.Known() {
		return nil, fmt.Errorf("%q is not a unit", unit)
	}
	m := &maker{unit: unit}
	convert, err := m.nullable(t)
	if err == nil && unit != "" && !m.timed {
		return nil, fmt.Errorf("%q has no unit: it is neither date nor time", t)
	}
	return convert, err
}

// libraryColumn is a column of the client library, which knows members of enumerations,
// addresses and the like.
func libraryColumn(t string) (c column.Interface, err error) {
	defer func() { // it panics on some types that are none
		if recover() != nil {
			err = errors.New("not a type")
		}
	}()
	return column.Type(spelled(t)).Column("", &column.ServerContext{Timezone: time.UTC})
}

// maker makes the converters of a column.
type maker struct {
	unit  sqlsink.Unit
	timed bool // the column holds dates or times
}

// nullable makes a converter that takes null where the type does.
func (m *maker) nullable(t string) (converter, error) {
	parsed, nullable := parseType(t), false
	for {
		switch {
		case len(parsed.args) == 1 && (parsed.name == "Nullable" || parsed.name == "LowCardinality"):
			nullable = nullable || parsed.name == "Nullable"
			parsed = parseType(parsed.args[0])
			continue
		case len(parsed.args) == 2 && parsed.name == "SimpleAggregateFunction":
			parsed = parseType(parsed.args[1])
			continue
		}
		break
	}
	convert, err := m.plain(parsed)
	return func(v gjson.Result) (any, error) {
		switch {
		case v.Type != gjson.Null:
			return convert(v)
		case nullable:
			return nil, nil
		}
		return nil, sqlsink.ErrNull
	}, err
}

func (m *maker) plain(t columnType) (converter, error) {
	if n := wholeNumber.FindStringSubmatch(t.name); n != nil {
		bits, _ := strconv.Atoi(n[2]) // digits by the pattern
		return integers(bits, n[1] == ""), nil
	}
	switch t.name {
	case "String":
		return func(v gjson.Result) (any, error) {
			if v.Type == gjson.String {
				return v.Str, nil
			}
			return v.Raw, nil
		}, nil
	case "FixedString":
		return fixedStrings(t.digits(0, 0)), nil
	case "Bool":
		return func(v gjson.Result) (any, error) {
			switch {
			case v.IsBool():
				return v.Bool(), nil
			case v.Type == gjson.Number && (v.Num == 0 || v.Num == 1): // of servers without the type
				return v.Num == 1, nil
			}
			return nil, sqlsink.ErrKind
		}, nil
	case "Float32", "Float64":
		bits, _ := strconv.Atoi(t.name[len("Float"):])
		return floats(bits), nil
	case "Decimal", "Decimal32", "Decimal64", "Decimal128", "Decimal256":
		t = parseType(spelled(t.name + "(" + strings.Join(t.args, ",") + ")"))
		return decimals(t.digits(0, 10), t.digits(1, 0)), nil
	case "Date", "Date32", "DateTime", "DateTime64":
		m.timed = true
		return m.instants(t), nil
	case "Time", "Time64":
		m.timed = true
		return m.clocks(t), nil
	case "UUID", "IPv4", "IPv6", "Enum8", "Enum16":
		return func(v gjson.Result) (any, error) {
			if v.Type != gjson.String {
				return nil, sqlsink.ErrKind
			}
			return v.Str, nil
		}, nil
	case "Array":
		element, err := m.nullable(t.args[0])
		return arrays(element), err
	case "Map":
		return m.maps(t)
	case "Tuple":
		return m.tuples(t)
	case "Nested":
		element, err := m.tuples(t)
		return arrays(element), err
	}
	return nil, fmt.Errorf("%q is not a type that this sink writes", t.name)
}

// digits returns a number among the arguments.
func (t columnType) digits(i, otherwise int) int {
	if i < len(t.args) {
		if n, err := strconv.Atoi(t.args[i]); err == nil {
			return n
		}
	}
	return otherwise
}

func integers(bits int, signed bool) converter {
	return func(v gjson.Result) (any, error) {
		if v.IsBool() && bits == 8 { // servers without the type Bool
			if v.Bool() {
				return integer(big.NewInt(1), bits, signed)
			}
			return integer(new(big.Int), bits, signed)
		}
		literal, err := sqlsink.Literal(v)
		if err != nil {
			return nil, err
		}
		n, err := sqlsink.Whole(literal)
		if err != nil {
			return nil, err
		}
		return integer(n, bits, signed)
	}
}

func integer(n *big.Int, bits int, signed bool) (any, error) {
	if signed && n.Sign() < 0 {
		if new(big.Int).Not(n).BitLen() >= bits {
			return nil, sqlsink.ErrRange
		}
	} else if n.Sign() < 0 || signed && n.BitLen() >= bits || n.BitLen() > bits {
		return nil, sqlsink.ErrRange
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
		literal, err := sqlsink.Literal(v)
		if err != nil {
			return nil, err
		}
		f, err := sqlsink.Float(literal, bits)
		if err != nil {
			return nil, err
		}
		if bits == 32 {
			return float32(f), nil
		}
		return f, nil
	}
}

// decimals refuses more digits than the precision: client library and server would store any
// value that fits the bits.
func decimals(precision, scale int) converter {
	return func(v gjson.Result) (any, error) {
		literal, err := sqlsink.Literal(v)
		if err != nil {
			return nil, err
		}
		n, err := sqlsink.Decimal(literal, precision, scale)
		if err != nil {
			return nil, err
		}
		return n.FloatString(scale), nil
	}
}

// fixedStrings refuses longer texts; shorter ones are padded with zeros.
func fixedStrings(size int) converter {
	return func(v gjson.Result) (any, error) {
		switch {
		case v.Type != gjson.String:
			return nil, sqlsink.ErrKind
		case len(v.Str) > size:
			return nil, fmt.Errorf("a text of more than %d bytes", size)
		}
		return v.Str + strings.Repeat("\x00", size-len(v.Str)), nil
	}
}

// spans are the first and the first impossible time of each type. The client library counts
// nanoseconds in 64 bits, so its DateTime64 ends in 2262.
var spans = map[string][2]time.Time{
	"Date":       {time.Unix(0, 0).UTC(), time.Date(2149, 6, 7, 0, 0, 0, 0, time.UTC)},
	"Date32":     {time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC)},
	"DateTime":   {time.Unix(0, 0).UTC(), time.Unix(1<<32, 0).UTC()},
	"DateTime64": {time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2262, 4, 11, 0, 0, 0, 0, time.UTC)},
}

// instants rounds down to the column's days or fractions: the client library would cut towards
// 1970. A number without a unit is in Unix seconds, or in days for a date.
func (m *maker) instants(t columnType) converter {
	span, step, unit := spans[t.name], 24*time.Hour, m.unit
	if strings.HasPrefix(t.name, "DateTime") {
		step = time.Second
		if t.name == "DateTime64" {
			step = sqlsink.Step(t.digits(0, 3))
		}
		if unit == "" {
			unit = "seconds"
		}
	}
	return func(v gjson.Result) (any, error) {
		instant, err := sqlsink.ParseInstant(v, unit)
		switch {
		case errors.Is(err, sqlsink.ErrRange), err == nil && (instant.Before(span[0]) || !instant.Before(span[1])):
			return nil, &sqlsink.RangeError{Type: t.name, From: span[0], To: span[1].Add(-1)}
		case err != nil:
			return nil, err
		}
		return sqlsink.Floor(instant.Time, step), nil
	}
}

func (m *maker) clocks(t columnType) converter {
	step := time.Second
	if t.name == "Time64" {
		step = sqlsink.Step(t.digits(0, 3))
	}
	return func(v gjson.Result) (any, error) {
		clock, offset, err := sqlsink.ParseClock(v, m.unit)
		if err == nil && offset != "" && offset != "Z" {
			err = sqlsink.ErrOffset
		}
		return clock.Truncate(step), err
	}
}

func arrays(element converter) converter {
	return func(v gjson.Result) (any, error) {
		if !v.IsArray() {
			return nil, sqlsink.ErrKind
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

// pairs are a map in the order of the document.
type pairs struct{ keys, values []any }

// Iterator implements column.IterableOrderedMap.
func (p *pairs) Iterator() column.MapIterator { return &pairsIterator{of: p, at: -1} }

// Put implements column.IterableOrderedMap.
func (p *pairs) Put(key, value any) { p.keys, p.values = append(p.keys, key), append(p.values, value) }

type pairsIterator struct {
	of *pairs
	at int
}

func (i *pairsIterator) Next() bool { i.at++; return i.at < len(i.of.keys) }
func (i *pairsIterator) Key() any   { return i.of.keys[i.at] }
func (i *pairsIterator) Value() any { return i.of.values[i.at] }

func (m *maker) maps(t columnType) (converter, error) {
	key, err := m.nullable(t.args[0])
	if err != nil {
		return nil, err
	}
	value, err := m.nullable(t.args[1])
	return func(v gjson.Result) (any, error) {
		if !v.IsObject() {
			return nil, sqlsink.ErrKind
		}
		p := &pairs{}
		var failure error
		v.ForEach(func(name, member gjson.Result) bool {
			k, err := key(name)
			item, other := value(member)
			p.Put(k, item)
			failure = errors.Join(err, other)
			return failure == nil
		})
		return p, failure
	}, err
}

// tuples takes an array of all elements or, where these have names, an object.
func (m *maker) tuples(t columnType) (converter, error) {
	names, elements := make([]string, len(t.args)), make([]converter, len(t.args))
	for i := range t.args {
		name, inner := t.element(i)
		element, err := m.nullable(inner)
		if err != nil {
			return nil, err
		}
		names[i], elements[i] = strings.Trim(name, "`"), element
	}
	return func(v gjson.Result) (any, error) {
		items := v.Array()
		switch {
		case v.IsObject() && names[0] != "":
			members := v.Map()
			items = make([]gjson.Result, len(names))
			for i, name := range names {
				items[i] = members[name]
			}
		case !v.IsArray():
			return nil, sqlsink.ErrKind
		case len(items) != len(elements):
			return nil, fmt.Errorf("an array of %d elements, not %d", len(items), len(elements))
		}
		values := make([]any, len(elements))
		for i, element := range elements {
			var err error
			if values[i], err = element(items[i]); err != nil {
				return nil, err
			}
		}
		return values, nil
	}, nil
}
