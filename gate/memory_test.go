package gate_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-86dfc502/weir/gate"
	"github.com/seed-86dfc502/weir/gate/gatetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func entries(from, to int) (out []gate.Entry) {
	for i := from; i < to; i++ {
		out = append(out, gate.Entry{Source: "s", EventID: fmt.Sprint(i), Hash: gate.Hash{1}})
	}
	return out
}

func TestMemoryConformance(t *testing.T) {
	gatetest.Run(t, func(t testing.TB, ttl time.Duration) gate.Gate { return gate.NewMemory(ttl, 1_000_000) })
}

func TestMemoryIsBounded(t *testing.T) {
	m := gate.NewMemory(time.Hour, 10)
	require.NoError(t, m.Mark(t.Context(), entries(0, 10)))
	require.NoError(t, m.Mark(t.Context(), entries(0, 1)), "0 is now the newest")
	require.NoError(t, m.Mark(t.Context(), entries(10, 14)))
	seen, err := m.Seen(t.Context(), entries(0, 15))
	require.NoError(t, err)
	want := []bool{true, false, false, false, false, true, true, true, true, true, true, true, true, true, false}
	require.Equal(t, want, seen, "the four oldest made room")
	require.NoError(t, m.Mark(t.Context(), entries(100, 150)))
	seen, err = m.Seen(t.Context(), entries(138, 150))
	require.NoError(t, err)
	require.Equal(t, []bool{false, false, true, true, true, true, true, true, true, true, true, true}, seen)
}

func TestMemoryForgetsAtItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := gate.NewMemory(time.Hour, 1000)
		check := func(want ...bool) {
			t.Helper()
			seen, err := m.Seen(t.Context(), entries(0, 2))
			require.NoError(t, err)
			require.Equal(t, want, seen)
		}
		require.NoError(t, m.Mark(t.Context(), entries(0, 2)))
		<-time.After(30 * time.Minute)
		require.NoError(t, m.Mark(t.Context(), entries(1, 2)))
		<-time.After(30*time.Minute - 1)
		check(true, true)
		<-time.After(1)
		check(false, true)
		<-time.After(30 * time.Minute)
		check(false, false)
	})
}

// What an inbox took in that was lost may come again. The mistake that this
// catches: the gate calls it a repetition for as long as it remembers.
func TestMarksAreOfAGeneration(t *testing.T) {
	memory := gate.NewMemory(time.Hour, 100)
	generation := uint16(1)
	g := gate.PerGeneration(memory, func() uint16 { return generation })
	defer func() { require.NoError(t, g.Close()) }()
	seen := func() bool {
		found, err := g.Seen(t.Context(), entries(0, 1))
		require.NoError(t, err)
		return found[0]
	}
	require.NoError(t, g.Mark(t.Context(), entries(0, 1)))
	require.True(t, seen())
	generation = 2
	require.False(t, seen())
	require.NoError(t, g.Mark(t.Context(), entries(0, 1)))
	require.True(t, seen())
}
