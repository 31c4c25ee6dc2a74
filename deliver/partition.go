package deliver

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver/core"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/transport"
)

// partition is one assigned partition. The stage's mutex guards the core.Partition and recent.
type partition struct {
	*core.Partition
	recent     recent
	assignment uint64 // of its messages: unique in the process
	ctx        context.Context
	cancel     context.CancelFunc
	wakeUp     chan struct{} // capacity 1: the log may have changes for a lane
	unproven   bool          // NewFrom awaits a decision
	takeovers  int           // counts the reasons for another NewFrom
}

// prove begins a new NewFrom; part of step.
func (p *partition) prove() {
	p.unproven, p.NewFrom = true, 0
	p.takeovers++
}

// newPartition assigns a partition; part of step.
func (s *Stage) newPartition(row *store.Progress) *partition {
	p := &partition{Partition: s.flow.Assign(row), assignment: transport.NextAssignment(), wakeUp: make(chan struct{}, 1)}
	p.prove()
	p.ctx, p.cancel = context.WithCancel(s.ctx)
	s.parts[p.Number] = p
	s.restoreRows(p, row.Retrying)
	return p
}

func newToken() (t store.Token) {
	rand.Read(t[:])
	return t
}

// findNew reads the end of a partition's inbox, after a decision that followed a takeover: until then
// another process that had begun to take over may decide, and deliver from its memory.
func (s *Stage) findNew(p *partition, takeover int) {
	var end change.Version
	if err := s.retryUntil(p.ctx, p.ctx, "read the end of the inbox", func() (err error) {
		end, err = s.opt.InboxEnd(p.ctx, p.Number)
		return err
	}); err == nil {
		s.step(func() {
			if p.takeovers == takeover {
				p.NewFrom = end
			}
		})
	}
}

// addLetters stores dead letters, if there are any; it retries until stop ends.
func (s *Stage) addLetters(work, stop context.Context, letters []store.DeadLetter) error {
	if len(letters) == 0 {
		return nil
	}
	return s.retryUntil(work, stop, "store dead letters", func() error { return s.opt.Store.AddLetters(work, letters) })
}

// malformed makes a dead letter of a frame that cannot be read.
func (s *Stage) malformed(partition int32, to change.Version, body []byte, err error) store.DeadLetter {
	s.opt.Metrics.malformed.Inc()
	return store.DeadLetter{
		Stage: store.StageDeliver, Code: "malformed", Reason: err.Error(), State: store.LetterOpen,
		Part: partition, Version: to, Payload: body, DedupKey: fmt.Sprintf("deliver/changes/%d/%s", partition, to),
	}
}
