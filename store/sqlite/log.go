package sqlite

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"sync"
	"time"

	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/store/sqlite/disk"
)

// ErrPartitions is the error of OpenLog for a log that has another number of
// partitions.
var ErrPartitions = errors.New("the log has another number of partitions")

// ErrDamaged says that the file differs from the bytes that were written.
var ErrDamaged = disk.ErrDamaged

// Log is one log of the file: partitions of records, numbered from 0 without gaps.
// The records of one append are one row. All methods may be called
// concurrently.
type Log struct {
	s          *Store
	number     int64
	id         string
	partitions int32

	mu      sync.Mutex
	ends    []int64           // guarded by mu; where each partition ends, as far as this handle has seen
	changed chan struct{}     // guarded by mu; closed and replaced when ends grew
	recent  map[int32]*recent // guarded by mu; by partition
}

// LogFrame is a row of a log: records of one partition that were appended together.
type LogFrame struct {
	Partition int32
	First     int64     // offset of the first record; given by the log
	Time      time.Time // UTC, milliseconds; given by the log
	Records   int
	// Form says what Body is: 0 is the value of the one record that there is, any
	// other the caller's encoding of the records.
	Form int
	Body []byte
}

// A place orders the rows of all logs: by log, partition and offset.
const (
	offsetBits    = 44
	partitionBits = 15
	maxPartitions = 1 << partitionBits
)

func (l *Log) place(partition int32, offset int64) int64 {
	return l.number<<(offsetBits+partitionBits) | int64(partition)<<offsetBits | offset
}

func offsetOf(place int64) int64 { return place & (1<<offsetBits - 1) }

const (
	// The rows of logs, of which there are up to 7, are in a log with number 0.
	sqlFindLog = `SELECT place, body ->> 'id', body ->> 'partitions' FROM log_frames WHERE place < 8 AND body ->> 'name' = ?`
	sqlMakeLog = `
INSERT INTO log_frames (place, records, time, checksum, form, body)
SELECT coalesce(max(place), 0) + 1, 0, 0, 0, 0, jsonb_object('name', ?, 'id', ?, 'partitions', ?) FROM log_frames WHERE place < 8`

	sqlAppend    = `INSERT INTO log_frames (place, records, time, checksum, form, body) VALUES (?, ?, ?, ?, ?, ?)`
	sqlLastFrame = `SELECT place, records FROM log_frames WHERE place BETWEEN ? AND ? ORDER BY place DESC LIMIT 1`
	// From the row that holds the second offset on.
	sqlReadFrames = `
SELECT place, records, time, checksum, form, body FROM log_frames
WHERE place BETWEEN coalesce((SELECT max(place) FROM log_frames WHERE place BETWEEN ?1 AND ?2), ?1) AND ?3
ORDER BY place`
	sqlFirstFrame = `SELECT place, time FROM log_frames WHERE place BETWEEN ? AND ? ORDER BY place LIMIT 1`
	sqlDropFrames = `DELETE FROM log_frames WHERE place IN (SELECT place FROM log_frames WHERE place BETWEEN ? AND ? ORDER BY place LIMIT ?)`
)

