package deliver

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver/core"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/transport"
)

// partition is one assigned partition of the changes log. Its fields but number,
// after, ctx and cancel are guarded by the stage's mutex.
type partition struct {
	number int32
	after  uint64 // only messages of assignments above it are of this take-over
	ctx    context.Context
	cancel context.CancelFunc
	wakeUp chan struct{} // capacity 1: the catch-up reader has something to do

	gone     bool
	feed     feed            // of the tail: what every live service was handed
	stuck    *change.Version // where feed was at the last tick, with rows in the outbox
	checking bool            // a check for a log that ends too early is running
	joining  bool            // the tail waits for a service that is nearly live
	cursors  []*cursor
	absent   []store.ServicePosition // of services that are not configured

	requesting  int       // appends of repair requests under way: its repairs have left the walk
	repairAfter time.Time // then they rejoin it
	repairPause time.Duration

	token  store.Token
	floor  change.Version          // see store.ProgressSwap
	saved  []store.ServicePosition // what the store has
	edits  uint64                  // counts what may have changed positions
	stored uint64                  // edits that the store has
	swap   *progressSwap           // a swap in flight, or whose outcome is unknown
	rows   map[string]rowEdit      // of retrying changes, not known to be stored; by their keys
}

// progressSwap is the state of a partition after a swap.
type progressSwap struct {
	token     store.Token
	positions []store.ServicePosition
	edits     uint64
}

// feed is how far a sequence of frames was handed out.
type feed struct {
	fed  change.Version // all frames below it were handed out
	next int64          // the record to read next
	// Of a position whose changes were cut into parts:
	part  int            // the next part
	to    change.Version // where it ends
	first int64          // record of part 0
	cut   uint64         // of part 0: what counts is of the same cut
}

type verdict int

const (
	follows  verdict = iota
	repeated         // handed out before, or a part of what was not begun
	gap              // its predecessor is missing
)

func (f *feed) judge(of *change.Frame) verdict {
	switch {
	case of.To <= f.fed:
		return repeated
	case of.Part > 0 && (of.Part != f.part || of.To != f.to || of.Cut != f.cut):
		return repeated
	case of.Part == 0 && f.part > 0 && of.To == f.to && of.Cut == f.cut:
		// Another owner publishes the same parts. What follows the part that is awaited
		// may precede that owner's, so it is not begun again.
		return repeated
	case of.Part == 0 && of.Prev > f.fed:
		return gap
	}
	return follows
}

// pass advances the feed past a frame that was handed out. It returns the record to
// restart at for that frame, and where the feed was before.
func (f *feed) pass(of *change.Frame, offset int64) (start int64, fed change.Version) {
	fed = f.fed
	if of.Part == 0 {
		f.first, f.cut = offset, of.Cut
	}
	f.next = offset + 1
	if of.Last {
		f.fed, f.part, f.to = of.To, 0, 0
	} else {
		f.part, f.to = of.Part+1, of.To
	}
	return f.first, fed
}

// offset is the record to restart at.
func (f *feed) offset() int64 {
	if f.part > 0 {
		return f.first
	}
	return f.next
}

// reaches reports whether a follower has reached the tail, so that it needs only what
// the tail hands out from now on.
func (f *feed) reaches(tail *feed) bool {
	return f.part == 0 && f.fed >= tail.border()
}

// border is where a follower may join the tail: of a position whose changes were cut
// into parts it needs all, or none.
func (f *feed) border() change.Version {
	if f.part > 0 {
		return f.to
	}
	return f.fed
}

// reach advances the feed to a position, which may end the position whose parts it is
// in.
func (f *feed) reach(fed change.Version) {
	if f.fed = max(f.fed, fed); f.to <= f.fed {
		f.part, f.to = 0, 0
	}
}

// from is the first record left to read of a log that has those from start to end. A log
// that ends before the feed is another one of the same name.
func (f *feed) from(start, end int64) int64 {
	if f.next > end {
		return start
	}
	return max(f.next, start)
}

