package e2e

import (
	"bytes"
	"io"
	"net/http"
	osexec "os/exec"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// guarded is a pipeline whose API wants tokens.
type guarded struct {
	harness.Project
	run     *harness.Process
	secrets []string // no log may show them
}

func newGuarded(t *testing.T) *guarded {
	return &guarded{Project: harness.NewProject(t, map[string]string{
		"weir.yaml": `
sources:
  orders: {http: {}, entity: id, event_id: event, mount: orders}
  lab: {http: {token: "the-lab-has-its-own-token"}, entity: id, event_id: event, mount: lab}
customers: ["customers/*.yaml"]
admin: {listen: "127.0.0.1:0"}
api: {listen: "127.0.0.1:0", tokens: tokens.yaml}
log: {level: debug}
`,
		"customers/acme.yaml": "customer: acme\nchecks: {crm: {}}\n",
		"customers/beta.yaml": "customer: beta\nchecks: {crm: {}}\n",
	}), secrets: []string{"the-lab-has-its-own-token", "hunter2"}}
}

// token makes one; its entry is added to the file.
func (g *guarded) token(flags string) string {
	g.T.Helper()
	args := append([]string{"token", "new", "--file", g.Path("tokens.yaml")}, strings.Fields(flags)...)
	cmd := osexec.Command(harness.Binary(g.T), args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	require.NoError(g.T, cmd.Run(), errs.String())
	token := strings.TrimSpace(out.String())
	g.secrets = append(g.secrets, token)
	return token
}

// post sends JSON and returns the status of the answer.
func (g *guarded) post(path, token, body string) int {
	g.T.Helper()
	r, err := http.NewRequest(http.MethodPost, "http://"+g.run.Address("ingest")+path, strings.NewReader(body))
	require.NoError(g.T, err)
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(r)
	require.NoError(g.T, err)
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	require.NoError(g.T, err)
	return resp.StatusCode
}

func (g *guarded) await(what string, want int, path, token, body string) {
	g.T.Helper()
	harness.Eventually(g.T, what, func() error { return harness.Want(g.post(path, token, body), want) })
}

const (
	toOrders = "/v1/sources/orders/events"
	toLab    = "/v1/sources/lab/events"
	anEvent  = `{"event":"e1","id":"X","password":"hunter2"}`
	aCheck   = `{"entity":"X","payload":{"password":"hunter2"},"event_id":"c1"}`
)

// I11: a token has its own permissions, on its own objects, and no others; tokens
// come and go while the process runs.
func TestTokensOfTenants(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
	first := g.token("--tenant acme --may ingest,check --source orders")
	other := g.token("--tenant beta --may check")
	g.run = g.Start("run")
	g.run.Ready(http.StatusOK)

	for _, c := range []struct {
		name, path, token, body string
		status                  int
	}{
		{"own source", toOrders, first, anEvent, 202},
		{"own service", "/v1/services/acme%2Fcrm@check/check", first, aCheck, 200},
		{"own service, two segments", "/v1/services/acme/crm@check/check", first, aCheck, 200},
		{"the source's token", toLab, "the-lab-has-its-own-token", anEvent, 202},
		{"no token, although on loopback", toOrders, "", anEvent, 401},
		{"a token of nobody", toOrders, first[:len(first)-4] + "AAAA", anEvent, 401},
		{"another source", toLab, first, anEvent, 403},
		{"another tenant's service", "/v1/services/beta%2Fcrm@check/check", first, aCheck, 403},
		{"another tenant's service, two segments", "/v1/services/beta/crm@check/check", first, aCheck, 403},
		{"a verb that it has not", toOrders, other, anEvent, 403},
		{"the source's token elsewhere", toOrders, "the-lab-has-its-own-token", anEvent, 403},
		{"the source's token for a check", "/v1/services/acme%2Fcrm@check/check", "the-lab-has-its-own-token", aCheck, 403},
	} {
		assert.Equal(t, c.status, g.post(c.path, c.token, c.body), c.name)
	}

	second := g.token("--tenant acme --may ingest --source orders")
	g.await("the second token", 202, toOrders, second, anEvent)
	assert.Equal(t, 202, g.post(toOrders, first, anEvent), "both are valid while one replaces the other")

	// A wrong file changes nothing, and is told.
	text := g.Read("tokens.yaml")
	good := text
	g.Replace("tokens.yaml", good+"  - id: NOT AN ID\n")
	harness.Eventually(t, "the wrong file is told", func() error {
		if err := harness.Want(g.post(toOrders, first, anEvent), 202); err != nil {
			return err
		}
		return harness.Want(g.run.Metric("weir_file_refused", `file="tokens"`), 1)
	})
	require.Equal(t, 1, strings.Count(g.run.Log.String(), "event=file.refused"))

	entries := strings.SplitAfter(good, "  - id: ")
	require.Len(t, entries, 4)
	g.Replace("tokens.yaml", "tokens:\n  - id: "+entries[3])
	harness.Eventually(t, "the first token is gone", func() error { // asked often, it is limited, too
		if status := g.post(toOrders, first, anEvent); status != 429 {
			return harness.Want(status, 401)
		}
		return nil
	})
	assert.Equal(t, 202, g.post(toOrders, second, anEvent))
	harness.Eventually(t, "the file is a good one again", func() error {
		return harness.Want(g.run.Metric("weir_file_refused", `file="tokens"`), 0)
	})

	g.run.Terminate()
	g.run.Ok()
	for _, secret := range g.secrets {
		assert.NotContains(t, g.run.Log.String(), secret, "the log of all levels shows no token and no payload")
	}
}
