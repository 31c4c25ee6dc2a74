package explain_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/operate/explain"
	"github.com/seed-86dfc502/weir/sinks/file"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
)

// The mistakes that this catches: "evaluated", which leaves open whether a change was
// sent; a history that the refusals of another service fill; letters of others.
func TestHistoryOfAService(t *testing.T) {
	w := newWorld(t)
	w.event("registry", "e1", "1", `{"id":"B-007","origin":"EC","level":1}`)
	w.event("registry", "e2", "2", `{"id":"B-007","origin":"PH","level":1}`)
	w.event("registry", "e3", "3", `{"id":"B-007","origin":"PH","level":2}`)
	w.event("registry", "e4", "4", `{"id":"B-007","origin":"EC","level":2}`)
	w.event("registry", "e5", "5", `{"id":"B-007","origin":"CO","level":2}`)
	for i := range 10 {
		w.decide(change.Record{Entity: "B-007", Control: &change.Control{ID: fmt.Sprint(i), Action: change.Refuse, Services: []string{hook}, Version: change.NewVersion(1, 0), Actor: change.Deliver}})
	}
	w.decide(change.Record{Entity: "B-007", Control: &change.Control{ID: "job-4", Action: change.Redecide, Services: []string{hook}, Actor: "ada"}})
	w.dead = []store.DeadLetter{{ID: 7, Stage: store.StageDeliver, Code: "refused", Service: hook, Entity: "B-007", Version: change.NewVersion(1, 0)}}

	x := w.explain(func(in *explain.Input) { in.Service = ripe })
	require.Equal(t, []string{"sent", "sent", "pruned", "delivered", "held back"}, x.Services[0].Events)
	require.Empty(t, x.Letters)
	x = w.explain(nil)
	require.Len(t, x.Letters, 1)
	require.Len(t, x.Events, 6)
	require.Equal(t, "-", x.Services[0].Events[5], "the job was about another service")
	var text bytes.Buffer
	require.NoError(t, x.Write(&text, false))
	require.Contains(t, text.String(), "job 4")
}

// The mistake that this catches: names and documents are cut where a program reads
// them, and many services are broken into blocks that cannot be compared.
func TestFormForPrograms(t *testing.T) {
	w := newWorld(t)
	long := strings.Repeat("a name that is long ", 20)
	id := strings.Repeat("e", 30)
	w.event("registry", id, "1", `{"id":"B-007","origin":"EC","level":"`+long+`"}`)
	write := func(full bool) string {
		var text bytes.Buffer
		require.NoError(t, w.explain(nil).Write(&text, full))
		return text.String()
	}
	require.NotContains(t, write(false), long)
	require.Contains(t, write(true), long)
	require.Contains(t, write(true), id)

	more := w.config.Projections[1].Deliver[0]
	for _, name := range []string{"second", "third-of-the-archives-with-a-long-name"} {
		more.Name, more.Sink = name, &file.Config{Path: name}
		w.config.Projections[1].Deliver = append(w.config.Projections[1].Deliver, more)
	}
	text := write(false)
	require.Contains(t, text, "  SERVICE  ")
	require.Contains(t, text, "[1] 1:0 registry ")
	for _, s := range w.config.Services() {
		require.Regexp(t, `(?m)^  `+s.Name+` +(sent|not yet sent) `, text)
	}
}
