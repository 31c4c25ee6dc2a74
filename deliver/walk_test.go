package deliver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// crowd is a store of many entities, each with a change at version 7 of the services 0 and
// 1, and of a partition that its number says.
type crowd struct {
	Store
	n     int
	pages int
	read  func(page int) // before a page is returned
}

func (c *crowd) Moved(_ context.Context, from, to change.Version, after string, limit int) (rows []store.Row, last string, err error) {
	c.pages++
	n := 0
	for i := range c.n {
		id := fmt.Sprintf("e%06d", i)
		if id <= after || n == limit {
			continue
		}
		n++
		last = id
		for service := range int32(2) {
			if from <= 7 && 7 < to {
				rows = append(rows, store.Row{Key: store.Key{Entity: id, Service: service}, Found: true, Version: 7, Content: []byte("c")})
			}
		}
	}
	if n < limit {
		last = ""
	}
	if c.read != nil {
		c.read(c.pages)
	}
	return rows, last, nil
}

func (c *crowd) partition(entity string, _ change.Version) int32 {
	return int32(entity[len(entity)-1]-'0') % 2
}

// walking has the repairs of two services in two partitions of a stage whose walk runs, and
// what was requested: entity, service.
func walking(t *testing.T, c *crowd, control func(ctx context.Context, partition int32) error) (s *Stage, lose func(partition int32), requested func() map[string]int) {
	s, p := bareStage(t, c, feed{fed: 5, next: 3}, "one", "two")
	s.ctx, s.stop = context.WithCancel(t.Context())
	s.repairs, s.opt.Partition, s.looks.sem = make(chan struct{}, 1), c.partition, nil
	s.saver.init(s)
	q := &partition{number: 1, ctx: t.Context(), feed: p.feed}
	for _, w := range s.workers {
		q.cursors = append(q.cursors, &cursor{w: w, p: q, feed: q.feed})
	}
	s.parts = map[int32]*partition{0: p, 1: q}
	for _, p := range s.parts {
		for _, c := range p.cursors {
			c.live = true
		}
	}
	var mu sync.Mutex
	asked := map[string]int{}
	s.opt.Control = func(ctx context.Context, controls ...change.Record) error {
		if err := control(ctx, c.partition(controls[0].Entity, 0)); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		for _, r := range controls {
			for _, name := range r.Control.Services {
				asked[r.Entity+" "+name]++
			}
		}
		return nil
	}
	lose = func(partition int32) { follower{s: s, p: s.parts[partition]}.passLost(9, 4) }
	return s, lose, func() map[string]int {
		mu.Lock()
		defer mu.Unlock()
		return asked
	}
}

func (s *Stage) needs(partition int32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.parts[partition]
	return p.cursors[0].repair.Needed() || p.cursors[1].repair.Needed()
}

func takes(context.Context, int32) error { return nil }

// Two services in two partitions need one walk; a repair that is needed later joins it where
// it is, and adds less than another.
func TestOneWalkServesAllRepairs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{n: 10*repairPage - 1}
		s, lose, requested := walking(t, c, takes)
		lose(0)
		lose(1)
		s.running.Go(s.walk)
		synctest.Wait()
		<-time.After(time.Minute)
		require.False(t, s.needs(0) || s.needs(1))
		require.Equal(t, 10, c.pages)
		require.Len(t, requested(), 2*c.n)
		for request, n := range requested() {
			require.Equal(t, 1, n, request)
		}

		c.pages = 0
		c.read = func(page int) {
			if page == 4 {
				s.mu.Lock()
				s.parts[1].feed.fed = 5
				s.mu.Unlock()
				lose(1)
			}
		}
		s.mu.Lock()
		s.parts[0].feed.fed = 5
		s.mu.Unlock()
		lose(0)
		<-time.After(time.Minute)
		require.False(t, s.needs(0) || s.needs(1))
		require.Equal(t, 14, c.pages, "the second joins at the fifth page, and goes round once")
		for request, n := range requested() {
			require.Equal(t, 2, n, request)
		}
		s.stop()
		s.running.Wait()
	})
}

// An inbox partition that takes nothing, or refuses, holds up its own repair alone, until it
// takes requests again.
func TestABlockedInboxPartitionHoldsUpItsOwnRepairAlone(t *testing.T) {
	for name, block := range map[string]func(context.Context) error{
		"it does not answer": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"it refuses":         func(context.Context) error { return errors.New("no leader") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &crowd{n: 3 * repairPage}
				blocked, unblock := context.WithCancel(t.Context())
				var open atomic.Int32
				s, lose, requested := walking(t, c, func(_ context.Context, partition int32) error {
					if partition == 0 && blocked.Err() == nil {
						assert.EqualValues(t, 1, open.Add(1), "one page waits for the inbox, no more")
						defer open.Add(-1)
						return block(blocked)
					}
					return nil
				})
				lose(0)
				lose(1)
				s.running.Go(s.walk)
				<-time.After(10 * time.Second)
				require.True(t, s.needs(0))
				require.False(t, s.needs(1))
				require.Len(t, requested(), c.n)
				unblock()
				<-time.After(3 * maxRepairPause)
				require.False(t, s.needs(0))
				require.Len(t, requested(), 2*c.n)
				s.stop()
				s.running.Wait()
			})
		})
	}
}

// The mistake that this catches: lost changes were decided again for the services that were
// live when that began. A service that caught up with the tail meanwhile continued behind
// the gap with them, and lost what it had missed.
func TestWhoCatchesUpBeforeTheTailPassesLostChangesIsRepaired(t *testing.T) {
	s, p := bareStage(t, nil, feed{fed: 5, next: 3}, "live", "late", "behind")
	s.saver.init(s)
	p.cursors[0].live = true
	l := follower{s: s, p: p}
	p.cursors[1].live = true
	l.passLost(9, 4)
	require.Equal(t, feed{fed: 9, next: 4}, p.feed)
	for i, c := range p.cursors {
		require.Equal(t, i < 2, c.repair.Needed(), c.w.opt.Name)
	}
	require.True(t, p.cursors[1].repair.Has(5) && !p.cursors[1].repair.Has(9))
}
