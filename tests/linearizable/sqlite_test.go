package linearizable

import (
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/store/sqlite"
)

// Embedded is one process: two deciders, each of which believes to be the
// owner, and 64 clients share one store.
func TestI3LinearizableEmbedded(t *testing.T) {
	s, err := sqlite.Open(t.Context(), sqlite.Options{Path: filepath.Join(t.TempDir(), "state.db")})
	require.NoError(t, err)
	defer s.Close()
	base, inbox := prepare(t, s, settings{Seed: rand.Uint64(), Records: 120, Clients: 32, Writers: 2, Calls: 16, Pace: 16})
	t.Logf("seed %d", base.Seed)
	var ticks atomic.Int64
	logs := make([][]entry, 2)
	var owners, arrived sync.WaitGroup
	arrived.Add(len(logs))
	for n := range logs {
		var mu sync.Mutex
		p := &process{settings: base, store: s, now: func() int64 { return ticks.Add(1) }, gather: func() { arrived.Done(); arrived.Wait() }, log: func(e entry) {
			mu.Lock()
			defer mu.Unlock()
			logs[n] = append(logs[n], e)
		}}
		p.Process = n
		owners.Go(func() { assert.NoError(t, p.run(t.Context())) })
	}
	owners.Wait()
	h := collect(t, s, logs, inbox)
	requireLinearizable(t, h)
	require.Positive(t, h.fenced, "zombies were fenced")
	require.Positive(t, h.passed)
}
