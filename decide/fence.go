package decide

import (
	"cmp"
	"slices"
	"time"

	"github.com/seed-86dfc502/weir/change"
)

// Limits of what an entity remembers per source. Positions: one per partition
// that ever held the entity, so more than one only after a source topic was
// re-partitioned or created again. Event ids: enough for a producer that
// repeats its last few sends; the gate remembers more, for a time.
const (
	maxPositions = 8
	maxEvents    = 8
)

// fence is what an entity remembers per source to recognise stale events.
type fence map[string]*sourceFence

type sourceFence struct {
	// Positions are the highest seen per stream and partition, oldest first.
	Positions []position
	// Events are marks of the last few with an event id, oldest first. A mark
	// covers id and content: an id that a producer uses again for other content
	// is another event.
	Events []string
	// Sequence is the highest that was applied.
	Sequence string
	// Version is the inbox position of the newest that was taken, and At its
	// time in Unix ms. A replayed dead letter counts at the place where it died,
	// so that several of one entity can be replayed one after the other; Died is
	// then when it died, until an event comes that is no replay.
	Version change.Version
	At      int64
	Died    int64
	// Missing is the newest refused event that no later whole document has replaced, so the
	// stored document lacks it. Nil means that nothing is missing.
	Missing *missing
}

// missing is the place of an event whose document the entity lacks.
type missing struct {
	position
	Sequence string
}

// above reports whether m is behind the place of an event, or at it with orAt; known is false where the
// two have no order.
func (m *missing) above(e *change.Event, orAt bool) (above, known bool) {
	if e.Topic != "" && m.isOf(e) {
		order := m.compare(e)
		return order < 0 || orAt && order == 0, true
	}
	if e.Sequence != "" && m.Sequence != "" {
		if order, alike := change.CompareSequence(e.Sequence, m.Sequence); alike && order != 0 {
			return order < 0, true
		}
	}
	return false, false
}

type position struct {
	Topic     string
	Partition int32
	Offset    int64
	Index     int64
}

func (p position) isOf(e *change.Event) bool { return p.Topic == e.Topic && p.Partition == e.Partition }

// compare orders the place of an event of the same stream and partition against p.
func (p position) compare(e *change.Event) int {
	return cmp.Or(cmp.Compare(e.Offset, p.Offset), cmp.Compare(e.Index, p.Index))
}

// staleReason says why an event is stale; empty when it is not.
type staleReason string

const (
	fresh         staleReason = ""
	stalePosition staleReason = "position"
	staleEventID  staleReason = "event_id"
	staleSequence staleReason = "sequence"
	staleReplay   staleReason = "replay" // a dead letter that something newer made obsolete
	staleClaim    staleReason = "claim"  // its claim had its effect already
	staleSource   staleReason = "source" // of a session of its log that is not heard any more

	// badSequence is not stale: a sequence of another kind than the last one has no order,
	// and the event is a dead letter.
	badSequence staleReason = "bad_sequence"
)

// clockAllowance is how much the clocks that date a dead letter and an inbox
// record may differ. Within it their order is unknown.
const clockAllowance = time.Minute

// check reports whether an event is stale. It must run before anything else
// looks at the event: also an event that changes nothing (noise) is
// remembered, or its late repetition would undo later events.
func (f fence) check(e *change.Event) staleReason {
	s := f[e.Source]
	if s == nil {
		return fresh
	}
	if e.Replay != nil {
		return s.checkReplay(e)
	}
	if e.Topic != "" {
		for _, p := range s.Positions {
			if p.isOf(e) && p.compare(e) <= 0 {
				return stalePosition
			}
		}
	}
	if e.Op == change.Delete && s.Missing != nil {
		// A sweep deletes entities without a row; a row that was refused is one.
		if above, _ := s.Missing.above(e, true); above {
			return stalePosition
		}
	}
	if e.Mark != "" && slices.Contains(s.Events, e.Mark) {
		return staleEventID
	}
	if e.Sequence != "" && s.Sequence != "" {
		switch order, alike := change.CompareSequence(e.Sequence, s.Sequence); {
		case !alike:
			return badSequence
		case order < 0:
			return staleSequence
		}
	}
	return fresh
}

