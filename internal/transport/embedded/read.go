package embedded

import (
	"context"
	"math"
	"time"

	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/store/sqlite"
)

// Offsets returns the oldest offset and the end of every partition of a topic.
func (l *Logs) Offsets(ctx context.Context, topic string) (start, end map[int32]int64, err error) {
	log, err := l.topic(ctx, topic)
	if err != nil {
		return nil, nil, err
	}
	starts, ends, err := log.Bounds(ctx)
	if err != nil {
		return nil, nil, err
	}
	start, end = make(map[int32]int64, len(starts)), make(map[int32]int64, len(ends))
	for p := range starts {
		start[int32(p)], end[int32(p)] = starts[p], ends[p]
	}
	return start, end, nil
}

// OffsetsAt returns, for every partition of a topic, the offset of the first record at or after a
// time. Without such a record it is the end of the partition.
func (l *Logs) OffsetsAt(ctx context.Context, topic string, at time.Time) (map[int32]int64, error) {
	log, err := l.topic(ctx, topic)
	if err != nil {
		return nil, err
	}
	offsets := make(map[int32]int64, log.Partitions())
	for p := range log.Partitions() {
		if offsets[p], err = log.At(ctx, p, at); err != nil {
			return nil, err
		}
	}
	return offsets, nil
}

// Scan reads the records of a topic's partitions from the offsets in from up to, not including,
// those in to, and hands them to f in the order of their partition. A partition without an entry
// in both is left out, and records removed by retention are skipped. An error of f ends it and is
// returned as it is.
func (l *Logs) Scan(ctx context.Context, topic string, from, to map[int32]int64, f func(transport.Scanned) error) error {
	log, err := l.topic(ctx, topic)
	if err != nil {
		return err
	}
	for p, at := range from {
		for last, ok := to[p]; ok && at < last; {
			if err := ctx.Err(); err != nil {
				return err
			}
			records, err := read(ctx, log, p, at, scanBytes)
			if err != nil {
				return err
			}
			if len(records) == 0 {
				break
			}
			for i := range records {
				r := &records[i]
				if r.Offset >= last {
					break
				}
				if err := f(transport.Scanned{Received: *r, Partition: p}); err != nil {
					return err
				}
			}
			at = records[len(records)-1].Offset + 1
		}
	}
	return nil
}

const scanBytes = 1 << 20

// read returns records of a partition from offset on, without waiting for any: those of rows of
// size bytes, at least one row.
func read(ctx context.Context, log *sqlite.Log, partition int32, offset int64, bytes int) ([]transport.Received, error) {
	rows, err := log.Read(ctx, partition, offset, bytes)
	if err != nil {
		return nil, err
	}
	var records []transport.Received
	for i := range rows {
		unpacked, err := unpack(log, &rows[i])
		if err != nil {
			return nil, err
		}
		if skip := offset - rows[i].First; i == 0 && skip > 0 {
			unpacked = unpacked[skip:]
		}
		if records == nil {
			records = unpacked
		} else {
			records = append(records, unpacked...)
		}
	}
	return records, nil
}

// Trim deletes records appended to a topic before a time and frees the space. It keeps
// the records of each partition from its offset in below on; nil is no limit.
func (l *Logs) Trim(ctx context.Context, topic string, before time.Time, below map[int32]int64) error {
	log, err := l.topic(ctx, topic)
	if err != nil {
		return err
	}
	limits := make([]int64, log.Partitions())
	for p := range limits {
		limits[p] = math.MaxInt64
		if below != nil {
			limits[p] = below[int32(p)]
		}
	}
	_, err = log.Trim(ctx, before, limits)
	return err
}
