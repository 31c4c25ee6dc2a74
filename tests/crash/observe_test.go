package crash

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/tests/harness"
	"github.com/seed-86dfc502/weir/tests/oracle"
	"github.com/stretchr/testify/require"
)

// tally counts the faults in one sink.
type tally struct {
	lost, duplicate, stale, disorder int
	notes                            []string
}

func (t *tally) count(n *int, format string, args ...any) {
	*n++
	t.notes = append(t.notes, fmt.Sprintf(format, args...))
}

func (t *tally) add(o tally) {
	t.lost, t.duplicate, t.stale, t.disorder = t.lost+o.lost, t.duplicate+o.duplicate, t.stale+o.stale, t.disorder+o.disorder
	t.notes = append(t.notes, o.notes...)
}

func (t tally) String() string {
	return fmt.Sprintf("%d / %d / %d / %d", t.lost, t.duplicate, t.stale, t.disorder)
}

func (t tally) zero() bool { return t.lost+t.duplicate+t.stale+t.disorder == 0 }

// changes are the changes of one service by entity.
type changes map[string][]oracle.Change

func (c changes) find(r oracle.Record) (oracle.Change, bool) {
	for _, w := range c[r.Entity] {
		if w.Version == r.Version {
			return w, true
		}
	}
	return oracle.Change{}, false
}

// same reports whether a record has the content of a change.
func same(w oracle.Change, r oracle.Record) bool {
	if w.Op != r.Op || w.Op == "retract" {
		return w.Op == r.Op
	}
	doc, err := oracle.Decode(r.Doc)
	return err == nil && oracle.Equal(doc, w.Doc)
}

// arrivals looks at records in the order of their arrival. byKey: the receiver
// knows a repetition by its key, so that it has no effect.
func (t *tally) arrivals(want changes, got []oracle.Record, byKey bool) {
	keys := map[string]oracle.Record{}
	versions := map[string]bool{}
	newest := map[string]uint64{}
	for _, r := range got {
		if old, again := keys[r.Key]; again {
			switch {
			case old.Version != r.Version || old.Entity != r.Entity || !bytes.Equal(old.Doc, r.Doc):
				t.count(&t.stale, "key %s has two contents", r.Key)
			case !byKey:
				t.count(&t.duplicate, "%s %d is there twice", r.Entity, r.Version)
			}
			continue
		}
		keys[r.Key] = r
		version := fmt.Sprint(r.Entity, "/", r.Version)
		if versions[version] {
			t.count(&t.duplicate, "%s %d has two keys", r.Entity, r.Version)
		}
		versions[version] = true
		if r.Version < newest[r.Entity] {
			t.count(&t.disorder, "%s %d came after %d", r.Entity, r.Version, newest[r.Entity])
		}
		newest[r.Entity] = max(newest[r.Entity], r.Version)
		if w, ok := want.find(r); !ok {
			t.count(&t.duplicate, "%s %d is no change", r.Entity, r.Version)
		} else if !same(w, r) {
			t.count(&t.stale, "%s %d has another content: %s", r.Entity, r.Version, r.Doc)
		}
	}
}

// complete looks whether every change arrived.
func (t *tally) complete(want changes, got []oracle.Record) {
	there := map[string]bool{}
	for _, r := range got {
		there[fmt.Sprint(r.Entity, "/", r.Version)] = true
	}
	for entity, all := range want {
		for _, w := range all {
			if !there[fmt.Sprint(entity, "/", w.Version)] {
				t.count(&t.lost, "%s %d", entity, w.Version)
			}
		}
	}
}

// newest checks the content of a state sink: one record per entity, which may have the version of an
// older change with the same content.
func (t *tally) newest(want changes, got []oracle.Record) {
	by := map[string]oracle.Record{}
	for _, r := range got {
		if _, again := by[r.Entity]; again {
			t.count(&t.duplicate, "%s is there twice", r.Entity)
		}
		by[r.Entity] = r
		if len(want[r.Entity]) == 0 {
			t.count(&t.duplicate, "%s %d is no change", r.Entity, r.Version)
		}
	}
	for entity, all := range want {
		w := all[len(all)-1]
		switch r, there := by[entity]; {
		case !there && w.Op == "retract":
		case !there:
			t.count(&t.lost, "%s %d", entity, w.Version)
		case !same(w, r) || !slices.ContainsFunc(all, func(c oracle.Change) bool { return c.Version == r.Version && c.Same(w) }):
			t.count(&t.stale, "%s: %s %d %s, want %s %d %s", entity, r.Op, r.Version, r.Doc, w.Op, w.Version, oracle.Text(w.Doc))
		}
	}
}

