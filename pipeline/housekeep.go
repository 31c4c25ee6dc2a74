package pipeline

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/seed-86dfc502/weir/inbox"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/transport"
)

const (
	// housekeepingPeriod is how often old state is looked for; in between,
	// what is over its time is kept a little longer.
	housekeepingPeriod = time.Hour
	// purgeBatch is how many tombstones are asked to go at a time.
	purgeBatch = 500
	// tidyAgain is when what failed is tried again.
	tidyAgain = 10 * time.Minute
)

// housekeep sees to it that what is over its retention time goes: tombstones of
// deleted entities with their dam rows, dead letters and audit rows, every hour,
// and months of the ledger, once a day (I7).
func (p *Pipeline) housekeep(ctx context.Context) {
	var ledger sync.WaitGroup
	defer ledger.Wait()
	ledger.Go(func() { p.retainClaims(ctx) })
	for {
		pause := housekeepingPeriod
		now := time.Now()
		r := p.cfg.Retention
		if err := p.purge(ctx, now.Add(-r.Tombstones.D())); err != nil && ctx.Err() == nil {
			pause = tidyAgain
			p.log.Warn("tombstones stay until the next time", "error", err)
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

// purge asks the owners of entities that were deleted before the given time to
// remove them: an owner decides from memory, and nobody writes past it. Processes
// that ask the same do no harm.
func (p *Pipeline) purge(ctx context.Context, before time.Time) error {
	for after := ""; ; {
		stones, err := p.store.Tombstones(ctx, before, after, purgeBatch)
		if err != nil || len(stones) == 0 {
			return err
		}
		records := make([]transport.Record, len(stones))
		for i, t := range stones {
			c := inbox.Control{ID: uuid.NewString(), Action: inbox.Purge, Version: t.Version, Actor: inbox.Housekeeping}
			if records[i], err = p.controlRecord(t.Entity, c); err != nil {
				return err
			}
		}
		if err := p.append.Append(ctx, records); err != nil {
			return err
		}
		after = stones[len(stones)-1].Entity
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
