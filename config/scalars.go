package config

import (
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"time"
)

// mistake is the problem of a text, and its remedy: a thing that is
// wanted, or a sentence that says what to do.
type mistake struct{ problem, want, fix string }

func (m *mistake) Error() string { return m.problem + hint(m.want, m.fix) }

// masked is printed for every secret.
const masked = "***"

// Secret is text that must not be seen: printing, logging or marshalling it
// yields "***". The zero Secret is empty and prints as nothing. Two secrets are
// compared by their values.
type Secret struct {
	// A pointer, since package fmt prints fields past all methods where a verb
	// does not fit the value around them.
	text *string
}

// NewSecret makes a secret of text.
func NewSecret(text string) Secret { return Secret{&text} }

// Reveal returns the text itself.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// IsZero reports whether the secret is empty.
func (s Secret) IsZero() bool { return s.Reveal() == "" }

// String returns "***".
func (s Secret) String() string {
	if s.IsZero() {
		return ""
	}
	return masked
}

// Format writes "***" for every verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(s.String())) }

// LogValue returns "***".
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText returns "***".
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText takes the text as it is.
func (s *Secret) UnmarshalText(text []byte) error {
	*s = NewSecret(string(text))
	return nil
}

// Duration is a time span. In a file it is a number with a unit: ms, s, m, h or
// d (24 hours), also several in a row, like 1h30m.
type Duration time.Duration

// D returns it as a time.Duration.
func (d Duration) D() time.Duration { return time.Duration(d) }

const day = 24 * time.Hour

// String formats the duration as in a file.
func (d Duration) String() string {
	t := time.Duration(d)
	if t != 0 && t%day == 0 {
		return strconv.Itoa(int(t/day)) + "d"
	}
	s := t.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

// MarshalText is String.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads the form that a file has.
func (d *Duration) UnmarshalText(text []byte) error {
	s := string(text)
	want := `a duration with a unit, like "500ms", "10s", "24h" or "30d"`
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		return &mistake{problem: "has no unit", want: want}
	}
	var total time.Duration
	rest := s
	if days, after, found := strings.Cut(s, "d"); found {
		n, err := strconv.ParseUint(days, 10, 63)
		if err != nil || n > uint64(math.MaxInt64/day) {
			return &mistake{problem: "is not a duration", want: want}
		}
		total, rest = time.Duration(n)*day, after
	}
	if rest != "" || s == "" {
		t, err := time.ParseDuration(rest)
		if err != nil || t < 0 || strings.HasPrefix(rest, "+") || total > math.MaxInt64-t {
			return &mistake{problem: "is not a duration", want: want}
		}
		total += t
	}
	*d = Duration(total)
	return nil
}

// Size is a number of bytes. In a file it has a unit: B, KB, MB, GB (powers of
// 1000) or KiB, MiB, GiB (powers of 1024).
type Size int64

var units = []struct {
	name  string
	bytes int64
}{ // the longer names first, since B ends all of them
	{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"kB", 1e3}, {"B", 1},
}

// String formats the size as in a file.
func (s Size) String() string {
	for _, u := range units {
		if s != 0 && int64(s)%u.bytes == 0 {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.name
		}
	}
	return "0B"
}

// MarshalText is String.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the form that a file has.
func (s *Size) UnmarshalText(text []byte) error {
	want := `a size with a unit, like "512B", "64KB" or "8MiB"`
	if _, err := strconv.ParseFloat(string(text), 64); err == nil {
		return &mistake{problem: "has no unit", want: want}
	}
	for _, u := range units {
		number, found := strings.CutSuffix(string(text), u.name)
		if !found {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSuffix(number, " "), 10, 63)
		if err != nil || n > uint64(math.MaxInt64/u.bytes) {
			break
		}
		*s = Size(n) * Size(u.bytes)
		return nil
	}
	return &mistake{problem: "is not a size", want: want}
}

// JSON is a value of a file as compact JSON; nil is an absent one.
type JSON []byte

// MarshalJSON returns the value itself.
func (j JSON) MarshalJSON() ([]byte, error) {
	if j == nil {
		return []byte("null"), nil
	}
	return j, nil
}

// Position is a place in a file. Lines and columns count from 1; columns count
// characters.
type Position struct {
	File   string
	Line   int
	Column int
}

// String returns file:line:column.
func (p Position) String() string {
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// TimeOfDay is a time of day in UTC, as the time since midnight.
type TimeOfDay time.Duration

// D returns the time since midnight.
func (t TimeOfDay) D() time.Duration { return time.Duration(t) }

// String returns HH:MM.
func (t TimeOfDay) String() string {
	return fmt.Sprintf("%02d:%02d", int(t.D().Hours()), int(t.D().Minutes())%60)
}

// MarshalText is String.
func (t TimeOfDay) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads HH:MM.
func (t *TimeOfDay) UnmarshalText(text []byte) error {
	at, err := time.Parse("15:04", string(text))
	if err != nil {
		return &mistake{problem: "is not a time of day", want: `hours and minutes in UTC, like "03:00"`}
	}
	*t = TimeOfDay(at.Sub(at.Truncate(day)))
	return nil
}
