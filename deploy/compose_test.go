package deploy

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
)

type composeFile struct {
	Services map[string]struct {
		Image string
		Build struct {
			Context    string
			Dockerfile string
		}
		Ports     []string
		Volumes   []string
		Secrets   []string
		DependsOn any `yaml:"depends_on"`
	}
	Secrets map[string]struct{ Environment string }
	Volumes map[string]any
}

const root = ".."

func readYAML(t *testing.T, path string, into any) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, into), path)
	return string(text)
}

func readCompose(t *testing.T) (composeFile, string) {
	t.Helper()
	var compose composeFile
	text := readYAML(t, "docker-compose.yml", &compose)
	require.NotEmpty(t, compose.Services)
	return compose, text
}

// requirePinned catches an image that changes under the same name: it has a version, to be read,
// and a digest, which counts.
func requirePinned(t *testing.T, image string) {
	t.Helper()
	require.Regexp(t, `^[^:@$]+:[^:@$]+@sha256:[0-9a-f]{64}$`, image)
	require.NotContains(t, image, ":latest@")
}

func TestEveryImageIsPinned(t *testing.T) {
	compose, _ := readCompose(t)
	for name, service := range compose.Services {
		if service.Image == "" {
			require.NotEmpty(t, service.Build.Dockerfile, "%s has neither an image nor a Dockerfile", name)
			continue
		}
		requirePinned(t, service.Image)
	}
	dockerfile, err := os.ReadFile("Dockerfile")
	require.NoError(t, err)
	images := regexp.MustCompile(`(?m)^FROM (?:--platform=\S+ )?(\S+)`).FindAllStringSubmatch(string(dockerfile), -1)
	require.Len(t, images, 2)
	for _, image := range images {
		requirePinned(t, image[1])
	}
}

func TestEveryPortIsPublishedOnLoopbackOnly(t *testing.T) {
	compose, _ := readCompose(t)
	var published []string
	for name, service := range compose.Services {
		for _, port := range service.Ports {
			require.Regexp(t, `^127\.0\.0\.1:\d+:\d+$`, port, name)
			published = append(published, strings.Split(port, ":")[1])
		}
	}
	slices.Sort(published)
	require.Len(t, slices.Compact(slices.Clone(published)), len(published), "a port is published twice")
}

func TestEveryReferencedFileExists(t *testing.T) {
	compose, _ := readCompose(t)
	for name, service := range compose.Services {
		if service.Build.Dockerfile != "" {
			require.FileExists(t, filepath.Join(root, service.Build.Context, service.Build.Dockerfile), name)
		}
		for _, volume := range service.Volumes {
			source, _, _ := strings.Cut(volume, ":")
			if !strings.HasPrefix(source, ".") {
				require.Contains(t, compose.Volumes, source, "%s mounts a volume that is not declared", name)
				continue
			}
			_, err := os.Stat(filepath.Join(root, source))
			require.NoError(t, err, name)
		}
		for _, secret := range service.Secrets {
			require.Contains(t, compose.Secrets, secret, name)
		}
		switch on := service.DependsOn.(type) {
		case map[string]any:
			for other := range on {
				require.Contains(t, compose.Services, other, name)
			}
		case []any:
			for _, other := range on {
				require.Contains(t, compose.Services, other, name)
			}
		}
	}
}

// Secrets have no defaults, are all in .env.example, and nothing else is.
func TestSecretsComeFromTheEnvironmentAndHaveNoDefault(t *testing.T) {
	compose, text := readCompose(t)
	used := map[string]bool{}
	for _, reference := range regexp.MustCompile(`\$\{([^}]*)\}`).FindAllStringSubmatch(text, -1) {
		name, _, mustBeSet := strings.Cut(reference[1], ":?")
		require.True(t, mustBeSet, "%s may be empty or has a default", reference[0])
		used[name] = true
	}
	for _, secret := range compose.Secrets {
		used[secret.Environment] = true
	}
	example, err := os.ReadFile(filepath.Join(root, ".env.example"))
	require.NoError(t, err)
	var offered []string
	for _, line := range regexp.MustCompile(`(?m)^([A-Z_]+)=(.*)$`).FindAllStringSubmatch(string(example), -1) {
		require.Empty(t, line[2], "%s has a value in .env.example", line[1])
		offered = append(offered, line[1])
	}
	require.ElementsMatch(t, slices.Collect(maps.Keys(used)), offered)
}

