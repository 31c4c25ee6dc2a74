package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/sources/outbox"
	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/stretchr/testify/require"
)

// application is one with an outbox, and a project that reads it.
type application struct {
	harness.Project
	url  string
	conn *pgx.Conn
}

func newApplication(t *testing.T, outboxOptions string) application {
	url := servers.Postgres(t)
	a := application{url: url, Project: harness.NewProject(t, map[string]string{
		"weir.yaml": fmt.Sprintf("sources:\n  crm:\n    outbox: {url: %q, table: outbox, poll: 10ms%s}\ncustomers: [acme.yaml]\nadmin: {listen: \"127.0.0.1:0\"}\n", url, outboxOptions),
		"acme.yaml": "customer: acme\nprojections:\n  all:\n    fields: {state: state}\n    deliver:\n      out: {file: {path: out/acme.jsonl}}\n",
	})}
	var err error
	a.conn, err = pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = a.conn.Close(context.Background()) })
	a.exec("CREATE TABLE outbox (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, entity text, payload jsonb, op text)")
	return a
}

func (a application) exec(sql string, args ...any) {
	a.T.Helper()
	_, err := a.conn.Exec(a.T.Context(), sql, args...)
	require.NoError(a.T, err)
}

// The state changes with every row: s1, s2, ….
const insertStates = `INSERT INTO outbox (entity, payload) SELECT $1, jsonb_build_object('state', 's' || n) FROM generate_series($2::int, $3::int) n`

// A process that lost its connection appends its batch when others
// have moved on, repeated everything and more: nothing of it has an effect, and
// no state goes back.
func TestOutboxRowsOfAZombieAreStale(t *testing.T) {
	a := newApplication(t, "")
	c, err := assemble.Load(a.Path("weir.yaml"), func(string) (string, bool) { return "", false })
	require.NoError(t, err)
	shape, err := assemble.ExtractorOf(c, &c.Sources[0])
	require.NoError(t, err)
	plan, err := assemble.Plan(c, map[string]int32{"acme/all@out": 1}, 1)
	require.NoError(t, err)
	decide := decide.NewSimulator(plan)
	outcome := func(f *transport.Frame, i int) string {
		records, letter := shape.Extract(f, i)
		require.Nil(t, letter)
		record := records[0]
		require.Equal(t, change.Upsert, record.Event.Op)
		step, err := decide.Apply(record, time.Now())
		require.NoError(t, err)
		return string(step.Outcome)
	}
	open := func() (*outbox.Source, <-chan *message.Message) {
		source, err := outbox.New(outbox.Options{
			Name: "crm", URL: a.url, Table: "outbox", Poll: 10 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
			Columns: outbox.Columns{ID: "id", Entity: "entity", Payload: "payload"},
		})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, source.Close()) })
		messages, err := source.Subscribe(t.Context(), "outbox:crm")
		require.NoError(t, err)
		return source, messages
	}
	next := func(messages <-chan *message.Message) (*message.Message, *transport.Frame) {
		select {
		case m := <-messages:
			f, ok := transport.FrameOf(m)
			require.True(t, ok)
			return m, f
		case <-time.After(harness.Patience):
			require.FailNow(t, "no message")
			return nil, nil
		}
	}

	a.exec(insertStates, "A", 1, 20)
	lost, messages := open()
	_, zombie := next(messages)
	require.Len(t, zombie.Records, 8) // as many as the fence remembers
	for i := range 5 {                // in time
		require.Equal(t, "merged", outcome(zombie, i))
	}
	require.NoError(t, lost.Close()) // its rows are free for others

	_, messages = open()
	var outcomes []string
	for len(outcomes) < 20 {
		m, f := next(messages)
		for i := range f.Records {
			outcomes = append(outcomes, outcome(f, i))
		}
		m.Ack()
	}
	for n, o := range outcomes {
		want := "merged"
		if n < 5 {
			want = "stale" // by event id
		}
		require.Equal(t, want, o, "row %d", n+1)
	}
	for i := range zombie.Records {
		require.Equal(t, "stale", outcome(zombie, i), "by position, however late")
	}
	stored := decide.Stored("A")
	require.JSONEq(t, `{"crm":{"state":"s20"}}`, string(stored.Docs))
}
