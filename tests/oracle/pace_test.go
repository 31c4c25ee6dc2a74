package oracle

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCheckRate(t *testing.T) {
	t.Parallel()
	began := time.Unix(1000, 0)
	at := func(ms ...int) (all []time.Time) {
		for _, n := range ms {
			all = append(all, began.Add(time.Duration(n)*time.Millisecond))
		}
		return all
	}
	for _, within := range [][]time.Time{nil, at(500, 1000, 1500), at(5000, 5000, 5500), at(9000, 9000, 9499, 10000)[1:]} {
		require.NoError(t, CheckRate(began, within, 2, 2))
	}
	for _, above := range [][]time.Time{at(0), at(499), at(500, 999), at(5000, 5000, 5000), at(5000, 5000, 5500, 5900)} {
		require.Error(t, CheckRate(began, above, 2, 2))
	}
}

func TestCheckCoalesced(t *testing.T) {
	t.Parallel()
	change := func(version uint64) Change {
		doc, err := Decode(fmt.Appendf(nil, `{"n":%d}`, version%5))
		require.NoError(t, err)
		return Change{Version: version, Op: "upsert", Doc: doc, seen: doc}
	}
	want := Expected{"s": {"a": {change(1), change(3), change(5)}, "b": {change(4), change(7), change(9)}}}
	sent := func(versions ...uint64) (all []Record) {
		for _, v := range versions {
			r := Record{Entity: "a", Op: "upsert", Version: v, Key: string(rune('0' + v)), Doc: fmt.Appendf(nil, `{"n":%d}`, v%5)}
			if v == 4 || v > 5 {
				r.Entity = "b"
			}
			all = append(all, r)
		}
		return all
	}
	for _, right := range [][]Record{sent(5, 4), sent(1, 4, 1, 5, 5), sent(4, 1, 3, 5), sent(5, 4, 9), sent(5, 9)} {
		require.NoError(t, CheckCoalesced(want, "s", right))
	}
	for _, wrong := range [][]Record{sent(4, 1, 3), sent(4, 3, 1, 5), sent(4, 2, 5), sent(4, 5, 3), sent(5, 4, 7)} {
		require.Error(t, CheckCoalesced(want, "s", wrong))
	}
}
