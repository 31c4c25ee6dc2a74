package deliver

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/inbox"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
)

// A frame that names another one before it than the last that was handed on is a
// suspicion. What is missing may be in the outbox, or further up in the log: a
// frame of a future that the store lost may stand before the one that was decided
// in its stead. If it is nowhere, it is gone, and whoever's newest change was in
// it is decided again (I1 for state sinks; a log sink may get a content that it has
// once more, and its operator is told that something is missing).

const (
	repairPage   = 500
	repairPeriod = 500 * time.Millisecond
	tickPeriod   = 2 * time.Second
	tokenPeriod  = 10 * time.Second
)

// bridgeTail finds what is missing between fed, to where the tail was handed on,
// and a frame. over says that the frame itself is to be passed over.
func (s *Stage) bridgeTail(ctx context.Context, p *partition, fed change.Version, f *logged) (over bool, err error) {
	free, err := p.onlyOne(ctx)
	if err != nil {
		return false, err
	}
	defer free()
	found, err := s.inOutbox(ctx, p, fed, f.offset)
	if err != nil {
		return false, err
	}
	if found != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !p.gone && p.feed.judge(found.Frame) == follows {
			s.feedLive(p, found)
		}
		return false, nil
	}
	later, err := s.later(ctx, p, fed, f.offset+1)
	if err != nil {
		return false, err
	}
	if later {
		s.mu.Lock()
		defer s.mu.Unlock()
		p.feed.next = f.offset + 1
		p.edits++
		return true, nil
	}
	if err := s.repair(ctx, p, f.Prev, func(c *cursor) (change.Version, bool) { return max(p.feed.fed, c.feed.fed, c.floor), c.live }); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.feed.fed < f.Prev {
		p.feed = feed{fed: f.Prev, next: f.offset}
		p.edits++
	}
	return false, nil
}

// bridgeBehind is bridgeTail for one service that is behind, while it is where it was.
func (s *Stage) bridgeBehind(ctx context.Context, p *partition, c *cursor, was *feed, f *logged) (over bool, err error) {
	free, err := p.onlyOne(ctx)
	if err != nil {
		return false, err
	}
	defer free()
	found, err := s.inOutbox(ctx, p, was.fed, f.offset)
	if err != nil {
		return false, err
	}
	if found != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !p.gone && !c.live && c.feed == *was && c.feed.judge(found.Frame) == follows {
			s.giveBehind(c, found)
			c.feed.next = f.offset
			*was = c.feed
		}
		return false, nil
	}
	later, err := s.later(ctx, p, was.fed, f.offset+1)
	if err != nil {
		return false, err
	}
	if later {
		s.mu.Lock()
		defer s.mu.Unlock()
		if c.feed == *was {
			c.feed.next = f.offset + 1
			*was = c.feed
		}
		return true, nil
	}
	if err := s.repair(ctx, p, f.Prev, func(o *cursor) (change.Version, bool) { return max(o.feed.fed, o.floor), o == c }); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.feed == *was && was.fed < f.Prev {
		c.feed = feed{fed: f.Prev, next: f.offset}
		*was = c.feed
		p.edits++
	}
	return false, nil
}

