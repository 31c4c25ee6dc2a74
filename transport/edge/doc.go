// Package edge makes watermill-kafka subscribers and publishers for the places
// where one message in flight per partition is right: a source with window 1,
// and the Kafka sink.
//
// It sets what watermill-kafka's defaults leave unsafe: a new group starts at
// the oldest record; no record can fail to unmarshal; keys, nil keys and null
// values survive both ways; a publish is idempotent with all
// acknowledgements; errors do not flood the log, and a subscriber that cannot
// get at its topic tries again once a second instead of in a hot loop. A
// message's context carries its transport.Position and ends when its partition
// is revoked, so that a handler stops; what it does with the message then
// counts for nothing.
//
// Delivery guarantee: at least once, in order per partition. Offsets are
// committed once a second for messages that were acknowledged.
package edge
