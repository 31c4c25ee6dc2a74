package decide

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/projections"
	"github.com/seed-86dfc502/weir/store"
)

// output is the view of a document. Most views are held back, so the text is written
// only when a change needs it.
type output struct {
	scratch    *scratch
	doc        *projections.Document
	projection int
	written    []byte
	counted    bool // the outcome has it
}

// text writes the output once, for all services of the projection.
func (o *output) text() ([]byte, error) {
	if o.written == nil {
		text, match, err := o.doc.Project(o.scratch.texts.rest(blockBytes/8), o.projection)
		if err != nil {
			return nil, err
		}
		if !match {
			return nil, errors.New("a projection that matched does not match again")
		}
		o.written = o.scratch.texts.keep(text)
	}
	return o.written, nil
}

// retracted is the content of all retractions; what keeps it copies it.
var retracted = change.Retracted() //nolint:gochecknoglobals // never written

// candidate is the view of an entity, for the services that share it.
type candidate struct {
	content change.Content
	output  *output // nil for a retraction
	absent  string  // of a retraction: what keeps the entity out; empty when it is deleted
}

// offer projects the document for services whose projections have one shape, and settles
// the result with their dam states, in their order. It reports whether there is one: an
// error of the projection is a dead letter per service, whose row is kept. One customer's
// filter must not stop the others.
func (ev *evaluation) offer(r *record, projection int, services []int) (shown bool, err error) {
	c := candidate{content: retracted}
	if ev.present {
		ev.evaluations++
		doc := ev.document()
		digest, match, err := doc.Sum(projection)
		switch {
		case err != nil:
			for _, s := range services {
				own := ev.plan.Projections[ev.plan.Services[s].Projection].Own(err)
				ev.failFor(s, letterFor(r, ev.plan.Services[s].Name, "projection", own.Error()))
			}
			ev.markUnknown(r.Control, services)
			return false, nil
		case match:
			c.content = ev.texts.keep(append(append(ev.texts.rest(1+len(digest)), canonicaltree.Scheme), digest[:]...))
			ev.output = output{scratch: ev.scratch, doc: doc, projection: projection}
			c.output = &ev.output
		default:
			c.absent = DecisionFiltered
			ev.history.filteredOut(ev.plan, projection)
		}
	} else if len(ev.docs) > 0 {
		c.absent = DecisionIncomplete
	}
	if len(services) > 16 && ev.present {
		r.sent = slices.Grow(r.sent, len(services))
	}
	for _, s := range services {
		if err := ev.compareAndSend(r, s, &c); err != nil {
			return true, err
		}
	}
	return true, nil
}

// compareAndSend compares a candidate with the dam state of a service, and sends it and sets the
// state if they differ. Candidates of one service and entity are compared in order, each with the
// state that the previous one left: A,B,A,B are four changes and A,A,A,B are two, also inside one
// batch (I4).
func (ev *evaluation) compareAndSend(r *record, service int, c *candidate) error {
	if ev.full() {
		return errLargeOutcome
	}
	row := ev.states.Get(ev.plan.Services[service].Number)
	if ev.superseded(r.Control, &row) {
		return nil
	}
	equal, err := c.equals(&row)
	if err != nil {
		return err
	}
	if equal && !forcesSend(r.Control, &row) {
		ev.suppress(r, service, cmp.Or(c.absent, DecisionHeldBack))
		return nil
	}
	if !row.Found && c.output == nil {
		// Nothing was ever sent, so there is nothing to retract.
		ev.suppress(r, service, cmp.Or(c.absent, DecisionFiltered))
		return nil
	}
	ch := change.Change{
		Service: ev.plan.Services[service].Name, Entity: r.Entity, Op: change.Upsert, Version: r.version,
		Content: c.content, Revision: ev.plan.Revision, Time: r.at, Trace: r.span.Trace(),
		Effect: c.effect(&row), Planned: r.Control != nil && r.Control.Actor != change.Deliver, Mends: row.Refused,
		Forced: r.Control != nil || row.Found && row.Content == nil,
	}
	code, reason := "oversized", ""
	if c.output == nil {
		ch.Op = change.Retract
	} else if ch.Doc, err = c.output.text(); err != nil { // of a carried field: the others were evaluated
		code, reason = "projection", ev.plan.Projections[ev.plan.Services[service].Projection].Own(err).Error()
	}
	size := sizeOf(&ch)
	if reason == "" && size > ev.plan.MaxChange {
		reason = fmt.Sprintf("the change is %d bytes, the limit is %d", size, ev.plan.MaxChange)
	}
	if c.output != nil && c.output.counted {
		size -= len(ch.Doc)
	}
	if reason == "" && ev.single && size > ev.room && len(ev.changes) > 0 {
		reason = "the changes of this event are more than one decision may have; replay the dead letter to decide this one by itself"
	}
	if reason != "" {
		l := letterFor(r, ch.Service, code, reason)
		l.Payload = ch.Doc
		ev.failFor(service, l)
		ev.markUnknown(r.Control, []int{service})
		return nil
	}
	if c.output != nil {
		c.output.counted = true
	}
	if ch.Effect == change.Leaves || ch.Effect == change.Keeps && (ch.Empty() || r.Event != nil && r.Event.At > 0) {
		ch.At, ch.Entered = r.atSource(), row.Entered
	}
	if !row.Found {
		row.Entered = r.entered()
	}
	ev.send(r, service, &ch, size)
	ev.succeedFor(r, service)
	if !ev.plan.Services[service].Log && row.Found && (row.Refused || row.Content == nil) {
		ev.out.Settled = append(ev.out.Settled, store.LetterResolution{Stage: store.StageDeliver, Service: ch.Service, Entity: r.Entity, State: store.LetterObsolete, Version: ch.Version})
	}
	row.Content, row.Version, row.Refused = c.content, max(row.Version, ch.Version), false
	ev.states.Set(row)
	return nil
}

