package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestComponents(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the binary")
	}
	binary := filepath.Join(t.TempDir(), "weir")
	made, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../../cmd/pipeline").CombinedOutput()
	require.NoError(t, err, string(made))
	info, err := buildinfo.ReadFile(binary)
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, write(&out, info))
	var d document
	require.NoError(t, json.Unmarshal(out.Bytes(), &d))
	require.Equal(t, "CycloneDX", d.Format)
	seen := map[string]component{}
	for _, c := range d.Components {
		require.Regexp(t, `^pkg:golang/\S+@\S+$`, c.PURL)
		require.NotContains(t, seen, c.Name, "each once")
		seen[c.Name] = c
	}
	require.Len(t, seen, len(info.Deps)+1)
	require.NotContains(t, seen, "github.com/stretchr/testify", "what only tests need is not in it")
	require.NotEmpty(t, seen["std"].Version)
	pgx := seen["github.com/jackc/pgx/v5"]
	text, err := os.ReadFile(filepath.Join("..", "..", "go.mod"))
	require.NoError(t, err)
	require.Equal(t, regexp.MustCompile(`jackc/pgx/v5 (v\S+)`).FindStringSubmatch(string(text))[1], pgx.Version)
	require.Len(t, pgx.Properties[0].Value, 64)
	require.Error(t, write(&out, &debug.BuildInfo{Deps: []*debug.Module{{Path: "x", Version: "v1", Sum: "h1:?"}}}))
}
