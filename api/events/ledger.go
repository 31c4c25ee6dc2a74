package events

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/store"
)

// ledger is the store's ledger with calls of several requests joined.
type ledger struct {
	store     store.Ledger
	keep      time.Duration
	begins    *coalescer[store.ClaimRequest, store.ClaimResult]
	completes *coalescer[store.Completion, store.Response]
	log       *slog.Logger
	down      *atomic.Bool // the last call failed
}

func newLedger(o Options) ledger {
	return ledger{
		store: o.Ledger, keep: o.Keep, log: o.Logger, down: new(atomic.Bool),
		begins: &coalescer[store.ClaimRequest, store.ClaimResult]{
			do: func(ctx context.Context, tenant string, in []store.ClaimRequest) ([]store.ClaimResult, error) {
				return o.Ledger.BeginClaims(ctx, tenant, in, o.Keep)
			},
		},
		completes: &coalescer[store.Completion, store.Response]{do: o.Ledger.CompleteClaims},
	}
}

// answered says in the log when the ledger goes away and when it is back, not
// with every request, which gets a 503.
func (l ledger) answered(err error) error {
	switch failed := err != nil; {
	case failed && !l.down.Swap(true):
		l.log.Warn("ledger of idempotency keys does not answer; events with a key get 503", "event", "api.ledger_unreachable", "error", err)
	case !failed && l.down.Swap(false):
		l.log.Info("ledger of idempotency keys answers again", "event", "api.ledger_reachable")
	}
	return err
}

// Metrics of posted events; label values are bounded by the configuration.
type Metrics struct {
	replays, conflicts *prometheus.CounterVec // source
}

// NewMetrics registers them with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		replays: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_idempotency_replays_total", Help: "Posted events, and whole batches, whose key was used before: the stored answer was given.",
		}, []string{"source"}),
		conflicts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_idempotency_conflicts_total", Help: "Posted events, and whole batches, whose key belongs to other content.",
		}, []string{"source"}),
	}
	reg.MustRegister(m.replays, m.conflicts)
	return m
}

// Expect makes the series of a source, so that the first count is an increase.
func (m *Metrics) Expect(source string) {
	m.replays.WithLabelValues(source)
	m.conflicts.WithLabelValues(source)
}

func (m *Metrics) count(source string, s Status) {
	switch s {
	case Duplicate:
		m.replays.WithLabelValues(source).Inc()
	case Conflicting:
		m.conflicts.WithLabelValues(source).Inc()
	}
}
