package pipeline

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/seed-86dfc502/weir/config"
	"github.com/stretchr/testify/require"
)

func loadExample(t *testing.T, name string) *config.Config {
	t.Helper()
	c, err := config.Load(filepath.Join("..", "examples", name, "weir.yaml"), os.LookupEnv, config.AllowUnsetEnv())
	require.NoError(t, err)
	return c
}
