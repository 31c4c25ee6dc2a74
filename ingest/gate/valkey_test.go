package gate_test

import (
	"context"
	"net"
	"strconv"
	"strings"
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

// hashes returns the keys below a prefix.
func hashes(t testing.TB, c valkey.Client, prefix string) []string {
	t.Helper()
	keys, err := c.Do(t.Context(), c.B().Keys().Pattern(prefix+":*").Build()).AsStrSlice()
	require.NoError(t, err)
	return keys
}

func TestValkeyKeysAndLifetime(t *testing.T) {
	address, prefix := servers.Valkey(t)
	v := newValkey(t, gate.ValkeyOptions{Addresses: []string{address}, Prefix: prefix})
	require.NoError(t, v.Mark(t.Context(), []gate.Entry{{Source: "lab", EventID: "e:1", Hash: gate.Hash{1, 31: 9}}}))
	c := admin(t, address)
	keys := hashes(t, c, prefix)
	require.Len(t, keys, 1)
	fields, err := c.Do(t.Context(), c.B().Hgetall().Key(keys[0]).Build()).AsStrMap()
	require.NoError(t, err)
	require.Equal(t, map[string]string{"3:lab:e:1": string(append([]byte{1}, append(make([]byte, 30), 9)...))}, fields)
	ttl, err := c.Do(t.Context(), c.B().Ttl().Key(keys[0]).Build()).AsInt64()
	require.NoError(t, err)
	require.InDelta(t, (2*time.Hour + 5*time.Minute).Seconds(), ttl, 60)

	require.NoError(t, v.Mark(t.Context(), entries(0, 1000)))
	require.InDelta(t, 16, len(hashes(t, c, prefix)), 16, "1,000 marks are in few keys, also at the end of a period")
}

// A value that no gate wrote is no mark.
func TestValkeyForeignValues(t *testing.T) {
	address, prefix := servers.Valkey(t)
	v := newValkey(t, gate.ValkeyOptions{Addresses: []string{address}, Prefix: prefix})
	c := admin(t, address)
	require.NoError(t, v.Mark(t.Context(), entries(0, 1)))
	requireSeen(t, v, true)
	for _, key := range hashes(t, c, prefix) {
		require.NoError(t, c.Do(t.Context(), c.B().Hset().Key(key).FieldValue().FieldValue("1:s:0", "").Build()).Error())
	}
	requireSeen(t, v, false)
}

// An id with other content before the end of a period and after it is no repetition of either, as
// two processes may disagree about which came later.
func TestValkeyMarksOfTwoPeriods(t *testing.T) {
	address, prefix := servers.Valkey(t)
	v := newValkey(t, gate.ValkeyOptions{Addresses: []string{address}, Prefix: prefix})
	one, other := gate.Entry{Source: "s", EventID: "0", Hash: gate.Hash{1}}, gate.Entry{Source: "s", EventID: "0", Hash: gate.Hash{2}}
	require.NoError(t, v.Mark(t.Context(), []gate.Entry{one}))
	c := admin(t, address)
	keys := hashes(t, c, prefix)
	require.Len(t, keys, 1)
	parts := strings.Split(keys[0], ":")
	period, err := strconv.ParseInt(parts[len(parts)-2], 10, 64)
	require.NoError(t, err)
	parts[len(parts)-2] = strconv.FormatInt(period-1, 10)
	before := strings.Join(parts, ":")
	seen := func() []bool {
		answers, err := v.Seen(t.Context(), []gate.Entry{one, other})
		require.NoError(t, err)
		return answers
	}
	require.NoError(t, c.Do(t.Context(), c.B().Hset().Key(before).FieldValue().FieldValue("1:s:0", string(other.Hash[:])).Build()).Error())
	require.Equal(t, []bool{false, false}, seen())
	require.NoError(t, c.Do(t.Context(), c.B().Del().Key(keys[0]).Build()).Error())
	require.Equal(t, []bool{false, true}, seen(), "a mark of the period before is valid")
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
