package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/store/sqlite"
	"github.com/stretchr/testify/require"
)

// I8: deliver that lost a partition to a store that went back starts again, under
// the revision that the store has then; any other failure ends the process.
func TestAStageThatLostItsProgressStartsAgain(t *testing.T) {
	s, err := sqlite.Open(t.Context(), sqlite.Options{Path: filepath.Join(t.TempDir(), "state.db")})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	require.NoError(t, s.Migrate(t.Context()))
	_, err = s.Activate(t.Context(), []byte("own"), false, store.Inbox{}, nil)
	require.NoError(t, err)
	a := &activation{store: s, inbox: new(inboxManager), log: slog.New(slog.DiscardHandler)}
	a.inbox.inbox.Store(&store.Inbox{})
	// The store lost an activation: this process's revision is not there any more.
	a.now.Store(newSettings(nil, &decide.Plan{Revision: 2}, []byte("own")))

	type run struct {
		revision int64
		failed   chan error
	}
	started, ended := make(chan run, 3), make(chan int64, 3)
	running, err := a.supervise(t.Context(), "deliver", true, func(_ context.Context, o startOptions) (component, error) {
		failed := make(chan error, 1)
		started <- run{o.revision, failed}
		return component{failed: failed, stop: func() error { ended <- o.revision; return nil }}, nil
	})
	require.NoError(t, err)
	first := <-started
	require.EqualValues(t, 2, first.revision)
	first.failed <- fmt.Errorf("partition 3: %w", deliver.ErrLost)
	require.EqualValues(t, 2, <-ended, "it stops before it starts again")
	second := <-started
	require.EqualValues(t, 1, second.revision)
	broken := errors.New("broken")
	second.failed <- broken
	require.ErrorIs(t, <-running.failed, broken)
	require.NoError(t, running.stop())
	require.Equal(t, second.revision, <-ended)
	require.Empty(t, started)
}
