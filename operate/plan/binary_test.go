package plan_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/operate/plan"
	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { harness.Main(m) }

// project has 30 entities, a third of each state, and a candidate beside the
// configuration: acme gets those of state B no more and a new field.
func project(t *testing.T, more string) harness.Project {
	p := harness.Simple(t, more, map[string]string{"acme": harness.FileSink("acme"), "zest": harness.FileSink("zest")})
	lines := ""
	for i := range 30 {
		lines += harness.Event(i, fmt.Sprintf("E%02d", i), []string{"A", "B", "C"}[i%3])
	}
	p.Write("events.jsonl", lines)
	text := p.Read("weir.yaml")
	p.Write("next.yaml", harness.ReplaceOnce(t, text, "customers/*.yaml", "next/*.yaml"))
	for _, name := range []string{"acme", "zest"} {
		text := p.Read("customers/" + name + ".yaml")
		if name == "acme" {
			text = harness.ReplaceOnce(t, text, "fields: {id: id, state: state}", `{when: doc.state != "B", fields: {id: id, state: state, kind: {const: fruit}}`)
			text = strings.Replace(text, "  all:\n    {when: doc.state != \"B\", ", "  all:\n    when: doc.state != \"B\"\n    ", 1)
		}
		p.Write("next/"+name+".yaml", text)
	}
	return p
}

// ask runs plan --json for the candidate, which must end with a status.
func ask(p harness.Project, status int, args ...string) (e plan.Effect) {
	p.T.Helper()
	pr := p.StartAs("next.yaml", "plan --json", args...)
	require.Equal(p.T, status, pr.Wait(), harness.Tail(pr.Log.String(), 20))
	require.NoError(p.T, json.Unmarshal(pr.Out.Bytes(), &e))
	return e
}

// predicted checks the effect of the candidate.
func predicted(t *testing.T, e plan.Effect) {
	t.Helper()
	require.EqualValues(t, 30, e.Entities)
	require.Equal(t, "kept send 20 retract 10 unchanged 0 nothing 0 fail 0 anyway 0 newly held 0", line(&e, "acme/all@out"))
	require.Equal(t, "kept send 0 retract 0 unchanged 30 nothing 0 fail 0 anyway 0 newly held 0", line(&e, "zest/all@out"))
	require.Equal(t, "E00", e.Services[0].Samples[0].Entity)
	require.True(t, e.Services[0].Samples[0].Exact)
	require.JSONEq(t, `[{"path":"kind","after":"fruit"}]`, func() string { s, _ := json.Marshal(e.Services[0].Samples[0].Diff); return string(s) }())
	require.Empty(t, e.Notes)
}

// The prediction of plan comes true: the candidate starts, all entities move to it, and each
// service gets just the predicted changes.
func TestPredictionComesTrue(t *testing.T) {
	p := project(t, "")
	require.Equal(t, 1, p.StartAs("next.yaml", "plan").Wait(), "before anything has run")
	p.Drain()
	before := map[string]int{"acme": len(p.Records("out/acme.jsonl")), "zest": len(p.Records("out/zest.jsonl"))}
	require.Equal(t, map[string]int{"acme": 30, "zest": 30}, before)

	predicted(t, ask(p, 0, "--against", p.Path("weir.yaml")))
	predicted(t, ask(p, 3, "--against", p.Path("weir.yaml"), "--detailed-exitcode"))
	require.Equal(t, 0, p.Start("plan", "--detailed-exitcode").Wait(), "the active one has no effect")

	p.StartAs("next.yaml", "run --until-idle").Ok()
	p.StartAs("next.yaml", "replay --outdated --wait").Ok()
	p.StartAs("next.yaml", "run --until-idle").Ok()
	upserts, retracts := 0, 0
	for _, r := range p.Records("out/acme.jsonl")[30:] {
		if r.Op == "retract" {
			retracts++
		} else {
			upserts++
		}
	}
	require.Equal(t, []int{20, 10}, []int{upserts, retracts})
	require.Len(t, p.Records("out/zest.jsonl"), 30)
	require.Equal(t, 0, p.StartAs("next.yaml", "plan", "--detailed-exitcode").Wait(), "nothing is left to do")
}
