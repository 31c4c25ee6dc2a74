package explain_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/api/checks"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/operate/explain"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
)

// What each state of a check row is called, and that the sentence for it is true:
// the same content is decided as it says.
func TestCheckStandings(t *testing.T) {
	const crm, entity = "acme/crm@check", "B-007"
	ask := func(row store.CheckRow, content string) (store.CheckRow, checks.Answer) {
		next, a, err := checks.Decide(crm, row, checks.Request{Entity: entity, Content: checks.Given(content), EventID: content + "-1", Sequence: "12"}, time.UnixMicro(1000))
		require.NoError(t, err)
		next.Found = true
		return next, a
	}
	confirmed := func(row store.CheckRow) store.CheckRow {
		next, err := checks.Confirm(row, row.Version)
		require.NoError(t, err)
		return next
	}
	released := func(row store.CheckRow, o checks.Outcome) store.CheckRow {
		next, r, err := checks.Release(row, row.Version, o)
		require.NoError(t, err)
		require.True(t, r.Done)
		return next
	}
	a, _ := ask(store.CheckRow{}, "A")
	b, _ := ask(confirmed(a), "B")
	reset, err := checks.Reset(confirmed(a))
	require.NoError(t, err)
	hash := checks.Given("A").String()
	for name, c := range map[string]struct {
		row  store.CheckRow
		want explain.Check
		same checks.Decision // what A is
	}{
		"confirmed": {confirmed(a), explain.Check{
			Standing: explain.CheckConfirmed, Version: 1000, Confirmed: 1000, Hash: hash, Given: true, Sequence: "12", Events: 1,
			Why: "Version 1000 is confirmed: the same content is a duplicate; another one passes; with a sequence below 12 it is stale.",
		}, checks.Duplicate},
		"open": {a, explain.Check{
			Standing: explain.CheckOpen, Version: 1000, Hash: hash, Given: true, Sequence: "12", Events: 1,
			Why: "Version 1000 is not confirmed: the same content passes again, with that version and its key; another one passes with a higher version; with a sequence below 12 it is stale.",
		}, checks.Pass},
		"refused": {released(b, checks.Refused), explain.Check{
			Standing: explain.CheckRefused, Version: 1001, Confirmed: 1000, Hash: hash, Given: true, Sequence: "12", Events: 2,
			Why: "Version 1001 was refused, so the content of version 1000, which is confirmed, is current again: that one is a duplicate; any other passes; with a sequence below 12 it is stale.",
		}, checks.Duplicate},
		"reset": {reset, explain.Check{
			Standing: explain.CheckUnknown, Version: 1000, Confirmed: 1000, Sequence: "12", Events: 1,
			Why: "Version 1000 was released or reset, so the receiver's content is unknown: the next content passes, the same or another, with a higher version; with a sequence below 12 it is stale.",
		}, checks.Pass},
		"given back": {released(a, checks.Unknown), explain.Check{
			Standing: explain.CheckUnknown, Version: 1000, Sequence: "12", Events: 1,
			Why: "Version 1000 was released or reset, so the receiver's content is unknown: the next content passes, the same or another, with a higher version; with a sequence below 12 it is stale.",
		}, checks.Pass},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.config.Checks = config.Checks{{Customer: "acme", Name: "crm"}, {Customer: "acme", Name: "web"}, {Customer: "acme", Name: "new"}}
			w.checked = map[int32]store.CheckRow{71: c.row}
			c.want.Service = crm
			x := w.explain(nil)
			require.Equal(t, []explain.Check{c.want}, x.Checks, "those that were asked")
			require.False(t, x.Found)
			var text bytes.Buffer
			require.NoError(t, x.Write(&text, false))
			require.Contains(t, text.String(), "Check services\n  "+crm+": "+string(c.want.Standing)+"\n    version 100")
			_, answer := ask(c.row, "A")
			require.Equal(t, c.same, answer.Decision)

			w.event("registry", "", "", `{"id":"B-007","origin":"EC","level":1}`)
			only := w.explain(func(in *explain.Input) { in.Service = crm })
			require.True(t, only.Found)
			require.Empty(t, only.Services)
			require.Len(t, only.Checks, 1)
			other := w.explain(func(in *explain.Input) { in.Service = ripe })
			require.Empty(t, other.Checks)
			require.Len(t, other.Services, 1)
		})
	}
	w := newWorld(t)
	w.config.Checks = config.Checks{{Customer: "acme", Name: "crm"}}
	w.checked = map[int32]store.CheckRow{71: {Found: true, Memory: []byte("nonsense")}}
	_, err = explain.Explain(t.Context(), explain.Input{Config: w.config, Store: w, Entity: entity})
	require.ErrorContains(t, err, crm)
}
