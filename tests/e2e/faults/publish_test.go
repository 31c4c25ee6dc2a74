package faults

import (
	"database/sql"
	"os"
	"slices"
	"strings"
	"testing"

	_ "github.com/ncruces/go-sqlite3/driver"
	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/oracle"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestMain(m *testing.M) { harness.Main(m, "crash") }

// onePartition keeps all events in one order, so that one batch holds everything
// that came before it.
const onePartition = "session_timeout: 1s, inbox: {partitions: 1}"

// The customers are so many, and the states so large, that the changes of each
// event are a frame of their own, and all events come in one batch nevertheless:
// changes in one frame are published together or not at all.
const stateBytes = decide.MaxFrame / 5

var customers = []string{"acme", "bolt", "cord", "dent"}

// project is one whose customers each have a file and a document of their own, since a
// frame holds equal ones once. Its logs are on brokers: a publish in one commit with the
// decision cannot be torn.
func project(t *testing.T) harness.Project {
	sinks := map[string]string{}
	for _, c := range customers {
		sinks[c] = harness.FileSink(c)
	}
	p := harness.SimpleOnBrokers(t, onePartition, "", sinks)
	for _, c := range customers {
		name := "customers/" + c + ".yaml"
		text, err := os.ReadFile(p.Path(name))
		require.NoError(t, err)
		p.Write(name, harness.ReplaceOnce(t, string(text), "state: state}", "state: state, "+c+": id}"))
	}
	return p
}

// expected is the model's output for the customers of a project.
func expected(p harness.Project) oracle.Expected {
	p.T.Helper()
	model := harness.SimpleModel()
	fields := model.Projection[0].Fields
	model.Projection = nil
	for _, c := range customers {
		own := append(slices.Clone(fields), oracle.Field{To: c, From: "id"})
		model.Projection = append(model.Projection, oracle.Projection{Fields: own, Services: []string{c + "/all@out"}})
	}
	input := harness.ReadLines(p.T, map[string]string{"events": p.Path("events.jsonl")})
	want, err := oracle.Run(model, harness.ModelEvents(p.T, 1, p.Inbox(), input.Find))
	require.NoError(p.T, err)
	input.Complete()
	return want
}

// event is one about X, whose state is text of one letter.
func event(n int, state string) string {
	return harness.Event(n, "X", strings.Repeat(state, stateBytes))
}

// letter is the state that event was given, or a short one itself.
func letter(state string) string { return state[:1] }

// dies runs the pipeline until it kills itself at the first passing of a point.
func dies(t *testing.T, p harness.Project, point string) {
	t.Helper()
	run := p.StartEnv([]string{"WEIR_CRASH=" + first(point)}, "run --until-idle")
	require.Equal(t, -1, run.Wait(), "it did not die at %s\n%s", point, harness.Tail(run.Log.String(), 60))
}

// outbox returns the states of the frames that the store holds as decided and
// perhaps not published, such as "A B A".
func outbox(t *testing.T, p harness.Project) string {
	t.Helper()
	db, err := sql.Open("sqlite3", "file:"+p.Path("data/state.db")+"?mode=ro")
	require.NoError(t, err)
	defer db.Close()
	rows, err := db.QueryContext(t.Context(), "SELECT frame FROM outbox ORDER BY id")
	require.NoError(t, err)
	defer rows.Close()
	var frames []*kgo.Record
	for rows.Next() {
		var row []byte
		require.NoError(t, rows.Scan(&row))
		frames = append(frames, &kgo.Record{Value: row})
	}
	require.NoError(t, rows.Err())
	return states(t, frames)
}

// states returns the state of each frame, which all its changes have.
func states(t *testing.T, frames []*kgo.Record) string {
	var all []string
	for _, f := range frames {
		changes := harness.Changes(t, []*kgo.Record{f})
		require.Len(t, changes, len(customers), "one event, one frame")
		state := harness.StateOf(oracle.Record{Doc: changes[0].Doc})
		for _, c := range changes {
			require.Equal(t, state, harness.StateOf(oracle.Record{Doc: c.Doc}))
		}
		all = append(all, letter(state))
	}
	return strings.Join(all, " ")
}

// published returns the states of the frames in the changes log.
func published(t *testing.T, p harness.Project) string {
	t.Helper()
	return states(t, p.Log("weir.changes"))
}

// finish drains the project and checks the log sinks: A, B, A, each once.
func finish(t *testing.T, p harness.Project) {
	t.Helper()
	p.Drain()
	want := expected(p)
	for _, c := range customers {
		got := p.Records("out/" + c + ".jsonl")
		var states []string
		for _, s := range harness.States(got, "X") {
			states = append(states, letter(s))
		}
		require.Equal(t, []string{"A", "B", "A"}, states, c)
		require.NoError(t, oracle.CheckLog(want, c+"/all@out", got))
	}
	require.Empty(t, outbox(t, p), "what was published is no longer waiting")
}

// inOneBatch makes a project whose process died at a point of the publish of
// X's states, decided in one batch, when its topic held the given records. The backlog
// of the inbox when a process starts is one frame and so one batch, unless it is
// fetched in parts: so it tries until the store and the topic show that it was so.
func inOneBatch(t *testing.T, point, topic string, states ...string) harness.Project {
	t.Helper()
	for range 40 {
		p := project(t)
		p.Write("events.jsonl", harness.Event(0, "W", "w"))
		p.Drain()
		lines := ""
		for n, s := range states {
			lines += event(1+n, s)
		}
		p.Append("events.jsonl", lines)
		p.Start("run --role ingest --until-idle").Ok()
		run := p.StartEnv([]string{"WEIR_CRASH=" + first(point)}, "run --until-idle")
		if code := run.Wait(); code != -1 {
			require.Zero(t, code, harness.Tail(run.Log.String(), 60))
			continue // no batch had two of them
		}
		if outbox(t, p) == strings.Join(states, " ") && published(t, p) == topic {
			return p
		}
	}
	require.FailNow(t, "the states were never in one batch", strings.Join(states, " "))
	return harness.Project{}
}

// first is the first passing of a point.
func first(point string) string { return point + ":1" }

// I1, I2, I4: A, B, A in one batch, killed after the commit and before anything
// is published.
func TestABAInOneBatchKilledBeforeThePublish(t *testing.T) {
	finish(t, inOneBatch(t, crash.DecideCommitted, "w", "A", "B", "A"))
}

// I1, I2, I4: the same, killed when the first A is published and the rest is not.
func TestABAInOneBatchKilledInThePublish(t *testing.T) {
	finish(t, inOneBatch(t, crash.PublishHalf, "w A", "A", "B", "A"))
}

// I1, I2, I4: A, B, A in two batches, killed before the publish of either.
func TestABAInTwoBatchesKilledBeforeThePublish(t *testing.T) {
	p := project(t)
	p.Write("events.jsonl", event(1, "A"))
	dies(t, p, crash.DecideCommitted)
	require.Equal(t, "A", outbox(t, p))
	require.Empty(t, published(t, p))
	p.Append("events.jsonl", event(2, "B")+event(3, "A"))
	dies(t, p, crash.DecideCommitted)
	require.NotContains(t, published(t, p), "B", "the first batch may be published from the store by then, the second not yet")
	finish(t, p)
}

// I1, I2, I4: A, B, A in two batches, killed in the middle of the publish of
// both: of the first, and of the first again when the store's outbox is
// published with the second's.
func TestABAInTwoBatchesKilledInThePublish(t *testing.T) {
	p := inOneBatch(t, crash.PublishHalf, "w A", "A", "B")
	p.Append("events.jsonl", event(3, "A"))
	dies(t, p, crash.RepublishHalf)
	require.Equal(t, "w A A", published(t, p), "the first is published once more, as the same change")
	dies(t, p, crash.Republished)
	require.Equal(t, "w A A A B", published(t, p))
	finish(t, p)
}
