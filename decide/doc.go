// Package decide is decide, the second stage: it takes the events of the inbox in
// their order and lets a change through to a service only when that service's
// projection really changed.
//
// # Model
//
// Each partition of the inbox has one owner at a time. The owner takes the
// partition over (writes its token, reads watermark and outbox in one snapshot,
// publishes what the outbox holds) and then decides records in offset order, in
// batches, each batch in one transaction over all partitions of its lane that
// have something waiting:
//
//	watermark CAS ─ fence ─ merge ─ noise? ─ changed paths ─ project what they touch ─ dam ─ outbox ─ commit ─ publish
//
// The decision and the duty to send it are durable together. What a commit of
// unknown outcome left behind is read from the store, never guessed: after
// anything but a clean commit the owner takes over again.
//
// The owner remembers entities as its decisions left them, and loads what it does
// not remember. Memory is valid under its token at its offset, which every
// transaction compares; nobody writes past it.
//
// # Parts
//
//   - [Plan] is a compiled configuration.
//   - fence tells stale events by origin position, event id and sequence.
//   - evaluation turns the records of one entity into candidates, one per
//     record and service whose projection they may have changed. It is pure.
//   - settle compares candidates with dam states, in order, sets these and gives
//     changes. It is pure too.
//   - decideBatch is both, over the entities of a batch: transactions, [Simulator] and
//     [Plan.Preview] decide by it alone.
//   - pack makes the frames of a decision, each linked to the one before it of
//     its partition, also across owners.
//   - [Decider] runs the transactions, owns the partitions and publishes.
//
// # Guarantees
//
// I1, I3, I4, I5, I8, I9, I10 and I12 of the design rest on this package; its
// tests name them.
package decide
