package decide

import (
	"fmt"
	"slices"
	"time"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/tracing"
	"github.com/seed-86dfc502/weir/projections"
	"github.com/seed-86dfc502/weir/projections/merge"
	"github.com/seed-86dfc502/weir/store"
)

// record is one inbox record, parsed as far as that needs no state.
type record struct {
	change.Record
	tree       *canonicaltree.Tree // of an upsert's payload
	version    change.Version
	at         time.Time // timestamp of the record
	partition  int32
	offset     int64
	assignment uint64            // of the partition, when it was handed out
	claimID    store.ClaimID     // the claim of its event; zero without one
	use        store.Use         // what the claim was made for, when it is known
	keep       time.Duration     // how far apart two uses of a key are
	deadLetter *store.DeadLetter // set when it cannot be decided
	span       *tracing.Span     // nil unless it is traced

	// The result of the last attempt to decide it.
	outcome outcome
	stale   staleReason // why, if the outcome is that
	sent    []int       // services, by index, that it sent something to
}

func (r *record) isBarrier() bool { return r.Control != nil && r.Control.Action == change.Barrier }

// outcome is what became of a record.
type outcome string

const (
	outcomeStale   outcome = "stale"
	outcomeNoise   outcome = "noise"
	outcomeMerged  outcome = "merged"
	outcomeControl outcome = "control"
	outcomeRefused outcome = "refused" // by ingest
	outcomeDead    outcome = "dead"
)

// entityState is what deciding needs of an entity: its row, taken apart.
type entityState struct {
	// stored is the row with the version and deletion that are to be written, without States.
	stored store.Entity
	states store.States

	docs    map[string]canonicaltree.Node // by source
	fence   fence
	history history
	failed  []int32 // services, ascending by number, whose last evaluation failed
	current bool    // evaluated under the plan's fingerprint

	present bool // there is a merged document, and it is complete: see view
}

// evaluation is the state of one entity while the records of a batch are
// applied to it, in order. It is pure: nothing in it talks to a store. Changes,
// letters and counts are added to the verdict.
type evaluation struct {
	*verdict
	entityState
	found store.Entity // the row as it was
	dirty bool         // the entity row must be written
	moved bool         // docs changed
}

func newEvaluation(v *verdict, e store.Entity) (*evaluation, error) {
	ev := v.evaluation()
	ev.verdict, ev.found, ev.stored = v, e, e
	ev.stored.States, ev.states, ev.current = store.States{}, e.States.Stored(), e.Found && v.plan.Current(e)
	var err error
	if ev.history, ev.failed, err = decodeStateInto(ev.fence, e.Fence, &v.fences); err != nil {
		return nil, fmt.Errorf("entity %q: %w", e.ID, err)
	}
	if err := v.plan.Merge.Split(&v.trees, ev.docs, e.Docs); err != nil {
		return nil, fmt.Errorf("entity %q: stored documents: %w", e.ID, err)
	}
	if v.full() {
		return nil, errLargeOutcome
	}
	return ev, nil
}

// apply takes the next record of the entity. An error means that the stored
// state cannot be worked with, or that the batch comes to too much; a record that is at
// fault becomes a dead letter.
func (ev *evaluation) apply(r *record) error {
	r.sent = r.sent[:0]
	switch effect := ev.claims.of(r); {
	case effect == conflicting:
		ev.fail(r, "key_conflict", "another event was ingested under its idempotency key before the store was restored")
		return nil
	case effect == repeated:
		// The claim's effect may have been a dead letter, or the entity was purged
		// since: then there is no row to note it in, and none is made.
		ev.dropStale(r, staleClaim)
		return nil
	case r.deadLetter != nil:
		ev.addLetter(*r.deadLetter)
		ev.count(r, outcomeDead)
		if r.Event != nil {
			ev.replayed(r, fresh) // it failed again, as a new dead letter
		}
		return nil
	case r.Control != nil:
		return ev.control(r)
	}
	return ev.event(r)
}

