package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/e2e/model"
	"github.com/seed-86dfc502/weir/internal/testservers"
	"github.com/stretchr/testify/require"
)

// I1, I2: SIGTERM under load ends the process in time and in order, every time,
// and nothing is lost.
func TestTerminateUnderLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some ten seconds")
	}
	p := generate(t, 4, 500, 20_000)
	stopped := 0
	for round := range 4 {
		run := p.start("run --until-idle --json")
		select {
		case <-run.done:
		case <-time.After(time.Duration(600+300*round) * time.Millisecond):
			run.terminate()
			stopped++
		}
		start := time.Now()
		require.Zero(t, run.wait(), run.log.String())
		require.Less(t, time.Since(start), 20*time.Second, "shutdown.timeout")
		require.NotContains(t, run.log.String(), "level=ERROR")
	}
	require.Positive(t, stopped)
	p.drain()
	checkGenerated(p)
}

// I1, I7: a sink that hangs does not keep the process from ending in time.
func TestTerminateWhileASinkHangs(t *testing.T) {
	const entities = 20
	hung, fine := newReceiver(t), newReceiver(t)
	hung.answers(func(model.Record) int { return 0 })
	p := simple(t, "shutdown: {timeout: 12s}\n", map[string]string{"hung": replaceOnce(t, hookSink(hung), "timeout: 1s", "timeout: 5m"), "fine": hookSink(fine)})
	p.write("events.jsonl", many(entities, 0, 5))
	run := p.start("run")
	eventually(t, "the others have everything", func() error { return settled(fine.received(), entities, "r4") })
	eventually(t, "the bad one hangs", func() error {
		if len(hung.rejected()) == 0 {
			return errNotYet
		}
		return nil
	})
	start := time.Now()
	run.terminate()
	run.ok()
	require.Less(t, time.Since(start), 14*time.Second)
	hung.answers(nil)
	p.drain()
	want := p.expected("hung", "fine")
	for customer, r := range map[string]*receiver{"hung": hung, "fine": fine} {
		require.NoError(t, model.CheckState(want, customer+"/all@out", model.Newest(r.received())))
	}
}

// A second signal ends the process at once, whatever it waits for.
func TestSecondSignal(t *testing.T) {
	hung := newReceiver(t)
	hung.answers(func(model.Record) int { return 0 })
	p := simple(t, "shutdown: {timeout: 5m}\n", map[string]string{"hung": replaceOnce(t, hookSink(hung), "timeout: 1s", "timeout: 5m")})
	p.write("events.jsonl", event(1, "X", "A"))
	run := p.start("run")
	eventually(t, "it hangs", func() error {
		if len(hung.rejected()) == 0 {
			return errNotYet
		}
		return nil
	})
	run.terminate()
	run.says("stopping: finishing what is in hand")
	run.terminate()
	require.Equal(t, 128+int(syscall.SIGTERM), run.wait())
	require.Contains(t, run.log.String(), "stopped at once by a second signal")

	hung.answers(nil)
	p.drain()
	require.Equal(t, []string{"A"}, states(hung.received(), "X"))
}

// Every fault of a configuration is said at once, and the exit status is that
// of wrong usage.
func TestWrongConfiguration(t *testing.T) {
	p := newProject(t, map[string]string{
		"weir.yaml": `
sources:
  events: {file: {path: events.jsonl}, entitty: id}
  other: {file: {path: other.jsonl}, entity: id, mode: sometimes}
customers: ["customers/*.yaml"]
shutdown: {timeout: 5}
`,
		"customers/acme.yaml": `
customer: acme
projections:
  all:
    when: doc.a ==
    fields: {id: "id.."}
    deliver: {out: {file: {path: out.jsonl}}}
`,
	})
	for _, command := range []string{"run", "run --until-idle", "validate", "test", "migrate", "dlq list"} {
		pr := p.start(command)
		require.Equal(t, 2, pr.wait(), command)
		require.Empty(t, pr.out.String(), command)
		for _, fault := range []string{
			"weir.yaml:3:", "entitty", "weir.yaml:4:", "sometimes", "weir.yaml:6:", "acme.yaml:5:", "acme.yaml:6:",
		} {
			require.Contains(t, pr.log.String(), fault, command)
		}
		require.GreaterOrEqual(t, strings.Count(strings.TrimSpace(pr.log.String()), "\n"), 4)
	}
	for _, command := range []string{"run --no-such-flag", "run --role cook", "dlq show", "dlq show x", "no-such-command"} {
		require.Equal(t, 2, p.start(command).wait(), command)
	}
	require.Equal(t, 2, p.startAs("missing.yaml", "run").wait())
}

// I1, I8: a process that waits for its store ends in order and in time; what
// it could not decide is decided by the next one.
func TestTerminateWhileTheStoreIsDown(t *testing.T) {
	const entities = 30
	store := testservers.StartOwn(t, "postgres")
	p := simple(t, fmt.Sprintf("shutdown: {timeout: 12s}\nstore: {postgres: {url: %q}}\n", store.Address), map[string]string{"acme": fileSink("acme")})
	run := p.start("run")
	p.append("events.jsonl", many(entities, 0, 10))
	eventually(t, "the work before", func() error { return settled(p.whole("out/acme.jsonl"), entities, "r9") })
	store.Kill()
	p.append("events.jsonl", many(entities, 10, 20))
	run.ready(503)
	start := time.Now()
	run.terminate()
	run.ok()
	require.Less(t, time.Since(start), 14*time.Second)
	store.Start()
	p.drain()
	require.NoError(t, model.CheckLog(p.expected("acme"), "acme/all@out", p.records("out/acme.jsonl")))
}

// I1: the same while Kafka is down.
func TestTerminateWhileKafkaIsDown(t *testing.T) {
	const entities = 30
	kafka := testservers.StartOwn(t, "kafka")
	p := simple(t, fmt.Sprintf("shutdown: {timeout: 12s}\nkafka: {brokers: [%q], session_timeout: 3s}\n", kafka.Address), map[string]string{"acme": fileSink("acme")})
	run := p.start("run")
	p.append("events.jsonl", many(entities, 0, 10))
	eventually(t, "the work before", func() error { return settled(p.whole("out/acme.jsonl"), entities, "r9") })
	kafka.Kill()
	p.append("events.jsonl", many(entities, 10, 20))
	run.says("unable to open connection")
	start := time.Now()
	run.terminate()
	run.ok()
	require.Less(t, time.Since(start), 14*time.Second)
	kafka.Start()
	p.drain()
	records := p.records("out/acme.jsonl")
	require.NoError(t, settled(records, entities, "r19"))
	events, err := model.Run(simpleModel("acme"), modelEvents(t, 1, readTopic(t, []string{kafka.Address}, "weir.inbox"), readLines(t, map[string]string{"events": p.path("events.jsonl")}).find))
	require.NoError(t, err)
	require.NoError(t, model.CheckLog(events, "acme/all@out", records))
}
