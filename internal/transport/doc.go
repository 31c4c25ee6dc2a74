// Package transport moves records: Watermill subscribers and publishers over
// Kafka. Package embedded does the same over tables of the SQLite file, where no
// brokers are configured.
//
// # Frames
//
// What moves is a [Frame]: an ordered batch of records of one partition, in one
// Watermill message. It holds what piled up while the frame before it was in
// work, within bounds of records and bytes: one record when little happens, a
// thousand under load. No frame waits to fill.
//
// A [Group] is one kgo client in one consumer group. It reads one topic for one
// [Subscription], whose channel a router reads. Of each partition that is assigned to the
// process one frame is in flight at a time:
//
//	fetched ──▶ waiting ──▶ in flight ──Ack──▶ acknowledged ──▶ committed
//	                           ▲  │
//	                           └──┘ Nack: the same records after a back-off
//
// The next frame follows the acknowledgement, so the order of a partition is
// the order in which its handlers run; parallelism comes from partitions. What
// comes next is fetched meanwhile, within a budget of bytes that the partitions
// share: one whose handler is slow stops no other.
//
// A partition's [Frame.Assignment] is unique in the process. When the partition
// goes away, the contexts of its messages end, and an acknowledgement after
// that counts for nothing. The next owner starts at the first record that was
// not acknowledged, or where a [PartitionListener] says.
//
// Delivery guarantee: at least once, in the order of the partition. Frames of an
// assignment neither overlap nor leave a record out. What may have been handed
// out before is marked as Redelivered, whole frames or the first records of one:
// after a restart the borders may be others.
//
// # Producers
//
// A [Producer] appends records with all acknowledgements, idempotent, in order
// per partition, and never abandons a record before a later one of the same
// partition.
package transport
