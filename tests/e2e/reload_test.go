package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/oracle"
	"github.com/stretchr/testify/require"
)

// reloaded is what weir reload --json prints.
type reloaded struct {
	Changed  bool
	Revision int64
	Services int
	Added    []string
	Removed  []string
}

func reload(t *testing.T, p harness.Project, args ...string) (r reloaded) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(p.Start("reload --json", args...).Ok()), &r))
	return r
}

func customer(name string) string {
	return fmt.Sprintf("customer: %s\nprojections:\n  all:\n    fields: {id: id, state: state}\n    deliver:\n      out: %s\n", name, harness.FileSink(name))
}

// A faulty configuration is refused as a whole with the message of validate; the process
// keeps its configuration. A signal does the same as the command.
func TestReloadRefusesWhatIsWrong(t *testing.T) {
	p := harness.Simple(t, "", map[string]string{"acme": harness.FileSink("acme")})
	run := p.Start("run")
	run.Ready(200)
	good := customer("acme")
	p.Write("customers/acme.yaml", strings.Replace(good, "state: state", "state: {from: state, nonsense: 1}", 1))
	validate := p.Start("validate")
	require.Equal(t, 2, validate.Wait())
	command := p.Start("reload")
	require.Equal(t, 2, command.Wait())
	require.Equal(t, validate.Log.String(), command.Log.String())

	require.NoError(t, run.Cmd.Process.Signal(syscall.SIGHUP))
	run.Says("event=reload.refused")
	require.Contains(t, run.Log.String(), "nonsense")
	require.EqualValues(t, 1, run.Metric("weir_reload_refused"))

	// The main file needs a restart.
	p.Write("customers/acme.yaml", good)
	main := p.Read("weir.yaml")
	p.Write("weir.yaml", "# moved\n"+strings.Replace(main, "strip: [event]", "strip: [event, noise]", 1)+"gate: {ttl: 1h}\n")
	command = p.Start("reload")
	require.Equal(t, 2, command.Wait())
	require.Contains(t, command.Log.String(), "a restart is needed")
	require.Contains(t, command.Log.String(), "gate, sources")

	p.Write("weir.yaml", "# moved\n"+main)
	p.Write("customers/zest.yaml", customer("zest"))
	require.NoError(t, run.Cmd.Process.Signal(syscall.SIGHUP))
	run.Says("event=reload.done")
	run.Ready(200)
	require.Zero(t, run.Metric("weir_reload_refused"))
	p.Append("events.jsonl", harness.Event(1, "X", "A"))
	for _, name := range []string{"acme", "zest"} {
		harness.Eventually(t, name, func() error {
			return harness.Want(fmt.Sprint(harness.States(p.Whole("out/"+name+".jsonl"), "X")), "[A]")
		})
	}

	// A token is required.
	resp, err := http.Post("http://"+run.Address("admin")+"/v1/reload", "", nil)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusUnauthorized, resp.StatusCode)
	run.Terminate()
	run.Ok()
	require.NoError(t, oracle.CheckLog(p.Expected("acme", "zest"), "zest/all@out", p.Records("out/zest.jsonl")))
	command = p.Start("reload")
	require.Equal(t, 1, command.Wait())
	require.Contains(t, command.Log.String(), "no process runs")

	audit := p.Start("audit", "--json").Ok()
	require.Equal(t, 1, strings.Count(audit, `"action": "reload"`), "one reload changed something: %s", audit)
	require.Contains(t, audit, "zest/all@out")
}
