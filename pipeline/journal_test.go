package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/internal/transport/embedded"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/store/sqlite"
	"github.com/stretchr/testify/require"
)

// newJournal makes one in a file of its own: it is no part of the store.
func newJournal(t *testing.T) *journal {
	path := filepath.Join(t.TempDir(), "journal.db")
	file, err := sqlite.Open(t.Context(), sqlite.Options{Path: path})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, file.Close()) })
	require.NoError(t, file.Migrate(t.Context()))
	logs, err := embedded.Open(file, path, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, logs.Release()) })
	require.NoError(t, logs.Ensure(t.Context(), "journal", 1))
	return &journal{logs: assemble.FileLogs{Logs: logs}, topic: "journal"}
}

// lost notes what another process did, and a restore of the store took back.
func (j *journal) lost(t *testing.T, e journalEntry) {
	other := &journal{logs: j.logs, topic: j.topic}
	require.NoError(t, other.append(t.Context(), e))
}

// journaled is a process with a journal, whose store knows all of it.
func journaled(t *testing.T) (p *Pipeline, j *journal) {
	p, j = openEmbedded(t, Roles{Work: true}, fileSource), newJournal(t)
	p.inbox.journal = j
	before := p.inbox.now()
	require.ErrorIs(t, p.inbox.takenOver(t.Context(), store.Token{}, nil), decide.ErrInboxReplaced, "the store knows no journal")
	require.NoError(t, p.inbox.open(t.Context(), nil))
	require.Equal(t, before.Generation+1, p.inbox.now().Generation)
	p.agrees(t)
	require.NoError(t, p.inbox.open(t.Context(), nil))
	require.Equal(t, before.Generation+1, p.inbox.now().Generation, "once is enough")
	return p, j
}

func (p *Pipeline) agrees(t *testing.T) {
	t.Helper()
	require.NoError(t, p.inbox.takenOver(t.Context(), store.Token{}, nil))
}

func (p *Pipeline) activates(ctx context.Context, fingerprint string) (store.Revision, error) {
	return p.active.activate(ctx, []byte(fingerprint), false, true)
}

// I2: an entry that the store does not know begins a generation above all of the journal,
// and its number is given to no other activation.
func TestWhatTheStoreLostBeginsAGeneration(t *testing.T) {
	for name, e := range map[string]journalEntry{"an activation": {Revision: 5, Fingerprint: []byte("lost")}, "a generation": {Generation: 9}} {
		t.Run(name, func(t *testing.T) {
			p, j := journaled(t)
			before := p.inbox.now().Generation
			j.lost(t, e)
			require.ErrorIs(t, p.inbox.takenOver(t.Context(), store.Token{}, nil), decide.ErrInboxReplaced)
			require.NoError(t, p.inbox.open(t.Context(), nil))
			require.Equal(t, max(before, e.Generation)+1, p.inbox.now().Generation)
			p.agrees(t)
			h, err := p.store.History(t.Context())
			require.NoError(t, err)
			require.Equal(t, e.Revision, h.Void)
			require.NoError(t, j.read(t.Context()))
			require.Equal(t, h.Generation, j.generation, "it is noted")
			next, err := p.activates(t.Context(), "next")
			require.NoError(t, err)
			require.Equal(t, max(e.Revision, p.Revision())+1, next.Number)
			require.Equal(t, next.Number, j.lastRead(t), "it is noted")
			p.agrees(t)
		})
	}
}

// lastRead reads the journal again, from its beginning.
func (j *journal) lastRead(t *testing.T) int64 {
	again := &journal{logs: j.logs, topic: j.topic}
	require.NoError(t, again.read(t.Context()))
	return again.revision
}

// I2: an entry that comes between the opening of the inbox and the takeover is read.
func TestTheJournalIsReadAfterTheTakeover(t *testing.T) {
	p, j := journaled(t)
	before := p.inbox.now().Generation
	j.lost(t, journalEntry{Revision: 5})
	deciding, err := p.active.supervise(t.Context(), "work", true, p.work.start)
	require.NoError(t, err)
	require.Eventually(t, func() bool { return p.inbox.now().Generation > before }, 30*time.Second, 10*time.Millisecond)
	require.NoError(t, deciding.stop())
}

// I2: a topic that was re-created shows no loss of the store.
func TestAJournalThatWasMadeAgainBeginsAGeneration(t *testing.T) {
	p, _ := journaled(t)
	before := p.inbox.now().Generation
	p.inbox.journal = newJournal(t)
	require.ErrorIs(t, p.inbox.takenOver(t.Context(), store.Token{}, nil), decide.ErrInboxReplaced)
	require.NoError(t, p.inbox.open(t.Context(), nil))
	require.Greater(t, p.inbox.now().Generation, before)
	p.agrees(t)
}

// I5: the generation of another topic, as while a new configuration is rolled out, is none
// that the store lost.
func TestTheGenerationOfAnotherTopicIsNotOvertaken(t *testing.T) {
	p, j := journaled(t)
	inbox := p.inbox.now()
	later, err := p.store.ResolveInbox(t.Context(), "another", "topic", 1, j.noteGeneration(t.Context(), 0, true))
	require.NoError(t, err)
	require.Greater(t, later.Generation, inbox.Generation)
	require.NoError(t, j.read(t.Context()))
	require.Equal(t, later.Generation, j.generation)
	require.NoError(t, p.inbox.open(t.Context(), nil))
	require.Equal(t, inbox, p.inbox.now())
	p.agrees(t)
}

