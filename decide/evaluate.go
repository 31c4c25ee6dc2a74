package decide

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/inbox"
	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/internal/tracing"
	"github.com/seed-86dfc502/weir/merge"
	"github.com/seed-86dfc502/weir/projections"
	"github.com/seed-86dfc502/weir/store"
)

// record is one inbox record, parsed as far as that needs no state.
type record struct {
	inbox.Record
	tree       *canonicaltree.Tree // of an upsert's payload
	mark       string              // eventMark, empty without event id
	version    change.Version
	at         time.Time // timestamp of the record
	part       int32
	offset     int64
	assignment uint64            // of the partition, when it was handed out
	once       store.ClaimID     // the claim of its event; zero without one
	use        store.Use         // what the claim was made for, when it is known
	keep       time.Duration     // how far apart the claims of two uses of a key are
	bad        *store.DeadLetter // set when it cannot be decided
	span       *tracing.Span     // nil unless it is traced
	outcome    outcome           // of the last attempt to decide it
	stale      staleReason       // why, if the outcome is that
	sent       []int             // services, by index, that it sent something to; of the last attempt
	followed   bool              // somebody looks at the tail
	held       []decisionOf      // what it came to for the other services that were evaluated, if it is followed
}

// outcome is what became of a record.
type outcome string

const (
	outcomeStale   outcome = "stale"
	outcomeNoise   outcome = "noise"
	outcomeMerged  outcome = "merged"
	outcomeControl outcome = "control"
	outcomeDead    outcome = "dead"
)

// candidate is one thing that a record wants of one dam state.
type candidate struct {
	service int // index into Plan.Services
	record  *record
	// control is set for refuse and reset, which set a state and send nothing.
	control *inbox.Control
	content change.Content // offered content
	output  *output        // nil for a retraction
	absent  string         // of a retraction: what keeps the entity out; empty when it is deleted
	force   bool           // pass even when equal
	resent  *change.Change // of a Resend; all but record is unset then
	purge   bool           // all states of the entity go; all but record is unset then
	states  *store.States  // of the entity
}

// output is what a projection shows of a document. Most of it is held back, so
// its text is written only when a change needs it.
type output struct {
	projection *projections.Projection
	doc        canonicaltree.Node
	written    []byte
}

// text writes the output once, for all services of the projection.
func (o *output) text() ([]byte, error) {
	if o.written == nil {
		text, match, err := o.projection.Project(nil, o.doc)
		if err != nil {
			return nil, err
		}
		if !match {
			return nil, errors.New("a projection that matched does not match again")
		}
		o.written = text
	}
	return o.written, nil
}

// entityState is what deciding needs of an entity: its row, taken apart.
type entityState struct {
	stored store.Entity // the row, without States, and without Docs where only docs has them
	states store.States

	docs    map[string]canonicaltree.Node // by source
	fence   fence
	trail   trailer
	version change.Version
	deleted time.Time
	current bool // evaluated under the plan's fingerprint

	present bool // merged exists and is complete
	merged  canonicaltree.Node
	known   bool // merged and present are those of docs
}

// evaluation is the state of one entity while the records of a batch are
// applied to it, in order. It is pure: nothing in it talks to a store.
type evaluation struct {
	plan *Plan
	entityState
	dirty bool // the entity row must be written
	moved bool // docs changed

	touched    projections.Set // scratch
	candidates []candidate
	letters    []store.DeadLetter
	audit      []store.Audit
	replayed   []store.LetterResolution // dead letters whose replay was decided here
	counts     evaluationCounts
	claims     *claims // of the batch; nil when no record of it has one
	watch      *watch  // nil: nobody wants to know what events change
}

type evaluationCounts struct {
	outcomes map[outcomeOf]int
	// decisions about services that are not evaluated: pruned, or incomplete.
	decisions map[decisionOf]int
}

type outcomeOf struct {
	source  string
	outcome outcome
}

func newEvaluation(p *Plan, e store.Entity) (*evaluation, error) {
	s := entityState{stored: e, states: e.States.Stored(), version: e.Version, deleted: e.Deleted, current: e.Found && p.current(e.Fingerprint)}
	s.stored.States = store.States{}
	var err error
	if s.trail, s.fence, err = decodeState(e.Fence); err != nil {
		return nil, fmt.Errorf("entity %q: %w", e.ID, err)
	}
	if s.docs, err = merge.SplitNodes(e.Docs); err != nil {
		return nil, fmt.Errorf("entity %q: stored documents: %w", e.ID, err)
	}
	return evaluationOf(p, s), nil
}

