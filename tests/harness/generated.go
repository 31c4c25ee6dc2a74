package harness

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/seed-86dfc502/weir/operate/demo"
	"github.com/seed-86dfc502/weir/tests/oracle"
	"github.com/stretchr/testify/require"
)

// Generated is the model of the configuration that demo.Write makes for six customers.
func Generated() oracle.Config {
	f := func(to, from string) oracle.Field { return oracle.Field{To: to, From: from} }
	view := func(n int, name string, when func(any) bool, fields ...oracle.Field) oracle.Projection {
		return oracle.Projection{Services: []string{fmt.Sprintf("customer-%02d/%s@archive", n, name)}, When: when, Fields: fields}
	}
	source := func(name string) oracle.Source {
		return oracle.Source{Name: name, Entity: "meta.banana_id", EventID: "meta.event_id", Operation: "meta.op", Payload: "data"}
	}
	registry, lab, market := source("registry"), source("lab"), source("market")
	registry.Sequence = "meta.lsn"
	lab.Patch, lab.Mount, market.Mount = true, "lab", "market"
	return oracle.Config{
		Sources: []oracle.Source{registry, lab, market}, Required: []string{"registry"},
		Strip: map[string][]string{
			"registry": {"updated_at", "trace_id"}, "lab": {"updated_at", "trace_id"}, "market": {"**.updated_at", "**.trace_id"},
		},
		Projection: []oracle.Projection{
			view(1, "list", nil, f("banana_id", "id"), f("variety", "variety")),
			view(2, "ripeness", func(d any) bool { o := oracle.At(d, "origin"); return o == "EC" || o == "CO" },
				f("banana_id", "id"), f("ripeness.level", "lab.ripeness_level"), f("ripeness.firmness", "lab.firmness"), oracle.Field{To: "kind", Const: "banana"}),
			view(3, "pricing", nil, f("id", "id"), f("price", "market.price"), oracle.Field{To: "currency", From: "market.currency", Default: "EUR"}, f("grade", "grade")),
			view(4, "logistics", nil, f("id", "id"), f("container", "container"), f("lot", "lot"),
				oracle.Field{To: "weight", From: "weight", Default: json.Number("0")}, f("length_mm", "length_mm")),
			view(5, "quality", func(d any) bool {
				n, ok := oracle.At(d, "lab.firmness").(json.Number)
				v, err := n.Float64()
				return ok && err == nil && v > 40
			}, f("id", "id"), f("sugar", "lab.sugar"), f("residues", "lab.residues"), f("inspector", "lab.inspector")),
			view(6, "labels", func(d any) bool { return oracle.At(d, "organic") == true },
				f("id", "id"), f("tags", "tags.#.name"), f("farm.name", "farm.name"), f("farm.certified", "farm.certified")),
		},
	}
}

// Generate makes a project with generated events and six customers.
func Generate(t testing.TB, seed, entities, events int) Project {
	p := Project{T: t, Dir: t.TempDir()}
	require.NoError(t, demo.Write(p.Dir, demo.Options{Seed: uint64(seed), Entities: entities, Events: events, Customers: 6}))
	return p
}

// Records reads the file of a sink; every line must be whole.
func (p Project) Records(name string) []oracle.Record {
	p.T.Helper()
	return p.RecordsUpTo(name, false)
}

// RecordsUpTo reads the file of a sink; torn allows a last line that is not whole.
func (p Project) RecordsUpTo(name string, torn bool) []oracle.Record {
	p.T.Helper()
	text, err := os.ReadFile(p.Path(name))
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(p.T, err)
	var all []oracle.Record
	for line := range bytes.Lines(text) {
		if torn && !bytes.HasSuffix(line, []byte("\n")) {
			break
		}
		require.True(p.T, bytes.HasSuffix(line, []byte("\n")), "%s ends in a torn line", name)
		var r oracle.Record
		require.NoError(p.T, json.Unmarshal(line, &r), name)
		all = append(all, r)
	}
	return all
}

// CheckGenerated compares all outputs of a generated project with the model.
func CheckGenerated(p Project) {
	p.T.Helper()
	input := ReadLines(p.T, map[string]string{"registry": p.Path("registry.jsonl"), "lab": p.Path("lab.jsonl"), "market": p.Path("market.jsonl")})
	config := Generated()
	want, err := oracle.Run(config, ModelEvents(p.T, 1, p.Inbox(), input.Find))
	require.NoError(p.T, err)
	input.Complete()
	for i, v := range config.Projection {
		service := v.Services[0]
		require.NotEmpty(p.T, want[service], service)
		require.NoError(p.T, oracle.CheckLog(want, service, p.Records(fmt.Sprintf("out/customer-%02d.jsonl", i+1))))
	}
}
