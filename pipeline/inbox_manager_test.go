package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/seed-86dfc502/weir/assemble"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/transport"
	"github.com/stretchr/testify/require"
)

const fileSource = "sources: {in: {file: {path: in.jsonl}, entity: id}}"

// I8: a process that takes partitions over in a generation of the inbox which another
// process has just ended opens the new one. The mistake that this catches: the group
// failed by the decider's halt, and the process ended for the group's error.
func TestAGenerationThatAnotherProcessEndedIsLeft(t *testing.T) {
	p := openEmbedded(t, Roles{Decide: true}, fileSource)
	ended := p.inbox.now()
	_, err := p.store.TakeOver(t.Context(), []store.Partition{{Generation: ended.Generation}}, store.Token{1})
	require.NoError(t, err)
	_, err = p.store.RenewInbox(t.Context(), ended, 0, nil)
	require.NoError(t, err)
	deciding, err := p.active.supervise(t.Context(), "decide", true, p.decide.start)
	require.NoError(t, err)
	for p.inbox.now().Generation == ended.Generation {
		select {
		case err := <-deciding.failed:
			require.NoError(t, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	require.NoError(t, deciding.stop())
}

// anotherLog is one whose inbox has a thousand records, and whose changes end with this
// frame.
type anotherLog struct {
	assemble.Logs
	newest change.Frame
}

func (l *anotherLog) AvailableOffsets(context.Context, string) (starts, ends map[int32]int64, err error) {
	return map[int32]int64{0: 0}, map[int32]int64{0: 1000}, nil
}

func (l *anotherLog) ReadLast(context.Context, string) ([]transport.Scanned, []int32, error) {
	return []transport.Scanned{{Received: transport.Received{Value: new(change.FrameBuilder).AppendTo(nil, l.newest)}}}, nil, nil
}

// opener is a process that opens its inbox again and again: when it has decided up to
// watermark, and the changes log ends at newest.
func opener(t *testing.T, p *Pipeline, s assemble.Store) (opens func(watermark int64, newest change.Version) store.Inbox) {
	l := &anotherLog{Logs: p.logs}
	g := &inboxManager{inboxOptions: inboxOptions{cfg: p.cfg, log: slog.New(slog.DiscardHandler), store: s, logs: l, active: &activation{store: s}, sinks: p.sinks, lost: p.inbox.lost}}
	return func(watermark int64, newest change.Version) store.Inbox {
		inbox, err := s.KnownInbox(t.Context(), p.cfg.Kafka.Inbox.Topic, p.inbox.now().TopicID)
		require.NoError(t, err)
		marks, err := s.Watermarks(t.Context())
		require.NoError(t, err)
		partition, token := store.Partition{Generation: inbox.Generation}, store.Token(uuid.New())
		if from := marks[partition]; from < watermark {
			_, err := s.TakeOver(t.Context(), []store.Partition{partition}, token)
			require.NoError(t, err)
			_, err = s.Decide(t.Context(), store.Decision{Revision: p.Revision(), Moves: []store.WatermarkStep{{Partition: partition, From: from, To: watermark, Token: token}}},
				func(store.Loaded) (store.Outcome, error) { return store.Outcome{}, nil })
			require.NoError(t, err)
		}
		l.newest = change.Frame{From: newest - 1, To: newest, Last: true, Revision: 1}
		g.active.now.Store(p.active.now.Load())
		require.NoError(t, g.open(t.Context(), nil))
		return g.now()
	}
}

// forgetful is a store that is restored at once to before each note.
type forgetful struct{ assemble.Store }

func (f forgetful) NoteLostDecisions(ctx context.Context, generation uint16, seen []store.LostDecision) ([]store.LostDecision, error) {
	all, err := f.Store.NoteLostDecisions(ctx, generation, seen)
	if err == nil {
		_, err = f.Store.NoteLostDecisions(ctx, generation+1, nil) // which deletes them
	}
	return all, err
}

// I1: another configuration becomes active while lost decisions are repeated under the one of
// before. The mistake that this catches: only the newest record of the changes log was
// examined, not the earlier lost decisions.
func TestAnotherConfigurationInTheMiddleOfWhatIsDecidedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		again   int64
		putBack bool // a second time, with the note
	}{
		"restarted":         {again: 70},
		"put back again":    {again: 70, putBack: true},
		"after all of that": {again: 100},
	} {
		t.Run(name, func(t *testing.T) {
			p := openEmbedded(t, Roles{Decide: true}, fileSource)
			inbox := p.inbox.now()
			at := func(offset int64) change.Version { return change.NewVersion(inbox.Generation, offset) }
			s := p.store
			if c.putBack {
				s = forgetful{s}
			}
			opens := opener(t, p, s)
			require.Equal(t, inbox, opens(50, at(100)), "under the same configuration it becomes the same again")
			require.Equal(t, inbox, opens(c.again, at(c.again)))
			if !c.putBack { // the process that saw it goes on
				opens = opener(t, p, s)
			}
			require.NoError(t, p.active.switchTo(t.Context(), newSettings(p.cfg, p.active.plan(), []byte("another")), false))
			if found := opens(c.again, at(c.again)); c.again == 100 {
				require.Equal(t, inbox, found)
			} else {
				require.Greater(t, found.Generation, inbox.Generation)
			}
		})
	}
}

// I1: the same, and the other configuration is loaded by a process that did not see the
// store go back.
func TestAReloadInTheMiddleOfWhatIsDecidedAgain(t *testing.T) {
	p := openEmbedded(t, Roles{Decide: true}, fileSource)
	inbox, now := p.inbox.now(), p.active.now.Load()
	deciding, err := p.active.supervise(t.Context(), "decide", true, p.decide.start)
	require.NoError(t, err)
	<-now.deciding
	_, err = p.store.NoteLostDecisions(t.Context(), inbox.Generation, []store.LostDecision{{Partition: store.Partition{Generation: inbox.Generation}, To: 100, Revision: p.Revision()}})
	require.NoError(t, err)
	plan := *now.plan
	next := newSettings(p.cfg, &plan, []byte("another"))
	require.NoError(t, p.active.switchTo(t.Context(), next, false))
	<-next.deciding
	require.Greater(t, p.inbox.now().Generation, inbox.Generation)
	require.NoError(t, deciding.stop())
}

// I12: a reload changes the plan of the owner that runs: it is not made again, and takes no
// partition over again.
func TestAReloadKeepsTheOwner(t *testing.T) {
	p := openEmbedded(t, Roles{Decide: true}, fileSource)
	now := p.active.now.Load()
	deciding, err := p.active.supervise(t.Context(), "decide", true, p.decide.start)
	require.NoError(t, err)
	<-now.deciding
	owner := p.decide.running.Load()
	for range 3 {
		plan := *p.active.plan()
		next := newSettings(p.cfg, &plan, []byte(plan.Fingerprint))
		next.identity = append(next.identity, byte(plan.Revision))
		require.NoError(t, p.active.switchTo(t.Context(), next, false))
		<-next.deciding
		require.Same(t, owner, p.decide.running.Load())
	}
	require.NoError(t, deciding.stop())
}

// unnoting is a store that is away when something is to be noted.
type unnoting struct{ assemble.Store }

func (unnoting) NoteLostDecisions(context.Context, uint16, []store.LostDecision) ([]store.LostDecision, error) {
	return nil, errors.New("away")
}

// The mistake that this catches: an unreachable store cost the memory of its lost decisions.
func TestWhatTheStoreForgotIsRememberedWhileItIsAway(t *testing.T) {
	p := openEmbedded(t, Roles{Decide: true}, fileSource)
	at := store.Partition{Generation: p.inbox.now().Generation}
	forgotten := []store.LostDecision{{Partition: at, To: 100, Revision: 1}}
	l := &anotherLog{p.logs, change.Frame{From: change.NewVersion(at.Generation, 69), To: change.NewVersion(at.Generation, 70), Last: true, Revision: 1}}
	g := &inboxManager{inboxOptions: inboxOptions{cfg: p.cfg, log: slog.New(slog.DiscardHandler), store: unnoting{p.store}, logs: l, active: p.active}, forgotten: forgotten}
	require.ErrorContains(t, g.open(t.Context(), nil), "away")
	require.Equal(t, forgotten, g.forgotten)
}

// I1, I5: the store is restored to before a generation began. The mistake that this
// catches: it continued with the one of before, whose versions are below those that
// targets have.
func TestAStorePutBackToBeforeAGeneration(t *testing.T) {
	p := openEmbedded(t, Roles{Decide: true}, fileSource)
	known := p.inbox.now().Generation
	opens, lost := opener(t, p, p.store), change.NewVersion(known+1, 60)
	found := opens(50, lost)
	require.Equal(t, known+2, found.Generation)
	require.Equal(t, found, opens(0, lost), "once is enough")
}

// I5: a process whose inbox was replaced by another topic leaves that one's generation
// alone, as while a new configuration is rolled out.
func TestTheGenerationOfAnotherTopicIsNotOvertaken(t *testing.T) {
	p := openEmbedded(t, Roles{Decide: true}, fileSource)
	inbox := p.inbox.now()
	later, err := p.store.ResolveInbox(t.Context(), "another", "topic", 1, 1)
	require.NoError(t, err)
	require.Equal(t, inbox, opener(t, p, p.store)(50, change.NewVersion(later.Generation, 60)))
}
