package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/e2e/harness"
	"github.com/seed-86dfc502/weir/e2e/model"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// reloaded is what pipeline reload --json prints.
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

// I1, I2, I4, I12: customers come and go while events flow. Who stays gets every
// change once, as if nothing had happened; who is new gets what changes from then
// on, and the rest by a replay; who comes back is known.
func TestReloadUnderLoad(t *testing.T) {
	const entities = 50
	p := harness.Simple(t, "", map[string]string{"acme": harness.FileSink("acme")})
	run := p.Start("run")
	round := 0
	send := func(rounds int) {
		p.Append("events.jsonl", harness.Many(entities, round, round+rounds))
		round += rounds
	}
	settled := func(name string, n int) {
		t.Helper()
		harness.Eventually(t, name, func() error {
			return harness.Settled(p.Whole("out/"+name+".jsonl"), n, fmt.Sprint("r", round-1))
		})
	}
	p.Append("events.jsonl", harness.Event(1_000_000, "quiet", "calm"))
	send(20)
	settled("acme", entities)

	send(60)
	p.Write("customers/zest.yaml", customer("zest"))
	require.Equal(t, reloaded{Changed: true, Revision: 2, Services: 2, Added: []string{"zest/all@out"}, Removed: []string{}}, reload(t, p))
	run.Ready(200)
	send(40)
	settled("acme", entities)
	settled("zest", entities)
	require.Empty(t, harness.States(p.Whole("out/zest.jsonl"), "quiet"), "nothing has happened to it since")
	p.Start("replay --service zest/all@out --wait").Ok()
	harness.Eventually(t, "the backfill", func() error {
		return harness.Want(fmt.Sprint(harness.States(p.Whole("out/zest.jsonl"), "quiet")), "[calm]")
	})
	again := reload(t, p)
	require.False(t, again.Changed)
	require.EqualValues(t, 2, again.Revision)

	send(60)
	require.NoError(t, os.Remove(p.Path("customers/zest.yaml")))
	// That was the active configuration once: to go back has to be said.
	refused := p.Start("reload")
	require.Equal(t, 2, refused.Wait())
	require.Contains(t, refused.Log.String(), "--activate")
	require.Positive(t, run.Metric("weir_reload_refused"))
	require.Equal(t, []string{"zest/all@out"}, reload(t, p, "--activate").Removed)
	require.Zero(t, run.Metric("weir_reload_refused"))
	left := len(p.Whole("out/zest.jsonl"))
	send(5)
	settled("acme", entities)
	require.Len(t, p.Whole("out/zest.jsonl"), left, "it gets nothing any more")

	p.Write("customers/zest.yaml", customer("zest"))
	reload(t, p, "--activate")
	p.Start("replay --service zest/all@out --wait").Ok()
	settled("zest", entities)
	require.Equal(t, []string{"calm"}, harness.States(p.Whole("out/zest.jsonl"), "quiet"), "what it had is remembered")

	run.Terminate()
	run.Ok()
	require.NoError(t, model.CheckLog(p.Expected("acme"), "acme/all@out", p.Records("out/acme.jsonl")))
}

// What is wrong is refused as a whole and said as validate says it; the process
// goes on with what it had. A signal does the same as the command.
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
	run.Says("not reloaded")
	require.Contains(t, run.Log.String(), "nonsense")
	require.EqualValues(t, 1, run.Metric("weir_reload_refused"))

	// The main file needs a restart.
	p.Write("customers/acme.yaml", good)
	main, err := os.ReadFile(p.Path("weir.yaml"))
	require.NoError(t, err)
	p.Write("weir.yaml", "# moved\n"+strings.Replace(string(main), "strip: [event]", "strip: [event, noise]", 1)+"gate: {ttl: 1h}\n")
	command = p.Start("reload")
	require.Equal(t, 2, command.Wait())
	require.Contains(t, command.Log.String(), "a restart is needed")
	require.Contains(t, command.Log.String(), "gate, sources")

	p.Write("weir.yaml", "# moved\n"+string(main))
	p.Write("customers/zest.yaml", customer("zest"))
	require.NoError(t, run.Cmd.Process.Signal(syscall.SIGHUP))
	run.Says("was reloaded")
	run.Ready(200)
	require.Zero(t, run.Metric("weir_reload_refused"))
	p.Append("events.jsonl", harness.Event(1, "X", "A"))
	for _, name := range []string{"acme", "zest"} {
		harness.Eventually(t, name, func() error {
			return harness.Want(fmt.Sprint(harness.States(p.Whole("out/"+name+".jsonl"), "X")), "[A]")
		})
	}

	// Nobody without a token.
	resp, err := http.Post("http://"+run.Address("admin")+"/v1/reload", "", nil)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusUnauthorized, resp.StatusCode)
	run.Terminate()
	run.Ok()
	require.NoError(t, model.CheckLog(p.Expected("acme", "zest"), "zest/all@out", p.Records("out/zest.jsonl")))
	command = p.Start("reload")
	require.Equal(t, 1, command.Wait())
	require.Contains(t, command.Log.String(), "no process runs")

	audit := p.Start("audit", "--json").Ok()
	require.Equal(t, 1, strings.Count(audit, `"action": "reload"`), "one reload changed something: %s", audit)
	require.Contains(t, audit, "zest/all@out")
}