// cursor is one service in one partition.
type cursor struct {
	w     *worker
	p     *partition
	live  bool           // fed by the tail
	floor change.Version // changes below it are skipped: they were done before the take-over
	// feed is the catch-up reader's, unless live; then it is where that reader ended,
	// which may be beyond the tail.
	feed feed
	// mark is saved with the position, for a sinks.Recoverer.
	mark    string
	resumed bool        // owned by the worker: its sink resumed since the take-over
	repair  core.Repair // saved with the position
	// pending are the slices that are not done, in the order of the log; those in flight
	// come first.
	pending []*slice
}

// restore sets the cursor to a saved position.
func (c *cursor) restore(at *store.ServicePosition) {
	c.floor, c.feed, c.mark = at.Version, feed{fed: at.Version, next: at.LogOffset}, at.Mark
	var ok bool
	if c.repair, ok = core.DecodeRepair(at.Repair, at.Version); !ok {
		c.w.log.Error("stored repair cannot be read; all entities are decided again", "event", "repair.unreadable", "partition", c.p.number)
	}
}

// saved returns the position to save.
func (c *cursor) saved() store.ServicePosition {
	return store.ServicePosition{Service: c.w.opt.Number, Position: c.position(), Mark: c.mark, Repair: c.repair.Encode()}
}

// position is how far the service is.
func (c *cursor) position() store.Position {
	if len(c.pending) > 0 {
		first := c.pending[0]
		return store.Position{Version: max(first.at, c.floor), LogOffset: first.offset}
	}
	f := &c.feed
	if c.live {
		f = &c.p.feed
	}
	return store.Position{Version: max(f.fed, c.feed.fed, c.floor), LogOffset: f.offset()}
}

// slice is the changes of one service in one frame.
type slice struct {
	c           *cursor
	changes     change.Slice
	frame       *change.Frame
	offset      int64 // to restart at for it
	record      int64 // that it stands in
	redelivered bool
	cost        int64
	below       change.Version // changes below it came before, in a frame with other borders

	todo     []*delivery    // owned by the worker: the changes that are not settled, from the first on
	at       change.Version // guarded by the stage's mutex: the first change that is not done
	finished bool           // guarded by the stage's mutex
	inHand   bool           // guarded by the stage's mutex
}

// nearby is how many records a service may be behind the farthest one and still be fed
// by the tail at a take-over. The tail waits a moment for one that is a quarter of it
// behind.
const nearby = 256

func newPartition(s *Stage, row *store.Progress, token store.Token, after uint64) *partition {
	p := &partition{
		number: row.Partition, after: after, token: token, saved: row.Positions,
		wakeUp: make(chan struct{}, 1), rows: map[string]rowEdit{},
	}
	p.ctx, p.cancel = context.WithCancel(s.ctx)
	var farthest store.Position
	for _, sp := range row.Positions {
		if sp.LogOffset > farthest.LogOffset || sp.LogOffset == farthest.LogOffset && sp.Version > farthest.Version {
			farthest = sp.Position
		}
	}
	known := make(map[int32]store.ServicePosition, len(row.Positions))
	for _, sp := range row.Positions {
		known[sp.Service] = sp
		if !slices.ContainsFunc(s.workers, func(w *worker) bool { return w.opt.Number == sp.Service }) {
			p.absent = append(p.absent, sp)
		}
	}
	p.feed = feed{fed: farthest.Version, next: farthest.LogOffset}
	for _, w := range s.workers {
		c := &cursor{w: w, p: p}
		at, ok := known[w.opt.Number]
		if !ok {
			// A new service: it has no change below the watermarks of its
			// activation, and no position that was saved before is above these.
			at.Position = farthest
		}
		c.restore(&at)
		c.live = at.LogOffset+nearby >= farthest.LogOffset
		if c.live && (at.LogOffset < p.feed.next || at.LogOffset == p.feed.next && at.Version < p.feed.fed) {
			p.feed = c.feed
		}
		p.cursors = append(p.cursors, c)
	}
	s.restoreRows(p, row.Retrying)
	for _, c := range p.cursors {
		if c.live && c.floor < p.feed.fed {
			p.feed.fed = c.floor // the lowest: a frame is a repetition only if it is one for all
		}
	}
	p.edits++
	return p
}

func newToken() (t store.Token) {
	rand.Read(t[:])
	return t
}

