// Package deliver is the last stage: it delivers each service's changes to that
// service's sink and keeps each service's position.
//
// # Model
//
// The changes log is a table of the store, with the partitions of the inbox; a row is a frame, all
// changes of one decision, service by service. Who decides a partition delivers it:
//
//	decided ─ in memory ──┬─ does it follow? ─┬─ slice ─ worker of service 1 ─ sink
//	log in the store ─────┘                   ├─ slice ─ worker of service 2 ─ sink
//	                                          └─ …
//
// A frame is handed over just after its commit ([Stage.HandOver]). Each service takes it if it follows
// the position of the service, and if it has room. Else the service lags, and the log in the store is read from
// its position on, in turns with the others. [Stage.Subscriber] brings both ways to the router as messages.
// Package core makes all decisions on the way; the stage has the goroutines, the sinks, the store and one
// mutex around the core.Flow (see shared.step). A worker merges the slices of all partitions into batches
// for its sink:
//
//	in hand ─ core decides ─ sink ─ core judges ─ advance its slices, park, bury ─ save the positions
//
// # Positions
//
// The position of a service in a partition is the version below which all its changes took effect,
// became dead letters or needed no delivery. The positions of all services of a partition are one row
// of the store, swapped whole under a token that every swap renews, in groups over partitions, a few
// times a second. At a target that does not guard itself the next write waits for the swap, so that a
// crash repeats one batch there at most. When the store is restored, frames and positions go back
// together.
//
// # Memory
//
// The changes that wait for sinks are bounded over all services: half of the memory is shared equally,
// the other half is for who needs it. A slice keeps all of its frame in memory; once such frames come to
// twice the bound, waiting slices are copied out of them. A service whose sink fails takes a small batch
// to try with, and costs a position in a row.
//
// # Pace
//
// A service with a [Pace] takes changes into hand up to half of its share of the memory. They rest
// there until their entity is quiet, or wait for the rate, and keep the position meanwhile: a stop, a
// kill and a reload lose nothing. The next owner counts SettleMax from the recorded time of a
// change, and begins without burst. Beyond that memory the service sends early, or lags. A pause
// acts at the write, on settled changes; a replay, a reset and a retraction settle
// as any change does; letters and retries are of attempts that were made, so they follow the rate
// alone.
//
// # Content of the target
//
// A worker of a state sink remembers, in bounded memory, the content that it wrote last of each
// entity, and passes a change of the same content without a write: A, B, A within a settle time, a
// reload, an accident that is repaired behind a hold. The content at the target must be certain for
// that. So a process remembers only changes that came into the inbox after its takeover or a reload
// (core.Partition.NewFrom), hands out no frame unless the partition was its own when it was read
// (partition.look), and forgets an entity before each attempt. A change that was requested
// ([change.Change.Forced]) is written in any case. Model same of tests/protocol has the
// counterexamples.
//
// # Refresh
//
// A service with a refresh has each entity that it sent decided again once a period, by the walk
// that serves repairs. Its progress is saved with the position; the requests name the version that
// they repeat, so one that a crash repeats has no effect. A service that lags is asked for nothing
// while it is in the older half of its log.
//
// # Gaps
//
// A frame says where the one before it ended, and the store where the last one ended. The first frame
// above a position that does not follow it, or none below the end of the log, shows in one look that
// retention removed some: the services that lack it pass it, with a repair.
//
// # Failures
//
// The sink classifies them; package core decides. A change that its target answers with an error
// is parked with its entity at once: a row of the dead letters in state retrying, written
// together with the position that passes it ([store.ProgressSwap]). A change that was not sent, since the
// target takes no connection, waits in hand, and all services of the target share the time of the
// next attempt (sinks.Targets). A write that
// failed as a whole is repeated in halves. Before each retry a state sink's changes that
// a newer decision superseded are dropped (I10). A change that is refused, or that failed
// for Retry.For, becomes a dead letter: a control record goes into the inbox
// first, so that the owner of the entity remembers that this content is refused and lets
// any other through, then the row becomes the letter, with the position that passes it.
// There is one dead letter per content. A change that was given up is offered again
// after Retry.Later, with a wait that doubles. A service that is refused as a whole
// is paused until its target accepts it ([Pause] has all causes). A sink that recovers (sinks.Recoverer) does not park: its bookmark covers what
// is above the position.
//
// A change that was decided under an older configuration and that the sink
// refuses under the present one, whose table it does not fit, is no dead letter:
// a record that forces a new decision goes into the inbox, and the entity under the
// present configuration follows. Only for a log sink, and if it
// is not the newest of its entity, it is a dead letter. A frame of a newer
// configuration is not delivered at all: this process's sinks would write it in
// their own old way.
//
// # History
//
// The outcome of each attempt and the target's answer ([sinks.WithReceipts]) are kept
// for operators. They wait in bounded memory and are written in groups once a second by their
// own goroutine: a slow or failing store does not affect deliveries, and a crash loses a
// second of history.
//
// # Guarantee
//
// At least once to the sink, with the same key, version and bytes at every
// attempt; in order per entity. A sink that can read its target (sinks.Recoverer) finds
// its predecessor's writes after each takeover and skips them. The sink makes exactly one effect
// of it, or documents its limits (I2).
package deliver
