package imports

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/operate/imports"
	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { harness.Main(m, "crash") }

// The two ways to run Weir.
const (
	embedded  = "embedded" // everything in one process
	onServers = "servers"  // PostgreSQL, Kafka and Valkey; any number of processes
)

const mainFile = `%s
sources:
  lab: {file: {path: lab.jsonl}, entity: id, event_id: event}
  orders: {http: {}, entity: id}
customers: ["customers/*.yaml"]
api: {listen: "127.0.0.1:0"}
admin: {listen: "127.0.0.1:0"}
`

// newWorld makes a deployment, and runs it once, so that there is state.
func newWorld(t testing.TB, on string) harness.Project {
	backing := "kafka: {session_timeout: 3s, inbox: {partitions: 2}}"
	if on == onServers {
		brokers, prefix := servers.Kafka(t)
		valkey, keys := servers.Valkey(t)
		backing = fmt.Sprintf("store: {postgres: {url: %q}}\ngate: {valkey: {address: %q, prefix: %q}}\n"+
			"kafka: {brokers: [%q], prefix: %q, session_timeout: 3s, inbox: {partitions: 2}}",
			servers.Postgres(t), valkey, keys, brokers[0], prefix+"weir")
	}
	p := harness.NewProject(t, map[string]string{
		"weir.yaml": fmt.Sprintf(mainFile, backing),
		"lab.jsonl": "",
		"customers/acme.yaml": "customer: acme\nprojections:\n  all:\n    fields: {id: id, state: state}\n" +
			"    deliver:\n      out: {file: {path: ../out/acme.jsonl}}\n",
	})
	p.Drain()
	return p
}

const (
	rows     = 45 // of file
	entities = 5
	rowSize  = 60 << 10 // bytes: ten batches
)

// file is a file of ten batches. Every row changes its entity; the last two are a
// repetition of the first and no JSON.
func file() string {
	var b strings.Builder
	pad := strings.Repeat("x", rowSize)
	row := func(n int) {
		fmt.Fprintf(&b, `{"event":"%d","id":"e-%d","state":"%d","pad":%q}`+"\n", n, n%entities, n, pad)
	}
	for n := range rows {
		row(n)
	}
	row(0)
	b.WriteString("no JSON\n")
	return b.String()
}

// check compares the customer's updates with the rows of file that went into a
// source: each once, in the order of the file per entity.
func check(p harness.Project, source string) {
	p.T.Helper()
	p.Drain()
	records := p.Records("out/acme.jsonl")
	require.Len(p.T, records, rows+again[source])
	for e := range entities {
		var want []string
		for n := e; n < rows; n += entities {
			want = append(want, fmt.Sprint(n))
		}
		if e == 0 && again[source] > 0 {
			want = append(want, "0")
		}
		require.Equal(p.T, want, harness.States(records, fmt.Sprintf("e-%d", e)))
	}
}

// again reports whether the repetition of the first row is an event of its own: in a
// source whose events have no ids it is.
var again = map[string]int{"lab": 0, "orders": 1}

// job reads what weir import --json printed.
func job(t testing.TB, out string) imports.Import {
	t.Helper()
	var j imports.Import
	require.NoError(t, json.Unmarshal([]byte(out), &j), out)
	return j
}

// jobs lists all imports.
func jobs(p harness.Project) (all []imports.Import) {
	p.T.Helper()
	require.NoError(p.T, json.Unmarshal([]byte(p.Start("import show --json").Ok()), &all))
	return all
}

// done is the final state of file's job, after any interruption.
func done(t testing.TB, j imports.Import) {
	t.Helper()
	require.Equal(t, "done", j.State)
	n := int64(again[j.Source])
	require.Equal(t, [3]int64{rows + n, 1 - n, 1}, [3]int64{j.Accepted, j.Duplicate, j.Refused})
}

// passed reads the log of points that processes passed.
func passed(t testing.TB, log string) string {
	t.Helper()
	text, err := os.ReadFile(log)
	require.NoError(t, err)
	return string(text)
}
