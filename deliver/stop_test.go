package deliver_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/inbox"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/transport"
	"github.com/stretchr/testify/require"
)

// silent is a store and a sink of which one call never answers.
type silent struct {
	store.Deliveries
	call   string
	class  sinks.Class // of a write that is given up
	asked  chan struct{}
	mu     sync.Mutex
	buried int
	closed bool
}

// wait is that of the call that gets no answer; nil at once for the others.
func (s *silent) wait(ctx context.Context, call string) error {
	if call != s.call {
		return nil
	}
	select {
	case s.asked <- struct{}{}:
	default:
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

func (s *silent) Rows(ctx context.Context, keys []store.Key) ([]store.Row, error) {
	return make([]store.Row, len(keys)), s.wait(ctx, "rows")
}

func (s *silent) Confirm(ctx context.Context, _ []store.Confirmation) error {
	return s.wait(ctx, "confirm")
}

func (s *silent) AddLetters(context.Context, []store.DeadLetter) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buried++
	return nil
}

func (s *silent) Active(context.Context) (store.Revision, error) { return store.Revision{}, nil }
func (s *silent) Traits() sinks.Traits                           { return sinks.Traits{Kind: sinks.Log, MaxBatch: 10} }
func (s *silent) Open(ctx context.Context) error                 { return s.wait(ctx, "open") }

func (s *silent) Write(ctx context.Context, _ []change.Change) error {
	if err := s.wait(ctx, "write"); err != nil {
		return &sinks.Error{Class: s.class, Op: "write", Err: err}
	}
	return nil
}

func (s *silent) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

// run delivers one change with one attempt, and stops when the silent call is
// under way; what ends the wait is up to the caller.
func (s *silent) run(limit context.Context, t *testing.T, grace time.Duration) (handled <-chan error, ended <-chan struct{}) {
	s.asked = make(chan struct{}, 1)
	log := slog.New(slog.DiscardHandler)
	confirmer := deliver.NewConfirmer(s, log)
	confirmer.Limit = limit
	d := deliver.New(deliver.Options{
		Service: service, Number: 1, Sink: s, Store: s, Confirmer: confirmer,
		Control: func(ctx context.Context, _ string, _ inbox.Control) error { return s.wait(ctx, "control") },
		Retry:   deliver.Retry{Attempts: 1}, StopGrace: grace, Limit: limit,
		Logger: log, Metrics: deliver.NewMetrics(prometheus.NewRegistry()),
	})
	confirming, stopConfirmer := context.WithCancel(context.Background())
	running, stop := context.WithCancel(context.Background())
	done, result := make(chan struct{}), make(chan error, 1)
	var both sync.WaitGroup
	both.Go(func() { confirmer.Run(confirming) })
	both.Go(func() {
		_ = d.Run(running)
		stopConfirmer() // as in a process: after those that confirm
	})
	go func() {
		both.Wait()
		close(done)
	}()
	c := change.Change{Service: service, Entity: "e", Op: change.Upsert, Version: change.NewVersion(1, 1), Doc: []byte("{}"), Key: "k", Time: time.Now()}
	m := transport.NewMessage(context.Background(), transport.NewFrame("changes", "id", 0, 1, []transport.Received{record(c)}))
	go func() { result <- d.Handle(m) }()
	<-s.asked
	stop()
	return result, done
}

// Whatever does not answer: when the time for a stop is over it is given up, the
// change comes again, and it is nobody's dead letter.
func TestLimitEndsWhatAStopLetsFinish(t *testing.T) {
	for _, call := range []string{"rows", "open", "write", "confirm"} {
		t.Run(call, func(t *testing.T) {
			limit, over := context.WithCancel(context.Background())
			s := &silent{call: call, class: sinks.RetryBounded}
			handled, ended := s.run(limit, t, time.Hour)
			select {
			case <-ended:
				require.Fail(t, "it was given up before its time was over")
			default:
			}
			over()
			require.Error(t, <-handled)
			<-ended
			require.True(t, s.closed)
			require.Zero(t, s.buried)
		})
	}
}

// A write that a stop cuts off is no failed attempt at the change, not even at
// the last one that it has.
func TestAStopIsNoFailureOfAChange(t *testing.T) {
	s := &silent{call: "write", class: sinks.RetryBounded}
	handled, ended := s.run(context.Background(), t, time.Millisecond)
	require.Error(t, <-handled)
	<-ended
	require.Zero(t, s.buried)
}