func TestPrometheusAndGrafanaFitTogether(t *testing.T) {
	compose, _ := readCompose(t)
	var prometheus struct {
		Scrapes []struct {
			Static []struct{ Targets []string } `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	readYAML(t, "deploy/prometheus.yml", &prometheus)
	require.NotEmpty(t, prometheus.Scrapes)
	for _, scrape := range prometheus.Scrapes {
		for _, target := range scrape.Static[0].Targets {
			service, _, _ := strings.Cut(target, ":")
			require.Contains(t, compose.Services, service)
		}
	}

	var sources struct{ Datasources []struct{ UID, URL string } }
	readYAML(t, "deploy/grafana/provisioning/datasources/prometheus.yml", &sources)
	require.Len(t, sources.Datasources, 1)
	require.Equal(t, "http://prometheus:9090", sources.Datasources[0].URL)

	var dashboard struct {
		Panels []struct {
			Title      string
			Datasource struct{ UID string }
			Targets    []struct{ Expr string }
		}
	}
	text, err := os.ReadFile("grafana/dashboards/weir.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &dashboard))
	require.NotEmpty(t, dashboard.Panels)
	for _, panel := range dashboard.Panels {
		require.Equal(t, sources.Datasources[0].UID, panel.Datasource.UID, panel.Title)
		for _, target := range panel.Targets {
			require.Regexp(t, `weir_|job="weir"`, target.Expr, panel.Title)
		}
	}
}

func TestTheConfigurationForComposeIsValid(t *testing.T) {
	loaded, err := assemble.Load("weir/weir.yaml", func(string) (string, bool) { return "", false }, config.AllowUnsetEnv())
	require.NoError(t, err)
	require.NotEmpty(t, loaded.Services())
	// Docker must not kill it before it has ended by itself.
	require.Less(t, time.Duration(loaded.Shutdown.Timeout), 30*time.Second)

	// Also with the addresses of compose, none of which has TLS.
	var compose struct {
		Services map[string]struct{ Environment map[string]string }
	}
	readYAML(t, "docker-compose.yml", &compose)
	_, err = assemble.Load("weir/weir.yaml", func(name string) (string, bool) {
		value, ok := compose.Services["weir"].Environment[name]
		return regexp.MustCompile(`\$\{(\w+):[^}]*\}`).ReplaceAllString(value, "${1}0123456789"), ok
	})
	require.NoError(t, err)
}

// The image is built with the patch release of Go that the module names, so a
// fault of net/http that Go has mended is mended there.
func TestTheImageIsBuiltWithTheModulesToolchain(t *testing.T) {
	dockerfile, err := os.ReadFile("Dockerfile")
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	toolchain := regexp.MustCompile(`(?m)^toolchain go(\S+)$`).FindStringSubmatch(string(text))
	require.NotNil(t, toolchain)
	minor := toolchain[1][:strings.LastIndexByte(toolchain[1], '.')]
	require.Contains(t, string(dockerfile), " golang:"+minor+".")
	require.Contains(t, string(dockerfile), "GOTOOLCHAIN=auto", "the patch release is go.mod's")
}

// The database role that Weir has in compose is an ordinary one, which
// row-level security binds, and the owner of nothing but its own database.
func TestTheDatabaseRoleIsOrdinary(t *testing.T) {
	var compose struct {
		Services map[string]struct {
			Environment map[string]string
			Volumes     []string
		}
	}
	readYAML(t, "docker-compose.yml", &compose)
	server, weir := compose.Services["postgres"], compose.Services["weir"]
	role := regexp.MustCompile(`^postgres://(\w+):\$\{(\w+):`).FindStringSubmatch(weir.Environment["WEIR_STORE_URL"])
	require.NotNil(t, role)
	require.NotEqual(t, server.Environment["POSTGRES_USER"], role[1])
	require.NotContains(t, server.Environment["POSTGRES_PASSWORD"], role[2], "a password of its own")
	require.Contains(t, server.Volumes, "./deploy/postgres:/docker-entrypoint-initdb.d:ro")
	script, err := os.ReadFile("postgres/weir.sh")
	require.NoError(t, err)
	require.Regexp(t, `CREATE ROLE `+role[1]+` LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOBYPASSRLS PASSWORD`, string(script))
}

// Docker's own opinion, on machines that have it.
func TestDockerAcceptsTheComposeFile(t *testing.T) {
	if exec.Command("docker", "compose", "version").Run() != nil {
		t.Log("docker compose is not on this machine; the other tests of this package read the file themselves")
		return
	}
	command := exec.CommandContext(t.Context(), "docker", "compose", "config", "--quiet")
	command.Dir = root
	command.Env = append(os.Environ(), "POSTGRES_PASSWORD=x", "WEIR_DATABASE_PASSWORD=x", "VALKEY_PASSWORD=x", "CLICKHOUSE_PASSWORD=x",
		"WEIR_ADMIN_TOKEN=0123456789abcdef", "WEIR_METRICS_TOKEN=0123456789abcdefg", "GRAFANA_PASSWORD=x")
	output, err := command.CombinedOutput()
	require.NoError(t, err, string(output))
}
