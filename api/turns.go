package api

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"
)

const (
	// turnsPerProcessor is how many requests of all active tenants are worked on at a time, for
	// each processor: most of them wait for a commit that they share.
	turnsPerProcessor = 32
	// leastTurns is what each active tenant has, however many there are.
	leastTurns = 2
	// activeFor is how long after its last request a tenant counts as active.
	activeFor = time.Second
)

// turns shares the work between tenants: while several are active, none has more than its
// equal part of all turns at work; the rest of its requests wait in their order. A tenant
// alone has no bound. It may be used concurrently.
type turns struct {
	most int // of all tenants

	mu      sync.Mutex
	lanes   map[string]*lane // the active tenants; guarded by mu
	checked time.Time        // when lanes were last cleared of inactive ones; guarded by mu
}

// lane is an active tenant.
type lane struct {
	atWork  int
	waiting []chan struct{} // closed when the turn has come
	last    time.Time
}

func newTurns() *turns {
	return &turns{most: turnsPerProcessor * runtime.GOMAXPROCS(0), lanes: map[string]*lane{}}
}

// wait takes a turn of the tenant and returns how to return it, or nil when ctx ends first.
func (t *turns) wait(ctx context.Context, tenant string) (release func()) {
	release = func() { t.release(tenant) }
	t.mu.Lock()
	now := time.Now()
	t.clear(now)
	l := t.lanes[tenant]
	if l == nil {
		l = &lane{}
		t.lanes[tenant] = l
	}
	l.last = now
	turn := make(chan struct{})
	l.waiting = append(l.waiting, turn)
	t.grant(l)
	t.mu.Unlock()
	select {
	case <-turn:
		return release
	case <-ctx.Done():
	}
	t.mu.Lock()
	i := slices.Index(l.waiting, turn)
	if i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
	t.mu.Unlock()
	if i < 0 { // it came at the same time
		return release
	}
	return nil
}

// release ends the work of one request.
func (t *turns) release(tenant string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lanes[tenant]
	l.atWork--
	t.grant(l)
}

// grant lets the oldest requests of a tenant begin, up to its part.
func (t *turns) grant(l *lane) {
	for len(l.waiting) > 0 && (len(t.lanes) == 1 || l.atWork < max(leastTurns, t.most/len(t.lanes))) {
		close(l.waiting[0])
		l.waiting = l.waiting[1:]
		l.atWork++
	}
}

// clear removes tenants that are no longer active, from time to time, which leaves more to
// the others.
func (t *turns) clear(now time.Time) {
	if now.Sub(t.checked) < activeFor/4 {
		return
	}
	t.checked = now
	for tenant, l := range t.lanes {
		if l.atWork == 0 && len(l.waiting) == 0 && now.Sub(l.last) >= activeFor {
			delete(t.lanes, tenant)
		}
	}
}
