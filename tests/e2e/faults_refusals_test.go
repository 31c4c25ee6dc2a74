package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/oracle"
	"github.com/seed-86dfc502/weir/tests/servers"
	"github.com/stretchr/testify/require"
)

// I9, I10: two sinks of one projection. One is down; the other refuses the
// fifth version while the sixth arrives. Then it refuses a seventh: a replay of its
// letter must pass there, and only there.
func TestOneSinkDownTheOtherRefusesAVersion(t *testing.T) {
	t.Parallel()
	down, picky := harness.NewReceiver(t), harness.NewReceiver(t)
	p := harness.NewProject(t, map[string]string{
		"weir.yaml": harness.SimpleMain, "events.jsonl": "",
		"customers/acme.yaml": fmt.Sprintf("customer: acme\nprojections:\n  all:\n    fields: {id: id, state: state}\n    deliver:\n      down: %s\n      picky: %s\n",
			harness.PatientHookSink(down), harness.PatientHookSink(picky)),
	})
	down.Down()
	seen, answer := make(chan struct{}), make(chan struct{})
	refuse := func(state string) {
		picky.Answers(func(r oracle.Record) int {
			if harness.StateOf(r) == state {
				return 422
			}
			return 200
		})
	}
	run := p.Start("run")
	serial := 0
	say := func(state string) {
		serial++
		p.Append("events.jsonl", harness.Event(serial, "X", state))
	}
	arrives := func(state string) {
		t.Helper()
		picky.Arrives(t, "X", state)
	}
	refusals := func(n float64) {
		t.Helper()
		harness.Eventually(t, "the refusal", func() error { return harness.Want(run.Metric("weir_events_total", `outcome="control"`), n) })
	}
	for n := 1; n <= 4; n++ {
		say(fmt.Sprint("v", n))
		arrives(fmt.Sprint("v", n))
	}
	picky.Answers(func(r oracle.Record) int {
		if harness.StateOf(r) != "v5" {
			return 200
		}
		close(seen)
		<-answer
		return 422
	})
	say("v5")
	<-seen // the fifth is at the sink, without an answer yet
	say("v6")
	harness.Eventually(t, "the sixth is decided", func() error { return harness.Want(run.Metric("weir_events_total", `outcome="merged"`), 6) })
	close(answer)
	arrives("v6")
	require.Equal(t, []string{"v1", "v2", "v3", "v4", "v6"}, harness.States(picky.Received(), "X"))
	require.Len(t, picky.Rejected(), 1)
	// The refusal of the fifth, if the sixth did not take its place first, came behind the sixth: it
	// has no effect, and no other service is evaluated for it.
	say("v6")
	harness.Eventually(t, "noise", func() error { return harness.Want(run.Metric("weir_events_total", `outcome="noise"`), 1) })
	before := run.Metric("weir_events_total", `outcome="control"`)
	require.LessOrEqual(t, before, 1.0)

	refuse("v7")
	say("v7")
	refusals(before + 1)
	require.Len(t, picky.Rejected(), 2)
	refuse("")
	require.Len(t, p.Letters(), 1, "newer content closed what the other target gave up")
	p.Start("dlq replay --all --yes --wait").Ok()
	arrives("v7")
	require.Equal(t, []string{"v1", "v2", "v3", "v4", "v6", "v7"}, harness.States(picky.Received(), "X"))
	require.Greater(t, picky.Received()[5].Version, picky.Rejected()[1].Version, "a new change, not the refused one")

	require.Empty(t, down.Received())
	down.Up()
	down.Arrives(t, "X", "v7")
	say("v8")
	arrives("v8")
	down.Arrives(t, "X", "v8") // an attempt that the stop cuts off would come again
	run.Terminate()
	run.Ok()
	p.Drain()
	missedNothing(t, down.Received(), picky.Rejected()[1].Version)
	require.Empty(t, p.Letters())
}

