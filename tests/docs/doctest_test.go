package docs

import (
	"context"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sinkkinds "github.com/seed-86dfc502/weir/sinks/registry"
	sourcekinds "github.com/seed-86dfc502/weir/sources/registry"
	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/seed-86dfc502/weir/tests/testbinary"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const root = "../.."

// commandTime bounds one command of a page, on however busy a machine.
const commandTime = 10 * time.Minute

var bin string // folder of the binary under test

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "weir-doctest")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		bin = filepath.Join(dir, "bin")
		if err := os.Mkdir(bin, 0o755); err != nil {
			panic(err)
		}
		if _, err := testbinary.Build(bin); err != nil {
			panic(err)
		}
		return m.Run()
	}())
}

// pages are the files that users read, by their path from the root: those below docs/,
// those of the kinds of sinks and sources, and some of the top.
func pages(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	read := func(path string) {
		text, err := os.ReadFile(filepath.Join(root, path))
		require.NoError(t, err)
		found[path] = string(text)
	}
	for _, name := range []string{"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "examples/README.md", "testdata/golden/README.md", "tests/protocol/protocol.md", "canonicaltree/structural-hash.md"} {
		read(name)
	}
	for _, tree := range []string{"sinks", "sources"} {
		paths, err := fs.Glob(os.DirFS(root), tree+"/*/README.md")
		require.NoError(t, err)
		for _, path := range paths {
			read(path)
		}
	}
	require.NoError(t, fs.WalkDir(os.DirFS(root), "docs", func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".md") {
			read(path)
		}
		return err
	}))
	return found
}

// shell runs a command line in dir, with the binary on the path.
func shell(t *testing.T, dir, line string) (output string, ok bool) {
	t.Helper()
	return shellIn(t, dir, nil, line)
}

// environment has the binary on the path, and the given variables.
func environment(set []string) []string {
	return append(append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH")), set...)
}

func shellIn(t *testing.T, dir string, set []string, line string) (output string, ok bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", "set -euo pipefail; "+line)
	cmd.Dir = dir
	cmd.Env = environment(set)
	out, err := cmd.CombinedOutput()
	require.NoError(t, ctx.Err(), line)
	return string(out), err == nil
}

// The pages' commands print the pages' output. Each recipe of
// the cookbook is followed by itself.
func TestConsoleBlocks(t *testing.T) {
	if testing.Short() {
		t.Skip("runs every command of the pages")
	}
	for name, text := range pages(t) {
		if name == cookbook {
			continue
		}
		found, _, err := blocks(text)
		require.NoError(t, err, name)
		if !slices.ContainsFunc(found, func(b block) bool { return strings.HasPrefix(b.info, "console") }) {
			continue
		}
		if !slices.ContainsFunc(found, inShop) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				follow(t, name, found)
			})
			continue
		}
		for _, version := range databases {
			t.Run(name+" PostgreSQL"+version, func(t *testing.T) {
				t.Parallel()
				follow(t, name, found, "SHOP_URL="+servers.StartOwnPostgres(t, version).Address)
			})
		}
	}
	for title, found := range recipes(t) {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			follow(t, cookbook, found)
		})
	}
}

// databases are the versions of PostgreSQL with which the pages that read one are followed:
// Debian's, which is 15, and 18.
var databases = []string{"", "18"}

// inShop reports whether a block needs a database.
func inShop(b block) bool { return b.info == "console shop" }

const cookbook = "docs/cookbook.md"

// recipes are the blocks of the cookbook, by the heading above them.
func recipes(t *testing.T) map[string][]block {
	t.Helper()
	text := pages(t)[cookbook]
	found, prose, err := blocks(text)
	require.NoError(t, err)
	sections := map[string][]block{}
	for _, b := range found {
		for i := b.line - 1; i >= 0; i-- {
			if title, is := strings.CutPrefix(prose[i], "## "); is {
				sections[title] = append(sections[title], b)
				break
			}
		}
	}
	return sections
}

// follow runs the blocks of a page, or of a part of it, with these variables.
func follow(t *testing.T, name string, found []block, env ...string) {
	t.Helper()
	if slices.ContainsFunc(found, func(b block) bool { return b.info == "console live" }) {
		env = append(env, realServers(t)...)
	}
	s := newSession(t, env...)
	for _, b := range found {
		s.write(b)
		words := strings.Fields(b.info)
		if len(words) == 0 || words[0] != "console" {
			continue
		}
		cs, err := b.commands()
		require.NoError(t, err, name)
		for i, c := range cs {
			if slices.Contains(words, "servers") || slices.Contains(words, "make") {
				plausible(t, name, c)
				continue
			}
			out, ok := s.run(c.text)
			fails := slices.Contains(words, "fails") && i == len(cs)-1
			require.Equal(t, !fails, ok, "%s:%d: $ %s\n%s", name, c.line, c.text, out)
			require.Empty(t, missing(c.output, out), "%s:%d: $ %s\nprinted\n%s", name, c.line, c.text, out)
		}
	}
}