// checkReplay reports whether something newer of its source was taken since a
// replayed dead letter died: it was never applied, so its own position says
// nothing against it, but it must not overwrite what came after it (I5). The
// first of these that can tell decides:
//
//   - the producer's sequence;
//   - the places in the stream that it came from, when the newest event of the
//     source came from the same one;
//   - the times of death, against another letter that was replayed since;
//   - the places in the inbox, when the event had one;
//   - the clocks, when they are further apart than clockAllowance. Within it
//     the event is taken for older: to leave it out is safe.
func (s *sourceFence) checkReplay(e *change.Event) staleReason {
	if e.Mark != "" && slices.Contains(s.Events, e.Mark) {
		return staleEventID
	}
	older := func(is bool) staleReason {
		if is {
			return staleReplay
		}
		return fresh
	}
	if e.Sequence != "" && s.Sequence != "" {
		order, alike := change.CompareSequence(e.Sequence, s.Sequence)
		if !alike {
			return badSequence
		}
		if order != 0 {
			return older(order < 0)
		}
	}
	for i, p := range s.Positions {
		if e.Topic == "" || !p.isOf(e) {
			continue
		}
		if p.compare(e) < 0 {
			return staleReplay
		}
		if i == len(s.Positions)-1 {
			return fresh
		}
	}
	if e.Replay.Died < s.Died {
		return staleReplay
	}
	if e.Replay.Version != 0 && s.Version != 0 {
		return older(e.Replay.Version < s.Version)
	}
	return older(s.Died == 0 && e.Replay.Died <= s.At+clockAllowance.Milliseconds())
}

// lacks notes that the entity lacks the document of an event, which was refused.
func (f fence) lacks(e *change.Event) {
	s := f[e.Source]
	if s == nil {
		s = &sourceFence{}
		f[e.Source] = s
	}
	s.Missing = &missing{position{e.Topic, e.Partition, e.Offset, e.Index}, e.Sequence}
}

// repair forgets the missing event if the event has a whole document of a later state. A replay that
// has no order with it may be older.
func (s *sourceFence) repair(e *change.Event) {
	if s.Missing == nil || len(e.Unchanged) > 0 {
		return
	}
	if above, known := s.Missing.above(e, false); !above && (known || e.Replay == nil) {
		s.Missing = nil
	}
}

// note remembers an event that is not stale. version and at are the version and time of its inbox
// record.
func (f fence) note(e *change.Event, version change.Version, at time.Time) {
	s := f[e.Source]
	if s == nil {
		s = &sourceFence{}
		f[e.Source] = s
	}
	s.repair(e)
	switch {
	case e.Replay == nil:
		s.Version, s.At, s.Died = version, at.UnixMilli(), 0
	case e.Replay.Version != 0:
		s.Version, s.Died = e.Replay.Version, e.Replay.Died
	default:
		s.Died = e.Replay.Died
	}
	// The last position is the newest event's, also when it has no position.
	if e.Topic != "" || len(s.Positions) > 0 {
		was := slices.IndexFunc(s.Positions, func(p position) bool { return p.isOf(e) })
		newest := position{e.Topic, e.Partition, e.Offset, e.Index}
		if was >= 0 {
			// A replay may be newer by its sequence and have a lower offset.
			if p := s.Positions[was]; p.compare(e) < 0 {
				newest = p
			}
			s.Positions = slices.Delete(s.Positions, was, was+1)
		}
		s.Positions = append(s.Positions, newest)
		if n := len(s.Positions) - maxPositions; n > 0 {
			s.Positions = slices.Delete(s.Positions, 0, n)
		}
	}
	if e.Mark != "" {
		s.Events = append(s.Events, e.Mark)
		if n := len(s.Events) - maxEvents; n > 0 {
			s.Events = slices.Delete(s.Events, 0, n)
		}
	}
	if e.Sequence != "" {
		s.Sequence = e.Sequence
	}
}
