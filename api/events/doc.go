// Package events is the part of the API that takes events of http sources: one
// per request, or a batch.
//
// # Model
//
// A request passes these steps. Its client may hang up at any of them without stopping the rest:
//
//	parse ─ begin claims ─ append to the inbox ─ complete claims ─ answer
//
// A wrong event is refused before anything is claimed. Its caller still has it, so it becomes no
// dead letter. The claim is on the event's key: the request's Idempotency-Key, else the source
// and the event's id. A batch has one result per row. Its Idempotency-Key claims the whole
// request beside the rows' own claims.
//
// # Protocol of a key
//
// [ledger.once] is all of it. Insert the key with its fingerprint and a new claim id, or read
// the row of the first request:
//
//   - another fingerprint: conflict, nothing is appended;
//   - an answer: replay it, nothing is appended;
//   - no answer: append under the stored claim id, then store the answer. The first stored
//     answer is the answer to all requests.
//
// Nothing has an owner, so nothing waits, expires or is taken over. Appending again is harmless:
// decide applies the first record of a claim in its order, in the transaction that notes the
// claim, and drops later ones before they reach fence, history or dead letters. The gate is not
// consulted for a claimed event.
//
//   - A process dies before the append, before the answer is stored, or before it is sent: the
//     next request appends again, again, or replays.
//   - Requests at the same time, in any processes, have one claim: each may append, and all get
//     one answer. A stalled one may append after newer events of its entity; decide drops it.
//   - The answer cannot be stored: 503. The event is durable, and the next request stores the
//     answer.
//   - The store is restored: a key that it lost gets another claim. The record names the key by a
//     digest, so decide drops the second claim's effect, or refuses other content. Its answer has
//     another id; everything else in it is equal.
//   - The inbox is lost: an answer of its generation does not count until its claim was decided.
//   - A key expires: it gets a new claim, and a request under the old one that is still under
//     way keeps its own answer. Notes of decide are kept at least as long as claims.
//   - A batch after one that died: rows with an answer are duplicates, the others are appended in
//     their order. So its answer may call rows duplicates that no client was told of before.
//   - An embedded store loses answers that were not yet written with a later append: the next
//     request appends again and gets an equal answer, or duplicates in a batch.
//   - Tenants share no row and no joined call; PostgreSQL's row-level security holds for every
//     statement of the ledger that a request runs.
//
// The check API has no keys in the ledger: its answer depends on the entity's row, which
// remembers event ids itself, see package checks.
//
// # Guarantee
//
// An accepted event is durable in the inbox, with all acknowledgements. A key has one effect for
// as long as the ledger keeps it, and equal answers but for ids after a
// restore. An event without any key
// is taken in at least once; a patch without key and sequence is refused.
package events
