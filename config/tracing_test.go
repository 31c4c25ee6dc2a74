package config_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
)

const tracedCustomer = `customer: acme
projections: {ripeness: {fields: {id: id}, deliver: {archive: {file: {path: out.jsonl}}}}}
`

func TestTracing(t *testing.T) {
	load := func(tracing string) *config.Config {
		c, err := assemble.Load(write(t, map[string]string{
			"weir.yaml":           "sources: {lab: {file: {path: lab.jsonl}, entity: id}}\ncustomers: [customers/*.yaml]\n" + tracing,
			"customers/acme.yaml": tracedCustomer,
		}), env)
		require.NoError(t, err)
		return c
	}
	require.Nil(t, load("").Tracing, "off by default")
	defaults := load("tracing: {}").Tracing
	require.InDelta(t, 0.01, float64(defaults.Sample), 0)
	require.False(t, defaults.EntityIDs)
	for text, want := range map[string]float64{"0": 0, "1": 1, "0.25": 0.25, "1e-3": 0.001, `"0.5"`: 0.5, "\"${EMPTY:-1}\"": 1} {
		require.InDelta(t, want, float64(load("tracing: {sample: "+text+"}").Tracing.Sample), 0, text)
	}
	require.Equal(t, load("").Fingerprint(), load("tracing: {}").Fingerprint(), "no decision depends on it")
}
