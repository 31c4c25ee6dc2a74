package transport

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// OffsetsAt returns, for every partition of a topic, the offset of the first record at or after a
// time. Without such a record it is the end of the partition.
func (a *Admin) OffsetsAt(ctx context.Context, topic string, at time.Time) (map[int32]int64, error) {
	listed, err := a.adm.ListOffsetsAfterMilli(ctx, at.UnixMilli(), topic)
	if err != nil {
		return nil, fmt.Errorf("offsets of %s at a time: %w", topic, err)
	}
	offsets := make(map[int32]int64, len(listed[topic]))
	for n, o := range listed[topic] {
		if o.Err != nil {
			return nil, fmt.Errorf("offsets of %s at a time, partition %d: %w", topic, n, o.Err)
		}
		offsets[n] = o.Offset
	}
	return offsets, nil
}

// Scanned is one record that Scan found.
type Scanned struct {
	Received
	Partition int32
}

// Scan reads the records of a topic's partitions from the offsets in from up to, not including,
// those in to, and hands them to f in the order of their partition; partitions come mixed. A
// partition without an entry in both is left out, and records removed by retention are skipped.
// An error of f ends it and is returned as it is.
func (a *Admin) Scan(ctx context.Context, topic string, from, to map[int32]int64, f func(Scanned) error) error {
	start, end, err := a.Offsets(ctx, topic)
	if err != nil {
		return err
	}
	at, limit := make(map[int32]int64), make(map[int32]int64)
	for n, first := range from {
		last, ok := to[n]
		first, last = max(first, start[n]), min(last, end[n])
		if ok && first < last {
			at[n], limit[n] = first, last
		}
	}
	if len(at) == 0 {
		return nil
	}
	return a.read(ctx, topic, at, limit, func(r *kgo.Record) error { return f(Scanned{received(r, false), r.Partition}) }, kgo.FetchMaxBytes(8<<20))
}