// realServers are the addresses of real servers as the variables that recipes name:
// a schema, a database, topics of the test's own.
func realServers(t *testing.T) []string {
	t.Helper()
	brokers, prefix := servers.Kafka(t)
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	require.NoError(t, err)
	defer client.Close()
	_, err = kadm.NewClient(client).CreateTopic(t.Context(), 1, 1, nil, prefix+"bananas")
	require.NoError(t, err)
	clickhouse, _ := servers.ClickHouseHTTP(t)
	postgres := servers.Postgres(t)
	parsed, err := url.Parse(postgres)
	require.NoError(t, err)
	return []string{
		"KAFKA=" + brokers[0], "TOPICS=" + strings.TrimSuffix(prefix, "."), "CLICKHOUSE_URL=" + clickhouse,
		"POSTGRES_URL=" + postgres, "OUTBOX=" + strings.TrimPrefix(parsed.Query().Get("options"), "-csearch_path=") + ".outbox",
	}
}

// asked are the command lines that exists has checked: pages name the same again and again.
var asked sync.Map

// exists checks that a command line names a command with flags that exist.
func exists(t *testing.T, at, line string) {
	t.Helper()
	if _, before := asked.LoadOrStore(line, true); before {
		return
	}
	out, ok := shell(t, root, line+" --help")
	// A group of commands prints its help for any word behind its name.
	if group := regexp.MustCompile(`(?m)^  (weir[a-z ]*) \[command\]$`).FindStringSubmatch(out); group != nil {
		rest := strings.Fields(strings.TrimPrefix(strings.Join(strings.Fields(line), " "), group[1]))
		ok = ok && (len(rest) == 0 || strings.HasPrefix(rest[0], "-"))
	}
	assert.True(t, ok, "%s: %s: %s", at, line, out)
}

// plausible checks a command that is not run.
func plausible(t *testing.T, page string, c command) {
	t.Helper()
	words := strings.Fields(c.text)
	for len(words) > 0 && strings.Contains(words[0], "=") {
		words = words[1:] // settings in front of a command
	}
	require.NotEmpty(t, words)
	switch words[0] {
	case "weir", "bin/weir":
		exists(t, fmt.Sprint(page, ":", c.line), "weir "+strings.Join(words[1:], " "))
	case "make":
		targets := slices.DeleteFunc(words[1:], func(w string) bool { return strings.Contains(w, "=") })
		out, ok := shell(t, root, "make -n "+strings.Join(targets, " "))
		assert.True(t, ok, "%s:%d: %s: %s", page, c.line, c.text, out)
	case "curl", "printf": // into curl
		assert.Regexp(t, `http://127\.0\.0\.1:960[01]/(v1/sources/\w+/events(:batch)?|v1/services/[\w%@/]+/(check|confirm|release)(:batch)?|healthz|readyz|metrics)'?$`, c.text, "%s:%d", page, c.line)
	case "docker", "export":
	case "cp":
		assert.FileExists(t, filepath.Join(root, words[1]), "%s:%d", page, c.line)
	default:
		t.Errorf("%s:%d: nobody checks %q", page, c.line, c.text)
	}
}

var (
	span    = regexp.MustCompile("`([^`]+)`")
	heading = regexp.MustCompile(`^#+ (.*)`)
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
)

// Commands in running text exist, with their flags, and so do make's targets.
func TestCommandsInText(t *testing.T) {
	for name, text := range pages(t) {
		found, prose, err := blocks(text)
		require.NoError(t, err, name)
		for _, b := range found {
			assert.NotContains(t, []string{"sh", "bash", "shell"}, b.info, "%s:%d: mark it console, so that it is tested", name, b.line)
			if !strings.HasPrefix(b.info, "console") {
				assert.NotRegexp(t, `(?m)^\$ `, b.text, "%s:%d: mark it console, so that it is tested", name, b.line)
			}
		}
		for i, l := range prose {
			for _, m := range span.FindAllStringSubmatch(l, -1) {
				switch line := m[1]; {
				case strings.HasPrefix(line, "weir "):
					exists(t, fmt.Sprint(name, ":", i+1), line)
				case strings.HasPrefix(line, "make "):
					plausible(t, name, command{line: i + 1, text: line})
				}
			}
		}
	}
}

