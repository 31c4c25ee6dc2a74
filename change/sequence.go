package change

import (
	"cmp"
	"math/big"
	"strings"
	"time"
)

// SequenceKind is how a sequence compares.
type SequenceKind string

// The kinds. A value is of the first that its spelling fits.
const (
	SequenceNumber SequenceKind = "number" // a decimal number, with a sign, a fraction and an exponent if it has them
	SequenceTime   SequenceKind = "time"   // date and time of RFC 3339 with an offset; seconds are optional
	SequenceClock  SequenceKind = "clock"  // such a time without its date
	SequenceText   SequenceKind = "text"   // anything else
)

// CompareSequence orders two sequences of one source by value: -1, 0 or 1. Numbers compare
// exactly, at any length and exponent, times as instants, texts by their bytes.
// alike is false for values of two kinds, which have no order.
func CompareSequence(a, b string) (order int, alike bool) {
	x, y := parseSequence(a), parseSequence(b)
	if x.kind != y.kind {
		return 0, false
	}
	switch x.kind {
	case SequenceNumber:
		return x.number.compare(y.number), true
	case SequenceTime, SequenceClock:
		return x.time.compare(y.time), true
	}
	return strings.Compare(a, b), true
}

// KindOfSequence returns the kind of a sequence.
func KindOfSequence(s string) SequenceKind { return parseSequence(s).kind }

type sequence struct {
	kind   SequenceKind
	number decimal
	time   instant
}

func parseSequence(s string) sequence {
	if n, ok := parseDecimal(s); ok {
		return sequence{kind: SequenceNumber, number: n}
	}
	if t, ok := parseInstant(s); ok {
		return sequence{kind: SequenceTime, time: t}
	}
	if t, ok := parseInstant("1970-01-01T" + s); ok {
		return sequence{kind: SequenceClock, time: t}
	}
	return sequence{kind: SequenceText}
}

// decimal is sign × 0.digits × 10^point, without zeros at either end of digits; sign is 0
// for 0. The point fits into small unless the exponent is a long one.
type decimal struct {
	sign   int
	digits string
	small  int64
	large  *big.Int // instead of small; nil for most
}

func parseDecimal(s string) (d decimal, ok bool) {
	d.sign = 1
	if s != "" && (s[0] == '-' || s[0] == '+') {
		if s[0] == '-' {
			d.sign = -1
		}
		s = s[1:]
	}
	exponent := ""
	if e := strings.IndexAny(s, "eE"); e >= 0 {
		s, exponent = s[:e], s[e+1:]
		if !allDigits(strings.TrimPrefix(strings.TrimPrefix(exponent, "-"), "+")) || strings.HasPrefix(exponent, "-+") {
			return d, false
		}
	}
	whole, fraction, fractional := strings.Cut(s, ".")
	if !allDigits(whole) || fractional && !allDigits(fraction) {
		return d, false
	}
	all := whole + fraction
	d.digits = strings.TrimLeft(all, "0")
	point := len(whole) - (len(all) - len(d.digits))
	if d.digits = strings.TrimRight(d.digits, "0"); d.digits == "" {
		return decimal{}, true
	}
	d.small = int64(point)
	if exponent == "" {
		return d, true
	}
	large, _ := new(big.Int).SetString(exponent, 10)
	if large.Add(large, big.NewInt(int64(point))); large.IsInt64() {
		d.small = large.Int64()
	} else {
		d.large = large
	}
	return d, true
}

func allDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

func (d decimal) compare(e decimal) int {
	if d.sign != e.sign || d.sign == 0 {
		return cmp.Compare(d.sign, e.sign)
	}
	var points int
	switch {
	case d.large == nil && e.large == nil:
		points = cmp.Compare(d.small, e.small)
	case d.large == nil:
		points = -e.large.Sign()
	case e.large == nil:
		points = d.large.Sign()
	default:
		points = d.large.Cmp(e.large)
	}
	return d.sign * cmp.Or(points, strings.Compare(d.digits, e.digits))
}

// instant is a point in time of any precision. A leap second comes behind the second
// before it.
type instant struct {
	seconds  int64
	leap     int
	fraction string // digits without zeros at the end
}

func parseInstant(s string) (t instant, ok bool) {
	const minutes = len("2006-01-02T15:04")
	if len(s) <= minutes || s[10] != 'T' && s[10] != 't' && s[10] != ' ' {
		return t, false
	}
	moment, err := time.Parse("2006-01-02 15:04", s[:10]+" "+s[11:minutes])
	if err != nil {
		return t, false
	}
	t.seconds = moment.Unix()
	if s = s[minutes:]; s[0] == ':' {
		if len(s) < 3 || !allDigits(s[1:3]) || s[1:3] > "60" {
			return t, false
		}
		seconds := int64(s[1]-'0')*10 + int64(s[2]-'0')
		if seconds == 60 {
			seconds, t.leap = 59, 1
		}
		t.seconds += seconds
		if s = s[3:]; s != "" && s[0] == '.' {
			rest := strings.TrimLeft(s[1:], "0123456789")
			digits := s[1 : len(s)-len(rest)]
			if digits == "" {
				return t, false
			}
			t.fraction, s = strings.TrimRight(digits, "0"), rest
		}
	}
	if s == "Z" || s == "z" {
		return t, true
	}
	if len(s) != len("+00:00") || s[0] != '+' && s[0] != '-' || s[3] != ':' || !allDigits(s[1:3]+s[4:]) || s[1:3] > "23" || s[4:] > "59" {
		return t, false
	}
	offset := (int64(s[1]-'0')*10+int64(s[2]-'0'))*3600 + (int64(s[4]-'0')*10+int64(s[5]-'0'))*60
	if s[0] == '+' {
		offset = -offset
	}
	t.seconds += offset
	return t, true
}

func (t instant) compare(u instant) int {
	return cmp.Or(cmp.Compare(t.seconds, u.seconds), cmp.Compare(t.leap, u.leap), strings.Compare(t.fraction, u.fraction))
}
