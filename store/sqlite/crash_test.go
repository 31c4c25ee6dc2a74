package sqlite

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

const writerPath = "WEIR_TEST_SQLITE_WRITER"

var crashPartition = store.Partition{Generation: 1}

// writeUntilKilled decides offset after offset and says each one aloud once it
// is durable. It runs in a process of its own.
func writeUntilKilled(path string) error {
	ctx := context.Background()
	s, err := Open(ctx, Options{Path: path})
	if err != nil {
		return err
	}
	revision, err := s.Activate(ctx, []byte("c"), false, store.Inbox{}, nil)
	if err != nil {
		return err
	}
	if _, err := s.TakeOver(ctx, []store.Partition{crashPartition}, store.Token{1}); err != nil {
		return err
	}
	for next := int64(0); ; next++ {
		err := s.Decide(ctx, store.Decision{Revision: revision.Number, Moves: []store.WatermarkStep{{Partition: crashPartition, From: next, To: next + 1, Token: store.Token{1}}}},
			func(store.Loaded) (store.Outcome, error) {
				return store.Outcome{Frames: []store.Frame{{Partition: crashPartition, To: change.NewVersion(1, next+1), Body: []byte(strconv.FormatInt(next, 10))}}}, nil
			})
		if err != nil {
			return err
		}
		fmt.Println(next)
	}
}

// I1: acknowledged writes survive kill -9 in the middle of writes, whole and
// in order; of the others, all or nothing.
func TestKilledWriterLosesNothingAcknowledged(t *testing.T) {
	s, path := migrated(t)
	command := exec.CommandContext(t.Context(), os.Args[0])
	command.Env = append(os.Environ(), writerPath+"="+path)
	command.Stderr = os.Stderr
	out, err := command.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	acknowledged := int64(-1)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		acknowledged, err = strconv.ParseInt(strings.TrimSpace(lines.Text()), 10, 64)
		require.NoError(t, err)
		if acknowledged == 25 {
			require.NoError(t, command.Process.Kill())
		}
	}
	require.Error(t, command.Wait(), "it was killed")
	require.GreaterOrEqual(t, acknowledged, int64(25))

	taken, err := s.TakeOver(t.Context(), []store.Partition{crashPartition}, store.Token{2})
	require.NoError(t, err)
	assert.GreaterOrEqual(t, taken[0].NextOffset, acknowledged+1)
	tail, err := s.Frames(t.Context(), crashPartition.Number, 0, 1<<30)
	require.NoError(t, err)
	require.Len(t, tail.Frames, int(min(taken[0].NextOffset, 256)))
	for i, f := range tail.Frames {
		assert.Equal(t, strconv.Itoa(i), string(f.Body))
	}
}

// A full disk is waited out: nothing is written, the error says why, and the
// same call succeeds when there is space.
func TestDiskFull(t *testing.T) {
	s, _ := migrated(t)
	revision, err := s.Activate(t.Context(), []byte("c"), false, store.Inbox{}, nil)
	require.NoError(t, err)
	_, err = s.TakeOver(t.Context(), []store.Partition{crashPartition}, store.Token{1})
	require.NoError(t, err)
	limit := func(pages int) {
		require.NoError(t, s.write(t.Context(), "limit", func(t tx) error {
			_, err := t.conn.ExecContext(t.ctx, fmt.Sprint("PRAGMA max_page_count = ", pages))
			return err
		}))
	}
	decide := func() error {
		return s.Decide(t.Context(), store.Decision{Revision: revision.Number, Moves: []store.WatermarkStep{{Partition: crashPartition, To: 1, Token: store.Token{1}}}},
			func(store.Loaded) (store.Outcome, error) {
				return store.Outcome{
					Entities: []store.Entity{{ID: "e"}},
					Frames:   []store.Frame{{Partition: crashPartition, To: change.NewVersion(1, 1), Body: make([]byte, 1<<20)}},
				}, nil
			})
	}
	limit(1) // SQLite takes the present size
	err = decide()
	require.ErrorContains(t, err, "the disk is full")
	assert.Equal(t, store.Retry, store.ClassOf(err))
	_, err = s.Entity(t.Context(), "e")
	require.ErrorIs(t, err, store.ErrNotFound)
	limit(1 << 20)
	require.NoError(t, decide())
}

// A build finds tables of another version, or none, before it touches them.
func TestCheckSchema(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "new.db"))
	err := s.CheckSchema(t.Context())
	require.ErrorIs(t, err, store.ErrSchema)
	assert.Equal(t, store.Fatal, store.ClassOf(err))
	_, err = s.Active(t.Context())
	assert.Equal(t, store.Fatal, store.ClassOf(err), "%v", err)
	require.NoError(t, s.Migrate(t.Context()))
	require.NoError(t, s.CheckSchema(t.Context()))
	_, err = s.writer.ExecContext(t.Context(), `INSERT INTO weir_schema_version (version_id, is_applied) VALUES (99, 1)`)
	require.NoError(t, err)
	require.ErrorIs(t, s.CheckSchema(t.Context()), store.ErrSchema)
}

// A new file and those beside it hold documents, and are for their user alone,
// also in a folder that others may read. The mode of one that exists is kept.
func TestFileMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new.db")
	mode := func(name string) os.FileMode {
		info, err := os.Stat(name)
		require.NoError(t, err)
		return info.Mode().Perm()
	}
	s := open(t, path)
	require.NoError(t, s.Migrate(t.Context()))
	for _, suffix := range []string{"", "-wal", "-shm"} {
		assert.Equal(t, os.FileMode(0o600), mode(path+suffix), suffix)
	}
	require.NoError(t, os.Chmod(path, 0o640))
	open(t, path)
	assert.Equal(t, os.FileMode(0o640), mode(path))
}
