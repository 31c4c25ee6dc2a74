package postgres

import (
	"cmp"
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/store/shared"
)

const (
	sqlTakeProgress = `
INSERT INTO progress (partition, token, positions, top, session)
SELECT p, $2::bytea, '', 0, pg_postmaster_start_time() FROM unnest($1::int4[]) AS p
ON CONFLICT (partition) DO UPDATE SET token = excluded.token, session = excluded.session`

	// Watermarks are not locked: they only grow, and a restore of them starts the server,
	// or replaces the row. A row that is being taken over is compared again when it has
	// been. Marks follow the row: $7 to $9 are those that moved, '' one that is no more.
	sqlSwapProgress = `
WITH swapped AS (
  UPDATE progress p SET token = s.token, positions = s.positions, top = s.top
  FROM unnest($2::int4[], $3::bytea[], $4::bytea[], $5::bytea[], $6::int8[])
         AS s(partition, old, token, positions, top)
  WHERE p.partition = s.partition AND p.token = s.old AND p.session = pg_postmaster_start_time()
    AND $1::int8 = (SELECT number FROM revisions ORDER BY number DESC LIMIT 1)
    AND s.top <= coalesce((
      SELECT w.generation::int8 << 48 | w.next_offset FROM watermarks w
      WHERE w.partition = s.partition ORDER BY w.generation DESC LIMIT 1), 0)
  RETURNING p.partition),
moved AS (
  SELECT m.partition, m.service, m.mark
  FROM unnest($7::int4[], $8::int4[], $9::bytea[]) AS m(partition, service, mark) JOIN swapped USING (partition)),
gone AS (
  DELETE FROM progress_marks k USING moved m
  WHERE k.partition = m.partition AND k.service = m.service AND m.mark = ''),
put AS (
  INSERT INTO progress_marks (partition, service, mark) SELECT partition, service, mark FROM moved WHERE mark <> ''
  ON CONFLICT (partition, service) DO UPDATE SET mark = excluded.mark)
SELECT partition FROM swapped`

	sqlReadProgress = `
SELECT p.partition, p.token, p.positions, m.services, m.marks FROM progress p
CROSS JOIN LATERAL (
  SELECT array_agg(k.service) AS services, array_agg(k.mark) AS marks FROM progress_marks k WHERE k.partition = p.partition) AS m`
	sqlProgressOf  = sqlReadProgress + ` WHERE p.partition = ANY($1::int4[])`
	sqlAllProgress = sqlReadProgress + ` ORDER BY p.partition`
)

// TakeProgress implements store.Deliveries. The upsert waits for swaps under way, and
// later ones find another token: the statement after it, with a snapshot of its own,
// sees all that they wrote.
func (s *Store) TakeProgress(ctx context.Context, partitions []int32, token store.Token) ([]store.Progress, error) {
	if len(partitions) == 0 {
		return nil, nil
	}
	place := make(map[int32]int, len(partitions))
	for i, p := range partitions {
		if _, twice := place[p]; twice {
			return nil, bug("take progress: partition %d twice", p)
		}
		place[p] = i
	}
	var found []store.Progress
	var letters []store.DeadLetter
	retrying := shared.RetryingOf(partitions)
	err := s.inTx(ctx, "take progress", func(t pgx.Tx) error {
		b := new(pgx.Batch)
		b.Queue(sqlTakeProgress, slices.Sorted(slices.Values(partitions)), token[:])
		b.Queue(sqlProgressOf, partitions).Query(func(rows pgx.Rows) (err error) {
			found, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (store.Progress, error) { return scanProgress(row) })
			return err
		})
		b.Queue(retrying.Postgres, retrying.Args...).Query(func(rows pgx.Rows) error {
			return eachRow(rows, func(row shared.Row) error {
				l, err := shared.ScanRetrying(row)
				letters = append(letters, l)
				return err
			})
		})
		return t.SendBatch(ctx, b).Close()
	})
	if err != nil {
		return nil, err
	}
	taken := make([]store.Progress, len(found))
	for _, p := range found {
		taken[place[p.Partition]] = p
	}
	for _, l := range letters {
		p := &taken[place[l.Part]]
		p.Retrying = append(p.Retrying, l)
	}
	return taken, nil
}

