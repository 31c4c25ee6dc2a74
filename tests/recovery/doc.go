// Package recovery shows what happens when the state and the logs do not agree.
//
// Weir keeps its state in the store and its events and changes in Kafka, each
// with positions in the other. After a restore, a fail-over, an expired
// retention or a topic that was made anew, one of them is older than the other
// believes. The promises (DESIGN.md, I1, I2 and I5) hold all the same: the
// watermark in the store says what is decided, what the store forgot is read
// again and gives the same versions and keys, and what no log holds any more is
// named in the log and counted.
//
// Every test runs the real binary on real servers, brings the two apart, and
// compares what all sinks hold with tests/oracle: two tables of PostgreSQL (upsert
// and append), a webhook and a Kafka topic.
package recovery