// atSource returns when the event of a record happened, or zero if its source does not say.
func (r *record) atSource() time.Time {
	switch {
	case r.Event == nil || r.Event.At == 0:
		return time.Time{}
	case r.Event.At == change.AtIngest:
		return r.at
	}
	return time.UnixMilli(r.Event.At).UTC()
}

// entered returns when an entity enters that the record brings into a service.
func (r *record) entered() change.Entered {
	if at := r.atSource(); !at.IsZero() {
		return change.EnteredAt(at)
	}
	return change.EnteredAt(r.at)
}

// superseded reports whether a service has a newer change than the request names, which
// is delivered, or a dead letter itself. It resolves the request's dead letter.
func (ev *evaluation) superseded(c *change.Control, row *store.Row) bool {
	if c == nil || c.Letter == 0 && c.Version == 0 {
		return false
	}
	superseded, state := row.Found && row.Version > c.Version, store.LetterReplayed
	if superseded {
		state = store.LetterObsolete
	}
	if c.Letter != 0 {
		ev.out.Settled = append(ev.out.Settled, store.LetterResolution{ID: c.Letter, State: state, Version: c.Version})
	}
	return superseded
}

// forcesSend reports whether a request sends content that equals the state, too.
func forcesSend(c *change.Control, row *store.Row) bool {
	return c != nil && (c.Force && !(c.Actor == change.Refresh && row.Refused) || c.Letter != 0 && row.Refused)
}

// send adds a change to the verdict. size is its own size in bytes, without shared documents.
func (ev *evaluation) send(r *record, service int, c *change.Change, size int) {
	c.Partition = r.partition
	ev.changes = append(ev.changes, &ev.ofChanges.keep(append(ev.ofChanges.rest(1), decidedChange{*c, service}))[0])
	ev.room -= size
	ev.decisions.add(service, kindSent, 1)
	r.sent = append(r.sent, service)
}

// suppress counts a service that was evaluated and gets no change.
func (ev *evaluation) suppress(r *record, service int, decision string) {
	ev.succeedFor(r, service)
	ev.decisions.add(service, kindOf(decision), 1)
}

// changeOverhead is an upper bound of the bytes that the encoding of a change adds to its
// document, entity and service.
const changeOverhead = 256

// sizeOf is at least the size of a change's encoding, in bytes, but for its trace.
func sizeOf(c *change.Change) int {
	return len(c.Doc) + len(c.Entity) + len(c.Service) + changeOverhead
}

// effect returns how a candidate changes the number of the service's entities. Unknown content
// counts as one that the service has.
func (c *candidate) effect(row *store.Row) change.Effect {
	has := row.Found && !row.Content.IsRetracted()
	switch {
	case c.output != nil && !has:
		return change.Enters
	case c.output == nil && has:
		return change.Leaves
	}
	return change.Keeps
}

// equals reports whether a candidate equals the content of the row.
func (c *candidate) equals(row *store.Row) (bool, error) {
	if !row.Found || row.Content == nil {
		return false, nil
	}
	// With a second scheme a row of the first is to be compared under that one: an
	// upgrade re-sends nothing.
	if scheme := row.Content.Scheme(); c.output != nil && scheme != 0 && scheme != canonicaltree.Scheme {
		return false, fmt.Errorf("stored hash scheme %d is not known to this build (it writes %d)", scheme, canonicaltree.Scheme)
	}
	return bytes.Equal(c.content, row.Content), nil
}

// markUnknown sets the dam states of services whose change is lost and cannot be made again:
// the customer's content is unknown, and content that was never sent must not be held back.
func (ev *evaluation) markUnknown(c *change.Control, services []int) {
	if c != nil && c.Action == change.Redecide && c.Force && c.Version != 0 && c.Actor == change.Deliver {
		ev.amend(c, services)
	}
}

// amended changes a state for a refusal, a reset or a change that is lost; false when it stays as
// it is. The version stays in any case: it is the last change's, and deliveries under way are
// compared with it.
func amended(c *change.Control, row *store.Row) bool {
	if !row.Found {
		return false
	}
	switch {
	case c.Action == change.Reset && row.Content != nil:
		row.Content, row.Refused = nil, false
	case c.Action == change.Redecide && row.Content != nil && row.Version == c.Version:
		row.Content, row.Refused = nil, false
	// Never back to the delivered content: that is only the least that the sink
	// holds. An earlier attempt that timed out may have put the refused one there.
	// A state that was reset meanwhile stays unknown.
	case c.Action == change.Refuse && row.Version == c.Version && row.Content != nil && !row.Refused:
		row.Refused = true
	default:
		return false
	}
	return true
}
