package crash

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/ncruces/go-sqlite3/driver"
	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/oracle"
	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
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
	t          testing.TB
	dir        string
	on         string // store
	state      string // PostgreSQL of the state, if it is there
	target     string // PostgreSQL of the customer
	clickhouse string
	brokers    []string
	prefix     string
	hook       *receiver
	batched    *receiver
	paced      *receiver
	door       bool             // events are posted, and rows of a table
	sent       map[string]event // source/partition/offset; of a door: source/event id
	tables     *tables          // of a PostgreSQL source; else nil
	refusedAs  string           // state of the rows of refused changes
}

// newWorld makes a world whose sources are files, or topics of Kafka.
func newWorld(t testing.TB, on string) *world { return newWorldOf(t, on, events()) }

// newWorldOf is newWorld with the events that its sources have at first.
func newWorldOf(t testing.TB, on string, all []event) *world {
	w, backing := emptyWorld(t, on)
	sources := map[string]string{}
	if on == onPostgres {
		for _, s := range []string{"registry", "lab", "overlay"} {
			sources[s] = fmt.Sprintf("kafka: {topic: %q}", w.prefix+s)
		}
		sources["overlay"] = fmt.Sprintf("kafka: {topic: %q, frame_records: 1}", w.prefix+"overlay") // the other transport
		w.topics(2, w.prefix+"registry", w.prefix+"lab", w.prefix+"overlay")
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

// newDoor makes a world whose events come by HTTP and in an outbox table, whose rows are deleted or marked.
func newDoor(t testing.TB, on, after string) *world {
	w, backing := emptyWorld(t, on)
	w.door = true
	conn, err := pgx.Connect(t.Context(), w.target)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), outboxTable)
	require.NoError(t, errors.Join(err, conn.Close(t.Context())))
	for _, e := range events() {
		var head struct {
			EventID string `json:"event_id"`
		}
		require.NoError(t, json.Unmarshal([]byte(e.json), &head))
		w.sent[e.source+"/"+head.EventID] = e
	}
	backing += "\napi: {listen: \"127.0.0.1:0\"}"
	outbox := fmt.Sprintf("outbox: {url: %q, table: outbox, poll: 10ms, batch: 12, after: %s, columns: {event_id: event}}", w.target, after)
	w.configure(backing, "http: {}"+locators, outbox, "http: {}"+locators, "checks: {crm: {}, erp: {}}\n")
	return w
}

// emptyWorld makes a world without configuration; backing is what its servers
// make of that.
func emptyWorld(t testing.TB, on string) (w *world, backing string) {
	w = &world{t: t, dir: t.TempDir(), on: on, target: servers.Postgres(t), hook: newReceiver(t), batched: newReceiver(t), paced: newReceiver(t), sent: map[string]event{}, refusedAs: "refused"}
	w.brokers, w.prefix = servers.Kafka(t)
	w.clickhouse, _ = servers.ClickHouseHTTP(t)
	w.topics(1, w.prefix+"feed")
	// Each of the two workers has several partitions, so that a decision has several frames.
	backing = "kafka: {session_timeout: 1s, frame_records: 40, inbox: {partitions: 8}}"
	if on == onPostgres {
		w.state = servers.Postgres(t)
		valkey, keys := servers.Valkey(t)
		backing = fmt.Sprintf("store: {postgres: {url: %q}}\ngate: {valkey: {address: %q, prefix: %q}}\n"+
			"kafka: {brokers: [%q], prefix: %q, session_timeout: 1s, frame_records: 40, inbox: {partitions: 8}}",
			w.state, valkey, keys, w.brokers[0], w.prefix+"weir")
	}
	return w, backing
}

