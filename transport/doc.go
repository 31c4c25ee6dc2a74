// Package transport carries messages: Watermill subscribers and publishers
// over Kafka, and the broker that runs inside the process when no server is
// configured.
//
// # Subscribers
//
// A [Group] is one kgo client in one consumer group. It feeds any number of
// message.Subscriber views, one per topic. Each partition that is assigned to
// the process is a claim: it has a number of its own, and its messages are
// numbered 0, 1, 2, … in the order of the log. Many messages of a claim are in
// flight at once (the window); the router handles each on a goroutine of its
// own, so whoever needs the order goes by [PositionOf]. A message that is
// Nacked comes again with the same number after a back-off, while the messages
// behind it stay where they are. The offset that is committed is the first one
// not yet acknowledged, contiguous over the messages handed out; an
// acknowledgement that arrives after its claim ended counts for nothing.
//
// Delivery guarantee: at least once, in order of hand-out per partition.
//
// # Publishers
//
// A [Producer] appends records with all acknowledgements, idempotent, in order
// per partition, and never gives up a record before a later one of the same
// partition. Publisher is its message.Publisher face.
package transport
