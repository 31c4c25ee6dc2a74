package crash

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/ncruces/go-sqlite3/driver"
	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/oracle"
	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// patience bounds every run of the pipeline.
const patience = 4 * time.Minute

// The stores of the matrix.
const (
	onPostgres = "postgres" // with Kafka and Valkey as servers
	onSQLite   = "sqlite"   // with the broker and the gate in the process
)

// world is everything that one cell has to itself.
type world struct {
	*harness.Cluster
	harness.Project
	t         testing.TB
	on        string // store
	hook      *harness.Receiver
	batched   *harness.Receiver
	paced     *harness.Receiver
	made      time.Time
	attempts  []time.Time      // at changes of paced, under its lock
	door      bool             // events are posted, and rows of a table
	sent      map[string]event // source/partition/offset; of a door: source/event id
	tables    *tables          // of a PostgreSQL source; else nil
	refusedAs string           // state of the rows of refused changes
}

// newWorld makes a world whose sources are files, or topics of Kafka.
func newWorld(t testing.TB, on string) *world { return newWorldOf(t, on, events()) }

// newWorldOf is newWorld with the events that its sources have at first.
func newWorldOf(t testing.TB, on string, all []event) *world {
	w, backing := emptyWorld(t, on)
	sources := map[string]string{}
	if on == onPostgres {
		for _, s := range []string{"registry", "lab", "overlay"} {
			sources[s] = fmt.Sprintf("kafka: {topic: %q}", w.Prefix+s)
		}
		sources["overlay"] = fmt.Sprintf("kafka: {topic: %q, frame_records: 1}", w.Prefix+"overlay") // the other transport
		w.Topics(2, w.Prefix+"registry", w.Prefix+"lab", w.Prefix+"overlay")
		w.send(all)
	} else {
		for _, s := range []string{"registry", "lab", "overlay"} {
			sources[s] = fmt.Sprintf("file: {path: %s.jsonl}", s)
		}
		w.writeSources(all)
	}
	w.configure(backing, sources["registry"]+locators, sources["lab"]+locators, sources["overlay"]+locators, "")
	return w
}

// newDoor makes a world whose events come by HTTP and in an outbox table.
func newDoor(t testing.TB, on string) *world {
	w, backing := emptyWorld(t, on)
	w.door = true
	harness.Exec(t, w.Target, outboxTable)
	for _, e := range events() {
		var head struct {
			EventID string `json:"event_id"`
		}
		require.NoError(t, json.Unmarshal([]byte(e.json), &head))
		w.sent[e.source+"/"+head.EventID] = e
	}
	backing += "\napi: {listen: \"127.0.0.1:0\"}"
	outbox := fmt.Sprintf("outbox: {url: %q, table: outbox, poll: 10ms, batch: 12, columns: {event_id: event}}", w.Target)
	w.configure(backing, "http: {}"+locators, outbox, "http: {}"+locators, "checks: {crm: {}, erp: {}}\n")
	return w
}

// emptyWorld makes a world without configuration; backing is what its servers
// make of that.
func emptyWorld(t testing.TB, on string) (w *world, backing string) {
	c := &harness.Cluster{T: t, Target: servers.Postgres(t)}
	c.Brokers, c.Prefix = servers.Kafka(t)
	c.Clickhouse, _ = servers.ClickHouseHTTP(t)
	w = &world{Cluster: c.Connect(), Project: harness.NewProject(t, nil), t: t, on: on, sent: map[string]event{}, refusedAs: "refused",
		hook: harness.NewReceiver(t), batched: harness.NewReceiver(t), paced: harness.NewReceiver(t), made: time.Now()}
	refuse := func(r oracle.Record) int {
		if refused(r.Entity) {
			return http.StatusUnprocessableEntity
		}
		return http.StatusNoContent
	}
	w.hook.Answers(refuse)
	w.batched.Answers(refuse)
	w.paced.Answers(func(r oracle.Record) int {
		w.attempts = append(w.attempts, time.Now())
		return refuse(r)
	})
	w.Topics(1, w.Prefix+"feed")
	// Each of the two workers has several partitions, so that a decision has several frames.
	backing = "kafka: {session_timeout: 1s, frame_records: 40, inbox: {partitions: 8}}"
	if on == onPostgres {
		w.Store, w.LogBrokers, w.LogPrefix = servers.Postgres(t), w.Brokers, w.Prefix
		valkey, keys := servers.Valkey(t)
		backing = fmt.Sprintf("store: {postgres: {url: %q}}\ngate: {valkey: {address: %q, prefix: %q}}\n"+
			"kafka: {brokers: [%q], prefix: %q, session_timeout: 1s, frame_records: 40, inbox: {partitions: 8}}",
			w.Store, valkey, keys, w.Brokers[0], w.Prefix+"weir")
	}
	return w, backing
}

