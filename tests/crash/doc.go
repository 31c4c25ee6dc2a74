// Package crash kills the pipeline at every boundary and looks what its
// customers have afterwards.
//
// The binary is built with the tag "crash", which compiles the points of
// internal/crash in. One cell of the matrix is one point, one of its passings and
// one store: a fresh world with a fixed stream of events and one service per
// kind of sink; a process that dies by SIGKILL at the point; a process that is
// started again and runs until it is idle; and a comparison of every sink with
// tests/oracle. A point that is not passed fails the test.
//
// There are three kinds of world. In one the sources are files, or topics of
// Kafka. In the other, with a door, the same events are posted, also as lines, and
// files, and written into an outbox table by clients that resume after a kill. In the third, with
// tables, they are statements on tables of a PostgreSQL source.
//
// Four things are counted per sink, all of which must be zero:
//
//   - lost: a change (of a log sink) or an entity (of a state sink) that is not there
//   - duplicate effects: a change that is there twice, or that no event caused
//   - stale: a content that is not the one of its version, or not the newest
//   - out of order: a change behind a newer one of the same entity
//
// go test kills at a handful of points. `SUITE=crash make verify` has every point,
// at its first passing and a later one, on both stores and at every sink, and
// writes the table to out/verify/crash-matrix.md.
package crash
