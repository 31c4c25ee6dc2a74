// Package explain tells one entity's story: what its last events were and what
// became of them, what the sources say, how that is merged, what each service
// sees of it, what was sent and delivered, and in one sentence per service why
// the customer did or did not get an update.
//
// # Model
//
// The present comes from the store: source documents, dam rows, dead letters.
// It is taken apart by the code that decides (decide.Inspect, decide.Preview), so it
// cannot differ from what decide would do. The past comes from the entity's
// history (decide.History): its last records, and which projections they evaluated. The
// records themselves are read back from the inbox by their versions, as long as
// its retention keeps them.
//
// Nothing is written. The parts are read one after the other, so a pipeline
// that runs may decide something in between.
package explain
