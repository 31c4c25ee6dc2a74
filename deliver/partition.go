package deliver

import (
	"context"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver/core"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/transport"
)

// partition is one assigned partition. The stage's mutex guards the core.Partition and recent.
type partition struct {
	*core.Partition
	s          *Stage
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
	p := &partition{s: s, Partition: s.flow.Assign(row), assignment: transport.NextAssignment(), wakeUp: make(chan struct{}, 1)}
	p.prove()
	p.ctx, p.cancel = context.WithCancel(s.ctx)
	s.parts[p.Number] = p
	s.restoreRows(p, row.Retrying)
	return p
}

// findNew reads the end of a partition's inbox, after a decision that followed a takeover: until then
// another process that had begun to take over may decide, and deliver from its memory.
func (p *partition) findNew(takeover int) {
	var end change.Version
	if err := p.s.retryUntil(p.ctx, p.ctx, "read the end of the inbox", func() (err error) {
		end, err = p.s.opt.InboxEnd(p.ctx, p.Number)
		return err
	}); err == nil {
		p.s.step(func() {
			if p.takeovers == takeover {
				p.NewFrom = end
			}
		})
	}
}

// restoreRows hands the rows of a partition to its services; the rows of a service that is not
// configured become letters. Part of step.
func (s *Stage) restoreRows(p *partition, rows []store.DeadLetter) {
	by := map[string][]store.DeadLetter{}
	for i := range rows {
		by[rows[i].Service] = append(by[rows[i].Service], rows[i])
	}
	for _, w := range s.workers {
		of := by[w.opt.Name]
		delete(by, w.opt.Name)
		w.arrived = append(w.arrived, arrival{p.Partition, restored(p.Partition, of)})
		w.parked += len(of)
		if len(of) > 0 {
			wait.Offer(w.wakeUp, struct{}{})
		}
	}
	for _, of := range by {
		for _, l := range of {
			abandon(p.Partition, l, l.DedupKey)
		}
	}
}
