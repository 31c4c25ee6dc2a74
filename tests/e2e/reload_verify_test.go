//go:build verify

package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/oracle"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

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
	require.NoError(t, oracle.CheckLog(p.Expected("acme"), "acme/all@out", p.Records("out/acme.jsonl")))
}

// I4, I12: of several processes one is reloaded first. The other is fenced until
// it has the same files, the first one does all the work meanwhile, and no customer
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
			newest := oracle.Newest(hook.Received())
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
		pr.Says("event=reload.done")
		require.Regexp(t, `event=reload.done changed=true revision=2 `, pr.Log.String(), "one revision for all")
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
// the active one then; the next start has the new files and resumes.
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
	require.NoError(t, oracle.CheckLog(p.Expected("acme"), "acme/all@out", p.Records("out/acme.jsonl")))
	for n := range kills {
		require.NoError(t, harness.Settled(p.Records(fmt.Sprintf("out/zest%d.jsonl", n)), entities, fmt.Sprint("r", kills*20)))
	}
	require.Empty(t, p.Letters())
}
