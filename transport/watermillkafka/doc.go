// Package watermillkafka makes watermill-kafka subscribers for sources of frame_records 1, where
// one message per partition is in flight.
//
// It sets what watermill-kafka's defaults leave unsafe: a new group starts at
// the oldest record; no record can fail to unmarshal; keys, nil keys and null
// values survive; a topic that was deleted and created again is read as a new one;
// errors do not flood the log, and a subscriber that cannot reach its topic
// tries again once a second instead of in a hot loop. A message's
// context carries a transport.Frame of one record and ends when its partition
// is revoked, so that a handler stops; what it does with the message then counts
// for nothing.
//
// Delivery guarantee: at least once, in order per partition. Offsets are
// committed once a second for messages that were acknowledged.
package watermillkafka
