package sqlite

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/store"
)

func openLog(t testing.TB, s *Store, partitions int32) *Log {
	t.Helper()
	l, err := s.OpenLog(t.Context(), "log", partitions)
	require.NoError(t, err)
	return l
}

func frameOf(body string) []LogFrame { return []LogFrame{{Records: 1, Body: []byte(body)}} }

// bodies reads all that a partition holds.
func bodies(t testing.TB, l *Log, partition int32) (all []string) {
	t.Helper()
	for at := int64(0); ; {
		frames, err := l.Read(t.Context(), partition, at, 1)
		require.NoError(t, err)
		if len(frames) == 0 {
			return all
		}
		for _, f := range frames {
			all = append(all, string(f.Body))
			at = f.First + int64(f.Records)
		}
	}
}

// bubble runs f with a log, where together can wait.
func bubble(t *testing.T, f func(t *testing.T, s *Store, l *Log)) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := migrated(t)
		f(t, s, openLog(t, s, 1))
	})
}

// together has writes wait until all of them do, so that one transaction takes
// them, and returns how each ended, and the transactions.
func together(s *Store, writes ...func(t tx) error) (errs []error, groups map[*group]bool) {
	errs, groups = make([]error, len(writes)), map[*group]bool{}
	s.writes.turn <- struct{}{}
	var wg sync.WaitGroup
	for i, f := range writes {
		wg.Go(func() {
			errs[i] = s.write(context.Background(), "test", func(t tx) error {
				groups[t.g] = true // writes have turns
				return f(t)
			})
		})
		synctest.Wait() // they take their turns in the order in which they came
	}
	<-s.writes.turn
	wg.Wait()
	return errs, groups
}

func appending(s *Store, l *Log, body string) func(t tx) error {
	return func(t tx) error { return t.append(l, frameOf(body), s.now()) }
}

// Waiting writes are one transaction, and one of it that fails takes no other
// along.
func TestWritesThatWaitTogether(t *testing.T) {
	failure := errors.New("mine")
	for at := range 4 {
		t.Run(fmt.Sprint("failure at ", at), func(t *testing.T) {
			bubble(t, func(t *testing.T, s *Store, l *Log) {
				writes := []func(t tx) error{appending(s, l, "0"), appending(s, l, "1"), appending(s, l, "2")}
				want := []string{"0", "1", "2"}
				if at < len(writes) {
					writes[at] = func(t tx) error { return errors.Join(t.append(l, frameOf("x"), s.now()), failure) }
					want = slices.Delete(want, at, at+1)
				}
				errs, groups := together(s, writes...)
				for i := range errs {
					if i == at {
						require.ErrorIs(t, errs[i], failure)
					} else {
						require.NoError(t, errs[i])
					}
				}
				require.Equal(t, want, bodies(t, l, 0))
				end, _ := l.End(0)
				require.EqualValues(t, len(want), end)
				if at > 0 { // a transaction that begins with a failure is over
					require.Len(t, groups, 1)
				}
			})
		})
	}
}

// A write that panics is taken out like one that fails, and the connection serves
// the next one.
func TestWriteThatPanics(t *testing.T) {
	s, _ := migrated(t)
	l := openLog(t, s, 1)
	require.Panics(t, func() {
		_ = s.write(t.Context(), "test", func(t tx) error {
			if err := t.append(l, frameOf("x"), s.now()); err != nil {
				return err
			}
			panic("a bug")
		})
	})
	require.NoError(t, l.Append(t.Context(), frameOf("y")))
	require.Equal(t, []string{"y"}, bodies(t, l, 0))
}

// Who has counted on a later write to commit is not left waiting when that one is
// called off.
func TestTheLastOfATransactionGivesUp(t *testing.T) {
	for name, before := range map[string]bool{"before it is its turn": true, "about when it is": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *Store, l *Log) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				called := make(chan error, 1)
				err := s.write(t.Context(), "first", func(tx tx) error {
					go func() { called <- s.write(ctx, "second", appending(s, l, "y")) }()
					synctest.Wait()
					if cancel(); before {
						synctest.Wait()
					}
					return tx.append(l, frameOf("x"), s.now())
				})
				require.NoError(t, err)
				want := []string{"x"}
				if <-called == nil {
					want = append(want, "y")
				}
				require.Equal(t, want, bodies(t, l, 0))
			})
		})
	}
}

// Close between two writes of one transaction commits it, and who waits for the turn
// after it gets an error.
func TestCloseAmongWritesThatWaitTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, path := migrated(t)
		l := openLog(t, s, 1)
		s.writes.turn <- struct{}{}
		var before, after, closed error
		var wg sync.WaitGroup
		for _, f := range []func(){
			func() { before = s.write(context.Background(), "before", appending(s, l, "before")) },
			func() { closed = s.Close() },
			func() { after = s.write(context.Background(), "after", appending(s, l, "after")) },
		} {
			wg.Go(f)
			synctest.Wait() // they take their turns in the order in which they came
		}
		<-s.writes.turn
		wg.Wait()
		require.NoError(t, before)
		require.NoError(t, closed)
		require.Error(t, after)
		again := open(t, path)
		l, err := again.FindLog(t.Context(), "log")
		require.NoError(t, err)
		require.Equal(t, []string{"before"}, bodies(t, l, 0))
	})
}

