package events_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/seed-86dfc502/weir/api/events"
	"github.com/stretchr/testify/require"
)

// Calls that arrive while others are under way are joined: each gets its own
// results, and a tenant's never go with another's.
func TestCallsAreJoined(t *testing.T) {
	type joined struct {
		tenant string
		in     []int
	}
	var mu sync.Mutex
	var calls []joined
	begun, release := make(chan struct{}, 100), make(chan struct{})
	calling := events.NewTogether(func(ctx context.Context, tenant string, in []int) ([]string, error) {
		mu.Lock()
		calls = append(calls, joined{tenant, in})
		mu.Unlock()
		begun <- struct{}{}
		<-release
		var out []string
		for _, n := range in {
			out = append(out, fmt.Sprint(tenant, n))
		}
		return out, nil
	})

	var all sync.WaitGroup
	call := func(tenant string, in ...int) {
		all.Go(func() {
			out, err := calling.Call(context.Background(), tenant, in)
			if err != nil || len(out) != len(in) {
				t.Errorf("%v: %v %v", in, out, err)
				return
			}
			for i, n := range in {
				if out[i] != fmt.Sprint(tenant, n) {
					t.Errorf("%v: %v", in, out)
				}
			}
		})
	}
	const workers = 4
	for n := range workers {
		call("acme", n)
		<-begun // one by one, so that none is joined with another
	}
	call("beta", 1)
	<-begun // another tenant does not wait
	ctx, cancel := context.WithCancel(context.Background())
	given := make(chan error)
	go func() {
		_, err := calling.Call(ctx, "acme", []int{99})
		given <- err
	}()
	cancel()
	require.ErrorIs(t, <-given, context.Canceled, "who goes does not wait for its turn")
	for n := range 50 {
		call("acme", 100+n, 200+n)
	}
	require.Eventually(t, func() bool { return calling.Waiting("acme") == 50 }, patience, 1e6)
	close(release)
	all.Wait()
	mu.Lock()
	defer mu.Unlock()
	require.Less(t, len(calls), workers+1+10, "50 calls were made in a few")
	for _, c := range calls {
		require.NotContains(t, c.in, 99, "its caller has gone")
	}
}

func TestJoinedCallsFailTogether(t *testing.T) {
	down := errors.New("down")
	calling := events.NewTogether(func(context.Context, string, []int) ([]string, error) { return nil, down })
	for range 3 {
		_, err := calling.Call(t.Context(), "acme", []int{1})
		require.ErrorIs(t, err, down)
	}
	require.Zero(t, calling.Waiting("acme"))
}
