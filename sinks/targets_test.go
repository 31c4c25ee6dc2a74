package sinks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// client is a shared client of a test, which counts what becomes of it.
type client struct{ opened, closed int }

func (c *client) share(t *Targets, key, tenant string, connections int) *Lease[*client] {
	return Share(t, ClientConfig[*client]{
		Key: key, Connections: connections, Tenant: tenant,
		Open:  func() (*client, error) { c.opened++; return c, nil },
		Close: func(*client) error { c.closed++; return nil },
	})
}

func TestTheLastServiceClosesTheClient(t *testing.T) {
	var targets Targets
	var shared, other client
	var leases []*Lease[*client]
	for range 3 {
		l := shared.share(&targets, "a", "", 1)
		c, err := l.Client()
		require.NoError(t, err)
		require.Same(t, &shared, c)
		leases = append(leases, l)
	}
	unused := other.share(&targets, "b", "", 1)
	require.Equal(t, 1, shared.opened)
	for i, l := range leases {
		require.Zero(t, shared.closed, "with %d services left", 3-i)
		require.NoError(t, l.Close())
		require.NoError(t, l.Close(), "twice")
	}
	require.Equal(t, client{1, 1}, shared)
	require.NoError(t, unused.Close())
	require.Equal(t, client{}, other, "nobody needed it")

	// After a reload the target is opened again.
	again := shared.share(&targets, "a", "", 1)
	_, err := again.Client()
	require.NoError(t, err)
	require.NoError(t, again.Close())
	require.Equal(t, client{2, 2}, shared)
	require.Empty(t, targets.open)
}

func TestAClientThatCannotBeOpenedIsTriedAgain(t *testing.T) {
	cause := errors.New("no file")
	calls := 0
	l := Share(nil, ClientConfig[int]{
		Key: "a",
		Open: func() (int, error) {
			if calls++; calls == 1 {
				return 0, cause
			}
			return 7, nil
		},
		Close: func(int) error { return cause },
	})
	_, err := l.Client()
	require.ErrorIs(t, err, cause)
	c, err := l.Client()
	require.NoError(t, err)
	require.Equal(t, 7, c)
	require.ErrorIs(t, l.Close(), cause)
	require.NoError(t, l.Close())
}

func TestKeysTellConfigurationsApart(t *testing.T) {
	keys := map[string]bool{}
	for _, configuration := range [][]any{{"a"}, {"a", ""}, {"", "a"}, {[]string{"a"}}, {map[string]string{"a": ""}}, {1}, {"1"}} {
		keys[ClientKey("kind", configuration...)] = true
		keys[ClientKey("other", configuration...)] = true
	}
	require.Len(t, keys, 14)
	key := ClientKey("kind", "hunter2")
	require.Equal(t, key, ClientKey("kind", "hunter2"))
	require.NotContains(t, key, "hunter2")
}

// However services ask and return, no more connections are out than there are, no
// tenant has more than its part, and no service waits while a connection is free.
func TestConnectionsAreShared(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 9).Draw(t, "connections")
		s := connections{limit: most}
		var members []*member
		for i := range rapid.IntRange(1, 5).Draw(t, "services") {
			members = append(members, &member{tenant: s.join(strconv.Itoa(rapid.IntRange(0, i).Draw(t, "tenant")))})
		}
		half := max(1, most/2)
		var leases []*lease
		granted := func(t *lease) bool { return !slices.Contains(s.queue, t) }
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			held := slices.DeleteFunc(slices.Clone(leases), func(t *lease) bool { return !granted(t) })
			if len(held) == 0 || rapid.Bool().Draw(t, "ask") {
				leases = append(leases, s.request(rapid.SampledFrom(members).Draw(t, "who")))
			} else {
				back := rapid.SampledFrom(held).Draw(t, "back")
				s.setTimedOut(back.member.tenant, rapid.Bool().Draw(t, "timedOut"))
				s.release(back)
				leases = slices.DeleteFunc(leases, func(t *lease) bool { return t == back })
			}
			held = slices.DeleteFunc(slices.Clone(leases), func(t *lease) bool { return !granted(t) })
			require.LessOrEqual(t, len(held), most)
			require.Len(t, held, s.held)
			tenants, timedOut := map[*tenant]int{}, 0
			for _, h := range held {
				tenants[h.member.tenant]++
				if h.member.tenant.timedOut {
					timedOut++
				}
			}
			require.Equal(t, timedOut, s.timedOut)
			for _, n := range tenants {
				require.True(t, n <= half || len(s.tenants) == 1, "a tenant has %d of %d", n, most)
			}
			for _, waiting := range s.queue {
				l := waiting.member.tenant
				require.True(t, len(held) == most || len(s.tenants) > 1 && (tenants[l] >= half || l.timedOut && timedOut >= half), "somebody waits for nothing")
			}
		}
	})
}

// Ten tables are locked: each writer to them waits until a time-out, holding a
// connection. The eleventh table's service must go on beside them.
func TestTimedOutTenantsLeaveConnectionsToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var targets Targets
		ctx, stop := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer stop()
		var locked []*Lease[*client]
		for i := range 10 {
			locked = append(locked, new(client).share(&targets, "a", fmt.Sprintf("locked %d", i), 4))
		}
		healthy := new(client).share(&targets, "a", "healthy", 4)
		for _, l := range locked {
			go func() {
				for {
					release, err := l.Hold(ctx)
					if err != nil {
						return
					}
					if sleep(ctx, 5*slowFailure) != nil {
						release(nil)
						return
					}
					release(errors.New("lock time-out"))
				}
			}()
		}
		synctest.Wait() // all connections are taken now
		// Within three rounds every tenant has shown that it is timedOut.
		require.NoError(t, sleep(ctx, 20*slowFailure))
		for range 1000 {
			release, err := healthy.Hold(ctx)
			require.NoError(t, err)
			synctest.Wait()
			release(nil)
		}
	})
}

func TestWhoeverWaitsForAConnectionCanLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var targets Targets
		l := new(client).share(&targets, "a", "", 1)
		release, err := l.Hold(t.Context())
		require.NoError(t, err)
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("shutdown")
		left := make(chan error)
		go func() {
			_, err := l.Hold(ctx)
			left <- err
		}()
		synctest.Wait()
		cancel(cause)
		err = <-left
		require.ErrorIs(t, err, cause)
		require.Equal(t, Retry, Classify(err).Class)
		require.False(t, Classify(err).Ambiguous)
		release(nil)
		release, err = l.Hold(t.Context())
		require.NoError(t, err, "the place in the queue went with its owner")
		release(nil)
	})
}
