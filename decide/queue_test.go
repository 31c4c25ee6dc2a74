package decide

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// TestMain checks for goroutines left behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stage runs a queue inside a synctest bubble and keeps what its handler got.
type stage struct {
	*queue[string]
	stop func()

	mu      sync.Mutex
	batches [][]string
}

func run(cfg queueConfig, handle func(ctx context.Context, batch []*entry[string])) *stage {
	s := &stage{queue: newQueue[string](cfg)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	s.stop = func() { cancel(); <-done }
	go func() {
		defer close(done)
		s.Run(ctx, func(ctx context.Context, batch []*entry[string]) {
			var values []string
			for _, e := range batch {
				values = append(values, e.Value)
			}
			s.mu.Lock()
			s.batches = append(s.batches, values)
			s.mu.Unlock()
			if handle != nil {
				handle(ctx, batch)
			}
		}, 0, nil)
	}()
	return s
}

// submit hands in v on a goroutine of its own, which waits when it returns.
func (s *stage) submit(ctx context.Context, v string, items, bytes int) <-chan error {
	result := make(chan error, 1)
	go func() { result <- s.Submit(ctx, v, items, bytes) }()
	synctest.Wait()
	return result
}

func (s *stage) seen() [][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.batches
}

// Frames that wait while a batch is handled make the next ones, the oldest first.
func TestBatchesOverAllSubmitters(t *testing.T) {
	type submission struct {
		value        string
		items, bytes int
	}
	for name, test := range map[string]struct {
		cfg  queueConfig
		in   []submission
		want [][]string
	}{
		"no bound": {
			queueConfig{}, []submission{{"a", 1000, 1 << 20}, {"b", 1, 1}, {"c", 5000, 1 << 30}}, [][]string{{"a", "b", "c"}},
		},
		"items": {
			queueConfig{MaxItems: 10}, []submission{{"a", 4, 1}, {"b", 6, 1}, {"c", 1, 1}, {"d", 10, 1}}, [][]string{{"a", "b"}, {"c"}, {"d"}},
		},
		"bytes": {
			queueConfig{MaxItems: 10, MaxBytes: 100}, []submission{{"a", 1, 60}, {"b", 1, 40}, {"c", 1, 20}, {"d", 1, 90}}, [][]string{{"a", "b"}, {"c"}, {"d"}},
		},
		"a larger one passes alone": {
			queueConfig{MaxItems: 10, MaxBytes: 100}, []submission{{"a", 1, 1}, {"b", 1, 500}, {"c", 11, 1}, {"d", 1, 1}}, [][]string{{"a"}, {"b"}, {"c"}, {"d"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gate := make(chan struct{})
				s := run(test.cfg, func(context.Context, []*entry[string]) { <-gate })
				all := []<-chan error{s.submit(t.Context(), "first", 1, 1)}
				for _, in := range test.in {
					all = append(all, s.submit(t.Context(), in.value, in.items, in.bytes))
				}
				require.False(t, s.Idle())
				close(gate)
				for _, r := range all {
					require.NoError(t, <-r)
				}
				require.Equal(t, test.want, s.seen()[1:])
				require.True(t, s.Idle())
				s.stop()
			})
		})
	}
}

// A withdrawn frame is in no batch.
func TestNoBatchOfNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		s := run(queueConfig{}, func(context.Context, []*entry[string]) { <-gate })
		defer s.stop()
		first := s.submit(t.Context(), "a", 1, 1)
		ctx, cancel := context.WithCancel(t.Context())
		gone := s.submit(ctx, "gone", 1, 1)
		cancel()
		require.ErrorIs(t, <-gone, context.Canceled)
		close(gate)
		require.NoError(t, <-first)
		synctest.Wait()
		require.Equal(t, [][]string{{"a"}}, s.seen())
		require.True(t, s.Idle())
	})
}

func TestOneEntryFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failure := errors.New("away")
		gate := make(chan struct{})
		s := run(queueConfig{}, func(_ context.Context, batch []*entry[string]) {
			<-gate
			for _, e := range batch {
				if e.Value == "bad" {
					e.Fail(failure)
				}
			}
		})
		defer s.stop()
		first := s.submit(t.Context(), "first", 1, 1)
		good, bad, other := s.submit(t.Context(), "good", 1, 1), s.submit(t.Context(), "bad", 1, 1), s.submit(t.Context(), "other", 1, 1)
		close(gate)
		require.NoError(t, <-first)
		require.NoError(t, <-good)
		require.ErrorIs(t, <-bad, failure)
		require.NoError(t, <-other)
		require.Equal(t, [][]string{{"first"}, {"good", "bad", "other"}}, s.seen())
	})
}

func TestWithdrawAndStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		s := run(queueConfig{}, func(ctx context.Context, _ []*entry[string]) {
			<-gate
			require.NoError(t, ctx.Err(), "the end of Run's context leaves a batch its time")
		})
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("the partition went away")
		taken, waiting, later := s.submit(ctx, "taken", 1, 1), s.submit(ctx, "waiting", 1, 1), s.submit(t.Context(), "later", 1, 1)
		cancel(cause)
		require.ErrorIs(t, <-waiting, cause)
		synctest.Wait()
		select {
		case err := <-taken:
			t.Fatal("an entry of a running batch was given up", err)
		default:
		}
		stopped := make(chan struct{})
		go func() { s.stop(); close(stopped) }()
		synctest.Wait()
		close(gate)
		require.NoError(t, <-taken, "it took effect")
		require.ErrorIs(t, <-later, errStopped)
		<-stopped
		require.Equal(t, [][]string{{"taken"}}, s.seen())
		require.ErrorIs(t, s.Submit(t.Context(), "too late", 1, 1), errStopped)
		require.True(t, s.Idle())
	})
}

func TestLimitEndsTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit, end := context.WithCancel(t.Context())
		s := run(queueConfig{Limit: limit}, func(ctx context.Context, batch []*entry[string]) {
			<-ctx.Done()
			batch[0].Fail(ctx.Err())
		})
		r := s.submit(t.Context(), "stuck", 1, 1)
		end()
		require.ErrorIs(t, <-r, context.Canceled)
		s.stop()
	})
}

func TestIdleTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue[int](queueConfig{})
		ctx, cancel := context.WithCancel(t.Context())
		var ticks atomic.Int32
		done := make(chan struct{})
		go func() {
			defer close(done)
			q.Run(ctx, func(context.Context, []*entry[int]) {}, time.Second, func(context.Context) { ticks.Add(1) })
		}()
		<-time.After(3500 * time.Millisecond)
		require.NoError(t, q.Submit(t.Context(), 1, 1, 1)) // time counts from here on
		<-time.After(900 * time.Millisecond)
		synctest.Wait()
		require.EqualValues(t, 3, ticks.Load())
		<-time.After(200 * time.Millisecond)
		cancel()
		<-done
		require.EqualValues(t, 4, ticks.Load())
	})
}
