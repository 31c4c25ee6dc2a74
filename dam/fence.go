package dam

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/inbox"
)

// Limits of what an entity remembers per source. Positions: one per partition
// that ever held the entity, so more than one only after a source topic was
// re-partitioned or created again. Event ids: enough for a producer that
// repeats its last few sends; the gate remembers more, for a time.
const (
	maxPositions = 8
	maxEvents    = 8
)

// fence is what an entity remembers to tell stale events by, per source.
type fence map[string]*sourceFence

type sourceFence struct {
	// Positions are the highest seen per stream and partition, oldest first.
	Positions []position `json:"p,omitempty"`
	// Events are marks of the last few with an event id, oldest first. A mark
	// covers id and content: an id that a producer uses again for other content
	// is another event.
	Events []string `json:"i,omitempty"`
	// Sequence is the highest that was taken.
	Sequence string `json:"q,omitempty"`
}

type position struct {
	Topic     string `json:"t"`
	Partition int32  `json:"n"`
	Offset    int64  `json:"o"`
}

// eventMark is 96 bits of SHA-256 over event id and content, as text.
func eventMark(id string, content canonicaltree.Digest) string {
	h := sha256.New()
	h.Write(content[:])
	h.Write([]byte(id))
	return base64.RawStdEncoding.EncodeToString(h.Sum(nil)[:12])
}

// staleReason says why an event is stale; empty when it is not.
type staleReason string

const (
	fresh         staleReason = ""
	stalePosition staleReason = "position"
	staleEventID  staleReason = "event_id"
	staleSequence staleReason = "sequence"
)

func decodeFence(b []byte) (fence, error) {
	f := fence{}
	if len(b) == 0 {
		return f, nil
	}
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, fmt.Errorf("stored fence: %w", err)
	}
	return f, nil
}

func (f fence) encode() ([]byte, error) { return json.Marshal(f) }

// check tells whether an event is stale; mark is its eventMark, empty for an
// event without id. It must run before anything else
// looks at the event: also an event that changes nothing (noise) is
// remembered, or its late repetition would undo what came after it.
func (f fence) check(e *inbox.Event, mark string) staleReason {
	s := f[e.Source]
	if s == nil {
		return fresh
	}
	if e.Topic != "" {
		for _, p := range s.Positions {
			if p.Topic == e.Topic && p.Partition == e.Partition && e.Offset <= p.Offset {
				return stalePosition
			}
		}
	}
	if mark != "" && slices.Contains(s.Events, mark) {
		return staleEventID
	}
	if e.Sequence != "" && s.Sequence != "" && inbox.CompareSequence(e.Sequence, s.Sequence) < 0 {
		return staleSequence
	}
	return fresh
}

// note remembers an event that is not stale.
func (f fence) note(e *inbox.Event, mark string) {
	s := f[e.Source]
	if s == nil {
		s = &sourceFence{}
		f[e.Source] = s
	}
	if e.Topic != "" {
		at := slices.IndexFunc(s.Positions, func(p position) bool { return p.Topic == e.Topic && p.Partition == e.Partition })
		if at >= 0 {
			s.Positions = slices.Delete(s.Positions, at, at+1)
		}
		s.Positions = append(s.Positions, position{e.Topic, e.Partition, e.Offset})
		if n := len(s.Positions) - maxPositions; n > 0 {
			s.Positions = slices.Delete(s.Positions, 0, n)
		}
	}
	if mark != "" {
		s.Events = append(s.Events, mark)
		if n := len(s.Events) - maxEvents; n > 0 {
			s.Events = slices.Delete(s.Events, 0, n)
		}
	}
	if e.Sequence != "" {
		s.Sequence = e.Sequence
	}
}
