package pause

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		require.True(t, For(ctx, time.Hour))
		require.Equal(t, time.Hour, time.Since(start))
		time.AfterFunc(time.Minute, cancel)
		require.False(t, For(ctx, time.Hour))
		require.Equal(t, time.Hour+time.Minute, time.Since(start))
	})
}

func TestForIsOverWhenBothAre(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	synctest.Test(t, func(t *testing.T) {
		for range 100 {
			require.False(t, For(ctx, 0))
		}
	})
}

func TestOutlast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop, end := context.WithCancel(t.Context())
		ctx, cancel := Outlast(t.Context(), stop, time.Minute)
		start := time.Now()
		end()
		<-ctx.Done()
		require.Equal(t, time.Minute, time.Since(start))
		cancel()

		work, over := context.WithCancel(t.Context())
		ctx, cancel = Outlast(work, t.Context(), time.Minute)
		over()
		<-ctx.Done()
		require.Equal(t, time.Minute, time.Since(start), "with work it ends at once")
		cancel()
	})
}
