package e2e

import (
	"errors"
	"fmt"
	"testing"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/oracle"
	"github.com/stretchr/testify/require"
)

// I7, I9: a webhook that refuses connections and one that never answers hold
// up no other customer, and get everything when they come back.
func TestDeadWebhooksHoldUpNobody(t *testing.T) {
	const entities = 40
	fine, dead, hung := harness.NewReceiver(t), harness.NewReceiver(t), harness.NewReceiver(t)
	p := harness.Simple(t, "", map[string]string{
		"fine": harness.PatientHookSink(fine), "dead": harness.PatientHookSink(dead), "hung": harness.HookSink(hung), "file": harness.FileSink("file"),
	})
	dead.Down()
	hung.Answers(func(oracle.Record) int { return 0 })
	run := p.Start("run")
	p.Append("events.jsonl", harness.Many(entities, 0, 10))
	harness.Eventually(t, "the others have everything", func() error {
		return errors.Join(harness.Settled(fine.Received(), entities, "r9"), harness.Settled(p.Whole("out/file.jsonl"), entities, "r9"))
	})
	harness.Eventually(t, "both bad ones were tried", func() error {
		if run.Metric("weir_delivery_failures_total", `service="dead/all@out"`) == 0 || run.Metric("weir_delivery_failures_total", `service="hung/all@out"`) == 0 {
			return errors.New("not yet")
		}
		return nil
	})
	require.Empty(t, dead.Received())
	require.Empty(t, hung.Received())
	run.Ready(200)

	p.Append("events.jsonl", harness.Many(entities, 10, 12))
	harness.Eventually(t, "new events too", func() error { return harness.Settled(fine.Received(), entities, "r11") })

	dead.Up()
	hung.Answers(nil)
	harness.Eventually(t, "the backlog is delivered", func() error {
		return errors.Join(harness.Settled(dead.Received(), entities, "r11"), harness.Settled(hung.Received(), entities, "r11"))
	})
	run.Terminate()
	run.Ok()
	require.Empty(t, p.Letters())
	expected := p.Expected("fine", "dead", "hung", "file")
	for customer, r := range map[string]*harness.Receiver{"fine": fine, "dead": dead, "hung": hung} {
		require.NoError(t, oracle.CheckAttempts(expected, customer+"/all@out", r.Received()))
		require.NoError(t, oracle.CheckState(expected, customer+"/all@out", oracle.Newest(r.Received())))
	}
	require.NoError(t, oracle.CheckLog(expected, "file/all@out", p.Records("out/file.jsonl")))
}

// I9: a service that is refused as a whole pauses, without dead letters, and
// resumes when its token is accepted again.
func TestRefusedServicePauses(t *testing.T) {
	t.Parallel()
	const entities = 20
	hook := harness.NewReceiver(t)
	hook.Answers(func(oracle.Record) int { return 401 })
	p := harness.Simple(t, "", map[string]string{"acme": harness.PatientHookSink(hook)})
	run := p.Start("run")
	p.Append("events.jsonl", harness.Many(entities, 0, 2))
	harness.Eventually(t, "the pause", func() error { return harness.Want(run.Metric("weir_service_paused", `service="acme/all@out"`), 1) })
	hook.Answers(nil)
	harness.Eventually(t, "the delivery", func() error { return harness.Settled(hook.Received(), entities, "r1") })
	harness.Eventually(t, "the end of the pause", func() error { return harness.Want(run.Metric("weir_service_paused", `service="acme/all@out"`), 0) })
	run.Terminate()
	run.Ok()
	require.Empty(t, p.Letters())
	require.NoError(t, oracle.CheckState(p.Expected("acme"), "acme/all@out", oracle.Newest(hook.Received())))
}

