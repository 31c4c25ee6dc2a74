// Package plan previews the effect of a candidate configuration on the stored state: per
// service, how many entities would be sent, retracted or newly held back, with sample
// differences. Nothing is written.
//
// # Model
//
// The code of decide (decide.Preview) decides every stored entity under the candidate, against
// the present dam rows. An entity moves to a new configuration at its next event or by a backfill
// (replay --outdated). The preview is of that decision. Entities are read in pages, with their
// rows in one batch per page, so a page bounds the memory.
//
// # Limits
//
// A dam row holds a hash, not a document. The customer's present document is known only when
// the configuration that made it is given, too ([Input.Against]). Then samples are differences,
// and sends that the candidate does not cause are counted apart.
//
// Stored source documents were stripped, cut out (payload) and patched (mode) by the
// configuration of their time. The candidate's further strip rules apply here; members that
// were stripped or cut out then are missing. Notes name such cases.
package plan
