package config_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
)

// The examples that users copy must load as they are, without secrets set.
func TestExamplesLoad(t *testing.T) {
	files, err := filepath.Glob("../examples/*/weir.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(filepath.Dir(file)), func(t *testing.T) {
			c, err := assemble.Load(file, func(string) (string, bool) { return "", false }, config.AllowUnsetEnv())
			require.NoError(t, err)
			require.NotEmpty(t, c.Services())
		})
	}
}
