package plan_test

import (
	"flag"
	"fmt"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/operate/plan"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/store/sqlite"
	"github.com/stretchr/testify/require"
)

var benchEntities = flag.Int("entities", 10_000, "stored entities of the benchmark")

// BenchmarkPlan computes the effect of a candidate on a SQLite store, compared
// with the active configuration; one operation is one run over all entities.
func BenchmarkPlan(b *testing.B) {
	s, err := sqlite.Open(b.Context(), sqlite.Options{Path: filepath.Join(b.TempDir(), "state.db")})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, s.Close()) })
	require.NoError(b, s.Migrate(b.Context()))
	active := load(b)
	fingerprint := active.Fingerprint()
	revision, err := s.Activate(b.Context(), fingerprint[:], 0, false)
	require.NoError(b, err)
	numbers, err := s.Services(b.Context(), []string{ripe, list})
	require.NoError(b, err)
	part := store.Partition{Generation: 1}
	_, err = s.TakeOver(b.Context(), []store.Partition{part}, store.Token{1})
	require.NoError(b, err)
	content := func(doc string) change.Content {
		d, err := canonicaltree.Sum([]byte(doc), canonicaltree.Literal)
		require.NoError(b, err)
		return change.Hashed(canonicaltree.Scheme, d)
	}
	for at := 0; at < *benchEntities; at += 1000 {
		var out store.Outcome
		for i := at; i < min(at+1000, *benchEntities); i++ {
			id := fmt.Sprintf("E%08d", i)
			doc := fmt.Sprintf(`{"id":%q,"origin":"EC","level":%d,"weight":1.5,"tags":[{"name":"organic"},{"name":"fair trade"}],"farm":{"name":"La Esperanza","altitude":%d}}`, id, i%7, i%2000)
			v := change.NewVersion(1, int64(i))
			e := store.Entity{ID: id, Docs: []byte(`{"registry":` + doc + `}`), Version: v, Fingerprint: fingerprint[:]}
			for name, doc := range map[string]string{ripe: fmt.Sprintf(`{"id":%q,"level":%d}`, id, i%7), list: fmt.Sprintf(`{"id":%q}`, id)} {
				e.States.Set(store.Row{Key: store.Key{Service: numbers[name], Entity: id}, Content: content(doc), Version: v})
			}
			out.Entities = append(out.Entities, e)
		}
		_, err := s.Decide(b.Context(), store.Decision{Revision: revision.Number, Moves: []store.WatermarkStep{{Partition: part, From: int64(at), To: int64(at + 1000), Token: store.Token{1}}}},
			func(store.Loaded) (store.Outcome, error) { return out, nil })
		require.NoError(b, err)
	}
	candidate := load(b, "level: level", "level: level, weight: weight", `["EC", "CO"]`, `["EC"]`)
	var peak uint64
	for b.Loop() {
		runtime.GC()
		e, err := plan.Compute(b.Context(), plan.Input{Candidate: candidate, Against: active, Store: s, Samples: 2, Progress: func(int64, int64) {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak = max(peak, m.HeapAlloc)
		}})
		require.NoError(b, err)
		require.EqualValues(b, *benchEntities, e.Services[0].Send)
		require.EqualValues(b, *benchEntities, e.Services[1].Unchanged)
	}
	b.ReportMetric(float64(*benchEntities)*float64(b.N)/b.Elapsed().Seconds(), "entities/s")
	b.ReportMetric(float64(peak)/(1<<20), "peak-heap-MiB")
}