// configure writes the configuration; more goes to the customer's file.
func (w *world) configure(backing, registry, lab, overlay, more string) {
	w.write("weir.yaml", fmt.Sprintf(mainFile, backing, registry, lab, overlay))
	w.write("acme.yaml", fmt.Sprintf(customerFile, w.clickhouse, w.target, w.hook.server.URL, w.brokers[0], w.prefix, w.batched.server.URL, w.paced.server.URL, rate, burst)+more)
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

func (w *world) write(name, text string) {
	require.NoError(w.t, os.WriteFile(w.path(name), []byte(text), 0o644))
}

func (w *world) read(name string) string {
	text, err := os.ReadFile(w.path(name))
	require.NoError(w.t, err)
	return string(text)
}

func (w *world) client(opts ...kgo.Opt) *kgo.Client {
	c, err := kgo.NewClient(append(opts, kgo.SeedBrokers(w.brokers...))...)
	require.NoError(w.t, err)
	return c
}

func (w *world) topics(partitions int32, names ...string) {
	c := w.client()
	defer c.Close()
	made, err := kadm.NewClient(c).CreateTopics(w.t.Context(), partitions, 1, nil, names...)
	require.NoError(w.t, err)
	require.NoError(w.t, made.Error())
}

// send produces events to the sources' topics, keyed by entity.
func (w *world) send(all []event) {
	// Brokers may not know yet of a topic that was just made.
	c := w.client(kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)), kgo.UnknownTopicRetries(20))
	defer c.Close()
	records := make([]*kgo.Record, len(all))
	for i, e := range all {
		records[i] = &kgo.Record{Topic: w.prefix + e.source, Key: []byte(e.entity), Value: []byte(e.json)}
	}
	require.NoError(w.t, c.ProduceSync(w.t.Context(), records...).FirstErr())
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
		w.write(name+".jsonl", b.String())
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
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	log := w.path("passings")
	require.NoError(w.t, os.RemoveAll(log))
	cmd := exec.CommandContext(ctx, harness.Binary(w.t), append(args, "-c", w.path("weir.yaml"))...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGQUIT) } // stacks into the log
	cmd.WaitDelay = 5 * time.Second
	cmd.Env = append(os.Environ(), "WEIR_CRASH="+crash, "WEIR_CRASH_LOG="+log)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.Discard, &output
	_ = cmd.Run()
	require.NoError(w.t, ctx.Err(), "the pipeline did not end\n%s", harness.Tail(output.String(), 200))
	return ended(w.t, cmd, log, output.String())
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

// inbox reads the internal topic of all events.
func (w *world) inbox() []*kgo.Record {
	if w.on == onPostgres {
		return harness.ReadTopic(w.t, w.brokers, w.prefix+"weir.inbox")
	}
	return harness.ReadLog(w.t, w.path("data/state.db"), "weir.inbox")
}

// query runs a query on the state's database.
func (w *world) query(statement string, each func(scan func(into ...any) error) error) error {
	if w.on == onSQLite {
		db, err := sql.Open("sqlite3", "file:"+(&url.URL{Path: w.path("data/state.db")}).EscapedPath()+"?mode=ro")
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
	return w.postgres(w.state, statement, each)
}

func (w *world) postgres(url, statement string, each func(scan func(into ...any) error) error) error {
	ctx := w.t.Context()
	conn, err := pgx.Connect(ctx, url)
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

// receiver is the customer's web server. It keeps accepted requests, in order.
type receiver struct {
	server *httptest.Server
	made   time.Time

	mu       sync.Mutex
	attempts []time.Time // at changes
	accepted []oracle.Record
	arrays   int // with more than one change
}

func newReceiver(t testing.TB) *receiver {
	r := &receiver{made: time.Now()}
	r.server = httptest.NewServer(r)
	t.Cleanup(r.server.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	array := bytes.HasPrefix(body, []byte("["))
	if !array {
		body = slices.Concat([]byte("["), body, []byte("]"))
	}
	var all []oracle.Record
	if err = cmp.Or(err, json.Unmarshal(body, &all)); err != nil {
		w.WriteHeader(http.StatusBadRequest) // a request cut off by a kill, or a fault that the check finds
		return
	}
	type status struct {
		Key    string `json:"key"`
		Status int    `json:"status"`
	}
	answer := make([]status, len(all))
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, rec := range all {
		r.attempts = append(r.attempts, time.Now())
		if answer[i] = (status{rec.Key, http.StatusOK}); refused(rec.Entity) {
			answer[i].Status = http.StatusUnprocessableEntity
		} else {
			r.accepted = append(r.accepted, rec)
		}
	}
	if !array {
		w.WriteHeader(answer[0].Status)
		return
	}
	if len(all) > 1 {
		r.arrays++
	}
	w.WriteHeader(http.StatusMultiStatus)
	_ = json.NewEncoder(w).Encode(answer) // or the process died
}