// The configurations that pages show are accepted: a block that begins with
// the name of its file belongs to the page's configuration.
func TestShownConfigurations(t *testing.T) {
	for name, text := range pages(t) {
		found, _, err := blocks(text)
		require.NoError(t, err, name)
		dir := t.TempDir()
		for _, b := range found {
			file := regexp.MustCompile(`^# ([\w/.]+\.yaml)`).FindStringSubmatch(b.text)
			if b.info == "yaml" && file != nil {
				path := filepath.Join(dir, file[1])
				require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
				require.NoError(t, os.WriteFile(path, []byte(b.text), 0o644))
			}
		}
		if _, err := os.Stat(filepath.Join(dir, "weir.yaml")); err == nil {
			out, ok := shell(t, dir, "weir validate -c weir.yaml")
			assert.True(t, ok, "%s: %s", name, out)
		}
	}
}

// anchor is the name that a heading gets on GitHub.
func anchor(heading string) string {
	s := strings.ToLower(strings.ReplaceAll(heading, "`", ""))
	s = regexp.MustCompile(`[^\p{L}\p{N}_ -]`).ReplaceAllString(s, "")
	return strings.ReplaceAll(s, " ", "-")
}

func TestLinks(t *testing.T) {
	all := pages(t)
	anchors := map[string][]string{}
	for name, text := range all {
		_, prose, err := blocks(text)
		require.NoError(t, err, name)
		for _, l := range prose {
			if m := heading.FindStringSubmatch(l); m != nil {
				anchors[name] = append(anchors[name], anchor(m[1]))
			}
		}
	}
	for name, text := range all {
		_, prose, _ := blocks(text)
		for i, l := range prose {
			for _, m := range link.FindAllStringSubmatch(l, -1) {
				if strings.Contains(m[1], "://") {
					continue
				}
				path, fragment, _ := strings.Cut(m[1], "#")
				target := name
				if path != "" {
					target = filepath.ToSlash(filepath.Join(filepath.Dir(name), path))
					_, err := os.Stat(filepath.Join(root, target))
					assert.NoError(t, err, "%s:%d", name, i+1)
				}
				if fragment != "" && strings.HasSuffix(target, ".md") {
					assert.Contains(t, anchors[target], fragment, "%s:%d", name, i+1)
				}
			}
		}
	}
}

// The maps, for people and for assistants, lead to every page.
func TestTheMapsHaveEveryPage(t *testing.T) {
	all := pages(t)
	assistants, err := os.ReadFile(filepath.Join(root, "docs", "llms.txt"))
	require.NoError(t, err)
	for name := range all {
		if page, is := strings.CutPrefix(name, "docs/"); is && page != "README.md" {
			assert.Contains(t, all["docs/README.md"], "]("+page+")")
			assert.Contains(t, string(assistants), "]("+page+")")
		}
	}
}

// longestRow is the longest line of a table, in characters.
const longestRow = 300

func TestRowsOfTablesAreShort(t *testing.T) {
	for name, text := range pages(t) {
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "|") {
				assert.LessOrEqual(t, len([]rune(line))-1, longestRow, "%s: %.60s", name, line)
			}
		}
	}
}

// Each kind of sink and source has a page in its package, and a line with a link to it
// in the table of docs/sinks.md or docs/sources.md, in the order of the registry.
func TestEveryKindHasItsPage(t *testing.T) {
	all := pages(t)
	compare := func(tree string, packages []string) {
		var listed, written []string
		for _, m := range regexp.MustCompile(`(?m)^\| \[[^]]+\]\(\.\./(`+tree+`/\w+)/README\.md\)`).FindAllStringSubmatch(all["docs/"+tree+".md"], -1) {
			listed = append(listed, m[1])
		}
		for name := range all {
			if page, is := strings.CutSuffix(name, "/README.md"); is && strings.HasPrefix(page, tree+"/") {
				written = append(written, page)
			}
		}
		assert.Equal(t, packages, slices.Compact(listed), "the table of docs/%s.md", tree)
		assert.ElementsMatch(t, packages, written, "the pages README.md")
	}
	var ofSinks, ofSources []string
	for _, k := range sinkkinds.Kinds() {
		ofSinks = append(ofSinks, folder(k))
	}
	for _, k := range sourcekinds.Kinds() {
		ofSources = append(ofSources, folder(k))
	}
	compare("sinks", ofSinks)
	compare("sources", ofSources)
}

// folder is where the package of a kind is, from the root.
func folder(kind any) string {
	return strings.TrimPrefix(reflect.TypeOf(kind).Elem().PkgPath(), "github.com/seed-86dfc502/weir/")
}

