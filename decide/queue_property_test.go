package decide

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

type interleaved struct{ partition, number int }

// submit submits a frame again, as a subscriber does, until it is done or its error is a fault.
func submit(q *queue[interleaved], f interleaved, items, bytes int, withdrawn bool) error {
	attempt, cancel := context.WithCancel(context.Background())
	defer cancel()
	if withdrawn {
		cancel()
	}
	for {
		err := q.Submit(attempt, f, items, bytes)
		if err == nil || !errors.Is(err, context.Canceled) && !errors.Is(err, errAway) {
			return err
		}
		attempt = context.Background()
	}
}

// For any interleaving of submissions, withdrawals and failures: nothing
// takes effect twice, a nil answer means an effect, an error means none,
// frames of a partition keep their order, and no batch passes its bounds.
func TestAnyInterleaving(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := queueConfig{
			MaxItems: rapid.IntRange(0, 8).Draw(t, "items"),
			MaxBytes: rapid.SampledFrom([]int{0, 50, 1000}).Draw(t, "bytes"),
		}
		partitions := rapid.IntRange(1, 6).Draw(t, "partitions")
		frames := rapid.IntRange(1, 20).Draw(t, "frames")
		failures := rapid.SliceOfN(rapid.Bool(), 12, 12).Draw(t, "failures")
		withdrawn := rapid.SliceOfN(rapid.Bool(), 16, 16).Draw(t, "withdrawn first attempts")
		items := rapid.SliceOfN(rapid.IntRange(1, 5), 8, 8).Draw(t, "records")
		bytes := rapid.SliceOfN(rapid.IntRange(0, 60), 8, 8).Draw(t, "sizes")

		var mu sync.Mutex
		var faults []string
		fault := func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			faults = append(faults, fmt.Sprintf(format, args...))
		}
		next := make([]int, partitions) // of the handler's goroutine, then of this one
		handled := 0
		q := newQueue[interleaved](cfg)
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			q.Run(ctx, func(_ context.Context, batch []*entry[interleaved]) {
				sumItems, sumBytes := 0, 0
				for _, e := range batch {
					sumItems += items[e.Value.number%8]
					sumBytes += bytes[e.Value.number%8]
					if handled++; failures[handled%len(failures)] && handled < 60 {
						e.Fail(errAway)
						continue
					}
					if e.Value.number != next[e.Value.partition] {
						fault("frame %v where %d is next", e.Value, next[e.Value.partition])
					}
					next[e.Value.partition]++
				}
				if len(batch) == 0 || len(batch) > 1 && (cfg.MaxItems > 0 && sumItems > cfg.MaxItems || cfg.MaxBytes > 0 && sumBytes > cfg.MaxBytes) {
					fault("a batch of %d entries, %d items, %d bytes", len(batch), sumItems, sumBytes)
				}
			}, 0, nil)
		}()
		var wg sync.WaitGroup
		for p := range partitions {
			wg.Go(func() {
				for n := range frames {
					err := submit(q, interleaved{p, n}, items[n%8], bytes[n%8], withdrawn[(n+p)%len(withdrawn)])
					if err != nil {
						fault("%v", err)
					}
				}
			})
		}
		wg.Wait()
		if !q.Idle() {
			fault("not idle")
		}
		stop()
		<-done
		for p, n := range next {
			if n != frames {
				fault("partition %d: %d of %d", p, n, frames)
			}
		}
		if len(faults) > 0 {
			t.Fatal(faults)
		}
	})
}
