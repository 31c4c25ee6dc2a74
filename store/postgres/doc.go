// Package postgres keeps Weir's state in PostgreSQL (15 or later).
//
// # Model
//
// Every statement of this package is a point look-up by key over a whole
// batch: the keys arrive as array parameters, unnest makes them rows, and an
// index finds each. One prepared statement serves all sizes, planned once
// without looking at the parameters (plan_cache_mode = force_generic_plan), and
// joins that read a whole table are ruled out, so that stale statistics cannot
// flip a plan. Only lists of dead letters are planned by their parameters, most of
// which are empty.
//
// The decision transaction is one round trip, one pipeline, when nothing is to be
// loaded: begin, compare revision and watermarks (offset, token, session of
// the server), all writes and COMMIT. Loading
// comes before, in one more: begin, lock and compare the watermarks, load
// entities with their dam states. Only the watermarks are locked while Go code runs
// between them.
// Since COMMIT is on its way before the answers to the writes are read, a write
// that did not touch as many rows as it had to raises an error in the server
// (weir_expect), which makes the server skip COMMIT.
//
// A swap of progress is one round trip and one statement that compares all it
// rests on: token, session of the server, watermark, revision. It holds the lock
// that makes Activate wait, as decisions do.
//
// # Guarantee
//
// Read committed isolation, synchronous_commit as the server has it, which must
// not be off. Locks are taken in the order of the keys' bytes. An error before
// COMMIT was sent is certainly not committed; after it, only an error that the
// server itself reported is.
package postgres
