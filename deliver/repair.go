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
	// maxRequested bounds the services of one request.
	maxRequested = 256
)

// reportLost reports changes that the service lost.
func (w *worker) reportLost(e core.Signal) {
	w.s.opt.Metrics.gapsOf(w.opt.Name).Inc()
	level, text := slog.LevelWarn, "changes expired before delivery; their entities are decided again"
	if w.traits.Kind == sinks.Log {
		level, text = slog.LevelError, "changes expired before delivery; this service's log has a gap"
	}
	w.log.Log(context.Background(), level, text, "event", "delivery.lost", "partition", e.Partition.Number, "from", e.From.String(), "to", e.To.String())
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

// walkPage serves one page of entities from place on, and returns the place of the next. With
// no repair to serve it returns how long that may last.
func (s *Stage) walkPage(ctx context.Context, place string) (next string, idle time.Duration, err error) {
	s.mu.Lock()
	lost, after, from, to, idle := s.flow.JoinWalk(place, time.Now())
	s.mu.Unlock()
	if len(lost) == 0 {
		return place, idle, nil
	}
	var rows []store.Row
	if err := s.retryUntil(ctx, ctx, "read whose changes were lost", func() (err error) {
		rows, next, err = s.opt.Store.Moved(ctx, from, to, after, repairPage)
		return err
	}); err != nil {
		return place, 0, err
	}
	p := &pageRequests{s: s, last: next, left: map[*core.Lane]int{}, failed: map[*core.Lane]bool{}, batches: map[int32]*requestBatch{}, done: make(chan struct{})}
	served := map[repairOf]core.Served{}
	for _, r := range lost {
		if r.Covers(after, next) {
			served[repairOf{r.Lane.Queue.Number, r.Lane.Partition.Number}] = r
		}
	}
	n := p.collect(served, rows)
	s.step(func() {
		for _, r := range served {
			if p.left[r.Lane] == 0 {
				p.advance(r.Lane)
			}
		}
		p.append(ctx)
	})
	select {
	case <-p.done:
	case <-time.After(repairPatience):
	case <-ctx.Done():
	}
	wait.Sleep(ctx, time.Duration(n)*time.Second/repairRate)
	return next, 0, nil
}

// pageRequests are the requests for a page of entities. Once appended, its fields but done
// are guarded by the stage's mutex.
type pageRequests struct {
	s       *Stage
	last    string // the page's last entity
	left    map[*core.Lane]int
	failed  map[*core.Lane]bool
	batches map[int32]*requestBatch // by inbox partition
	open    int                     // batches
	done    chan struct{}           // closed when the inbox has answered all batches
}

// requestBatch is the requests to one inbox partition.
type requestBatch struct {
	records []change.Record
	of      map[*core.Lane]bool
}

// collect makes the requests of a page: one for the services whose lost change of an entity
// has the same version. It returns how many.
func (p *pageRequests) collect(served map[repairOf]core.Served, rows []store.Row) (n int) {
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
		c := of.Lane
		to := s.opt.Partition(r.Entity, math.MaxUint64)
		b := p.batches[to]
		if b == nil {
			b = &requestBatch{of: map[*core.Lane]bool{}}
			p.batches[to] = b
		}
		if !b.of[c] {
			b.of[c] = true
			p.left[c]++
		}
		if control := open[r.Version]; control != nil && len(control.Services) < maxRequested {
			control.Services = append(control.Services, c.Queue.Name)
			continue
		}
		control := &change.Control{
			ID: operation + "/" + r.Entity, Action: change.Redecide, Services: []string{c.Queue.Name}, Version: r.Version,
			Force: true, Actor: change.Deliver, Reason: "its change was lost from the log",
		}
		open[r.Version] = control
		b.records = append(b.records, change.Record{Entity: r.Entity, Control: control})
		n++
	}
	return n
}

// append appends all batches, each in a goroutine of its own: one inbox partition that is
// blocked holds up no other. Part of step.
func (p *pageRequests) append(ctx context.Context) {
	if p.open = len(p.batches); p.open == 0 {
		close(p.done)
	}
	for _, b := range p.batches {
		for c := range b.of {
			c.Partition.Requesting()
		}
		p.s.running.Go(func() { p.answered(b, p.s.opt.Control(ctx, b.records...)) })
	}
}

// answered records the outcome of a batch.
func (p *pageRequests) answered(b *requestBatch, err error) {
	s := p.s
	s.step(func() {
		for l := range b.of {
			p.left[l]--
			p.failed[l] = p.failed[l] || err != nil
			if l.Partition.Requested(err == nil, time.Now()) && s.ctx.Err() == nil {
				s.log.Warn("inbox rejects requests to decide lost changes again; retrying", "event", "repair.blocked", "partition", l.Partition.Number, "error", err)
			}
			if p.left[l] == 0 && !p.failed[l] {
				p.advance(l)
			}
		}
		if p.open--; p.open == 0 {
			close(p.done)
		}
	})
	wait.Offer(s.repairs, struct{}{})
}

// advance moves a repair behind the page; part of step.
func (p *pageRequests) advance(l *core.Lane) {
	if l.Visited(p.last) {
		p.s.log.Info("all lost changes are requested again", "event", "repair.done", "service", l.Queue.Name, "partition", l.Partition.Number)
	}
}
