package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed-86dfc502/weir/store"
)

func day(n int) time.Time { return time.Date(2026, 3, 1+n, 0, 0, 0, 0, time.UTC) }

func TestTrimAttempts(t *testing.T) {
	week := 7 * 24 * time.Hour
	bounds := map[int32]store.AttemptBound{1: {Keep: week, MaxBytes: 1000}, 2: {}, 3: {Keep: week, MaxBytes: 1 << 40}}
	days := []store.AttemptDay{
		{Day: day(0), Service: 1, Attempts: 1, Bytes: 1}, // finds no room
		{Day: day(9), Service: 1, Attempts: 10, Bytes: 600},
		{Day: day(8), Service: 1, Attempts: 100, Bytes: 800},
		{Day: day(9), Service: 2, Attempts: 5, Bytes: 5}, // switched off
		{Day: day(2), Service: 3, Attempts: 7, Bytes: 7}, // its youngest is of midnight of day 3: a week ago
		{Day: day(3), Service: 3, Attempts: 8, Bytes: 8},
		{Day: day(8), Service: 4, Attempts: 9, Bytes: 9}, // of no configuration any more
		{Day: day(9), Service: 4, Attempts: 9, Bytes: 9},
	}
	others := store.AttemptBound{Keep: time.Hour, MaxBytes: 1 << 40}
	require.Equal(t, []store.AttemptTrim{
		{AttemptDay: days[0]}, {AttemptDay: days[4]},
		{AttemptDay: days[2], Keep: 37}, // 300 of 800 bytes: 100 under the bound
		{AttemptDay: days[6]}, {AttemptDay: days[3]},
	}, store.TrimAttempts(day(10), days, bounds, others))
}

// Whatever is kept: nothing goes that is within its bounds, what stays is within
// them, and it is the newest.
func TestTrimmedAttemptsAreWithinTheirBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bound := store.AttemptBound{
			Keep:     time.Duration(rapid.IntRange(0, 240).Draw(t, "hours")) * time.Hour,
			MaxBytes: rapid.Int64Range(0, 5000).Draw(t, "bytes"),
		}
		now := day(20).Add(time.Duration(rapid.IntRange(0, 86_399).Draw(t, "now")) * time.Second)
		var days []store.AttemptDay
		for n := range 21 {
			if rapid.Bool().Draw(t, "written") {
				attempts := rapid.Int64Range(1, 50).Draw(t, "attempts")
				days = append(days, store.AttemptDay{Day: day(n), Service: 7, Attempts: attempts, Bytes: attempts * rapid.Int64Range(120, 200).Draw(t, "size")})
			}
		}
		left := map[time.Time]int64{}
		for _, d := range days {
			left[d.Day] = d.Bytes
		}
		for _, trim := range store.TrimAttempts(now, days, nil, bound) {
			if trim.Keep >= trim.Attempts {
				t.Fatalf("nothing goes by %+v", trim)
			}
			left[trim.Day] = trim.Bytes * trim.Keep / trim.Attempts
		}
		var sum int64
		full := false
		for n := 20; n >= 0; n-- {
			i := 0
			for ; i < len(days) && !days[i].Day.Equal(day(n)); i++ {
			}
			if i == len(days) {
				continue
			}
			d := days[i]
			sum += left[d.Day]
			switch young := bound.Keep > 0 && now.Sub(day(n+1)) < bound.Keep; {
			case !young && left[d.Day] > 0:
				t.Fatalf("day %d is over its time", n)
			case full && left[d.Day] > 0:
				t.Fatalf("day %d stays, of a younger one some went", n)
			case young && !full && left[d.Day] < d.Bytes && sum-left[d.Day]+d.Bytes <= bound.MaxBytes:
				t.Fatalf("day %d is within its bounds and was cut", n)
			}
			full = full || left[d.Day] < d.Bytes
		}
		if sum > bound.MaxBytes {
			t.Fatalf("%d bytes stay of %d", sum, bound.MaxBytes)
		}
	})
}
