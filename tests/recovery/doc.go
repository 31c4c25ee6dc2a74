// Package recovery shows what happens when the state and the logs do not agree.
//
// Weir keeps its state in the store and its events and changes in Kafka, each
// with positions in the other. After a restore, a fail-over, an expired
// retention or a topic that was re-created, one of them is older than the other
// believes. The promises (DESIGN.md, I1, I2 and I5) hold all the same: the
// watermark in the store is how far decisions are, a decision that the store lost is made
// again with the same versions and keys, and records that no log holds any more are
// named in the log and counted.
//
// Every test runs the real binary on real servers, brings the two apart, and
// compares what all sinks hold with tests/oracle: two tables of PostgreSQL (upsert
// and append), a webhook and a Kafka topic.
package recovery
