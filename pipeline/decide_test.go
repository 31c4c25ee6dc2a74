package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/store"
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
		_, err := s.Activate(t.Context(), []byte(fingerprint), false, store.Inbox{}, nil)
		require.NoError(t, err)
	}
	j := newJournal(t)
	process := func(fingerprint string, revision int64) *activation {
		a := &activation{store: s, inbox: &inboxManager{journal: j}, log: slog.New(slog.DiscardHandler)}
		a.inbox.inbox.Store(&store.Inbox{})
		a.now.Store(newSettings(nil, &decide.Plan{Revision: revision}, []byte(fingerprint)))
		return a
	}
	activate("older")
	j.lost(t, journalEntry{Revision: 2}) // of who did not see this one
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

	// Of two that were lost, the latest becomes active.
	_, ok = process("latest", 7).await(t.Context())
	require.True(t, ok)
	now, err = s.Active(t.Context())
	require.NoError(t, err)
	require.Equal(t, "latest", string(now.Fingerprint))
}

// I11: the store went back to before a service of this configuration, and another
// service has got its number since. The mistake that this catches: changes under the
// number of before were the other service's, or of no service after a restart.
func TestAwaitingTakesTheNumbersOfTheStore(t *testing.T) {
	p := openEmbedded(t, Roles{Work: true}, fileSource)
	before, ours := p.active.now.Load(), "acme/p@f"
	require.Equal(t, ours, before.plan.Services[0].Name)

	restored, err := sqlite.Open(t.Context(), sqlite.Options{Path: filepath.Join(t.TempDir(), "state.db")})
	require.NoError(t, err)
	defer func() { require.NoError(t, restored.Close()) }()
	require.NoError(t, restored.Migrate(t.Context()))
	_, err = restored.Activate(t.Context(), []byte("older"), false, store.Inbox{}, nil)
	require.NoError(t, err)
	_, err = restored.Services(t.Context(), []string{"other/p@f"})
	require.NoError(t, err)
	p.active.store = restored
	_, ok := p.active.await(t.Context())
	require.True(t, ok)
	want, err := restored.Services(t.Context(), []string{ours})
	require.NoError(t, err)
	now := p.active.now.Load()
	require.NotEqual(t, before.plan.Services[0].Number, want[ours])
	require.Equal(t, want[ours], now.plan.Services[0].Number)
	<-before.replaced // by which every stage learns of it
	_, ok = p.active.await(t.Context())
	require.True(t, ok)
	require.Same(t, now, p.active.now.Load(), "once is enough")
}

// unanswering commits an activation without saying so.
type unanswering struct {
	revisions
	times int
}

func (u *unanswering) Activate(ctx context.Context, fingerprint []byte, force bool, inbox store.Inbox, note store.Note) (store.Revision, error) {
	active, err := u.revisions.Activate(ctx, fingerprint, force, inbox, note)
	if u.times--; u.times >= 0 && err == nil {
		return store.Revision{}, store.WithClass(errors.New("connection reset"), store.Unknown)
	}
	return active, err
}

// I12: a reload takes effect though the store did not say so and its caller has gone.
// The mistake that this catches: the process went on under the configuration of before,
// which was not active any more, and stood still.
func TestAReloadWhoseActivationIsNotAnswered(t *testing.T) {
	p := openEmbedded(t, Roles{Work: true}, fileSource)
	before := p.active.now.Load()
	ctx, cancel := context.WithCancel(t.Context())
	p.active.store = &unanswering{cancels{p.store, cancel}, 2}
	next := newSettings(p.cfg, p.active.plan(), []byte("another"))
	require.NoError(t, p.active.switchTo(ctx, next, false))
	<-before.replaced
	active, err := p.store.Active(t.Context())
	require.NoError(t, err)
	require.Equal(t, "another", string(active.Fingerprint))
	require.Equal(t, active.Number, p.Revision())
}

// cancels ends a context with each activation, after it took effect.
type cancels struct {
	revisions
	cancel context.CancelFunc
}

func (c cancels) Activate(ctx context.Context, fingerprint []byte, force bool, inbox store.Inbox, note store.Note) (store.Revision, error) {
	defer c.cancel()
	return c.revisions.Activate(ctx, fingerprint, force, inbox, note)
}
