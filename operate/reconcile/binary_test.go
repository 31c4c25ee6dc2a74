package reconcile_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/seed-86dfc502/weir/operate/reconcile"
	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { harness.Main(m) }

// world is a project with the same projection in a ClickHouse table and in two
// of PostgreSQL, one of them a log.
type world struct {
	harness.Project
	run                *harness.Process // nil while nobody runs
	clickhouse, target string           // URLs
}

const entities = 7

func newWorld(t *testing.T, real, running bool) *world {
	w := &world{}
	w.clickhouse, _ = servers.ClickHouseHTTP(t)
	w.target = servers.Postgres(t)
	more := ""
	if real {
		brokers, prefix := servers.Kafka(t)
		more = fmt.Sprintf("store: {postgres: {url: %q}}\nkafka: {brokers: [%q], prefix: %q, session_timeout: 1m}\n", servers.Postgres(t), brokers[0], prefix+"weir")
	}
	w.Project = harness.Simple(t, more, map[string]string{
		"click": fmt.Sprintf("{clickhouse: {url: %q, table: shown, linger: 10ms}}", w.clickhouse),
		"post":  fmt.Sprintf("{postgres: {url: %q, table: shown}}", w.target),
		"log":   fmt.Sprintf("{postgres: {url: %q, table: history, mode: append}}", w.target),
		"file":  harness.FileSink("file"),
	})
	w.Append("events.jsonl", harness.Many(entities, 0, 2))
	if running {
		w.run = w.Start("run")
		w.run.Ready(200)
		t.Cleanup(func() { // its consumers leave their groups, which can then be deleted
			w.run.Terminate()
			w.run.Wait()
		})
	}
	return w
}

// settle waits for changes under way.
func (w *world) settle(what string, f func() error) {
	w.T.Helper()
	if w.run == nil {
		w.Drain()
		require.NoError(w.T, f(), what)
		return
	}
	harness.Eventually(w.T, what, f)
}

// execute runs statements in one of the targets.
func (w *world) execute(service string, statements ...string) {
	w.T.Helper()
	for _, s := range statements {
		if strings.HasPrefix(service, "click/") {
			options, err := clickhouse.ParseDSN(w.clickhouse)
			require.NoError(w.T, err)
			conn, err := clickhouse.Open(options)
			require.NoError(w.T, err)
			if strings.HasPrefix(s, "ALTER") {
				s += " SETTINGS mutations_sync = 1"
			}
			require.NoError(w.T, conn.Exec(w.T.Context(), s), s)
			require.NoError(w.T, conn.Close())
			continue
		}
		harness.Exec(w.T, w.target, s)
	}
}

type answer struct {
	Services []struct {
		reconcile.Result
		Error string
		Sent  int64
		Job   int64
	}
	Skipped []string
}

// ask runs reconcile --json, which must end with a status.
func (w *world) ask(status int, args ...string) (x answer, said string) {
	w.T.Helper()
	pr := w.Start("reconcile --json", args...)
	require.Equal(w.T, status, pr.Wait(), "%s %s", pr.Out.String(), harness.Tail(pr.Log.String(), 20))
	require.NoError(w.T, json.Unmarshal(pr.Out.Bytes(), &x))
	return x, pr.Log.String()
}

// inStep wants every service to hold all entities as the dam has them.
func (w *world) inStep() error {
	pr := w.Start("reconcile --json")
	status := pr.Wait()
	var x answer
	if err := json.Unmarshal(pr.Out.Bytes(), &x); err != nil {
		return fmt.Errorf("%w: %s", err, pr.Log.String())
	}
	for _, s := range x.Services {
		if s.InStep != entities || s.Queued != 0 || s.Drift() != 0 {
			return fmt.Errorf("%+v", s)
		}
	}
	return harness.Want(status, 0)
}

const copied = "service, '%s', %s, is_deleted, key, changed_at, %s FROM %s WHERE entity = '%s' ORDER BY version DESC LIMIT 1"

