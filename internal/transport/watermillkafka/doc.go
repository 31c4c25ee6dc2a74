// Package watermillkafka reads a topic through watermill-kafka, with one record of a
// partition in flight: the transport of sources with frame_records 1.
//
// watermill-kafka keeps the membership in the consumer group. Its handler of claims is
// replaced, because it neither ends a message's context when its partition is revoked nor
// notices that a topic was deleted and created again: sarama fetches and commits by name.
//
// Delivery guarantee: at least once, in order per partition. Offsets are
// committed once a second for messages that were acknowledged, with the identity of the
// topic.
package watermillkafka
