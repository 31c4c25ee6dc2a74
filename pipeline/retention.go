package pipeline

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/store"
)

const (
	// housekeepingPeriod is how often expired state is deleted.
	housekeepingPeriod = time.Hour
	// framesPeriod is how often expired frames are deleted.
	framesPeriod = time.Minute
	// purgeBatch is how many tombstones are purged at a time.
	purgeBatch = 500
	// tidyAgain is the delay before a failed deletion is retried.
	tidyAgain = 10 * time.Minute
)

// retention are the methods of a store for expired state.
type retention interface {
	operate.ProgressStore
	DropFrames(ctx context.Context, before time.Time, size int64) (int64, error)
	Tombstones(ctx context.Context, before time.Time, after store.Tombstone, limit int) ([]store.Tombstone, error)
	Prune(ctx context.Context, letters, audit time.Time) (int, error)
	RetainClaims(ctx context.Context, keep time.Duration) (dropped int, err error)
	RetainAttempts(ctx context.Context, bounds map[int32]store.AttemptBound, others store.AttemptBound) (int64, error)
}

// retainer deletes expired state.
type retainer struct {
	store   retention
	cfg     *config.Config
	log     *slog.Logger
	dropped prometheus.Counter // months of the ledger
	active  *activation
	append  interface {
		Append(ctx context.Context, records []transport.Record) error
	}
}

// run deletes expired state until ctx ends: tombstones of deleted entities with their dam
// rows, dead letters, audit rows, jobs and delivery history every hour, and months of the
// ledger once a day (I7).
func (h *retainer) run(ctx context.Context) {
	var all sync.WaitGroup
	for _, tidy := range []func(context.Context) time.Duration{h.retain, h.retainFrames, h.retainClaims, h.retainAttempts} {
		all.Go(func() {
			for wait.Sleep(ctx, tidy(ctx)) {
			}
		})
	}
	all.Wait()
}

// retain, like the others, returns when it is to be called again.
func (h *retainer) retain(ctx context.Context) time.Duration {
	pause := housekeepingPeriod
	done := func(what string, err error) {
		if err != nil && ctx.Err() == nil {
			pause = tidyAgain
			h.log.Warn("expired state was not deleted; trying again", "event", "retention.failed", "state", what, "error", err)
		}
	}
	now := time.Now()
	r := h.cfg.Retention
	done("tombstones", h.purge(ctx, now.Add(-r.Tombstones.D())))
	_, err := h.store.Prune(ctx, now.Add(-r.DeadLetters.D()), now.Add(-r.Audit.D()))
	done("dead letters, audit rows and jobs", err)
	return pause
}

// retainFrames deletes expired frames of the changes log.
func (h *retainer) retainFrames(ctx context.Context) time.Duration {
	r := h.cfg.Retention
	if _, err := h.store.DropFrames(ctx, time.Now().Add(-r.Changes.D()), int64(r.ChangesSize)); err != nil && ctx.Err() == nil {
		h.log.Warn("expired state was not deleted; trying again", "event", "retention.failed", "state", "changes log", "error", err)
	}
	return framesPeriod
}

// purge requests the purge of entities that were deleted before the given time. Their owners
// do it, since a partition has one writer. A tombstone remains until every service received
// the deletion: only the log holds it. Repeated requests do no harm.
func (h *retainer) purge(ctx context.Context, before time.Time) error {
	// Read first: later decisions are not below it.
	reached, err := operate.ReadProgress(ctx, h.store)
	if err != nil {
		return err
	}
	for after := (store.Tombstone{}); ; {
		stones, err := h.store.Tombstones(ctx, before, after, purgeBatch)
		if err != nil || len(stones) == 0 {
			return err
		}
		var purges []change.Record
		for _, t := range stones {
			if below := h.heard(reached, t); t.Version < below {
				c := &change.Control{ID: uuid.NewString(), Action: change.Purge, Version: below, Actor: change.Housekeeping}
				purges = append(purges, change.Record{Entity: t.Entity, Control: c})
			}
		}
		records, err := operate.InboxRecords(h.cfg.Kafka.Inbox.Topic, purges)
		if err == nil {
			err = h.append.Append(ctx, records)
		}
		if err != nil {
			return err
		}
		after = stones[len(stones)-1]
	}
}

// heard returns the version below which every service received an entity's changes.
func (h *retainer) heard(reached *operate.DeliveryProgress, t store.Tombstone) change.Version {
	below := change.NewVersion(t.Version.Generation()+1, 0)
	for _, s := range h.active.plan().Services {
		below = min(below, reached.Received(t.Entity, t.Version, s.Number))
	}
	return below
}

// retainClaims drops the expired months of the ledger at the configured time of day, and at
// the start to make up for a missed night. Every process may do it.
func (h *retainer) retainClaims(ctx context.Context) time.Duration {
	keys := h.cfg.API.Idempotency
	pause := untilTimeOfDay(time.Now(), keys.DropAt.D())
	dropped, err := h.store.RetainClaims(ctx, keys.Retention.D())
	switch {
	case err != nil && ctx.Err() == nil:
		pause = min(pause, tidyAgain)
		h.log.Warn("expired months of idempotency keys were not dropped; trying again", "event", "ledger.drop_failed", "error", err)
	case dropped > 0:
		h.dropped.Add(float64(dropped))
		h.log.Info("dropped expired idempotency keys", "event", "ledger.dropped", "months", dropped)
	}
	return pause
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

// retainAttempts keeps the delivery history within its bounds. Every process may do it.
func (h *retainer) retainAttempts(ctx context.Context) time.Duration {
	bounds, others := h.attemptBounds()
	removed, err := h.store.RetainAttempts(ctx, bounds, others)
	switch {
	case err != nil && ctx.Err() == nil:
		h.log.Warn("trimming the delivery history failed; retrying in an hour", "event", "history.trim_failed", "error", err)
	case removed > 0:
		h.log.Debug("trimmed the delivery history", "event", "history.trimmed", "attempts", removed)
	}
	return housekeepingPeriod
}

// maxAttempts bounds the history of one service. The oldest attempts are deleted first.
const maxAttempts = 1_000_000

// attemptBounds returns the bounds of the history of each service, by its number, and of
// services that are no longer configured.
func (h *retainer) attemptBounds() (bounds map[int32]store.AttemptBound, others store.AttemptBound) {
	now := h.active.now.Load()
	bounds = map[int32]store.AttemptBound{}
	for i, s := range now.cfg.Services() {
		own := s.Delivery.History
		bounds[now.plan.Services[i].Number] = store.AttemptBound{Keep: own.Keep.D(), Max: maxAttempts}
	}
	return bounds, store.AttemptBound{Keep: now.cfg.History.Keep.D(), Max: maxAttempts}
}