// damage makes one entity of each kind of drift, by hand.
func (w *world) damage() {
	insert := func(table, entity, version, doc, from string) string {
		return "INSERT INTO " + table + " (service, entity, version, is_deleted, key, changed_at, doc) SELECT " + fmt.Sprintf(copied, entity, version, doc, table, from)
	}
	ghost := func(table string) string {
		return fmt.Sprintf("INSERT INTO %[1]s (service, entity, version, is_deleted, key, changed_at, synced_at, doc) "+
			"SELECT service, 'it''s a ghost', version, is_deleted, key || 'x', changed_at, synced_at, doc FROM %[1]s WHERE entity = 'E0' ORDER BY version DESC LIMIT 1", table)
	}
	w.execute("click/all@out",
		"ALTER TABLE shown DELETE WHERE entity IN ('E1')",
		insert("shown", "older", "version - 1", `'{"id":"E2","state":"before"}'`, "E2"),
		"ALTER TABLE shown DELETE WHERE entity = 'E2'",
		insert("shown", "E2", "version", "doc", "older"),
		"ALTER TABLE shown DELETE WHERE entity = 'older'",
		insert("shown", "other", "version", `'{"id":"E3","state":"by hand"}'`, "E3"),
		"ALTER TABLE shown DELETE WHERE entity = 'E3'",
		insert("shown", "E3", "version", "doc", "other"),
		"ALTER TABLE shown DELETE WHERE entity = 'other'",
		insert("shown", "E4", "version + 100000", "doc", "E4"),
		strings.Replace(insert("shown", "GHOST", "version", "doc", "E0"), "'GHOST'", `'it\'s a ghost'`, 1),
	)
	w.execute("post/all@out",
		"DELETE FROM shown WHERE entity = 'E1'",
		`UPDATE shown SET version = version - 1, doc = '{"id":"E2","state":"before"}' WHERE entity = 'E2'`,
		`UPDATE shown SET doc = '{"id":"E3","state":"by hand"}' WHERE entity = 'E3'`,
		"UPDATE shown SET version = version + 100000 WHERE entity = 'E4'",
		ghost("shown"),
	)
	w.execute("log/all@out",
		"DELETE FROM history WHERE entity = 'E1'",
		"DELETE FROM history h WHERE entity = 'E2' AND version = (SELECT max(version) FROM history WHERE entity = 'E2')",
		`UPDATE history SET doc = '{"id":"E3","state":"by hand"}' WHERE entity = 'E3'`,
		"UPDATE history SET version = version + 100000 WHERE entity = 'E4'",
		ghost("history"),
	)
}

// Rows that were deleted, set to an older version, changed in place, moved ahead or inserted
// by hand are found in each kind of table. --fix repairs those that a decision can repair;
// the printed statements remove the rest.
func TestReconcile(t *testing.T) {
	for _, way := range []struct {
		name          string
		real, running bool
	}{{"embedded, nobody runs", false, false}, {"embedded, beside a process", false, true}, {"servers", true, true}} {
		t.Run(way.name, func(t *testing.T) {
			if testing.Short() {
				t.Skip("needs servers")
			}
			t.Parallel()
			w := newWorld(t, way.real, way.running)
			w.settle("everything is delivered", w.inStep)
			w.damage()

			x, said := w.ask(1)
			require.Len(t, x.Services, 3)
			require.Equal(t, []string{"file/all@out"}, x.Skipped)
			require.Contains(t, said, "15 entities drifted (--fix sends them again)")
			for _, s := range x.Services {
				require.Empty(t, s.Error)
				require.Equal(t, []int64{3, 1, 1, 1, 1, 1, 2, 7}, []int64{s.InStep, s.Missing, s.Stale, s.Differs, s.Extra, s.Ahead, s.ByHand, s.Rows}, "%+v", s)
				require.Len(t, s.Samples, 5)
			}
			_, said = w.ask(1, "--service", "post/all@out", "--samples", "0")
			require.Contains(t, said, "5 entities drifted")
			human := w.Start("reconcile", "--service", "log/all@out")
			require.Equal(t, 1, human.Wait())
			require.Contains(t, human.Out.String(), `log/all@out: "E1" missing: nothing is there, `)
			require.Contains(t, human.Out.String(), `by hand: DELETE FROM`)

			x, said = w.ask(1, "--fix", "--yes", "--reason", "a test")
			require.Contains(t, said, "6 entities drifted and cannot be sent again")
			for _, s := range x.Services {
				require.EqualValues(t, 3, s.Sent)
				for _, f := range s.Samples {
					if f.Statement != "" {
						w.execute(s.Service, f.Statement)
					}
				}
			}
			// The row that was ahead is missing now.
			w.settle("the repair", func() error {
				pr := w.Start("reconcile --fix --yes --json")
				if status := pr.Wait(); status != 0 {
					return fmt.Errorf("status %d: %s", status, pr.Log.String())
				}
				return nil
			})
			w.settle("all is in step", w.inStep)
			newest := harness.States(w.Whole("out/file.jsonl"), "E1")
			require.Equal(t, []string{"r0", "r1"}, newest, "services that did not drift get nothing")

			audit := w.Start("audit --json --limit 1000").Ok()
			require.Contains(t, audit, "reconcile: a test")
		})
	}
}

