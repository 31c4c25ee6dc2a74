// Package ingest is the first stage: it reads events from sources, rejects duplicates at
// the gate, strips what no projection needs, and appends the rest to the inbox.
//
// # Model
//
// A [Stage] serves one source. A message carries a frame: the events of one partition of
// the source that arrived meanwhile. [Stage.Handle] ingests one frame and returns when it
// is done:
//
//	extract ─ dead letters ─ gate: seen? ─ append to the inbox ─ mark the gate ─ acknowledge the frame
//
// The events of a frame are extracted on all processors: entity, event id, operation,
// sequence and payload are located, the payload is parsed strictly, stripped and hashed.
// Everything after that keeps their order. Frames of several partitions may be in work at
// a time. The next frame of a partition follows the acknowledgement of the one before.
//
// The mark comes last: a mark before the effect would lose the event at a crash. A failed
// append is retried, and later frames wait. A gate that does not answer lets everything
// through, which is counted. Duplicates within a frame are rejected like those of earlier
// frames; duplicates in frames of two partitions that are in work at the same time pass, and
// cost work later.
//
// # A partition of the inbox that takes nothing
//
// A frame has events for all partitions of the inbox. Those for a stuck partition are set
// aside ([Aside]) after a second, and the next frames pass beside them. The appends of a
// source's partition are one [transport.Sequence]: after a failure nothing behind it is
// appended, and the refused frames are handed out again in their order.
//
// # Guarantee
//
// At least once into the inbox, in order per entity and source partition. A frame that was
// not acknowledged is redelivered. Duplicates have the same origin, which the fence of
// decide recognises. An event that cannot be ingested becomes a dead letter and blocks
// neither later events nor those of its frame (I9).
package ingest
