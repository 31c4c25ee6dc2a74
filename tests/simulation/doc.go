// Package simulation runs the product's own code under seeded schedules of
// faults, in virtual time, and compares the customers' records with those that they
// must have according to the inbox.
//
// # Model
//
// A schedule is one seed. It draws a small world. Most are short and dense: two
// processes, one or two services, one or two entities, two to ten events of one
// or two sources, and at least two faults of processes,
// besides failing calls. A few are long: up to three
// processes and thirty events, four entities, three services. Each process runs
// what package pipeline wires: an
// ingest.Stage per source, and a decide.Decider with its workers and a deliver.Stage, which own the
// same partitions and restart together. None of that is re-implemented, or knows
// that it is simulated.
//
// The environment is in memory:
//
//   - [Memory] is the store. It passes the stages' part of the conformance suite.
//     Each process has a connection whose requests and answers take time, fail,
//     or are lost before or after the effect.
//   - topics are logs with partitions. The producers are the product's, over a client
//     that packs and answers as kgo does: a batch fails with nothing, a part or all of it
//     appended, later batches fail, and the client may be unusable afterwards.
//     A partition takes no records for a while. Consumer
//     groups assign partitions to members that wait for the previous owner, or do not
//     (which is a zombie then and continues). A frame has a drawn number of the records
//     that are there. It is redelivered when its handler fails or its acknowledgement is
//     lost; after a restart or a rebalance its records are redelivered in frames with
//     other borders.
//   - the changes log is in the store. Its frames are handed over in memory, which has often no room
//     for them, or read, slowly and few at a time. In every fifth
//     schedule it loses its oldest frames, or all: then state customers
//     must end with the newest, and a log customer may lack only changes reported to its
//     operator. A gap that is reported while nothing was lost is a fault.
//   - customers are the targets of the sinks: a log that skips known keys; a state that keeps the
//     newest version; and a log without any guard. They time out with and without
//     effect, refuse changes, pause, and are unreachable or slow for a while; their
//     budget is often a few changes.
//   - in every fifth schedule or so a deploy brings another configuration to one
//     process after the other, by a restart or a reload: services that come and go, projections that show
//     something else. Those that still have the old one are fenced. The oracle knows up
//     to where each partition was decided under the old one.
//   - in as many the inbox gets a second generation, while owners of the first still work.
//   - outcomes, frames and changes have bounds that are often small, so that batches
//     are cut, and some documents make changes that are
//     too large: each is a dead letter, and no row moves.
//   - owners have room for everything in their memory, for one entity or two, or for
//     nothing. Between the decision that they compute from memory and its request time
//     passes, and others may come first.
//   - in every third schedule or so tombstones are asked to go, twice or late, as soon as
//     all services have the deletion.
//   - in every seventh schedule or so the second source is a table of a PostgreSQL
//     database, which the product's reader reads over PostgreSQL's protocol: its
//     connections break or fall silent, another program moves the slot, a standby without
//     the last commits is promoted, a TRUNCATE comes. In two of five of these the table is swapped,
//     leaves the publication and comes back, is rewritten, renamed for a while and so on, with a
//     change that the log does not have. In the end the stored documents must
//     be the rows, and without a promotion none may be older than the one before it.
//   - in every fourth schedule services have a pace. Each sink, and all of them where no two
//     processes have a partition at once, keep the rate; a change of a state sink rests until its
//     entity is quiet or for the longest time, and where nothing fails no longer.
//   - in every twelfth schedule services are refreshed. A request repeats the change that it
//     names, and no refused or retracted one. An entity has at most one in a period, and when all is
//     calm one in each; some are asked for twice.
//   - the gate is shared and small.
//
// Processes die before or after any effect, at once: unsent requests have no
// effect, and some requests under way arrive after their death. They are
// restarted in order, freeze for longer than their session timeout, and lose
// partitions without a reason. The store is restored from a backup while topics
// and offsets are ahead of it, together with the state customers or alone.
//
// After the last event, faults end and everything must arrive within ten minutes
// of virtual time. Then the model of the end-to-end tests, package tests/oracle, derives
// from the inbox what each service must have seen: nothing lost, nothing twice, nothing
// stale, nothing out of order. It shares no code with the product but the inbox's
// decoder. A change counts as given up only after retry.for.
// Events of the sources are compared with the inbox.
//
// In a gentle schedule processes and deliveries have no faults, while decisions
// and takeovers fail as usual: then the log and the state without a guard
// of their own must be exact too, by deliver alone. In a bare one processes die, mostly
// after a write, and nothing of them arrives later: a state without a guard must never
// go back.
//
// # Does the checker find faults?
//
// [Rules] breaks one rule of the protocol at a time in the environment. Each breach
// must be found within a bounded number of schedules.
//
// # Reproduction
//
// Every actor draws from dice of its own, so a draw does not depend on what
// others did meanwhile; every delay is drawn to the nanosecond, so what happens
// at different virtual times keeps that order. A seed therefore gets the
// same schedule nearly always, but this is not guaranteed. The runtime decides the order
// of goroutines that wake up at the same virtual instant, the order of Go's maps
// (of a worker's partitions, say), and the jitter of the product's backoff.
// On a busy machine a stall may disturb any run of a seed.
//
//	SIM_SEEDS=100000 SUITE=simulation make verify
//	go test ./tests/simulation -run TestSchedules -sim.seed 4711 -v
//
// # Speed
//
// Schedules run in parallel in as many processes as there are processors, each
// on one of them, and one after the other in a bubble. Compiled plans are shared.
package simulation
