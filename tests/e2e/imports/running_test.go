package imports

import (
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/stretchr/testify/require"
)

// Files are imported beside a running process, by the command itself.
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

			p.Write("in.csv", "id;state;n\ne-x;1;1.0\ne-x;2;2\ne-y;1;x\n")
			command := []string{"--delimiter", ";", "--type", "n:number", p.Path("in.csv")}
			j := job(t, p.Start("import --source orders --json", command...).Ok())
			require.Equal(t, "done", j.State)
			require.EqualValues(t, 2, j.Accepted)
			require.EqualValues(t, 1, j.Refused)
			require.Equal(t, j.ID, job(t, p.Start("import --source orders --json", command...).Ok()).ID)
			require.Equal(t, "row,line,code,reason\n3,4,bad_csv,\"the cell of column \"\"n\"\" is no JSON number\"\n", p.Start("import show --refused csv", j.ID).Ok())
			require.Len(t, jobs(p), 2)
			require.Contains(t, p.Start("dlq list --source orders").Ok(), "bad_csv")
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
		"--source nobody in.jsonl":                            "there is no source nobody",
		"--source lab in":                                     "say --format",
		"--source lab --format xml in":                        "the format must be jsonl or csv",
		"--source lab --type a:date in.csv":                   "the type of a column must be",
		"--source lab in.csv":                                 `in.csv: column 2 ("a"): another column has the same place`,
		"--source lab --null x in.jsonl":                      "options of csv",
		"--source lab missing.jsonl":                          "no such file",
		"in.jsonl":                                            `required flag(s) "source" not set`,
		"show nothing":                                        "nothing is not the id of an import",
		"show 5f0c1d2e3a4b5968778695a4b3c2d1e0":               "the tenant default has no import",
		"show --refused xml 5f0c1d2e3a4b5968778695a4b3c2d1e0": "the format must be jsonl or csv",
		"show --limit 0":                                      "--limit must be at least 1",
		"--source lab --delimiter \"\" --format csv in.csv":   "the delimiter must be",
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
