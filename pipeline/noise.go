package pipeline

import (
	"context"
	"time"

	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/operate/noise"
	"github.com/seed-86dfc502/weir/store"
)

const (
	// noisePeriod is how often a process writes down what suppressed events have
	// in common; a kill loses that much of it.
	noisePeriod = 10 * time.Second
	// noiseKept is how long it is kept, in whole days.
	noiseKept = 7 * 24 * time.Hour
	// noiseTimeout bounds the last write at the end of the process, within the time
	// that decisions have then: it is not worth more, and a busy machine needs some.
	noiseTimeout = 10 * time.Second
)

// startNoise stores the statistics of the deciding goroutines. All processes add to
// one report per day, so the number of processes and restarts does not matter.
func (st *stageSet) startNoise() component {
	stop := loop(func(ctx context.Context) {
		pruned := ""
		for wait.Sleep(ctx, noisePeriod) {
			st.writeNoise(ctx)
			if today := time.Now().UTC().Format(time.DateOnly); today != pruned {
				if _, err := st.store.PruneReports(ctx, noise.Kind, time.Now().Add(-noiseKept)); err == nil {
					pruned = today
				}
			}
		}
		// The statistics since the last write are worth a moment.
		last, cancel := context.WithTimeout(st.end.decide.ctx, noiseTimeout)
		defer cancel()
		st.writeNoise(last)
	})
	return component{stop: func() error { stop(); return nil }}
}

func (st *stageSet) writeNoise(ctx context.Context) {
	taken := st.noise.Take()
	if taken == nil {
		return
	}
	name := time.Now().UTC().Format(time.DateOnly) + noise.Scope(st.active.plan().Fingerprint)
	err := st.store.UpdateReport(ctx, noise.Kind, name, taken.MergeInto)
	if err == nil {
		return
	}
	st.log.Debug("which fields cause suppressed events was not written down", "error", err)
	if store.ClassOf(err) == store.Retry {
		// It certainly was not; of unknown outcome it might be counted twice.
		st.noise.Restore(taken)
	}
}
