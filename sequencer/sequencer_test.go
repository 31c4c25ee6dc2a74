package sequencer_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-86dfc502/weir/sequencer"
	"github.com/seed-86dfc502/weir/transport"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func at(part int32, claim, seq uint64) transport.Position {
	return transport.Position{Topic: "t", Partition: part, Claim: claim, Seq: seq}
}

// harness runs a sequencer inside a synctest bubble and keeps what its handler got.
type harness struct {
	*sequencer.Sequencer[string]
	stop func()

	mu      sync.Mutex
	batches [][]string
	handle  func(runs []*sequencer.Run[string])
}

func run(cfg sequencer.Config, handle func(runs []*sequencer.Run[string])) *harness {
	h := &harness{Sequencer: sequencer.New[string](cfg), handle: handle}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	h.stop = func() { cancel(); <-done }
	go func() {
		defer close(done)
		_ = h.Run(ctx, func(_ context.Context, runs []*sequencer.Run[string]) {
			var batch []string
			for _, r := range runs {
				for _, i := range r.Items {
					batch = append(batch, i.Value)
				}
			}
			h.mu.Lock()
			h.batches = append(h.batches, batch)
			h.mu.Unlock()
			if h.handle != nil {
				h.handle(runs)
			}
		}, 0, nil)
	}()
	return h
}

// submit hands a message in on a goroutine of its own.
func (h *harness) submit(ctx context.Context, p transport.Position, size int) <-chan error {
	result := make(chan error, 1)
	go func() { result <- h.Submit(ctx, p, fmt.Sprintf("%d/%d", p.Partition, p.Seq), size) }()
	return result
}

func (h *harness) seen() [][]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.batches
}

func TestWaitsForTheGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := run(sequencer.Config{MaxItems: 10}, nil)
		defer h.stop()
		two, one := h.submit(t.Context(), at(0, 1, 2), 1), h.submit(t.Context(), at(0, 1, 1), 1)
		synctest.Wait()
		require.Empty(t, h.seen())
		require.True(t, h.Idle())
		zero := h.submit(t.Context(), at(0, 1, 0), 1)
		for _, r := range []<-chan error{zero, one, two} {
			require.NoError(t, <-r)
		}
		require.Equal(t, [][]string{{"0/0", "0/1", "0/2"}}, h.seen())
	})
}

func TestLingerWaitsForMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := run(sequencer.Config{MaxItems: 3, Linger: time.Second}, nil)
		defer h.stop()
		start := time.Now()
		first := h.submit(t.Context(), at(0, 1, 0), 1)
		time.Sleep(900 * time.Millisecond) // the bubble's clock
		second := h.submit(t.Context(), at(0, 1, 1), 1)
		require.NoError(t, <-first)
		require.NoError(t, <-second)
		require.Equal(t, time.Second, time.Since(start))
		require.Equal(t, [][]string{{"0/0", "0/1"}}, h.seen())

		// A full batch does not wait.
		start = time.Now()
		var rest []<-chan error
		for i := range uint64(3) {
			rest = append(rest, h.submit(t.Context(), at(0, 1, 2+i), 1))
		}
		for _, r := range rest {
			require.NoError(t, <-r)
		}
		require.Zero(t, time.Since(start))
	})
}

func TestSharesAndBounds(t *testing.T) {
	// What waits while the first batch is handled makes the second.
	next := func(t *testing.T, cfg sequencer.Config, fill func(h *harness)) [][]string {
		var batches [][]string
		synctest.Test(t, func(t *testing.T) {
			gate := make(chan struct{})
			h := run(cfg, func([]*sequencer.Run[string]) { <-gate })
			h.submit(context.Background(), at(9, 1, 0), 1)
			synctest.Wait()
			fill(h)
			synctest.Wait()
			close(gate)
			synctest.Wait()
			batches = h.seen()[1:]
			h.stop()
		})
		return batches
	}
	t.Run("a hot partition leaves room for the others", func(t *testing.T) {
		got := next(t, sequencer.Config{MaxItems: 6}, func(h *harness) {
			for i := range uint64(20) {
				h.submit(context.Background(), at(0, 1, i), 1)
			}
			h.submit(context.Background(), at(1, 1, 0), 1)
			h.submit(context.Background(), at(2, 1, 0), 1)
		})
		require.ElementsMatch(t, []string{"0/0", "0/1", "0/2", "0/3", "1/0", "2/0"}, got[0])
	})
	t.Run("bytes", func(t *testing.T) {
		got := next(t, sequencer.Config{MaxItems: 10, MaxBytes: 100}, func(h *harness) {
			for i, size := range []int{60, 30, 20, 500, 90} {
				h.submit(context.Background(), at(0, 1, uint64(i)), size)
			}
		})
		require.Equal(t, [][]string{{"0/0", "0/1"}, {"0/2"}, {"0/3"}, {"0/4"}}, got)
	})
}

func TestFailureComesAgainInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failure, failing := errors.New("away"), true
		h := run(sequencer.Config{MaxItems: 2}, func(runs []*sequencer.Run[string]) {
			if failing {
				runs[0].Fail(failure)
			}
		})
		defer h.stop()
		waiting := h.submit(t.Context(), at(0, 1, 2), 1) // behind the ones that fail
		zero, one := h.submit(t.Context(), at(0, 1, 0), 1), h.submit(t.Context(), at(0, 1, 1), 1)
		synctest.Wait()
		for _, r := range []<-chan error{zero, one} {
			select {
			case err := <-r:
				require.ErrorIs(t, err, failure)
			default:
				// The two may have made one batch each; the second waits for the first.
			}
		}
		select {
		case err := <-waiting:
			t.Fatal("a message went past one that failed", err)
		default:
		}
		failing = false
		again := []<-chan error{h.submit(t.Context(), at(0, 1, 0), 1), h.submit(t.Context(), at(0, 1, 1), 1), waiting}
		for _, r := range again {
			require.NoError(t, <-r)
		}
	})
}

func TestNewClaimEndsTheOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := run(sequencer.Config{MaxItems: 10}, nil)
		defer h.stop()
		old := h.submit(t.Context(), at(0, 1, 5), 1)
		synctest.Wait()
		require.NoError(t, <-h.submit(t.Context(), at(0, 2, 0), 1))
		require.ErrorIs(t, <-old, sequencer.ErrClaimEnded)
		require.ErrorIs(t, <-h.submit(t.Context(), at(0, 1, 6), 1), sequencer.ErrClaimEnded)
		require.NoError(t, <-h.submit(t.Context(), at(0, 2, 0), 1), "a repetition of what was handled")
		require.Equal(t, [][]string{{"0/0"}}, h.seen())
	})
}

func TestCancelAndStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		h := run(sequencer.Config{MaxItems: 1}, func([]*sequencer.Run[string]) { <-gate })
		ctx, cancel := context.WithCancel(t.Context())
		taken, waiting, later := h.submit(ctx, at(0, 1, 0), 1), h.submit(ctx, at(0, 1, 1), 1), h.submit(t.Context(), at(0, 1, 2), 1)
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-waiting, context.Canceled)
		synctest.Wait()
		select {
		case err := <-taken:
			t.Fatal("a message of a running batch was given up", err)
		default:
		}
		close(gate)
		require.NoError(t, <-taken)
		synctest.Wait()
		require.Equal(t, [][]string{{"0/0"}}, h.seen(), "the gap that the cancelled one left holds the next back")
		h.stop()
		require.ErrorIs(t, <-later, sequencer.ErrStopped)
		require.ErrorIs(t, h.Submit(t.Context(), at(0, 1, 3), "", 1), sequencer.ErrStopped)
		require.True(t, h.Idle())
	})
}

func TestIdleCallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sequencer.New[int](sequencer.Config{MaxItems: 1})
		ctx, cancel := context.WithCancel(t.Context())
		ticks := 0
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = s.Run(ctx, func(context.Context, []*sequencer.Run[int]) {}, time.Second, func(context.Context) { ticks++ })
		}()
		time.Sleep(3500 * time.Millisecond)
		cancel()
		<-done
		require.Equal(t, 3, ticks)
	})
}
