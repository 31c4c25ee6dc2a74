package sequencer_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/sequencer"
	"pgregory.net/rapid"
)

var errAway = errors.New("away")

// log is what took effect of one claim.
type log struct {
	claim uint64
	next  uint64
	bad   string
}

// Whatever the interleaving of Submit, of cancellations, failures and new
// claims: the runs of a claim are contiguous and in order, nothing takes effect
// twice in a claim, whoever gets nil took effect, and in the end everything did.
func TestAnyInterleaving(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := sequencer.Config{
			MaxItems: rapid.IntRange(1, 8).Draw(t, "items"),
			MaxBytes: rapid.SampledFrom([]int{0, 50, 1000}).Draw(t, "bytes"),
			Linger:   rapid.SampledFrom([]time.Duration{0, 50 * time.Microsecond}).Draw(t, "linger"),
		}
		partitions := rapid.IntRange(1, 4).Draw(t, "partitions")
		messages := rapid.IntRange(1, 40).Draw(t, "messages")
		failures := rapid.SliceOfN(rapid.Bool(), 12, 12).Draw(t, "failures")
		cancels := rapid.SliceOfN(rapid.Bool(), 16, 16).Draw(t, "cancelled first attempts")
		lastClaims := rapid.SliceOfN(rapid.Uint64Range(1, 3), partitions, partitions).Draw(t, "claims")
		sizes := rapid.SliceOfN(rapid.IntRange(0, 60), 8, 8).Draw(t, "sizes")

		var mu sync.Mutex
		logs := map[int32]*log{}
		calls := 0
		s := sequencer.New[uint64](cfg)
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = s.Run(ctx, func(_ context.Context, runs []*sequencer.Run[uint64]) {
				mu.Lock()
				defer mu.Unlock()
				items, bytes := 0, 0
				for _, r := range runs {
					calls++
					fail := failures[calls%len(failures)] && calls < 60
					l := logs[r.Partition.Number]
					if l == nil || r.Claim > l.claim {
						l = &log{claim: r.Claim}
						logs[r.Partition.Number] = l
					}
					if r.Claim != l.claim {
						l.bad = "an ended claim"
					}
					for i, item := range r.Items {
						items++
						bytes += sizes[item.Value%8]
						if item.Position.Seq != l.next+uint64(i) || item.Value != item.Position.Seq || item.Position.Claim != r.Claim {
							l.bad = "out of order"
						}
					}
					if fail {
						r.Fail(errAway)
					} else {
						l.next += uint64(len(r.Items))
					}
				}
				if items > cfg.MaxItems || cfg.MaxBytes > 0 && items > 1 && bytes > cfg.MaxBytes {
					logs[-2] = &log{bad: "too large a batch"}
				}
			}, 0, nil)
		}()

		var wg sync.WaitGroup
		for p := range partitions {
			for claim := uint64(1); claim <= lastClaims[p]; claim++ {
				for seq := range uint64(messages) {
					wg.Go(func() {
						pos := at(int32(p), claim, seq)
						try, cancel := context.WithCancel(context.Background())
						defer cancel()
						if cancels[(int(seq)+p)%len(cancels)] {
							cancel()
						}
						for {
							err := s.Submit(try, pos, seq, sizes[seq%8])
							switch {
							case err == nil, errors.Is(err, sequencer.ErrClaimEnded):
								return
							case errors.Is(err, context.Canceled), errors.Is(err, errAway):
								try = context.Background() // it comes again, as a subscriber would do it
							default:
								mu.Lock()
								logs[-1] = &log{bad: err.Error()}
								mu.Unlock()
								return
							}
						}
					})
				}
			}
		}
		wg.Wait()
		stop()
		<-done
		mu.Lock()
		defer mu.Unlock()
		for p, l := range logs {
			if l.bad != "" {
				t.Fatalf("partition %d: %s", p, l.bad)
			}
		}
		for p := range partitions {
			if l := logs[int32(p)]; l == nil || l.claim != lastClaims[p] || l.next != uint64(messages) {
				t.Fatalf("partition %d: %+v, want claim %d up to %d", p, l, lastClaims[p], messages)
			}
		}
	})
}
