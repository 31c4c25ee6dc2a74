// Package deliver is the last stage: it brings the changes of each service's
// topic to that service's sink, confirms them in the dam and acknowledges them.
//
// # Model
//
// A [Deliverer] serves one service. It takes changes in the order of its
// topic, in batches over all partitions that have something waiting:
//
//	skip what is confirmed ─ coalesce (state sinks) ─ sink ─ confirm ─ acknowledge
//
// Confirmations of all services of the process go through one [Confirmer],
// which writes them in groups. A service that fails holds up itself only: its
// messages stay in its window, and the window in Kafka.
//
// # Failures
//
// The sink classifies them. What may pass is tried again with back-off for as
// long as it takes; before each further attempt a state sink's changes that
// were overtaken by a newer decision are left out (I10). A batch of which one
// change is refused is bisected until that one is alone. A change that is
// refused, or that failed its last allowed attempt, becomes a dead letter: a
// release record goes into the inbox first, so that the owner of the entity
// lets the next content through, then the letter is stored, then the change
// is acknowledged. A service that is refused as a whole pauses.
//
// A change that was decided under an older configuration and that the sink
// refuses under the present one, whose table it does not fit, is no dead letter:
// release and redecide records go into the inbox, and what the present
// configuration makes of the entity comes behind. Only for a log sink, and if it
// is not the newest of its entity, it is a dead letter. A change of a newer
// configuration is not delivered at all: this process's sink would write it in
// its own old way. [Deliverer.Handle] gives it back, unless the store went back
// to before that configuration: nobody may have it again, so the change counts
// as one of an older configuration.
//
// # Guarantee
//
// At least once to the sink, with the same key, version and bytes at every
// attempt; in order per entity. The sink makes that exactly one effect, or
// says in its documentation what it cannot do (I2).
package deliver