// event applies an event.
func (ev *evaluation) event(r *record) error {
	e := r.Event
	reason := ev.hearing.check(r)
	if reason == fresh {
		reason = ev.fence.check(e)
	}
	if reason == badSequence {
		ev.replayed(r, fresh) // it failed again, as a new dead letter
		ev.fail(r, string(badSequence), fmt.Sprintf("the sequence is a %s and the last one of this entity a %s, which have no order; correct the event, or drop the order by weir reset --order ENTITY --yes",
			change.KindOfSequence(e.Sequence), change.KindOfSequence(ev.fence[e.Source].Sequence)))
		return nil
	}
	ev.replayed(r, reason)
	if reason != fresh {
		ev.dropStale(r, reason)
		return nil
	}
	if e.Op == change.Refused {
		ev.lacks(e)
		ev.count(r, outcomeRefused)
		return nil
	}
	var root canonicaltree.Node
	if e.Op == change.Upsert {
		if root = r.tree.Root(); ev.plan.unreadable(e.Source, root) {
			ev.fail(r, "not_an_object", notAnObject(root))
			return nil
		}
	}
	previous := ev.docs[e.Source]
	if len(e.Unchanged) > 0 && root.Exists() {
		if m := ev.fence[e.Source]; m != nil && m.Missing != nil {
			ev.fail(r, "unavailable", fmt.Sprintf("column %.64q was left unchanged by the update, and an event of the entity before it is a dead letter: "+
				"the stored document may have an older value. An event with all columns repairs it", e.Unchanged[0]))
			return nil
		}
		var err error
		if root, err = ev.plan.Merge.Fill(&ev.trees, e.Source, previous, root, e.Unchanged); err != nil {
			ev.fail(r, "unavailable", err.Error())
			return nil
		}
	}
	next, changed, err := ev.plan.Merge.NextNode(&ev.trees, e.Source, previous, root)
	if err != nil {
		ev.fail(r, "merge", err.Error())
		return nil
	}
	existed := ev.exists()
	if !changed && ev.current {
		ev.dirty = true
		ev.fence.note(e, r.version, r.at)
		ev.count(r, outcomeNoise)
		return nil
	}
	// Stored documents that merged may not under another configuration (too deep
	// under a new mount, say). This event may repair them.
	wasPresent, unmerged := ev.view()
	ev.before = append(ev.before[:0], ev.layers...)
	if changed {
		ev.set(e.Source, next)
	}
	if _, err := ev.view(); err != nil {
		// This one is at fault (too deep, say), or those that are stored still are. The
		// fence must not remember it: its dead letter, and earlier ones, could not be replayed.
		ev.set(e.Source, previous)
		ev.fail(r, "merge", err.Error())
		ev.drop(next)
		return nil
	}
	ev.dirty = true
	ev.fence.note(e, r.version, r.at)
	if changed {
		ev.moved, ev.stored.Version, ev.stored.Deleted = true, r.version, time.Time{}
		if len(ev.docs) == 0 {
			ev.stored.Deleted = r.at
		}
	}
	ev.count(r, outcomeMerged)
	// An entity that is new and not complete yet has no rows to compare with.
	fresh, since := ev.newServices()
	all := unmerged != nil || ev.present != wasPresent || !ev.current && !since && (ev.present || existed)
	letters := len(ev.out.Letters)
	evaluated, err := ev.offerTouched(r, previous, next, all, fresh)
	if err != nil {
		return err
	}
	if !all && ev.present && len(ev.out.Letters) == letters && len(r.sent) == 0 {
		ev.observer.note(r, previous, next, evaluated)
	}
	ev.current = true
	if changed {
		ev.drop(previous)
	}
	return nil
}

// drop releases a document that was put together for this batch and is no longer one of
// the entity.
func (ev *evaluation) drop(n canonicaltree.Node) {
	for _, doc := range ev.docs {
		if doc == n {
			return
		}
	}
	ev.trees.Drop(n)
}

// notAnObject names the kind of a payload that is no object, and the remedy.
func notAnObject(payload canonicaltree.Node) string {
	switch payload.Kind() {
	case canonicaltree.String:
		return "the payload is a string, and projections read members of it; if it holds JSON, add @fromstr to the source's payload path (payload: \"@fromstr\")"
	case canonicaltree.Array:
		return "the payload is an array, and projections read members of it; name an element in the source's payload path"
	}
	return "the payload is a single value, and projections read members of it; correct the source's payload path"
}

// newServices returns the services that are new to an entity of an earlier configuration;
// known is false for a current one, and where all may be new.
func (ev *evaluation) newServices() (fresh []bool, known bool) {
	if ev.current {
		return nil, false
	}
	return ev.plan.newTo(&ev.stored)
}

// offerTouched offers the merged document to the services of the projections that may show
// the change of the source's document, to fresh ones, or to all, and returns how many
// projections these are.
func (ev *evaluation) offerTouched(r *record, before, after canonicaltree.Node, all bool, fresh []bool) (evaluated int, err error) {
	ev.history.evaluating(ev.plan)
	ev.touched.Clear()
	if all {
		ev.touchAll()
	} else if ev.present {
		ev.was.Reset(ev.plan.index, ev.before)
		now := ev.document()
		ev.plan.Merge.Differences(ev.layers, r.Event.Source, before, after, func(path canonicaltree.Path) {
			ev.plan.index.TouchedBy(path, &ev.was, now, &ev.touched)
		})
	}
	unaffected := DecisionPruned
	switch {
	case !ev.present && len(ev.docs) > 0:
		unaffected = DecisionIncomplete
		ev.history.last.word = historyWord(HistoryIncomplete)
	case all:
		unaffected = DecisionFiltered
	}
	kind := kindOf(unaffected)
	ev.decisions.all[kind]++
	concerned := ev.touched.List()
	if fresh != nil && !all {
		concerned = ev.plan.shapes
	} else {
		slices.Sort(concerned)
	}
	r.sent = slices.Grow(r.sent, min(len(concerned), 16))
	for _, p := range concerned {
		services := ev.plan.servicesOf[p]
		if !all && !ev.touched.Has(p) {
			services = slices.DeleteFunc(slices.Clone(services), func(s int) bool { return !fresh[s] })
		}
		if len(services) == 0 {
			continue
		}
		for _, s := range services {
			ev.decisions.add(s, kind, -1)
		}
		evaluated++
		ev.history.evaluated(ev.plan, p)
		if _, err := ev.offer(r, p, services); err != nil {
			return evaluated, err
		}
	}
	return evaluated, nil
}

