package sqlite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/store"
)

// recorder keeps, of each file, the durable part and later writes, and fails
// calls when it is told to.
type recorder struct {
	mu     sync.Mutex
	files  map[string]*recorded
	calls  int               // of what changes a file
	before func(n int) error // called with the number of each of them; its error fails it
	cut    func(n int) int   // of a write of n bytes that fails, what is written
}

// recorded is one file.
type recorded struct {
	durable []byte
	exists  bool         // durably
	pending []fileChange // in their order
}

// fileChange is a write or, without bytes, a truncation.
type fileChange struct {
	at       int64
	b        []byte
	truncate bool
	delete   bool
}

func newRecorder() *recorder { return &recorder{files: map[string]*recorded{}} }

func (r *recorder) file(name string) *recorded {
	name = name[strings.LastIndexByte(name, '/')+1:]
	if r.files[name] == nil {
		r.files[name] = &recorded{}
	}
	return r.files[name]
}

// call counts a call that changes a file.
func (r *recorder) call() error {
	r.calls++
	if r.before == nil {
		return nil
	}
	return r.before(r.calls)
}

func (r *recorder) Write(name string, at int64, b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.file(name)
	n, err := len(b), r.call()
	if err != nil {
		n = 0
		if r.cut != nil {
			n = r.cut(len(b))
		}
	}
	if n > 0 {
		f.pending = append(f.pending, fileChange{at: at, b: slices.Clone(b[:n])})
	}
	return n, err
}

func (r *recorder) Truncate(name string, size int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.file(name)
	if err := r.call(); err != nil {
		return err
	}
	f.pending = append(f.pending, fileChange{at: size, truncate: true})
	return nil
}

func (r *recorder) Delete(name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.file(name)
	if err := r.call(); err != nil {
		return err
	}
	f.pending = append(f.pending, fileChange{delete: true})
	return nil
}

// Sync makes writes durable. One that fails loses them on the disk, though
// readers of the file see them.
func (r *recorder) Sync(name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.file(name)
	if err := r.call(); err != nil {
		f.pending = nil
		return err
	}
	f.durable, f.exists = f.content(len(f.pending), nil), true
	f.pending = nil
	return nil
}

// content is the file with its first n pending changes, of which those that torn names
// are there as far as it says only.
func (f *recorded) content(n int, torn map[int]int) []byte {
	b := slices.Clone(f.durable)
	for i, c := range f.pending[:n] {
		switch {
		case c.delete:
			b = nil
		case c.truncate && c.at <= int64(len(b)):
			b = b[:c.at]
		case c.truncate:
			b = append(b, make([]byte, c.at-int64(len(b)))...)
		default:
			part := c.b
			if k, ok := torn[i]; ok {
				part = part[:min(k, len(part))]
			}
			if grow := c.at + int64(len(part)) - int64(len(b)); grow > 0 && len(part) > 0 {
				b = append(b, make([]byte, grow)...)
			}
			copy(b[min(c.at, int64(len(b))):], part)
		}
	}
	return b
}

// sector is the unit of an atomic write, in bytes: SQLite counts on it for the
// header of its log.
const sector = 512