// logged is one frame with its place in the log.
type logged struct {
	*change.Frame
	record      *transport.Received
	offset      int64
	redelivered bool
	counts      bool // it belongs to the store's history
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
			letters = append(letters, s.malformed(p.number, r, err))
			continue
		}
		frames = append(frames, logged{Frame: f, record: r, offset: r.Offset, redelivered: catchUp || r.Redelivered || r.HeaderBytes(change.RepublishedHeader) != nil})
	}
	if err := s.addLetters(ctx, s.ctx, letters); err != nil {
		return nil, err
	}
	if len(frames) == 0 {
		return nil, nil
	}
	var look *store.HistorySnapshot
	if err := s.retryUntil(ctx, s.ctx, "read how far decisions are", func() (err error) {
		look, err = s.looks.look(ctx)
		return err
	}); err != nil {
		return nil, err
	}
	for i := range frames {
		f := &frames[i]
		f.counts = look.Counts(p.number, f.Revision, f.From, f.To)
		if !f.counts {
			s.log.Debug("a frame that the store knows nothing of is passed over", "partition", p.number, "offset", f.offset)
			s.opt.Metrics.passedOver.Inc()
		} else if revision := s.revision.Load(); f.Revision > revision {
			s.opt.Superseded()
			return nil, fmt.Errorf("a frame of revision %d came to revision %d: %w", f.Revision, revision, store.ErrSuperseded)
		}
	}
	return frames, nil
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
	f.counts = false
	return s.addLetters(ctx, s.ctx, []store.DeadLetter{s.malformed(p.number, f.record, err)})
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

// handOut hands a frame of the tail to every live service as soon as the budget allows,
// and after bridging a gap before it.
func (s *Stage) handOut(ctx context.Context, p *partition, f *logged) error {
	for {
		s.mu.Lock()
		if p.gone {
			s.mu.Unlock()
			return errRevoked
		}
		v := repeated
		if f.counts {
			v = p.feed.judge(f.Frame)
		}
		switch {
		case v == repeated:
			p.feed.next = f.offset + 1
			p.edits++
			s.mu.Unlock()
			return nil
		case v == follows && !f.Opened():
			s.mu.Unlock()
			if err := s.openFrame(ctx, p, f); err != nil {
				return err
			}
			continue
		case v == gap:
			at := p.feed
			s.mu.Unlock()
			over, err := s.bridge(ctx, follower{s: s, p: p}, at, f)
			if over || err != nil {
				return err
			}
			continue
		}
		if wait := s.roomFor(p, f); wait != nil {
			s.mu.Unlock()
			select {
			case <-wait:
			case <-time.After(roomTick):
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-p.ctx.Done():
				return errRevoked
			}
			continue
		}
		s.feedLive(p, f)
		s.mu.Unlock()
		s.saver.poke()
		return nil
	}
}

// feedLive hands a frame that follows to the live services. The caller holds s.mu.
func (s *Stage) feedLive(p *partition, f *logged) {
	start, fed := p.feed.pass(f.Frame, f.offset)
	i := 0
	for _, c := range p.cursors { // in the order of service numbers, like the slices
		for i < len(f.Slices) && f.Slices[i].Service < c.w.opt.Number {
			i++
		}
		if i < len(f.Slices) && f.Slices[i].Service == c.w.opt.Number && c.live && f.To > c.feed.fed {
			s.enqueue(c, f, f.Slices[i], start, max(fed, c.feed.fed))
		}
	}
	p.edits++
}

// enqueue adds a slice to a service's queue. The caller holds s.mu.
func (s *Stage) enqueue(c *cursor, f *logged, changes change.Slice, start int64, fed change.Version) {
	below := max(fed, c.floor)
	if f.To <= below {
		return
	}
	if n := len(c.pending); n > 0 && f.Partial() && c.pending[n-1].frame.Partial() && c.pending[n-1].frame.To == f.To {
		return // the same part, as another owner published it
	}
	frame := f.Frame
	if len(c.w.queue) > 0 && s.kept > 2*s.opt.Memory { // the first is soon in hand
		frame, changes = detach(frame, changes)
	}
	sl := &slice{
		below: below,
		c:     c, changes: changes, frame: frame, offset: start, record: f.offset, redelivered: f.redelivered, at: max(f.From, below),
		cost: costOf(frame, &changes),
	}
	c.pending = append(c.pending, sl)
	c.w.queue = append(c.w.queue, sl)
	s.holdSlice(sl)
	wait.Offer(c.w.wakeUp, struct{}{})
}

