package deliver_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
)

// target is what sinks of one process after the other write to.
type target struct {
	mu   sync.Mutex
	has  []string
	last map[int32]change.Version
}

// resumer is a sink that skips the contents of its target behind a bookmark: their count.
type resumer struct {
	*target
	mark   func() (string, change.Version) // nil: how much is there
	before func()                          // each write
	after  error                           // of each write, which takes effect all the same

	refuse func() error // each Resume; nil: none is

	claims []sinks.Takeover
	left   map[string]bool
	found  uint64
}

func (r *resumer) Traits() sinks.Traits       { return logOf(10) }
func (r *resumer) Open(context.Context) error { return nil }
func (r *resumer) Close() error               { return nil }
func (r *resumer) Found() uint64              { return r.found }

func (r *resumer) Resume(_ context.Context, claims []sinks.Takeover) error {
	if r.refuse != nil {
		if err := r.refuse(); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.claims = append(r.claims, claims...)
	r.left = map[string]bool{}
	from, err := strconv.Atoi(claims[0].Bookmark)
	if err != nil {
		from = len(r.has)
	}
	for _, name := range r.has[from:] {
		r.left[name] = true
	}
	return nil
}

func (r *resumer) Bookmark(int32) (string, change.Version) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mark != nil {
		return r.mark()
	}
	return strconv.Itoa(len(r.has)), r.last[0]
}

