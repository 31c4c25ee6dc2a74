package golden_test

import (
	"bytes"
	"encoding/xml"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/operate/golden"
	"github.com/seed-86dfc502/weir/tests/testbinary"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// folder has one configuration per subject, each with its cases.
const folder = "../../testdata/golden"

func load(t *testing.T, file string) *config.Config {
	t.Helper()
	c, err := assemble.Load(file, func(string) (string, bool) { return "", false }, config.AllowUnsetEnv())
	require.NoError(t, err)
	return c
}

// configurations are those with cases: of testdata/golden and of the examples.
func configurations(t *testing.T) []string {
	t.Helper()
	var files []string
	for _, pattern := range []string{folder + "/*/weir.yaml", "../../examples/*/weir.yaml"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, f := range found {
			if _, err := os.Stat(filepath.Join(filepath.Dir(f), "tests")); err == nil {
				files = append(files, f)
			}
		}
	}
	require.NotEmpty(t, files)
	return files
}

// Which mistake each case catches is in testdata/golden/README.md.
func TestCases(t *testing.T) {
	for _, file := range configurations(t) {
		results, err := golden.Run(load(t, file), filepath.Join(filepath.Dir(file), "tests"), golden.Options{})
		require.NoError(t, err)
		for _, r := range results {
			assert.False(t, r.Failed(), "%s: %s: %s%s", file, r.Name, r.Error, r.Diff)
		}
	}
}

// Every case is listed with its reason.
func TestEveryCaseIsListed(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(folder, "README.md"))
	require.NoError(t, err)
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllSubmatch(text, -1) {
		listed[string(m[1])] = true
	}
	there := map[string]bool{}
	cases, err := filepath.Glob(folder + "/*/tests/*/" + golden.EventsFile)
	require.NoError(t, err)
	for _, c := range cases {
		name, err := filepath.Rel(folder, filepath.Dir(c))
		require.NoError(t, err)
		there[filepath.ToSlash(name)] = true
	}
	assert.Equal(t, there, listed)
}

// Coverage names what no case reaches, and nothing else.
func TestCoverage(t *testing.T) {
	c := load(t, folder+"/shaping/weir.yaml")
	unreached := func(pattern string) (missing []string, all int) {
		var reached golden.Coverage
		_, err := golden.Run(c, folder+"/shaping/tests", golden.Options{Pattern: regexp.MustCompile(pattern), Reached: &reached})
		require.NoError(t, err)
		return reached.Unreached()
	}
	missing, all := unreached(".")
	assert.Equal(t, []string{"carried/view: no case is refused, and its filter or a computed field may fail"}, missing)
	assert.Equal(t, 38, all)
	missing, _ = unreached("carried")
	assert.Contains(t, missing, "guarded/view@archive: no case is held by its guard")
	assert.Contains(t, missing, "same/view: no case shows field lines.n")
	assert.Contains(t, missing, "same/view: its filter lets no document through")
	assert.Contains(t, missing, "same/view@archive: no case sends")
	assert.NotContains(t, missing, "same/view: its filter keeps no document out")
	missing, _ = unreached("computed")
	assert.NotContains(t, missing, "computed/view: no case is refused, and its filter or a computed field may fail")
	assert.Contains(t, missing, "carried/view: no case shows field trace")
}

func TestPatternChoosesCases(t *testing.T) {
	results, err := golden.Run(load(t, folder+"/banana/weir.yaml"), folder+"/banana/tests", golden.Options{Pattern: regexp.MustCompile("^a-")})
	require.NoError(t, err)
	var names []string
	for _, r := range results {
		names = append(names, r.Name)
	}
	assert.Equal(t, []string{"a-a-a-b", "a-b-a-b"}, names)

	_, err = golden.Run(load(t, folder+"/banana/weir.yaml"), folder+"/banana/tests", golden.Options{Pattern: regexp.MustCompile("nothing")})
	assert.ErrorContains(t, err, "no case")
}

