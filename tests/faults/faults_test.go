package faults

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/seed-86dfc502/weir/tests/harness"
)

// Every fault of a target, source, disk or event has a line of its own: the cause in the
// target's words, since when, the next try and the remedy.
func TestFaultsAtRunTime(t *testing.T) {
	targets := slices.Concat(webhooks(t), postgresTargets(t), clickhouseTargets(t), kafkaTargets(t), files(t))
	var sinks, sources strings.Builder
	for i := range targets {
		f := &targets[i]
		name := strings.ToLower(f.name)
		if f.what = strings.Replace(f.what, f.name, name, 1); f.what == "" {
			f.what = "acme/all@" + name
		}
		fmt.Fprintf(&sinks, "      %s: %s\n", name, f.yaml)
	}
	inputs := sourceFaults(t)
	for i := range inputs {
		f := &inputs[i]
		if f.what == "" {
			f.what = "source " + f.name
		}
		fmt.Fprintf(&sources, "  %s: {%s}\n", f.name, f.yaml)
	}
	gate := fault{what: "gate", why: "refused", do: "gate.valkey"}
	p := harness.NewProject(t, map[string]string{
		"weir.yaml":           strings.Replace(harness.SimpleMain, "customers:", sources.String()+"customers:", 1) + fmt.Sprintf("gate: {valkey: {address: %q}}\n", harness.FreeAddress(t)),
		"events.jsonl":        harness.Event(1, "E1", "ripe"),
		"customers/acme.yaml": "customer: acme\nprojections:\n  all:\n    fields: {id: id, state: state}\n    deliver:\n" + sinks.String(),
	})
	p.Start("run")
	requireSaid(t, p, slices.Concat(targets, inputs, []fault{gate}))
}