func (r *resumer) Write(_ context.Context, changes []change.Change) error {
	if r.before != nil {
		r.before()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range changes {
		if r.left[name(c)] {
			r.found++
			continue
		}
		r.has = append(r.has, name(c))
		r.last[c.Partition] = max(r.last[c.Partition], c.Position())
	}
	return r.after
}

// with makes s the sink of the service.
func with(s sinks.Sink) func(*deliver.Options) {
	return func(o *deliver.Options) { o.Services[0].Sink = s }
}

// mark is the stored bookmark of the service.
func (w *world) mark() string {
	rows, err := w.store.AllProgress(context.Background())
	require.NoError(w.t, err)
	for _, row := range rows {
		for _, p := range row.Positions {
			if p.Service == w.numbers[service] {
				return p.Mark
			}
		}
	}
	return ""
}

// The first bookmark is saved before the first write, and stays until that write is known to be
// done; a successor finds the writes of its predecessor by it.
func TestASuccessorFindsWhatWasWritten(t *testing.T) {
	w := newWorld(t, service)
	all := &target{last: map[int32]change.Version{}}
	wrote := make(chan string, 1000)
	first := &resumer{target: all, after: refuse(sinks.Retry, true)}
	first.before = func() {
		if len(wrote) == 0 {
			wrote <- w.mark()
		}
	}
	p := w.start(map[string]sinks.Traits{service: logOf(10)}, with(first))
	p.publish(of(service, "a", 1), of(service, "b", 2))
	require.Equal(t, "0", <-wrote, "where to look was not saved before the write")
	require.NoError(t, p.stop())
	require.Equal(t, "0", w.mark())
	all.mu.Lock()
	all.has = []string{"a:1", "b:2"}
	all.mu.Unlock()

	next := &resumer{target: all}
	p = w.start(map[string]sinks.Traits{service: logOf(10)}, with(next))
	p.publish(of(service, "a", 3))
	p.delivered(service)
	require.Equal(t, []string{"a:1", "b:2", "a:3"}, all.has)
	require.Equal(t, "0", next.claims[0].Bookmark)
	require.EqualValues(t, 2, p.metric("weir_delivery_already_present_total", service))
	require.Eventually(t, func() bool { return w.mark() == "3" }, patience, time.Millisecond)
	require.NoError(t, p.stop())
}

// A bookmark ahead of the position would hide the writes above it.
func TestAMarkIsNotAheadOfItsPosition(t *testing.T) {
	w := newWorld(t, service)
	s := &resumer{target: &target{last: map[int32]change.Version{}}}
	ahead := false
	s.mark = func() (string, change.Version) {
		if !ahead {
			ahead = true
			return "0", 0
		}
		return "7", at(50)
	}
	p := w.start(map[string]sinks.Traits{service: logOf(10)}, with(s))
	p.publish(of(service, "a", 1))
	p.delivered(service)
	require.Equal(t, "0", w.mark())
	p.publish(of(service, "a", 60))
	p.delivered(service)
	require.Eventually(t, func() bool { return w.mark() == "7" }, patience, time.Millisecond)
	require.NoError(t, p.stop())
}

// A write that fails because another process owns the partition is not repeated after the
// revocation.
func TestAWriteEndsWithItsPartition(t *testing.T) {
	p, s := only(t, logOf(10))
	tried := make(chan struct{}, 1)
	s.answer(func([]change.Change) error {
		select {
		case tried <- struct{}{}:
		default:
		}
		return refuse(sinks.Retry, false)
	})
	p.publish(of(service, "a", 1))
	<-tried
	p.stage.Revoked([]int32{0})
	require.Eventually(t, p.stage.Idle, patience, time.Millisecond)
	require.Zero(t, p.count(deliver.OutcomeDelivered))
	require.Less(t, p.position(service), at(2), "it is the next owner's")
}

// A takeover that fails waits as a write does: an operator makes it be tried now, or
// not at all.
func TestAFailedResumeIsProbedAndPaused(t *testing.T) {
	w := newWorld(t, service)
	tried := make(chan struct{}, 100)
	var back atomic.Bool
	s := &resumer{target: &target{last: map[int32]change.Version{}}}
	s.refuse = func() error {
		tried <- struct{}{}
		if back.Load() {
			return nil
		}
		return &sinks.Error{Class: sinks.Retry, Err: errors.New("away"), RetryAfter: 24 * time.Hour}
	}
	p := w.start(map[string]sinks.Traits{service: logOf(10)}, with(s))
	p.publish(of(service, "a", 1))
	<-tried
	require.Eventually(t, func() bool { // it waits by now, or soon
		require.True(t, p.stage.Probe(service))
		return len(tried) > 0
	}, patience, time.Millisecond)
	p.stage.Pause(map[string]store.Pause{service: {Actor: "ann"}})
	back.Store(true)
	require.Eventually(t, func() bool { // the last attempt from before may be under way
		for len(tried) > 0 {
			<-tried
		}
		p.stage.Probe(service)
		return len(tried) == 0
	}, patience, time.Millisecond)
	require.Equal(t, deliver.StatePaused, p.stage.Conditions()[service].State)
	p.stage.Pause(nil)
	p.delivered()
	require.Equal(t, []string{"a:1"}, s.has)
	require.NoError(t, p.stop())
}

// A target that one process holds is closed with the last partition. A process that could not
// open it stops trying then.
func TestAnExclusiveTargetIsClosedWithItsLastPartition(t *testing.T) {
	exclusive := sinks.Traits{Kind: sinks.Log, MaxBatch: 10, Exclusive: true}
	p, s := only(t, exclusive)
	closed := func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.closed }
	p.publish(of(service, "a", 1))
	p.delivered(service)
	require.False(t, closed())
	p.stage.Revoked([]int32{0})
	require.Eventually(t, closed, patience, time.Millisecond)

	p = newWorld(t, service).start(map[string]sinks.Traits{service: exclusive}, func(o *deliver.Options) {
		o.Services[0].Sink.(*sink).open = func() error { return errors.New("another process holds it") }
	})
	p.publish(of(service, "a", 1))
	state := func(is deliver.State) func() bool {
		return func() bool { return p.stage.Conditions()[service].State == is }
	}
	require.Eventually(t, state(deliver.StateRetrying), patience, time.Millisecond)
	p.stage.Revoked([]int32{0})
	require.Eventually(t, state(deliver.StateRunning), patience, time.Millisecond)
}
