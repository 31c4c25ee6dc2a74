// Package gatetest is the conformance suite for gates.
package gatetest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/ingest/gate"
)

// Run runs the suite. New returns an empty gate whose marks last for ttl.
func Run(t *testing.T, New func(t testing.TB, ttl time.Duration) gate.Gate) {
	for _, c := range []struct {
		name string
		ttl  time.Duration
		run  func(*testing.T, gate.Gate)
	}{
		{"unknown until marked", time.Hour, unknownUntilMarked},
		{"other content under the same id passes", time.Hour, otherContent},
		{"same id of another source passes", time.Hour, otherSource},
		{"answers stand in the order of the questions", time.Hour, order},
		{"odd ids stay apart", time.Hour, oddIDs},
		{"no entries", time.Hour, noEntries},
		{"a mark expires", shortTTL, expires},
		{"ended context is an error", time.Hour, endedContext},
		{"many goroutines", time.Hour, concurrent},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := New(t, c.ttl)
			t.Cleanup(func() { require.NoError(t, g.Close()) })
			require.NoError(t, g.Ping(t.Context()))
			c.run(t, g)
		})
	}
}

func entry(source, id string, content byte) gate.Entry {
	return gate.Entry{Source: source, EventID: id, Hash: gate.Hash{content, 31: content}}
}

func seen(t testing.TB, g gate.Gate, entries ...gate.Entry) []bool {
	t.Helper()
	answers, err := g.Seen(t.Context(), entries)
	require.NoError(t, err)
	require.Len(t, answers, len(entries))
	return answers
}

func mark(t testing.TB, g gate.Gate, entries ...gate.Entry) {
	t.Helper()
	require.NoError(t, g.Mark(t.Context(), entries))
}

func unknownUntilMarked(t *testing.T, g gate.Gate) {
	e := entry("s", "1", 1)
	require.Equal(t, []bool{false}, seen(t, g, e))
	require.Equal(t, []bool{false}, seen(t, g, e), "a question is no mark")
	mark(t, g, e)
	require.Equal(t, []bool{true}, seen(t, g, e))
	mark(t, g, e)
	require.Equal(t, []bool{true}, seen(t, g, e))
}

func otherContent(t *testing.T, g gate.Gate) {
	first, second, zero := entry("s", "1", 1), entry("s", "1", 2), entry("s", "1", 0)
	mark(t, g, first)
	require.Equal(t, []bool{false, true, false}, seen(t, g, second, first, zero))
	mark(t, g, second)
	require.Equal(t, []bool{true, false}, seen(t, g, second, first), "the later mark replaces the earlier")
	mark(t, g, first, zero)
	require.Equal(t, []bool{false, true}, seen(t, g, first, zero), "also in one call")
}

func otherSource(t *testing.T, g gate.Gate) {
	mark(t, g, entry("s", "1", 1))
	require.Equal(t, []bool{false, true, false}, seen(t, g, entry("t", "1", 1), entry("s", "1", 1), entry("", "1", 1)))
}

func order(t *testing.T, g gate.Gate) {
	var all, odd []gate.Entry
	var want []bool
	for i := range 2500 {
		e := entry("s", fmt.Sprint(i), byte(i))
		all = append(all, e, e)
		want = append(want, i%2 == 1, i%2 == 1)
		if i%2 == 1 {
			odd = append(odd, e)
		}
	}
	mark(t, g, odd...)
	require.Equal(t, want, seen(t, g, all...))
}

func oddIDs(t *testing.T, g gate.Gate) {
	long := strings.Repeat("0123456789", 1000)
	pairs := [][2]string{
		{"a", "b:c"}, {"a:b", "c"}, {"a:", "b"}, {"a", ":b"}, {"", "a"}, {"", ":a"}, {":", "a"}, {"1", "1:1"}, {"1:1", "1"},
		{"s", "\x00"}, {"s", "\x00\x00"}, {"s\x00", "\x00"}, {"s", "a\x00b"}, {"s", "a"},
		{"s", "\r\n"}, {"s", "\r\nSET x y"}, {"s", " "}, {"s", "{a}"}, {"s", "*"}, {"s", "\xff\xfe"}, {"s", "\xff"},
		{"s", "é"}, {"s", "e\u0301"}, {"s", "香蕉🍌"},
		{"s", long}, {"s", long + "x"}, {"s", long[:len(long)-1]}, {long, "s"},
	}
	for i, marked := range pairs {
		e := entry(marked[0], marked[1], 7)
		require.Equal(t, []bool{false}, seen(t, g, e), "pair %d shares a key with an earlier one", i)
		mark(t, g, e)
	}
	for _, p := range pairs {
		require.Equal(t, []bool{true}, seen(t, g, entry(p[0], p[1], 7)))
	}
}

func noEntries(t *testing.T, g gate.Gate) {
	require.Empty(t, seen(t, g))
	mark(t, g)
}

// shortTTL is one that a test can wait for.
const shortTTL = 200 * time.Millisecond

func expires(t *testing.T, g gate.Gate) {
	const patience = 60 * time.Second
	e := entry("s", "1", 1)
	// A mark that was asked for too late says nothing: it is made once more then.
	holds := func() bool {
		began := time.Now()
		mark(t, g, e)
		was := seen(t, g, e)[0]
		if time.Since(began) > shortTTL/2 {
			return false
		}
		require.True(t, was, "forgotten before its time")
		return true
	}
	require.Eventually(t, holds, patience, time.Millisecond)
	require.Eventually(t, func() bool { return !seen(t, g, e)[0] }, patience, 10*time.Millisecond)
	require.Eventually(t, holds, patience, time.Millisecond)
}

func endedContext(t *testing.T, g gate.Gate) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e := entry("s", "1", 1)
	_, err := g.Seen(ctx, []gate.Entry{e})
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, g.Mark(ctx, []gate.Entry{e}), context.Canceled)
	require.ErrorIs(t, g.Ping(ctx), context.Canceled)
	require.Equal(t, []bool{false}, seen(t, g, e))
}

func concurrent(t *testing.T, g gate.Gate) {
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			for i := range 50 {
				e := entry("s", fmt.Sprintf("%d/%d", n, i), byte(i))
				assert.NoError(t, g.Mark(t.Context(), []gate.Entry{e}))
				answers, err := g.Seen(t.Context(), []gate.Entry{e, entry("s", "none", 0)})
				assert.NoError(t, err)
				assert.Equal(t, []bool{true, false}, answers)
			}
		})
	}
	wg.Wait()
}
