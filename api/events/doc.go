// Package events is the part of the API that takes events of http sources: one
// per request, or a batch.
//
// # Model
//
// A request passes these steps, and its client may hang up at any of them
// without stopping the rest:
//
//	take apart ─ begin claims ─ push (append to the inbox, all acknowledgements) ─ complete claims ─ answer
//
// An event that is wrong is refused before anything is claimed: the caller
// still has it, so it becomes no dead letter. The claim is on the event's
// key: the request's Idempotency-Key, else the source and the event's id. The
// first use of a key wins. A repetition gets the first answer; another
// event under the key is a conflict; while the first is under way the key is busy.
//
// A batch has one result per row. Its Idempotency-Key, if it has one, claims the
// whole request beside the rows' own claims.
//
// # Guarantee
//
// An accepted event is durable in the inbox, with all acknowledgements. A key
// has one effect for as long as the ledger keeps it: a process that dies leaves
// a claim whose lease ends, the next request with the key appends under the same
// claim, and decide applies the first event of a claim only. An event without
// any key is taken in at least once; a patch without key and sequence is refused.
package events