// touchAll touches the projections for which a decision of all services can have an effect:
// those whose filter may match the document, and those of services with a dam state or with
// a failed evaluation. Any other service has nothing and gets nothing: it is filtered.
func (ev *evaluation) touchAll() {
	ev.history.evaluatedAll(ev.plan, ev.present)
	if ev.present {
		ev.plan.index.Matching(ev.document(), &ev.touched)
	}
	for _, row := range ev.states.All("") {
		if s, known := ev.plan.byNumber[row.Service]; known {
			ev.touched.Add(ev.plan.alike[ev.plan.Services[s].Projection])
		}
	}
	for _, number := range ev.failed {
		if s, known := ev.plan.byNumber[number]; known {
			ev.touched.Add(ev.plan.alike[ev.plan.Services[s].Projection])
		}
	}
}

// exists reports whether the entity has a row, or gets one by an earlier record
// of the batch: how records are cut into batches must not show in a decision.
func (ev *evaluation) exists() bool { return ev.stored.Found || ev.dirty }

// set puts a source document in place; an absent one takes it away.
func (ev *evaluation) set(source string, doc canonicaltree.Node) {
	if doc.Exists() {
		ev.docs[source] = doc
	} else {
		delete(ev.docs, source)
	}
	ev.layered = nil
}

// view reports whether there is a merged document of the source documents as they are now,
// and it is complete, and sets its layers. The error says that they cannot be merged.
func (ev *evaluation) view() (present bool, err error) {
	if ev.layered == ev {
		return ev.present, nil
	}
	var complete bool
	if ev.layers, complete, err = ev.plan.Merge.Layers(ev.layers[:0], ev.docs); err != nil {
		return false, fmt.Errorf("entity %q: merge: %w", ev.stored.ID, err)
	}
	ev.present, ev.layered, ev.shown = complete && len(ev.layers) > 0, ev, false
	return ev.present, nil
}

// document is the merged document after view, if it is present.
func (ev *evaluation) document() *projections.Document {
	if !ev.shown {
		ev.merged.Reset(ev.plan.index, ev.layers)
		ev.shown = true
	}
	return &ev.merged
}

// dropStale notes a stale record.
func (ev *evaluation) dropStale(r *record, reason staleReason) {
	ev.count(r, outcomeStale)
	r.stale = reason
	ev.dirty = ev.exists() && ev.history.stale(r, reason) || ev.dirty
}

// fail makes a record a dead letter.
func (ev *evaluation) fail(r *record, code, reason string) {
	ev.addLetter(letterOf(r, code, reason))
	if r.Event != nil && r.Event.Replay == nil {
		ev.lacks(r.Event)
	}
	ev.count(r, outcomeDead)
}

// lacks notes that the document of an event's source lacks the event. Without a document there
// is nothing that a later event could be filled from, or a sweep could delete.
func (ev *evaluation) lacks(e *change.Event) {
	if ev.docs[e.Source].Exists() {
		ev.fence.lacks(e)
		ev.dirty = true
	}
}

// addLetter adds a dead letter to the verdict. Of a single record, the letter of a service
// has no payload where there is no room for it: the service is decided again without it.
func (ev *evaluation) addLetter(l store.DeadLetter) {
	if ev.single && l.Service != "" && len(l.Payload) > ev.room {
		l.Payload = nil
	}
	ev.out.Letters = append(ev.out.Letters, l)
	ev.room -= len(l.Payload)
}

func (ev *evaluation) count(r *record, o outcome) {
	source := "control"
	if r.Event != nil {
		source = r.Event.Source
	}
	ev.outcomes[outcomeOf{source, o}]++
	r.outcome, r.stale = o, fresh
	// A refusal by deliver is in the row and the dead letter; one entry per service would
	// leave no room for events.
	if o != outcomeStale && (r.Control == nil || r.Control.Action != change.Refuse) {
		word := string(o)
		if o == outcomeDead {
			word = HistoryDead
		}
		ev.history.note(r, word)
	}
}

// result is the entity to write; false when it stays as it is.
func (ev *evaluation) result() (store.Entity, bool) {
	if !ev.dirty && !ev.states.AnyChanged() {
		return store.Entity{}, false
	}
	e := ev.stored
	if e.States = ev.states; ev.moved || len(e.Docs) == 0 {
		e.Docs = merge.JoinNodes(nil, ev.docs)
	}
	if !ev.dirty {
		return e, true // only states: what else was noted need not be known
	}
	if e.Fingerprint = nil; ev.current {
		e.Fingerprint = ev.plan.stamp
	}
	e.Fence = encodeState(&ev.history, ev.failed, ev.fence)
	return e, true
}
