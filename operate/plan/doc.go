// Package plan tells what a candidate configuration would do to the stored
// state: per service, how many entities would be sent, retracted or newly held
// back, with sample differences. Nothing is written.
//
// # Model
//
// Every stored entity is decided under the candidate by the code that decides
// (dam.Preview), against the dam rows as they are; an entity moves to a new
// configuration at its next event or by a backfill (replay --outdated), and that
// is what it would cause then. Entities are read in pages, with their rows in
// one batch per page, so memory is bounded by a page whatever their number.
//
// # What cannot be known
//
// A dam row holds a hash, not a document, so what a customer has now is only
// known when the configuration that made it is given too ([Input.Against]): then
// samples are differences, and what would be sent anyway is told from what the
// candidate causes. Stored source documents were stripped, cut out (payload) and
// patched (mode) at the door by the configuration of that time. What the
// candidate strips more is stripped here too; what it would strip less, or cut
// out differently, is not there to be looked at. Notes say so where it applies.
package plan
