package gate_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-86dfc502/weir/ingest/gate"
	"github.com/seed-86dfc502/weir/ingest/gate/gatetest"
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
