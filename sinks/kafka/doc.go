// Package kafka is a sink that publishes changes to a Kafka topic.
//
// # Model
//
// One change is one record. Its key is the entity, so that all changes of an
// entity are in one partition, in order. Its value is the change's record
// (see change.AppendRecord); for a retraction that is a record with op
// retract, or, with Tombstones, a null value, which a compacted topic
// understands. Its headers are
//
//	weir-service    customer/projection@sink
//	weir-version    the version, decimal
//	weir-key        the idempotency key
//	weir-op         upsert or retract
//	weir-partition  the partition of the changes log that it came by
//	weir-pipeline   the pipeline: kafka.prefix and the store's id
//	weir-position   on a change that was sent again after it was a dead letter: where that
//	                was asked for
//
// It is a log sink: every change is published. Changes from one partition of the
// log and goes to one of the topic is a stream: its batches go one after the other,
// and an entity is in one stream. Streams go side by side.
//
// # Guarantee
//
// Once, in order per entity, for readers that look at no header and with any isolation level.
// Changes of a partition of the log are written under an identity of its own (see package
// fenced). Resume takes that over, which ends everything that a predecessor has on its way, and
// reads the topic from a mark on, which deliver saved with its position: Write leaves out changes
// found there by service, partition, position and key. After a batch without an answer, or after
// a takeover by another process, the next Write does the same again. Deliver may thus write the
// same partition from two processes for a moment. Nothing comes twice.
//
// A mark is where each partition of the topic ended when the identity was taken over, or
// the end of the last record of that identity there, or the newest end that the process
// knew before the identity's last accepted batch: a fenced writer's batch is refused, so
// no successor has written before that end. It does not move while something may be on
// its way, or is found and not passed yet. After a clean stop a successor reads the
// topic from the last writes on.
//
// A cluster that does not let the user have transactional ids, or read the topic, gets changes at
// least once. The log says so.
//
// A dead letter that is replayed later comes late, with its own lower version.
//
// # Failures
//
//	message too large, record refused by the broker    refused, a dead letter
//	unknown or invalid topic, authentication,
//	  authorization, unsuitable version or settings    pause the service
//	everything else                                    retry, ambiguous; without an answer
//	  the cluster may be down, and one of its services tries it for all
//
// A broker refuses a whole request for one bad record in it. So a record that
// is refused is published once more, alone, and only a record that is refused then is a
// dead letter.
//
// A partition of the topic without a leader holds up what goes there, as nothing of it is
// sent. After a lost answer the takeover waits for it, too: then the changes of that
// partition of the log wait, and no others.
//
// A Write whose context ends leaves batches behind that may be appended later, until
// the next Write ends that.
//
// # Not promised
//
// Once, of what retention took away before it was looked for, or beyond what package
// fenced rests on; in a compacted topic, more than the newest record of an entity.
// Creating the topic. Order between entities.
package kafka
