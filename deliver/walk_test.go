package deliver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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

func (c *crowd) SwapProgress(_ context.Context, _ int64, swaps []store.ProgressSwap) ([]bool, error) {
	return slices.Repeat([]bool{true}, len(swaps)), nil
}

func (c *crowd) partition(entity string, _ change.Version) int32 {
	return int32(entity[len(entity)-1]-'0') % 2
}

// walking has two partitions of a stage whose repairs its walk serves, and the requests: entity,
// service.
func walking(t *testing.T, c *crowd, control func(ctx context.Context, partition int32) error) (s *Stage, lose func(partition int32), requested func() map[string]int) {
	s = New(Options{
		Store: c, Partition: c.partition, Metrics: NewMetrics(prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler),
		Services: []Service{{Name: "one", Number: 0, Sink: traitsOnly{}}, {Name: "two", Number: 1, Sink: traitsOnly{}}},
	})
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
	lose = func(partition int32) {
		s.step(func() {
			s.revoke(s.parts[partition])
			p := s.newPartition(&store.Progress{Partition: partition})
			p.Look(0, 8, 8)
		})
	}
	return s, lose, func() map[string]int {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(asked)
	}
}

func (s *Stage) needs(partition int32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	swap, _ := s.parts[partition].Swap(store.Token{})
	return slices.ContainsFunc(swap.Positions, func(p store.ServicePosition) bool { return p.Repair != "" })
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
		s.running.Go(s.walk.run)
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
				lose(1)
			}
		}
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

// Refreshes share the walk with repairs: each entity is asked for once a period, by a request of
// its own, also while changes are lost, and a service without a period asks for nothing.
func TestOneWalkServesRefreshesAndRepairs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{n: 300}
		s, lose, requested := walking(t, c, takes)
		s.workers[1].queue.Refresh = time.Hour
		s.running.Go(s.walk.run)
		s.running.Go(func() { s.saver.run(s.ctx) })
		lose(0)
		lose(1)
		<-time.After(time.Minute)
		require.False(t, s.needs(0) || s.needs(1))
		require.Len(t, requested(), 2*c.n, "the repairs")
		<-time.After(20 * time.Hour)
		require.Len(t, requested(), 2*c.n)
		for request, n := range requested() {
			if strings.HasSuffix(request, "two") {
				require.InDelta(t, 21, n, 1, request)
			} else {
				require.Equal(t, 1, n, request)
			}
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
				s.running.Go(s.walk.run)
				<-time.After(10 * time.Second)
				require.True(t, s.needs(0))
				require.False(t, s.needs(1))
				require.Len(t, requested(), c.n)
				unblock()
				<-time.After(3 * time.Minute)
				require.False(t, s.needs(0))
				require.Len(t, requested(), 2*c.n)
				s.stop()
				s.running.Wait()
			})
		})
	}
}
