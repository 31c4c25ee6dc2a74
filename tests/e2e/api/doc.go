// Package api holds the tests of the HTTP door's promise, one effect per
// idempotency key, against the real binary: embedded, and with PostgreSQL, Kafka
// and Valkey as servers and several processes. The binary is built with the tag
// "crash", so that it can die between two steps of a request.
//
// An effect is a record at a log sink. Every event of a test writes a state that
// no other writes, so an event that took effect twice, or never, is seen there.
//
// TestLoad keeps a steady rate of requests up while clients hang up and processes
// are killed; LOAD_TIME of scripts/verify sets for how long.
package api
