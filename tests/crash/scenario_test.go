package crash

import (
	"fmt"
	"math/rand/v2"

	"github.com/seed-86dfc502/weir/tests/oracle"
)

// event is one event of a source.
type event struct{ source, entity, json string }

// refused is an entity whose changes the webhook refuses with 422.
func refused(entity string) bool { return entity[0] == 'R' }

// events makes the stream: three sources, changes back and forth, noise,
// deletions, filter retractions, repetitions and events that come too late.
func events() []event {
	r := rand.New(rand.NewPCG(7, 7))
	pick := func(words ...string) string { return words[r.IntN(len(words))] }
	var all []event
	serial := 0
	add := func(source, entity, op, data string) {
		serial++
		lsn := serial
		if op == "late" {
			op, lsn = "upsert", max(1, serial-150)
		}
		all = append(all, event{source, entity, fmt.Sprintf(`{"id":%q,"event_id":"e-%d","op":%q,"lsn":%d,"data":%s}`, entity, serial, op, lsn, data)})
	}
	registry := func(entity, op, origin, weight string) {
		add("registry", entity, op, fmt.Sprintf(`{"updated_at":%d,"weight":%s,"id":%q,"origin":%q,"items":[{"name":%q,"seen_at":%d}]}`,
			serial, weight, entity, origin, pick("a", "b"), serial))
	}
	for _, id := range []string{"B-aba", "R-0", "R-1"} {
		for _, w := range []string{"1", "2", "1", "2", "2", "2", "1"} {
			registry(id, "upsert", "EC", w)
		}
	}
	for range 330 {
		id := fmt.Sprintf("B-%02d", r.IntN(36))
		switch roll := r.IntN(100); {
		case roll < 12:
			add("overlay", id, pick("upsert", "upsert", "upsert", "delete"), fmt.Sprintf(`{"grade":%q}`, pick("I", "II")))
		case roll < 36:
			level, op := pick("1", "2", "3", "null"), "upsert"
			if level == "null" && serial%3 == 0 {
				op = "delete"
			}
			add("lab", id, op, fmt.Sprintf(`{"level":%s}`, level))
		case roll < 42:
			all = append(all, all[len(all)-1-r.IntN(3)]) // a repetition
		case roll < 47:
			registry(id, "delete", "EC", "1")
		case roll < 51:
			registry(id, "late", "EC", "9")
		default:
			registry(id, "upsert", pick("EC", "CO", "PH"), pick("1", "1.0", "2"))
		}
	}
	for i, w := range []string{"1", "2", "2", "3"} {
		registry(fmt.Sprintf("R-%d", i%2), "upsert", "EC", w)
	}
	return all
}

// sinkNames are the services' sinks in the order of the table.
var sinkNames = []string{"clickhouse", "upsert", "append", "webhook", "batched", "paced", "kafka", "file"}

// rate and burst are of the service of the paced sink, per second.
const rate, burst = 100, 10

func service(sink string) string { return "acme/view@" + sink }

// described is the configuration for the model.
func described() oracle.Config {
	f := func(to, from string) oracle.Field { return oracle.Field{To: to, From: from} }
	source := func(name string) oracle.Source {
		return oracle.Source{Name: name, Entity: "id", EventID: "event_id", Payload: "data", Operation: "op"}
	}
	overlay, registry, lab := source("overlay"), source("registry"), source("lab")
	registry.Sequence = "lsn"
	lab.Patch, lab.Mount = true, "lab"
	var services []string
	for _, s := range sinkNames {
		services = append(services, service(s))
	}
	return oracle.Config{
		Sources: []oracle.Source{overlay, registry, lab}, Required: []string{"registry"},
		Strip: map[string][]string{"registry": {"updated_at", "items.*.seen_at"}},
		Projection: []oracle.Projection{{
			Services: services,
			When:     func(d any) bool { o := oracle.At(d, "origin"); return o == "EC" || o == "CO" },
			Fields: []oracle.Field{f("banana_id", "id"), f("weight", "weight"), f("items", "items.#.name"), f("ripeness.level", "lab.level"),
				{To: "grade", From: "grade", Default: "none"}, {To: "kind", Const: "banana"},
				{To: "label", Compute: func(d any) (any, bool) { return fmt.Sprint(oracle.At(d, "id"), "/", oracle.At(d, "origin")), true }}},
		}},
	}
}

// locators locate the parts of an event. They follow the kind of a
// source, but for an outbox, which has columns.
const locators = `
    entity: id
    event_id: event_id
    operation: op
    payload: data`

const mainFile = `
%[1]s
sources:
  registry:
    %[2]s
    sequence: lsn
    strip: ["updated_at", "items.*.seen_at"]
  lab:
    %[3]s
    mode: patch
    mount: lab
  overlay:
    %[4]s
merge: {precedence: [overlay, registry, lab], required: [registry]}
customers: ["acme.yaml"]
admin: {listen: "off"}
log: {level: info}
`

const customerFile = `
customer: acme
projections:
  view:
    when: doc.origin in ["EC", "CO"]
    fields:
      banana_id: id
      weight: weight
      items: "items.#.name"
      ripeness.level: lab.level
      grade: {path: grade, default: none}
      kind: {const: banana}
      label: {expr: "doc.id + '/' + doc.origin"}
    deliver:
      clickhouse: {clickhouse: {url: "%[1]s", table: crash_view, linger: 20ms}}
      upsert: {postgres: {url: "%[2]s", table: crash_view}}
      append: {postgres: {url: "%[2]s", table: crash_history, mode: append, columns: {doc: {type: json, path: "@this"}}}}
      webhook: {webhook: {url: "%[3]s", secret: "whsec_YmFuYW5hYmFuYW5hYmFuYW5hYmFuYW5hYmFuYW5h"}, retry: {min_backoff: 20ms, max_backoff: 200ms}}
      batched: {webhook: {url: "%[6]s", secret: "whsec_YmFuYW5hYmFuYW5hYmFuYW5hYmFuYW5hYmFuYW5h", batch: {max: 8, linger: 20ms}}, retry: {min_backoff: 20ms, max_backoff: 200ms}}
      paced: {webhook: {url: "%[7]s", secret: "whsec_YmFuYW5hYmFuYW5hYmFuYW5hYmFuYW5hYmFuYW5h"}, pace: {rate: %[8]d/s, burst: %[9]d, settle: 200ms, settle_max: 1s}, retry: {min_backoff: 20ms, max_backoff: 200ms}}
      kafka: {kafka: {brokers: [%[4]q], topic: "%[5]sfeed"}}
      file: {file: {path: out/view.jsonl}}
`
