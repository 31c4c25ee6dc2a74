package pipeline

import (
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
)

const fileSource = "sources: {in: {file: {path: in.jsonl}, entity: id}}"

// I8: a process that takes partitions over in a generation of the inbox which another
// process has just ended opens the new one. The mistake that this catches: the group
// failed by the decider's halt, and the process ended for the group's error.
func TestAGenerationThatAnotherProcessEndedIsLeft(t *testing.T) {
	p := openEmbedded(t, Roles{Work: true}, fileSource)
	ended := p.inbox.now()
	_, err := p.store.TakeOver(t.Context(), []store.Partition{{Generation: ended.Generation}}, store.Token{1})
	require.NoError(t, err)
	_, err = p.store.RenewInbox(t.Context(), ended, nil, nil)
	require.NoError(t, err)
	deciding, err := p.active.supervise(t.Context(), "work", true, p.work.start)
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

// I12: a reload changes the plan of the owner that runs: it is not made again, and takes no
// partition over again.
func TestAReloadKeepsTheOwner(t *testing.T) {
	p := openEmbedded(t, Roles{Work: true}, fileSource)
	now := p.active.now.Load()
	deciding, err := p.active.supervise(t.Context(), "work", true, p.work.start)
	require.NoError(t, err)
	<-now.deciding
	owner := p.work.decider.Load()
	for range 3 {
		plan := *p.active.plan()
		next := newSettings(p.cfg, &plan, []byte(plan.Fingerprint))
		next.identity = append(next.identity, byte(plan.Revision))
		require.NoError(t, p.active.switchTo(t.Context(), next, false))
		<-next.deciding
		require.Same(t, owner, p.work.decider.Load())
	}
	require.NoError(t, deciding.stop())
}
