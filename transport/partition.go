package transport

import "github.com/twmb/franz-go/pkg/kgo"

// PartitionOf returns the partition that a record with a key goes to in a topic
// of so many partitions: what Producer and every Kafka client with the default
// partitioner choose. The key must not be nil and partitions be positive.
func PartitionOf(key []byte, partitions int32) int32 {
	p := kgo.StickyKeyPartitioner(nil).ForTopic("")
	return int32(p.Partition(&kgo.Record{Key: key}, int(partitions)))
}
