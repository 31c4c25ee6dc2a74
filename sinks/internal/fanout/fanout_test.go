package fanout

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/sinks"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func batch(entities ...string) []change.Change {
	out := make([]change.Change, len(entities))
	for i, e := range entities {
		out[i] = change.Change{Entity: e, Version: change.NewVersion(1, int64(i))}
	}
	return out
}

func failure(c sinks.Class) *sinks.Error {
	return &sinks.Error{Class: c, Ambiguous: true, Op: "post", Err: errors.New("no")}
}

func TestOneInFlightPerEntityInOrder(t *testing.T) {
	var names []string
	for i := range 300 {
		names = append(names, fmt.Sprint(i%7))
	}
	changes := batch(names...)
	var mu sync.Mutex
	last := map[string]int{}
	busy := map[string]*atomic.Int32{}
	for _, n := range names {
		last[n], busy[n] = -1, new(atomic.Int32)
	}
	var running, most atomic.Int32
	failed := Each(t.Context(), changes, 4, func(_ context.Context, i int) (*sinks.Error, bool) {
		most.Store(max(most.Load(), running.Add(1)))
		defer running.Add(-1)
		e := changes[i].Entity
		assert.EqualValues(t, 1, busy[e].Add(1))
		defer busy[e].Add(-1)
		mu.Lock()
		defer mu.Unlock()
		assert.Greater(t, i, last[e])
		last[e] = i
		return nil, false
	})
	require.Empty(t, failed)
	require.NoError(t, Result(failed, len(changes)))
	require.LessOrEqual(t, most.Load(), int32(4))
}

func TestAnEntityEndsAtAFailure(t *testing.T) {
	changes := batch("a", "b", "a", "b", "a")
	var mu sync.Mutex
	sent := map[int]bool{}
	failed := Each(t.Context(), changes, 2, func(_ context.Context, i int) (*sinks.Error, bool) {
		mu.Lock()
		defer mu.Unlock()
		sent[i] = true
		switch i {
		case 1:
			return failure(sinks.Reject), false
		case 2:
			e := failure(sinks.RetryBounded)
			e.Ambiguous = true
			return e, false
		}
		return nil, false
	})
	require.Equal(t, map[int]bool{0: true, 1: true, 2: true, 3: true}, sent)
	require.Len(t, failed, 3)
	require.Equal(t, sinks.RetryBounded, failed[2].Class)
	require.Equal(t, sinks.Retry, failed[4].Class, "what was not sent is not to blame")
	require.False(t, failed[4].Ambiguous)
	require.ErrorIs(t, failed[4], sinks.ErrNotAttempted)
	var be *sinks.BatchError
	require.ErrorAs(t, Result(failed, len(changes)), &be)
	require.Len(t, be.Failed, 3)
}

func TestAHaltEndsAllEntities(t *testing.T) {
	changes := batch("a", "b", "c", "a")
	sent := 0
	failed := Each(t.Context(), changes, 1, func(context.Context, int) (*sinks.Error, bool) {
		sent++
		return failure(sinks.Pause), true
	})
	require.Equal(t, 1, sent)
	require.Len(t, failed, 4)
	err := Result(failed, len(changes))
	require.Equal(t, sinks.Pause, sinks.Classify(err).Class)
	var be *sinks.BatchError
	require.NotErrorAs(t, err, &be, "the whole service failed: %v", err)
	require.NotErrorIs(t, err, sinks.ErrNotAttempted, "the failure that halted is the one to show")
}

// The one failure that represents all is no matter of chance.
func TestOfSeveralFailuresTheLongestWaitIsShown(t *testing.T) {
	failure := func(class sinks.Class) *sinks.Error {
		e := failure(class)
		e.Unreachable = true
		return e
	}
	away, busy, busier := failure(sinks.Retry), failure(sinks.Retry), failure(sinks.Retry)
	busy.RetryAfter, busier.RetryAfter = time.Second, time.Minute
	skipped := *busier
	skipped.Err = fmt.Errorf("%w after %w", sinks.ErrNotAttempted, busier.Err)
	for range 20 { // the order of a map
		require.Same(t, busier, Result(map[int]*sinks.Error{0: &skipped, 1: away, 2: busy, 3: busier, 4: away}, 5))
		require.Same(t, away, Result(map[int]*sinks.Error{0: away, 1: failure(sinks.Retry), 2: failure(sinks.Retry)}, 3))
	}
}

// Each answer is about its own change, also if all fail alike.
func TestAnAnswerIsAboutItsChange(t *testing.T) {
	busy := failure(sinks.Retry)
	skipped := *busy
	skipped.Err = fmt.Errorf("%w after %w", sinks.ErrNotAttempted, busy.Err)
	var be *sinks.BatchError
	require.ErrorAs(t, Result(map[int]*sinks.Error{0: busy, 1: &skipped}, 2), &be)
	require.Same(t, busy, be.Failed[0])
	require.ErrorIs(t, be.Failed[1], sinks.ErrNotAttempted)
}

func TestCancelledContextStartsNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	failed := Each(ctx, batch("a", "b"), 1, func(context.Context, int) (*sinks.Error, bool) {
		t.Error("sent")
		return nil, false
	})
	err := Result(failed, 2)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, sinks.Retry, sinks.Classify(err).Class)
}
