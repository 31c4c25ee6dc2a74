package deliver

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/store"
)

// A frame whose predecessor is not the last that was handed out may follow a gap. The
// missing changes may be in the outbox, or later in the log: a frame of a future that the
// store lost may precede the one that was decided in its place. Otherwise they are lost:
// the follower passes them, and the services concerned need a repair; see repair.go.

const (
	tickPeriod  = 2 * time.Second
	tokenPeriod = 10 * time.Second
)

// follower takes frames in the order of a partition's log: it is the tail, which feeds
// every live service, or one service that is behind.
type follower struct {
	s *Stage
	p *partition
	c *cursor // nil: the tail
	// was is where c was when the work began. Once c has moved, what the work finds is no
	// longer for it.
	was *feed
}

// feed is where the follower is. The caller of it and of the other methods holds
// the stage's mutex.
func (l follower) feed() *feed {
	if l.c == nil {
		return &l.p.feed
	}
	return &l.c.feed
}

// valid reports whether the follower is where it was when the work for it began.
func (l follower) valid() bool {
	return !l.p.gone && (l.c == nil || !l.c.live && l.c.feed == *l.was)
}

// move sets where the follower is without handing anything out.
func (l follower) move(to feed) {
	*l.feed() = to
	l.moved()
}

func (l follower) moved() {
	if l.c != nil {
		*l.was = l.c.feed
	}
	l.p.edits++
	l.p.poke()
	l.s.saver.poke()
}

// feedFromOutbox hands out what the outbox has after a feed, as if it stood at an offset
// of the log, as long as it follows, and reports whether there was anything. The log is
// then read from next. The caller does not hold the stage's mutex.
func (l follower) feedFromOutbox(ctx context.Context, from feed, offset, next int64) (found bool, err error) {
	frames, err := l.s.readOutbox(ctx, l.p, from, offset)
	if err != nil {
		return false, err
	}
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	for i := range frames {
		f := &frames[i]
		if !l.valid() || l.feed().judge(f.Frame) != follows {
			break
		}
		if l.c == nil {
			l.s.feedLive(l.p, f)
		} else {
			l.s.enqueueBehind(l.c, f)
		}
		l.feed().next = next
		l.moved()
	}
	return len(frames) > 0, nil
}

// affected returns the position of a service, and whether what is gone before the
// follower was for it.
func (l follower) affected(c *cursor) (change.Version, bool) {
	if l.c != nil {
		return max(c.feed.fed, c.floor), c == l.c
	}
	return max(l.p.feed.fed, c.feed.fed, c.floor), c.live
}

