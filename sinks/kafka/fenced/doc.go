// Package fenced appends to Kafka topics under identities that a successor can end,
// and reads a predecessor's records.
//
// # Why not the client's own producer
//
// A producer that is idempotent in the usual way has an identity that no other
// process can end: records sent before a crash or a pause may be appended at any
// time after. One with a transactional id can be ended, but writes in transactions
// only, which readers without read_committed see even when they were aborted.
//
// A [Writer] is between: its identity (producer id and epoch) belongs to a
// transactional id, and its records are no part of a transaction. [Client.Fence]
// takes the identity over: it opens a transaction over all partitions of the topic
// without writing anything into it, and then asks for the identity once more, which
// aborts that transaction. The abort's markers, which no reader ever sees, bring the
// new epoch into every partition: from there on a leader refuses batches of older
// ones. When Fence returns, no predecessor can append any longer, so its
// records are before the ends that [Client.Ends] returns.
//
// # Assumptions
//
//   - InitProducerId with a transactional id raises the epoch, and does not answer
//     before the markers of the transaction that it aborts are in all partitions.
//   - A leader refuses a batch, of a transaction or not, whose epoch is below the
//     newest that it saw of this producer id (INVALID_PRODUCER_EPOCH).
//   - Batches outside of a transaction may have a producer id that belongs to a
//     transactional id.
//
// A leader forgets the epoch of a producer id that was not heard of for
// producer.id.expiration.ms (a day), a coordinator the transactional id after
// transactional.id.expiration.ms (a week). So a Writer is fenced anew, by its owner,
// well before [Lifetime] is over. A process that stood still for longer than a day in
// the middle of a request could still append.
package fenced