// I4, I12: of several processes one is reloaded first. The other is fenced until
// it has the same files, the first one does all the work meanwhile, and nobody
// gets an older view after a newer one.
func TestReloadOfSeveralProcesses(t *testing.T) {
	const entities = 40
	c := harness.NewCluster(t)
	hook := harness.NewReceiver(t)
	view := func(n int) string {
		return fmt.Sprintf("    fields: {id: id, state: state, view: {const: %d}}\n    deliver:\n      hook: %s\n", n, harness.PatientHookSink(hook))
	}
	p := rolling(t, c, map[string]string{"r": view(0)})
	serial := 0
	tick := func() {
		var all []*kgo.Record
		for e := range entities {
			serial++
			id := fmt.Sprint("busy", e)
			all = append(all, harness.Record(c.Prefix+"events", id, fmt.Sprintf(`{"id":%q,"state":"s%d","n":%d}`, id, serial, serial)))
		}
		c.Send(all...)
	}
	shows := func(want int) {
		t.Helper()
		harness.Eventually(t, "the view", func() error {
			tick()
			newest := model.Newest(hook.Received())
			for e := range entities {
				r, ok := newest[fmt.Sprint("busy", e)]
				if !ok {
					return fmt.Errorf("busy%d has nothing", e)
				}
				if got := viewOf(t, r).View; got != want {
					return fmt.Errorf("busy%d shows view %d, want %d", e, got, want)
				}
			}
			return nil
		})
	}
	var running []*harness.Process
	for range 2 {
		pr := p.StartAs("r.yaml", "run")
		pr.Ready(200)
		running = append(running, pr)
	}
	shows(0)
	p.Write("r-acme.yaml", "customer: acme\nprojections:\n  all:\n"+view(1))
	for i, pr := range running {
		tick()
		require.NoError(t, pr.Cmd.Process.Signal(syscall.SIGHUP))
		pr.Says("was reloaded")
		require.Regexp(t, `was reloaded" changed=true revision=2 `, pr.Log.String(), "one revision for all")
		pr.Ready(200)
		if i == 0 {
			running[1].Ready(503)
		}
		shows(1)
	}
	running[0].Ready(200)
	asked := p.StartAs("r.yaml", "reload")
	require.Equal(t, 1, asked.Wait())
	require.Contains(t, asked.Log.String(), "SIGHUP")
	for _, pr := range running {
		pr.Terminate()
		pr.Ok()
	}
	inOrder(t, hook.Received())
}

// I1, I4, I5, I12: kill -9 at any moment of a reload. Either configuration may be
// the active one then; the next start has the new files and goes on.
func TestReloadSurvivesKills(t *testing.T) {
	const entities, kills = 40, 6
	p := harness.Simple(t, "", map[string]string{"acme": harness.FileSink("acme")})
	random := rand.New(rand.NewPCG(3, 3))
	for n := range kills {
		run := p.Start("run")
		run.Ready(200)
		p.Append("events.jsonl", harness.Many(entities, n*20, (n+1)*20))
		name := fmt.Sprint("zest", n)
		p.Write("customers/"+name+".yaml", customer(name))
		require.NoError(t, run.Cmd.Process.Signal(syscall.SIGHUP))
		// The moments are spread over the reload and a little more.
		select {
		case <-run.Done:
			t.Fatal("the process ended: ", harness.Tail(run.Log.String(), 20))
		case <-time.After(time.Duration(random.IntN(150)) * time.Millisecond):
			run.Kill()
		}
	}
	p.Append("events.jsonl", harness.Many(entities, kills*20, kills*20+1))
	p.Drain()
	require.NoError(t, model.CheckLog(p.Expected("acme"), "acme/all@out", p.Records("out/acme.jsonl")))
	for n := range kills {
		require.NoError(t, harness.Settled(p.Records(fmt.Sprintf("out/zest%d.jsonl", n)), entities, fmt.Sprint("r", kills*20)))
	}
	require.Empty(t, p.Letters())
}
