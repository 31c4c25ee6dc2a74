package postgres

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/tidwall/gjson"

	"github.com/seed-86dfc502/weir/sinks/internal/sqlsink"
)

// converter turns a JSON value into the JSON text whose value PostgreSQL reads in one way only,
// or returns the reason why the column cannot have it. Its errors hold no value.
type converter func(gjson.Result) (string, error)

// columnKind is a type of a table's column, behind domains: of the elements, if it is an
// array.
type columnKind struct {
	oid      uint32
	modifier int32
	array    bool
}

var errNotTimed = errors.New("has a unit, and is neither date nor time")

// newConverter returns nil for columns that take values as they are.
func newConverter(kind columnKind, unit sqlsink.Unit) (converter, error) {
	if kind.array {
		element, err := newConverter(columnKind{oid: kind.oid, modifier: kind.modifier}, unit)
		if element == nil {
			return nil, err
		}
		if slices.Contains(integral, kind.oid) {
			return literalOr(arrays(element)), nil
		}
		return arrays(element), nil
	}
	var convert converter
	switch kind.oid {
	case pgtype.DateOID, pgtype.TimestampOID, pgtype.TimestamptzOID:
		convert = instants(kind, unit)
	case pgtype.TimeOID, pgtype.TimetzOID:
		convert = clocks(kind, unit)
	case pgtype.NumericOID:
		if kind.modifier >= 4 {
			// As numeric.c packs them: the scale has 11 bits and a sign.
			packed := kind.modifier - 4
			convert = decimals(int(packed>>16)&0xffff, int(packed&0x7ff^0x400)-0x400)
		}
	case moneyOID:
		convert = decimals(18, 2)
	case pgtype.Int2OID:
		convert = integers(16)
	case pgtype.Int4OID:
		convert = integers(32)
	case pgtype.Int8OID:
		convert = integers(64)
	case pgtype.Float8OID:
		convert = floats(64)
	case pgtype.Float4OID:
		convert = floats(32)
	case pgtype.ByteaOID:
		convert = byteStrings
	case pgtype.VarcharOID, pgtype.BPCharOID:
		if kind.modifier >= 4 {
			convert = texts(int(kind.modifier) - 4)
		}
	}
	if unit != "" && !slices.Contains(timed, kind.oid) {
		return nil, errNotTimed
	}
	if convert == nil {
		return nil, nil
	}
	return func(v gjson.Result) (string, error) {
		if v.Type == gjson.Null {
			return "null", nil
		}
		return convert(v)
	}, nil
}

const moneyOID = 790

// timed are the types whose numbers have a unit.
var timed = []uint32{pgtype.DateOID, pgtype.TimestampOID, pgtype.TimestamptzOID, pgtype.TimeOID, pgtype.TimetzOID}

// integral are the types of whole numbers.
var integral = []uint32{pgtype.Int2OID, pgtype.Int4OID, pgtype.Int8OID}

// literalOr leaves a text to PostgreSQL, which reads its own spelling of an array.
func literalOr(convert converter) converter {
	return func(v gjson.Result) (string, error) {
		if v.Type == gjson.String {
			return v.Raw, nil
		}
		return convert(v)
	}
}

// digitsOf returns how many digits of a second a column keeps.
func digitsOf(modifier int32) int {
	if modifier < 0 {
		return 6
	}
	return int(modifier)
}

// instants rounds down to the column's days or fractions; PostgreSQL would round to the
// nearest.
func instants(kind columnKind, unit sqlsink.Unit) converter {
	layout, step := "2006-01-02T15:04:05.999999", sqlsink.Step(digitsOf(kind.modifier))
	switch kind.oid {
	case pgtype.DateOID:
		layout, step = time.DateOnly, 24*time.Hour
	case pgtype.TimestamptzOID:
		layout += "Z"
	}
	return func(v gjson.Result) (string, error) {
		if v.Type == gjson.String && (v.Str == "infinity" || v.Str == "-infinity") {
			return v.Raw, nil
		}
		at, err := sqlsink.ParseInstant(v, unit)
		switch {
		case err != nil:
			return "", err
		case at.Offset && kind.oid == pgtype.TimestampOID:
			return "", sqlsink.ErrOffset
		}
		return text(spelled(sqlsink.Floor(at.Time, step), layout)), nil
	}
}

