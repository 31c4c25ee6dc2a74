package config_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/stretchr/testify/require"
)

// Foreign configuration reads nothing of this machine.
func TestConfinedReadsNothingElse(t *testing.T) {
	none := func(string) (string, bool) { return "", false }
	outside := t.TempDir()
	secret := filepath.Join(outside, "secret")
	require.NoError(t, os.WriteFile(secret, []byte("topsecret"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(outside, "x.yaml"), []byte("customer: topsecret\nprojections: {}\n"), 0o600))
	load := func(id, customers string) (*config.Config, error) {
		folder := filepath.Join(t.TempDir(), "in")
		require.NoError(t, os.Mkdir(folder, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(folder), "up.yaml"), []byte("customer: topsecret\nprojections: {}\n"), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(folder, "weir.yaml"), []byte(
			"sources: {s: {file: {path: e.jsonl}, entity: id}}\nkafka: {client_id: \""+id+"\"}\ncustomers: [\""+customers+"\"]\n"), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(folder, "c.yaml"), []byte(
			"customer: c\nprojections: {all: {fields: {id: id}, deliver: {out: {file: {path: c.jsonl}}}}}\n"), 0o600))
		return assemble.Load(filepath.Join(folder, "weir.yaml"), none, config.AllowUnsetEnv(), config.Confined())
	}
	c, err := load("${file:"+secret+"}", "c*.yaml")
	require.NoError(t, err)
	require.Equal(t, "${file:"+secret+"}", c.Kafka.ClientID)
	for _, pattern := range []string{outside + "/*.yaml", "../*.yaml", "x/../../*.yaml", "${UNSET:-../}*.yaml"} {
		_, err := load("weir", pattern)
		require.ErrorContains(t, err, "leads out of the configuration's folder", pattern)
		require.NotContains(t, err.Error(), "topsecret", pattern)
	}
}
