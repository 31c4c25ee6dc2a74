package e2e

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/oracle"
	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// patches are three events about one entity that give another result in any
// other order, and merged what each of them leads to.
var (
	patches = []string{`{"id":"X","state":{"a":1}}`, `{"id":"X","state":{"b":2}}`, `{"id":"X","state":{"a":null}}`}
	merged  = []string{`{"id":"X","state":{"a":1}}`, `{"id":"X","state":{"a":1,"b":2}}`, `{"id":"X","state":{"b":2}}`}
)

// documents are what records hold, in order.
func documents(records []oracle.Record) []string {
	var all []string
	for _, r := range records {
		all = append(all, string(r.Doc))
	}
	return all
}

// patched is a project with a source of patches; the source's place is one line of YAML.
func patched(t *testing.T, more, place string) harness.Project {
	return harness.NewProject(t, map[string]string{
		"weir.yaml": more + `
sources:
  events: {` + place + `, entity: id, mode: patch}
customers: [acme.yaml]
admin: {listen: "127.0.0.1:0"}
`,
		"acme.yaml": `
customer: acme
projections:
  all: {fields: {id: id, state: state}, deliver: {out: {file: {path: out/acme.jsonl}}}}
`,
	})
}

// exec runs statements on a database.
func exec(t *testing.T, url string, statements ...string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	for _, s := range statements {
		_, err := conn.Exec(t.Context(), s)
		require.NoError(t, err)
	}
}

// number asks a database for a number.
func number(t *testing.T, url, query string) (n int64) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	require.NoError(t, conn.QueryRow(t.Context(), query).Scan(&n))
	return n
}

// I1, I5: the store refuses the transaction of the first of three patches a few
// times, while the others come in behind it: they apply in their order.
func TestPatchesWhileTheStoreRefusesTheFirst(t *testing.T) {
	url := servers.Postgres(t)
	p := patched(t, fmt.Sprintf("store: {postgres: {url: %q}}\n", url)+harness.OnBrokers(t, ""), "file: {path: events.jsonl}")
	p.Write("events.jsonl", patches[0]+"\n")
	p.Start("migrate").Ok()
	// A sequence is not rolled back with the transaction: it counts the refusals.
	exec(t, url, `CREATE SEQUENCE refusals`, `
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
	IF nextval('refusals') <= 4 THEN RAISE EXCEPTION 'not now' USING ERRCODE = '53200'; END IF;
	RETURN NEW;
END $$`, `CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON entities FOR EACH ROW EXECUTE FUNCTION refuse()`)
	run := p.Start("run")
	harness.Eventually(t, "the first refusal", func() error {
		if number(t, url, "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM refusals") == 0 {
			return harness.ErrNotYet
		}
		return nil
	})
	p.Append("events.jsonl", patches[1]+"\n"+patches[2]+"\n")
	harness.Eventually(t, "all three", func() error { return harness.Want(len(p.Whole("out/acme.jsonl")), 3) })
	run.Terminate()
	run.Ok()
	require.Greater(t, number(t, url, "SELECT last_value FROM refusals"), int64(4))
	require.Equal(t, merged, documents(p.Records("out/acme.jsonl")))
	require.Empty(t, p.Letters())
}

// I1, I5: the append of the first of three patches to the inbox fails once, in
// several ways, or takes long, while the others come in behind it: they apply in
// their order, each once.
func TestPatchesWhileTheFirstAppendFails(t *testing.T) {
	faults := map[string]*kerr.Error{
		"refused for good":          kerr.TopicAuthorizationFailed, // fails the append
		"refused for now":           kerr.NotLeaderForPartition,    // the client repeats it
		"done, but nobody was told": kerr.RequestTimedOut,
		"late":                      nil,
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "events"), kfake.GroupMinSessionTimeout(1))
			require.NoError(t, err)
			t.Cleanup(cluster.Close)
			client, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.DefaultProduceTopic("events"))
			require.NoError(t, err)
			t.Cleanup(client.Close)
			send := func(values ...string) {
				for _, v := range values {
					require.NoError(t, client.ProduceSync(t.Context(), &kgo.Record{Key: []byte("X"), Value: []byte(v)}).FirstErr())
				}
			}
			p := patched(t, fmt.Sprintf("kafka: {brokers: [%q], session_timeout: 30s, inbox: {partitions: 1}}\n", cluster.ListenAddrs()[0]), "kafka: {topic: events}")
			run := p.Start("run")
			run.Ready(200)
			sent, proceed := make(chan struct{}), make(chan struct{})
			if fault != nil {
				handle := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "weir.inbox", Err: fault})
				send(patches[0])
				require.NoError(t, handle.Wait(t.Context(), 1))
				send(patches[1:]...)
			} else {
				id := cluster.TopicInfo("weir.inbox").TopicID
				cluster.ControlKey(int16(kmsg.Produce), func(r kmsg.Request) (kmsg.Response, error, bool) {
					cluster.KeepControl()
					for _, topic := range r.(*kmsg.ProduceRequest).Topics {
						if topic.Topic == "weir.inbox" || topic.TopicID == id {
							cluster.DropControl()
							close(sent)
							cluster.SleepControl(func() { <-proceed })
						}
					}
					return nil, nil, false
				})
				send(patches[0])
				<-sent
				send(patches[1:]...)
				close(proceed)
			}
			harness.Eventually(t, "all three", func() error { return harness.Want(len(p.Whole("out/acme.jsonl")), 3) })
			run.Terminate()
			run.Ok()
			require.Equal(t, merged, documents(p.Records("out/acme.jsonl")))
		})
	}
}
