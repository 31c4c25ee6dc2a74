package e2e

import (
	"errors"
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
