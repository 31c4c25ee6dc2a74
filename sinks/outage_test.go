package sinks

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

var errRefused = errors.New("connection refused")

func unreachable() error {
	return &Error{Class: Retry, Unreachable: true, Op: "connect", Err: errRefused}
}

func troubled() error {
	return &Error{Class: Retry, Op: "post", Err: errors.New("503")}
}

func done() error { return nil }

// services of one target, each in a tenant of its own.
func services(n int) []*Lease[*client] {
	var targets Targets
	all := make([]*Lease[*client], n)
	for i := range all {
		all[i] = new(client).share(&targets, "a", fmt.Sprint(i), 8)
	}
	return all
}

// deliver drives a sink as the deliver stage does, until it worked.
func deliver(ctx context.Context, l *Lease[*client], attempt func() error) error {
	for {
		err := l.Try(ctx, 1, func() error {
			release, err := l.Hold(ctx)
			if err != nil {
				return err
			}
			err = attempt()
			release(err)
			return err
		})
		if err == nil || !Classify(err).Await(ctx, 200*time.Millisecond) {
			return err
		}
	}
}

func TestOneServiceProbesADeadTarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const outage, n = time.Hour, 200
		start := time.Now()
		var early, late atomic.Int64 // attempts
		var mu sync.Mutex
		var returned time.Time
		finished := make(chan error, n)
		for _, l := range services(n) {
			go func() {
				finished <- deliver(t.Context(), l, func() error {
					if time.Since(start) < 500*time.Millisecond {
						early.Add(1)
					} else {
						late.Add(1)
					}
					if time.Since(start) < outage {
						if err := sleep(t.Context(), 10*time.Millisecond); err != nil {
							return err
						}
						return unreachable()
					}
					mu.Lock()
					defer mu.Unlock()
					if returned.IsZero() {
						returned = time.Now()
					}
					return nil
				})
			}()
		}
		for range n {
			require.NoError(t, <-finished)
		}
		require.Less(t, returned.Sub(start), outage+lastProbe*12/10, "it was found late")
		require.Equal(t, returned, time.Now(), "the others waited on")
		require.LessOrEqual(t, early.Load(), int64(8+1), "those that had a connection, and one probe")
		require.LessOrEqual(t, late.Load(), int64(outage/(lastProbe*8/10))+10+n, "a probe at a time, and the success of each")
	})
}

func TestAFailureOfOneServiceIsItsOwn(t *testing.T) {
	for name, err := range map[string]error{
		"refused content":  &Error{Class: Reject, Op: "post", Err: errors.New("422")},
		"refused service":  &Error{Class: Pause, Op: "post", Err: errors.New("401")},
		"locked table":     &Error{Class: Retry, Op: "insert", Err: errors.New("55P03")},
		"trouble once":     troubled(),
		"part of a batch":  &BatchError{Failed: map[int]error{0: unreachable()}},
		"one of all alike": &BatchError{Failed: map[int]error{0: unreachable(), 1: &Error{Class: Reject, Op: "post", Err: errors.New("422")}}},
	} {
		t.Run(name, func(t *testing.T) {
			all := services(3)
			for range 3 {
				require.Equal(t, err, all[0].Try(t.Context(), 2, func() error { return err }))
			}
			for _, l := range all {
				require.NoError(t, l.Try(t.Context(), 2, done))
			}
		})
	}
}

func end(t *testing.T, all []*Lease[*client]) {
	for _, l := range all {
		require.NoError(t, l.Close())
	}
}

func TestASingleServiceIsNeverHeldBack(t *testing.T) {
	all := services(1)
	for range 3 {
		err := all[0].Try(t.Context(), 1, unreachable)
		require.ErrorIs(t, err, errRefused)
		require.Nil(t, Classify(err).await, "its own back-off counts")
	}
	require.NoError(t, all[0].Try(t.Context(), 1, done))
	end(t, all)
}

func TestWhoeverWaitsForAConnectionIsToldOfAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var targets Targets
		one, other := new(client).share(&targets, "a", "1", 1), new(client).share(&targets, "a", "2", 1)
		defer end(t, []*Lease[*client]{one, other})
		release, err := one.Hold(t.Context())
		require.NoError(t, err)
		waiting := make(chan error)
		go func() {
			_, err := other.Hold(t.Context())
			waiting <- err
		}()
		synctest.Wait()
		require.ErrorIs(t, one.Try(t.Context(), 1, unreachable), errRefused)
		require.ErrorIs(t, <-waiting, ErrDown)
		release(nil)
	})
}

