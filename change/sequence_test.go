package change

import (
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Each list is in strictly ascending order of values.
var ascendingSequences = map[SequenceKind][][]string{
	SequenceNumber: {
		{"-1e3", "-10", "-2", "-1.5", "-1", "-1e-400", "0", "1e-400", "0.1", "9", "9.5", "10", "10.5", "999", "1e3", "1001", "9007199254740992", "9007199254740993", "123456789012345678901234567890", "1e400", "1e99999999999999999999", "2e99999999999999999999"},
		{"-1e99999999999999999999", "-1", "1e-99999999999999999999", "1"},
	},
	SequenceTime: {
		{"2026-07-01T10:00:00Z", "2026-07-01T10:00:00.1Z", "2026-07-01T10:00:00.15Z", "2026-07-01T10:00:00.25Z", "2026-07-01T10:00:30Z"},
		{"2026-07-01T10:00Z", "2026-07-01T10:00:30Z"},
		{"2026-07-01T12:00+02:00", "2026-07-01T10:30Z"},
		{"2016-12-31T23:59:59.9Z", "2016-12-31T23:59:60Z", "2016-12-31t23:59:60.5z", "2017-01-01T00:00:00Z"},
		{"1969-12-31T23:59:59Z", "1970-01-01 00:00:00Z"},
	},
	SequenceClock: {{"10:00:00Z", "10:00:00.25Z"}, {"10:00:00.1Z", "10:00:00.15Z"}, {"10:00Z", "10:00:30Z"}, {"12:00+02:00", "10:30Z"}},
	SequenceText:  {{"", "-", "0/16B3748", "0/16B3750", "1A", "2026-07-01T10:00:00", "abc"}, {"1.", "1e", "1e+-3"}, {"2026-13-01T10:00Z", "2026-13-01T11:00Z"}},
}

func TestSequencesAreOrderedByValue(t *testing.T) {
	for kind, lists := range ascendingSequences {
		for _, list := range lists {
			for i, a := range list {
				require.Equal(t, kind, KindOfSequence(a), a)
				for j, b := range list {
					order, alike := CompareSequence(a, b)
					require.True(t, alike)
					require.Equal(t, min(1, max(-1, i-j)), order, "%s %s", a, b)
				}
			}
		}
	}
	for _, same := range [][2]string{{"007", "7"}, {"1e3", "1000"}, {"1.0", "1"}, {"-0", "0.0"}, {"+5", "5"}, {"10e-1", "1"}, {"2026-07-01T12:00:00.50+02:00", "2026-07-01T10:00:00.5Z"}} {
		order, alike := CompareSequence(same[0], same[1])
		require.True(t, alike && order == 0, "%v", same)
	}
	for kind, lists := range ascendingSequences {
		for other, others := range ascendingSequences {
			_, alike := CompareSequence(lists[0][1], others[0][1])
			require.Equal(t, kind == other, alike)
		}
	}
}

func TestNumbersInOrderAsRationals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		one := rapid.StringMatching(`[-+]?[0-9]{1,4}(\.[0-9]{1,4})?(e[-+]?[0-9]{1,2})?`)
		a, b := one.Draw(t, "a"), one.Draw(t, "b")
		x, _ := new(big.Rat).SetString(a)
		y, _ := new(big.Rat).SetString(b)
		order, alike := CompareSequence(a, b)
		require.True(t, alike)
		require.Equal(t, x.Cmp(y), order)
	})
}

func TestTimesInOrderAsTimes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		one := func(name string) (string, time.Time) {
			zone := time.FixedZone("", rapid.IntRange(-14*60, 14*60).Draw(t, name+" zone")*60)
			at := time.Unix(rapid.Int64Range(1e9, 1e9+200_000).Draw(t, name), rapid.Int64Range(0, 999_999_999).Draw(t, name+" ns")).In(zone)
			return at.Format(time.RFC3339Nano), at
		}
		a, x := one("a")
		b, y := one("b")
		order, alike := CompareSequence(a, b)
		require.True(t, alike)
		require.Equal(t, x.Compare(y), order)
	})
}

// FuzzSequence: any two values have one order, in both directions, and a time or number is
// never taken for longer than it takes to read it.
func FuzzSequence(f *testing.F) {
	for _, lists := range ascendingSequences {
		f.Add(lists[0][0], lists[0][1])
	}
	f.Add("1e"+strings.Repeat("9", 400), "-1e-"+strings.Repeat("9", 400))
	f.Fuzz(func(t *testing.T, a, b string) {
		there, alike := CompareSequence(a, b)
		back, too := CompareSequence(b, a)
		require.True(t, there == -back && alike == too)
		same, alike := CompareSequence(a, a)
		require.True(t, alike && same == 0)
	})
}
