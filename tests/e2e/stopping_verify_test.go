//go:build verify

package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/oracle"
	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/stretchr/testify/require"
)

// I1, I2: SIGTERM under load ends the process in time and in order, every time,
// and nothing is lost.
func TestTerminateUnderLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some ten seconds")
	}
	p := harness.Generate(t, 4, 500, 20_000)
	text := p.Read("weir.yaml")
	p.Write("weir.yaml", harness.ReplaceOnce(t, text, "level: warn", "level: info"))
	for round := range 4 {
		run := p.Start("run")
		run.Says("event=process.running") // it would not catch the signal before it has come to that
		<-time.After(time.Duration(300*round) * time.Millisecond)
		start := time.Now()
		run.Terminate()
		require.Zero(t, run.Wait(), run.Log.String())
		require.Less(t, time.Since(start), 20*time.Second+late, "shutdown.timeout")
		require.NotContains(t, run.Log.String(), "level=ERROR")
	}
	p.Drain()
	harness.CheckGenerated(p)
}

// I1: the same while Kafka is down.
func TestTerminateWhileKafkaIsDown(t *testing.T) {
	const entities = 30
	kafka := servers.StartOwn(t, "kafka")
	p := harness.Simple(t, fmt.Sprintf("shutdown: {timeout: 12s}\nkafka: {brokers: [%q], session_timeout: 3s}\n", kafka.Address), map[string]string{"acme": harness.FileSink("acme")})
	run := p.Start("run")
	p.Append("events.jsonl", harness.Many(entities, 0, 10))
	harness.Eventually(t, "the work before", func() error { return harness.Settled(p.Whole("out/acme.jsonl"), entities, "r9") })
	kafka.Kill()
	p.Append("events.jsonl", harness.Many(entities, 10, 20))
	run.Says("event=dependency.unreachable")
	start := time.Now()
	run.Terminate()
	run.Ok()
	require.Less(t, time.Since(start), 12*time.Second+late)
	kafka.Start()
	p.Drain()
	records := p.Records("out/acme.jsonl")
	require.NoError(t, harness.Settled(records, entities, "r19"))
	events, err := oracle.Run(harness.SimpleModel("acme"), harness.ModelEvents(t, 1, harness.ReadTopic(t, []string{kafka.Address}, "weir.inbox"), harness.ReadLines(t, map[string]string{"events": p.Path("events.jsonl")}).Find))
	require.NoError(t, err)
	require.NoError(t, oracle.CheckLog(events, "acme/all@out", records))
}

// I1, I8: a process that waits for its store ends in order and in time; what
// it could not decide is decided by the next one.
func TestTerminateWhileTheStoreIsDown(t *testing.T) {
	const entities = 30
	store := servers.StartOwn(t, "postgres")
	p := harness.SimpleOnBrokers(t, "", fmt.Sprintf("shutdown: {timeout: 12s}\nstore: {postgres: {url: %q}}\n", store.Address), map[string]string{"acme": harness.FileSink("acme")})
	run := p.Start("run")
	p.Append("events.jsonl", harness.Many(entities, 0, 10))
	harness.Eventually(t, "the work before", func() error { return harness.Settled(p.Whole("out/acme.jsonl"), entities, "r9") })
	store.Kill()
	p.Append("events.jsonl", harness.Many(entities, 10, 20))
	run.Ready(503)
	start := time.Now()
	run.Terminate()
	run.Ok()
	require.Less(t, time.Since(start), 12*time.Second+late)
	store.Start()
	p.Drain()
	require.NoError(t, oracle.CheckLog(p.Expected("acme"), "acme/all@out", p.Records("out/acme.jsonl")))
}
