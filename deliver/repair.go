package deliver

import (
	"context"
	"log/slog"
	"math"
	"time"

	"github.com/google/uuid"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver/core"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
)

// Every entity whose newest change was lost is decided again (I1 for state sinks; a log sink
// has a gap, which is reported). The need is a core.Repair, saved in the swap that moves the
// position past the lost changes. One walk per process over all entities serves all needs of
// its partitions: for each page it appends requests to the inbox, and advances the needs when
// those are durable. A crash repeats requests, which have no effect once decided.

const (
	repairPage = 500 // entities
	// repairPatience is how long the walk waits for the inbox. A partition that takes longer
	// leaves the walk until it has answered.
	repairPatience = time.Second
	// repairRate bounds the requests per second: events of today share the inbox with them.
	repairRate = 5000
	// Wait of a partition whose inbox rejected requests.
	minRepairPause, maxRepairPause = time.Second, time.Minute
	// maxRequested bounds the services of one request.
	maxRequested = 256
)

// passLost moves a follower past lost changes, to a position and a record of the log. The
// services that needed them need a repair.
func (l follower) passLost(to change.Version, next int64) {
	s := l.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if !l.valid() || l.feed().fed >= to {
		return
	}
	for _, c := range l.p.cursors {
		at, affected := l.affected(c)
		if !affected || at >= to {
			continue
		}
		c.repair.Lose(at, to)
		s.opt.Metrics.gapsOf(c.w.opt.Name).Inc()
		level, text := slog.LevelWarn, "changes expired before delivery; their entities are decided again"
		if c.w.traits.Kind == sinks.Log {
			level, text = slog.LevelError, "changes expired before delivery; this service's log has a gap"
		}
		c.w.log.Log(context.Background(), level, text, "event", "delivery.lost", "partition", l.p.number, "from", at.String(), "to", to.String())
	}
	l.move(feed{fed: to, next: next})
	wait.Offer(s.repairs, struct{}{})
}

// walk serves all repairs until the stage ends.
func (s *Stage) walk() {
	for place := ""; s.ctx.Err() == nil; {
		next, idle, err := s.walkPage(s.ctx, place)
		if place = next; err == nil && idle == 0 {
			continue
		}
		select {
		case <-s.repairs:
		case <-time.After(idle):
		case <-s.ctx.Done():
		}
	}
}

// repairOf names a repair.
type repairOf struct {
	service, partition int32
}

// servedRepair is a repair as it was when a page was read.
type servedRepair struct {
	core.Repair
	c *cursor
}

// walkPage serves one page of entities from place on, and returns the place of the next. With
// no repair to serve it returns how long that may last.
func (s *Stage) walkPage(ctx context.Context, place string) (next string, idle time.Duration, err error) {
	served, after, from, to, idle := s.joinWalk(place)
	if len(served) == 0 {
		return place, idle, nil
	}
	var rows []store.Row
	if err := s.retryUntil(ctx, ctx, "read whose changes were lost", func() (err error) {
		rows, next, err = s.opt.Store.Moved(ctx, from, to, after, repairPage)
		return err
	}); err != nil {
		return place, 0, err
	}
	p := &pageRequests{s: s, last: next, left: map[*cursor]int{}, failed: map[*cursor]bool{}, batches: map[int32]*requestBatch{}, done: make(chan struct{})}
	for of, r := range served {
		if !r.Covers(after, next) {
			delete(served, of)
		}
	}
	n := p.collect(served, rows)
	s.mu.Lock()
	for _, r := range served {
		if p.left[r.c] == 0 {
			p.advance(r.c)
		}
	}
	p.append(ctx)
	s.mu.Unlock()
	select {
	case <-p.done:
	case <-time.After(repairPatience):
	case <-ctx.Done():
	}
	wait.Sleep(ctx, time.Duration(n)*time.Second/repairRate)
	return next, 0, nil
}