const (
	// roomTick is how often a waiting tail checks for a service that hogs the budget.
	roomTick = 100 * time.Millisecond
	// hogPatience is how long services without work wait for one that has the budget.
	hogPatience = 500 * time.Millisecond
)

// roomFor returns nil when a frame may be handed out, or what to wait for. To make
// room, services fall behind. The caller holds s.mu.
func (s *Stage) roomFor(p *partition, f *logged) <-chan struct{} {
	size := int64(0)
	for i := range f.Slices {
		size += costOf(f.Frame, &f.Slices[i])
	}
	full := s.held > 0 && s.held+size > s.opt.Memory
	stuck := int64(0) // what is in hand and not done before a sink comes back
	for _, w := range s.workers {
		// One that is not busy is about to try its queue.
		if !w.failing() || !w.busy {
			continue
		}
		if len(w.queue) > 0 && (full || w.held > s.share()) {
			s.fallBehind(w)
		}
		stuck += w.held
	}
	live := len(p.cursors) == 0
	for _, c := range p.cursors {
		live = live || c.live
	}
	if !live || p.joining {
		return s.released
	}
	if s.held <= stuck || s.held+size <= s.opt.Memory {
		return nil
	}
	// The budget is used up. A service that is slow does not hold up others that have
	// nothing to do.
	var hog *worker
	idle := false
	for _, w := range s.workers {
		if len(w.queue) > 0 && (hog == nil || w.held > hog.held) {
			hog = w
		}
		idle = idle || w.held == 0 && !w.failing()
	}
	if hog != nil && idle && hog.held > s.opt.Memory/4 && time.Since(hog.since) > hogPatience {
		s.fallBehind(hog)
		if s.held <= s.opt.Memory {
			return nil
		}
	}
	return s.released
}

// fallBehind drops a service's queue: the others continue, and the catch-up
// reader reads it again. The caller holds s.mu.
func (s *Stage) fallBehind(w *worker) {
	fell := false
	for _, p := range s.parts {
		for _, c := range p.cursors {
			if c.w != w {
				continue
			}
			queued := slices.IndexFunc(c.pending, func(sl *slice) bool { return !sl.inHand })
			if !c.live && queued < 0 {
				continue
			}
			next := c.feed
			if c.live {
				next = p.feed
				next.reach(c.feed.fed)
			}
			c.floor = c.position().Version
			if queued >= 0 {
				// From the first that is dropped on.
				first := c.pending[queued]
				next = feed{fed: first.frame.Prev, next: first.offset}
				if queued == 0 {
					at := c.position()
					next = feed{fed: at.Version, next: at.LogOffset}
				} else if last := c.pending[queued-1].frame.To; last < first.frame.To {
					next.fed = max(next.fed, last)
				}
				clear(c.pending[queued:])
				c.pending = c.pending[:queued]
			}
			fell = fell || c.live
			c.live, c.feed = false, next
			p.edits++
			p.poke()
		}
	}
	for _, sl := range w.queue {
		s.releaseSlice(sl)
	}
	clear(w.queue)
	w.queue = w.queue[:0]
	if fell && !w.removed {
		w.log.Warn("service is lagging; catching up separately", "event", "delivery.lagging")
	}
	s.wake()
}

func (p *partition) poke() { wait.Offer(p.wakeUp, struct{}{}) }

// positions returns the positions of p to save. The caller holds the stage's mutex.
func (p *partition) positions() []store.ServicePosition {
	out := make([]store.ServicePosition, 0, len(p.cursors)+len(p.absent))
	for _, c := range p.cursors {
		out = append(out, c.saved())
	}
	out = append(out, p.absent...)
	slices.SortFunc(out, func(a, b store.ServicePosition) int { return int(a.Service) - int(b.Service) })
	return out
}
