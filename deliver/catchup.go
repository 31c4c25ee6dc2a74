package deliver

import (
	"context"
	"errors"
	"time"

	"github.com/seed-86dfc502/weir/internal/wait"
)

const (
	// joinPatience is how long the tail waits at most for a service that is nearly live.
	joinPatience = 2 * time.Second
	// readPatience is how long a read of what should be there may take.
	readPatience = 2 * time.Second
	// behindTick is how often services that are behind are checked without a wake-up.
	behindTick = time.Second
)

// catchUp is the one reader of a partition for all services that are behind in it.
// It reads for those that have budget left and a sink that answers, the lowest position
// first, feeds every service whose position the frames continue, and jumps on when
// none of those has budget left. It ends with the partition.
func (s *Stage) catchUp(p *partition) {
	ctx := p.ctx
	var reader Reader
	defer func() {
		if reader != nil {
			reader.Close()
		}
	}()
	for ctx.Err() == nil {
		c, was := s.lowest(p)
		if c == nil {
			if reader != nil {
				reader.Close() // no service is behind, or none can take anything: hold no connection
				reader = nil
			}
			select {
			case <-p.wakeUp:
			case <-time.After(behindTick):
			case <-ctx.Done():
			}
			continue
		}
		if reader == nil {
			reader = s.opt.Log.NewReader()
		}
		within, cancel := context.WithTimeout(ctx, readPatience)
		records, err := reader.Read(within, p.number, was.next)
		cancel()
		if err == nil {
			var frames []logged
			if frames, err = s.readFrames(ctx, p, records, true); err == nil {
				err = s.feedBehind(ctx, p, c, was, frames, records[len(records)-1].Offset+1)
			}
		} else if ctx.Err() == nil {
			err = errors.Join(err, s.restartFeed(ctx, c))
		}
		if err != nil && ctx.Err() == nil {
			s.log.Debug("catching up is interrupted", "partition", p.number, "error", err)
			wait.Sleep(ctx, 200*time.Millisecond)
		}
	}
}

// lowest returns the service that is farthest behind of those that can take changes, and
// where it is; nil if there is none. Services that have caught up become live.
func (s *Stage) lowest(p *partition) (*cursor, feed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.gone {
		return nil, feed{}
	}
	var low *cursor
	joined, joining := false, false
	for _, c := range p.cursors {
		if c.live {
			continue
		}
		if c.feed.reaches(&p.feed) {
			c.live, joined = true, true
			c.floor = max(c.floor, c.position().Version)
			c.w.log.Info("caught up", "event", "delivery.caught_up", "partition", p.number)
			p.edits++
			continue
		}
		if !c.canTake() {
			continue
		}
		if p.feed.next-c.feed.next <= nearby/4 {
			joining = true
		}
		if low == nil || c.feed.offset() < low.feed.offset() {
			low = c
		}
	}
	if joining && !p.joining {
		p.joining = true
		time.AfterFunc(joinPatience, func() { s.endJoin(p) })
	} else if !joining && p.joining || joined {
		p.joining = joining
		s.wake()
	}
	if joined {
		s.saver.poke()
	}
	if low == nil {
		return nil, feed{}
	}
	return low, low.feed
}

func (s *Stage) endJoin(p *partition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.joining = false
	s.wake()
}

// canTake reports whether more may be read for a service that is behind. One whose
// sink fails takes what it can try. The caller holds the stage's mutex.
func (c *cursor) canTake() bool {
	if c.w.removed {
		return false
	}
	if c.w.failing() {
		return !c.w.full && len(c.w.queue) == 0 && c.w.held < c.w.mayHold()
	}
	return c.w.held < c.w.s.share()
}

// feedBehind hands frames to the services that are behind: to c, for which they were
// read, and to others whose position they continue. If c falls back meanwhile, they no
// longer continue its position, and are read again.
func (s *Stage) feedBehind(ctx context.Context, p *partition, c *cursor, was feed, frames []logged, end int64) error {
	for i := range frames {
		f := &frames[i]
		if f.counts {
			if err := s.openFrame(ctx, p, f); err != nil {
				return err
			}
		}
		for {
			s.mu.Lock()
			if p.gone {
				s.mu.Unlock()
				return errRevoked
			}
			if c.live || c.feed != was {
				s.mu.Unlock()
				return nil
			}
			missing := s.offerBehind(c, f)
			was = c.feed
			full := c.live || !c.canTake() && c.feed.next > f.offset
			s.mu.Unlock()
			if missing {
				over, err := s.bridge(ctx, follower{s: s, p: p, c: c, was: &was}, was, f)
				if err != nil {
					return err
				}
				if !over {
					continue
				}
			}
			if full {
				s.saver.poke()
				return nil
			}
			break
		}
	}
	s.mu.Lock()
	if !c.live && c.feed == was && c.feed.part == 0 {
		c.feed.next = max(c.feed.next, end) // behind records that are no frames
	}
	p.edits++
	s.mu.Unlock()
	s.saver.poke()
	return nil
}

// offerBehind hands a frame to c, and to the other services that are behind and have read
// exactly up to it, where it continues their position, and reports whether c has a gap
// before it. A service that has not read what precedes it does not get a later copy of a
// frame instead: what follows its first copy would seem gone. The caller
// holds s.mu.
func (s *Stage) offerBehind(c *cursor, f *logged) (missing bool) {
	for _, o := range c.p.cursors {
		if o.live || o != c && o.feed.next != f.offset || f.offset < o.feed.offset() {
			continue
		}
		v := repeated
		if f.counts {
			v = o.feed.judge(f.Frame)
		}
		switch {
		case v == gap:
			missing = missing || o == c
		case v == repeated:
			o.feed.next = f.offset + 1
		case o == c || o.canTake():
			s.enqueueBehind(o, f)
		}
	}
	return missing
}

// enqueueBehind hands a frame that follows to one service. The caller holds s.mu.
func (s *Stage) enqueueBehind(c *cursor, f *logged) {
	start, fed := c.feed.pass(f.Frame, f.offset)
	for i := range f.Slices {
		if f.Slices[i].Service == c.w.opt.Number {
			s.enqueue(c, f, f.Slices[i], start, fed)
		}
	}
}

// restartFeed is called when nothing can be read at a position although the tail is
// farther: what was skipped there counts now, or the log was replaced, or what is missing
// is no longer in it.
func (s *Stage) restartFeed(ctx context.Context, c *cursor) error {
	p := c.p
	s.mu.Lock()
	// All of it stands in the outbox, or has been in the log.
	to := p.feed.border()
	s.mu.Unlock()
	start, end, err := s.opt.Log.Offsets(ctx, p.number)
	if err != nil {
		return err
	}
	s.mu.Lock()
	if c.live || p.gone {
		s.mu.Unlock()
		return nil
	}
	was := c.feed
	if start < end && was.next < end {
		// There are records: it continues at what is certainly not done.
		next := was.offset()
		if n := len(c.pending); n > 0 {
			next = c.pending[n-1].record
		}
		c.feed = feed{fed: was.fed, next: next}
		s.mu.Unlock()
		return nil
	}
	s.mu.Unlock()
	l := follower{s: s, p: p, c: c, was: &was}
	if found, err := s.logContinues(ctx, p, feed{fed: was.fed}, start); !found || err != nil {
		return errors.Join(err, s.bridgeEnd(ctx, l, was, to, end))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.valid() {
		l.move(feed{fed: was.fed, next: start})
	}
	return nil
}
