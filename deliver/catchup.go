package deliver

import (
	"context"
	"errors"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver/core"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/store"
)

const (
	// readPatience is how long a read of records that should exist may take.
	readPatience = 2 * time.Second
	// catchUpTick is how often lagging services are checked without a wake-up.
	catchUpTick = time.Second
	tickPeriod  = 2 * time.Second
	tokenPeriod = 10 * time.Second
)

// catchUp is the one reader of a partition for all its lagging services. It reads for the
// lowest that has budget left and a sink that answers, and feeds every service that has read up
// to there. It ends with the partition.
func (s *Stage) catchUp(p *partition) {
	ctx := p.ctx
	var reader Reader
	defer func() {
		if reader != nil {
			reader.Close()
		}
	}()
	for ctx.Err() == nil {
		var at core.LogCursor
		found := false
		s.step(func() { at, found = p.Behind(time.Now()) })
		if !found {
			if reader != nil {
				reader.Close() // no service is lagging, or none can take anything: hold no connection
				reader = nil
			}
			select {
			case <-p.wakeUp:
			case <-time.After(catchUpTick):
			case <-ctx.Done():
			}
			continue
		}
		if reader == nil {
			reader = s.opt.Log.NewReader()
		}
		within, cancel := context.WithTimeout(ctx, readPatience)
		records, err := reader.Read(within, p.Number, at.Next)
		cancel()
		if err == nil {
			var frames []logged
			if frames, err = s.readFrames(ctx, p, records, true); err == nil {
				err = s.feed(ctx, p, at.Next, frames, records[len(records)-1].Offset+1)
			}
		} else if ctx.Err() == nil {
			err = errors.Join(err, s.resync(ctx, p, at))
		}
		if err != nil && ctx.Err() == nil {
			s.log.Debug("catching up is interrupted; retrying", "event", "delivery.catch_up_interrupted", "partition", p.Number, "error", err)
			wait.Sleep(ctx, 200*time.Millisecond)
		}
	}
}

// feed hands frames to the lagging services that have read up to a record: the frames are all
// that the log has from there up to end.
func (s *Stage) feed(ctx context.Context, p *partition, from int64, frames []logged, end int64) error {
	for i := range frames {
		f := &frames[i]
		for reply := core.Open; reply != core.Done; {
			var at core.LogCursor
			s.step(func() { reply, at = p.CatchUp(from, &f.Frame) })
			var err error
			switch reply {
			case core.Open:
				err = s.openFrame(ctx, p, f)
			case core.Absent:
				err = s.search(ctx, p, at, &f.Frame)
			}
			if err != nil {
				return err
			}
		}
		from = f.Offset + 1
	}
	s.step(func() { p.Passed(from, end) })
	return nil
}

// resync is called when nothing can be read at a cursor although the tail is farther: skipped
// frames count now, or the log was replaced, or it has lost the rest.
func (s *Stage) resync(ctx context.Context, p *partition, at core.LogCursor) error {
	start, end, err := s.opt.Log.Offsets(ctx, p.Number)
	switch {
	case err != nil:
		return err
	case start < end && at.Next < end:
		s.step(func() { p.Again(at) })
		return nil
	}
	return s.search(ctx, p, at, nil)
}

// search finds the changes between a cursor and the next frame of the log, or its end without
// one. They may be in the outbox, or later in the log: a frame of a future that the store lost may
// precede the one that was decided in its place. Otherwise they are lost: the services there pass
// them and need a repair. No live service waits for it.
func (s *Stage) search(ctx context.Context, p *partition, at core.LogCursor, f *core.Frame) (err error) {
	var found core.Found
	if found.Outbox, err = s.readOutbox(ctx, p); err != nil {
		return err
	}
	if found.Start, found.End, err = s.opt.Log.Offsets(ctx, p.Number); err != nil {
		return err
	}
	owed, _ := at.Continue(found.Outbox)
	for _, f := range owed {
		if err := f.Open(); err != nil {
			return store.WithClass(err, store.Fatal)
		}
	}
	if len(owed) == 0 {
		if found.Continues, err = s.logContinues(ctx, p, core.Place(at, f, found.Start), found.End); err != nil {
			return err
		}
	}
	now, err := s.snapshotOf(ctx, p)
	if err != nil {
		return err
	}
	found.LastTo = now.Marks[p.Number].LastTo
	s.step(func() { p.Searched(at, f, found) })
	return nil
}

