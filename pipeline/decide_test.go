package pipeline

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/store/sqlite"
	"github.com/stretchr/testify/require"
)

// I8, I12: a process whose configuration the store has lost makes it active
// again; one whose configuration was replaced waits.
func TestAwaitingTheOwnRevision(t *testing.T) {
	s, err := sqlite.Open(t.Context(), sqlite.Options{Path: filepath.Join(t.TempDir(), "state.db")})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	require.NoError(t, s.Migrate(t.Context()))
	activate := func(fingerprint string) {
		_, err := s.Activate(t.Context(), []byte(fingerprint), 0, false)
		require.NoError(t, err)
	}
	process := func(fingerprint string, revision int64) *activation {
		a := &activation{store: s, log: slog.New(slog.DiscardHandler)}
		a.now.Store(newSettings(nil, &decide.Plan{Revision: revision}, []byte(fingerprint)))
		a.know(revision)
		return a
	}
	activate("older")
	active, ok := process("lost", 2).await(t.Context())
	require.True(t, ok)
	require.EqualValues(t, 3, active.Number, "2 was another activation, also to who did not see this one")
	active, ok = process("lost", 2).await(t.Context())
	require.True(t, ok)
	require.EqualValues(t, 3, active.Number)
	// It has the number of the one that followed.
	active, ok = process("followed", 3).await(t.Context())
	require.True(t, ok)
	require.EqualValues(t, 4, active.Number)

	activate("newer")
	ctx, cancel := context.WithCancel(t.Context())
	found := make(chan bool, 1)
	go func() {
		_, ok := process("lost", 2).await(ctx)
		found <- ok
	}()
	cancel()
	require.False(t, <-found)
	now, err := s.Active(t.Context())
	require.NoError(t, err)
	require.Equal(t, "newer", string(now.Fingerprint))
	require.EqualValues(t, 5, now.Number)

	// Two that were both lost: the latest of them is the one that goes on.
	_, ok = process("latest", 7).await(t.Context())
	require.True(t, ok)
	now, err = s.Active(t.Context())
	require.NoError(t, err)
	require.Equal(t, "latest", string(now.Fingerprint))
}