// Values of typed columns that were changed by hand are found by column and repaired;
// --versions does not look at them, and says so.
func TestTypedColumns(t *testing.T) {
	if testing.Short() {
		t.Skip("needs servers")
	}
	t.Parallel()
	w := &world{target: servers.Postgres(t)}
	w.clickhouse, _ = servers.ClickHouseHTTP(t)
	w.Project = harness.Simple(t, "", map[string]string{
		"click": fmt.Sprintf("{clickhouse: {url: %q, table: spread, columns: {name: {type: String, path: state}, id: String}}}", w.clickhouse),
		"post":  fmt.Sprintf("{postgres: {url: %q, table: spread, columns: {name: {type: text, path: state}, id: varchar(9)}}}", w.target),
	})
	w.Append("events.jsonl", harness.Many(entities, 0, 2))
	w.settle("everything is delivered", w.inStep)
	w.execute("click/all@out", "ALTER TABLE spread UPDATE name = 'by hand' WHERE entity IN ('E1', 'E2', 'E3')")
	w.execute("post/all@out", "UPDATE spread SET name = 'by hand' WHERE entity IN ('E1', 'E2', 'E3')")

	x, _ := w.ask(1)
	require.Len(t, x.Services, 2)
	for _, s := range x.Services {
		require.Equal(t, []int64{4, 3, 0}, []int64{s.InStep, s.Differs, s.NotCompared}, "%+v", s)
		require.Equal(t, []string{"name"}, s.Samples[0].Columns)
	}
	x, _ = w.ask(0, "--versions")
	for _, s := range x.Services {
		require.Equal(t, []int64{7, 0, 7}, []int64{s.InStep, s.Differs, s.NotCompared}, "%+v", s)
	}
	human := w.Start("reconcile", "--versions", "--service", "post/all@out")
	require.Zero(t, human.Wait())
	require.Contains(t, human.Out.String(), "post/all@out: 7 entities in step by version; values not compared (--versions)")
	human = w.Start("reconcile", "--service", "post/all@out")
	require.Equal(t, 1, human.Wait())
	require.Contains(t, human.Out.String(), "was delivered; other values in name")

	w.ask(0, "--fix", "--yes")
	w.settle("the repair", w.inStep)
}

