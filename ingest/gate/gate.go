// Package gate answers one question at the door of ingest: has this event id of this source, with
// this content, been ingested already?
//
// # Model
//
// A gate remembers, per source and event id, the hash of the ingested content, for a limited
// time. An event whose id is known with the same content is a repetition and needs no further
// work. The same id with other content is let through, since a producer that uses an id twice
// must not lose the second event.
//
// The gate saves work. It is no guard. Duplicates that it lets through (it was unreachable, or
// lost its marks) are caught by the fence and the dam. So it fails open, and the mark comes last:
// after the event is durable in the inbox. A mark before the effect would lose the event at a
// crash.
//
// # Implementations
//
// [Valkey] shares its marks between processes; [Memory] is for one process.
// Package gatetest holds the suite that both pass.
//
// # Guarantee
//
// A repetition that a gate reports was marked with the same content, up to a
// collision of SHA-256. It does not promise to report every repetition: marks
// expire, make room for newer ones, and go with a server's data.
package gate

import "context"

// Hash is the structural digest of an event's stripped payload and operation.
type Hash [32]byte

// Entry is one event at the gate.
type Entry struct {
	Source  string
	EventID string // never empty, since events without an id bypass the gate
	Hash    Hash
}

// Gate remembers events that were taken in. Implementations may be used from
// any number of goroutines.
type Gate interface {
	// Seen reports, for each entry, whether it was marked with the same hash and
	// the mark has not expired. On an error the caller lets everything through.
	Seen(ctx context.Context, entries []Entry) ([]bool, error)
	// Mark remembers entries. It is called when they are durable in the inbox. A
	// later mark of the same id replaces the earlier one.
	Mark(ctx context.Context, entries []Entry) error
	// Ping reports whether the gate answers.
	Ping(ctx context.Context) error
	Close() error
}