// I9: a refused document is a dead letter and posted once, through any other events
// of its entity; the others flow, and other customers stay pruned. Any
// other content passes, also the one before, and behind it the refused one again.
func TestRefusedDocumentIsHeldBack(t *testing.T) {
	hook := harness.NewReceiver(t)
	p := harness.Simple(t, "", map[string]string{"acme": harness.PatientHookSink(hook), "zest": harness.FileSink("zest")})
	run := p.Start("run")
	next := 0
	say := func(entity, state string) {
		next++
		p.Append("events.jsonl", harness.Event(next, entity, state))
	}
	count := func(name string, labels ...string) func(float64) {
		return func(n float64) {
			t.Helper()
			harness.Eventually(t, name, func() error { return harness.Want(run.Metric(name, labels...), n) })
		}
	}
	arrives := func(entity, state string) {
		t.Helper()
		hook.Arrives(t, entity, state)
	}
	refusals := func(n int) {
		t.Helper()
		harness.Eventually(t, "the refusals", func() error { return harness.Want(len(hook.Rejected()), n) })
		count("weir_events_total", `outcome="control"`)(float64(n))
	}
	hook.Answers(func(r oracle.Record) int {
		if harness.StateOf(r) == "B" {
			return 422
		}
		return 200
	})
	say("X", "A")
	arrives("X", "A")
	say("X", "B")
	say("New", "B")
	say("Y", "A")
	refusals(2)
	arrives("Y", "A")
	for n := range 6 { // nobody's view of X changes
		next++
		p.Append("events.jsonl", fmt.Sprintf(`{"event":"e%d","id":"X","state":"B","weight":%d}`+"\n", next, n))
	}
	for _, service := range []string{"acme", "zest"} {
		count("weir_decisions_total", `service="`+service+`/all@out"`, `decision="pruned"`)(6)
		count("weir_decisions_total", `service="`+service+`/all@out"`, `decision="held_back"`)(0)
	}
	require.Len(t, hook.Rejected(), 2)
	say("X", "A") // what the customer has, as far as is known: sent again, to be sure
	harness.Eventually(t, "A again", func() error { return harness.Want(len(harness.States(hook.Received(), "X")), 2) })
	say("X", "B") // refused again: the same letter
	refusals(3)
	letters := p.Letters()
	require.Len(t, letters, 2)
	counts := map[string]int64{}
	for _, l := range letters {
		counts[l.Entity] = l.Count
		require.Equal(t, "deliver", l.Stage)
		require.Equal(t, "refused", l.Code)
		require.Equal(t, "acme/all@out", l.Service)
		require.Contains(t, *p.Letter(l.ID).Payload, `"state":"B"`)
	}
	require.Equal(t, map[string]int64{"X": 2, "New": 1}, counts)
	hook.Answers(nil)
	say("X", "C")
	arrives("X", "C")
	say("X", "B")
	arrives("X", "B")
	require.Equal(t, []string{"A", "A", "C", "B"}, harness.States(hook.Received(), "X"))
	require.Empty(t, harness.States(hook.Received(), "New"), "no event lets it pass")
	// The newer content of X closed its letter. A replay brings New its lost change.
	require.Len(t, p.Letters(), 1)
	p.Start("dlq replay --all --yes --wait").Ok()
	arrives("New", "B")
	run.Terminate()
	run.Ok()
	require.Empty(t, p.Letters())
	require.Equal(t, []string{"B"}, harness.States(hook.Received(), "New"))
	require.Equal(t, []string{"A", "A", "C", "B"}, harness.States(hook.Received(), "X"))
	require.Len(t, hook.Rejected(), 3)
	require.Equal(t, []string{"A", "B", "A", "B", "C", "B"}, harness.States(p.Records("out/zest.jsonl"), "X"))
}

// I9: an abandoned change is offered again by retry.redrive_after, without any event.
func TestWhatWasGivenUpIsOfferedAgain(t *testing.T) {
	hook := harness.NewReceiver(t)
	sink := harness.ReplaceOnce(t, harness.PatientHookSink(hook), "retry: {", "retry: {for: 1s, redrive_after: 100ms, ")
	p := harness.Simple(t, "", map[string]string{"acme": sink})
	hook.Answers(func(r oracle.Record) int {
		if harness.StateOf(r) == "B" {
			return 500
		}
		return 200
	})
	run := p.Start("run")
	p.Append("events.jsonl", harness.Event(1, "X", "B")+harness.Event(2, "Y", "A"))
	harness.Eventually(t, "it is offered again", func() error {
		if run.Metric("weir_delivery_offered_again_total") < 2 {
			return errors.New("not yet")
		}
		return nil
	})
	harness.Eventually(t, "it died again", func() error {
		if letters := p.Letters(); len(letters) != 1 || letters[0].Count < 3 || letters[0].Code != "gave_up" {
			return fmt.Errorf("%+v", letters)
		}
		return nil
	})
	hook.Answers(nil)
	harness.Eventually(t, "it arrives", func() error { return harness.Want(len(harness.States(hook.Received(), "X")), 1) })
	run.Terminate()
	run.Ok()
	require.Empty(t, p.Letters())
	require.Equal(t, []string{"B"}, harness.States(hook.Received(), "X"))
}
