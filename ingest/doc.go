// Package ingest is the first stage: it takes events from sources, stops
// repetitions at the gate, strips what matters to nobody, and appends the rest
// to the inbox.
//
// # Model
//
// A [Stage] serves one source. Each event is taken apart on the goroutine of
// its message: entity, event id, operation, sequence and payload are found,
// the payload is parsed strictly, stripped and hashed. Then the events of each
// source partition go on in their order, in batches:
//
//	gate: seen? ─ append to the inbox, all acknowledgements ─ mark the gate ─ acknowledge the source
//
// The mark comes last: a mark before the effect would lose the event at a
// crash. An append that fails is repeated, and what stands behind it waits. A
// gate that is away lets everything through, and is counted.
//
// # Guarantee
//
// At least once into the inbox, in order per source partition. Repetitions
// carry the same origin, which the fence of decide recognises. An event that
// cannot be taken in becomes a dead letter and blocks nothing (I9).
package ingest
