package pipeline

import (
	"context"
	"time"

	"github.com/seed-86dfc502/weir/store"
)

// retainAttempts keeps the delivery history within its bounds. Every process may do it.
func (h *retainer) retainAttempts(ctx context.Context) time.Duration {
	bounds, others := h.attempts()
	removed, err := h.store.RetainAttempts(ctx, bounds, others)
	switch {
	case err != nil && ctx.Err() == nil:
		h.log.Warn("trimming the delivery history failed; retrying in an hour", "event", "history.trim_failed", "error", err)
	case removed > 0:
		h.log.Debug("trimmed the delivery history", "event", "history.trimmed", "attempts", removed)
	}
	return housekeepingPeriod
}

// attemptBounds returns what is kept of the attempts of each service, by its number,
// and of services that the configuration no longer has.
func (p *Pipeline) attemptBounds() (bounds map[int32]store.AttemptBound, others store.AttemptBound) {
	now := p.active.now.Load()
	bounds = map[int32]store.AttemptBound{}
	for i, s := range now.cfg.Services() {
		own := s.Delivery.History
		bounds[now.plan.Services[i].Number] = store.AttemptBound{Keep: own.Keep.D(), Max: own.MaxAttempts}
	}
	main := now.cfg.History
	return bounds, store.AttemptBound{Keep: main.Keep.D(), Max: main.MaxAttempts}
}
