package decide

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/inbox"
	"github.com/seed-86dfc502/weir/store"
)

// settled is what the candidates of a batch come to.
type settled struct {
	changes  []change.Change // in the order of the candidates
	parts    []int32         // the inbox partition that caused each change
	services []int           // the index of each change's service
	causes   []*record       // of changes, and of letters
	letters  []store.DeadLetter
	replayed []store.LetterResolution // dead letters whose replay was decided here
	purged   []string                 // entities that go, with their dam states
	size     int                      // of changes and letters, in bytes
	// decisions are what the candidates came to, those that were pruned apart.
	decisions map[decisionOf]int
}

// settle compares candidates with the dam states of their entities and sets these.
// Candidates of one service and entity are compared one after the other, each with
// what the one before it left: A,B,A,B are four changes and A,A,A,B are two, also
// inside one batch (I4). errLargeOutcome when changes and letters are more than room
// in bytes.
func settle(p *Plan, candidates []candidate, room int) (settled, error) {
	out := settled{decisions: map[decisionOf]int{}}
	if room < 0 {
		return out, errLargeOutcome
	}
	n := len(candidates)
	out.changes, out.parts, out.services, out.causes = make([]change.Change, 0, n), make([]int32, 0, n), make([]int, 0, n), make([]*record, 0, n)
	for i := range candidates {
		c := &candidates[i]
		if c.purge {
			// What comes after it begins anew.
			if *c.states = (store.States{}); !slices.Contains(out.purged, c.record.Entity) {
				out.purged = append(out.purged, c.record.Entity)
			}
			continue
		}
		service := p.Services[c.service]
		row := c.states.Get(service.Number)
		if c.control != nil {
			if control(c.control, &row) {
				c.states.Set(row)
			}
			continue
		}
		if c.resent != nil {
			// Late by its nature; the state says what the newest is, and keeps it. If it is
			// this, it is under way again.
			if row.Found && row.Refused && row.Version == c.resent.Version {
				row.Refused = false
				c.states.Set(row)
			}
			resent := *c.resent
			resent.Trace = c.record.span.Trace()
			out.changes, out.parts, out.services = append(out.changes, resent), append(out.parts, c.record.part), append(out.services, c.service)
			out.sent(c)
			continue
		}
		if r := c.record.Control; r != nil && (r.Letter != 0 || r.Version != 0) {
			// A newer change that was decided since is delivered or a letter itself.
			overtaken, state := row.Found && row.Version > r.Version, store.LetterReplayed
			if overtaken {
				state = store.LetterObsolete
			}
			if r.Letter != 0 {
				out.replayed = append(out.replayed, store.LetterResolution{ID: r.Letter, State: state, Version: r.Version})
			}
			if overtaken {
				continue
			}
		}
		content, equal, err := compare(p, c, &row)
		if err != nil {
			return settled{}, err
		}
		again := row.Refused && c.record.Control != nil && c.record.Control.Letter != 0
		if equal && !c.force && !again {
			out.held(c, cmp.Or(c.absent, DecisionHeldBack))
			continue
		}
		if !row.Found && c.output == nil {
			// Nothing was ever sent, so there is nothing to retract.
			out.held(c, cmp.Or(c.absent, DecisionFiltered))
			continue
		}
		ch := change.Change{
			Service: service.Name, Entity: c.record.Entity, Op: change.Upsert, Version: c.record.version,
			Content: content, Revision: p.Revision, Time: c.record.at,
			Trace: c.record.span.Trace(),
		}
		if c.output == nil {
			ch.Op = change.Retract
		} else if ch.Doc, err = c.output.text(); err != nil {
			return settled{}, err
		}
		size := sizeOf(&ch)
		if out.size += size; out.size > room {
			return out, errLargeOutcome
		}
		if size > p.MaxChange {
			l := letterOf(c.record, "oversized", fmt.Sprintf("the change is %d bytes, the limit is %d", size, p.MaxChange))
			l.Service, l.Payload = service.Name, ch.Doc
			l.DedupKey += "/" + service.Name
			out.letters, out.causes = append(out.letters, l), append(out.causes, c.record)
			if lost(c.record.Control) && control(c.record.Control, &row) {
				c.states.Set(row)
			}
			continue
		}
		ch.Key = change.Key(ch.Service, ch.Entity, ch.Version, ch.Content)
		out.changes, out.parts, out.services = append(out.changes, ch), append(out.parts, c.record.part), append(out.services, c.service)
		out.causes = append(out.causes, c.record)
		out.sent(c)
		row.Content, row.Version, row.Refused = content, max(row.Version, ch.Version), false
		c.states.Set(row)
	}
	return out, nil
}

// sent notes that a candidate became a change.
func (s *settled) sent(c *candidate) {
	s.decisions[decisionOf{c.service, DecisionSent}]++
	c.record.sent = append(c.record.sent, c.service)
}

// held counts what was evaluated and not sent.
func (s *settled) held(c *candidate, decision string) {
	of := decisionOf{c.service, decision}
	s.decisions[of]++
	if c.record.followed {
		c.record.held = append(c.record.held, of)
	}
}

// changeOverhead is at least what the encoding of a change adds to its
// document, entity and service.
const changeOverhead = 256

// sizeOf is at least the size of a change's encoding, in bytes, but for its trace.
func sizeOf(c *change.Change) int {
	return len(c.Doc) + len(c.Entity) + len(c.Service) + changeOverhead
}

// compare reports whether a candidate equals what the row holds, and gives the
// content to store. A row of an older hash scheme is compared under that
// scheme and moves over when it changes.
func compare(p *Plan, c *candidate, row *store.Row) (change.Content, bool, error) {
	if !row.Found || row.Content == nil {
		return c.content, false, nil
	}
	scheme := row.Content.Scheme()
	if c.output == nil || scheme == 0 || scheme == canonicaltree.Scheme {
		return c.content, bytes.Equal(c.content, row.Content), nil
	}
	numbers := p.Projections[p.Services[c.service].Projection].Numbers()
	doc, err := c.output.text()
	if err != nil {
		return nil, false, err
	}
	under, err := contentUnder(scheme, doc, numbers)
	if err != nil {
		return nil, false, err
	}
	return c.content, bytes.Equal(under, row.Content), nil
}

// lost reports whether a control record asks for a change in the stead of one that
// was not delivered and will not be. When none can be made, nobody knows what the
// customer has: the state must not hold back what was never sent.
func lost(c *inbox.Control) bool {
	return c != nil && c.Action == inbox.Redecide && c.Force && c.Version != 0 && c.Actor == inbox.Deliver
}

// control changes a state for a refusal, a reset or a change that is lost; false when
// it stays as it is. The version stays in any case: it is that of the last change, and
// deliveries that are under way are compared with it.
func control(c *inbox.Control, row *store.Row) bool {
	if !row.Found {
		return false
	}
	switch {
	case c.Action == inbox.Reset && row.Content != nil:
		row.Content, row.Refused = nil, false
	case c.Action == inbox.Redecide && row.Content != nil && row.Version == c.Version:
		row.Content, row.Refused = nil, false
	// Never back to the delivered content: that is only the least that the sink
	// holds. An earlier attempt that timed out may have put the refused one there.
	// A state that was reset meanwhile stays unknown.
	case c.Action == inbox.Refuse && row.Version == c.Version && row.Content != nil && !row.Refused:
		row.Refused = true
	default:
		return false
	}
	return true
}
