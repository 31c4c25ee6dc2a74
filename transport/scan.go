package transport

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// OffsetsAt returns, for every partition of a topic, the offset of the first
// record at or after a time; the end of the partition when there is none.
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

// scanPatience is how long a scan waits for a record before it looks whether
// the topic still has any of them.
const scanPatience = 2 * time.Second

// Scanned is one record that Scan or ReadLast found.
type Scanned struct {
	Record
	Partition int32
	Offset    int64
	Time      time.Time
}

func scanned(r *kgo.Record) Scanned {
	record := Record{Topic: r.Topic, Key: r.Key, Value: r.Value, Headers: r.Headers}
	return Scanned{Record: record, Partition: r.Partition, Offset: r.Offset, Time: r.Timestamp.UTC()}
}

// Scan reads the records of a topic's partitions from the offsets in from up
// to, not including, those in to, and hands them to f in the order of their
// partition; partitions come mixed. A partition without an entry in both is left
// out, and what retention removed is passed over. An error of f ends it and is
// returned as it is.
func (a *Admin) Scan(ctx context.Context, topic string, from, to map[int32]int64, f func(Scanned) error) error {
	start, end, err := a.Offsets(ctx, topic)
	if err != nil {
		return err
	}
	at := make(map[int32]kgo.Offset)
	limit := make(map[int32]int64)
	for n, first := range from {
		last, ok := to[n]
		first, last = max(first, start[n]), min(last, end[n])
		if ok && first < last {
			at[n], limit[n] = kgo.NewOffset().At(first), last
		}
	}
	if len(at) == 0 {
		return nil
	}
	cl, err := a.readFrom(topic, at, kgo.FetchMaxBytes(8<<20))
	if err != nil {
		return fmt.Errorf("scan %s: %w", topic, err)
	}
	defer cl.Close()
	for len(limit) > 0 {
		poll, cancel := context.WithTimeout(ctx, scanPatience)
		fetches := cl.PollFetches(poll)
		cancel()
		if err := ctx.Err(); err != nil {
			return err
		}
		switch err := fetches.Err(); {
		case errors.Is(err, context.DeadlineExceeded):
			// Retention may have removed all that was left, up to the ends.
			if start, _, err = a.Offsets(ctx, topic); err != nil {
				return err
			}
			for n, last := range limit {
				if start[n] >= last {
					delete(limit, n)
				}
			}
			continue
		case err != nil:
			return fmt.Errorf("scan %s: %w", topic, err)
		}
		for it := fetches.RecordIter(); !it.Done(); {
			r := it.Next()
			last, open := limit[r.Partition]
			if !open {
				continue
			}
			if r.Offset < last && !r.Attrs.IsControl() {
				if err := f(scanned(r)); err != nil {
					return err
				}
			}
			if r.Offset >= last-1 {
				delete(limit, r.Partition) // what comes of it still is passed over
			}
		}
	}
	return nil
}
