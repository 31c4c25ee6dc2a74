package demo_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/operate/demo"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		found[name] = string(text)
		return err
	}))
	return found
}

// The same seed writes the same bytes, even over existing files; another seed writes
// others.
func TestSameSeedSameBytes(t *testing.T) {
	o := demo.Options{Seed: 7, Entities: 50, Events: 3000, Customers: 10}
	a, b := t.TempDir(), t.TempDir()
	require.NoError(t, demo.Write(a, o))
	require.NoError(t, demo.Write(b, o))
	first := files(t, a)
	assert.Equal(t, first, files(t, b))
	require.NoError(t, demo.Write(a, o))
	assert.Equal(t, first, files(t, a))

	o.Seed = 8
	require.NoError(t, demo.Write(b, o))
	assert.NotEqual(t, first["registry.jsonl"], files(t, b)["registry.jsonl"])
	assert.Equal(t, first["weir.yaml"], files(t, b)["weir.yaml"])
}

// The configuration that goes with the stream is accepted as it is, for any
// number of customers.
func TestConfigurationLoads(t *testing.T) {
	for _, customers := range []int{1, 8, 24, 33} {
		dir := t.TempDir()
		require.NoError(t, demo.Write(dir, demo.Options{Entities: 5, Events: 5, Customers: customers}))
		c, err := assemble.Load(filepath.Join(dir, "weir.yaml"), os.LookupEnv)
		require.NoError(t, err)
		assert.Len(t, c.Customers, customers)
		assert.Len(t, c.Services(), customers)
		for _, service := range c.Services() {
			assert.Zero(t, service.Delivery.Guard.Retract, "a stream of months in seconds has as many retractions")
		}
		assert.Len(t, c.Sources, 3)
	}
}

// The stream holds every kind of event that Weir is to tell apart.
func TestStream(t *testing.T) {
	type event struct {
		Meta struct {
			EventID  string `json:"event_id"`
			Op       string
			BananaID string `json:"banana_id"`
			LSN      int
		}
		Data map[string]json.RawMessage
	}
	const events = 20_000
	var total, repeated, late, deletions, returned int
	seen := map[string][]byte{}
	newest := map[string]int{}
	deleted := map[string]bool{}
	known := map[string]bool{}
	require.NoError(t, demo.Stream(demo.Options{Seed: 1, Entities: 1000, Events: events}, func(source string, line []byte) error {
		var e event
		require.NoError(t, json.Unmarshal(line, &e))
		total++
		if before, ok := seen[e.Meta.EventID]; ok {
			repeated++
			require.True(t, bytes.Equal(before, line), "event id %s has two contents", e.Meta.EventID)
			return nil
		}
		seen[e.Meta.EventID] = bytes.Clone(line)
		entity := source + e.Meta.BananaID
		switch {
		case e.Meta.Op == "delete":
			deletions++
			deleted[entity] = true
			assert.Empty(t, e.Data)
		case source == "registry" && e.Meta.LSN < newest[entity]:
			late++
		case deleted[entity]:
			returned++
			delete(deleted, entity)
		}
		if source == "registry" {
			newest[entity] = max(newest[entity], e.Meta.LSN)
			known[e.Meta.BananaID] = true
		}
		require.True(t, known[e.Meta.BananaID], "the registry knows every banana first")
		return nil
	}))
	assert.Equal(t, events, total)
	for kind, n := range map[string]int{"repeated": repeated, "late": late, "deleted": deletions, "returned": returned} {
		assert.Greater(t, n, events/1000, kind)
	}
}