// evaluationOf begins with a state, which it changes.
func evaluationOf(p *Plan, s entityState) *evaluation {
	return &evaluation{plan: p, entityState: s, counts: newCounts()}
}

// apply takes the next record of the entity. An error means that the stored
// state cannot be worked with; a record that is at fault becomes a dead letter.
func (ev *evaluation) apply(r *record) error {
	r.sent, r.held = nil, nil
	switch ev.claims.of(r) {
	case conflicting:
		ev.letters = append(ev.letters, letterOf(r, "key_conflict", "another event was taken in under its idempotency key before the store was restored"))
		ev.count(r, outcomeDead)
		return nil
	case repeated:
		ev.count(r, outcomeStale)
		// The claim's effect may have been a dead letter, or the entity was purged
		// since: then there is no row to note it in, and none is made.
		ev.dirty = ev.exists() && ev.trail.stale(r, staleClaim) || ev.dirty
		return nil
	}
	if r.bad != nil {
		ev.letters = append(ev.letters, *r.bad)
		ev.count(r, outcomeDead)
		if r.Event != nil {
			ev.replay(r, fresh) // it died again, as a letter of its own
		}
		return nil
	}
	if r.Control != nil && r.Control.Action == inbox.Purge {
		ev.purge(r)
		return nil
	}
	if r.Control != nil {
		ev.count(r, outcomeControl)
		if r.Control.Action != inbox.Refuse { // which says nothing that the entity must know
			ev.dirty = ev.exists()
		}
		return ev.control(r)
	}
	e := r.Event
	reason := ev.fence.check(e, r.mark)
	ev.replay(r, reason)
	if reason != fresh {
		ev.count(r, outcomeStale)
		r.stale = reason
		ev.dirty = ev.trail.stale(r, reason) || ev.dirty
		return nil
	}
	var root canonicaltree.Node
	if e.Op == inbox.Upsert {
		root = r.tree.Root()
	}
	next, changed, err := ev.plan.Merge.NextNode(e.Source, ev.docs[e.Source], root)
	if err != nil {
		ev.letters = append(ev.letters, letterOf(r, "merge", err.Error()))
		ev.count(r, outcomeDead)
		return nil
	}
	existed := ev.exists()
	ev.fence.note(e, r.mark, r.version, r.at)
	ev.dirty = true
	if !changed && ev.current {
		ev.count(r, outcomeNoise)
		return nil
	}
	// Stored documents that merged may not under another configuration (too deep
	// under a new mount, say). This one may be what they need.
	before, wasPresent, broken := ev.view()
	previous := ev.docs[e.Source]
	if changed {
		ev.set(e.Source, next)
		if _, _, err = ev.view(); err != nil {
			// This one is at fault (too deep, say), or those that are stored still are.
			ev.set(e.Source, previous)
			ev.letters = append(ev.letters, letterOf(r, "merge", err.Error()))
			ev.count(r, outcomeDead)
			return nil
		}
		ev.moved, ev.version, ev.deleted = true, r.version, time.Time{}
		if len(ev.docs) == 0 {
			ev.deleted = r.at
		}
	}
	after, present, err := ev.view()
	if err != nil { // nothing changed, and what is stored does not merge
		ev.letters = append(ev.letters, letterOf(r, "merge", err.Error()))
		ev.count(r, outcomeDead)
		return nil
	}
	ev.count(r, outcomeMerged)
	ev.trail.evaluating(ev.plan)
	ev.touched.Clear()
	// An entity that is new and not complete yet has no rows to compare with.
	all := broken != nil || present != wasPresent || !ev.current && (present || existed)
	if !all && present {
		ev.plan.index.TouchedBy(before, after, &ev.touched)
	}
	letters, evaluated := len(ev.letters), 0
	apart := DecisionPruned
	if !present && len(ev.docs) > 0 {
		apart = DecisionIncomplete
		ev.trail.last.word = trailWord(TrailIncomplete)
	}
	for p := range ev.plan.Projections {
		if !all && !ev.touched.Has(p) {
			for _, s := range ev.plan.servicesOf[p] {
				ev.counts.decisions[decisionOf{s, apart}]++
			}
			continue
		}
		evaluated++
		ev.trail.evaluated(ev.plan, p)
		ev.offer(r, p, ev.plan.servicesOf[p], false)
	}
	if !all && present && len(ev.letters) == letters {
		ev.watch.note(r, previous, next, evaluated)
	}
	ev.current = true
	return nil
}

