package deliver

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/store"
)

// Outcomes of an attempt in the delivery history, beside OutcomeDelivered and
// OutcomeRedecided.
const (
	AttemptFailed  = "failed"  // retried
	AttemptPaused  = "paused"  // the whole service was refused: retried once that changes
	AttemptRefused = "refused" // a dead letter
	AttemptGaveUp  = "gave_up" // the last allowed one: a dead letter
)

const (
	// historyPeriod is how often attempts are written. A crash loses the attempts of one period.
	historyPeriod = time.Second
	// historyGroup is the most that one transaction writes.
	historyGroup = 1000
	// historyRoom is how many attempts may wait to be written, historyShare how many of one
	// service.
	historyRoom, historyShare = 32_768, 4096
)

// recorder writes the attempts of all services, in groups. An attempt that finds no room is
// lost and counted: the history never holds up a delivery. Safe for concurrent use.
type recorder struct {
	*calls
	hurried chan struct{} // capacity 1: a service has used half of its share

	mu      sync.Mutex
	waits   []unwritten   // guarded by mu; the oldest first
	waiting map[int32]int // guarded by mu; of waits, by service

	failing bool // owned by run
}

type unwritten struct {
	store.Attempt
	lost prometheus.Counter
}

func newRecorder(c *calls) *recorder {
	return &recorder{calls: c, hurried: make(chan struct{}, 1), waiting: map[int32]int{}}
}

// of returns the recorder for a service, nil if the service keeps no history.
func (h *recorder) of(o *Service) *recorder {
	if !o.History || h.opt.History == nil {
		return nil
	}
	return h
}

func (h *recorder) add(a unwritten) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.waiting[a.Service]
	if n == historyShare || len(h.waits) == historyRoom {
		a.lost.Inc()
		return
	}
	h.waits, h.waiting[a.Service] = append(h.waits, a), n+1
	if n == historyShare/2 {
		wait.Offer(h.hurried, struct{}{})
	}
}

// run writes until ctx ends, and then once more.
func (h *recorder) run(ctx context.Context) {
	tick := time.NewTicker(historyPeriod)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-tick.C:
		case <-h.hurried:
		case <-ctx.Done():
			continue
		}
		h.write(h.opt.Limit)
	}
	last, cancel := context.WithTimeout(h.opt.Limit, lastSave)
	defer cancel()
	h.write(last)
	h.conclude(len(h.waits), true)
}

// write writes the waiting attempts. Those of an unknown outcome, or that the store refuses,
// are not repeated; after another error the next call continues.
func (h *recorder) write(ctx context.Context) {
	for {
		h.mu.Lock()
		group := make([]store.Attempt, min(len(h.waits), historyGroup))
		for i := range group {
			group[i] = h.waits[i].Attempt
		}
		h.mu.Unlock()
		if len(group) == 0 {
			return
		}
		err := h.opt.History.AddAttempts(ctx, group)
		if err != nil && !h.failing {
			h.log.Warn("writing the delivery history failed; deliveries continue, and attempts beyond the room in memory are lost",
				"event", "history.write_failed", "error", err)
		}
		h.failing = err != nil
		if c := store.ClassOf(err); err != nil && c != store.Unknown && c != store.Poison {
			return
		}
		h.conclude(len(group), err != nil)
	}
}

// conclude removes the oldest attempts, which were written or are lost.
func (h *recorder) conclude(n int, lost bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.waits[:n] {
		a := &h.waits[i]
		if lost {
			a.lost.Inc()
		}
		h.waiting[a.Service]--
	}
	h.waits = slices.Delete(h.waits, 0, n)
}
