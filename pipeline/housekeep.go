package pipeline

import (
	"context"
	"time"
)

const (
	// housekeepingPeriod is how often old state is looked for; in between,
	// what is over its time is kept a little longer.
	housekeepingPeriod = time.Hour
	// purgeBatch bounds one purge, so that decisions never wait long for it.
	purgeBatch = 500
)

// housekeep removes what is over its retention time: tombstones of deleted
// entities with their dam rows, dead letters and audit rows (I7).
func (p *Pipeline) housekeep(ctx context.Context) {
	tick := time.NewTicker(housekeepingPeriod)
	defer tick.Stop()
	for {
		now := time.Now()
		r := p.cfg.Retention
		for {
			n, err := p.store.PurgeEntities(ctx, now.Add(-r.Tombstones.D()), purgeBatch)
			if err != nil && ctx.Err() == nil {
				p.log.Warn("tombstones stay until the next time", "error", err)
			}
			if err != nil || n < purgeBatch {
				break
			}
		}
		if _, err := p.store.Prune(ctx, now.Add(-r.DeadLetters.D()), now.Add(-r.Audit.D())); err != nil && ctx.Err() == nil {
			p.log.Warn("old dead letters and audit rows stay until the next time", "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