// The service that found the target down, or that tries it, may stop, be cancelled, hang or have
// nothing to send any more: another one tries when it is due.
func TestAnyServiceTriesWhenItIsDue(t *testing.T) {
	for name, vanish := range map[string]func(t *testing.T, l *Lease[*client]){
		"closed": func(t *testing.T, l *Lease[*client]) { require.NoError(t, l.Close()) },
		"silent": func(*testing.T, *Lease[*client]) {},
		"cancelled in its attempt": func(t *testing.T, l *Lease[*client]) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			require.ErrorIs(t, l.Try(ctx, 1, func() error { return unreachable() }), errRefused)
		},
		"hanging in its attempt": func(t *testing.T, l *Lease[*client]) {
			go func() { _ = l.Try(t.Context(), 1, func() error { return sleep(t.Context(), time.Hour) }) }()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := services(3)
				defer end(t, all)
				first := Classify(all[0].Try(t.Context(), 1, unreachable))
				require.True(t, first.Await(t.Context(), time.Hour), "it is due")
				before := time.Now()
				vanish(t, all[0])
				finished := make(chan error)
				for _, l := range all[1:] {
					go func() { finished <- deliver(t.Context(), l, done) }()
				}
				require.NoError(t, <-finished)
				require.NoError(t, <-finished)
				require.LessOrEqual(t, time.Since(before), 2*firstProbe*12/10)
			})
		})
	}
}

// An attempt at a target that is down moves the time of the next one when it begins: a second
// service that comes in the same period makes none.
func TestOneAttemptInAPeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := services(3)
		defer end(t, all)
		require.True(t, Classify(all[0].Try(t.Context(), 1, unreachable)).Await(t.Context(), 0))
		require.ErrorIs(t, all[1].Try(t.Context(), 1, func() error {
			for _, l := range []*Lease[*client]{all[0], all[2]} {
				require.ErrorIs(t, l.Try(t.Context(), 1, func() error { panic("attempted") }), ErrDown)
			}
			return unreachable()
		}), errRefused)
	})
}

func TestAwaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := services(2)
		defer end(t, all)
		e := Classify(all[0].Try(t.Context(), 1, func() error {
			return &Error{Class: Retry, Unreachable: true, RetryAfter: time.Minute, Op: "post", Err: errRefused}
		}))
		refused := Classify(all[1].Try(t.Context(), 1, done))
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan bool)
		go func() { left <- e.Await(ctx, 0) }()
		go func() { left <- refused.Await(ctx, 0) }()
		synctest.Wait()
		cancel()
		require.False(t, <-left)
		require.False(t, <-left)
		start := time.Now()
		require.True(t, refused.Await(t.Context(), 0), "nobody else is there to probe")
		require.Equal(t, time.Minute, time.Since(start), "the target asked for it")
	})
}

func TestAwaitWithoutATarget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		require.True(t, (&Error{RetryAfter: time.Second}).Await(t.Context(), time.Minute))
		require.Equal(t, time.Minute, time.Since(start))
		require.True(t, (&Error{RetryAfter: time.Hour}).Await(t.Context(), time.Minute))
		require.Equal(t, time.Hour+time.Minute, time.Since(start))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.False(t, (&Error{}).Await(ctx, time.Minute))
	})
}

// An outage has one report at its begin, one a minute with the failures since, and one
// service that reports its end, however many wait.
func TestReportsOfAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n, outage = 20, 10 * time.Minute
		start := time.Now()
		var mu sync.Mutex
		var reports []time.Duration
		attempts, reported, began := 0, 0, 0
		var all sync.WaitGroup
		for _, l := range services(n) {
			all.Go(func() {
				var r Reports
				for {
					err := l.Try(t.Context(), 1, func() error {
						mu.Lock()
						defer mu.Unlock()
						if time.Since(start) >= outage {
							return nil
						}
						attempts++
						return unreachable()
					})
					mu.Lock()
					if err == nil {
						if r.Began() {
							began++
						}
						mu.Unlock()
						return
					}
					if failures, due := r.Due(Classify(err), time.Now()); due {
						reports = append(reports, time.Since(start))
						reported += failures
					}
					mu.Unlock()
					Classify(err).Await(t.Context(), 0)
				}
			})
		}
		all.Wait()
		require.Equal(t, 1, began)
		require.GreaterOrEqual(t, attempts, reported)
		require.Positive(t, reported)
		require.Zero(t, reports[0])
		for i, at := range append(reports[1:], outage) { // attempts are up to 20 s apart
			require.Less(t, at-reports[i], 80*time.Second, "%v", reports)
			require.True(t, at == outage || at-reports[i] >= time.Minute, "%v", reports)
		}
	})
}

// A failure of one service alone is reported by it, and begins anew after a success.
func TestReportsOfAService(t *testing.T) {
	var r Reports
	now := time.Now()
	e := Classify(troubled())
	var due []string
	for i := range 12 {
		if n, ok := r.Due(e, now.Add(time.Duration(i)*10*time.Second)); ok {
			due = append(due, fmt.Sprint(i, ":", n))
		}
	}
	require.Equal(t, []string{"0:1", "6:6"}, due)
	require.True(t, r.Began())
	r = Reports{}
	_, ok := r.Due(e, now)
	require.True(t, ok)
}
