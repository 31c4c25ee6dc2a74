package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/operate/explain"
	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/stretchr/testify/require"
)

// "Did acme get B-007, and what did their server answer?" A customer's server answers
// 500 with a text, then takes the update: both attempts are on record, for the
// command and for explain, and none of them steers a terminal.
func TestDeliveriesAreOnRecord(t *testing.T) {
	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Secret", "hidden-header")
		if requests.Add(1) == 1 {
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprint(w, "the database sleeps \x1b[2J")
			return
		}
		fmt.Fprint(w, `{"stored":true}`)
	}))
	defer server.Close()
	hook := fmt.Sprintf("{webhook: {url: %q, secret: %q, timeout: 5m}, retry: {min_backoff: 10ms, max_backoff: 100ms}}", server.URL, harness.WebhookSecret)
	p := harness.Simple(t, "", map[string]string{"acme": hook, "zest": harness.FileSink("zest")})
	p.Write("events.jsonl", harness.Event(1, "B-007", "ripe"))
	run := p.Start("run --until-idle")
	require.Zero(t, run.Wait(), harness.Tail(run.Log.String(), 20))

	ask := func(status int, command string, into any, args ...string) string {
		t.Helper()
		pr := p.Start(command, args...)
		require.Equal(t, status, pr.Wait(), harness.Tail(pr.Log.String(), 20))
		if into != nil {
			require.NoError(t, json.Unmarshal(pr.Out.Bytes(), into))
		}
		return pr.Out.String()
	}
	var all []operate.Delivery
	text := ask(0, "deliveries --json", &all, "--entity", "B-007", "--service", "acme/all@out", "--since", "1d")
	require.NotContains(t, text, "hidden-header")
	require.Len(t, all, 2)
	require.Equal(t, []any{"failed", 500, "the database sleeps \x1b[2J"}, []any{all[0].Outcome, all[0].Status, all[0].Answer})
	require.Equal(t, []any{"delivered", 200, `{"stored":true}`}, []any{all[1].Outcome, all[1].Status, all[1].Answer})
	require.Equal(t, all[0].Version, all[1].Version)
	require.False(t, all[1].At.Before(all[0].At))

	text = ask(0, "deliveries", nil, "--entity", "B-007")
	require.Contains(t, text, `"the database sleeps \x1b[2J"`)
	require.Contains(t, text, `{"stored":true}`)
	require.NotContains(t, text, "\x1b")
	require.NotContains(t, text, "zest", "a file has what it was given")
	require.Contains(t, ask(0, "deliveries", nil, "--entity", "B-008"), "no attempts are kept")
	require.Contains(t, ask(0, "deliveries", nil, "--until", "1h"), "no attempts are kept")
	ask(2, "deliveries", nil, "--service", "acme/all@nowhere")
	ask(2, "deliveries", nil, "--since", "yesterday")

	var x explain.Explanation
	ask(0, "explain --json", &x, "B-007")
	require.Equal(t, all, x.Deliveries)
}
