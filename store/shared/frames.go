package shared

import (
	"context"
	"math"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// Marks implements store.Deliveries.
func (s *Store) Marks(ctx context.Context) (map[int32]store.Mark, error) {
	marks := map[int32]store.Mark{}
	err := s.DB.Read(ctx, "read how far decisions are", sqlMarks(), func(row Row) error {
		var generation uint16
		var partition int32
		var next, last, begins int64
		err := row.Scan(&generation, &partition, &next, &last, &begins)
		marks[partition] = store.Mark{Watermark: change.NewVersion(generation, next), LastTo: change.Version(last), Begins: change.Version(begins)}
		return err
	})
	return marks, err
}

// Frames implements store.Deliveries. It is one statement, hence one snapshot.
func (s *Store) Frames(ctx context.Context, partition int32, after change.Version, bytes int) (tail store.Tail, err error) {
	err = s.DB.Read(ctx, "read frames", sqlTail(partition, after, bytes), func(row Row) error {
		var last int64
		var to *int64
		var token, body []byte
		if err := row.Scan(&last, &token, &to, &body); err != nil {
			return err
		}
		tail.LastTo = change.Version(last)
		copy(tail.Owner[:], token)
		if to != nil {
			tail.Frames = append(tail.Frames, store.Frame{To: change.Version(*to), Body: body})
		}
		return nil
	})
	return tail, err
}

// dropPage bounds one transaction of DropFrames: a frame may have a MiB.
const dropPage = 200

// DropFrames implements store.Deliveries.
func (s *Store) DropFrames(ctx context.Context, before time.Time, size int64) (total int64, err error) {
	if size == 0 {
		size = math.MaxInt64
	}
	for {
		n, err := s.write(ctx, "drop frames", sqlDropFrames(before, size, dropPage))
		if total += n; err != nil || n < dropPage {
			return total, err
		}
	}
}