// bridge finds what is missing between a follower's position and a frame. over reports
// that the frame itself is to be skipped.
func (s *Stage) bridge(ctx context.Context, l follower, from feed, f *logged) (over bool, err error) {
	if found, err := l.feedFromOutbox(ctx, from, f.offset, f.offset); found || err != nil {
		return false, err
	}
	over, err = s.logContinues(ctx, l.p, from, f.offset+1)
	if err == nil && !over {
		over, err = s.storeRewound(ctx, l.p, f.To)
	}
	if err != nil {
		return false, err
	}
	if !over {
		l.passLost(f.Prev, f.offset)
		return false, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.valid() {
		to := *l.feed()
		to.next = f.offset + 1
		l.move(to)
	}
	return true, nil
}

// bridgeEnd moves a follower that has read all of a log, which ends at end, to the
// position that it should have reached: from the outbox, or else past lost changes.
func (s *Stage) bridgeEnd(ctx context.Context, l follower, from feed, to change.Version, end int64) error {
	if found, err := l.feedFromOutbox(ctx, from, max(0, end-1), end); found || err != nil {
		return err
	}
	// What left the outbox before that look stands in the log.
	_, now, err := s.opt.Log.Offsets(ctx, l.p.number)
	if now != end || err != nil {
		return err
	}
	rewound, err := s.storeRewound(ctx, l.p, to)
	if !rewound && err == nil {
		l.passLost(to, end)
	}
	return err
}

// storeRewound reports whether the store no longer knows the decisions up to a position
// of a partition: it was restored meanwhile, and what the log and the outbox lack is
// decided again.
func (s *Stage) storeRewound(ctx context.Context, p *partition, to change.Version) (rewound bool, err error) {
	err = s.retryUntil(ctx, p.ctx, "read how far decisions are", func() error {
		look, err := s.looks.look(ctx)
		if err == nil {
			rewound = look.Marks[p.number].LastTo < to
		}
		return err
	})
	return rewound, err
}

// readOutbox returns the frames of the outbox that continue a feed, up to the end of a
// position, as if they stood at an offset of the log; none if it has none. Of a position
// that was cut, the first parts may have left it, if the feed has them. What is in the
// outbox was decided, since it is in the same store.
func (s *Stage) readOutbox(ctx context.Context, p *partition, from feed, offset int64) ([]logged, error) {
	var rows [][]byte
	if err := s.retryUntil(ctx, p.ctx, "read the outbox", func() (err error) {
		rows, err = s.opt.Store.Outbox(ctx, p.number)
		return err
	}); err != nil {
		return nil, err
	}
	var found []logged
	for _, row := range rows {
		f, err := change.ParseFrame(row)
		if err != nil {
			return nil, store.WithClass(err, store.Fatal)
		}
		if from.judge(f) != follows {
			continue
		}
		from.pass(f, offset)
		found = append(found, logged{Frame: f, offset: offset, redelivered: true, counts: true})
		if f.Last {
			return found, nil
		}
	}
	return nil, nil
}

// logContinues reports whether the log has, from a record on, a frame that counts and
// continues a feed.
func (s *Stage) logContinues(ctx context.Context, p *partition, at feed, from int64) (bool, error) {
	var start, end int64
	if err := s.retryUntil(ctx, p.ctx, "read the offsets of the changes log", func() (err error) {
		start, end, err = s.opt.Log.Offsets(ctx, p.number)
		return err
	}); err != nil {
		return false, err
	}
	if from = max(from, start); from >= end {
		return false, nil
	}
	reader := s.opt.Log.NewReader()
	defer reader.Close()
	for from < end {
		within, cancel := context.WithTimeout(ctx, readPatience)
		records, err := reader.Read(within, p.number, from)
		cancel()
		if err != nil {
			return false, err // there are records: a log that is slow is no gap
		}
		frames, err := s.readFrames(ctx, p, records, true)
		if err != nil {
			return false, err
		}
		for i := range frames {
			if f := &frames[i]; f.counts && at.judge(f.Frame) == follows {
				return true, nil
			}
		}
		from = records[len(records)-1].Offset + 1
	}
	return false, nil
}

// tick checks periodically whether logs end too early, and whether the partitions are
// still this process's although nothing moves.
func (s *Stage) tick() {
	tokens := time.Now()
	for wait.Sleep(s.ctx, tickPeriod) {
		if err := s.checkEnds(s.ctx); err != nil && s.ctx.Err() == nil {
			s.log.Debug("cannot compare the changes log with the store", "error", err)
		}
		if time.Since(tokens) > tokenPeriod {
			tokens = time.Now()
			s.checkTokens(s.ctx)
		}
	}
}

// checkEnds finds partitions whose log ends below the last frame that was decided and
// published: no later frame would show that. Each is checked in a goroutine of its own,
// since its log may not answer.
func (s *Stage) checkEnds(ctx context.Context) error {
	look, err := s.looks.look(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.parts {
		to := look.Marks[p.number].LastTo
		if p.gone || p.checking || p.feed.fed >= to {
			continue
		}
		p.checking = true
		s.running.Go(func() {
			err := s.checkEnd(p.ctx, p, to)
			s.mu.Lock()
			p.checking = false
			s.mu.Unlock()
			if err != nil && p.ctx.Err() == nil {
				s.log.Debug("cannot compare a partition of the changes log with the store", "partition", p.number, "error", err)
			}
		})
	}
	return nil
}

// checkEnd moves the tail of a partition to a position, if the log ends before it.
func (s *Stage) checkEnd(ctx context.Context, p *partition, to change.Version) error {
	// In this order: what left the outbox stands in the log.
	rows, err := s.opt.Store.Outbox(ctx, p.number)
	if err != nil {
		return err
	}
	start, end, err := s.opt.Log.Offsets(ctx, p.number)
	if err != nil {
		return err
	}
	s.mu.Lock()
	at := p.feed
	ended := !p.gone && at.fed < to && at.from(start, end) >= end
	if len(rows) > 0 {
		// Their owner publishes them, and nothing is gone. But a restored outbox may
		// hold what was published long ago, into a log that no longer has it: if the feed
		// has not moved since the last tick, that is handed out from the outbox, and what
		// lies before it is gone.
		ended = ended && p.stuck != nil && *p.stuck == at.fed
		p.stuck = &at.fed
	}
	s.mu.Unlock()
	if !ended {
		return nil
	}
	if len(rows) > 0 {
		if to, err = at.before(rows); err != nil {
			return err
		}
	}
	return s.bridgeEnd(ctx, follower{s: s, p: p}, at, to, end)
}

// before returns the position that a feed has to reach before the first outbox frame
// that it lacks can follow.
func (f *feed) before(outbox [][]byte) (change.Version, error) {
	for _, row := range outbox {
		of, err := change.ParseFrameHeader(row)
		if err != nil {
			return 0, store.WithClass(err, store.Fatal)
		}
		switch {
		case of.To <= f.fed:
		case of.Part > 0 && f.judge(of) != follows:
			return of.To, nil // its first parts are gone
		default:
			return of.Prev, nil
		}
	}
	return 0, nil
}

// checkTokens finds partitions that another process took over unnoticed.
func (s *Stage) checkTokens(ctx context.Context) {
	select {
	case s.saver.sem <- struct{}{}:
	case <-ctx.Done():
		return
	}
	s.mu.Lock()
	parts := slices.Collect(maps.Values(s.parts)) // the rows need not have what comes after this
	s.mu.Unlock()
	rows, err := s.opt.Store.AllProgress(ctx)
	var lost []*partition
	if err == nil {
		s.mu.Lock()
		resolveSwaps(rows, parts)
		for _, p := range parts {
			if !p.gone && !slices.ContainsFunc(rows, func(r store.Progress) bool { return r.Partition == p.number && r.Token == p.token }) {
				lost = append(lost, p)
			}
		}
		s.mu.Unlock()
	}
	<-s.saver.sem
	s.onProgressLost(lost)
}