// What cannot be run is said with its line, and hides no other case.
func TestUnusableCases(t *testing.T) {
	c := load(t, folder+"/banana/weir.yaml")
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, name), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name, golden.EventsFile), []byte(text), 0o644))
	}
	write("source", "\n"+`{"source":"nobody","event":{}}`)
	write("key", `{"source":"lab","evnt":{}}`)
	write("json", `{"source":"lab"`)
	write("good", `{"source":"registry","event":{"meta":{"event_id":"r-1"},"banana":{"id":"B-007"}}}`)
	results, err := golden.Run(c, dir, golden.Options{Update: true})
	require.NoError(t, err)
	require.Len(t, results, 4)
	for i, want := range []struct{ name, err string }{
		{"good", ""}, {"json", "events.jsonl:1:"}, {"key", "events.jsonl:1:"}, {"source", `events.jsonl:2: there is no source "nobody"`},
	} {
		assert.Equal(t, want.name, results[i].Name)
		assert.Contains(t, results[i].Error, want.err)
		assert.Equal(t, want.err != "", results[i].Failed())
	}
	assert.True(t, results[0].Updated)
}

// The report has the counts of JUnit, and is valid XML for every diff.
func TestJUnit(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, golden.WriteJUnit(&b, "weir.yaml", []golden.Result{
		{Name: "fine", Took: 1500 * time.Millisecond}, {Name: "odd", Diff: "-a\n+\x01]]>\n"}, {Name: "broken", Error: "no such source"},
	}))
	var report struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Errors   int `xml:"errors,attr"`
		Suites   []struct {
			Name  string `xml:"name,attr"`
			Cases []struct {
				Name    string `xml:"name,attr"`
				Time    string `xml:"time,attr"`
				Failure string `xml:"failure"`
				Error   string `xml:"error"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	require.NoError(t, xml.Unmarshal(b.Bytes(), &report))
	assert.Equal(t, []int{3, 1, 1}, []int{report.Tests, report.Failures, report.Errors})
	require.Len(t, report.Suites, 1)
	assert.Equal(t, "weir.yaml", report.Suites[0].Name)
	cases := report.Suites[0].Cases
	require.Len(t, cases, 3)
	assert.Equal(t, "1.500", cases[0].Time)
	assert.Equal(t, "-a\n+\uFFFD]]>\n", cases[1].Failure)
	assert.Equal(t, "no such source", cases[2].Error)
}

// The command itself: a deviation is a diff and exit status 1, --update makes
// it the expectation.
func TestCommand(t *testing.T) {
	dir := t.TempDir()
	binary, err := testbinary.Build(dir)
	require.NoError(t, err)
	pipeline := func(args ...string) (stdout, stderr string, status int) {
		cmd := exec.CommandContext(t.Context(), binary, args...)
		var o, e bytes.Buffer
		cmd.Stdout, cmd.Stderr = &o, &e
		if err := cmd.Run(); err != nil {
			require.ErrorAs(t, err, new(*exec.ExitError))
		}
		return o.String(), e.String(), cmd.ProcessState.ExitCode()
	}
	for _, file := range configurations(t) {
		stdout, stderr, status := pipeline("test", "-c", file)
		assert.Zero(t, status, stdout+stderr)
		assert.NotContains(t, stdout, "FAIL")
	}

	copied := filepath.Join(dir, "banana")
	require.NoError(t, os.CopyFS(copied, os.DirFS(folder+"/banana")))
	expected := filepath.Join(copied, "tests", "a-b-a-b", golden.ExpectedFile)
	good, err := os.ReadFile(expected)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(expected, []byte(strings.Replace(string(good), "send", "held back", 1)), 0o644))
	config := filepath.Join(copied, "weir.yaml")

	report := filepath.Join(dir, "report.xml")
	stdout, stderr, status := pipeline("test", "-c", config, "--junit", report)
	assert.Equal(t, 1, status)
	written, err := os.ReadFile(report)
	require.NoError(t, err)
	assert.Contains(t, string(written), `<testsuites tests=`)
	assert.Contains(t, string(written), `tests="12" failures="1"`)
	assert.Contains(t, string(written), "held back customer-1/ripeness@archive")
	assert.Contains(t, stdout, "FAIL a-b-a-b")
	assert.Contains(t, stdout, "\n-  held back customer-1/ripeness@archive")
	assert.Contains(t, stdout, "\n+  send customer-1/ripeness@archive")
	assert.Contains(t, stdout, "ok   a-a-a-b\n")
	assert.Equal(t, "error: 1 of 12 cases are not as expected\n", stderr)

	stdout, stderr, status = pipeline("test", "-c", config, "--update")
	assert.Zero(t, status, stderr)
	assert.Contains(t, stdout, "updated a-b-a-b\n")
	again, err := os.ReadFile(expected)
	require.NoError(t, err)
	assert.Equal(t, string(good), string(again))

	stdout, _, status = pipeline("test", "-c", config, "--run", "^a-b", "--json")
	assert.Zero(t, status)
	assert.JSONEq(t, `[{"name":"a-b-a-b"}]`, stdout)

	_, stderr, status = pipeline("test", "-c", config, "--run", "(")
	assert.Equal(t, 2, status)
	assert.Contains(t, stderr, "--run")
	_, stderr, status = pipeline("test", "-c", config, "--dir", filepath.Join(dir, "nowhere"))
	assert.Equal(t, 1, status)
	assert.Contains(t, stderr, "no case in")
}

// A row of a PostgreSQL source has its key from the columns of the entity; that of a deleted row is
// in the line. An unexpected dead letter is stored only on demand.
func TestRowsOfADatabase(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	write("weir.yaml", `sources: {shop: {postgres: {url: "${SHOP_URL}", tables: {public.orders: {entity: id}, public.lines: {entity: [order_id, sku], mount: line}}}}}
customers: [acme.yaml]
`)
	write("acme.yaml", "customer: acme\nprojections: {order: {fields: {state: state, n: line.n}, deliver: {log: {file: {path: out.jsonl}}}}}\n")
	write("tests/rows/events.jsonl", `{"source":"shop_orders","event":{"id":7,"state":"new"}}
{"source":"shop_lines","event":{"order_id":7,"sku":"a/b","n":2}}
{"source":"shop_orders","event":null,"key":"7"}
`)
	write("tests/bare/events.jsonl", `{"source":"shop_orders","event":null}`+"\n")
	c := load(t, filepath.Join(dir, "weir.yaml"))
	run := func(o golden.Options) []golden.Result {
		results, err := golden.Run(c, filepath.Join(dir, "tests"), o)
		require.NoError(t, err)
		return results
	}
	results := run(golden.Options{Update: true})
	require.Contains(t, results[0].Error, `events.jsonl:1: the row has no column of the entity; a deleted row is {"source"`)
	require.True(t, results[1].Updated, results[1].Error)
	expected, err := os.ReadFile(filepath.Join(dir, "tests/rows/expected.txt"))
	require.NoError(t, err)
	require.Equal(t, `1 shop_orders 7: merged
  send acme/order@log upsert {"state":"new"}
2 shop_lines 7/a\/b: merged
  send acme/order@log upsert {"n":2}
3 shop_orders 7: merged
  send acme/order@log retract
`, string(expected))

	write("tests/bare/events.jsonl", `{"source":"shop_orders","event":"no row","key":"7"}`+"\n")
	results = run(golden.Options{Update: true})
	require.Contains(t, results[0].Error, "is not stored as the expectation without --letters: dead letter record, not_an_object")
	require.NoFileExists(t, filepath.Join(dir, "tests/bare/expected.txt"))
	require.True(t, run(golden.Options{Update: true, Letters: true})[0].Updated)
	require.False(t, run(golden.Options{})[0].Failed())
}
