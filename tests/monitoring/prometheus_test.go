package monitoring

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/stretchr/testify/require"
)

// tool is the path of a program of Debian's package prometheus, as
// scripts/install-servers unpacks it.
func tool(t *testing.T, name string) string {
	t.Helper()
	root, err := servers.Root()
	require.NoError(t, err)
	path := filepath.Join(root, ".run", "cache", "prometheus", "usr", "bin", name)
	require.FileExists(t, path, "scripts/install-servers brings it")
	return path
}

// prometheus is one running server.
type prometheus struct {
	t   *testing.T
	url string
}

// startPrometheus scrapes a target each second and evaluates the rules.
func startPrometheus(t *testing.T, target, rules string) *prometheus {
	t.Helper()
	rules, err := filepath.Abs(rules)
	require.NoError(t, err)
	dir := t.TempDir()
	settings := filepath.Join(dir, "prometheus.yml")
	require.NoError(t, os.WriteFile(settings, fmt.Appendf(nil, `
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs:
  - job_name: weir
    static_configs: [{targets: [%q]}]
`, rules, target), 0o644))
	address := harness.FreeAddress(t) // Prometheus does not say which port it got
	log, err := os.Create(filepath.Join(dir, "log"))
	require.NoError(t, err)
	cmd := exec.Command(tool(t, "prometheus"), "--config.file="+settings, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address)
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		_ = log.Close()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Log(harness.Tail(string(text), 20))
		}
		http.DefaultClient.CloseIdleConnections()
	})
	p := &prometheus{t, "http://" + address}
	harness.Eventually(t, "prometheus", func() error {
		resp, err := http.Get(p.url + "/-/ready")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		return harness.Want(resp.StatusCode, http.StatusOK)
	})
	return p
}

// get asks the HTTP API and decodes the data of its answer.
func (p *prometheus) get(path string, parameters url.Values, into any) {
	p.t.Helper()
	resp, err := http.Get(p.url + "/api/v1/" + path + "?" + parameters.Encode())
	require.NoError(p.t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(p.t, err)
	require.Equal(p.t, http.StatusOK, resp.StatusCode, "%s: %s", parameters, body)
	require.NoError(p.t, json.Unmarshal(body, &struct{ Data any }{into}))
}

// sample is one series of an answer.
type sample struct {
	Metric map[string]string
	Value  [2]any // time, number as text
}

// query returns the series of an expression now.
func (p *prometheus) query(expression string) []sample {
	p.t.Helper()
	var answer struct{ Result []sample }
	p.get("query", url.Values{"query": {expression}}, &answer)
	return answer.Result
}
