package simulation

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/tests/oracle"
)

// truth is what an inbox means, worked out record by record without any of the
// product's rules in code. It says of one entity at a time what package
// tests/oracle says, and what a repair of the log does as well.
type truth struct {
	docs      map[string]map[string]any  // by source
	positions map[string]int64           // by source and partition
	marks     map[string][]heard         // by source: the last event ids with their content
	order     map[string]int             // by source: the highest sequence
	last      map[string]*last           // by service
	want      map[string][]oracle.Change // by service
	// version is that of the last event that changed docs.
	version uint64
	// views are what the services would have, sent or not, and large are changes of
	// them that were too large.
	views map[string]map[string]any
	large map[large]bool
}

// heard is an event id with what came under it.
type heard struct {
	id  string
	doc map[string]any
}

// large is a change that is too large.
type large struct {
	service, entity string
	version         uint64
}

type last struct {
	version uint64
	doc     map[string]any // nil: retracted
	unknown bool           // it was lost, and could not be sent again
}

// event is an event as its source wrote it.
type event struct {
	source, position string
	offset           int64
	version          uint64
	value            []byte
}

func newTruth() *truth {
	return &truth{docs: map[string]map[string]any{}, positions: map[string]int64{}, marks: map[string][]heard{},
		order: map[string]int{}, last: map[string]*last{}, want: map[string][]oracle.Change{},
		views: map[string]map[string]any{}, large: map[large]bool{}}
}

// redecide sends what services have once more if the log lost it, and nothing
// newer was decided since.
func (t *truth) redecide(c *change.Control, version uint64, now *configuration) error {
	if c.Action != change.Redecide || !c.Force || c.Version == 0 {
		return fmt.Errorf("a control record that nobody should have made: %+v", c)
	}
	ripe, list := t.show(now)
	for _, s := range now.plan.Services {
		if l := t.last[s.Name]; l != nil && l.version <= uint64(c.Version) && slices.Contains(c.Services, s.Name) {
			if !t.send(s.Name, version, viewOf(s.Name, ripe, list), true) {
				l.unknown = true
			}
		}
	}
	return nil
}

// purge forgets everything, if it is deleted and everybody has what was sent, and
// reports whether it did.
func (t *truth) purge(c *change.Control) bool {
	if len(t.docs) > 0 || t.version == 0 || t.version >= uint64(c.Version) {
		return false
	}
	for _, l := range t.last {
		if l.version >= uint64(c.Version) {
			return false
		}
	}
	want, large := t.want, t.large
	*t = *newTruth()
	t.want, t.large = want, large
	return true
}

// apply lets an event take effect for the services of a configuration. Documents are flat, and their
// values scalars.
func (t *truth) apply(e event, c *configuration) error {
	var doc map[string]any
	var id, seq string
	if e.value != nil {
		v, err := oracle.Decode(e.value)
		if err != nil {
			return err
		}
		doc = v.(map[string]any)
		id, _ = doc["event"].(string)
		seq, _ = doc["seq"].(string)
		gone := doc["op"] == "delete"
		for _, stripped := range []string{"event", "seq", "op"} {
			delete(doc, stripped)
		}
		if gone {
			doc = nil
		}
	}
	// Has it been seen?
	if e.position != "" {
		if old, ok := t.positions[e.position]; ok && e.offset <= old {
			return nil
		}
	}
	seen := func(m heard) bool { return m.id == id && maps.Equal(m.doc, doc) }
	if id != "" && slices.ContainsFunc(t.marks[e.source], seen) {
		return nil
	}
	number, _ := strconv.Atoi(seq)
	if seq != "" && number < t.order[e.source] {
		return nil
	}
	if e.position != "" {
		t.positions[e.position] = e.offset
	}
	if id != "" {
		t.marks[e.source] = append(t.marks[e.source], heard{id, doc})
		t.marks[e.source] = t.marks[e.source][max(0, len(t.marks[e.source])-8):]
	}
	if seq != "" {
		t.order[e.source] = number
	}
	if old, had := t.docs[e.source]; had != (doc != nil) || !maps.Equal(old, doc) {
		t.version = e.version
	}
	if delete(t.docs, e.source); doc != nil {
		t.docs[e.source] = doc
	}
	ripe, list := t.show(c)
	for _, s := range c.plan.Services {
		next := viewOf(s.Name, ripe, list)
		before := t.views[s.Name]
		t.views[s.Name] = next
		l := t.last[s.Name]
		if l == nil && next == nil || l != nil && !l.unknown && (l.doc == nil) == (next == nil) && maps.Equal(l.doc, next) {
			continue
		}
		t.send(s.Name, e.version, next, (before == nil) != (next == nil) || !maps.Equal(before, next))
	}
	return nil
}

// show returns what the documents are to the customers; nil is a retraction.
func (t *truth) show(c *configuration) (ripe, list map[string]any) {
	merged := map[string]any{}
	for _, source := range []string{"lab", "registry"} { // the stronger one last
		for name, v := range t.docs[source] {
			merged[name] = v
		}
	}
	pick := func(names ...string) map[string]any {
		out := map[string]any{}
		for i := 0; i < len(names); i += 2 {
			if v, ok := merged[names[i+1]]; ok {
				out[names[i]] = v
			}
		}
		return out
	}
	if c.altered && len(t.docs) > 0 {
		return pick("banana_id", "id", "ripeness", "ripeness_level"), pick("banana_id", "id", "origin", "origin", "weight", "weight")
	}
	if len(t.docs) > 0 {
		list = pick("banana_id", "id", "weight", "weight")
		if merged["origin"] != "XX" {
			ripe = pick("banana_id", "id", "ripeness", "ripeness_level", "weight", "weight")
		}
	}
	return ripe, list
}

func viewOf(service string, ripe, list map[string]any) map[string]any {
	if service == dumbService {
		return list
	}
	return ripe
}

// send is a change that a service must have. One that is too large is none, and a
// dead letter if the view is another one than before; it reports false then.
func (t *truth) send(service string, version uint64, doc map[string]any, other bool) bool {
	for _, v := range doc {
		if text, ok := v.(string); ok && len(text) >= maxChange {
			at := large{service: service, version: version}
			t.large[at] = t.large[at] || other
			return false
		}
	}
	t.last[service] = &last{version: version, doc: doc}
	c := oracle.Change{Version: version, Op: "retract"}
	if doc != nil {
		c.Op, c.Doc = "upsert", doc
	}
	t.want[service] = append(t.want[service], c)
	return true
}