// A disk that fills up fails the write that met it, perhaps the others of its
// transaction, and no caller is told that a missing record is there.
func TestDiskFullAmongWritesThatWaitTogether(t *testing.T) {
	bubble(t, func(t *testing.T, s *Store, l *Log) {
		limit := func(pages int) {
			require.NoError(t, s.write(t.Context(), "limit", func(t tx) error {
				_, err := t.conn.ExecContext(t.ctx, fmt.Sprint("PRAGMA max_page_count = ", pages))
				return err
			}))
		}
		limit(1) // SQLite takes the present size
		large := func(t tx) error {
			return failed("append", t.append(l, frameOf(string(make([]byte, 1<<20))), s.now()))
		}
		errs, _ := together(s, appending(s, l, "0"), large, appending(s, l, "2"))
		require.ErrorIs(t, errs[1], ErrFull)
		var want []string
		for i, err := range errs {
			if err == nil {
				want = append(want, fmt.Sprint(i))
			} else {
				assert.Equal(t, store.Retry, store.ClassOf(err), "%v", err)
			}
		}
		require.Equal(t, want, bodies(t, l, 0))
		limit(1 << 20)
		require.NoError(t, l.Append(t.Context(), frameOf("more")))
		require.Equal(t, append(want, "more"), bodies(t, l, 0))
	})
}

// A damaged row is not handed out: its reader gets an error.
func TestDamagedRow(t *testing.T) {
	for name, change := range map[string]string{
		"a bit of the body": `UPDATE log_frames SET body = x'6f6f66' WHERE place > 7`,
		"the count":         `UPDATE log_frames SET records = 2 WHERE place > 7`,
		"the place":         `UPDATE log_frames SET place = place + 1 WHERE place > 7`,
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := migrated(t)
			l := openLog(t, s, 1)
			require.NoError(t, l.Append(t.Context(), frameOf("foo")))
			_, err := s.writer.ExecContext(t.Context(), change)
			require.NoError(t, err)
			l.dropRecent()
			_, err = l.Read(t.Context(), 0, 0, 1)
			require.ErrorIs(t, err, ErrDamaged)
			require.Equal(t, store.Fatal, store.ClassOf(err))
		})
	}
}

// Retention deletes expired records, but for the newest frame and undecided
// ones, and the file becomes smaller.
func TestTrim(t *testing.T) {
	s, path := migrated(t)
	l := openLog(t, s, 2)
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range 500 {
		s.now = func() time.Time { return began.Add(time.Duration(i) * time.Second) }
		require.NoError(t, l.Append(t.Context(), []LogFrame{{Partition: 0, Records: 10, Form: 1, Body: make([]byte, 20_000)}, {Partition: 1, Records: 1, Body: []byte("x")}}))
	}
	size := func() int64 {
		_, err := s.writer.ExecContext(t.Context(), `PRAGMA wal_checkpoint(TRUNCATE)`)
		require.NoError(t, err)
		info, err := os.Stat(path)
		require.NoError(t, err)
		return info.Size()
	}
	starts := func() []int64 {
		starts, ends, err := l.Bounds(t.Context())
		require.NoError(t, err)
		require.Equal(t, []int64{5000, 500}, ends)
		return starts
	}
	full := size()
	require.Greater(t, full, int64(500*20_000))
	at, err := l.At(t.Context(), 0, began.Add(100*time.Second))
	require.NoError(t, err)
	require.EqualValues(t, 1000, at)

	n, err := l.Trim(t.Context(), began.Add(100*time.Second), []int64{995, math.MaxInt64})
	require.NoError(t, err)
	require.Equal(t, 99+100, n, "the frame of 990 to 999 holds what is not decided")
	require.Equal(t, []int64{990, 100}, starts())
	frames, err := l.Read(t.Context(), 0, 0, 1)
	require.NoError(t, err)
	require.EqualValues(t, 990, frames[0].First, "a read goes on with the oldest")

	_, err = l.Trim(t.Context(), began.Add(time.Hour), []int64{math.MaxInt64, 0})
	require.NoError(t, err)
	require.Equal(t, []int64{4990, 100}, starts(), "the newest stays, and what is not to be deleted")
	require.Less(t, size(), full/10)
	require.NoError(t, l.Append(t.Context(), frameOf("next")))
	frames, err = l.Read(t.Context(), 0, 5000, 1)
	require.NoError(t, err)
	require.EqualValues(t, 5000, frames[0].First, "offsets go on")
}

func TestPartitionsOfALog(t *testing.T) {
	s, _ := migrated(t)
	l := openLog(t, s, 4)
	for _, other := range []int32{3, 5} {
		_, err := s.OpenLog(t.Context(), "log", other)
		require.ErrorIs(t, err, ErrPartitions)
	}
	again, err := s.OpenLog(t.Context(), "log", 4)
	require.NoError(t, err)
	require.EqualValues(t, 4, again.Partitions())
	require.Equal(t, l.ID(), again.ID())
	require.Equal(t, store.Fatal, store.ClassOf(again.Append(t.Context(), []LogFrame{{Partition: 4, Records: 1}})))
	_, err = s.FindLog(t.Context(), "none")
	require.ErrorIs(t, err, store.ErrNotFound)
}
