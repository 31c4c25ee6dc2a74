package checks

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/client"
	"github.com/seed-86dfc502/weir/tests/harness"
)

type explained struct {
	Found    bool
	Services []struct{ Service string }
	Checks   []struct {
		Service, Standing, Sequence, Why string
		Version                          uint64
		Confirmed                        uint64 `json:"confirmed_version"`
		Events                           int    `json:"events_remembered"`
	}
}

// explain shows the state of a check service, also of an entity that no source
// brought, while a process runs and while none does.
func TestExplain(t *testing.T) {
	p := project(t, "")
	p.Append("events.jsonl", `{"id":"both"}`+"\n")
	pr := run(p, "run")
	crm := service(t, pr, "acme/crm@check")
	open, err := crm.Check(t.Context(), client.Check{Entity: "banana-1", Payload: 1, EventID: "e-1", Sequence: "3"})
	require.NoError(t, err)
	both, err := crm.Check(t.Context(), client.Check{Entity: "both", Hash: "b1946ac9"})
	require.NoError(t, err)
	require.NoError(t, crm.Confirm(t.Context(), "both", both.Version))
	ask := func(args ...string) (x explained) {
		t.Helper()
		require.NoError(t, json.Unmarshal([]byte(p.Start("explain --json", args...).Ok()), &x))
		return x
	}
	look := func() {
		t.Helper()
		x := ask("banana-1")
		require.False(t, x.Found)
		require.Len(t, x.Checks, 1)
		require.Equal(t, []any{"acme/crm@check", "open", open.Version, uint64(0), "3", 1},
			[]any{x.Checks[0].Service, x.Checks[0].Standing, x.Checks[0].Version, x.Checks[0].Confirmed, x.Checks[0].Sequence, x.Checks[0].Events})
		text := p.Start("explain banana-1").Ok()
		require.Contains(t, text, `No source brought an entity "banana-1"; check services were asked about it.`)
		require.Contains(t, strings.Join(strings.Fields(text), " "), fmt.Sprintf("Version %d is not confirmed: the same content passes again", open.Version))
		nobody := p.Start("explain nobody")
		require.Equal(t, 1, nobody.Wait())
	}
	look()
	harness.Eventually(t, "the source's entity", func() error {
		return harness.Want(ask("both", "--service", "acme/crm@check").Found, true)
	})
	x := ask("both")
	require.Equal(t, "confirmed", x.Checks[0].Standing)
	require.Equal(t, both.Version, x.Checks[0].Confirmed)
	stop(t, pr)
	look()
}

// The first check service of a process without the API's listener: the reload
// is refused with the reason, and a restart serves it.
func TestFirstCheckNeedsARestart(t *testing.T) {
	with := `customer: acme
projections:
  all: {fields: {id: id}, deliver: {out: {file: {path: ../out/acme.jsonl}}}}
`
	p := harness.NewProject(t, map[string]string{
		"weir.yaml": harness.ReplaceOnce(t, fmt.Sprintf(mainFile, ""), "api: {listen: \"127.0.0.1:0\"}\n", ""), "events.jsonl": "", "customers/acme.yaml": with,
	})
	pr := p.Start("run")
	pr.Ready(200)
	p.Write("customers/acme.yaml", with+"checks: {crm: {}}\n")
	refused := p.Start("reload")
	require.Equal(t, 2, refused.Wait())
	require.Contains(t, refused.Log.String(), "a restart is needed for the first check service (acme/crm@check)")
	require.NoError(t, pr.Cmd.Process.Signal(syscall.SIGHUP))
	pr.SaysTimes("not reloaded", 2) // at the command, and at the signal
	require.EqualValues(t, 1, pr.Metric("weir_reload_refused"))
	pr.Ready(200)
	require.False(t, pr.Ended())
	p.Write("customers/acme.yaml", with)
	require.Contains(t, p.Start("reload").Ok(), "Nothing has changed")
	stop(t, pr)

	// Where the process starts, the port is a free one: the default may be taken here.
	p.Write("weir.yaml", fmt.Sprintf(mainFile, ""))
	p.Write("customers/acme.yaml", with+"checks: {crm: {}}\n")
	pr = run(p, "run")
	a, err := service(t, pr, "acme/crm@check").Check(t.Context(), client.Check{Entity: "banana-1", Payload: 1})
	require.NoError(t, err)
	require.Equal(t, client.Pass, a.Decision)

	// From then on check services come and go like others, and are named.
	p.Write("customers/acme.yaml", with+"checks: {crm: {}, erp: {}}\n")
	said := p.Start("reload").Ok()
	require.Contains(t, said, "with 1 service and 2 check services")
	require.Contains(t, said, "New: acme/erp@check\n")
	require.NotContains(t, said, "replay", "nothing is sent to it")
	p.Write("customers/acme.yaml", with+"checks: {erp: {}}\n")
	require.Contains(t, p.Start("reload").Ok(), "Removed, their state is kept: acme/crm@check\n")
	stop(t, pr)
}
