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

// follower is what frames are handed to in the order of a partition's log: the
// tail, which feeds every live service, or one service that is behind.
type follower struct {
	s *Stage
	p *partition
	c *cursor // nil: the tail
	// was is where c was when the work began. Once c is elsewhere, live or sent back,
	// what the work finds is not for it any more.
	was *feed
}

func (s *Stage) tail(p *partition) follower { return follower{s: s, p: p} }

func (s *Stage) behind(c *cursor, was *feed) follower { return follower{s: s, p: c.p, c: c, was: was} }

// at is where the follower is. The caller of it and of the other methods holds
// the stage's mutex.
func (l follower) at() *feed {
	if l.c == nil {
		return &l.p.feed
	}
	return &l.c.feed
}

// stands reports whether what was found for the follower is still for it.
func (l follower) stands() bool {
	return !l.p.gone && (l.c == nil || !l.c.live && l.c.feed == *l.was)
}

// move sets where the follower is, without anything handed on.
func (l follower) move(to feed) {
	*l.at() = to
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

// hand hands on a frame of the outbox if it follows; what the log has is read
// from next on.
func (l follower) hand(f *logged, next int64) {
	if !l.stands() || l.at().judge(f.Frame) != follows {
		return
	}
	if l.c == nil {
		l.s.feedLive(l.p, f)
	} else {
		l.s.giveBehind(l.c, f)
	}
	l.at().next = next
	l.moved()
}

// affected returns the position of a service, and whether what is gone before the
// follower was for it.
func (l follower) affected(c *cursor) (change.Version, bool) {
	if l.c != nil {
		return max(c.feed.fed, c.floor), c == l.c
	}
	return max(l.p.feed.fed, c.feed.fed, c.floor), c.live
}

// bridge finds what is missing between fed, to where a follower was handed on,
// and a frame. over says that the frame itself is to be passed over.
func (s *Stage) bridge(ctx context.Context, l follower, fed change.Version, f *logged) (over bool, err error) {
	free, err := l.p.onlyOne(ctx)
	if err != nil {
		return false, err
	}
	defer free()
	found, err := s.inOutbox(ctx, l.p, fed, f.offset)
	if err != nil {
		return false, err
	}
	if found != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		l.hand(found, f.offset)
		return false, nil
	}
	later, err := s.later(ctx, l.p, fed, f.offset+1)
	if err != nil {
		return false, err
	}
	if !later {
		return false, s.repair(ctx, l, f.Prev, f.offset)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.stands() {
		to := *l.at()
		to.next = f.offset + 1
		l.move(to)
	}
	return true, nil
}

// bridgeEnd brings a follower that has read all of a log, which ends at end, to a
// position that it should have reached by that: by the outbox, or else by a repair.
func (s *Stage) bridgeEnd(ctx context.Context, l follower, fed, to change.Version, end int64) error {
	free, err := l.p.onlyOne(ctx)
	if err != nil {
		return err
	}
	defer free()
	found, err := s.inOutbox(ctx, l.p, fed, max(0, end-1))
	if err != nil {
		return err
	}
	if found != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		l.hand(found, end)
		return nil
	}
	return s.repair(ctx, l, to, end)
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
// or above the place of a service in its newest state. When none is left it moves the
// follower there, and to a record of the log.
func (s *Stage) repair(ctx context.Context, l follower, to change.Version, next int64) error {
	if err := s.redecideGone(ctx, l, to); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.stands() && l.at().fed < to {
		l.move(feed{fed: to, next: next})
	}
	return nil
}

// redecideGone returns when no service that the follower stands for has a newest
// change between its place and to.
func (s *Stage) redecideGone(ctx context.Context, l follower, to change.Version) error {
	p := l.p
	s.mu.Lock()
	from := to
	places := map[int32]change.Version{}
	names := map[int32]string{}
	for _, c := range p.cursors {
		at, concerned := l.affected(c)
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
				if !concerned || row.Version < at || row.Content == nil || s.opt.Partition(row.Entity, row.Version) != p.number {
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
		to := look.Marks[p.number].LastTo
		s.mu.Lock()
		fed := p.feed.fed
		ended := !p.gone && fed < to && p.feed.from(start[p.number], end[p.number]) >= end[p.number]
		if len(rows) > 0 {
			// Their owner publishes them, and nothing is gone. But a restored outbox may
			// hold what was published long ago, into a log that has it no more: what has
			// not moved since the tick before is handed out from there.
			ended = ended && p.stuck != nil && *p.stuck == fed
			p.stuck, to = &fed, 0
		}
		s.mu.Unlock()
		if !ended {
			continue
		}
		if err := s.bridgeEnd(ctx, s.tail(p), fed, to, end[p.number]); err != nil {
			return err
		}
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