// joinWalk returns the repairs that can be served now, behind which entity the next page
// begins, and the range of versions to look for.
func (s *Stage) joinWalk(place string) (served map[repairOf]servedRepair, after string, from, to change.Version, idle time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	served, idle, from = map[repairOf]servedRepair{}, time.Hour, math.MaxInt64
	var repairs []*core.Repair
	var cursors []*cursor
	for _, p := range s.parts {
		for _, c := range p.cursors {
			if !c.repair.Needed() || p.requesting > 0 || p.gone {
				continue
			}
			if pause := time.Until(p.repairAfter); pause > 0 {
				idle = min(idle, pause)
				continue
			}
			repairs, cursors = append(repairs, &c.repair), append(cursors, c)
			low, high := c.repair.Bounds()
			from, to = min(from, low), max(to, high)
		}
	}
	if after = place; len(repairs) > 0 {
		after = core.NextPage(place, repairs)
	}
	for _, c := range cursors {
		c.repair.Join(after)
		served[repairOf{c.w.opt.Number, c.p.number}] = servedRepair{c.repair, c}
	}
	return served, after, from, to, idle
}

// pageRequests are the requests for a page of entities. Once appended, its fields but done
// are guarded by the stage's mutex.
type pageRequests struct {
	s       *Stage
	last    string // the page's last entity
	left    map[*cursor]int
	failed  map[*cursor]bool
	batches map[int32]*requestBatch // by inbox partition
	open    int                     // batches
	done    chan struct{}           // closed when the inbox has answered all batches
}

// requestBatch is the requests to one inbox partition.
type requestBatch struct {
	records []change.Record
	of      map[*cursor]bool
}

// collect makes the requests of a page: one for the services whose lost change of an entity
// has the same version. It returns how many.
func (p *pageRequests) collect(served map[repairOf]servedRepair, rows []store.Row) (n int) {
	s, operation := p.s, uuid.NewString()
	open := map[change.Version]*change.Control{} // of the entity
	for i, r := range rows {
		if i > 0 && r.Entity != rows[i-1].Entity {
			clear(open)
		}
		of, found := served[repairOf{r.Service, s.opt.Partition(r.Entity, r.Version)}]
		if !found || r.Content == nil || r.Entity <= of.At() || !of.Has(r.Version) {
			continue
		}
		c := of.c
		to := s.opt.Partition(r.Entity, math.MaxUint64)
		b := p.batches[to]
		if b == nil {
			b = &requestBatch{of: map[*cursor]bool{}}
			p.batches[to] = b
		}
		if !b.of[c] {
			b.of[c] = true
			p.left[c]++
		}
		if control := open[r.Version]; control != nil && len(control.Services) < maxRequested {
			control.Services = append(control.Services, c.w.opt.Name)
			continue
		}
		control := &change.Control{
			ID: operation + "/" + r.Entity, Action: change.Redecide, Services: []string{c.w.opt.Name}, Version: r.Version,
			Force: true, Actor: change.Deliver, Reason: "its change was lost from the log",
		}
		open[r.Version] = control
		b.records = append(b.records, change.Record{Entity: r.Entity, Control: control})
		n++
	}
	return n
}

// append appends all batches, each in a goroutine of its own: one inbox partition that is
// blocked holds up no other. The caller holds the stage's mutex.
func (p *pageRequests) append(ctx context.Context) {
	if p.open = len(p.batches); p.open == 0 {
		close(p.done)
	}
	for _, b := range p.batches {
		for c := range b.of {
			c.p.requesting++
		}
		p.s.running.Go(func() { p.answered(b, p.s.opt.Control(ctx, b.records...)) })
	}
}

// answered records the outcome of a batch.
func (p *pageRequests) answered(b *requestBatch, err error) {
	s := p.s
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range b.of {
		part := c.p
		p.left[c]--
		p.failed[c] = p.failed[c] || err != nil
		part.requesting--
		if p.left[c] == 0 && !p.failed[c] {
			p.advance(c)
			part.repairPause = 0
		} else if err != nil && time.Until(part.repairAfter) <= 0 {
			part.repairPause = min(max(2*part.repairPause, minRepairPause), maxRepairPause)
			part.repairAfter = time.Now().Add(part.repairPause)
			if s.ctx.Err() == nil {
				s.log.Warn("inbox rejects requests to decide lost changes again; retrying", "event", "repair.blocked", "partition", part.number, "error", err)
			}
		}
	}
	if p.open--; p.open == 0 {
		close(p.done)
	}
	wait.Offer(s.repairs, struct{}{})
}

// advance moves a repair behind the page. The caller holds the stage's mutex.
func (p *pageRequests) advance(c *cursor) {
	if c.repair.Advance(p.last); !c.repair.Needed() {
		c.w.log.Info("all lost changes are requested again", "event", "repair.done", "partition", c.p.number)
	}
	c.p.edits++
	p.s.saver.poke()
}
