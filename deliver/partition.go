package deliver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver/core"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/store"
)

const (
	// pageBytes and pageFrames bound what one message has of the log.
	pageBytes, pageFrames = 1 << 20, 32
	// feedTick is how often a partition is looked at without a signal.
	feedTick = time.Second
	// recentShare is the part of the memory for frames that were just decided.
	recentShare = 4
)

// recent are the newest frames of a partition, as they were decided. Dropping some costs a read of the
// store.
type recent struct {
	frames []recentFrame // each follows the one before it
	bytes  int64
}

type recentFrame struct {
	prev, to change.Version
	body     []byte
}

// add adds a frame and drops the oldest beyond a bound.
func (r *recent) add(f recentFrame, most int64) {
	if n := len(r.frames); n > 0 && f.prev != r.frames[n-1].to {
		r.drop(n)
	}
	r.frames, r.bytes = append(r.frames, f), r.bytes+int64(len(f.body))
	for r.bytes > most && len(r.frames) > 1 {
		r.drop(1)
	}
}

// drop drops the oldest frames.
func (r *recent) drop(n int) {
	for i := range r.frames[:n] {
		r.bytes -= int64(len(r.frames[i].body))
		r.frames[i] = recentFrame{}
	}
	r.frames = r.frames[n:]
}

// forget drops the frames that end at or below a position.
func (r *recent) forget(below change.Version) {
	n := 0
	for n < len(r.frames) && r.frames[n].to <= below {
		n++
	}
	r.drop(n)
}

// from returns frames that follow a position.
func (r *recent) from(after change.Version) (frames []transport.Received) {
	size := 0
	for i := range r.frames {
		f := &r.frames[i]
		if len(frames) == 0 && f.prev > after {
			return nil
		}
		if f.to <= after {
			continue
		}
		if size += len(f.body); len(frames) > 0 && size > pageBytes || len(frames) == pageFrames {
			break
		}
		frames = append(frames, transport.Received{Value: f.body, Offset: int64(f.to)})
	}
	return frames
}

// partition is one assigned partition. The stage's mutex guards the core.Partition and recent.
type partition struct {
	*core.Partition
	s          *shared
	recent     recent
	assignment uint64 // of its messages: unique in the process
	lost       func() // the store has its progress under another token; part of step
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

// feed hands the log of a partition out until it is revoked, one message at a time: from memory where
// that has it, else from the store.
func (p *partition) feed(subscribed <-chan struct{}, subscription *transport.Subscription) {
	s := p.s
	select {
	case <-subscribed:
	case <-p.ctx.Done():
		return
	}
	lane, ok := subscription.Join()
	if !ok {
		return
	}
	defer lane.Leave()
	ctx, cancel := context.WithCancel(lane.Context())
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	for ctx.Err() == nil && lane.Stopping().Err() == nil {
		var after, end change.Version
		var records []transport.Received
		found, bytes := false, pageBytes
		s.step(func() {
			end = p.End()
			if after, found = p.Next(); found && p.Looked() {
				records = p.recent.from(after)
			}
			if p.Few(after) {
				bytes = 1
			}
		})
		if !found {
			select {
			case <-p.wakeUp:
			case <-time.After(feedTick):
			case <-lane.Stopping().Done():
			case <-ctx.Done():
			}
			continue
		}
		if len(records) == 0 {
			var err error
			if records, err = p.look(ctx, after, end, bytes); err != nil {
				if ctx.Err() == nil && !errors.Is(err, errRevoked) {
					s.log.Debug("the log cannot be read; retrying", "event", "delivery.log_unread", "partition", p.Number, "error", err)
				}
				wait.Sleep(ctx, 200*time.Millisecond)
				continue
			}
		}
		if len(records) > 0 && !lane.HandOut(ctx, transport.NewFrame(s.opt.Feed.Topic, "", p.Number, p.assignment, records)) {
			return
		}
	}
}

// look reads a page of the log in the store behind a position, where it is known to end at end or later. What
// it has not is lost.
func (p *partition) look(ctx context.Context, after, end change.Version, bytes int) ([]transport.Received, error) {
	s := p.s
	tail, err := s.opt.Store.Frames(ctx, p.Number, after, bytes)
	if err != nil {
		return nil, err
	}
	if err := p.checkOwner(tail.Owner); err != nil {
		return nil, err
	}
	if tail.LastTo < end {
		return nil, errWentBack // its decider takes over again, or the next swap fails
	}
	from := tail.LastTo // of the first frame
	if len(tail.Frames) > 0 {
		first := tail.Frames[0]
		header, err := change.ParseFrameHeader(first.Body)
		if err == nil {
			from = header.Prev
		} else {
			from, tail.Frames = first.To, nil
			if err := p.malformed(ctx, from, first.Body, err); err != nil {
				return nil, err
			}
		}
	}
	s.step(func() { p.Look(after, from, tail.LastTo) })
	records := make([]transport.Received, len(tail.Frames))
	for i, f := range tail.Frames {
		records[i] = transport.Received{Value: f.Body, Offset: int64(f.To), Redelivered: true}
	}
	return records, nil
}

// checkOwner compares the owner of a partition in the store, as of the moment when changes were read.
// Without that a former owner could write a change that came after the takeover: see attempt.leaveKnown.
func (p *partition) checkOwner(owner store.Token) error {
	err := errRevoked
	p.s.step(func() {
		switch {
		case p.Owned(owner):
			err = nil
		case !p.Revoked():
			p.lost()
		}
	})
	return err
}

// malformed stores the dead letter of a frame that cannot be read; it retries until the stage ends.
func (p *partition) malformed(ctx context.Context, to change.Version, body []byte, err error) error {
	p.s.opt.Metrics.malformed.Inc()
	l := unreadable(p.Number, to, fmt.Sprintf("changes/%d/%s", p.Number, to), err)
	l.Payload = body
	return p.s.addLetters(ctx, p.s.ctx, []store.DeadLetter{l})
}
