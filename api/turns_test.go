package api

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// While another tenant is active, one that floods has its part of the work and no more, and
// the other one's requests begin at once. Alone it has no bound.
func TestTurnsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := &turns{most: 20, lanes: map[string]*lane{}}
		var mu sync.Mutex
		var begun []func()
		flood := func(n int) (waiting int) {
			for range n {
				go func() {
					if release := all.wait(t.Context(), "flooder"); release != nil {
						mu.Lock()
						defer mu.Unlock()
						begun = append(begun, release)
					}
				}()
				synctest.Wait()
			}
			return len(all.lanes["flooder"].waiting)
		}
		require.Zero(t, flood(30), "alone it has no bound")
		other := all.wait(t.Context(), "other")
		require.NotNil(t, other, "it does not wait behind a flooder")
		require.Equal(t, 10, flood(10))
		for i := range 30 {
			begun[i]()
			synctest.Wait()
			require.LessOrEqual(t, all.lanes["flooder"].atWork, max(30-i-1, 10), "its part is half")
		}
		require.Len(t, begun, 40)
		other()
		for tenant := range 10 {
			all.wait(t.Context(), string(rune('a'+tenant)))()
		}
		require.Equal(t, 1, flood(1), "its part is leastTurns")
		begun[30]()
		<-time.After(activeFor)
		require.Zero(t, flood(9), "others are active no longer")
		for i := 31; i < 50; i++ {
			begun[i]()
		}

		all.wait(t.Context(), "other")()
		require.Equal(t, 2, flood(12))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.Nil(t, all.wait(ctx, "flooder"), "its caller has gone")
		require.Len(t, all.lanes["flooder"].waiting, 2)
		for i := 50; i < 62; i++ {
			begun[i]()
			synctest.Wait()
		}
	})
}
