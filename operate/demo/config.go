package demo

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const mainFile = `# Written by weir demo. Everything runs inside the process: broker,
# state and gate are under data/, the customers' files under out/.
sources:
  registry:
    file: {path: registry.jsonl}
    entity: meta.banana_id
    event_id: meta.event_id
    operation: meta.op
    sequence: meta.lsn          # an older one never overwrites a newer one
    payload: data
    strip: [updated_at, trace_id]
  lab:
    file: {path: lab.jsonl}
    entity: meta.banana_id
    event_id: meta.event_id
    operation: meta.op
    payload: data
    mode: patch
    mount: lab
    strip: [updated_at, trace_id]
  market:
    file: {path: market.jsonl}
    entity: meta.banana_id
    event_id: meta.event_id
    operation: meta.op
    payload: data
    mount: market
    strip: ["**.updated_at", "**.trace_id"]
merge: {precedence: [registry, lab, market], required: [registry]}
customers: ["customers/*.yaml"]
# One process and one disk: few partitions mean few writes that must be synced.
kafka: {inbox: {partitions: 4}}
admin: {listen: "off"}
log: {level: warn}
`

// views are the projections that customers have, in turn.
var views = []struct{ name, when, fields string }{
	{"list", "", "banana_id: id\n      variety: variety"},
	{"ripeness", `doc.origin in ["EC", "CO"]`, "banana_id: id\n      ripeness.level: lab.ripeness_level\n      ripeness.firmness: lab.firmness\n      kind: {const: banana}"},
	{"pricing", "", "id: id\n      price: market.price\n      currency: {path: market.currency, default: EUR}\n      grade: grade"},
	{"logistics", "", "id: id\n      container: container\n      lot: lot\n      weight: {path: weight, default: 0}\n      length_mm: length_mm"},
	{"quality", `doc.lab.firmness > 40`, "id: id\n      sugar: lab.sugar\n      residues: lab.residues\n      inspector: lab.inspector"},
	{"labels", "doc.organic == true", "id: id\n      tags: tags.#.name\n      farm.name: farm.name\n      farm.certified: farm.certified"},
	{"farms", "", "id: id\n      farm: farm\n      harvested_on: harvested_on\n      origin: origin"},
	{"demand", `doc.market.demand != "low"`, "id: id\n      demand: market.demand\n      reserved_for: market.reserved_for\n      organic: organic"},
}

func writeConfig(dir string, customers int) error {
	files := map[string]string{"weir.yaml": mainFile}
	for i := range customers {
		name := fmt.Sprintf("customer-%02d", i+1)
		v := views[i%len(views)]
		var b strings.Builder
		// The stream of months passes in seconds: no guard.
		fmt.Fprintf(&b, "customer: %s\nguard: off\nprojections:\n  %s:\n", name, v.name)
		if v.when != "" {
			fmt.Fprintf(&b, "    when: '%s'\n", v.when)
		}
		fmt.Fprintf(&b, "    fields:\n      %s\n", v.fields)
		if i >= len(views) {
			// The same view, a little wider: no two customers are alike.
			fmt.Fprintf(&b, "      customer_field: %s\n", []string{"grade", "lot", "weight", "origin"}[i%4])
		}
		fmt.Fprintf(&b, "    deliver:\n      archive: {file: {path: ../out/%s.jsonl}}\n", name)
		files[filepath.Join("customers", name+".yaml")] = b.String()
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
