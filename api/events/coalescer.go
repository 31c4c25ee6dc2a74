package events

import (
	"context"
	"sync"
)

// coalescer joins calls that arrive at the same time into one, so that requests
// share a transaction of the ledger and its fsync. Calls of one tenant are
// joined, the events of two tenants never. A call's result is as if it had been made alone.
type coalescer[In, Out any] struct {
	// do is the joined call; its results are in the order of in.
	do func(ctx context.Context, tenant string, in []In) ([]Out, error)

	mu    sync.Mutex
	lines map[string]*line[In, Out] // by tenant, while it has work; guarded by mu
}

// Bounds of joined calls: inputs in one (a larger call goes alone), and calls
// at a time per tenant.
const (
	maxTogether = 512
	maxWorkers  = 4
)

type line[In, Out any] struct {
	waiting []*call[In, Out]
	workers int
}

type call[In, Out any] struct {
	ctx  context.Context
	in   []In
	out  []Out
	err  error
	done chan struct{} // closed when out and err are there
}

// call waits for its turn and its results, or for the end of ctx: then the call may
// still take effect.
func (t *coalescer[In, Out]) call(ctx context.Context, tenant string, in []In) ([]Out, error) {
	c := &call[In, Out]{ctx: ctx, in: in, done: make(chan struct{})}
	t.mu.Lock()
	if t.lines == nil {
		t.lines = map[string]*line[In, Out]{}
	}
	l := t.lines[tenant]
	if l == nil {
		l = &line[In, Out]{}
		t.lines[tenant] = l
	}
	l.waiting = append(l.waiting, c)
	if l.workers < maxWorkers {
		l.workers++
		go t.work(tenant, l)
	}
	t.mu.Unlock()
	select {
	case <-c.done:
		return c.out, c.err
	case <-ctx.Done():
	}
	select {
	case <-c.done: // both at the same time: what was found is known, and can be given back
		return c.out, c.err
	default:
		return nil, context.Cause(ctx)
	}
}

// work makes joined calls until none waits.
func (t *coalescer[In, Out]) work(tenant string, l *line[In, Out]) {
	for {
		t.mu.Lock()
		calls := t.next(l)
		if len(calls) == 0 {
			l.workers--
			if l.workers == 0 && len(l.waiting) == 0 {
				delete(t.lines, tenant)
			}
			t.mu.Unlock()
			return
		}
		t.mu.Unlock()
		t.run(tenant, calls)
	}
}

// next takes the calls that go together now, oldest first.
func (t *coalescer[In, Out]) next(l *line[In, Out]) (calls []*call[In, Out]) {
	var rest []*call[In, Out]
	n := 0
	for _, c := range l.waiting {
		switch {
		case c.ctx.Err() != nil: // its request has ended
		case n > 0 && n+len(c.in) > maxTogether:
			rest = append(rest, c)
		default:
			calls, n = append(calls, c), n+len(c.in)
		}
	}
	l.waiting = rest
	return calls
}

// run makes one joined call, which ends when all that wait for it have gone.
func (t *coalescer[In, Out]) run(tenant string, calls []*call[In, Out]) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(calls[0].ctx))
	defer cancel()
	var left sync.WaitGroup
	var in []In
	for _, c := range calls {
		in = append(in, c.in...)
		left.Add(1)
		stop := context.AfterFunc(c.ctx, left.Done)
		defer func() {
			if stop() {
				left.Done()
			}
		}()
	}
	go func() { left.Wait(); cancel() }()
	out, err := t.do(ctx, tenant, in)
	for _, c := range calls {
		if err == nil {
			c.out, out = out[:len(c.in):len(c.in)], out[len(c.in):]
		}
		c.err = err
		close(c.done)
	}
}
