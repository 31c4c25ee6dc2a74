package checks

import (
	"encoding/json"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/client"
	"github.com/seed-86dfc502/weir/tests/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

const mainFile = `%s
sources:
  events: {file: {path: events.jsonl}, entity: id}
customers: ["customers/*.yaml"]
api: {listen: "127.0.0.1:0"}
admin: {listen: "127.0.0.1:0"}
`

const customerFile = `customer: acme
checks:
  crm: {}
`

func project(t *testing.T, store string) harness.Project {
	return harness.NewProject(t, map[string]string{
		"weir.yaml": fmt.Sprintf(mainFile, store), "events.jsonl": "", "customers/acme.yaml": customerFile,
	})
}

// run starts a process.
func run(p harness.Project, command string) *harness.Process {
	pr := p.Start(command)
	pr.Address("ingest")
	pr.Ready(200)
	return pr
}

// service returns the way to a check service of a process.
func service(t *testing.T, pr *harness.Process, name string) *client.Service {
	t.Helper()
	c, err := client.New(client.Options{URL: "http://" + pr.Address("ingest"), Attempts: 20, MaxBackoff: time.Second})
	require.NoError(t, err)
	return c.Service(name)
}

func stop(t *testing.T, pr *harness.Process) {
	t.Helper()
	pr.Terminate()
	require.Zero(t, pr.Wait(), harness.Tail(pr.Log.String(), 40))
}

// A caller asks, the process is killed before it can confirm, and the next
// process answers the same; a confirmed content stays a duplicate.
func TestKilledBetweenTheSteps(t *testing.T) {
	p := project(t, "")
	pr := run(p, "run")
	crm := service(t, pr, "acme/crm@check")
	check := client.Check{Entity: "banana-1", Payload: map[string]int{"ripeness": 3}, EventID: "e-1"}
	first, err := crm.Check(t.Context(), check)
	require.NoError(t, err)
	require.Equal(t, client.Pass, first.Decision)
	pr.Kill()

	pr = run(p, "run")
	crm = service(t, pr, "acme/crm@check")
	again, err := crm.Check(t.Context(), check)
	require.NoError(t, err)
	require.Equal(t, client.Answer{Decision: client.Pass, Version: first.Version, Key: first.Key, Repeated: true}, again)
	require.NoError(t, crm.Confirm(t.Context(), "banana-1", again.Version))
	pr.Kill()

	pr = run(p, "run")
	crm = service(t, pr, "acme/crm@check")
	last, err := crm.Check(t.Context(), check)
	require.NoError(t, err)
	require.Equal(t, client.Answer{Decision: client.Duplicate, Version: first.Version}, last)
	require.EqualValues(t, 1, pr.Metric("weir_checks_total", `decision="duplicate"`, `service="acme/crm@check"`))

	// A service that a reload brings is there at once.
	_, err = service(t, pr, "acme/web@check").Check(t.Context(), check)
	var failed *client.Error
	require.ErrorAs(t, err, &failed)
	require.Equal(t, 404, failed.Status)
	p.Write("customers/acme.yaml", customerFile+"  web: {numbers: decimal}\n")
	require.NoError(t, pr.Cmd.Process.Signal(syscall.SIGHUP))
	pr.Says("event=reload.done")
	web := service(t, pr, "acme/web@check")
	one, err := web.Check(t.Context(), client.Check{Entity: "banana-1", Payload: 1})
	require.NoError(t, err)
	require.Equal(t, client.Pass, one.Decision, "its rows are its own")
	same, err := web.Check(t.Context(), client.Check{Entity: "banana-1", Payload: json.RawMessage("1.0")})
	require.NoError(t, err)
	require.True(t, same.Repeated)
	stop(t, pr)
}
