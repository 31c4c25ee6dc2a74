package wait

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		require.True(t, Sleep(ctx, time.Hour))
		require.Equal(t, time.Hour, time.Since(start))
		time.AfterFunc(time.Minute, cancel)
		require.False(t, Sleep(ctx, time.Hour))
		require.Equal(t, time.Hour+time.Minute, time.Since(start))
	})
}

func TestSleepIsOverWhenBothAre(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	synctest.Test(t, func(t *testing.T) {
		for range 100 {
			require.False(t, Sleep(ctx, 0))
		}
	})
}

func TestOffer(t *testing.T) {
	c := make(chan int, 1)
	Offer(c, 1)
	Offer(c, 2)
	require.Equal(t, 1, <-c)
	require.Empty(t, c)
}

func TestWithGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop, end := context.WithCancel(t.Context())
		ctx, cancel := WithGrace(t.Context(), stop, time.Minute)
		start := time.Now()
		end()
		<-ctx.Done()
		require.Equal(t, time.Minute, time.Since(start))
		cancel()

		work, over := context.WithCancel(t.Context())
		ctx, cancel = WithGrace(work, t.Context(), time.Minute)
		over()
		<-ctx.Done()
		require.Equal(t, time.Minute, time.Since(start), "with work it ends at once")
		cancel()
	})
}
