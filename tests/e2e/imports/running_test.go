package imports

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/imports"
	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/stretchr/testify/require"
)

// client has connections of its own, so that none that an ended process left is
// used again.
var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: harness.Patience}

// call sends a request to the API and returns status, body and the header Location.
func call(t testing.TB, pr *harness.Process, method, path, kind string, body io.Reader) (status int, answer, location string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+pr.Address("ingest")+path, body)
	require.NoError(t, err)
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	resp, err := client.Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(text), resp.Header.Get("Location")
}

// Files are imported over HTTP and by the command beside a running process. The command
// posts to that process where it may not open the log itself.
func TestBesideARunningProcess(t *testing.T) {
	for _, on := range []string{embedded, onServers} {
		t.Run(on, func(t *testing.T) {
			if on == onServers && testing.Short() {
				t.Skip("needs servers")
			}
			t.Parallel()
			p := newWorld(t, on)
			pr := p.Start("run")
			pr.Ready(200)
			p.Write("in.jsonl", file())
			done(t, job(t, p.Start("import --source lab --json", p.Path("in.jsonl")).Ok()))

			const text = "id;state;n\ne-x;1;1.0\ne-x;2;2\ne-y;1;x\n"
			path := fmt.Sprintf("/v1/imports?source=orders&file=sha256:%x&types=n:number&delimiter=%%3B", sha256.Sum256([]byte(text)))
			status, body, location := call(t, pr, http.MethodPost, path, "text/csv", strings.NewReader(text))
			require.Equal(t, http.StatusOK, status, body)
			j := job(t, body)
			require.Equal(t, "done", j.State)
			require.EqualValues(t, 2, j.Accepted)
			require.EqualValues(t, 1, j.Invalid)
			status, body, _ = call(t, pr, http.MethodPost, path, "text/csv", strings.NewReader(text))
			require.Equal(t, http.StatusOK, status)
			require.Equal(t, j.ID, job(t, body).ID)
			status, body, _ = call(t, pr, http.MethodGet, location+"/errors?format=csv", "", nil)
			require.Equal(t, http.StatusOK, status)
			require.Equal(t, "row,line,status,reason\n3,4,invalid,\"bad_csv: the cell of column \"\"n\"\" is no JSON number\"\n", body)
			status, body, _ = call(t, pr, http.MethodGet, "/v1/imports", "", nil)
			require.Equal(t, http.StatusOK, status)
			var list struct{ Imports []imports.Job }
			require.NoError(t, json.Unmarshal([]byte(body), &list))
			require.Len(t, list.Imports, 2)

			harness.Eventually(t, "the metrics", func() error {
				if open := pr.Metric("weir_imports_open"); open != 0 {
					return fmt.Errorf("%v are open", open)
				}
				return harness.Want(pr.Metric("weir_import_rows_total", `source="orders"`, `status="accepted"`), 2)
			})
			harness.Eventually(t, "the customer's changes", func() error {
				return harness.Want(len(p.Whole("out/acme.jsonl")), rows+2)
			})
			pr.Terminate()
			require.Zero(t, pr.Wait())
			p.Drain()
			records := p.Records("out/acme.jsonl")
			require.Len(t, records, rows+2)
			require.Equal(t, []string{"1", "2"}, harness.States(records, "e-x"))
		})
	}
}

// Refused commands, and their reasons.
func TestCommandRefuses(t *testing.T) {
	t.Parallel()
	p := newWorld(t, embedded)
	p.Write("in.jsonl", "{}\n")
	p.Write("in.csv", "a,a\n1,2\n")
	p.Write("in", "{}\n")
	for args, says := range map[string]string{
		"--source nobody in.jsonl":                          "there is no source nobody",
		"--source lab in":                                   "say --format",
		"--source lab --format xml in":                      "the format must be jsonl or csv",
		"--source lab --type a:date in.csv":                 "the type of a column must be",
		"--source lab in.csv":                               `in.csv: column 2 ("a"): another column has the same place`,
		"--source lab --empty-null in.jsonl":                "options of csv",
		"--source lab missing.jsonl":                        "no such file",
		"in.jsonl":                                          `required flag(s) "source" not set`,
		"show nothing":                                      "nothing is not the id of an import",
		"cancel 5f0c1d2e3a4b5968778695a4b3c2d1e0":           "the tenant default has no import",
		"errors --format xml nothing":                       "the format must be jsonl or csv",
		"list --limit 0":                                    "--limit must be at least 1",
		"--source lab --delimiter \"\" --format csv in.csv": "the delimiter must be",
	} {
		t.Run(args, func(t *testing.T) {
			words := strings.Fields(args)
			for n, w := range words {
				if strings.Contains(w, ".") || w == "in" {
					words[n] = p.Path(w)
				}
			}
			pr := p.Start("import", words...)
			require.NotZero(t, pr.Wait())
			require.Contains(t, pr.Log.String(), says)
		})
	}
}

// A cancelled import ends where it is; the same file again continues it.
func TestCancel(t *testing.T) {
	t.Parallel()
	p := newWorld(t, embedded)
	p.Write("in.jsonl", file())
	env := []string{"WEIR_CRASH=" + crash.ImportStepped + "@lab:2", "WEIR_CRASH_LOG=" + filepath.Join(t.TempDir(), "points")}
	require.NotZero(t, p.StartEnv(env, "import --source lab", p.Path("in.jsonl")).Wait())
	first := jobs(p)[0]
	require.Equal(t, "cancelled", job(t, p.Start("import cancel --json", first.ID).Ok()).State)
	require.NotZero(t, p.Start("import cancel", first.ID).Wait(), "it is cancelled already")
	require.Contains(t, p.Start("audit").Ok(), "import cancel")
	second := job(t, p.Start("import --source lab --json", p.Path("in.jsonl")).Ok())
	require.Equal(t, first.ID, second.ID)
	require.Positive(t, first.Rows)
	done(t, second)
	check(p, "lab")
}