// expected is what every service must see, by the inbox. That in turn is held
// against the sources: every event is there, and where a source's events
// end is what its order says.
func (w *world) expected() oracle.Expected {
	if w.tables != nil {
		return w.expectedOfTables()
	}
	var inbox []oracle.Event
	taken := map[string]bool{}
	for _, r := range w.Inbox() {
		require.Len(w.t, r.Headers, 1)
		record, err := change.DecodeRecord(r.Key, r.Headers[0].Value, r.Value)
		require.NoError(w.t, err)
		head := record.Event
		if head == nil {
			continue
		}
		at := place(head.Source, head.Partition, head.Offset)
		if w.door {
			at = head.Source + "/" + head.EventID
		}
		e, known := w.sent[at]
		require.True(w.t, known, "the inbox has an event that nobody sent: %+v", head)
		taken[e.json] = true
		inbox = append(inbox, oracle.Event{
			Source: head.Source, Stream: head.Topic, Partition: head.Partition, Offset: head.Offset,
			Version: 1<<48 | uint64(r.Offset), Key: e.entity, Value: []byte(e.json),
		})
	}
	refused := int64(0)
	if w.door {
		refused = 1 // the row of the outbox that has no entity
	}
	require.Equal(w.t, refused, w.count("SELECT count(*) FROM dead_letters WHERE stage <> 'deliver'"), "dead letters of ingest")
	var ideal []oracle.Event
	for i, e := range events() {
		require.True(w.t, taken[e.json], "event %d is not in the inbox: %s", i, e.json)
		ideal = append(ideal, oracle.Event{Source: e.source, Version: uint64(i), Key: e.entity, Value: []byte(e.json)})
	}
	return w.sameEnd(described(), inbox, ideal)
}

// sameEnd returns the changes by the inbox, which end as those by the order of the sources.
func (w *world) sameEnd(config oracle.Config, inbox, ideal []oracle.Event) oracle.Expected {
	want, err := oracle.Run(config, inbox)
	require.NoError(w.t, err)
	byOrder, err := oracle.Run(config, ideal)
	require.NoError(w.t, err)
	for entity, all := range byOrder[service("file")] {
		a, got := all[len(all)-1], want[service("file")][entity]
		if w.tables != nil && len(got) == 0 && a.Op == "retract" {
			continue // the row came and went before the first reading
		}
		require.NotEmpty(w.t, got, "%s never got through", entity)
		b := got[len(got)-1]
		require.True(w.t, a.Op == b.Op && oracle.Equal(a.Doc, b.Doc), "%s ends as %s %s, want %s %s", entity, b.Op, oracle.Text(b.Doc), a.Op, oracle.Text(a.Doc))
	}
	return want
}

// compare holds all sinks against the model.
func (w *world) compare() map[string]tally {
	want := w.expected()
	found := map[string]tally{}
	look := func(sink string, f func(t *tally, want changes)) {
		t := tally{}
		f(&t, want[service(sink)])
		found[sink] = t
	}
	log := func(got []oracle.Record) func(t *tally, want changes) {
		return func(t *tally, want changes) {
			t.arrivals(want, got, false)
			t.complete(want, got)
		}
	}
	look("clickhouse", func(t *tally, want changes) { t.newest(want, w.Warehouse("crash_view")) })
	look("upsert", func(t *tally, want changes) { t.newest(want, w.Rows("crash_view", service("upsert"), "entity")) })
	look("append", log(w.Rows("crash_history", service("append"), "seq")))
	look("kafka", log(w.Feed()))
	look("file", log(w.Records("out/view.jsonl")))
	for sink, hook := range map[string]*harness.Receiver{"webhook": w.hook, "batched": w.batched, "paced": w.paced} {
		look(sink, func(t *tally, want changes) { w.received(t, want, sink, hook) })
	}
	return found
}

// received looks at the changes that a webhook's receiver accepted, and at the rest.
func (w *world) received(t *tally, want changes, sink string, hook *harness.Receiver) {
	accepting := changes{}
	for entity, all := range want {
		if !refused(entity) {
			accepting[entity] = all
		}
	}
	accepted := hook.Received()
	hook.Mu.Lock()
	arrays, attempts := hook.Arrays, slices.Clone(w.attempts)
	hook.Mu.Unlock()
	if sink == "paced" {
		if err := oracle.CheckRate(w.made, attempts, rate, burst); err != nil {
			t.count(&t.duplicate, "%v", err)
		}
	}
	t.arrivals(accepting, accepted, true)
	var kept []oracle.Record
	for _, r := range oracle.Newest(accepted) {
		kept = append(kept, r)
	}
	t.newest(accepting, kept)
	if sink == "batched" && arrays == 0 {
		t.count(&t.lost, "no array came")
	}
	if w.refusedAs != forgotten {
		w.letters(t, want, service(sink))
	}
}

// letters looks at the entities that a webhook's receiver refuses: the newest change
// of each must be a dead letter, and its dam row refused, or what an operator made
// of it since.
func (w *world) letters(t *tally, want changes, service string) {
	rows, buried := map[string]uint64{}, map[string]bool{}
	require.NoError(w.t, w.query("SELECT entity, state, version FROM dam_rows WHERE service = '"+service+"' AND entity LIKE 'R-%'", func(scan func(...any) error) error {
		var entity, state string
		var version int64
		err := scan(&entity, &state, &version)
		rows[entity] = uint64(version)
		if state != w.refusedAs {
			t.count(&t.lost, "%s %d was refused and its row does not say so: %s", entity, version, state)
		}
		return err
	}))
	require.NoError(w.t, w.query("SELECT entity, version FROM dead_letters WHERE state = 'open' AND stage = 'deliver' AND service = '"+service+"'", func(scan func(...any) error) error {
		var entity string
		var version int64
		err := scan(&entity, &version)
		if !refused(entity) {
			t.count(&t.lost, "%s %d is a dead letter", entity, version)
		}
		buried[fmt.Sprint(entity, "/", uint64(version))] = true
		return err
	}))
	for entity := range want {
		if refused(entity) && !buried[fmt.Sprint(entity, "/", rows[entity])] {
			t.count(&t.lost, "%s %d was refused and is no dead letter", entity, rows[entity])
		}
	}
}