// configure writes the configuration; more goes to the customer's file.
func (w *world) configure(backing, registry, lab, overlay, more string) {
	w.Write("weir.yaml", fmt.Sprintf(mainFile, backing, registry, lab, overlay))
	w.Write("acme.yaml", fmt.Sprintf(customerFile, w.Clickhouse, w.Target, w.hook.URL(), w.Brokers[0], w.Prefix, w.batched.URL(), w.paced.URL(), rate, burst)+more)
}

// send produces events to the sources' topics, keyed by entity. The later half happened an hour after
// the first: a guard counts updates of entities that the service had for longer than its window.
func (w *world) send(all []event) {
	records := make([]*kgo.Record, len(all))
	for i, e := range all {
		at := time.Now().Add(time.Duration(2*i/len(all)-2) * time.Hour)
		records[i] = &kgo.Record{Topic: w.Prefix + e.source, Key: []byte(e.entity), Value: []byte(e.json), Timestamp: at}
	}
	require.NoError(w.t, w.Kafka.ProduceSync(w.t.Context(), records...).FirstErr())
	for i, r := range records {
		w.sent[place(all[i].source, r.Partition, r.Offset)] = all[i]
	}
}

// writeSources writes the sources' files.
func (w *world) writeSources(all []event) {
	files := map[string]*bytes.Buffer{}
	for _, e := range all {
		if files[e.source] == nil {
			files[e.source] = &bytes.Buffer{}
		}
		w.sent[place(e.source, 0, int64(files[e.source].Len()))] = e
		files[e.source].WriteString(e.json + "\n")
	}
	for name, b := range files {
		w.Write(name+".jsonl", b.String())
	}
}

func place(source string, partition int32, offset int64) string {
	return fmt.Sprintf("%s/%d/%d", source, partition, offset)
}

// end is how a run of the pipeline ended.
type end struct {
	killed bool // by SIGKILL
	code   int
	log    string
	passed []string // passings of crash points
}

// run runs the pipeline until it is idle, or until the crash at a point ("" for none).
func (w *world) run(crash string) end { return w.command(crash, "run", "--until-idle") }

// command runs a command of the pipeline to its end, or until the crash.
func (w *world) command(crash string, args ...string) end {
	w.t.Helper()
	log := w.Path("passings")
	require.NoError(w.t, os.RemoveAll(log))
	pr := w.StartEnv([]string{"WEIR_CRASH=" + crash, "WEIR_CRASH_LOG=" + log}, strings.Join(args, " "))
	pr.Wait()
	return ended(w.t, pr.Cmd, log, pr.Log.String())
}

// ended tells how a process ended; log is the file of its passings.
func ended(t testing.TB, cmd *exec.Cmd, log, output string) end {
	status := cmd.ProcessState.Sys().(syscall.WaitStatus)
	e := end{killed: status.Signaled() && status.Signal() == syscall.SIGKILL, code: cmd.ProcessState.ExitCode(), log: output}
	passed, err := os.ReadFile(log)
	if !os.IsNotExist(err) { // none was passed
		require.NoError(t, err)
	}
	e.passed = strings.Split(strings.TrimSpace(string(passed)), "\n")
	return e
}

// diedAt reports whether the process died at the point, by its last output.
func (e end) diedAt(point string) bool {
	for _, p := range e.passed {
		if strings.HasPrefix(p, "killed "+point+" ") {
			return e.killed
		}
	}
	return false
}

// drain runs the pipeline to its end.
func (w *world) drain() {
	w.t.Helper()
	e := w.run("")
	require.Zero(w.t, e.code, harness.Tail(e.log, 60))
}

// query runs a query on the state's database.
func (w *world) query(statement string, each func(scan func(into ...any) error) error) error {
	if w.on == onSQLite {
		db, err := sql.Open("sqlite3", "file:"+(&url.URL{Path: w.Path("data/state.db")}).EscapedPath()+"?mode=ro")
		if err != nil {
			return err
		}
		defer db.Close()
		rows, err := db.QueryContext(w.t.Context(), statement)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			if err := each(rows.Scan); err != nil {
				return err
			}
		}
		return rows.Err()
	}
	ctx := w.t.Context()
	conn, err := pgx.Connect(ctx, w.Store)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows, err := conn.Query(ctx, statement)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}
