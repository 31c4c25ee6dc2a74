package deliver

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver/core"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/transport"
)

// partition is one assigned partition of the changes log. The stage's mutex guards the
// core.Partition.
type partition struct {
	*core.Partition
	after    uint64 // only messages of assignments above it are of this takeover
	ctx      context.Context
	cancel   context.CancelFunc
	wakeUp   chan struct{} // capacity 1: the catch-up reader may have work
	checking bool          // guarded by the stage's mutex: a check for a log that ends too early is running
}

// newPartition assigns a partition; part of step.
func (s *Stage) newPartition(row *store.Progress, after uint64) *partition {
	p := &partition{Partition: s.flow.Assign(row), after: after, wakeUp: make(chan struct{}, 1)}
	p.ctx, p.cancel = context.WithCancel(s.ctx)
	s.parts[p.Number] = p
	s.restoreRows(p, row.Retrying)
	return p
}

func newToken() (t store.Token) {
	rand.Read(t[:])
	return t
}

// logged is one frame with its record, which is nil for a frame of the outbox.
type logged struct {
	core.Frame
	record *transport.Received
}

// readFrames parses records and sets for each frame whether it counts, by a look at the
// store made after it was read. A record that is no frame becomes a dead
// letter. The error wraps store.ErrSuperseded for a frame of a newer configuration.
func (s *Stage) readFrames(ctx context.Context, p *partition, records []transport.Received, catchUp bool) ([]logged, error) {
	frames := make([]logged, 0, len(records))
	var letters []store.DeadLetter
	for i := range records {
		r := &records[i]
		f, err := change.ParseFrameHeader(r.Value)
		if err != nil {
			letters = append(letters, s.malformed(p.Number, r, err))
			continue
		}
		frames = append(frames, logged{core.Frame{Frame: f, Offset: r.Offset, Redelivered: catchUp || r.Redelivered || r.HeaderBytes(change.RepublishedHeader) != nil}, r})
	}
	if err := s.addLetters(ctx, s.ctx, letters); err != nil {
		return nil, err
	}
	if len(frames) == 0 {
		return nil, nil
	}
	now, err := s.snapshotOf(ctx, p)
	if err != nil {
		return nil, err
	}
	for i := range frames {
		f := &frames[i]
		f.Counts = now.Counts(p.Number, f.Revision, f.From, f.To)
		if !f.Counts {
			s.log.Debug("skipped a frame that the store does not know", "event", "delivery.frame_unknown", "partition", p.Number, "offset", f.Offset)
			s.opt.Metrics.passedOver.Inc()
		} else if revision := s.revision.Load(); f.Revision > revision {
			s.opt.Superseded()
			return nil, fmt.Errorf("a frame of revision %d came to revision %d: %w", f.Revision, revision, store.ErrSuperseded)
		}
	}
	return frames, nil
}

// snapshot reads how far decisions are, after the call began; it retries until stop ends.
func (s *Stage) snapshot(ctx, stop context.Context) (now *store.HistorySnapshot, err error) {
	err = s.retryUntil(ctx, stop, "read how far decisions are", func() (err error) {
		now, err = s.snapshots.latest(ctx)
		return err
	})
	return now, err
}

// snapshotOf is snapshot for changes that were read before and are handed out after it. Without it a
// former owner could write a change that came after the takeover: see worker.leaveKnown. It
// returns errRevoked if the partition has another owner.
func (s *Stage) snapshotOf(ctx context.Context, p *partition) (now *store.HistorySnapshot, err error) {
	if now, err = s.snapshot(ctx, s.ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	owned, revoked := p.Owned(now.Owners[p.Number]), p.Revoked()
	s.mu.Unlock()
	switch {
	case owned:
		return now, nil
	case !revoked:
		s.onProgressLost([]*partition{p})
	}
	return nil, errRevoked
}

// findNew reads the end of a partition's inbox.
func (s *Stage) findNew(p *partition) {
	var end change.Version
	if err := s.retryUntil(p.ctx, p.ctx, "read the end of the inbox", func() (err error) {
		end, err = s.opt.InboxEnd(p.ctx, p.Number)
		return err
	}); err == nil {
		s.step(func() { p.NewFrom = end })
	}
}

// addLetters stores dead letters, if there are any; it retries until stop ends.
func (s *Stage) addLetters(work, stop context.Context, letters []store.DeadLetter) error {
	if len(letters) == 0 {
		return nil
	}
	return s.retryUntil(work, stop, "store dead letters", func() error { return s.opt.Store.AddLetters(work, letters) })
}

// openFrame makes the changes of a frame readable. A frame that cannot be read becomes a
// dead letter and no longer counts: the next frame shows the gap.
func (s *Stage) openFrame(ctx context.Context, p *partition, f *logged) error {
	err := f.Open()
	if err == nil {
		return nil
	}
	f.Counts = false
	return s.addLetters(ctx, s.ctx, []store.DeadLetter{s.malformed(p.Number, f.record, err)})
}

// malformed makes a dead letter of a record that is no frame.
func (s *Stage) malformed(partition int32, r *transport.Received, err error) store.DeadLetter {
	s.opt.Metrics.malformed.Inc()
	return store.DeadLetter{
		Stage: store.StageDeliver, Code: "malformed", Reason: err.Error(), State: store.LetterOpen,
		Part: partition, Offset: r.Offset, Payload: r.Value,
		DedupKey: fmt.Sprintf("deliver/changes/%d/%d/%d", partition, r.Offset, r.Time.UnixMilli()),
	}
}

// handOut hands a frame of the tail to every live service, as soon as the budget allows.
func (s *Stage) handOut(ctx context.Context, p *partition, f *logged) error {
	for {
		reply, revoked := core.Done, false
		var freed chan struct{}
		s.step(func() {
			if revoked = p.Revoked(); !revoked {
				freed, reply = s.released, p.Tail(&f.Frame, time.Now())
			}
		})
		switch {
		case revoked:
			return errRevoked
		case reply == core.Done:
			return nil
		case reply == core.Open:
			if err := s.openFrame(ctx, p, f); err != nil {
				return err
			}
		default:
			select {
			case <-freed:
			case <-time.After(capacityTick):
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-p.ctx.Done():
				return errRevoked
			}
		}
	}
}

// capacityTick is how often a waiting tail checks for a service that holds most of the budget.
const capacityTick = 100 * time.Millisecond
