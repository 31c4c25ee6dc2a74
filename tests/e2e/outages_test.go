package e2e

import (
	"fmt"
	"testing"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/oracle"
	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/stretchr/testify/require"
)

// I1, I2, I8: while the store is down the process halts, lives, is not ready,
// and resumes by itself; nothing is lost, repeated or guessed.
func TestStoreOutage(t *testing.T) {
	t.Parallel()
	const entities = 30
	p, store, run := onOwnStore(t, entities, 10)

	// In the middle of work: the events are there when the server dies.
	p.Append("events.jsonl", harness.Many(entities, 10, 60))
	store.Kill()
	run.Ready(503)
	status, _ := run.Get("/healthz")
	require.Equal(t, 200, status)
	p.Append("events.jsonl", harness.Many(entities, 60, 70))
	require.False(t, run.Ended())

	store.Start()
	endsWell(t, p, run, entities, "r69")
}

// onOwnStore runs a pipeline on a PostgreSQL of its own, which has delivered so many
// rounds of events.
func onOwnStore(t *testing.T, entities, rounds int) (p harness.Project, store *servers.Server, run *harness.Process) {
	t.Helper()
	store = servers.StartOwn(t, "postgres")
	p = harness.SimpleOnBrokers(t, "", fmt.Sprintf("store: {postgres: {url: %q}}\n", store.Address), map[string]string{"acme": harness.FileSink("acme")})
	run = p.Start("run")
	p.Append("events.jsonl", harness.Many(entities, 0, rounds))
	harness.Eventually(t, "the work before", func() error {
		return harness.Settled(p.Whole("out/acme.jsonl"), entities, fmt.Sprintf("r%d", rounds-1))
	})
	run.Ready(200)
	return p, store, run
}

// endsWell waits for the newest state of all entities and for the end: nothing is
// lost, repeated or dead.
func endsWell(t *testing.T, p harness.Project, run *harness.Process, entities int, newest string) {
	t.Helper()
	harness.Eventually(t, "the work after", func() error { return harness.Settled(p.Whole("out/acme.jsonl"), entities, newest) })
	run.Ready(200)
	run.Terminate()
	run.Ok()
	require.Empty(t, p.Letters())
	require.NoError(t, oracle.CheckLog(p.Expected("acme"), "acme/all@out", p.Records("out/acme.jsonl")))
}

// I1, I4: without the gate's server events pass unchecked, and are counted;
// repetitions are then caught by the entity's own memory. A server that is slow,
// as on a busy machine, is not one that is away: the gate waits for it here.
func TestGateOutage(t *testing.T) {
	const entities = 20
	valkey := servers.StartOwn(t, "valkey")
	p := harness.Simple(t, fmt.Sprintf("gate: {valkey: {address: %q, timeout: 1m}}\n", valkey.Address), map[string]string{"acme": harness.FileSink("acme")})
	run := p.Start("run")
	p.Append("events.jsonl", harness.Many(entities, 0, 2)+harness.Many(entities, 1, 2))
	harness.Eventually(t, "the work before", func() error { return harness.Settled(p.Whole("out/acme.jsonl"), entities, "r1") })
	harness.Eventually(t, "the gate stops repetitions", func() error {
		return harness.Want(run.Metric("weir_ingest_events_total", `outcome="repeated"`), entities)
	})
	require.Zero(t, run.Metric("weir_gate_unchecked_total"))

	valkey.Kill()
	p.Append("events.jsonl", harness.Many(entities, 2, 4)+harness.Many(entities, 2, 4))
	harness.Eventually(t, "the work meanwhile", func() error { return harness.Settled(p.Whole("out/acme.jsonl"), entities, "r3") })
	harness.Eventually(t, "everything is counted", func() error {
		return harness.Want(run.Metric("weir_gate_unchecked_total"), 4*entities)
	})
	run.Ready(200)

	valkey.Start()
	p.Append("events.jsonl", harness.Many(entities, 4, 5))
	harness.Eventually(t, "the work after", func() error { return harness.Settled(p.Whole("out/acme.jsonl"), entities, "r4") })
	run.Terminate()
	run.Ok()
	require.NoError(t, oracle.CheckLog(p.Expected("acme"), "acme/all@out", p.Records("out/acme.jsonl")))
}

// I1, I2, I8: the same while the brokers are down. The mistake that this catches: the
// process was ready all the time, and said that nothing waits.
func TestBrokersOutage(t *testing.T) {
	t.Parallel()
	const entities = 30
	kafka := servers.StartOwn(t, "kafka")
	p := harness.Simple(t, fmt.Sprintf("kafka: {brokers: [%q]}\n", kafka.Address), map[string]string{"acme": harness.FileSink("acme")})
	p.LogBrokers = []string{kafka.Address}
	run := p.Start("run")
	p.Append("events.jsonl", harness.Many(entities, 0, 10))
	harness.Eventually(t, "the work before", func() error { return harness.Settled(p.Whole("out/acme.jsonl"), entities, "r9") })
	run.Ready(200)

	kafka.Kill()
	p.Append("events.jsonl", harness.Many(entities, 10, 20))
	run.Ready(503)
	_, why := run.Get("/readyz")
	require.Contains(t, why, "the brokers do not answer")

	kafka.Start()
	endsWell(t, p, run, entities, "r19")
}
