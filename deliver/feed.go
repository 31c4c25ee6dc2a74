package deliver

import (
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver/core"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/store"
)

// HandOver takes a frame that was just committed. Frames of one partition come in their order. It does not block.
func (s *Stage) HandOver(f *store.Frame) {
	header, err := change.ParseFrameHeader(f.Body)
	s.step(func() {
		p := s.parts[f.Partition.Number]
		if p == nil {
			return
		}
		if p.unproven && !s.closed { // the commit shows that no other owner had begun to take over
			p.unproven = false
			takeover := p.takeovers
			s.running.Go(func() { p.findNew(takeover) })
		}
		if err == nil {
			p.recent.add(recentFrame{header.Prev, f.To, f.Body}, s.opt.Memory/recentShare/int64(len(s.parts)))
		}
		p.Ends(f.To)
	})
}

// Ends notes where the log of a partition ends in the store, which the decider has taken over again.
func (s *Stage) Ends(partition int32, to change.Version) {
	s.step(func() {
		if p := s.parts[partition]; p != nil {
			p.recent.drop(len(p.recent.frames))
			p.prove()
			p.Retaken(to)
		}
	})
}

// Subscriber returns the changes log as a router takes it: Handle gets its messages.
func (s *Stage) Subscriber() message.Subscriber { return s.subscription.Subscriber() }

// Handle is the router's handler: it returns nil when the frames of a message are handed to the services
// that can take them. Its error wraps store.ErrSuperseded if a newer configuration decided a frame;
// any other is of the store, a shutdown or a revocation.
func (s *Stage) Handle(msg *message.Message) error {
	received, ok := transport.FrameOf(msg)
	if !ok {
		return errors.New("deliver: a message without a frame")
	}
	s.mu.Lock()
	p := s.parts[received.Partition]
	s.mu.Unlock()
	if p == nil || received.Assignment != p.assignment {
		return errRevoked
	}
	for i := range received.Records {
		r := &received.Records[i]
		f, err := change.ParseFrame(r.Value)
		if err != nil {
			if err := p.malformed(msg.Context(), change.Version(r.Offset), r.Value, err); err != nil {
				return err
			}
			if f, err = change.ParseFrameHeader(r.Value); err == nil {
				s.step(func() { p.Look(f.Prev, f.To, f.To) })
			}
			continue
		}
		if revision := s.revision.Load(); f.Revision > revision {
			s.opt.Superseded()
			return fmt.Errorf("a frame of revision %d came to revision %d: %w", f.Revision, revision, store.ErrSuperseded)
		}
		s.step(func() {
			p.HandOut(&core.Frame{Frame: f, Redelivered: r.Redelivered})
			p.recent.forget(p.Passed())
		})
	}
	return nil
}