// OpenLog opens a log, and makes one that is not there. One with another number of
// partitions is ErrPartitions.
func (s *Store) OpenLog(ctx context.Context, name string, partitions int32) (*Log, error) {
	if partitions < 1 || partitions > maxPartitions {
		return nil, bug("open log %s: %d partitions", name, partitions)
	}
	err := s.write(ctx, "open log", func(t tx) error {
		var number int64
		var id string
		var have int32
		err := t.conn.QueryRowContext(t.ctx, sqlFindLog, name).Scan(&number, &id, &have)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			var random [16]byte
			rand.Read(random[:])
			_, err = t.once(sqlMakeLog, name, hex.EncodeToString(random[:]), partitions)
		case err == nil && have != partitions:
			err = store.WithClass(fmt.Errorf("%w: %s has %d, %d configured", ErrPartitions, name, have, partitions), store.Fatal)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return s.FindLog(ctx, name)
}

// FindLog opens a log that is there; store.ErrNotFound.
func (s *Store) FindLog(ctx context.Context, name string) (*Log, error) {
	l := &Log{s: s, changed: make(chan struct{})}
	if err := s.readers.QueryRowContext(ctx, sqlFindLog, name).Scan(&l.number, &l.id, &l.partitions); err != nil {
		return nil, failed("open log", err)
	}
	_, ends, err := l.Bounds(ctx)
	l.ends, l.recent = ends, map[int32]*recent{}
	return l, err
}

// ID is the log's identity: a re-created log has another one.
func (l *Log) ID() string { return l.id }

// Partitions is how many there are.
func (l *Log) Partitions() int32 { return l.partitions }

// Append appends frames, in order within a partition, and returns when they
// are durable: all or none. It sets their First and Time, and keeps their bodies.
func (l *Log) Append(ctx context.Context, frames []LogFrame) error {
	if len(frames) == 0 {
		return nil
	}
	return l.s.write(ctx, "append", func(t tx) error { return t.append(l, frames, l.s.now()) })
}

// spanOf returns the offsets that a row of sqlLastFrame covers; end 0: there is none.
func spanOf(row *sql.Row) (first, end int64, err error) {
	var place, records int64
	err = row.Scan(&place, &records)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, 0, nil
	}
	return offsetOf(place), offsetOf(place) + records, err
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sum is the checksum of a row.
func sum(place int64, records int, body []byte) int64 {
	var head [16]byte
	binary.BigEndian.PutUint64(head[:8], uint64(place))
	binary.BigEndian.PutUint64(head[8:], uint64(records))
	return int64(crc32.Update(crc32.Checksum(head[:], castagnoli), castagnoli, body))
}

// append appends frames to a log, at now.
func (t tx) append(l *Log, frames []LogFrame, now time.Time) error {
	now = now.UTC().Truncate(time.Millisecond)
	next := make(map[int32]int64, l.partitions)
	ended := func(p int32) (int64, error) {
		if end, ok := next[p]; ok {
			return end, nil
		}
		last, err := t.conn.PrepareContext(t.ctx, sqlLastFrame)
		if err != nil {
			return 0, err
		}
		_, end, err := spanOf(last.QueryRowContext(t.ctx, l.place(p, 0), l.place(p+1, 0)-1))
		return end, err
	}
	err := each(t.ctx, t.conn, sqlAppend, len(frames), func(i int, statement *sql.Stmt) error {
		f := &frames[i]
		if f.Partition < 0 || f.Partition >= l.partitions || f.Records < 1 {
			return bug("append %d records to partition %d of %d", f.Records, f.Partition, l.partitions)
		}
		first, err := ended(f.Partition)
		if err != nil {
			return err
		}
		f.First, f.Time = first, now
		place := l.place(f.Partition, first)
		_, err = statement.ExecContext(t.ctx, place, f.Records, now.UnixMilli(), sum(place, f.Records, f.Body), f.Form, notNil(f.Body))
		next[f.Partition] = first + int64(f.Records)
		return err
	})
	if err == nil {
		t.afterCommit(func() { l.grew(next, frames) })
	}
	return err
}

// grew wakes those that wait for records.
func (l *Log) grew(ends map[int32]int64, frames []LogFrame) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range frames {
		p := frames[i].Partition
		if l.recent[p] == nil {
			l.recent[p] = &recent{}
		}
		l.recent[p].add(&frames[i], recentBytes/int(l.partitions))
	}
	for p, end := range ends {
		l.ends[p] = max(l.ends[p], end)
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

// Refresh notices records that other handles have appended.
func (l *Log) Refresh(ctx context.Context) error {
	_, ends, err := l.Bounds(ctx)
	if err != nil {
		return err
	}
	grown := map[int32]int64{}
	for p, end := range ends {
		if known, _ := l.End(int32(p)); known < end {
			grown[int32(p)] = end
		}
	}
	if len(grown) > 0 {
		l.grew(grown, nil)
	}
	return nil
}

// End returns where a partition ends, as far as this handle has appended to it or noticed,
// and a channel that is closed when one of the partitions grows.
func (l *Log) End(partition int32) (end int64, grows <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ends[partition], l.changed
}

// Read returns frames of a partition: the one that holds offset, or the next one
// that is there, and those behind it, until they have so many bytes; at least one
// if there is one. Bodies may be shared and must not be changed. An error of class
// Fatal that wraps ErrDamaged says that a row is different from the written one.
func (l *Log) Read(ctx context.Context, partition int32, offset int64, bytes int) (frames []LogFrame, err error) {
	l.mu.Lock()
	frames = l.recent[partition].from(offset, bytes)
	l.mu.Unlock()
	if frames != nil {
		return frames, nil
	}
	return frames, l.s.read(ctx, "read log", func(conn *keptConn) error {
		frames, err = l.readRows(ctx, conn, partition, offset, bytes)
		return err
	})
}

// readRows is Read of the file.
func (l *Log) readRows(ctx context.Context, conn *keptConn, partition int32, offset int64, bytes int) (frames []LogFrame, err error) {
	size := 0
	rows, err := conn.QueryContext(ctx, sqlReadFrames, l.place(partition, 0), l.place(partition, offset), l.place(partition+1, 0)-1)
	err = collect(rows, err, func() error {
		var place, milliseconds, checksum int64
		f := LogFrame{Partition: partition}
		if err := rows.Scan(&place, &f.Records, &milliseconds, &checksum, &f.Form, &f.Body); err != nil {
			return err
		}
		f.First, f.Time = offsetOf(place), time.UnixMilli(milliseconds).UTC()
		if sum(place, f.Records, f.Body) != checksum {
			return l.Damaged(partition, f.First, "the record does not have the checksum that it was written with")
		}
		if f.end() > offset { // only the first one may end before
			frames = append(frames, f)
			size += len(f.Body)
		}
		if size >= bytes {
			return errEnough
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	return frames, nil
}

var errEnough = errors.New("enough")

// Damaged returns an ErrDamaged for a row that differs from the written one, with the
// difference, and ends all writing to the file.
func (l *Log) Damaged(partition int32, offset int64, what string) error {
	err := fmt.Errorf("%w: %s, log %d, partition %d, offset %d: %s", ErrDamaged, l.s.path, l.number, partition, offset, what)
	l.s.disk.Fail(err)
	return store.WithClass(err, store.Fatal)
}

// Bounds returns where each partition begins and ends: between are the records that
// it has.
func (l *Log) Bounds(ctx context.Context) (starts, ends []int64, err error) {
	starts, ends = make([]int64, l.partitions), make([]int64, l.partitions)
	err = l.s.read(ctx, "read the bounds of a log", func(conn *keptConn) error {
		return each(ctx, conn, sqlLastFrame, int(l.partitions), func(i int, last *sql.Stmt) error {
			from, to := l.place(int32(i), 0), l.place(int32(i)+1, 0)-1
			var err error
			if _, ends[i], err = spanOf(last.QueryRowContext(ctx, from, to)); err != nil || ends[i] == 0 {
				return err
			}
			var place, written int64
			err = conn.QueryRowContext(ctx, sqlFirstFrame, from, to).Scan(&place, &written)
			starts[i] = offsetOf(place)
			return err
		})
	})
	return starts, ends, err
}

// At returns the offset of the first frame of a partition that was appended at a
// time or later, and the end if there is none.
func (l *Log) At(ctx context.Context, partition int32, at time.Time) (int64, error) {
	found := int64(0)
	err := l.s.read(ctx, "find a time in a log", func(conn *keptConn) error {
		low, last := l.place(partition, 0), l.place(partition+1, 0)-1
		_, end, err := spanOf(conn.QueryRowContext(ctx, sqlLastFrame, low, last))
		if err != nil || end == 0 {
			return err
		}
		var place, other int64
		high := l.place(partition, end)
		// All rows before low are older; the first one at high or later is not.
		for low < high {
			middle := low + (high-low)/2
			err := conn.QueryRowContext(ctx, sqlFirstFrame, middle, last).Scan(&place, &other)
			switch {
			case errors.Is(err, sql.ErrNoRows): // inside the last row
				high = middle
			case err != nil:
				return err
			case other < at.UnixMilli():
				low = place + 1
			default:
				high = middle
			}
		}
		err = conn.QueryRowContext(ctx, sqlFirstFrame, low, last).Scan(&place, &other)
		if errors.Is(err, sql.ErrNoRows) {
			found = end
			return nil
		}
		found = offsetOf(place)
		return err
	})
	return found, err
}

// How many rows and pages one transaction of Trim takes: others wait for it.
const (
	trimRows  = 200
	trimPages = 500
)

// Trim deletes frames that were appended before a time, of each partition up to its offset in
// below, exclusive, and never its newest frame, which says where it ends. Then it
// returns free pages to the file system, but for a tenth of the file,
// which the next records take. It reports how many frames it deleted.
func (l *Log) Trim(ctx context.Context, before time.Time, below []int64) (int, error) {
	defer l.dropRecent()
	trimmed := 0
	for p := range l.partitions {
		to, err := l.At(ctx, p, before)
		if err != nil {
			return trimmed, err
		}
		newest, _, err := spanOf(l.s.readers.QueryRowContext(ctx, sqlLastFrame, l.place(p, 0), l.place(p+1, 0)-1))
		if err != nil {
			return trimmed, failed("trim log", err)
		}
		if to = min(to, newest, below[p]); to <= 0 {
			continue
		}
		// The row that holds the record before to may hold to as well.
		first, end, err := spanOf(l.s.readers.QueryRowContext(ctx, sqlLastFrame, l.place(p, 0), l.place(p, to)-1))
		if err != nil {
			return trimmed, failed("trim log", err)
		}
		if end == 0 {
			continue
		}
		last := l.place(p, first)
		if end > to {
			last--
		}
		for more := true; more; {
			err := l.s.write(ctx, "trim log", func(t tx) error {
				n, err := t.once(sqlDropFrames, l.place(p, 0), last, trimRows)
				trimmed += int(n)
				more = n == trimRows
				return err
			})
			if err != nil {
				return trimmed, err
			}
		}
	}
	return trimmed, l.s.vacuum(ctx)
}

// vacuum returns free pages, but for a tenth of the file.
func (s *Store) vacuum(ctx context.Context) error {
	for more := true; more; {
		err := s.write(ctx, "vacuum", func(t tx) error {
			var free, pages int
			err := t.conn.QueryRowContext(t.ctx, `PRAGMA freelist_count`).Scan(&free)
			if err == nil {
				err = t.conn.QueryRowContext(t.ctx, `PRAGMA page_count`).Scan(&pages)
			}
			give := min(free-pages/10, trimPages)
			if more = give > 0; err == nil && more {
				// It releases a page with every step of its rows.
				rows, e := t.conn.Conn.QueryContext(t.ctx, fmt.Sprintf(`PRAGMA incremental_vacuum(%d)`, give))
				err = collect(rows, e, func() error { return nil })
			}
			more = more && give == trimPages
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
