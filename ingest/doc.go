// Package ingest is the first stage: it takes events from sources, stops
// repetitions at the gate, strips what matters to nobody, and appends the rest
// to the inbox.
//
// # Model
//
// A [Stage] serves one source. A message brings a frame: the events of one
// partition of the source that piled up. [Stage.Handle] does the whole work on
// one of them, and returns when it is done:
//
//	take apart ─ dead letters ─ gate: seen? ─ append to the inbox ─ mark the gate ─ acknowledge the frame
//
// The events of a frame are taken apart on all processors: entity, event id,
// operation, sequence and payload are found, the payload is parsed strictly,
// stripped and hashed. Everything after that keeps their order. Frames of
// several partitions may be in work at a time. The next one of the same partition
// comes after this one was acknowledged, so nothing else keeps the order.
//
// The mark comes last: a mark before the effect would lose the event at a
// crash. An append that fails is repeated, and what is behind it waits. A
// gate that does not answer lets everything through, and that is counted. What the gate would
// stop event by event is stopped within a frame too; repetitions in frames of two
// partitions that are in work at the same time pass, and cost work further on.
//
// # Guarantee
//
// At least once into the inbox, in order per source partition. A frame that was
// not acknowledged is redelivered as a whole. Repetitions carry the same origin,
// which the fence of decide recognises. An event that cannot be taken in becomes
// a dead letter and blocks nothing, nor the others of its frame (I9).
package ingest
