package deploy

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"
)

func text(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, path))
	require.NoError(t, err)
	return string(b)
}

// Three places have the same version.
func TestOneVersion(t *testing.T) {
	version := regexp.MustCompile(`(?m)^## (\d+\.\d+\.\d+)`).FindStringSubmatch(text(t, "CHANGELOG.md"))
	require.NotNil(t, version)
	var chart struct {
		Version    string
		AppVersion string `yaml:"appVersion"`
	}
	readYAML(t, "deploy/helm/weir/Chart.yaml", &chart)
	require.Equal(t, version[1], chart.Version)
	require.Equal(t, version[1], chart.AppVersion)
}

// The contents of the packages exist, and only root reads secrets.
func TestPackagedFiles(t *testing.T) {
	var release struct {
		Nfpms []struct {
			Contents []struct {
				Src, Dst, Type string
				Info           struct{ Mode int } `yaml:"file_info"`
			}
			Scripts map[string]string
		}
	}
	readYAML(t, ".goreleaser.yaml", &release)
	require.Len(t, release.Nfpms, 1)
	found := 0
	for _, c := range release.Nfpms[0].Contents {
		if c.Src != "" {
			require.FileExists(t, filepath.Join(root, c.Src))
		}
		if c.Dst == "/etc/weir/weir.env" {
			require.Equal(t, 0o600, c.Info.Mode)
			found++
		}
		if strings.HasPrefix(c.Dst, "/etc/") && c.Type != "dir" {
			require.Equal(t, "config|noreplace", c.Type, "an upgrade leaves %s as it is", c.Dst)
		}
	}
	require.Equal(t, 1, found)
	for _, script := range release.Nfpms[0].Scripts {
		info, err := os.Stat(filepath.Join(root, script))
		require.NoError(t, err)
		require.NotZero(t, info.Mode()&0o100, script)
	}
	unit := text(t, "deploy/package/weir.service")
	for _, line := range []string{"User=weir", "NoNewPrivileges=yes", "ProtectSystem=strict", "CapabilityBoundingSet=", "SystemCallFilter=@system-service", "StateDirectory=weir"} {
		require.Contains(t, unit, "\n"+line+"\n")
	}
}

// The chart's values are what its schema says, and a wrong one is refused.
func TestChartValues(t *testing.T) {
	compiler := jsonschema.NewCompiler()
	schema, err := jsonschema.UnmarshalJSON(strings.NewReader(text(t, "deploy/helm/weir/values.schema.json")))
	require.NoError(t, err)
	require.NoError(t, compiler.AddResource("values", schema))
	compiled, err := compiler.Compile("values")
	require.NoError(t, err)
	value := func() (v map[string]any) {
		readYAML(t, "deploy/helm/weir/values.yaml", &v)
		return v
	}
	require.NoError(t, compiled.Validate(value()))
	for key, wrong := range map[string]any{"replicas": 0, "roles": []any{"lunch"}, "env": map[string]any{"A": "a secret in the clear"}, "no_such_value": 1, "customers": map[string]any{}} {
		v := value()
		v[key] = wrong
		require.Error(t, compiled.Validate(v), key)
	}
}

// Workflows run a contributor's commands, with actions in fixed versions and only the declared rights.
func TestWorkflows(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, ".github/workflows/*.yml"))
	require.NoError(t, err)
	require.Len(t, files, 2)
	for _, file := range files {
		var w struct {
			Permissions map[string]string
			Jobs        map[string]struct {
				Permissions map[string]string
				Timeout     int `yaml:"timeout-minutes"`
				Steps       []struct{ Uses, Run string }
			}
		}
		b, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, yaml.Unmarshal(b, &w), file)
		require.Equal(t, map[string]string{"contents": "read"}, w.Permissions)
		for _, job := range w.Jobs {
			require.Positive(t, job.Timeout)
			runs := false
			for _, s := range job.Steps {
				runs = runs || s.Run == ".ci/run"
				if s.Uses != "" {
					require.Regexp(t, `^[\w-]+/[\w-]+@(v\d+|[0-9a-f]{40})$`, s.Uses)
				}
			}
			require.True(t, runs, "%s does not run the tests", file)
		}
	}
	release := text(t, ".github/workflows/release.yml")
	scripts := text(t, "scripts/package")
	for _, tool := range regexp.MustCompile(`(?:goreleaser/v2|helm)@v[\d.]+`).FindAllString(release, -1) {
		require.Contains(t, scripts, tool, "the release is made with what was checked")
	}
	var renovate map[string]any
	require.NoError(t, json.Unmarshal([]byte(text(t, "renovate.json")), &renovate))
}
