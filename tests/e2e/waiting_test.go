package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/pipeline"
	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/oracle"
	"github.com/stretchr/testify/require"
)

// saysAll looks for all parts in a text.
func saysAll(text string, parts ...string) error {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return fmt.Errorf("no %q in %s", part, harness.Tail(text, 10))
		}
	}
	return nil
}

// The mistake that this catches: a run that blocks silently, says
// "Done" when it is interrupted and ends with 0, so that its caller takes
// undelivered changes for delivered. So does the next run.
func TestRunUntilIdleSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	away := harness.NewReceiver(t)
	away.Down()
	p := harness.Simple(t, "", map[string]string{
		"acme": harness.FileSink("acme"), "away": harness.HookSink(away), "blocked": "{file: {path: ../weir.yaml/out.jsonl}}",
	})
	require.NoError(t, os.Remove(p.Path("events.jsonl")))
	missing := p.Start("run --until-idle")
	missing.Says("waiting: ")
	status, body := missing.Get("/readyz")
	require.Equal(t, http.StatusOK, status, "the file may come: %s", body)
	missing.Terminate()
	require.Equal(t, 3, missing.Wait(), missing.Log.String())
	told := "source events waits for its file " + p.Path("events.jsonl") + " (no such file or directory)"
	require.Contains(t, missing.Log.String(), "waiting: "+told)
	require.Contains(t, missing.Log.String(), "stopped: "+told)
	require.Contains(t, missing.Out.String(), "with work left: "+told)
	require.NotContains(t, missing.Out.String(), "Done")
	require.NotContains(t, missing.Out.String(), "nothing was sent")

	p.Write("events.jsonl", harness.Event(1, "A", "1")+harness.Event(2, "B", "1"))
	refused, blocked := "changes wait for away/all@out (connection refused)", "changes wait for blocked/all@out (not a directory)"
	interrupted := p.Start("run --until-idle")
	harness.Eventually(t, "the reasons", func() error {
		return saysAll(interrupted.Log.String(), refused, blocked)
	})
	interrupted.Terminate()
	require.Equal(t, 3, interrupted.Wait(), interrupted.Log.String())
	_, end, stopped := strings.Cut(interrupted.Log.String(), "stopped: ")
	require.True(t, stopped, interrupted.Log.String())
	require.NoError(t, saysAll(end, refused, blocked))
	require.Len(t, p.Whole("out/acme.jsonl"), 2, "the others are not waited for")

	next := p.Start("run --until-idle --json --timeout 10m")
	harness.Eventually(t, "the reasons", func() error { return saysAll(next.Log.String(), refused, blocked) })
	next.Terminate()
	require.Equal(t, 3, next.Wait())
	var s struct{ Left []pipeline.Wait }
	require.NoError(t, json.Unmarshal(next.Out.Bytes(), &s))
	var left []string
	for _, w := range s.Left {
		left = append(left, w.String())
	}
	require.ElementsMatch(t, []string{refused, blocked}, left)

	over := p.Start("run --until-idle --timeout 1s")
	require.Equal(t, 3, over.Wait())
	require.Contains(t, over.Log.String(), "stopped: ")
	usage := p.Start("run --timeout 3s")
	require.Equal(t, 2, usage.Wait())
}

// The mistake that this catches: everything is called ready while a service is
// paused and another one rejects every document.
func TestReadinessNamesServicesThatAreNotWell(t *testing.T) {
	t.Parallel()
	paused, rejects := harness.NewReceiver(t), harness.NewReceiver(t)
	paused.Answers(func(oracle.Record) int { return 401 })
	rejects.Answers(func(oracle.Record) int { return 422 })
	p := harness.Simple(t, "", map[string]string{
		"acme": harness.FileSink("acme"), "paused": harness.PatientHookSink(paused), "rejects": harness.PatientHookSink(rejects),
	})
	run := p.Start("run")
	run.Ready(200)
	health := func() (h operate.Health) {
		status, body := run.Get("/readyz")
		require.Equal(t, 200, status, "the process does its work")
		require.NoError(t, json.Unmarshal([]byte(body), &h), body)
		return h
	}
	require.Equal(t, operate.Health{Level: operate.LevelOK, Configured: 3}, health())
	p.Write("events.jsonl", harness.Event(1, "A", "1")+harness.Event(2, "B", "1")+harness.Event(3, "C", "1"))
	harness.Eventually(t, "both services", func() error {
		found := ""
		for _, s := range health().Services {
			found += fmt.Sprintf("%s %s %s %d; ", s.Level, s.Service, s.State, s.Refused)
		}
		return saysAll(found, "down paused/all@out paused 0; ", "down rejects/all@out running 3; ")
	})
	h := health()
	require.Equal(t, operate.LevelDegraded, h.Level)
	for _, s := range h.Services {
		require.Contains(t, s.Error, map[string]string{"paused/all@out": "401", "rejects/all@out": "422"}[s.Service])
		require.False(t, s.Since.IsZero())
		require.NotEmpty(t, s.Do)
	}
	harness.Eventually(t, "the metric", func() error {
		return harness.Want(fmt.Sprint(run.Metric("weir_service_health", `service="paused/all@out"`), run.Metric("weir_service_health", `service="acme/all@out"`)), "2 0")
	})
	run.Terminate()
	run.Ok()
}
