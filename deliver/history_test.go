package deliver_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
)

// answering is a sink whose target answers each change, beside the error of the write.
type answering struct {
	*sink
	answers func(c change.Change) sinks.Answer
}

func (s answering) Write(ctx context.Context, changes []change.Change) error {
	if receipts := sinks.ReceiptsOf(ctx); receipts != nil {
		for i, c := range changes {
			if a := s.answers(c); a.Status != 0 {
				receipts[i] = sinks.Receipt{At: time.Unix(1_800_000_000, int64(c.Version.Offset())*1000), Took: 3 * time.Millisecond, Answer: a}
			}
		}
	}
	return s.sink.Write(ctx, changes)
}

// kept are the attempts that a store has after the end of a process, the oldest first.
func (p *process) kept() (all []string) {
	p.t.Helper()
	require.NoError(p.t, p.stop())
	attempts, err := p.store.ListAttempts(p.t.Context(), store.AttemptFilter{Limit: 10_000})
	require.NoError(p.t, err)
	for _, a := range attempts {
		require.Equal(p.t, p.numbers[service], a.Service)
		all = append(all, fmt.Sprintf("%s:%d %s %d %s", a.Entity, a.Version.Offset(), a.Outcome, a.Status, a.Answer))
	}
	slices.Reverse(all)
	return all
}

func historyIn(s func(o *deliver.Options) deliver.Attempts) func(*deliver.Options) {
	return func(o *deliver.Options) {
		o.History = s(o)
		for i := range o.Services {
			o.Services[i].History = true
		}
	}
}

// The history keeps each attempt with the answer of the target: failed, refused, given up,
// delivered. A change that was not attempted has none.
func TestAttemptsAreKeptWithTheirAnswers(t *testing.T) {
	w := newWorld(t, service)
	said := map[string][]int{"a": {500, 200}, "b": {422}, "c": {500}, "d": {401, 0, 200}}
	rounds := map[string]int{} // owned by the worker
	p := w.start(map[string]sinks.Traits{service: {Kind: sinks.Log, MaxBatch: 1}}, historyIn(func(*deliver.Options) deliver.Attempts { return w.store }), func(o *deliver.Options) {
		s := o.Services[0].Sink.(*sink)
		status := func(c change.Change) int { return said[c.Entity][min(rounds[c.Entity], len(said[c.Entity])-1)] }
		o.Services[0].Sink = answering{s, func(c change.Change) sinks.Answer {
			return sinks.Answer{Status: status(c), Body: []byte(fmt.Sprintf("answer %d", rounds[c.Entity]))}
		}}
		s.answer(func(changes []change.Change) error {
			class, failed := map[int]sinks.Class{500: sinks.RetryBounded, 422: sinks.Reject, 401: sinks.Pause, 0: sinks.Retry}[status(changes[0])]
			rounds[changes[0].Entity]++
			if !failed {
				return nil
			}
			e := refuse(class, false)
			if class == sinks.Retry {
				e.Err = fmt.Errorf("%w after an error", sinks.ErrNotAttempted)
			}
			return e
		})
	})
	w.publish(of(service, "a", 1), of(service, "b", 2), of(service, "c", 3), of(service, "d", 4))
	p.concluded(2)
	of := map[byte][]string{}
	for _, a := range p.kept() {
		of[a[0]] = append(of[a[0]], a)
	}
	require.Equal(t, []string{"a:1 failed 500 answer 0", "a:1 delivered 200 answer 1"}, of['a'])
	require.Equal(t, []string{"b:2 refused 422 answer 0"}, of['b'])
	require.Equal(t, []string{"d:4 paused 401 answer 0", "d:4 delivered 200 answer 2"}, of['d'])
	last := len(of['c']) - 1
	require.Contains(t, of['c'][last], "c:3 gave_up 500 answer")
	for _, a := range of['c'][:last] {
		require.Contains(t, a, "c:3 failed 500 answer")
	}
}

// failingHistory answers with an error until it is mended.
type failingHistory struct {
	deliver.Attempts
	err   atomic.Pointer[error]
	asked chan struct{} // capacity 1
}

func (f *failingHistory) AddAttempts(ctx context.Context, attempts []store.Attempt) error {
	select {
	case f.asked <- struct{}{}:
	default:
	}
	if err := f.err.Load(); err != nil {
		return *err
	}
	return f.Attempts.AddAttempts(ctx, attempts)
}

// A history that cannot be written holds up no delivery. A failed group is written again;
// attempts of unknown outcome, and those left at the end, count as lost.
func TestHistoryThatFailsHoldsUpNothing(t *testing.T) {
	for name, c := range map[string]struct {
		class       store.Class
		mended      bool
		kept, count int
	}{
		"away for a while":   {store.Retry, true, 2, 0},
		"away":               {store.Retry, false, 0, 2},
		"of unknown outcome": {store.Unknown, true, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, service)
			h := &failingHistory{Attempts: w.store, asked: make(chan struct{}, 1)}
			err := store.WithClass(context.DeadlineExceeded, c.class)
			h.err.Store(&err)
			p := w.start(map[string]sinks.Traits{service: logOf(1)}, historyIn(func(*deliver.Options) deliver.Attempts { return h }))
			w.publish(of(service, "a", 1))
			p.delivered()
			<-h.asked
			if c.mended {
				if c.class == store.Unknown {
					require.Eventually(t, func() bool { return p.metric("weir_delivery_history_lost_total", service) == 1 }, patience, time.Millisecond)
				}
				h.err.Store(nil)
			}
			w.publish(of(service, "b", 2))
			p.delivered()
			require.Len(t, p.kept(), c.kept)
			require.EqualValues(t, c.count, p.metric("weir_delivery_history_lost_total", service))
		})
	}
}

// Without a history no receipts are requested.
func TestNoHistoryAsksForNoReceipts(t *testing.T) {
	w := newWorld(t, service)
	p := w.start(map[string]sinks.Traits{service: logOf(1)}, func(o *deliver.Options) {
		o.History = w.store
		o.Services[0].Sink = answering{o.Services[0].Sink.(*sink), func(change.Change) sinks.Answer {
			t.Error("a receipt was asked for")
			return sinks.Answer{}
		}}
	})
	w.publish(of(service, "a", 1))
	p.delivered()
	require.Empty(t, p.kept())
}