// Columns of a projection with carried fields and rules of sameness are compared as decide
// compares: a difference that it would not send is none, any other is found.
func TestTypedColumnsOfShapedProjections(t *testing.T) {
	if testing.Short() {
		t.Skip("needs servers")
	}
	t.Parallel()
	w := &world{target: servers.Postgres(t)}
	w.clickhouse, _ = servers.ClickHouseHTTP(t)
	w.Project = harness.NewProject(t, nil)
	w.Write("weir.yaml", "sources: {lab: {file: {path: events.jsonl}, entity: id}}\ncustomers: [post.yaml, click.yaml, whole.yaml]\n")
	const fields = "    fields: {id: id, price: {path: price, same: {round: 1}}, name: {path: name, same: {fold: case}}}\n    carry: {seen: seen}\n"
	const columns = "columns: {id: %s, price: %s, name: %s, seen: %s}"
	for name, sink := range map[string]string{
		"click": fmt.Sprintf("{clickhouse: {url: %q, table: shaped, "+columns+"}}", w.clickhouse, "String", "\"Decimal(12,3)\"", "String", "Int64"),
		"post":  fmt.Sprintf("{postgres: {url: %q, table: shaped, "+columns+"}}", w.target, "text", "\"numeric(12,3)\"", "text", "bigint"),
		"whole": fmt.Sprintf("{postgres: {url: %q, table: whole}}", w.target),
	} {
		w.Write(name+".yaml", "customer: "+name+"\nprojections:\n  all:\n"+fields+"    deliver: {out: "+sink+"}\n")
	}
	event := func(price, name string, seen int) string {
		text := ""
		for i := range entities {
			text += fmt.Sprintf(`{"id":"E%d","price":%s,"name":%q,"seen":%d}`+"\n", i, price, name, seen)
		}
		return text
	}
	w.Append("events.jsonl", event("1.52", "Ann", 1)+event("1.48", "ANN", 2))
	w.settle("everything is delivered", w.inStep)
	x, _ := w.ask(0)
	require.Len(t, x.Services, 3)
	for _, s := range x.Services {
		require.Equal(t, []int64{entities, 0, 0}, []int64{s.InStep, s.Differs, s.NotCompared}, "%+v", s)
	}
	for _, table := range []string{"shaped", "whole"} {
		set := map[string]string{"shaped": "price = 99", "whole": `doc = doc || '{"price":99}'`}[table]
		w.execute("post/all@out", "UPDATE "+table+" SET "+set+" WHERE entity = 'E1'")
	}
	w.execute("post/all@out", "UPDATE shaped SET seen = 7, price = 1.549, name = 'aNN' WHERE entity = 'E2'")
	w.execute("click/all@out", "ALTER TABLE shaped UPDATE price = 99 WHERE entity = 'E1'", "ALTER TABLE shaped UPDATE seen = 7 WHERE entity = 'E2'")
	x, _ = w.ask(1)
	for _, s := range x.Services {
		require.Equal(t, []int64{entities - 1, 1, 0}, []int64{s.InStep, s.Differs, s.NotCompared}, "%+v", s)
		require.Equal(t, "E1", s.Samples[0].Entity)
	}
	w.ask(0, "--fix", "--yes")
	w.settle("the repair", w.inStep)
}

// A target that is not there is said, and the others are compared all the same.
func TestTargetThatIsAway(t *testing.T) {
	if testing.Short() {
		t.Skip("needs servers")
	}
	t.Parallel()
	w := newWorld(t, false, false)
	w.settle("everything is delivered", w.inStep)
	w.execute("click/all@out", "DROP TABLE shown")
	pr := w.Start("reconcile")
	require.Equal(t, 1, pr.Wait())
	require.Contains(t, pr.Out.String(), "click/all@out: not compared to the end: ")
	require.Contains(t, pr.Out.String(), "there is no table")
	require.Contains(t, pr.Log.String(), "1 of 3 services could not be compared to the end")
	_, said := w.ask(0, "--service", "post/all@out")
	require.Empty(t, said)
}

func TestUsage(t *testing.T) {
	if testing.Short() {
		t.Skip("needs servers")
	}
	t.Parallel()
	p := harness.Simple(t, "", map[string]string{"file": harness.FileSink("file")})
	for args, says := range map[string]string{
		"":                        "none of the services has a target that can be read back",
		"--service nobody/all@no": "has none of that name",
		"--yes":                   "go with --fix",
		"--samples -1":            "must not be negative",
	} {
		pr := p.Start("reconcile", strings.Fields(args)...)
		require.Equal(t, 2, pr.Wait(), args)
		require.Contains(t, pr.Log.String(), says)
	}
	w := harness.Simple(t, "", map[string]string{"post": fmt.Sprintf("{postgres: {url: %q, table: shown}}", servers.Postgres(t))})
	pr := w.Start("reconcile --fix")
	require.Equal(t, 2, pr.Wait(), "it asks, and nobody can answer")
	require.Contains(t, pr.Log.String(), "--yes")
}