// generated tells folders that hold no source: servers and tests write and
// remove files there while others look.
func generated(path string, d fs.DirEntry) bool {
	return d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "out" || d.Name() == "bin")
}

// CONTRIBUTING.md has what each suite does, and pages name no other suite.
func TestSuites(t *testing.T) {
	out, ok := shell(t, root, "scripts/verify list")
	require.True(t, ok, out)
	suites := strings.Fields(out)
	all := pages(t)
	var described []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\|").FindAllStringSubmatch(all["CONTRIBUTING.md"], -1) {
		described = append(described, m[1])
	}
	assert.Equal(t, suites, described)
	for name, text := range all {
		for _, m := range regexp.MustCompile(`SUITE=(\w+)`).FindAllStringSubmatch(text, -1) {
			assert.Contains(t, suites, m[1], name)
		}
	}
}

// The page of metrics lists every metric with its labels, and no other.
func TestMetrics(t *testing.T) {
	text := pages(t)["docs/metrics.md"]
	listed := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(weir_\\w+)` \\| (\\w+) \\|([^|]*)\\|").FindAllStringSubmatch(text, -1) {
		listed[m[1]] = strings.TrimSpace(m[2] + " " + strings.ReplaceAll(strings.TrimSpace(m[3]), "`", ""))
	}
	assert.Equal(t, registered(t), listed)
}

// The story of make run: each customer's updates, the README's extract of them, and
// that a second time nothing is sent.
func TestQuickstart(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the pipeline as a process")
	}
	dir := t.TempDir()
	for _, folder := range []string{"examples", "scripts"} {
		require.NoError(t, os.CopyFS(filepath.Join(dir, folder), os.DirFS(filepath.Join(root, folder))))
	}
	run := "WEIR=" + filepath.Join(bin, "weir") + " EVENTS=2000 ENTITIES=200 bash scripts/quickstart"
	out, ok := shell(t, dir, run)
	require.True(t, ok, out)
	assert.Empty(t, missing([]string{
		`Step 1. …`,
		`out customer-1 {"entity":"B-007","op":"upsert","doc":{"banana_id":"B-007","ripeness_level":2}}`,
		`out customer-2 {"entity":"B-007","op":"upsert","doc":{"banana_id":"B-007"}}`,
		`Step 2. …`,
		`out customer-1 {"entity":"B-007","op":"upsert","doc":{"banana_id":"B-007","ripeness_level":3}}`,
		`out customer-2 nothing`,
		`sum … customer-1: 1 sent, 0 pruned or held back; customer-2: 0 sent, 1 pruned or held back`,
		`Step 3. …`,
		`out customer-1 nothing`,
		`out customer-2 nothing`,
		`Step 4. …`,
		`out customer-1 {"entity":"B-007","op":"retract"}`,
		`out customer-2 {"entity":"B-007","op":"retract"}`,
		`2,000 events read`,
		`… duplicates …`,
		`What next`,
	}, out), out)

	readme, _, err := blocks(pages(t)["README.md"])
	require.NoError(t, err)
	checked := 0
	for _, b := range readme {
		if b.info != "console make" {
			continue
		}
		cs, err := b.commands()
		require.NoError(t, err)
		for _, c := range cs {
			shown := out
			if line, is := strings.CutPrefix(c.text, "bin/"); is {
				shown, ok = shell(t, dir, line)
				require.True(t, ok, shown)
			}
			assert.Empty(t, missing(c.output, shown), "README.md:%d: %s\nprinted\n%s", c.line, c.text, shown)
			checked++
		}
	}
	assert.Equal(t, 3, checked)

	_, next, _ := strings.Cut(out, "What next\n")
	for l := range strings.Lines(next) {
		if line, _, _ := strings.Cut(strings.TrimSpace(l), "   "); strings.HasPrefix(l, "  ") {
			out, ok := shell(t, dir, line)
			assert.True(t, ok, "%s\n%s", line, out)
		}
	}

	before, err := os.ReadFile(filepath.Join(dir, "out/quickstart/stream/out/customer-02.jsonl"))
	require.NoError(t, err)
	out, ok = shell(t, dir, run)
	require.True(t, ok, out)
	assert.Empty(t, missing([]string{"This was told before … 0 new events, 0 changes delivered.", "… nothing was sent."}, out), out)
	after, err := os.ReadFile(filepath.Join(dir, "out/quickstart/stream/out/customer-02.jsonl"))
	require.NoError(t, err)
	assert.Equal(t, string(before), string(after))
}
