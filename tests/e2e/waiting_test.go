package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/pipeline"
	"github.com/seed-86dfc502/weir/tests/harness"
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
