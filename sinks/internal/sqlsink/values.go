package sqlsink

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"
)

// Errors of values hold no value.
var (
	ErrKind  = errors.New("a JSON value of the wrong kind")
	ErrRange = errors.New("a number that does not fit")
	// ErrNumber: bytes in base64, for instance, as Debezium writes decimals by default.
	ErrNumber = errors.New("a text that is no number (decimals of Debezium: decimal.handling.mode: string)")
	// ErrFraction: the column would round.
	ErrFraction = errors.New("a number with a fraction, and the column keeps whole ones")
	// ErrDigits: the column would round.
	ErrDigits = errors.New("a number with more digits after the point than the column keeps")
	// ErrWhole: a float keeps 53 or 24 bits.
	ErrWhole = errors.New("a whole number that the column would round")
	ErrNull  = errors.New("null or absent, and the column takes no null")

	errNoUnit = errors.New("a number, and the column says no unit (days, seconds, millis, micros, nanos)")
	errForm   = errors.New("a form of a date or time that is not read (2026-07-01, 2026-07-01T10:30:00.5Z, 2026-07-01 10:30:00+02:00)")
	errClock  = errors.New("a form of a time of day that is not read (10:30:00, 10:30:00.5Z)")
	errDate   = errors.New("a date or time that does not exist")
	// ErrOffset: the column would drop it.
	ErrOffset = errors.New("a time with an offset, and the column keeps none")

	// hugeExponent is one that big.Rat would take minutes for.
	hugeExponent = regexp.MustCompile(`[eE][+-]?\d{4,}`)
	decimal      = regexp.MustCompile(`^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$`)
	// A year before 1 is written with a sign (ISO 8601, where 0 is 1 BC), or as PostgreSQL does;
	// Z after a date alone is Debezium's IsoDate.
	dateTime = regexp.MustCompile(`^([+-]?\d{4,7})(-\d\d-\d\d)(?:[T ](\d\d:\d\d:\d\d(?:\.\d{1,30})?)(Z|[+-]\d\d(?::\d\d)?)?|Z)?( BC)?$`)
	clock    = regexp.MustCompile(`^(\d\d):(\d\d):(\d\d(?:\.\d{1,30})?)(Z|[+-]\d\d(?::\d\d)?)?$`)
)

// Unit is the unit of numbers in a column of dates or times, "" when none is declared.
type Unit string

// Units are the nanoseconds of each unit.
var units = map[Unit]int64{
	"days": int64(24 * time.Hour), "seconds": int64(time.Second), "millis": int64(time.Millisecond),
	"micros": int64(time.Microsecond), "nanos": 1,
}

// Known reports whether u is a unit or none.
func (u Unit) Known() bool { return u == "" || units[u] != 0 }

// Instant is a date or time of a document.
type Instant struct {
	time.Time      // in UTC
	Offset    bool // it was written with an offset other than zero
}

// ParseInstant reads a date, or a date and time, where one without an offset is in UTC,
// or a number of unit since 1970. Without a unit there are no numbers.
func ParseInstant(v gjson.Result, unit Unit) (Instant, error) {
	text, isNumber, err := temporal(v, unit)
	if err != nil {
		return Instant{}, err
	}
	if isNumber {
		seconds, nanos, err := scaled(text, unit)
		if err != nil {
			return Instant{}, err
		}
		return Instant{Time: time.Unix(seconds, nanos).UTC()}, nil
	}
	m := dateTime.FindStringSubmatch(text)
	if m == nil {
		return Instant{}, errForm
	}
	year, _ := strconv.Atoi(m[1]) // digits by the pattern
	switch {
	case m[5] != "" && year < 1:
		return Instant{}, errDate
	case m[5] != "":
		year = 1 - year
	}
	clock, zone := cmp.Or(m[3], "00:00:00"), cmp.Or(m[4], "Z")
	if len(zone) == len("+02") {
		zone += ":00"
	}
	// The calendar repeats every 400 years, and package time reads four digits alone.
	like := 2000 + (year%400+400)%400
	t, err := time.Parse(time.RFC3339Nano, fmt.Sprint(like, m[2], "T", clock, zone))
	if err != nil {
		return Instant{}, errDate
	}
	_, offset := t.Zone()
	return Instant{t.AddDate(year-like, 0, 0).UTC(), offset != 0}, nil
}

// ParseClock reads a time of day, with the offset that it was written with, or a number
// of unit since midnight.
func ParseClock(v gjson.Result, unit Unit) (sinceMidnight time.Duration, offset string, err error) {
	text, isNumber, err := temporal(v, unit)
	if err != nil {
		return 0, "", err
	}
	if isNumber {
		seconds, nanos, err := scaled(text, unit)
		sinceMidnight = time.Duration(seconds)*time.Second + time.Duration(nanos)
		if err == nil && (seconds < 0 || sinceMidnight > 24*time.Hour) {
			err = ErrRange
		}
		return sinceMidnight, "", err
	}
	m := clock.FindStringSubmatch(text)
	if m == nil {
		return 0, "", errClock
	}
	sinceMidnight, err = time.ParseDuration(m[1] + "h" + m[2] + "m" + m[3] + "s")
	if err != nil || m[1] > "24" || m[2] > "59" || m[3] >= "60" || sinceMidnight > 24*time.Hour {
		return 0, "", errDate
	}
	return sinceMidnight, m[4], nil
}

