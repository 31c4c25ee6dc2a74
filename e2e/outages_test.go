package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/e2e/model"
	"github.com/seed-86dfc502/weir/internal/testservers"
	"github.com/stretchr/testify/require"
)

// I1, I2, I8: while the store is down the process halts, lives, is not ready,
// and goes on by itself; nothing is lost, repeated or guessed.
func TestStoreOutage(t *testing.T) {
	const entities = 30
	store := testservers.StartOwn(t, "postgres")
	p := simple(t, fmt.Sprintf("store: {postgres: {url: %q}}\n", store.Address), map[string]string{"acme": fileSink("acme")})
	run := p.start("run")
	p.append("events.jsonl", many(entities, 0, 10))
	eventually(t, "the work before", func() error { return settled(p.whole("out/acme.jsonl"), entities, "r9") })
	run.ready(200)

	// In the middle of work: the events are there when the server dies.
	p.append("events.jsonl", many(entities, 10, 60))
	store.Kill()
	run.ready(503)
	status, _ := run.get("/healthz")
	require.Equal(t, 200, status)
	p.append("events.jsonl", many(entities, 60, 70))
	require.False(t, run.ended())

	store.Start()
	eventually(t, "the work after", func() error { return settled(p.whole("out/acme.jsonl"), entities, "r69") })
	run.ready(200)
	run.terminate()
	run.ok()
	require.Empty(t, p.letters())
	require.NoError(t, model.CheckLog(p.expected("acme"), "acme/all@out", p.records("out/acme.jsonl")))
}

// I1, I4: without the gate's server events pass unchecked, and are counted;
// repetitions are then caught by the entity's own memory.
func TestGateOutage(t *testing.T) {
	const entities = 20
	valkey := testservers.StartOwn(t, "valkey")
	p := simple(t, fmt.Sprintf("gate: {valkey: {address: %q}}\n", valkey.Address), map[string]string{"acme": fileSink("acme")})
	run := p.start("run")
	p.append("events.jsonl", many(entities, 0, 2)+many(entities, 1, 2))
	eventually(t, "the work before", func() error { return settled(p.whole("out/acme.jsonl"), entities, "r1") })
	eventually(t, "the gate stops repetitions", func() error {
		return want(run.metric("weir_ingested_total", `outcome="repeated"`), entities)
	})
	require.Zero(t, run.metric("weir_gate_unchecked_total"))

	valkey.Kill()
	p.append("events.jsonl", many(entities, 2, 4)+many(entities, 2, 4))
	eventually(t, "the work meanwhile", func() error { return settled(p.whole("out/acme.jsonl"), entities, "r3") })
	eventually(t, "everything is counted", func() error {
		return want(run.metric("weir_gate_unchecked_total"), 4*entities)
	})
	run.ready(200)

	valkey.Start()
	p.append("events.jsonl", many(entities, 4, 5))
	eventually(t, "the work after", func() error { return settled(p.whole("out/acme.jsonl"), entities, "r4") })
	run.terminate()
	run.ok()
	require.NoError(t, model.CheckLog(p.expected("acme"), "acme/all@out", p.records("out/acme.jsonl")))
}

// I12: a later configuration fences the process that runs an earlier one; the
// earlier one does not come back by a mere restart.
func TestOneConfigurationAtATime(t *testing.T) {
	c := newCluster(t)
	hook := newReceiver(t)
	main := fmt.Sprintf(`
store: {postgres: {url: %q}}
kafka: {brokers: [%q], prefix: %q, session_timeout: 3s}
sources:
  events: {kafka: {topic: %q}, entity: key}
customers: [FILES]
admin: {listen: "127.0.0.1:0"}
`, c.store, c.brokers[0], c.prefix+"weir", c.prefix+"events")
	customer := `
customer: acme
projections:
  all:
    fields: {%s}
    deliver: {out: ` + hookSink(hook) + `}
`
	p := newProject(t, map[string]string{
		"old.yaml": strings.Replace(main, "FILES", "old/*.yaml", 1), "old/acme.yaml": fmt.Sprintf(customer, "id: id"),
		"new.yaml": strings.Replace(main, "FILES", "new/*.yaml", 1), "new/acme.yaml": fmt.Sprintf(customer, "id: id, state: state"),
	})
	c.topics(4, c.prefix+"events")
	serial := 0
	say := func(entity, state string) {
		serial++
		c.send(record(c.prefix+"events", entity, fmt.Sprintf(`{"id":%q,"state":%q}`, entity, state)))
	}
	arrives := func(entity, state string) {
		t.Helper()
		eventually(t, entity+" "+state, func() error {
			s := states(hook.received(), entity)
			if len(s) == 0 || s[len(s)-1] != state {
				return fmt.Errorf("%s has %v", entity, s)
			}
			return nil
		})
	}
	before := p.startAs("old.yaml", "run")
	say("X", "A")
	arrives("X", "") // the old view shows no state
	before.ready(200)

	after := p.startAs("new.yaml", "run")
	after.ready(200)
	// The earlier process notices at the next decision that it would make.
	for i := range 40 {
		say(fmt.Sprint("Z", i), "A")
	}
	before.ready(503)
	status, _ := before.get("/healthz")
	require.Equal(t, 200, status)
	say("X", "A")
	arrives("X", "A")
	for i := range 40 {
		// Whoever decided first: the new view is what counts in the end, and only
		// one of the two may have decided under it.
		say(fmt.Sprint("Z", i), "B")
	}
	for i := range 40 {
		arrives(fmt.Sprint("Z", i), "B")
	}

	again := p.startAs("old.yaml", "run")
	require.Equal(t, 1, again.wait())
	require.Contains(t, again.log.String(), "--activate")
	require.False(t, after.ended())

	back := p.startAs("old.yaml", "run", "--activate")
	back.ready(200)
	for i := range 40 {
		say(fmt.Sprint("Z", i), "C")
	}
	after.ready(503)
	before.ready(200)
	for _, pr := range []*process{before, after, back} {
		pr.terminate()
	}
	for _, pr := range []*process{before, after, back} {
		pr.ok()
	}
}

var errNotYet = errors.New("not yet")
