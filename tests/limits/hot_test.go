//go:build verify

package limits

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/oracle"
	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/stretchr/testify/require"
)

// I4, I9: one entity that half of all events are about starves no other.
func TestHotEntityEmbedded(t *testing.T) {
	hotEntity(t, func(sinks map[string]string) harness.Project { return harness.Simple(t, "", sinks) })
}

func TestHotEntityOnPostgres(t *testing.T) {
	if testing.Short() {
		t.Skip("needs PostgreSQL")
	}
	hotEntity(t, func(sinks map[string]string) harness.Project {
		return harness.SimpleOnBrokers(t, "", fmt.Sprintf("store: {postgres: {url: %q}}\n", servers.Postgres(t)), sinks)
	})
}

// hotEntity feeds slices of events about many entities, each among as many
// about one. While a slice is on its way, more about the one entity keeps
// coming, so that some of it always waits; still, the slice must arrive. A log
// sink gets every change, a state sink one at a time per entity.
func hotEntity(t *testing.T, project func(sinks map[string]string) harness.Project) {
	const entities, slices, ahead = 250, 8, 500
	hook := harness.NewReceiver(t)
	p := project(map[string]string{"file": harness.FileSink("file"), "hook": harness.HookSink(hook)})
	run := p.Start("run")
	serial, hot := 0, 0
	next := func(entity, state string) string {
		serial++
		return harness.Event(serial, entity, state)
	}
	heat := func() string {
		hot++
		return next("hot", fmt.Sprint("h", hot))
	}
	arrived := lineCounter{path: p.Path("out/file.jsonl"), with: `"entity":"hot"`}
	goOn := func() {
		if n := hot - arrived.count(t); n < ahead {
			var b strings.Builder
			for range ahead - n {
				b.WriteString(heat())
			}
			p.Append("events.jsonl", b.String())
		}
	}
	for slice := range slices {
		before := arrived.count(t)
		var b strings.Builder
		for e := range entities {
			b.WriteString(heat() + next(fmt.Sprint("E", e), fmt.Sprint("r", slice)))
		}
		p.Append("events.jsonl", b.String())
		state := fmt.Sprint("r", slice)
		harness.Eventually(t, "the other entities' changes", func() error {
			goOn()
			return errors.Join(harness.Settled(p.Whole("out/file.jsonl"), entities, state), harness.Settled(hook.Received(), entities, state))
		})
		harness.Eventually(t, "the hot entity's changes", func() error {
			goOn()
			return harness.Want(arrived.count(t) > before, true)
		})
	}
	require.GreaterOrEqual(t, 2*hot, serial, "half of all events are about one entity")
	harness.Eventually(t, "the end of the hot entity's stream", func() error { return harness.Want(arrived.count(t), hot) })
	harness.Eventually(t, "the end of it at the webhook", func() error {
		return harness.Want(harness.StateOf(oracle.Newest(hook.Received())["hot"]), fmt.Sprint("h", hot))
	})
	run.Terminate()
	run.Ok()
	want := p.Expected("file", "hook")
	require.NoError(t, oracle.CheckLog(want, "file/all@out", p.Records("out/file.jsonl")))
	require.NoError(t, oracle.CheckAttempts(want, "hook/all@out", hook.Received()))
	require.NoError(t, oracle.CheckState(want, "hook/all@out", oracle.Newest(hook.Received())))
}
