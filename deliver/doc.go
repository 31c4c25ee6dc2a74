// Package deliver is the last stage: it brings the changes of each service's
// topic to that service's sink, confirms them in the dam and acknowledges them.
//
// # Model
//
// A [Deliverer] serves one service. A message brings a frame: the records of one
// partition of the service's topic that piled up. Each record is packed, it
// holds the changes of one decision. Frames of several partitions are gathered
// into one batch, in which each keeps its order:
//
//	skip what is confirmed ─ coalesce (state sinks) ─ ⟲ sink ─ confirm ─ acknowledge the frames
//
// A batch may have far more changes than the sink takes at once. They are
// written in chunks of what it does take, and each chunk is confirmed before the
// next is written: what a crash can repeat at a target without a guard is one
// chunk. A frame whose assignment ends meanwhile is given up at the next chunk,
// because the next owner of its partition has it.
//
// Confirmations of all services of the process go through one [Confirmer],
// which writes them in groups. A service that fails holds up itself only: one
// frame of each partition waits in its hands, the rest in Kafka.
//
// # Failures
//
// The sink classifies them. What may pass is tried again with back-off for as
// long as it takes; before each further attempt a state sink's changes that
// were overtaken by a newer decision are left out (I10). A batch of which one
// change is refused is bisected until that one is alone. A change that is
// refused, or that failed its last allowed attempt, becomes a dead letter: a
// release record goes into the inbox first, so that the owner of the entity
// lets the next content through, then the letter is stored. A record that is
// none of this service's changes becomes one dead letter, and the others of its
// frame are delivered. A service that is refused as a whole pauses.
//
// A change that was decided under an older configuration and that the sink
// refuses under the present one, whose table it does not fit, is no dead letter:
// release and redecide records go into the inbox, and what the present
// configuration makes of the entity comes behind. Only for a log sink, and if it
// is not the newest of its entity, it is a dead letter. A change of a newer
// configuration is not delivered at all: this process's sink would write it in
// its own old way. [Deliverer.Handle] refuses its whole frame, unless the store
// went back to before that configuration: nobody may have it again, so the
// change counts as one of an older configuration.
//
// # Guarantee
//
// At least once to the sink, with the same key, version and bytes at every
// attempt; in order per entity. The sink makes that exactly one effect, or
// says in its documentation what it cannot do (I2).
package deliver