// uncommitted is a store that fails at the commit of an activation.
type uncommitted struct{ revisions }

func (u uncommitted) Activate(ctx context.Context, fingerprint []byte, force bool, inbox store.Inbox, note store.Note) (store.Revision, error) {
	return u.revisions.Activate(ctx, fingerprint, force, inbox, func(h store.History) (store.Noted, error) {
		_, err := note(h)
		return store.Noted{}, errors.Join(errors.New("at the commit"), err)
	})
}

// I2: an activation is noted before its commit. One that was not committed may have been, and
// lost since.
func TestAnActivationIsNotedBeforeItsCommit(t *testing.T) {
	p, j := journaled(t)
	s := p.active.store
	p.active.store = uncommitted{s}
	_, err := p.activates(t.Context(), "next")
	require.ErrorContains(t, err, "at the commit")
	require.Equal(t, p.Revision()+1, j.lastRead(t))
	require.ErrorIs(t, p.inbox.takenOver(t.Context(), store.Token{}, nil), decide.ErrInboxReplaced)
	p.active.store = s
	next, err := p.activates(t.Context(), "next")
	require.NoError(t, err)
	require.Equal(t, p.Revision()+2, next.Number)
}

// doubtful is a store in doubt.
type doubtful struct{ revisions }

func (d doubtful) Activate(ctx context.Context, fingerprint []byte, force bool, inbox store.Inbox, note store.Note) (store.Revision, error) {
	return d.revisions.Activate(ctx, fingerprint, force, inbox, func(h store.History) (store.Noted, error) {
		h.Doubt = true
		return note(h)
	})
}

// I2: an activation in doubt waits, and begins a generation when it waits no longer, or when the
// store lost more.
func TestAnActivationInDoubt(t *testing.T) {
	p, j := journaled(t)
	before := p.inbox.now()
	p.active.store = doubtful{p.active.store}
	_, err := p.activates(t.Context(), "next")
	require.ErrorIs(t, err, errDoubt)
	require.Zero(t, j.lastRead(t), "nothing is noted")
	next, err := p.active.activate(t.Context(), []byte("next"), false, false)
	require.NoError(t, err)
	require.NoError(t, p.inbox.open(t.Context(), nil))
	require.Equal(t, before.Generation+1, p.inbox.now().Generation)
	require.NoError(t, j.read(t.Context()))
	require.Equal(t, p.inbox.now().Generation, j.generation)
	p.agrees(t)

	j.lost(t, journalEntry{Revision: next.Number + 3})
	latest, err := p.activates(t.Context(), "latest")
	require.NoError(t, err, "a generation begins anyway")
	require.Equal(t, next.Number+4, latest.Number)
	require.NoError(t, p.inbox.open(t.Context(), nil))
	require.Equal(t, before.Generation+2, p.inbox.now().Generation)
	p.agrees(t)
}

// I2: doubt is awaited for a bounded time.
func TestDoubtIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		require.NoError(t, new(activation).settled(t.Context(), func(patient bool) error {
			require.Equal(t, time.Since(began) < doubtPatience, patient)
			if patient {
				return errDoubt
			}
			return nil
		}))
		require.Equal(t, doubtPatience, time.Since(began))
	})
}

// ending notes what doubts end at.
type ending struct {
	assemble.Store
	ends map[store.Partition]int64
}

func (e *ending) EndDoubt(_ context.Context, _ store.Token, ends map[store.Partition]int64) error {
	e.ends = ends
	return nil
}

// I2: a partition's doubt ends where its inbox ended after the takeover.
func TestDoubtEndsAtTheEndOfTheInbox(t *testing.T) {
	p, _ := journaled(t)
	s := &ending{Store: p.store}
	p.inbox.store = s
	topic, at := p.inbox.now().Topic, store.Partition{Generation: p.inbox.now().Generation}
	require.NoError(t, p.logs.Append(t.Context(), []transport.Record{{Topic: topic, Pinned: true, Value: []byte("1")}, {Topic: topic, Pinned: true, Value: []byte("2")}}))
	require.NoError(t, p.inbox.takenOver(t.Context(), store.Token{}, []store.TakenOver{{Partition: at}}))
	require.Empty(t, s.ends)
	require.NoError(t, p.inbox.takenOver(t.Context(), store.Token{}, []store.TakenOver{{Partition: at, Doubt: true}}))
	require.Equal(t, map[store.Partition]int64{at: 2}, s.ends)
}

// I1, I2: after a reload in doubt the stage decides in the generation that it began.
func TestAReloadInDoubt(t *testing.T) {
	p, j := journaled(t)
	now, before := p.active.now.Load(), p.inbox.now()
	deciding, err := p.active.supervise(t.Context(), "work", true, p.work.start)
	require.NoError(t, err)
	<-now.deciding
	require.Eventually(t, func() bool { return len(p.work.decider.Load().Decided()) > 0 }, 30*time.Second, 10*time.Millisecond)
	p.active.store = doubtful{p.active.store}
	j.lost(t, journalEntry{Revision: p.Revision() + 1}) // it waits for nothing
	plan := *now.plan
	next := newSettings(p.cfg, &plan, []byte("another"))
	require.NoError(t, p.active.switchTo(t.Context(), next, false))
	<-next.deciding
	require.Equal(t, before.Generation+1, p.inbox.now().Generation)
	require.NoError(t, deciding.stop())
}