// onlyOne waits until nobody else looks into a gap of p.
func (p *partition) onlyOne(ctx context.Context) (free func(), err error) {
	select {
	case p.bridge <- struct{}{}:
		return func() { <-p.bridge }, nil
	case <-p.ctx.Done():
		return nil, errRevoked
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// inOutbox returns a frame of the outbox that goes on from fed, as if it stood at
// an offset of the log; nil without one.
// What stands there was decided, by the same store that says so.
func (s *Stage) inOutbox(ctx context.Context, p *partition, fed change.Version, offset int64) (*logged, error) {
	var rows [][]byte
	if err := s.patiently(ctx, p.ctx, "read the outbox", func() (err error) {
		rows, err = s.opt.Store.Outbox(ctx, p.number)
		return err
	}); err != nil {
		return nil, err
	}
	for _, row := range rows {
		f, err := change.ParseFrame(row)
		if err != nil {
			return nil, store.WithClass(err, store.Fatal)
		}
		// One that was cut is not taken apart from its other parts.
		if f.Prev <= fed && f.To > fed && f.Part == 0 && f.Last {
			return &logged{Frame: f, offset: offset, redelivered: true, counts: true}, nil
		}
	}
	return nil, nil
}

// later reports whether the log, from a record on, has a frame that counts and
// goes on from fed.
func (s *Stage) later(ctx context.Context, p *partition, fed change.Version, from int64) (bool, error) {
	var start, end map[int32]int64
	if err := s.patiently(ctx, p.ctx, "read the offsets of the changes log", func() (err error) {
		start, end, err = s.opt.Log.Offsets(ctx)
		return err
	}); err != nil {
		return false, err
	}
	if from = max(from, start[p.number]); from >= end[p.number] {
		return false, nil
	}
	reader := s.opt.Log.NewReader()
	defer reader.Close()
	for from < end[p.number] {
		within, cancel := context.WithTimeout(ctx, readPatience)
		records, err := reader.Read(within, p.number, from)
		cancel()
		if err != nil {
			return false, err // there are records: a log that is slow is no gap
		}
		frames, err := s.read(ctx, p, records, true)
		if err != nil {
			return false, err
		}
		for i := range frames {
			if f := &frames[i]; f.counts && f.Part == 0 && f.Prev <= fed && f.To > fed {
				return true, nil
			}
		}
		from = records[len(records)-1].Offset + 1
	}
	return false, nil
}

// repair asks for a decision about each entity that has a change below to and at
// or above the place of a service in its newest state, and returns when none is
// left. which says whose places count and what they are, under the stage's mutex.
func (s *Stage) repair(ctx context.Context, p *partition, to change.Version, which func(*cursor) (change.Version, bool)) error {
	s.mu.Lock()
	from := to
	places := map[int32]change.Version{}
	names := map[int32]string{}
	for _, c := range p.cursors {
		at, concerned := which(c)
		if concerned && at < to {
			places[c.w.opt.Number], names[c.w.opt.Number] = at, c.w.opt.Name
			from = min(from, at)
		}
	}
	s.mu.Unlock()
	if len(places) == 0 {
		return nil
	}
	for _, w := range s.workers {
		if _, concerned := places[w.opt.Number]; concerned {
			s.opt.Metrics.gaps.WithLabelValues(w.opt.Name).Inc()
			if w.traits.Kind == sinks.Log {
				w.log.Error("changes are gone from the log before they were delivered: what this service gets has a gap", "partition", p.number, "from", from.String(), "to", to.String())
			}
		}
	}
	s.log.Warn("changes are gone from the log before they were delivered: their entities are decided again", "partition", p.number, "from", from.String(), "to", to.String(), "services", len(places))
	asked := map[store.Key]change.Version{}
	operation := uuid.NewString()
	for {
		left := 0
		for after := ""; ; {
			var rows []store.Row
			if err := s.patiently(ctx, p.ctx, "read whose changes are gone", func() (err error) {
				rows, err = s.opt.Store.Moved(ctx, from, to, after, repairPage)
				return err
			}); err != nil {
				return err
			}
			if len(rows) == 0 {
				break
			}
			after = rows[len(rows)-1].Entity
			for _, row := range rows {
				at, concerned := places[row.Service]
				if !concerned || row.Version < at || row.Content == nil || s.opt.Partition(row.Entity) != p.number {
					continue
				}
				left++
				if asked[row.Key] == row.Version {
					continue
				}
				if err := s.patiently(ctx, p.ctx, "ask for a new decision", func() error {
					return s.opt.Control(ctx, row.Entity, inbox.Control{
						ID: operation + "/" + row.Entity, Action: inbox.Redecide, Services: []string{names[row.Service]}, Version: row.Version,
						Force: true, Actor: inbox.Deliver, Reason: "its change is gone from the log",
					})
				}); err != nil {
					return err
				}
				asked[row.Key] = row.Version
			}
		}
		if left == 0 {
			s.log.Info("what was gone is decided again", "partition", p.number, "entities", len(asked), "services", slices.Sorted(maps.Values(names)))
			return nil
		}
		if !wait.Sleep(ctx, repairPeriod) || p.ctx.Err() != nil {
			return errRevoked
		}
	}
}

// tick looks now and then whether logs end too early, and whether the partitions
// are still this process's although nothing moves.
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

// checkEnds finds partitions whose log ends below the last frame that was decided
// and published: nothing more would come that tells of it.
func (s *Stage) checkEnds(ctx context.Context) error {
	look, err := s.looks.look(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	var short []*partition
	for _, p := range s.parts {
		if !p.gone && p.feed.fed < look.Marks[p.number].LastTo {
			short = append(short, p)
		}
	}
	s.mu.Unlock()
	for _, p := range short {
		// In this order: what left the outbox stands in the log.
		rows, err := s.opt.Store.Outbox(ctx, p.number)
		if err != nil {
			return err
		}
		start, end, err := s.opt.Log.Offsets(ctx)
		if err != nil {
			return err
		}
		if len(rows) > 0 {
			if err := s.fromOutbox(ctx, p, start[p.number], end[p.number]); err != nil {
				return err
			}
			continue
		}
		last := look.Marks[p.number].LastTo
		s.mu.Lock()
		gone := !p.gone && p.feed.fed < last && p.feed.from(start[p.number], end[p.number]) >= end[p.number]
		s.mu.Unlock()
		if !gone {
			continue
		}
		free, err := p.onlyOne(ctx)
		if err != nil {
			return err
		}
		err = s.repair(ctx, p, last, func(c *cursor) (change.Version, bool) { return max(p.feed.fed, c.feed.fed, c.floor), c.live })
		if err == nil {
			s.mu.Lock()
			if p.feed.fed < last {
				p.feed = feed{fed: last, next: end[p.number]}
				p.edits++
				p.poke()
			}
			s.mu.Unlock()
			s.saver.poke()
		}
		free()
		if err != nil {
			return err
		}
	}
	return nil
}

// fromOutbox hands out what stands in the outbox alone and has not moved since the
// tick before: a restored one may hold what its owner published long ago, into a
// log that has it no more.
func (s *Stage) fromOutbox(ctx context.Context, p *partition, start, end int64) error {
	s.mu.Lock()
	fed := p.feed.fed
	still := !p.gone && p.stuck != nil && *p.stuck == fed && p.feed.from(start, end) >= end
	p.stuck = &fed
	s.mu.Unlock()
	if !still {
		return nil
	}
	free, err := p.onlyOne(ctx)
	if err != nil {
		return err
	}
	defer free()
	found, err := s.inOutbox(ctx, p, fed, max(0, end-1))
	if found == nil || err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !p.gone && p.feed.judge(found.Frame) == follows {
		s.feedLive(p, found)
		p.feed.next = end
		s.saver.poke()
	}
	return nil
}

// checkTokens finds partitions that somebody else took without telling.
func (s *Stage) checkTokens(ctx context.Context) {
	select {
	case s.saver.one <- struct{}{}:
	case <-ctx.Done():
		return
	}
	rows, err := s.opt.Store.AllProgress(ctx)
	var lost []*partition
	if err == nil {
		s.mu.Lock()
		settle(rows, slices.Collect(maps.Values(s.parts)))
		for _, p := range s.parts {
			if !p.gone && !slices.ContainsFunc(rows, func(r store.Progress) bool { return r.Partition == p.number && r.Token == p.token }) {
				lost = append(lost, p)
			}
		}
		s.mu.Unlock()
	}
	<-s.saver.one
	for _, p := range lost {
		s.log.Warn("the progress of a partition is not this process's any more", "partition", p.number)
		s.lose(p)
	}
}