// spelled writes years before 1 as PostgreSQL does, which has no year 0: 0044-03-15 BC.
func spelled(t time.Time, layout string) string {
	if t.Year() > 0 {
		return t.Format(layout)
	}
	_, rest, _ := strings.Cut(layout, "-")
	return fmt.Sprintf("%04d-%s BC", 1-t.Year(), t.Format(rest))
}

func clocks(kind columnKind, unit sqlsink.Unit) converter {
	step := sqlsink.Step(digitsOf(kind.modifier))
	return func(v gjson.Result) (string, error) {
		clock, offset, err := sqlsink.ParseClock(v, unit)
		switch {
		case err != nil:
			return "", err
		case kind.oid == pgtype.TimeOID:
			if strings.Trim(offset, "Z+-:0") != "" {
				return "", sqlsink.ErrOffset
			}
			offset = ""
		case offset == "":
			offset = "Z"
		}
		if clock = clock.Truncate(step); clock == 24*time.Hour {
			return text("24:00:00" + offset), nil
		}
		return text(time.Time{}.Add(clock).Format("15:04:05.999999") + offset), nil
	}
}

// decimals refuses numbers that the column would round. The text stays as it is.
func decimals(precision, scale int) converter {
	return func(v gjson.Result) (string, error) {
		literal, err := sqlsink.Literal(v)
		if err != nil {
			return "", err
		}
		if !strings.EqualFold(literal, "NaN") {
			_, err = sqlsink.Decimal(literal, precision, scale)
		}
		return v.Raw, err
	}
}

// integers takes whole numbers in any spelling, such as 12.0 and 1e2, of which PostgreSQL reads
// the first alone. A text that is no such number is PostgreSQL's to judge.
func integers(bits int) converter {
	return func(v gjson.Result) (string, error) {
		literal, err := sqlsink.Literal(v)
		if err != nil {
			return v.Raw, nil //nolint:nilerr // neither number nor text
		}
		n, err := sqlsink.Whole(literal)
		switch {
		case errors.Is(err, sqlsink.ErrNumber):
			return v.Raw, nil
		case err != nil:
			return "", err
		case n.Sign() < 0 && new(big.Int).Not(n).BitLen() >= bits, n.Sign() >= 0 && n.BitLen() >= bits:
			return "", sqlsink.ErrRange
		}
		return n.String(), nil
	}
}

func floats(bits int) converter {
	return func(v gjson.Result) (string, error) {
		literal, err := sqlsink.Literal(v)
		if err == nil {
			_, err = sqlsink.Float(literal, bits)
		}
		return v.Raw, err
	}
}

var (
	hexBytes = regexp.MustCompile(`^\\x([0-9A-Fa-f]{2})*$`)
	errBytes = errors.New(`bytes in another form than \x0123`)
)

// byteStrings refuses texts, such as base64, that PostgreSQL would store as their own bytes.
func byteStrings(v gjson.Result) (string, error) {
	if v.Type != gjson.String || !hexBytes.MatchString(v.Str) {
		return "", errBytes
	}
	return v.Raw, nil
}

// texts refuses longer texts also where PostgreSQL would cut off spaces.
func texts(most int) converter {
	return func(v gjson.Result) (string, error) {
		if v.Type == gjson.String && utf8.RuneCountInString(v.Str) > most {
			return "", fmt.Errorf("a text too long for %d characters", most)
		}
		return v.Raw, nil
	}
}

func arrays(element converter) converter {
	return func(v gjson.Result) (string, error) {
		if v.Type == gjson.Null {
			return "null", nil
		}
		if !v.IsArray() {
			return "", sqlsink.ErrKind
		}
		var items []string
		for _, item := range v.Array() {
			one := element
			if item.IsArray() { // of more dimensions
				one = arrays(element)
			}
			raw, err := one(item)
			if err != nil {
				return "", err
			}
			items = append(items, raw)
		}
		return "[" + strings.Join(items, ",") + "]", nil
	}
}

func text(s string) string {
	b, _ := json.Marshal(s) // a string never fails
	return string(b)
}
