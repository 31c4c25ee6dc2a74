package pipeline

import (
	"context"
	"log/slog"
	"testing"
	"time"

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
	ended := p.stages.inbox.now()
	_, err := p.store.TakeOver(t.Context(), []store.Partition{{Generation: ended.Generation}}, store.Token{1})
	require.NoError(t, err)
	_, err = p.store.RenewInbox(t.Context(), ended, 0, nil)
	require.NoError(t, err)
	deciding := p.stages.startDecide()
	for p.stages.inbox.now().Generation == ended.Generation {
		select {
		case err := <-deciding.failed:
			require.NoError(t, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
	require.NoError(t, deciding.stop())
}

// restored is a store and a changes log: the store was put back.
type restored struct {
	assemble.Opened
	logs
	decided int64 // the watermark of partition 0
	newest  change.Frame
}

func (r *restored) Watermarks(context.Context) (map[store.Partition]int64, error) {
	return map[store.Partition]int64{{Generation: r.newest.To.Generation()}: r.decided}, nil
}

func (r *restored) ReadLast(context.Context, string) ([]transport.Scanned, []int32, error) {
	return []transport.Scanned{{Received: transport.Received{Value: new(change.FrameBuilder).AppendTo(nil, r.newest)}}}, nil, nil
}

// I1: another configuration becomes active while what the store forgot is decided again
// under the one of before. The mistake that this catches: only the newest record of the
// changes log was looked at, behind which the rest of what had been decided stands.
func TestAnotherConfigurationInTheMiddleOfWhatIsDecidedAgain(t *testing.T) {
	p := openEmbedded(t, Roles{Decide: true}, fileSource)
	g := p.stages.inbox
	inbox := g.now()
	at := func(offset int64) change.Version { return change.NewVersion(inbox.Generation, offset) }
	r := &restored{Opened: p.store, logs: p.logs}
	g.process = &process{cfg: p.cfg, opt: p.opt, log: slog.New(slog.DiscardHandler), store: r, logs: r}
	g.active.store = r
	g.active.now.Store(p.active.now.Load())
	look := func(decided, newest int64) store.Inbox {
		r.decided, r.newest = decided, change.Frame{From: at(newest - 1), To: at(newest), Last: true, Revision: p.Revision()}
		found, err := g.renewForked(t.Context(), inbox)
		require.NoError(t, err)
		return found
	}
	require.Equal(t, inbox, look(100, 100))
	require.False(t, g.rewound())
	require.Equal(t, inbox, look(50, 100), "under the same configuration it becomes the same again")
	require.Equal(t, inbox, look(70, 70))
	require.True(t, g.rewound(), "71 to 100 are to come")

	next := newSettings(p.cfg, p.active.plan(), []byte("another"))
	require.NoError(t, g.active.switchTo(t.Context(), next, false))
	require.Greater(t, look(70, 70).Generation, inbox.Generation)
}