// readOutbox returns the frames of the outbox. They were decided, since they are in the same store.
func (s *Stage) readOutbox(ctx context.Context, p *partition) (frames []*change.Frame, err error) {
	var rows [][]byte
	if err := s.retryUntil(ctx, p.ctx, "read the outbox", func() (err error) {
		rows, err = s.opt.Store.Outbox(ctx, p.Number)
		return err
	}); err != nil {
		return nil, err
	}
	frames = make([]*change.Frame, len(rows))
	for i, row := range rows {
		if frames[i], err = change.ParseFrameHeader(row); err != nil {
			return nil, store.WithClass(err, store.Fatal)
		}
	}
	return frames, nil
}

// logContinues reports whether the log has, from a cursor's next record up to an offset, a frame
// that counts and continues the cursor.
func (s *Stage) logContinues(ctx context.Context, p *partition, at core.LogCursor, end int64) (bool, error) {
	if at.Next >= end {
		return false, nil
	}
	reader := s.opt.Log.NewReader()
	defer reader.Close()
	for at.Next < end {
		within, cancel := context.WithTimeout(ctx, readPatience)
		records, err := reader.Read(within, p.Number, at.Next)
		cancel()
		if err != nil {
			return false, err // there are records: a log that is slow is no gap
		}
		frames, err := s.readFrames(ctx, p, records, true)
		if err != nil {
			return false, err
		}
		for i := range frames {
			if f := &frames[i]; f.Counts && at.Judge(f.Frame.Frame) == core.Follows {
				return true, nil
			}
		}
		at.Next = records[len(records)-1].Offset + 1
	}
	return false, nil
}

// tick checks periodically whether logs end too early, and whether the partitions are
// still this process's although nothing moves.
func (s *Stage) tick() {
	tokens := time.Now()
	for wait.Sleep(s.ctx, tickPeriod) {
		if err := s.checkEnds(s.ctx); err != nil && s.ctx.Err() == nil {
			s.log.Debug("cannot compare the changes log with the store", "event", "delivery.log_unchecked", "error", err)
		}
		if time.Since(tokens) > tokenPeriod {
			tokens = time.Now()
			_ = s.saver.checkTokens(s.ctx) // again later
		}
	}
}

// checkEnds finds partitions whose log ends below the last frame that was decided and
// published: no later frame would show that. Each is checked in a goroutine of its own,
// since its log may not answer.
func (s *Stage) checkEnds(ctx context.Context) error {
	now, err := s.snapshots.latest(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.parts {
		to := now.Marks[p.Number].LastTo
		if p.checking || !p.Lacks(to) {
			continue
		}
		p.checking = true
		s.running.Go(func() {
			err := s.checkEnd(p.ctx, p, to)
			s.mu.Lock()
			p.checking = false
			s.mu.Unlock()
			if err != nil && p.ctx.Err() == nil {
				s.log.Debug("cannot compare a partition of the changes log with the store", "event", "delivery.log_unchecked", "partition", p.Number, "error", err)
			}
		})
	}
	return nil
}

// checkEnd compares the end of a partition's log with the decisions up to a position.
func (s *Stage) checkEnd(ctx context.Context, p *partition, to change.Version) error {
	// In this order: what left the outbox is in the log.
	rows, err := s.opt.Store.Outbox(ctx, p.Number)
	if err != nil {
		return err
	}
	start, end, err := s.opt.Log.Offsets(ctx, p.Number)
	if err == nil {
		s.step(func() { p.LogEnded(to, start, end, len(rows) > 0) })
	}
	return err
}
