package simulation

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/seed-86dfc502/weir/store"
)

var errStore = errors.New("the store did not answer")

// client is one process's connection to the store. Requests and answers take
// time and get lost; a request that the process never sends has no effect.
type client struct {
	*Memory
	p    *process
	dice *dice
	// workers have their own: they call at the same time. Only decide has any.
	workers []*laneLink
	// calls have their own in deliver, by the name of the call: they are made at the same
	// time, too.
	name  string
	mu    sync.Mutex
	calls map[string]*dice // guarded by mu
}

// laneLink is shared by a worker's connections to store and broker.
type laneLink struct {
	*dice
	w      *world
	mu     sync.Mutex
	failed time.Time // guarded by mu: the last failure that the worker retries
	n      int       // guarded by mu: how many in a row
}

// fails notes a failure.
func (l *laneLink) fails() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = time.Now()
	l.n++
}

func (l *laneLink) works() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n = 0
}

// settle waits for the end of the longest back-off that the worker may have drawn
// after a failure. Its jitter is not ours to draw; like this it does not show.
func (l *laneLink) settle(ctx context.Context) error {
	l.mu.Lock()
	wait := 30 * time.Millisecond // 20 ms and half of it
	for range min(l.n-1, 11) {
		wait += wait / 2
	}
	until := time.Until(l.failed.Add(wait))
	n := l.n
	l.mu.Unlock()
	if n == 0 || until <= 0 {
		return nil
	}
	return sleep(ctx, until)
}

// of returns the worker that has a partition.
func (c *client) of(p store.Partition) *laneLink { return c.workers[int(p.Number)%len(c.workers)] }

// outcome of a call that fails.
type outcome int

const (
	fine   outcome = iota
	before         // it fails and nothing is done
	after          // it is done and the answer is lost
	fenced
)

// call brings a request to the store, runs it there and brings the answer back.
func (c *client) call(ctx context.Context, d *dice, what string, unsure store.Class, do func() error) error {
	if err := c.p.reach(ctx, d.trip()); err != nil {
		return err
	}
	var fate outcome
	switch {
	case c.p.w.fault(d, what+" fails", 1):
		return errStore
	case c.p.w.fault(d, what+" lost, answer too", 0.5):
		return store.WithClass(errStore, unsure)
	case c.p.w.fault(d, what+" done, answer lost", 0.5):
		fate = after
	}
	if err := do(); err != nil {
		return err
	}
	if c.p.w.traced {
		c.p.w.note("%s: %s", c.p.name, what)
	}
	c.p.w.point(c.p)
	if err := sleep(ctx, d.trip()); err != nil {
		return store.WithClass(err, unsure)
	}
	c.p.thaw()
	switch {
	case c.p.dead.Load():
		return errDead
	case fate == after:
		return store.WithClass(errStore, unsure)
	}
	return nil
}

func (c *client) TakeOver(ctx context.Context, partitions []store.Partition, token store.Token) (taken []store.TakenOver, err error) {
	if len(partitions) == 0 {
		return nil, nil
	}
	worker := c.of(partitions[0])
	if err := worker.settle(ctx); err != nil {
		return nil, err
	}
	err = c.call(ctx, worker.dice, "take over", store.Unknown, func() (err error) {
		taken, err = c.Memory.TakeOver(ctx, partitions, token)
		return err
	})
	if err != nil {
		worker.fails()
		return nil, err
	}
	return taken, nil
}

func (c *client) Decide(ctx context.Context, d store.Decision, decide func(store.Loaded) (store.Outcome, error)) error {
	rules := c.p.w.rules
	worker := c.of(d.Moves[0].Partition)
	if c.p.w.fault(worker.dice, "decide fenced for nothing", 0.3) {
		return store.ErrFenced
	}
	err := c.call(ctx, worker.dice, "decide", store.Unknown, func() (err error) {
		if rules.NoRevision {
			d.Revision = c.Memory.active()
		}
		if rules.NoWatermark {
			c.Memory.forge(d.Moves)
		}
		return c.Memory.Decide(ctx, d, func(loaded store.Loaded) (store.Outcome, error) {
			out, err := decide(loaded)
			if err == nil && len(d.Entities) == 0 && len(d.Claims) == 0 {
				c.p.w.count("decided from memory")
				// What may happen meanwhile happens before the request.
				if err = sleep(ctx, worker.trip()); err == nil {
					err = c.p.ready()
				}
			}
			c.cuts(out.Frames, err)
			if rules.HandEarly {
				for i := range out.Frames {
					c.p.handOver(&out.Frames[i])
				}
			}
			if rules.SplitDecision && worker.chance(0.05) {
				out = store.Outcome{}
			}
			return out, err
		})
	})
	if err == nil {
		worker.works()
	}
	return err
}

// cuts counts what decide cut: batches and frames.
func (c *client) cuts(frames []store.Frame, err error) {
	if err != nil && strings.Contains(err.Error(), "more than one decision may have") {
		c.p.w.count("batch cut")
	}
	for i := range frames {
		if i > 0 && frames[i].Partition == frames[i-1].Partition {
			c.p.w.count("frame cut")
		}
	}
}

// active returns the number of the active revision.
func (m *Memory) active() (number int64) {
	_ = m.look(context.Background(), func(s *state) { number = int64(len(s.revisions)) })
	return number
}

// forge makes watermarks match.
func (m *Memory) forge(moves []store.WatermarkStep) {
	_ = m.run(context.Background(), func() error {
		for _, mv := range moves {
			at := m.state.marks[mv.Partition]
			at.next, at.token = mv.From, mv.Token
			m.state.marks[mv.Partition] = at
		}
		return nil
	})
}

func (c *client) AddLetters(ctx context.Context, letters []store.DeadLetter) error {
	return c.call(ctx, c.diceOf("add letters", 0), "add letters", store.Unknown, func() error { return c.Memory.AddLetters(ctx, letters) })
}
