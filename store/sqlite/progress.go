package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"slices"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/store/shared"
)

const (
	sqlNewest = `SELECT coalesce(max(number), 0) FROM revisions`

	sqlTakeProgress = `
INSERT INTO progress (partition, token, positions, top) VALUES (?1, ?2, x'', 0)
ON CONFLICT (partition) DO UPDATE SET token = excluded.token
RETURNING partition, token, positions`

	sqlWatermark = `SELECT coalesce(max(generation << 48 | next_offset), 0) FROM watermarks WHERE partition = ?`

	sqlSwapProgress = `UPDATE progress SET token = ?3, positions = ?4, top = ?5 WHERE partition = ?1 AND token = ?2`
	sqlAllProgress  = `SELECT partition, token, positions FROM progress ORDER BY partition`

	sqlPutMark    = `INSERT INTO progress_marks (partition, service, mark) VALUES (?1, ?2, ?3) ON CONFLICT (partition, service) DO UPDATE SET mark = excluded.mark`
	sqlDeleteMark = `DELETE FROM progress_marks WHERE partition = ?1 AND service = ?2 AND ?3 = x''`
	sqlMarksOf    = `SELECT partition, service, mark FROM progress_marks WHERE partition = ?`
	sqlAllMarks   = `SELECT partition, service, mark FROM progress_marks`
)

// TakeProgress implements store.Deliveries.
func (s *Store) TakeProgress(ctx context.Context, partitions []int32, token store.Token) ([]store.Progress, error) {
	if len(partitions) == 0 {
		return nil, nil
	}
	taken := make([]store.Progress, len(partitions))
	for i, p := range partitions {
		if slices.Contains(partitions[:i], p) {
			return nil, bug("take progress: partition %d twice", p)
		}
	}
	err := s.write(ctx, "take progress", func(t tx) error {
		return each(t.ctx, t.conn, sqlTakeProgress, len(partitions), func(i int, statement *sql.Stmt) (err error) {
			if taken[i], err = scanProgress(statement.QueryRowContext(t.ctx, partitions[i], token[:])); err != nil {
				return err
			}
			if err = readMarks(t.ctx, t.conn, taken[i:i+1], sqlMarksOf, partitions[i]); err != nil {
				return err
			}
			return t.Query(shared.RetryingOf(partitions[i:i+1]), func(row shared.Row) error {
				l, err := shared.ScanRetrying(row)
				taken[i].Retrying = append(taken[i].Retrying, l)
				return err
			})
		})
	})
	if err != nil {
		return nil, err
	}
	return taken, nil
}

// SwapProgress implements store.Deliveries. No process has a file open while it is
// restored, so no session is compared.
func (s *Store) SwapProgress(ctx context.Context, revision int64, swaps []store.ProgressSwap) ([]bool, error) {
	if len(swaps) == 0 {
		return nil, nil
	}
	positions := make(map[int32][]byte, len(swaps))
	for i := range swaps {
		p := &swaps[i]
		if _, twice := positions[p.Partition]; twice {
			return nil, bug("swap progress: partition %d twice", p.Partition)
		}
		positions[p.Partition] = notNil(store.AppendPositions(nil, p.Positions))
	}
	swapped := make([]bool, len(swaps))
	err := s.write(ctx, "swap progress", func(t tx) error {
		var active int64
		err := t.conn.QueryRowContext(t.ctx, sqlNewest).Scan(&active)
		if err == nil && (active != revision || active == 0) {
			err = store.ErrSuperseded
		}
		if err != nil {
			return err
		}
		counts := make([]bool, len(swaps))
		err = each(t.ctx, t.conn, sqlWatermark, len(swaps), func(i int, statement *sql.Stmt) error {
			var watermark int64
			err := statement.QueryRowContext(t.ctx, swaps[i].Partition).Scan(&watermark)
			counts[i] = store.Top(swaps[i].Positions) <= change.Version(watermark)
			return err
		})
		if err != nil {
			return err
		}
		return each(t.ctx, t.conn, sqlSwapProgress, len(swaps), func(i int, statement *sql.Stmt) error {
			if !counts[i] {
				return nil
			}
			p := &swaps[i]
			n, err := t.exec(statement, p.Partition, p.Old[:], p.Token[:], positions[p.Partition], int64(store.Top(p.Positions)))
			if swapped[i] = n == 1; err != nil || n != 1 {
				return err
			}
			if err := t.putMarks(p); err != nil {
				return err
			}
			_, err = t.Exec(shared.Retrying(p)...)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return swapped, nil
}

// AllProgress implements store.Deliveries.
func (s *Store) AllProgress(ctx context.Context) (all []store.Progress, err error) {
	return all, s.read(ctx, "read progress", func(t *keptConn) error {
		if all, err = list(ctx, t, scanProgress, sqlAllProgress); err != nil {
			return err
		}
		return readMarks(ctx, t, all, sqlAllMarks)
	})
}

// putMarks writes the marks of a swap that moved.
func (t tx) putMarks(p *store.ProgressSwap) (err error) {
	p.MovedMarks(func(service int32, mark string) {
		statement := sqlPutMark
		if mark == "" {
			statement = sqlDeleteMark
		}
		if err == nil {
			_, err = t.once(statement, p.Partition, service, []byte(mark))
		}
	})
	return err
}

// readMarks reads the marks of rows, which ascend by partition, into their positions.
func readMarks(ctx context.Context, q *keptConn, rows []store.Progress, query string, args ...any) error {
	var partition, service int32
	var mark []byte
	found, err := q.QueryContext(ctx, query, args...)
	return collect(found, err, func() error {
		if err := found.Scan(&partition, &service, &mark); err != nil {
			return err
		}
		if i, known := slices.BinarySearchFunc(rows, partition, func(p store.Progress, n int32) int { return cmp.Compare(p.Partition, n) }); known {
			store.SetMark(rows[i].Positions, service, string(mark))
		}
		return nil
	})
}

// scanProgress reads partition, token, positions.
func scanProgress(row scanner) (p store.Progress, err error) {
	var token, positions []byte
	if err = row.Scan(&p.Partition, &token, &positions); err != nil {
		return p, err
	}
	copy(p.Token[:], token)
	p.Positions, err = store.DecodePositions(positions)
	return p, err
}
