package e2e

import (
	"errors"
	"testing"

	"github.com/seed-86dfc502/weir/e2e/harness"
	"github.com/seed-86dfc502/weir/e2e/model"
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
	hung.Answers(func(model.Record) int { return 0 })
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
		require.NoError(t, model.CheckAttempts(expected, customer+"/all@out", r.Received()))
		require.NoError(t, model.CheckState(expected, customer+"/all@out", model.Newest(r.Received())))
	}
	require.NoError(t, model.CheckLog(expected, "file/all@out", p.Records("out/file.jsonl")))
}

// I9: a service that is refused as a whole pauses, without dead letters, and
// goes on when it is let in again.
func TestRefusedServicePauses(t *testing.T) {
	const entities = 20
	hook := harness.NewReceiver(t)
	hook.Answers(func(model.Record) int { return 401 })
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
	require.NoError(t, model.CheckState(p.Expected("acme"), "acme/all@out", model.Newest(hook.Received())))
}

// I9: one document that is refused is a dead letter, the others flow, and its
// dam row is released to what the customer has: that is held back, and the
// same content again passes.
func TestRefusedDocumentIsReleased(t *testing.T) {
	hook := harness.NewReceiver(t)
	p := harness.Simple(t, "", map[string]string{"acme": harness.PatientHookSink(hook)})
	run := p.Start("run")
	next := 0
	say := func(entity, state string) {
		next++
		p.Append("events.jsonl", harness.Event(next, entity, state))
	}
	arrives := func(entity, state string) {
		t.Helper()
		harness.Eventually(t, entity+" "+state, func() error {
			if s := harness.States(hook.Received(), entity); len(s) > 0 && s[len(s)-1] == state {
				return nil
			}
			return errors.New("not yet")
		})
	}
	refusals := func(n int) {
		t.Helper()
		harness.Eventually(t, "the refusals", func() error { return harness.Want(len(hook.Rejected()), n) })
		harness.Eventually(t, "the releases", func() error { return harness.Want(run.Metric("weir_events_total", `outcome="control"`), float64(n)) })
	}
	say("X", "A")
	arrives("X", "A")
	hook.Answers(func(r model.Record) int {
		if harness.StateOf(r) == "B" {
			return 422
		}
		return 200
	})
	say("X", "B")
	say("New", "B")
	say("Y", "A")
	refusals(2)
	arrives("Y", "A")
	hook.Answers(nil)
	say("X", "A") // what the customer has, as far as is known: sent again, to be sure
	harness.Eventually(t, "A again, before B could replace it on its way", func() error {
		return harness.Want(len(harness.States(hook.Received(), "X")), 2)
	})
	say("New", "B") // the same content again
	say("X", "B")
	arrives("New", "B")
	arrives("X", "B")
	require.Equal(t, []string{"A", "A", "B"}, harness.States(hook.Received(), "X"), "a release goes to unknown: the next content passes")
	require.Equal(t, []string{"B"}, harness.States(hook.Received(), "New"))
	run.Terminate()
	run.Ok()
	letters := p.Letters()
	require.Len(t, letters, 2)
	var entities []string
	for _, l := range letters {
		entities = append(entities, l.Entity)
		require.Equal(t, "deliver", l.Stage)
		require.Equal(t, "refused", l.Code)
		require.Equal(t, "acme/all@out", l.Service)
		require.Contains(t, *p.Letter(l.ID).Payload, `"state":"B"`)
	}
	require.ElementsMatch(t, []string{"X", "New"}, entities)
}