// SwapProgress implements store.Deliveries. It is one round trip; with retrying rows two,
// since they are written only where the swap was done.
func (s *Store) SwapProgress(ctx context.Context, revision int64, swaps []store.ProgressSwap) ([]bool, error) {
	if len(swaps) == 0 {
		return nil, nil
	}
	place := make(map[int32]int, len(swaps))
	rows := false
	for i := range swaps {
		if _, twice := place[swaps[i].Partition]; twice {
			return nil, bug("swap progress: partition %d twice", swaps[i].Partition)
		}
		place[swaps[i].Partition] = i
		rows = rows || len(swaps[i].Ended)+len(swaps[i].Progress.Retrying)+len(swaps[i].Letters) > 0
	}
	var c progressColumns
	for _, p := range slices.SortedFunc(slices.Values(swaps), func(a, b store.ProgressSwap) int { return cmp.Compare(a.Partition, b.Partition) }) {
		c.add(&p)
	}
	swapped := make([]bool, len(swaps))
	var active int64
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, failed("swap progress", err)
	}
	defer release(conn)
	b := new(pgx.Batch)
	s.queueBegin(b)
	b.Queue(sqlShareRevision)
	queueRevision(b, &active)
	b.Queue(sqlSwapProgress, revision, c.partitions, c.old, c.tokens, c.positions, c.tops,
		c.markPartitions, c.services, c.marks).Query(func(rows pgx.Rows) error {
		var partition int32
		_, err := pgx.ForEachRow(rows, []any{&partition}, func() error {
			swapped[place[partition]] = true
			return nil
		})
		return err
	})
	if !rows {
		queueCommit(b)
	}
	err = conn.SendBatch(ctx, b).Close()
	if rows && err != nil {
		return nil, failed("swap progress", err)
	}
	if rows {
		b = new(pgx.Batch)
		for i := range swaps {
			if swapped[i] {
				queueCalls(b, shared.Retrying(&swaps[i]), nil)
			}
		}
		queueCommit(b)
		err = conn.SendBatch(ctx, b).Close()
	}
	if err != nil {
		return nil, failedCommit("swap progress", err)
	}
	if active != revision || active == 0 {
		return nil, failed("swap progress", store.ErrSuperseded)
	}
	return swapped, nil
}

// progressColumns are swaps as array parameters.
type progressColumns struct {
	partitions             []int32
	old, tokens, positions [][]byte
	tops                   []int64
	// Marks that moved.
	markPartitions, services []int32
	marks                    [][]byte
}

func (c *progressColumns) add(p *store.ProgressSwap) {
	c.partitions = append(c.partitions, p.Partition)
	c.old, c.tokens = append(c.old, p.Old[:]), append(c.tokens, p.Token[:])
	c.positions = append(c.positions, notNil(store.AppendPositions(nil, p.Positions)))
	c.tops = append(c.tops, int64(store.Top(p.Positions)))
	p.MovedMarks(func(service int32, mark string) {
		c.markPartitions, c.services, c.marks = append(c.markPartitions, p.Partition), append(c.services, service), append(c.marks, []byte(mark))
	})
}

// AllProgress implements store.Deliveries.
func (s *Store) AllProgress(ctx context.Context) ([]store.Progress, error) {
	all, err := list(ctx, s.pool, scanProgress, sqlAllProgress)
	return all, failed("read progress", err)
}

// scanProgress reads a row of sqlReadProgress.
func scanProgress(row pgx.Row) (p store.Progress, err error) {
	var token, positions []byte
	var services []int32
	var marks [][]byte
	if err = row.Scan(&p.Partition, &token, &positions, &services, &marks); err != nil {
		return p, err
	}
	copy(p.Token[:], token)
	p.Positions, err = store.DecodePositions(positions)
	for i, service := range services {
		store.SetMark(p.Positions, service, string(marks[i]))
	}
	return p, err
}