// exists reports whether the entity has a row, or gets one by an earlier record
// of the batch: how records are cut into batches must not show in a decision.
func (ev *evaluation) exists() bool { return ev.stored.Found || ev.dirty }

// purge forgets the entity, if it is still the tombstone that is to go. Nothing
// remembers that it was asked for.
func (ev *evaluation) purge(r *record) {
	ev.counts.outcomes[outcomeOf{"control", outcomeControl}]++
	r.outcome, r.stale = outcomeControl, fresh
	if !ev.exists() || ev.deleted.IsZero() || ev.version != r.Control.Version {
		return
	}
	// Its states go when it is their turn.
	ev.entityState = entityState{stored: store.Entity{ID: ev.stored.ID}, states: ev.states, docs: map[string]canonicaltree.Node{}, fence: fence{}}
	ev.dirty, ev.moved = false, false
	ev.candidates = append(ev.candidates, candidate{record: r, states: &ev.states, purge: true})
}

// set puts a source document in place; an absent one takes it away.
func (ev *evaluation) set(source string, doc canonicaltree.Node) {
	if doc.Exists() {
		ev.docs[source] = doc
	} else {
		delete(ev.docs, source)
	}
	ev.known = false
}

// view merges the source documents as they are now.
func (ev *evaluation) view() (canonicaltree.Node, bool, error) {
	if ev.known {
		return ev.merged, ev.present, nil
	}
	doc, complete, err := ev.plan.Merge.Compose(ev.docs)
	if err != nil {
		return canonicaltree.Node{}, false, fmt.Errorf("entity %q: merge: %w", ev.stored.ID, err)
	}
	ev.merged, ev.present, ev.known = canonicaltree.Node{}, complete && doc.Exists(), true
	if ev.present {
		ev.merged = doc
	}
	return ev.merged, ev.present, nil
}

// offer projects the document and offers the result to services.
func (ev *evaluation) offer(r *record, projection int, services []int, force bool) {
	c := candidate{record: r, states: &ev.states, content: change.Retracted(), force: force}
	if ev.present {
		p := ev.plan.Projections[projection]
		digest, match, err := p.Sum(ev.merged)
		if err != nil {
			// One customer's filter must not stop the others: a dead letter per
			// service, whose row keeps what it has.
			for _, s := range services {
				l := letterOf(r, "projection", err.Error())
				l.Service = ev.plan.Services[s].Name
				l.DedupKey += "/" + l.Service
				ev.letters = append(ev.letters, l)
			}
			ev.unknown(r, services)
			return
		}
		if match {
			c.content = change.Hashed(canonicaltree.Scheme, digest)
			c.output = &output{projection: p, doc: ev.merged}
		} else {
			c.absent = DecisionFiltered
			ev.trail.filteredOut(ev.plan, projection)
		}
	} else if len(ev.docs) > 0 {
		c.absent = DecisionIncomplete
	}
	for _, s := range services {
		c.service = s
		ev.candidates = append(ev.candidates, c)
	}
}

// unknown sets the rows of services whose change is lost and cannot be made again.
func (ev *evaluation) unknown(r *record, services []int) {
	if !lost(r.Control) {
		return
	}
	for _, s := range services {
		ev.candidates = append(ev.candidates, candidate{service: s, record: r, states: &ev.states, control: r.Control})
	}
}

