package page_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/api/checks"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/operate/page"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
)

// An entity that only a check service knows is explained, and what its caller
// sent is always text in the page.
func TestExplainShowsCheckServices(t *testing.T) {
	const name = "acme/crm@check"
	w := newWorld(t, func(o *page.Options) {
		o.Config().Checks = config.Checks{{Customer: "acme", Name: "crm"}}
	})
	numbers, err := w.store.Services(t.Context(), []string{name})
	require.NoError(t, err)
	row, _, err := checks.Decide(name, store.CheckRow{Key: store.Key{Service: numbers[name], Entity: script}},
		checks.Request{Entity: script, Content: checks.Given("A"), EventID: "e-1", Sequence: script}, time.UnixMicro(4711))
	require.NoError(t, err)
	_, err = w.store.SwapCheckRows(t.Context(), []store.CheckRow{row})
	require.NoError(t, err)
	as, _ := w.signIn(token)
	status, body := w.get("/explain?entity="+url.QueryEscape(script)+"&service="+url.QueryEscape(name), as)
	require.Equal(t, 200, status)
	require.Contains(t, body, "check services were asked about it")
	require.Contains(t, strings.ReplaceAll(body, "<wbr>", ""), ">"+name+"</span>: open")
	require.Contains(t, body, "Version 4711 is not confirmed")
	require.Contains(t, body, `name="service" value="`+name)
	require.NotContains(t, body, script)
	status, _ = w.get("/explain?entity=x&service=acme/none@check", as)
	require.Equal(t, 404, status)
}