// powerLoss writes the possible contents of a disk after a power loss: the durable part, and of
// the rest any part, in any order, also parts of single writes.
func (r *recorder) powerLoss(random *rand.Rand, dir string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(r.files)) {
		f := r.files[name]
		n := len(f.pending)
		torn := map[int]int{}
		switch random.IntN(4) {
		case 0: // nothing
			n = 0
		case 1: // the first ones
			n = random.IntN(n + 1)
		case 2: // any
			for i := range n {
				if random.IntN(2) == 0 {
					torn[i] = sector * random.IntN(len(f.pending[i].b)/sector+1)
				}
			}
		}
		content := f.content(n, torn)
		deleted := n > 0 && f.pending[n-1].delete
		if !f.exists && n == 0 || deleted {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// world is one run of a writer on a recorder.
type world struct {
	s        *Store
	r        *recorder
	l        *Log
	appended int            // records of the log that were acknowledged
	possible int            // as many may be there
	decided  map[string]int // of each entity, the number that was acknowledged
	maybe    map[string]int // or this one
	next     int64
	unknown  bool
	revision int64
}

var lossPartition = store.Partition{Generation: 1}

func startWorld(t testing.TB) *world {
	t.Helper()
	path := filepath.Join(t.TempDir(), "state.db")
	r := newRecorder()
	s := openFaulty(t, path, r)
	// What Make wrote is durable.
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	r.mu.Lock()
	f := r.file(path)
	if f.durable == nil {
		f.durable, f.exists = content, true
	}
	r.mu.Unlock()
	require.NoError(t, s.Migrate(t.Context()))
	w := &world{s: s, r: r, l: openLog(t, s, 1), decided: map[string]int{}, maybe: map[string]int{}}
	revision, err := s.Activate(t.Context(), []byte("c"), false, store.Inbox{}, nil)
	require.NoError(t, err)
	w.revision = revision.Number
	_, err = s.TakeOver(t.Context(), []store.Partition{lossPartition}, store.Token{1})
	require.NoError(t, err)
	return w
}

// step does one random thing, and notes acknowledged writes.
func (w *world) step(ctx context.Context, random *rand.Rand) {
	switch random.IntN(8) {
	case 0:
		_, _ = w.s.writer.ExecContext(ctx, `PRAGMA wal_checkpoint(TRUNCATE)`)
	case 1, 2, 3:
		w.possible = max(w.possible, w.appended+1)
		if w.unknown { // another process would look first
			return
		}
		body := fmt.Sprint(w.appended, " ", strings.Repeat("x", random.IntN(9000)))
		if err := w.l.Append(ctx, []LogFrame{{Records: 1, Body: []byte(body)}}); err == nil {
			w.appended++
		} else if store.ClassOf(err) == store.Unknown {
			w.unknown = true
		}
	default:
		if w.unknown {
			return
		}
		id := fmt.Sprint("e", random.IntN(5))
		n := w.maybe[id] + 1
		w.maybe[id] = n
		err := w.s.Decide(ctx, store.Decision{Revision: w.revision, Moves: []store.WatermarkStep{{Partition: lossPartition, From: w.next, To: w.next + 1, Token: store.Token{1}}}},
			func(store.Loaded) (store.Outcome, error) {
				return store.Outcome{Entities: []store.Entity{{ID: id, Docs: []byte(fmt.Sprintf(`{"n":"%08d %s"}`, n, strings.Repeat("y", random.IntN(6000))))}}}, nil
			})
		if err == nil {
			w.next++
			w.decided[id] = n
		} else if store.ClassOf(err) == store.Unknown {
			w.unknown = true
		}
	}
}

// check opens the contents of a disk, and returns the lost acknowledged writes.
func (w *world) check(ctx context.Context, dir string) error {
	s, err := Open(ctx, Options{Path: filepath.Join(dir, "state.db")})
	if err != nil {
		return err
	}
	defer s.Close()
	l, err := s.FindLog(ctx, "log")
	if err != nil {
		return err
	}
	frames, err := l.Read(ctx, 0, 0, 1<<30)
	if err != nil {
		return err
	}
	if len(frames) < w.appended || len(frames) > w.possible {
		return fmt.Errorf("%w: %d records, acknowledged are %d", errLost, len(frames), w.appended)
	}
	for i, f := range frames {
		if f.First != int64(i) || !strings.HasPrefix(string(f.Body), fmt.Sprint(i, " ")) {
			return fmt.Errorf("%w: record %d is %.20q", errLost, i, f.Body)
		}
	}
	for id, want := range w.decided {
		e, err := s.Entity(ctx, id)
		if err != nil {
			return err
		}
		var n int
		if _, err := fmt.Sscanf(string(e.Docs), `{"n":"%d `, &n); err != nil || n < want || n > w.maybe[id] {
			return fmt.Errorf("%w: entity %s is %.20q, acknowledged is %d", errLost, id, e.Docs, want)
		}
	}
	marks, err := s.Watermarks(ctx)
	if at := marks[lossPartition]; err == nil && (at < w.next || at > w.next+1) {
		err = fmt.Errorf("%w: watermark %d, acknowledged is %d", errLost, at, w.next)
	}
	if err != nil {
		return err
	}
	var said string
	if err := s.readers.QueryRowContext(ctx, `PRAGMA integrity_check`).Scan(&said); err != nil || said != "ok" {
		return fmt.Errorf("%w: %s: %w", errLost, said, err)
	}
	return s.Err()
}

var errLost = errors.New("lost")

// powerLossRounds runs schedules of a seed each: work, a fault at some write, sync,
// truncation or deletion, perhaps, and then power losses at random moments. Acknowledged
// writes are there.
func powerLossRounds(t *testing.T, from uint64, rounds int) (losses, faults int) {
	for seed := from; seed < from+uint64(rounds); seed++ {
		random := rand.New(rand.NewPCG(seed, 1))
		w := startWorld(t)
		begin := w.r.calls
		at, kind := begin+1+random.IntN(150), random.IntN(5)
		w.r.mu.Lock()
		w.r.cut = func(n int) int { return sector * random.IntN(n/sector+1) }
		w.r.before = func(n int) error {
			switch {
			case kind == 0 || n < at: // no fault
				return nil
			case kind == 1 && n == at: // one write or sync
			case kind == 2 && n < at+5:
			case kind == 3 && n < at+30: // the disk is full for a while
				faults++
				return syscall.ENOSPC
			case kind == 4: // the disk is gone
			default:
				return nil
			}
			faults++
			return syscall.EIO
		}
		w.r.mu.Unlock()
		for range 20 + random.IntN(60) {
			w.step(t.Context(), random)
			if random.IntN(6) > 0 {
				continue
			}
			dir := t.TempDir()
			require.NoError(t, w.r.powerLoss(random, dir))
			losses++
			require.NoError(t, w.check(t.Context(), dir), "seed %d", seed)
			require.NoError(t, os.RemoveAll(dir))
		}
		_ = w.s.Close()
	}
	return losses, faults
}

// With any contents of the disk after a power loss, everything acknowledged is there, also
// where writes and syncs failed before.
func TestPowerLoss(t *testing.T) {
	losses, faults := powerLossRounds(t, 1, 10)
	t.Logf("%d power losses, %d failed calls", losses, faults)
	require.Positive(t, losses)
	require.Positive(t, faults)
}
