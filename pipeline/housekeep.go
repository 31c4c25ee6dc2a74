package pipeline

import (
	"context"
	"sync"
	"time"

	"github.com/seed-86dfc502/weir/internal/wait"
)

const (
	// housekeepingPeriod is how often old state is looked for; in between,
	// what is over its time is kept a little longer.
	housekeepingPeriod = time.Hour
	// purgeBatch bounds one purge, so that decisions never wait long for it.
	purgeBatch = 500
	// tidyAgain is when what failed is tried again.
	tidyAgain = 10 * time.Minute
)

// housekeep removes what is over its retention time: tombstones of deleted
// entities with their dam rows, dead letters and audit rows, every hour, and
// months of the ledger, once a day (I7).
func (p *Pipeline) housekeep(ctx context.Context) {
	var ledger sync.WaitGroup
	defer ledger.Wait()
	ledger.Go(func() { p.retainClaims(ctx) })
	for {
		pause := housekeepingPeriod
		now := time.Now()
		r := p.cfg.Retention
		for {
			n, err := p.store.PurgeEntities(ctx, now.Add(-r.Tombstones.D()), purgeBatch)
			if err != nil && ctx.Err() == nil {
				pause = tidyAgain
				p.log.Warn("tombstones stay until the next time", "error", err)
			}
			if err != nil || n < purgeBatch {
				break
			}
		}
		if _, err := p.store.Prune(ctx, now.Add(-r.DeadLetters.D()), now.Add(-r.Audit.D())); err != nil && ctx.Err() == nil {
			pause = tidyAgain
			p.log.Warn("old dead letters and audit rows stay until the next time", "error", err)
		}
		if !wait.Sleep(ctx, pause) {
			return
		}
	}
}

// retainClaims drops the months of the ledger that are over, at the time of day
// that is configured, and at the start: what a night was missed for is made up.
// Every process may do it, the first one finds something to do.
func (p *Pipeline) retainClaims(ctx context.Context) {
	keys := p.cfg.API.Keys
	for {
		pause := untilTimeOfDay(time.Now(), keys.DropAt.D())
		dropped, err := p.store.RetainClaims(ctx, keys.Retention.D())
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			pause = min(pause, tidyAgain)
			p.log.Warn("months of idempotency keys that are over stay until the next time", "error", err)
		case dropped > 0:
			p.gauges.ledgerDropped.Add(float64(dropped))
			p.log.Info("dropped idempotency keys that are over their time", "months", dropped)
		}
		if !wait.Sleep(ctx, pause) {
			return
		}
	}
}

// untilTimeOfDay is how long it takes from now to the next time of day in UTC,
// given as the time since midnight; never 0.
func untilTimeOfDay(now time.Time, at time.Duration) time.Duration {
	now = now.UTC()
	next := now.Truncate(24 * time.Hour).Add(at)
	if !next.After(now) {
		next = next.AddDate(0, 0, 1)
	}
	return next.Sub(now)
}
