package deliver_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
)

// silent is a store and a sink of which one call never answers.
type silent struct {
	recording
	call  string
	class sinks.Class // of a write that is given up
	asked chan struct{}

	mu     sync.Mutex
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
	if err := s.wait(ctx, "rows"); err != nil {
		return nil, err
	}
	return s.recording.Rows(ctx, keys)
}

func (s *silent) SwapProgress(ctx context.Context, revision int64, swaps []store.ProgressSwap) ([]bool, error) {
	if err := s.wait(ctx, "swap"); err != nil {
		return nil, err
	}
	return s.recording.SwapProgress(ctx, revision, swaps)
}

func (s *silent) Traits() sinks.Traits           { return sinks.Traits{Kind: sinks.State, MaxBatch: 10} }
func (s *silent) Open(ctx context.Context) error { return s.wait(ctx, "open") }

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

// start delivers one change, which may have been in hand before, with one
// attempt, and returns when the silent call is under way.
func (s *silent) start(limit context.Context, t *testing.T, grace time.Duration) *process {
	s.asked = make(chan struct{}, 1)
	w := newWorld(t, service)
	w.decide(of(service, "e", 0))
	s.recording = recording{w.store, w}
	p := w.start(nil, func(o *deliver.Options) {
		o.Services = []deliver.Service{{Name: service, Number: w.numbers[service], Sink: s, Retry: deliver.Retry{For: time.Nanosecond}}}
		o.Store, o.StopGrace, o.Limit = s, grace, limit
		o.Control = w.control
	})
	<-s.asked
	return p
}

// The end of the time for a shutdown abandons any call without an answer: the change is
// delivered again and is no dead letter.
func TestLimitEndsWhatAShutdownLetsFinish(t *testing.T) {
	for _, call := range []string{"rows", "open", "write", "swap"} {
		t.Run(call, func(t *testing.T) {
			limit, over := context.WithCancel(context.Background())
			defer over()
			s := &silent{call: call, class: sinks.RetryBounded}
			p := s.start(limit, t, time.Hour)
			stopped := make(chan error, 1)
			go func() { stopped <- p.stop() }()
			over()
			require.NoError(t, <-stopped)
			require.True(t, s.closed)
			require.Empty(t, p.letters())
			require.Zero(t, p.position(service).Offset())
		})
	}
}

// A write that a shutdown cuts off is no failed attempt at the change, not even at
// the last one that it has.
func TestAShutdownIsNoFailureOfAChange(t *testing.T) {
	s := &silent{call: "write", class: sinks.RetryBounded}
	p := s.start(context.Background(), t, time.Millisecond)
	require.NoError(t, p.stop())
	require.Empty(t, p.letters())
}
