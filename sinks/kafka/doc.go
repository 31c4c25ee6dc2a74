// Package kafka is a sink that publishes changes to a Kafka topic.
//
// # Model
//
// One change is one record. Its key is the entity, so that all changes of an
// entity stand in one partition, in order. Its value is the change's record
// (see change.AppendRecord); for a retraction that is a record with op
// retract, or, with Tombstones, a null value, which a compacted topic
// understands. Its headers are
//
//	weir-service   customer/projection@sink
//	weir-version   the version, decimal
//	weir-key       the idempotency key
//	weir-op        upsert or retract
//
// It is a log sink: every change is published. A Write publishes in rounds, each
// of them one call of the producer: first the first change of every entity,
// when these are acknowledged the second ones, and so on. So an entity has one
// record in flight, and no order of the records within a call is relied on.
//
// # Guarantee
//
// At least once, in order per entity. A change that deliver sees confirmed was
// acknowledged as the producer is configured, which must be by all in-sync
// replicas, with an idempotent producer.
//
// A repetition (after a lost acknowledgement, a crash before the confirm) is a
// second record with the same key, version, headers and bytes. Kafka cannot
// drop it: readers do, by weir-key, or, when they keep only the newest state,
// by ignoring a weir-version that is not higher than the one they have.
// Repetitions apart, the versions of an entity grow along its partition, but
// for a dead letter that is replayed later: it comes late, with its own lower
// version.
//
// # Failures
//
//	message too large, record refused by the broker    refused, a dead letter
//	unknown or invalid topic, authentication,
//	  authorization, unsuitable version or settings    pause the service
//	everything else                                    retry, ambiguous
//
// A broker refuses a whole request for one bad record in it. So a record that
// is refused is published once more, alone, and only what is refused then is a
// dead letter.
//
// A call of the producer is not cancelled. A Write whose context ends leaves the
// records behind that are on their way; they may be appended later, before
// those of the next Write, which waits for them.
//
// # Not promised
//
// Exactly once on the topic. Creating the topic. Order between entities.
package kafka
