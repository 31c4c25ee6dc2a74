package pipeline

import (
	"context"
	"log/slog"
	"time"

	"github.com/seed-86dfc502/weir/internal/fieldcount"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/operate/noise"
	"github.com/seed-86dfc502/weir/store"
)

const (
	// noisePeriod is how often a process stores its counts of suppressed events. A kill loses the
	// counts of one period.
	noisePeriod = 10 * time.Second
	// noiseKept is how long it is kept, in whole days.
	noiseKept = 7 * 24 * time.Hour
	// noiseTimeout bounds the last write at the end of the process, within the time
	// that decisions have then: it is not worth more, and a busy machine needs some.
	noiseTimeout = 10 * time.Second
)

// noiseWriter stores the statistics of suppressed events.
type noiseWriter struct {
	store  store.Reports
	log    *slog.Logger
	active *activation
	noise  *fieldcount.Collector
	limit  context.Context
}

// start stores the statistics of the deciding goroutines. All processes add to
// one report per day, so the number of processes and restarts does not matter.
func (w *noiseWriter) start() component {
	stop := loop(func(ctx context.Context) {
		pruned := ""
		for wait.Sleep(ctx, noisePeriod) {
			w.writeNoise(ctx)
			if today := time.Now().UTC().Format(time.DateOnly); today != pruned {
				if _, err := w.store.PruneReports(ctx, noise.Kind, time.Now().Add(-noiseKept)); err == nil {
					pruned = today
				}
			}
		}
		// The statistics since the last write are worth a moment.
		last, cancel := context.WithTimeout(w.limit, noiseTimeout)
		defer cancel()
		w.writeNoise(last)
	})
	return component{stop: func() error { stop(); return nil }}
}

func (w *noiseWriter) writeNoise(ctx context.Context) {
	taken := w.noise.Take()
	if taken == nil {
		return
	}
	name := time.Now().UTC().Format(time.DateOnly) + noise.Scope(w.active.plan().Fingerprint)
	err := w.store.UpdateReport(ctx, noise.Kind, name, taken.MergeInto)
	if err == nil {
		return
	}
	w.log.Debug("statistics of suppressed events were not stored", "event", "noise.not_stored", "error", err)
	if store.ClassOf(err) == store.Retry {
		// It was certainly not stored. After an unknown outcome it could be counted twice.
		w.noise.Restore(taken)
	}
}