// temporal returns the text of a value that is a date or time, and whether it is a number.
func temporal(v gjson.Result, unit Unit) (text string, isNumber bool, err error) {
	switch v.Type {
	case gjson.Number:
		if unit == "" {
			return "", false, errNoUnit
		}
		return v.Raw, true, nil
	case gjson.String:
		// JSON often has numbers in texts.
		_, err := Number(v.Str)
		return v.Str, unit != "" && err == nil, nil
	}
	return "", false, ErrKind
}

// scaled returns a number of units as whole seconds, rounded down, and nanoseconds.
func scaled(literal string, unit Unit) (seconds, nanos int64, err error) {
	n, err := Number(literal)
	if err != nil {
		return 0, 0, err
	}
	n.Mul(n, new(big.Rat).SetInt64(units[unit]))
	second := big.NewInt(int64(time.Second))
	// Div and Mod are Euclidean: they round down for a positive divisor.
	whole, rest := new(big.Int).DivMod(new(big.Int).Div(n.Num(), n.Denom()), second, new(big.Int))
	if whole.BitLen() > 48 { // year 8,900,000; PostgreSQL's dates end in 5,874,897
		return 0, 0, ErrRange
	}
	return whole.Int64(), rest.Int64(), nil
}

// Floor rounds down to a multiple of step, a divisor of a day, before 1970 as after.
func Floor(t time.Time, step time.Duration) time.Time { return t.Truncate(step) }

// Step is the resolution of a fraction of a second with that many digits.
func Step(digits int) time.Duration {
	step := time.Second
	for range min(digits, 9) {
		step /= 10
	}
	return step
}

// RangeError is a date or time outside the range of a column's type.
type RangeError struct {
	Type     string
	From, To time.Time // the first and the last one
}

// Error names type and range.
func (e *RangeError) Error() string {
	return fmt.Sprintf("outside the range of %s (%s to %s)", e.Type, e.From.Format(time.DateOnly), e.To.Format(time.DateOnly))
}

// Number reads a decimal number exactly.
func Number(literal string) (*big.Rat, error) {
	switch {
	case !decimal.MatchString(literal):
		return nil, ErrNumber
	case len(literal) > 400, hugeExponent.MatchString(literal):
		return nil, ErrRange
	}
	n, ok := new(big.Rat).SetString(literal)
	if !ok {
		return nil, ErrRange
	}
	return n, nil
}

// Whole reads a whole number, in any spelling: 12, 12.0, 1.2e1.
func Whole(literal string) (*big.Int, error) {
	n, err := Number(literal)
	switch {
	case err != nil:
		return nil, err
	case !n.IsInt():
		return nil, ErrFraction
	}
	return n.Num(), nil
}

// Decimal checks that a number fits precision digits, scale of them after the point, and
// loses none.
func Decimal(literal string, precision, scale int) (*big.Rat, error) {
	n, err := Number(literal)
	if err != nil {
		return nil, err
	}
	power := func(e int) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(e)), nil) }
	digits := new(big.Rat).Mul(n, new(big.Rat).SetFrac(power(max(scale, 0)), power(max(-scale, 0))))
	switch {
	case !digits.IsInt():
		return nil, ErrDigits
	case digits.Num().CmpAbs(power(precision)) >= 0:
		return nil, ErrRange
	}
	return n, nil
}

// Float reads a number into 32 or 64 bits. Fractions are rounded, whole numbers never: they
// may be ids.
func Float(literal string, bits int) (float64, error) {
	f, err := strconv.ParseFloat(literal, bits)
	switch {
	case errors.Is(err, strconv.ErrSyntax):
		return 0, ErrNumber
	case err != nil:
		return 0, ErrRange
	}
	if digits := strings.TrimPrefix(literal, "-"); len(digits) > 7 && strings.Trim(digits, "0123456789") == "" {
		if exact, ok := new(big.Int).SetString(digits, 10); ok {
			if rounded, _ := new(big.Float).SetFloat64(math.Abs(f)).Int(nil); rounded.Cmp(exact) != 0 {
				return 0, ErrWhole
			}
		}
	}
	return f, nil
}

// Literal returns a number's literal, also out of a text.
func Literal(v gjson.Result) (string, error) {
	switch v.Type {
	case gjson.Number:
		return v.Raw, nil
	case gjson.String:
		return v.Str, nil
	}
	return "", ErrKind
}
