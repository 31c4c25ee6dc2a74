package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/store/shared"
	"github.com/seed-86dfc502/weir/store/storetest"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(writerPath); path != "" {
		fmt.Fprintln(os.Stderr, writeUntilKilled(path))
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// open opens one more handle, which waits for the others as long as a busy machine
// takes: nothing says whose turn it is.
func open(t testing.TB, path string) *Store {
	t.Helper()
	s, err := Open(t.Context(), Options{Path: path})
	require.NoError(t, err)
	s.patience = time.Minute
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func migrated(t testing.TB) (*Store, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "state #1?.db") // characters that a file URI would misread
	empty, err := migratedFile()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, empty, 0o600))
	return open(t, path), path
}

// migratedFile returns a database file with empty tables. To make one for each
// test would take a fifth of its time.
var migratedFile = sync.OnceValues(func() (file []byte, err error) {
	dir, err := os.MkdirTemp("", "weir-sqlite-*")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "state.db")
	s, err := Open(context.Background(), Options{Path: path})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(s.Migrate(context.Background()), s.Close()); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) (store.Store, store.Store) {
		a, path := migrated(t)
		return a, open(t, path)
	})
}

func TestDoubt(t *testing.T) {
	storetest.RunDoubt(t, func(t *testing.T) (store.Store, func()) {
		s, _ := migrated(t)
		return s, func() {
			_, err := s.writer.ExecContext(t.Context(), `UPDATE watermarks SET session = 'former'; UPDATE inboxes SET session = 'former'`)
			require.NoError(t, err)
		}
	})
}

func TestOperatorConformance(t *testing.T) {
	storetest.RunOperator(t, func(t *testing.T) (storetest.Operated, storetest.Operated) {
		a, path := migrated(t)
		return a, open(t, path)
	})
}

func TestEverythingIsThereAfterReopening(t *testing.T) {
	s, path := migrated(t)
	k := store.Key{Service: 1, Entity: "banana-1"}
	revision, err := s.Activate(t.Context(), []byte("c"), false, store.Inbox{}, nil)
	require.NoError(t, err)
	p := store.Partition{Generation: 1}
	_, err = s.TakeOver(t.Context(), []store.Partition{p}, store.Token{1})
	require.NoError(t, err)
	err = s.Decide(t.Context(), store.Decision{Revision: revision.Number, Moves: []store.WatermarkStep{{Partition: p, To: 3, Token: store.Token{1}}}},
		func(store.Loaded) (store.Outcome, error) {
			return store.Outcome{
				Entities: []store.Entity{{ID: k.Entity, States: storetest.StatesOf(store.Row{Key: k, Content: change.Retracted(), Version: 7})}},
				Frames:   []store.Frame{{Partition: p, To: change.NewVersion(1, 2), Body: []byte("x")}},
			}, nil
		})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.NoError(t, s.Close(), "twice does no harm")
	require.Error(t, s.Ping(t.Context()))

	s = open(t, path)
	require.NoError(t, s.CheckSchema(t.Context()))
	rows, err := s.Rows(t.Context(), []store.Key{k})
	require.NoError(t, err)
	assert.Equal(t, []store.Row{{Key: k, Found: true, Content: change.Retracted(), Version: 7}}, rows)
	taken, err := s.TakeOver(t.Context(), []store.Partition{p}, store.Token{2})
	require.NoError(t, err)
	assert.Equal(t, []store.TakenOver{{Partition: p, NextOffset: 3, Doubt: true, LastTo: change.NewVersion(1, 2)}}, taken)
	tail, err := s.Frames(t.Context(), p.Number, 0, 1)
	require.NoError(t, err)
	assert.Equal(t, store.Tail{Frames: []store.Frame{{To: change.NewVersion(1, 2), Body: []byte("x")}}, LastTo: change.NewVersion(1, 2)}, tail)
}

// The view shows people the meaning of the bytes.
func TestDamRowsView(t *testing.T) {
	s, _ := migrated(t)
	storetest.DamRows(t, s, func(query string) (lines []string) {
		rows, err := s.readers.QueryContext(t.Context(), query)
		require.NoError(t, collect(rows, err, func() error {
			var line string
			err := rows.Scan(&line)
			lines = append(lines, line)
			return err
		}))
		return lines
	})
}

// I7: queries of every few seconds, or every hour, find their rows by an index,
// however many stay. The mistake that this catches: a whole table read to find
// that nothing is over its time.
func TestCountingAndPruningUseTheIndex(t *testing.T) {
	s, _ := migrated(t)
	plain := &shared.Statements
	for statement, index := range map[*shared.Statement]string{
		&plain.CountLetters: "dead_letters_open", &plain.PruneLetters: "dead_letters_last",
		&plain.PruneAudit: "audit_time", &plain.PruneJobs: "jobs_updated",
		&plain.RetryingOf: "dead_letters_retrying", &plain.Tombstones: "entities_deleted",
		&plain.OldOpenLetters: "dead_letters_last", &plain.DropFrames: "frames_written",
		&plain.Tail: "sqlite_autoindex_frames_1",
	} {
		args := make([]any, 0, 9)
		for n := 1; strings.Contains(statement.SQLite, fmt.Sprint("?", n)); n++ {
			args = append(args, nil)
		}
		rows, err := s.readers.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+statement.SQLite, args...)
		var plan []string
		require.NoError(t, collect(rows, err, func() error {
			var id, parent, unused int
			var detail string
			err := rows.Scan(&id, &parent, &unused, &detail)
			plan = append(plan, detail)
			return err
		}))
		assert.Contains(t, strings.Join(plan, "\n"), index, statement.SQLite)
		assert.NotContains(t, strings.Join(plan, "\n"), "SCAN dead_letters", statement.SQLite)
		if statement != &plain.Tail && statement != &plain.DropFrames { // they sort a page
			assert.NotContains(t, strings.Join(plan, "\n"), "TEMP B-TREE", statement.SQLite)
		}
	}
}

func BenchmarkSwap(b *testing.B) {
	storetest.BenchmarkSwap(b, func(b *testing.B) store.Store {
		s, _ := migrated(b)
		return s
	})
}
