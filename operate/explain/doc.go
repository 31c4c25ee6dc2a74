// Package explain reports on one entity: its last events and their outcomes, the source
// documents, the merged document and the source of each value, each service's projection, its
// changes and deliveries, and a verdict per service: why the customer did or did not get an
// update.
//
// # Model
//
// The present comes from the store: source documents, dam rows, dead letters. The code of
// decide evaluates it (decide.Inspect, decide.Preview), so both agree. The past comes from the
// entity's history (decide.History): its last records, and the projections that they evaluated.
// The records themselves are read from the inbox by their versions, within its retention.
//
// Nothing is written. The parts are read one after the other, so a running pipeline may decide
// something in between.
package explain
