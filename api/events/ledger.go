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
				return o.Ledger.BeginClaims(ctx, tenant, in, o.Lease, o.Keep)
			},
			key: func(i store.ClaimRequest) string { return i.Key },
		},
		completes: &coalescer[store.Completion, store.Response]{do: o.Ledger.CompleteClaims},
	}
}

func (l ledger) begin(ctx context.Context, tenant string, in []store.ClaimRequest) ([]store.ClaimResult, error) {
	out, err := l.begins.call(ctx, tenant, in)
	return out, l.answered(err)
}

func (l ledger) complete(ctx context.Context, tenant string, in []store.Completion) ([]store.Response, error) {
	out, err := l.completes.call(ctx, tenant, in)
	return out, l.answered(err)
}

// abandon ends leases as well as it can: they end by themselves.
func (l ledger) abandon(ctx context.Context, tenant string, ids []store.ClaimID) {
	_ = l.store.AbandonClaims(ctx, tenant, ids)
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
	replays, conflicts, busy *prometheus.CounterVec // source
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
		busy: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_idempotency_busy_total", Help: "Posted events, and whole batches, whose key was in use by another request.",
		}, []string{"source"}),
	}
	reg.MustRegister(m.replays, m.conflicts, m.busy)
	return m
}

// Expect makes the series of a source, so that the first count is an increase.
func (m *Metrics) Expect(source string) {
	for _, v := range []*prometheus.CounterVec{m.replays, m.conflicts, m.busy} {
		v.WithLabelValues(source)
	}
}

func (m *Metrics) count(source string, s Status) {
	switch s {
	case Duplicate:
		m.replays.WithLabelValues(source).Inc()
	case Conflicting:
		m.conflicts.WithLabelValues(source).Inc()
	case Busy:
		m.busy.WithLabelValues(source).Inc()
	}
}
