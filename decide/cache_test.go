package decide

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/projections/merge"
	"github.com/seed-86dfc502/weir/store"
)

func moveOf(partition int32, token byte, from, to int64) []store.WatermarkStep {
	return []store.WatermarkStep{{Partition: store.Partition{Generation: 1, Number: partition}, Token: store.Token{token}, From: from, To: to}}
}

// counted returns the value of a cache's metric.
func counted(t *testing.T, c prometheus.Collector) float64 {
	t.Helper()
	reg := prometheus.NewRegistry()
	require.NoError(t, reg.Register(c))
	all, err := reg.Gather()
	require.NoError(t, err)
	m := all[0].GetMetric()[0]
	return m.GetCounter().GetValue() + m.GetGauge().GetValue()
}

// kept makes a cache that remembers some entities of partition 0, decided up to 5.
func kept(limit int64, ids ...string) *cache {
	c := newCache(limit, NewMetrics(prometheus.NewRegistry()), FaultInjection{})
	c.committed(moveOf(0, 'a', 0, 5))
	for _, id := range ids {
		c.keep(&cached{id: id})
	}
	return c
}

// A cache is valid for one token and one offset.
func TestMemoryIsOfOneTokenAndOffset(t *testing.T) {
	for name, c := range map[string]struct {
		moves []store.WatermarkStep
		want  bool
	}{
		"the same":        {moveOf(0, 'a', 5, 6), true},
		"another token":   {moveOf(0, 'b', 5, 6), false},
		"an older offset": {moveOf(0, 'a', 4, 6), false},
		"a newer offset":  {moveOf(0, 'a', 6, 7), false},
		"not concerned":   {moveOf(1, 'b', 9, 10), true},
	} {
		t.Run(name, func(t *testing.T) {
			cache := kept(1<<20, "e", "f")
			cache.begin(c.moves)
			require.Equal(t, c.want, cache.take(0, "e") != nil)
			require.Nil(t, cache.take(0, "e"), "who takes it may change it")
			require.Nil(t, cache.take(1, "f"), "of another partition")
			if !c.want {
				require.Zero(t, cache.bytes)
				require.EqualValues(t, 2, counted(t, cache.metrics.cacheDropped))
			}
		})
	}
}

func TestMemoryIsBounded(t *testing.T) {
	one := kept(1<<20, "0").bytes
	c := kept(3*one, "0", "1", "2")
	r := c.take(0, "0")
	require.NotNil(t, r)
	c.keep(r) // used
	c.keep(&cached{id: "3"})
	require.Nil(t, c.take(0, "1"), "not used for longest")
	for _, id := range []string{"0", "2", "3"} {
		require.NotNil(t, c.take(0, id), id)
	}
	require.Zero(t, c.bytes)
	require.EqualValues(t, 1, counted(t, c.metrics.cacheEvicted))
	require.Zero(t, counted(t, c.metrics.cacheBytes))
	require.Zero(t, counted(t, c.metrics.cacheEntities))

	c = kept(one-1, "0")
	require.Nil(t, c.take(0, "0"), "more than there is room for")
	c = kept(1<<20, "0", "1")
	c.retain(func(int32) bool { return false })
	require.Zero(t, c.bytes, "a partition that was given up")
	c = kept(1<<20, "0")
	c.close()
	require.Zero(t, counted(t, c.metrics.cacheBytes))
}

// The bound is in bytes of memory: the estimate is close to the memory in use.
func TestCacheKnowsItsSize(t *testing.T) {
	const entities = 3000
	for _, c := range []struct {
		name            string
		sources, fields int
		rows            int
	}{{"small", 1, 3, 1}, {"dense", 1, 20, 20}, {"several sources", 3, 12, 5}, {"many services", 1, 40, 200}} {
		t.Run(c.name, func(t *testing.T) {
			var spec merge.Spec
			for s := range c.sources {
				spec.Sources = append(spec.Sources, merge.Source{Name: fmt.Sprint("source", s)})
			}
			merged := merge.Compile(spec)
			p := &Plan{Merge: merged, Fingerprint: []byte("c")}
			heap := func() uint64 {
				runtime.GC()
				runtime.GC()
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				return m.HeapAlloc
			}
			cache := kept(1 << 40)
			before := heap()
			for n := range entities {
				docs := map[string]canonicaltree.Node{}
				for _, s := range spec.Sources {
					text := []byte(`{"id":"x"`)
					for f := range c.fields {
						text = fmt.Appendf(text, `,"field_%s_%d":"value %d"`, s.Name, f, n)
					}
					tree, err := canonicaltree.Parse(append(text, '}'))
					require.NoError(t, err)
					docs[s.Name] = tree.Keep().Root()
				}
				ev := &evaluation{verdict: newVerdict(p, unbounded), entityState: entityState{stored: store.Entity{ID: fmt.Sprint("entity-", n)}, docs: docs, fence: fence{}}}
				for _, s := range spec.Sources {
					ev.fence[s.Name] = &sourceFence{Positions: []position{{Topic: fmt.Sprint("a topic's identity", n)}}, Events: []string{"0123456789ab", fmt.Sprint("0123456789a", n)}}
				}
				_, err := ev.view()
				require.NoError(t, err)
				for s := range c.rows {
					ev.states.Set(store.Row{Key: store.Key{Service: int32(s)}, Content: change.Hashed(1, canonicaltree.Digest{})})
				}
				ev.dirty, ev.moved = true, true
				row, _ := ev.result()
				cache.keep(ev.remember(0, row, true))
			}
			taken := heap() - before
			t.Logf("%d bytes for each entity, estimated at %d", taken/entities, cache.bytes/entities)
			require.InDelta(t, 1, float64(cache.bytes)/float64(taken), 0.4)
		})
	}
}
