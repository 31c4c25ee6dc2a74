package gate_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/seed-86dfc502/weir/ingest/gate"
	"github.com/seed-86dfc502/weir/ingest/gate/gatetest"
	"github.com/seed-86dfc502/weir/tests/servers"
)

// patience bounds every wait.
const patience = 60 * time.Second

func newValkey(t testing.TB, o gate.ValkeyOptions) *gate.Valkey {
	t.Helper()
	if o.Timeout == 0 {
		o.Timeout = patience // the machine may be busy
	}
	o.TTL = time.Hour
	v := gate.NewValkey(o)
	t.Cleanup(func() { require.NoError(t, v.Close()) })
	return v
}

func admin(t testing.TB, address string) valkey.Client {
	t.Helper()
	c, err := valkey.NewClient(valkey.ClientOption{InitAddress: []string{address}, DisableCache: true})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func TestValkeyConformance(t *testing.T) {
	gatetest.Run(t, func(t testing.TB, ttl time.Duration) gate.Gate {
		address, prefix := servers.Valkey(t)
		return gate.NewValkey(gate.ValkeyOptions{Addresses: []string{address}, Prefix: prefix, TTL: ttl, Timeout: patience})
	})
}

func TestValkeyGatesShareTheirMarks(t *testing.T) {
	address, prefix := servers.Valkey(t)
	one := newValkey(t, gate.ValkeyOptions{Addresses: []string{address}, Prefix: prefix})
	other := newValkey(t, gate.ValkeyOptions{Addresses: []string{address}, Prefix: prefix})
	stranger := newValkey(t, gate.ValkeyOptions{Addresses: []string{address}, Prefix: prefix + "x"})
	require.NoError(t, one.Mark(t.Context(), entries(0, 1)))
	requireSeen(t, other, true)
	requireSeen(t, stranger, false)
}

func requireSeen(t testing.TB, g gate.Gate, want bool) {
	t.Helper()
	seen, err := g.Seen(t.Context(), entries(0, 1))
	require.NoError(t, err)
	require.Equal(t, []bool{want}, seen)
}

func TestValkeyKeyAndLifetime(t *testing.T) {
	address, prefix := servers.Valkey(t)
	v := newValkey(t, gate.ValkeyOptions{Addresses: []string{address}, Prefix: prefix})
	require.NoError(t, v.Mark(t.Context(), []gate.Entry{{Source: "lab", EventID: "e:1", Hash: gate.Hash{1, 31: 9}}}))
	c := admin(t, address)
	key := prefix + ":3:lab:e:1"
	value, err := c.Do(t.Context(), c.B().Get().Key(key).Build()).AsBytes()
	require.NoError(t, err)
	require.Equal(t, append([]byte{1}, append(make([]byte, 30), 9)...), value)
	ttl, err := c.Do(t.Context(), c.B().Ttl().Key(key).Build()).AsInt64()
	require.NoError(t, err)
	require.InDelta(t, time.Hour.Seconds(), ttl, 60)
}

// A value that no gate wrote is no mark, and no error either.
func TestValkeyForeignValues(t *testing.T) {
	address, prefix := servers.Valkey(t)
	v := newValkey(t, gate.ValkeyOptions{Addresses: []string{address}, Prefix: prefix})
	c := admin(t, address)
	key := prefix + ":1:s:0"
	require.NoError(t, c.Do(t.Context(), c.B().Set().Key(key).Value("").Build()).Error())
	requireSeen(t, v, false)
	require.NoError(t, c.Do(t.Context(), c.B().Del().Key(key).Build()).Error())
	require.NoError(t, c.Do(t.Context(), c.B().Rpush().Key(key).Element("a").Build()).Error())
	requireSeen(t, v, false)
	require.NoError(t, v.Mark(t.Context(), entries(0, 1)))
	requireSeen(t, v, true)
}

func TestValkeyServerKilledPausedFlushed(t *testing.T) {
	server := servers.StartOwn(t, "valkey")
	v := newValkey(t, gate.ValkeyOptions{Addresses: []string{server.Address}, Timeout: 250 * time.Millisecond})
	// Its time-out is short, so a call may meet it on a busy machine: the next one is asked then.
	seen := func() (answer bool) {
		t.Helper()
		require.Eventually(t, func() bool {
			all, err := v.Seen(t.Context(), entries(0, 1))
			answer = err == nil && all[0]
			return err == nil
		}, patience, 10*time.Millisecond, "the same gate goes on")
		return answer
	}
	mark := func() {
		t.Helper()
		require.Eventually(t, func() bool { return v.Mark(t.Context(), entries(0, 1)) == nil }, patience, 10*time.Millisecond, "the same gate goes on")
	}
	mark()
	require.True(t, seen())

	server.Kill()
	requireFailsSoon(t, v)
	server.Start()
	seen()

	server.Pause()
	requireFailsSoon(t, v)
	server.Resume()
	mark()
	require.True(t, seen())

	c := admin(t, server.Address)
	require.NoError(t, c.Do(t.Context(), c.B().Flushall().Build()).Error())
	require.False(t, seen())
}

// requireFailsSoon checks that a gate whose server is away says so, and does not
// hold its callers up: with room for a busy machine, and less than the 10 s that
// the client library would wait.
func requireFailsSoon(t testing.TB, g gate.Gate) {
	t.Helper()
	for range 3 {
		start := time.Now()
		_, err := g.Seen(t.Context(), entries(0, 1))
		require.Error(t, err)
		require.Error(t, g.Mark(t.Context(), entries(0, 1)))
		require.Error(t, g.Ping(t.Context()))
		require.Less(t, time.Since(start), 8*time.Second)
	}
}

func TestValkeyNotThereAtStart(t *testing.T) {
	server := servers.StartOwn(t, "valkey")
	server.Stop()
	v := newValkey(t, gate.ValkeyOptions{Addresses: []string{server.Address}})
	requireFailsSoon(t, v)
	server.Start()
	require.Eventually(t, func() bool { return v.Ping(t.Context()) == nil }, patience, 10*time.Millisecond)
}

// A listener that accepts and never answers must not hold up its callers.
func TestValkeyThatNeverAnswers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	v := newValkey(t, gate.ValkeyOptions{Addresses: []string{l.Addr().String()}, Timeout: 100 * time.Millisecond})
	requireFailsSoon(t, v)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, v.Ping(ctx), context.Canceled)
}

func TestValkeyAfterClose(t *testing.T) {
	v := newValkey(t, gate.ValkeyOptions{Addresses: []string{"127.0.0.1:1"}})
	require.NoError(t, v.Close())
	require.ErrorIs(t, v.Ping(t.Context()), gate.ErrClosed)
}
