package checks

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// Request asks whether an entity's content is to be sent.
type Request struct {
	Entity  string
	Content change.Content // Structural or Given, never nil
	// EventID, if not empty, lets a repetition of this request be told from news.
	EventID string
	// Sequence, if not empty, is the producer's order, see change.CompareSequence:
	// one below the highest seen is stale.
	Sequence string
}

// Decision is the answer to a caller.
type Decision string

// The decisions.
const (
	// Pass: send it.
	Pass Decision = "pass"
	// Duplicate: it equals the last delivered content.
	Duplicate Decision = "duplicate"
	// Stale: something newer came before it; never send it.
	Stale Decision = "stale"
)

// Answer is a caller's answer.
type Answer struct {
	Decision Decision
	// Version of the pass; else that of the current content.
	Version change.Version
	// Key is the idempotency key of a pass, empty otherwise: the same for the
	// same version, see change.Key.
	Key string
	// Repeated: this version passed before and is not confirmed yet.
	Repeated bool
}

// Decide decides a request on a row of the service of that name, and returns the
// row to store, the same when nothing is to be written. now is the version of a
// pass, in microseconds, unless the row is ahead of it. The error is one of a
// row that cannot be read, of class store.Fatal.
//
// In this order, each rule only where those before it say nothing:
//
//   - an event that the row remembers: of the current content, it gets the
//     answer again, until it is confirmed, then it is a duplicate; of a version
//     that was given back last it is decided as news; of anything older it is
//     stale;
//   - a sequence below the highest seen is stale;
//   - the current content: passes again until it is confirmed, then it is a
//     duplicate;
//   - any other content passes.
func Decide(service string, row store.CheckRow, r Request, now time.Time) (store.CheckRow, Answer, error) {
	m, err := decodeMemory(row.Memory)
	if err != nil {
		return row, Answer{}, err
	}
	var event change.Mark
	var known bool
	if r.EventID != "" {
		event = change.EventMark(r.EventID, r.Content)
		var v change.Version
		v, known = m.find(event)
		switch {
		case known && m.released && v == row.Version:
			known = false // its version was given back, and nothing newer passed since
		case known && v != current(&row, &m):
			return row, Answer{Decision: Stale, Version: row.Version}, nil
		}
	}
	order := 1
	if r.Sequence != "" && m.sequence != "" {
		var alike bool
		if order, alike = change.CompareSequence(r.Sequence, m.sequence); !alike {
			return row, Answer{}, fmt.Errorf("%w: it is a %s, the highest seen a %s", ErrSequence, change.KindOfSequence(r.Sequence), change.KindOfSequence(m.sequence))
		}
	}
	if !known && order < 0 {
		return row, Answer{Decision: Stale, Version: row.Version}, nil
	}
	var a Answer
	switch v := current(&row, &m); {
	case row.Content == nil || !known && !bytes.Equal(row.Content, r.Content):
		// A new one. A refusal may go back to the row's present content.
		m.sole = row.Content != nil && v == row.DeliveredVersion && equal(row.Content, row.Delivered)
		m.released = false
		row.Content, row.Version = r.Content, max(row.Version+1, change.Version(max(now.UnixMicro(), 0)))
		a = Answer{Decision: Pass, Version: row.Version}
	case v == row.DeliveredVersion:
		a = Answer{Decision: Duplicate, Version: v}
	default:
		m.sole = false
		a = Answer{Decision: Pass, Version: v, Repeated: true}
	}
	if a.Decision == Pass {
		a.Key = change.Key(service, r.Entity, a.Version, row.Content)
	}
	if r.EventID != "" && !known {
		m.remember(event, a.Version)
	}
	if r.Sequence != "" && order > 0 {
		m.sequence = r.Sequence
	}
	return stored(row, m), a, nil
}

// stored puts the memory into the row. A row that says nothing stays without.
func stored(row store.CheckRow, m memory) store.CheckRow {
	if b := m.encode(); len(row.Memory) > 0 || !bytes.Equal(b, (&memory{}).encode()) {
		row.Memory = b
	}
	return row
}

// ErrSequence says that a sequence is of another kind than the highest one seen of its
// entity: the two have no order.
var ErrSequence = errors.New("the sequence has no order beside the highest one seen")

// ErrUnknownVersion says that no request of this entity was answered with that version, as
// far as the store knows: it is above the row's.
var ErrUnknownVersion = errors.New("that version was never given")

// Confirm records that a version took effect at the receiver. It never goes
// backwards and may be repeated. The error is ErrUnknownVersion, or one of a row
// that cannot be read.
//
// A version below the row's may be confirmed late. Its content is not known any
// more, so that a refusal of the current content leads to unknown.
func Confirm(row store.CheckRow, version change.Version) (store.CheckRow, error) {
	m, err := decodeMemory(row.Memory)
	if err != nil {
		return row, err
	}
	switch {
	case version > row.Version:
		return row, ErrUnknownVersion
	case version <= row.DeliveredVersion:
		return row, nil
	}
	row.DeliveredVersion, row.Delivered = version, nil
	if m.released {
		row.Content = nil // it went back to something that the receiver had before
	} else if version == row.Version {
		row.Delivered = row.Content
	}
	return stored(row, m), nil
}

// Outcome says how a sending failed.
type Outcome string

// The outcomes.
const (
	// Unknown: it may have taken effect (a time-out, a broken connection, a crash).
	Unknown Outcome = "unknown"
	// Refused: the receiver refused it, and certainly holds its earlier content.
	Refused Outcome = "refused"
)

// Released is what became of a release.
type Released struct {
	// Done is false when the version was confirmed, or when something newer
	// passed: then nothing changed.
	Done bool
	// Known says that the row holds the delivered content again. Otherwise the row is unknown,
	// and the next content passes in any case.
	Known bool
	// Version is the version of the last pass.
	Version change.Version
}

// Release returns a version that could not be sent. The events that it
// answered are decided as news when they are repeated, until something newer
// passes: then they are stale. After Refused the row holds the delivered content again,
// but only if no other sending can have changed the receiver's content: the
// version was given out once, on top of a confirmed one. In every other case the
// row becomes unknown (docs/decisions.md). It may be
// repeated. The error is ErrUnknownVersion, or one of a row that cannot be read.
func Release(row store.CheckRow, version change.Version, outcome Outcome) (store.CheckRow, Released, error) {
	m, err := decodeMemory(row.Memory)
	if err != nil {
		return row, Released{}, err
	}
	switch {
	case version > row.Version:
		return row, Released{}, ErrUnknownVersion
	case version < row.Version || version <= row.DeliveredVersion:
		return row, Released{Version: row.Version}, nil
	}
	switch {
	case outcome != Refused || !m.released && !m.sole:
		row.Content = nil
	case !m.released:
		row.Content = row.Delivered
	}
	m.released, m.sole = true, false
	return stored(row, m), Released{Done: true, Known: row.Content != nil, Version: row.Version}, nil
}
