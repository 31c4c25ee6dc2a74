package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/e2e/model"
	"github.com/stretchr/testify/require"
)

// generated is the model of the configuration that pipeline generate writes
// for six customers.
func generated() model.Config {
	f := func(to, from string) model.Field { return model.Field{To: to, From: from} }
	view := func(n int, name string, when func(any) bool, fields ...model.Field) model.Projection {
		return model.Projection{Services: []string{fmt.Sprintf("customer-%02d/%s@archive", n, name)}, When: when, Fields: fields}
	}
	source := func(name string) model.Source {
		return model.Source{Name: name, Entity: "meta.banana_id", EventID: "meta.event_id", Operation: "meta.op", Payload: "data"}
	}
	registry, lab, market := source("registry"), source("lab"), source("market")
	registry.Sequence = "meta.lsn"
	lab.Patch, lab.Mount, market.Mount = true, "lab", "market"
	return model.Config{
		Sources: []model.Source{registry, lab, market}, Required: []string{"registry"},
		Strip: map[string][]string{
			"registry": {"updated_at", "trace_id"}, "lab": {"updated_at", "trace_id"}, "market": {"**.updated_at", "**.trace_id"},
		},
		Projection: []model.Projection{
			view(1, "list", nil, f("banana_id", "id"), f("variety", "variety")),
			view(2, "ripeness", func(d any) bool { o := model.At(d, "origin"); return o == "EC" || o == "CO" },
				f("banana_id", "id"), f("ripeness.level", "lab.ripeness_level"), f("ripeness.firmness", "lab.firmness"), model.Field{To: "kind", Const: "banana"}),
			view(3, "pricing", nil, f("id", "id"), f("price", "market.price"), model.Field{To: "currency", From: "market.currency", Default: "EUR"}, f("grade", "grade")),
			view(4, "logistics", nil, f("id", "id"), f("container", "container"), f("lot", "lot"),
				model.Field{To: "weight", From: "weight", Default: json.Number("0")}, f("length_mm", "length_mm")),
			view(5, "quality", func(d any) bool {
				n, ok := model.At(d, "lab.firmness").(json.Number)
				v, err := n.Float64()
				return ok && err == nil && v > 40
			}, f("id", "id"), f("sugar", "lab.sugar"), f("residues", "lab.residues"), f("inspector", "lab.inspector")),
			view(6, "labels", func(d any) bool { return model.At(d, "organic") == true },
				f("id", "id"), f("tags", "tags.#.name"), f("farm.name", "farm.name"), f("farm.certified", "farm.certified")),
		},
	}
}

// generate makes a project with generated events and six customers.
func generate(t testing.TB, seed, entities, events int) project {
	p := project{t, t.TempDir()}
	out, err := exec.Command(binary, "generate", p.dir, "--seed", fmt.Sprint(seed), "--entities", fmt.Sprint(entities),
		"--events", fmt.Sprint(events), "--customers", "6").CombinedOutput()
	require.NoError(t, err, string(out))
	return p
}

// records reads what a file sink wrote; every line must be whole.
func (p project) records(name string) []model.Record {
	p.t.Helper()
	return p.recordsUpTo(name, false)
}

func (p project) recordsUpTo(name string, torn bool) []model.Record {
	p.t.Helper()
	text, err := os.ReadFile(p.path(name))
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(p.t, err)
	var all []model.Record
	for line := range bytes.Lines(text) {
		if torn && !bytes.HasSuffix(line, []byte("\n")) {
			break
		}
		require.True(p.t, bytes.HasSuffix(line, []byte("\n")), "%s ends in a torn line", name)
		var r model.Record
		require.NoError(p.t, json.Unmarshal(line, &r), name)
		all = append(all, r)
	}
	return all
}

// checkGenerated compares all outputs of a generated project with the model.
func checkGenerated(p project) {
	p.t.Helper()
	input := readLines(p.t, map[string]string{"registry": p.path("registry.jsonl"), "lab": p.path("lab.jsonl"), "market": p.path("market.jsonl")})
	config := generated()
	want, err := model.Run(config, modelEvents(p.t, 1, p.embeddedInbox(), input.find))
	require.NoError(p.t, err)
	input.complete()
	for i, v := range config.Projection {
		service := v.Services[0]
		require.NotEmpty(p.t, want[service], service)
		require.NoError(p.t, model.CheckLog(want, service, p.records(fmt.Sprintf("out/customer-%02d.jsonl", i+1))))
	}
}

// I1, I2, I4, I6, I11: what comes out is what the model says, once and in
// order; a second run finds nothing to do.
func TestEmbeddedDeliversWhatTheModelSays(t *testing.T) {
	p := generate(t, 1, 300, 4000)
	first := p.drain()
	require.EqualValues(t, 4000, first.Read)
	require.Positive(t, first.Repeated)
	require.Positive(t, first.Stale)
	require.Positive(t, first.Noise)
	require.Zero(t, first.Dead)
	checkGenerated(p)

	second := p.drain()
	require.Zero(t, second.Read)
	require.Zero(t, second.delivered())
	checkGenerated(p)
}

// I1, I2, I4, I5: kill -9 at random moments loses nothing, repeats nothing in
// the files and keeps the order.
func TestEmbeddedSurvivesKills(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some ten seconds")
	}
	p := generate(t, 2, 300, 6000)
	random := rand.New(rand.NewPCG(2, 2))
	for range 5 {
		run := p.start("run --until-idle")
		// The moments are spread over opening, the load and its end.
		select {
		case <-run.done:
			require.Zero(t, run.code)
		case <-time.After(time.Duration(100+random.IntN(1400)) * time.Millisecond):
			run.kill()
		}
	}
	p.drain()
	checkGenerated(p)
	require.Zero(t, p.drain().Read)
}
