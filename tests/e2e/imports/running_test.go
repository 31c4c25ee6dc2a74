package imports

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/imports"
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

// Files come in over HTTP and by the command while a process runs, which works
// them off; the command only waits where it may not open the log itself.
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
			done(t, job(t, p.Start("import --source lab --json --wait", p.Path("in.jsonl")).Ok()))

			status, body, location := call(t, pr, http.MethodPost, "/v1/imports?source=orders&types=n:number&delimiter=%3B", "text/csv", strings.NewReader("id;state;n\ne-x;1;1.0\ne-x;2;2\ne-y;1;x\n"))
			require.Equal(t, http.StatusAccepted, status, body)
			var j imports.Job
			harness.Eventually(t, "the end of the import", func() error {
				status, body, _ = call(t, pr, http.MethodGet, location, "", nil)
				if status != http.StatusOK {
					return fmt.Errorf("%d %s", status, body)
				}
				j = job(t, body)
				return harness.Want(j.State, "done")
			})
			require.EqualValues(t, 2, j.Accepted)
			require.EqualValues(t, 1, j.Invalid)
			status, body, _ = call(t, pr, http.MethodPost, "/v1/imports?source=orders&types=n:number&delimiter=%3B", "text/csv", strings.NewReader("id;state;n\ne-x;1;1.0\ne-x;2;2\ne-y;1;x\n"))
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
		"cancel 019ab2c4-5d6e-7f80-9a1b-2c3d4e5f6071":       "the tenant default has no import",
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

// A cancelled import ends where it is; the same file again is a new job, which
// continues behind the accepted rows.
func TestCancel(t *testing.T) {
	t.Parallel()
	p := newWorld(t, embedded)
	p.Write("in.jsonl", file())
	first := job(t, p.Start("import --source lab --json", p.Path("in.jsonl")).Ok())
	require.Equal(t, "queued", first.State)
	require.Equal(t, "cancelled", job(t, p.Start("import cancel --json", first.ID).Ok()).State)
	require.NotZero(t, p.Start("import cancel", first.ID).Wait(), "it is cancelled already")
	require.Contains(t, p.Start("audit").Ok(), "import cancel")
	second := job(t, p.Start("import --source lab --json --wait", p.Path("in.jsonl")).Ok())
	require.NotEqual(t, first.ID, second.ID)
	done(t, second)
	check(p, "lab")
}
