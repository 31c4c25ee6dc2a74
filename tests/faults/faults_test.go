package faults

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/tests/harness"
)

// Every fault of a target has a line of its own: the cause in its words, since when, the next
// try and the remedy.
func TestFaultsOfTargets(t *testing.T) {
	faults := slices.Concat(webhooks(t), postgresTargets(t))
	var sinks strings.Builder
	for i := range faults {
		f := &faults[i]
		name := strings.ToLower(f.name)
		if f.what = strings.Replace(f.what, f.name, name, 1); f.what == "" {
			f.what = "acme/all@" + name
		}
		fmt.Fprintf(&sinks, "      %s: %s\n", name, f.yaml)
	}
	p := harness.NewProject(t, map[string]string{
		"weir.yaml":           harness.SimpleMain,
		"events.jsonl":        harness.Event(1, "E1", "ripe"),
		"customers/acme.yaml": "customer: acme\nprojections:\n  all:\n    fields: {id: id, state: state}\n    deliver:\n" + sinks.String(),
	})
	p.Start("run")
	requireSaid(t, p, faults)
}
