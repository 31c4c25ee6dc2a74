//go:build verify

package load

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/api/auth"
	"github.com/seed-86dfc502/weir/tests/harness"
)

// world is a running process with an API for tenants t0, t1, …, each with a source and
// a token of its own.
type world struct {
	t      *testing.T
	p      harness.Project
	run    *harness.Process
	tokens []string
	client *http.Client
}

func newWorld(t *testing.T, tenants int, more string) *world {
	t.Helper()
	w := &world{t: t, client: &http.Client{Timeout: harness.Patience, Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}}
	t.Cleanup(w.client.CloseIdleConnections)
	sources, tokens := "sources:\n", "tokens:\n"
	for i := range tenants {
		id, text := auth.NewToken()
		w.tokens = append(w.tokens, text)
		sources += fmt.Sprintf("  s%d: {http: {}, entity: id, mount: s%d}\n", i, i)
		tokens += fmt.Sprintf("  - {id: %s, hash: %q, tenant: t%d, may: [ingest], sources: [s%d]}\n", id, auth.HashOf(text), i, i)
	}
	w.p = harness.NewProject(t, map[string]string{
		"weir.yaml": sources + "customers: [acme.yaml]\napi: {listen: \"127.0.0.1:0\", tokens: tokens.yaml, rate: 100000}\nadmin: {listen: \"127.0.0.1:0\"}\n" + more,
		"acme.yaml": "customer: acme\nprojections:\n  all: {fields: {id: s0.id}, deliver: {out: {file: {path: out.jsonl}}}}\n", "tokens.yaml": tokens,
	})
	w.run = w.p.Start("run")
	w.run.Address("ingest")
	w.run.Ready(200)
	return w
}

// post sends a body for a tenant and returns the status and when to retry.
func (w *world) post(tenant int, path, kind, body string) (status int, retry string, err error) {
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, "http://"+w.run.Address("ingest")+"/v1/sources/s"+strconv.Itoa(tenant)+"/"+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("Authorization", "Bearer "+w.tokens[tenant])
	r.Header.Set("Content-Type", kind)
	resp, err := w.client.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, resp.Header.Get("Retry-After"), err
}

// confine puts the process into a control group with a limit of memory, where this
// machine lets the test make one; otherwise its peak alone is held against the limit.
func (w *world) confine(limit int64) {
	for _, form := range []struct{ root, file string }{{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"}, {"/sys/fs/cgroup", "memory.max"}} {
		group := filepath.Join(form.root, fmt.Sprintf("weir-load-%d", w.run.Cmd.Process.Pid))
		if _, err := os.Stat(filepath.Join(form.root, "cgroup.procs")); err != nil || os.Mkdir(group, 0o755) != nil {
			continue
		}
		w.t.Cleanup(func() { w.run.Kill(); _ = os.Remove(group) })
		if os.WriteFile(filepath.Join(group, form.file), []byte(strconv.FormatInt(limit, 10)), 0o644) == nil &&
			os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(w.run.Cmd.Process.Pid)), 0o644) == nil {
			w.t.Logf("confined to %d MiB by %s", limit>>20, group)
			return
		}
	}
	w.t.Log("no control group can be made here; the peak is measured")
}

func percentile(times []time.Duration, part float64) time.Duration {
	slices.Sort(times)
	return times[min(len(times)-1, int(part*float64(len(times))))]
}