// control applies an operator's or deliver's request.
func (ev *evaluation) control(r *record) error {
	crash.At(crash.DecideControl, "")
	ev.onRecord(r)
	services := make([]int, 0, len(ev.plan.Services))
	if len(r.Control.Services) == 0 {
		for i := range ev.plan.Services {
			services = append(services, i)
		}
	}
	for _, name := range r.Control.Services {
		if i, ok := ev.plan.byName[name]; ok {
			services = append(services, i)
		}
	}
	switch r.Control.Action {
	case inbox.Refuse, inbox.Reset:
		for _, s := range services {
			ev.candidates = append(ev.candidates, candidate{service: s, record: r, states: &ev.states, control: r.Control})
		}
		// After a reset the next event must evaluate these services even if it changes
		// nothing. What is refused waits for another view: no event need look for it.
		if r.Control.Action == inbox.Reset && ev.exists() {
			ev.current, ev.dirty = false, true
		}
	case inbox.Redecide:
		if _, _, err := ev.view(); err != nil {
			ev.letters = append(ev.letters, letterOf(r, "merge", err.Error()))
			ev.settled(r.Control.Letter, store.LetterReplayed) // it died again, as a letter of its own
			ev.unknown(r, services)
			return nil
		}
		ev.trail.redecided(ev.plan, r.Control)
		offered := len(ev.candidates)
		for _, s := range services {
			ev.offer(r, ev.plan.Services[s].Projection, []int{s}, r.Control.Force)
		}
		if len(services) > 0 && len(ev.candidates) == offered {
			ev.settled(r.Control.Letter, store.LetterReplayed) // it died again, as a letter of its own
		}
		// All services and no force: the entity is now evaluated under this plan.
		if len(r.Control.Services) == 0 && ev.exists() && !ev.current {
			ev.current, ev.dirty = true, true
		}
	case inbox.Resend:
		c, rest, err := change.Decode(r.Control.Change)
		if err != nil || len(rest) > 0 || c.Entity != r.Entity || !ev.has(c.Service) {
			ev.letters = append(ev.letters, letterOf(r, "control", "what is to be sent again is no change of this entity for a service of this configuration"))
			return nil //nolint:nilerr // the letter has it
		}
		c.Resent = r.version
		ev.candidates = append(ev.candidates, candidate{service: ev.plan.byName[c.Service], record: r, states: &ev.states, resent: &c})
		ev.settled(r.Control.Letter, store.LetterReplayed)
	default:
		ev.letters = append(ev.letters, letterOf(r, "control", fmt.Sprintf("unknown action %q", r.Control.Action)))
	}
	return nil
}

func (ev *evaluation) has(service string) bool {
	_, ok := ev.plan.byName[service]
	return ok
}

// onRecord writes the audit row of a control record: what people did. A part of an
// operator's request that only decides again has none of its own: the request has
// one, and the decision shows in what is sent.
func (ev *evaluation) onRecord(r *record) {
	c := r.Control
	if c.Actor == inbox.Deliver {
		return
	}
	if c.Operation != "" && c.Letter == 0 && c.Action == inbox.Redecide && !c.Force {
		return
	}
	ev.audit = append(ev.audit, store.Audit{
		Actor: c.Actor, Action: string(c.Action), Reason: c.Reason,
		Entity: r.Entity, Service: strings.Join(c.Services, ","), Detail: auditDetail(c.Operation, c.Letter, ""),
	})
}

// replay says what became of a dead letter that came again as an event.
func (ev *evaluation) replay(r *record, reason staleReason) {
	p := r.Event.Replay
	if p == nil {
		return
	}
	state := store.LetterReplayed
	if reason != fresh {
		state = store.LetterObsolete
	}
	ev.settled(p.Letter, state)
	ev.audit = append(ev.audit, store.Audit{
		Actor: p.Actor, Action: "replay event", Reason: p.Reason, Entity: r.Entity, Detail: auditDetail(p.Operation, p.Letter, state),
	})
}

func (ev *evaluation) settled(letter int64, state store.LetterState) {
	if letter != 0 {
		ev.replayed = append(ev.replayed, store.LetterResolution{ID: letter, State: state})
	}
}

// auditDetail is the JSON object of an audit row; nil when it would be empty.
func auditDetail(operation string, letter int64, outcome store.LetterState) []byte {
	if operation == "" && letter == 0 {
		return nil
	}
	text, _ := json.Marshal(struct { // strings and a number always have a JSON form
		Operation string            `json:"operation,omitempty"`
		Letter    int64             `json:"letter,omitempty"`
		Outcome   store.LetterState `json:"outcome,omitempty"`
	}{operation, letter, outcome})
	return text
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
	e.Version, e.Deleted, e.Fingerprint = ev.version, ev.deleted, nil
	if ev.current {
		e.Fingerprint = ev.plan.Fingerprint
	}
	e.Fence = encodeState(&ev.trail, ev.fence)
	return e, true
}

func (ev *evaluation) count(r *record, o outcome) {
	source := "control"
	if r.Event != nil {
		source = r.Event.Source
	}
	ev.counts.outcomes[outcomeOf{source, o}]++
	r.outcome, r.stale = o, fresh
	// What deliver says of a refusal is in the row and the dead letter; one per
	// service would leave no room for events.
	if o != outcomeStale && (r.Control == nil || r.Control.Action != inbox.Refuse) {
		ev.trail.note(r, o.word())
	}
}
