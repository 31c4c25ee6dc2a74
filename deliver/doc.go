// Package deliver is the last stage: it brings the changes of every service to
// that service's sink and keeps how far each of them is.
//
// # Model
//
// The changes log has as many partitions as the inbox; a record is a frame, all
// changes of one decision, service by service. The owner of a partition reads it
// once, whatever the number of services:
//
//	frame ─ does it count? ─ skip, follow or bridge a gap ─┬─ slice ─ worker of service 1 ─ sink
//	                                                       ├─ slice ─ worker of service 2 ─ sink
//	                                                       └─ …
//
// The [Stage] hands each service its slice and acknowledges the message at once.
// A worker merges the slices of all partitions into batches for its sink:
//
//	leave out what is obsolete ─ ⟲ sink ─ note how far its slices are ─ save the positions
//
// # Positions
//
// The position of a service in a partition is the version below which all its
// changes took effect, became dead letters or needed no delivery, with the offset
// of the log to read on from. The positions of all services of a partition are one row
// of the store, swapped whole under a token that every swap renews, in groups over
// partitions, a few times a second. At a target that does not guard itself the
// next write waits for the swap, so that a crash repeats one batch there at most.
// The group's offsets in Kafka say nothing: when the store is restored, positions go
// back with it.
//
// # Behind
//
// What waits for sinks is bounded over all services. A slice keeps all of its frame in
// memory; once such frames come to twice the bound, what waits is copied out of them. One whose sink fails, or that
// has the room while others have nothing to do, falls behind: what waits for it is
// dropped, and the others go on. One reader per partition feeds all that are
// behind, the lowest position first, and jumps when nobody there can take more; a
// sink that is away costs a position in a row and one small batch to try with. A
// service is live again when its reader reached what the tail handed out.
//
// # What counts
//
// A frame counts only if it belongs to the store's history, by a look at the store
// after the frame was read: a restored store forgot some, and their records are
// decided again. A frame that ends at or below the position is a repetition. One that
// names a frame before it that was not seen is a suspicion; see bridge.go.
//
// # Failures
//
// The sink classifies them. What may pass is tried again with back-off for as
// long as it takes; before each further attempt a state sink's changes that
// were overtaken by a newer decision are left out (I10). A batch of which one
// change is refused is bisected until that one is alone. A change that is
// refused, or that failed its last allowed attempt, becomes a dead letter: a
// control record goes into the inbox first, so that the owner of the entity
// remembers that this content is refused and lets any other through, then the
// letter is stored, then the position passes it. One letter stands for a content,
// however often it dies. What failed its last attempt is offered again after
// Retry.Later, with a wait that doubles. A service that is refused as a whole
// pauses.
//
// A change that was decided under an older configuration and that the sink
// refuses under the present one, whose table it does not fit, is no dead letter:
// a record that forces a new decision goes into the inbox, and what the present
// configuration makes of the entity comes behind. Only for a log sink, and if it
// is not the newest of its entity, it is a dead letter. A frame of a newer
// configuration is not delivered at all: this process's sinks would write it in
// their own old way.
//
// # History
//
// What each attempt came to, and what the target answered ([sinks.WithReceipts]), is
// kept for people. It waits in a ring per service, where the oldest give way, and is
// written in groups once a second by a goroutine of its own: neither its pace nor its
// failures reach a delivery, and a crash loses a second of it.
//
// # Guarantee
//
// At least once to the sink, with the same key, version and bytes at every
// attempt; in order per entity. A sink that can tell what is in its target
// (sinks.Resumer) is asked after each take-over, and leaves that out. The sink makes that exactly one effect, or
// says in its documentation what it cannot do (I2).
package deliver