// missedNothing checks the records of a target that refused none: versions grow, the last is
// v8, and v7 came once, in the version that the other target refused.
func missedNothing(t *testing.T, got []oracle.Record, refused uint64) {
	t.Helper()
	for i := 1; i < len(got); i++ {
		require.Greater(t, got[i].Version, got[i-1].Version)
	}
	require.Equal(t, "v8", harness.StateOf(got[len(got)-1]))
	sevens := 0
	for _, r := range got {
		if harness.StateOf(r) == "v7" {
			sevens++
			require.Equal(t, refused, r.Version, "its row was not refused")
		}
	}
	require.Equal(t, 1, sevens)
}

// I9: one row of a batch of a thousand that the store refuses is found by
// bisection and is a dead letter; the other 999 flow, each once, and the entity
// is as any other once the store takes it.
func TestPoisonRowInABatchOfAThousand(t *testing.T) {
	t.Parallel()
	const entities = 1000
	url := servers.Postgres(t)
	p := harness.SimpleOnBrokers(t, "inbox: {partitions: 1}", fmt.Sprintf("store: {postgres: {url: %q}}\n", url), map[string]string{"acme": harness.FileSink("acme")})
	p.Start("migrate").Ok()
	// Ingest accepts no id that PostgreSQL is known to refuse, so a constraint replaces one.
	exec(t, url, "ALTER TABLE entities ADD CONSTRAINT poison CHECK (id <> 'E617')")
	p.Append("events.jsonl", harness.Many(entities, 0, 1))
	p.Start("run --role ingest --until-idle").Ok() // all in the inbox before the first is decided
	p.Drain()
	got := p.Records("out/acme.jsonl")
	require.Len(t, got, entities-1)
	require.Empty(t, harness.States(got, "E617"))
	letters := p.Letters()
	require.Len(t, letters, 1)
	l := p.Letter(letters[0].ID)
	require.Equal(t, "decide", l.Stage)
	require.Equal(t, "poison", l.Code)
	require.Equal(t, "E617", l.Entity)
	require.Contains(t, *l.Payload, `"E617"`)
	require.EqualValues(t, entities, number(t, url, "SELECT sum(next_offset) FROM watermarks"), "everything is decided")

	exec(t, url, "ALTER TABLE entities DROP CONSTRAINT poison")
	p.Append("events.jsonl", harness.Event(9999, "E617", "healed"))
	p.Drain()
	require.Equal(t, []string{"healed"}, harness.States(p.Records("out/acme.jsonl"), "E617"))
	require.Len(t, p.Records("out/acme.jsonl"), entities)
	require.Len(t, p.Letters(), 1)
}

// I9: a change that is too large for one of twenty customers is a dead letter
// of that one; the other nineteen get theirs, and the one gets the next that fits.
func TestOversizedChangeForOneOfTwentyCustomers(t *testing.T) {
	sinks := map[string]string{}
	for n := range 20 {
		sinks[fmt.Sprintf("c%02d", n)] = harness.FileSink(fmt.Sprintf("c%02d", n))
	}
	p := harness.Simple(t, "limits: {change: 2KiB}\n", sinks)
	p.Write("customers/c07.yaml", `
customer: c07
projections:
  all: {fields: {id: id, state: state, text: text}, deliver: {out: {file: {path: ../out/c07.jsonl}}}}
`)
	event := func(n int, state, text string) string {
		return fmt.Sprintf(`{"event":"e%d","id":"X","state":%q,"text":%q}`+"\n", n, state, text)
	}
	p.Write("events.jsonl", event(1, "A", "small")+event(2, "B", strings.Repeat("large ", 1000))+harness.Event(3, "Y", "A")+event(4, "C", "small"))
	p.Drain()
	for customer := range sinks {
		got := p.Records("out/" + customer + ".jsonl")
		want := []string{"A", "B", "C"}
		if customer == "c07" {
			want = []string{"A", "C"}
		}
		require.Equal(t, want, harness.States(got, "X"), customer)
		require.Equal(t, []string{"A"}, harness.States(got, "Y"), customer)
	}
	letters := p.Letters()
	require.Len(t, letters, 1)
	l := p.Letter(letters[0].ID)
	require.Equal(t, "decide", l.Stage)
	require.Equal(t, "oversized", l.Code)
	require.Equal(t, "c07/all@out", l.Service)
	require.Equal(t, "X", l.Entity)
	require.Contains(t, *l.Payload, `"state":"B"`)
}
