// Package decide is the second stage: it takes the events of the inbox in
// their order and lets a change through to a service only when that service's
// projection really changed.
//
// # Model
//
// Each partition of the inbox has one owner at a time. The owner takes the
// partition over (writes its token, reads the watermark) and then decides records in offset
// order, in batches, each batch in one transaction over all partitions of its worker that
// have something waiting:
//
//	watermark CAS ─ fence ─ merge ─ noise? ─ changed paths ─ project ─ dam ─ frame ─ commit ─ hand over
//
// The decision and its frame in the changes log are durable together. After a commit of unknown
// outcome, and after anything but a clean commit, the owner takes over again and reads the
// state from the store. A partition that waits for that is left out of the batches.
//
// The owner caches entities as its decisions left them, and loads all others. A cached
// entity is valid while the partition's token and offset are unchanged; every transaction
// checks both.
//
// # Parts
//
//   - [Plan] is a compiled configuration.
//   - fence tells stale events by origin position, event id and sequence.
//   - hearing tells events of a session of a log that is not heard any more, as those of a
//     reader of a replication slot that another one has replaced.
//   - evaluation applies the records of one entity to it, and offers its document to
//     the services that may see a difference.
//   - compareAndSend compares a candidate with the dam state of a service, in order, sets
//     the state and makes the change.
//   - decideBatch does both for the entities of a batch. It is pure: transactions,
//     [Simulator] and [Plan.Preview] decide by it alone.
//   - pack makes the frames of a decision, each linked to the one before it of
//     its partition, also across owners.
//   - [Decider] runs the transactions, owns the partitions and hands frames over.
//
// # Guarantees
//
// I1, I3, I4, I5, I8, I9, I10 and I12 of the design rest on this package; its
// tests name them.
package decide
