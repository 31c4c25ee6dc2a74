// Package store says what Weir's durable state is and what its transactions
// promise. Packages store/postgres and store/sqlite keep it; package
// store/storetest is the conformance suite that both pass.
//
// # Model
//
// Decisions have one writer per inbox partition, the owner, which says so by a
// token in the partition's watermark. One transaction moves the watermarks of
// all partitions that have something waiting, writes entities with their dam states,
// and adds frames to the changes log. It fails as a whole
// when a watermark is not where the owner believes it to be: so a zombie, a
// restored store and a commit of unknown outcome all end the same way, with
// nothing written and a takeover.
//
// The dam has one state per (service, entity), written by decide together with the
// entity: the states of the first [PageServices] services are in its row, those of
// the others in pages of as many. A retraction never deletes a state. Positions of deliveries are separate: one row per
// partition of the changes log ([Progress]) has the position of each service, and
// is swapped whole by the partition's owner, who says so by a token that it renews
// every time. A swap fails when it rests on a past that is not the store's.
//
// # Guarantee
//
// What Decide and SwapProgress returned without an error is durable: it survives
// the kill of the process and of the server.
package store
