package deliver

import (
	"context"
	"math"
	"time"

	"github.com/google/uuid"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver/core"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/store"
)

// Every entity whose newest change was lost is decided again (I1 for state sinks; a log sink
// has a gap, which is reported). The need is a core.Repair, saved in the swap that moves the
// position past the lost changes. A service with a refresh needs each entity once a period. One
// walk per process over all entities serves all needs of its partitions: for each page it appends
// requests to the inbox, and advances the needs when those are durable. A crash repeats requests,
// which have no effect once decided.

const (
	repairPage = 500     // entities, at most
	repairRows = 200_000 // dam rows of a page, at most, if every service has all entities
	// repairPatience is how long the walk waits for the inbox. A partition that takes longer
	// leaves the walk until it has answered.
	repairPatience = time.Second
	// repairRate bounds the requests per second: events of today share the inbox with them.
	repairRate = 5000
	// maxRequested bounds the services of one request.
	maxRequested = 256
)

// walk is the walk over all entities.
type walk struct {
	*shared
	wakeUp chan struct{} // capacity 1: a repair is needed, or its requests are answered
}

// run serves all needs until the stage ends.
func (w *walk) run() {
	for place := ""; w.ctx.Err() == nil; {
		next, idle, err := w.page(w.ctx, place)
		if place = next; err == nil && idle == 0 {
			continue
		}
		select {
		case <-w.wakeUp:
		case <-time.After(idle):
		case <-w.ctx.Done():
		}
	}
}

// needOf names a need.
type needOf struct {
	service, partition int32
	refresh            bool
}

// page serves one page of entities from place on, and returns the place of the next. With
// no need to serve it returns how long that may last.
func (w *walk) page(ctx context.Context, place string) (next string, idle time.Duration, err error) {
	var needs []core.Served
	var after string
	var from, to change.Version
	var limit int
	var lags bool
	var marks map[int32]store.Mark
	w.step(func() { lags = w.flow.LagInNeed() })
	if lags {
		if err := w.retryUntil(ctx, ctx, "read where the log begins", func() (err error) {
			marks, err = w.opt.Store.Marks(ctx)
			return err
		}); err != nil {
			return place, 0, err
		}
	}
	w.step(func() {
		needs, after, from, to, idle = w.flow.JoinWalk(place, marks, w.opt.Now())
		limit = max(1, min(repairPage, repairRows/max(1, w.flow.Services())))
	})
	if len(needs) == 0 {
		return place, idle, nil
	}
	var rows []store.Row
	if err := w.retryUntil(ctx, ctx, "read the states of entities", func() (err error) {
		rows, next, err = w.opt.Store.Moved(ctx, from, to, after, limit)
		return err
	}); err != nil {
		return place, 0, err
	}
	p := &pageRequests{walk: w, last: next, left: map[core.Need]int{}, failed: map[core.Need]bool{}, batches: map[int32]*requestBatch{}, done: make(chan struct{})}
	served := map[needOf]core.Served{}
	for _, r := range needs {
		if r.Covers(after, next) {
			served[needOf{r.Lane.Queue.Number, r.Lane.Partition.Number, r.Refresh}] = r
		}
	}
	n := p.collect(served, rows)
	w.step(func() {
		for _, r := range served {
			if p.left[r.Need] == 0 {
				p.advance(r.Need)
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
// are guarded by mu.
type pageRequests struct {
	*walk
	last    string // the page's last entity
	left    map[core.Need]int
	failed  map[core.Need]bool
	batches map[int32]*requestBatch // by inbox partition
	open    int                     // batches
	done    chan struct{}           // closed when the inbox has answered all batches
}

// requestBatch is the requests to one inbox partition.
type requestBatch struct {
	records []change.Record
	of      map[core.Need]bool
}

// collect makes the requests of a page: one for the services whose change of an entity has the
// same version and is lost, and one for those that refresh it. It returns how many.
func (p *pageRequests) collect(served map[needOf]core.Served, rows []store.Row) (n int) {
	operation := uuid.NewString()
	type version struct {
		change.Version
		refresh bool
	}
	open := map[version]*change.Control{} // of the entity
	for i, r := range rows {
		if i > 0 && r.Entity != rows[i-1].Entity {
			clear(open)
		}
		for _, refresh := range []bool{false, true} {
			of, found := served[needOf{r.Service, p.opt.Partition(r.Entity, r.Version), refresh}]
			if !found || r.Content == nil || refresh && (r.Refused || r.Content.IsRetracted()) || !of.Asks(r.Entity, r.Version) {
				continue
			}
			b := p.batch(p.opt.Partition(r.Entity, math.MaxUint64), of.Need)
			v := version{r.Version, refresh}
			if control := open[v]; control != nil && len(control.Services) < maxRequested {
				control.Services = append(control.Services, of.Lane.Queue.Name)
				continue
			}
			control := &change.Control{
				ID: operation + "/" + r.Entity, Action: change.Redecide, Services: []string{of.Lane.Queue.Name}, Version: r.Version,
				Force: true, Actor: change.Deliver, Reason: "its change was lost from the log",
			}
			if refresh {
				control.Actor, control.Reason = change.Refresh, "the service's period for it ended"
			}
			open[v] = control
			b.records = append(b.records, change.Record{Entity: r.Entity, Control: control})
			n++
		}
	}
	return n
}

// batch returns the batch of requests to an inbox partition, for a need.
func (p *pageRequests) batch(partition int32, n core.Need) *requestBatch {
	b := p.batches[partition]
	if b == nil {
		b = &requestBatch{of: map[core.Need]bool{}}
		p.batches[partition] = b
	}
	if !b.of[n] {
		b.of[n] = true
		p.left[n]++
	}
	return b
}

// append appends all batches, each in a goroutine of its own: one inbox partition that is
// blocked holds up no other. Part of step.
func (p *pageRequests) append(ctx context.Context) {
	if p.open = len(p.batches); p.open == 0 {
		close(p.done)
	}
	for _, b := range p.batches {
		for n := range b.of {
			n.Lane.Partition.Requesting()
		}
		p.running.Go(func() { p.answered(b, p.opt.Control(ctx, b.records...)) })
	}
}

// answered records the outcome of a batch.
func (p *pageRequests) answered(b *requestBatch, err error) {
	p.step(func() {
		for n := range b.of {
			p.left[n]--
			p.failed[n] = p.failed[n] || err != nil
			if n.Lane.Partition.Requested(err == nil, p.opt.Now()) && p.ctx.Err() == nil {
				p.log.Warn("inbox rejects requests to decide entities again; retrying", "event", "repair.blocked", "partition", n.Lane.Partition.Number, "error", err)
			}
			if p.left[n] == 0 && !p.failed[n] {
				p.advance(n)
			}
		}
		if p.open--; p.open == 0 {
			close(p.done)
		}
	})
	wait.Offer(p.wakeUp, struct{}{})
}

// advance moves a need behind the page; part of step.
func (p *pageRequests) advance(n core.Need) {
	if n.Visited(p.last) {
		p.log.Info("all lost changes are requested again", "event", "repair.done", "service", n.Lane.Queue.Name, "partition", n.Lane.Partition.Number)
	}
}
