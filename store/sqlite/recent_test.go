package sqlite

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A read through the frames in memory equals a read of the file, with appends of this handle
// and of another one, and with frames that were dropped or rolled back.
func TestRecentFramesAreThoseOfTheFile(t *testing.T) {
	s, _ := migrated(t)
	const name = "recent"
	rapid.Check(t, func(t *rapid.T) {
		_, err := s.writer.ExecContext(context.Background(), `DELETE FROM log_frames`)
		require.NoError(t, err)
		var handles [2]*Log
		for i := range handles {
			handles[i], err = s.OpenLog(context.Background(), name, 2)
			require.NoError(t, err)
		}
		ends := [2]int64{}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			l := handles[rapid.IntRange(0, 3).Draw(t, "handle")/3]
			p := rapid.Int32Range(0, 1).Draw(t, "partition")
			frame := LogFrame{Partition: p, Records: rapid.IntRange(1, 3).Draw(t, "records"), Form: 1, Body: make([]byte, rapid.IntRange(0, 30).Draw(t, "size"))}
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0:
				l.dropRecent()
			case 1:
				undone := errors.New("undone")
				err := s.write(context.Background(), "append", func(t tx) error { return errors.Join(t.append(l, []LogFrame{frame}, s.now()), undone) })
				require.ErrorIs(t, err, undone)
			case 2, 3, 4:
				require.NoError(t, l.Append(context.Background(), []LogFrame{frame}))
				ends[p] += int64(frame.Records)
			default:
				offset, bytes := rapid.Int64Range(0, ends[p]+1).Draw(t, "offset"), rapid.IntRange(1, 90).Draw(t, "bytes")
				got, err := l.Read(context.Background(), p, offset, bytes)
				require.NoError(t, err)
				fresh, err := s.FindLog(context.Background(), name)
				require.NoError(t, err)
				want, err := fresh.Read(context.Background(), p, offset, bytes)
				require.NoError(t, err)
				// Those of this handle alone may be fewer: a later read has the others.
				require.LessOrEqual(t, len(got), len(want))
				require.Equal(t, len(want) == 0, len(got) == 0)
				for i := range got {
					require.Equal(t, want[i].First, got[i].First)
					require.Equal(t, want[i].Records, got[i].Records)
					require.Equal(t, want[i].Time, got[i].Time)
					require.Len(t, got[i].Body, len(want[i].Body))
				}
			}
		}
	})
}

// A read right behind an append takes the frames from memory.
func TestReadTakesRecentFramesFromMemory(t *testing.T) {
	s, _ := migrated(t)
	l := openLog(t, s, 1)
	require.NoError(t, l.Append(t.Context(), frameOf("a")))
	require.NoError(t, l.Append(t.Context(), frameOf("b")))
	_, err := s.writer.ExecContext(t.Context(), `DELETE FROM log_frames`)
	require.NoError(t, err)
	frames, err := l.Read(t.Context(), 0, 1, 1)
	require.NoError(t, err)
	require.Len(t, frames, 1)
	require.Equal(t, "b", string(frames[0].Body))
}

// Memory is bounded, and holds the newest frames of a partition.
func TestRecentFramesAreBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []LogFrame
		var r recent
		end := int64(0)
		for range rapid.IntRange(1, 40).Draw(t, "frames") {
			f := LogFrame{First: end, Records: rapid.IntRange(1, 3).Draw(t, "records"), Body: make([]byte, rapid.IntRange(0, 120).Draw(t, "size"))}
			all, end = append(all, f), f.end()
			r.add(&f, 100)
			held := 0
			for _, f := range r.frames {
				held += len(f.Body)
			}
			require.Equal(t, held, r.bytes)
			require.LessOrEqual(t, held, 100)
			require.Equal(t, all[len(all)-len(r.frames):], append([]LogFrame{}, r.frames...))
		}
	})
}
