package transport

import (
	"maps"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// PartitionOf returns the partition of a key in a topic with partitions partitions, as chosen by
// Producer and every Kafka client with the default partitioner. The key must not be nil and
// partitions be positive.
func PartitionOf(key []byte, partitions int32) int32 {
	r := keyed.Get().(*kgo.Record)
	r.Key = key
	p := byKey.Partition(r, int(partitions))
	r.Key = nil
	keyed.Put(r)
	return int32(p)
}

// keyed are the records that byKey reads the keys from.
var keyed = sync.Pool{New: func() any { return new(kgo.Record) }}

var byKey = kgo.StickyKeyPartitioner(nil).ForTopic("") //nolint:gochecknoglobals // it keeps no state for records with a key

// Layout is how many partitions a topic has in each of its generations.
type Layout map[uint16]int32

// PartitionOf is PartitionOf in a generation. In the newest, if it is not known. The layout must
// not be empty.
func (l Layout) PartitionOf(key []byte, generation uint16) int32 {
	partitions, known := l[generation]
	if !known {
		partitions = l.Newest()
	}
	return PartitionOf(key, partitions)
}

// Newest returns the number of partitions in the newest generation.
func (l Layout) Newest() int32 { return l[slices.Max(slices.Collect(maps.Keys(l)))] }
