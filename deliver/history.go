package deliver

import (
	"context"
	"sync"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/sinks"
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

// attemptFailed returns the outcome of an attempt that is repeated.
func attemptFailed(e *sinks.Error) string {
	if e.Class == sinks.Pause {
		return AttemptPaused
	}
	return AttemptFailed
}

// Attempts is the store's side of the delivery history.
type Attempts interface {
	AddAttempts(ctx context.Context, attempts []store.Attempt) error
}

const (
	// historyPeriod is how often attempts are written; a crash loses so much of them.
	historyPeriod = time.Second
	// historyGroup is the most that one transaction writes.
	historyGroup = 1000
	// historyRoom is how many attempts wait to be written, over all services; each
	// has room for historyShare.
	historyRoom, historyShare = 32_768, 128
)

// ring holds the attempts of a service that wait to be written. A full ring overwrites
// the oldest: the history never holds up a delivery. Safe for
// concurrent use.
type ring struct {
	h    *recorder
	room int
	drop func() // counts what is overwritten

	mu    sync.Mutex
	waits []store.Attempt // guarded by mu; the oldest first
}

func (r *ring) add(a store.Attempt) {
	r.mu.Lock()
	if len(r.waits) == r.room {
		r.waits[0] = store.Attempt{} // its texts
		r.waits = r.waits[1:]
		r.drop()
	}
	r.waits = append(r.waits, a)
	n := len(r.waits)
	r.mu.Unlock()
	wait.Offer(r.h.grown, struct{}{})
	if n >= r.room/2 {
		wait.Offer(r.h.hurried, struct{}{})
	}
}

// takeAll empties the ring.
func (r *ring) takeAll(to []store.Attempt) []store.Attempt {
	r.mu.Lock()
	defer r.mu.Unlock()
	to = append(to, r.waits...)
	clear(r.waits) // their texts
	r.waits = r.waits[:0]
	return to
}

// recorder writes the attempts of all services, in groups.
type recorder struct {
	s       *Stage
	mu      sync.Mutex
	rings   map[int32]*ring // guarded by mu; by service
	grown   chan struct{}   // capacity 1: there is something to write
	hurried chan struct{}   // capacity 1: a ring is half full

	pending []store.Attempt // owned by run: what the store has not taken yet
	failing bool            // owned by run
}

// newRecorder makes the recorder, and the rings of the services that have a history.
func newRecorder(s *Stage) *recorder {
	h := &recorder{s: s, rings: map[int32]*ring{}, grown: make(chan struct{}, 1), hurried: make(chan struct{}, 1)}
	var with []*worker
	for _, w := range s.workers {
		if w.opt.History && s.opt.History != nil {
			with = append(with, w)
		}
	}
	for _, w := range with {
		w.history = &ring{h: h, room: max(historyShare, historyRoom/len(with)), drop: w.m.unrecorded.Inc}
		h.rings[w.opt.Number] = w.history
	}
	return h
}

// add sets the ring of a service that a reconfiguration added: its predecessor's, if any.
func (h *recorder) add(w *worker) {
	if !w.opt.History || h.s.opt.History == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.rings[w.opt.Number] == nil {
		h.rings[w.opt.Number] = &ring{h: h, room: max(historyShare, historyRoom/(len(h.rings)+1)), drop: w.m.unrecorded.Inc}
	}
	w.history = h.rings[w.opt.Number]
}

// takeAll empties all rings.
func (h *recorder) takeAll(to []store.Attempt) []store.Attempt {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.rings {
		to = r.takeAll(to)
	}
	return to
}

// run writes until ctx ends, and then once more.
func (h *recorder) run(ctx context.Context) {
	for ctx.Err() == nil {
		if len(h.pending) == 0 {
			select {
			case <-h.grown:
			case <-ctx.Done():
			}
		}
		select {
		case <-time.After(historyPeriod):
		case <-h.hurried:
		case <-ctx.Done():
		}
		if h.write(h.s.limit) || ctx.Err() != nil {
			continue
		}
		wait.Sleep(ctx, historyPeriod) // even when a ring is half full
	}
	last, cancel := context.WithTimeout(h.s.limit, lastSave)
	defer cancel()
	if !h.write(last) {
		h.lose(h.pending)
		h.lose(h.takeAll(nil))
	}
}

// write writes what waits and reports whether the store took it. What the store may have
// taken, or never takes, is not written again.
func (h *recorder) write(ctx context.Context) bool {
	for {
		if len(h.pending) == 0 {
			h.pending = h.takeAll(nil)
		}
		if len(h.pending) == 0 {
			return true
		}
		group := h.pending[:min(len(h.pending), historyGroup)]
		if err := h.s.opt.History.AddAttempts(ctx, group); err != nil {
			if !h.failing {
				h.failing = true
				h.s.log.Warn("the store does not take the delivery history: what finds no room until it does is lost; deliveries go on", "error", err)
			}
			if c := store.ClassOf(err); c != store.Unknown && c != store.Poison {
				return false
			}
			h.lose(group)
		} else {
			h.failing = false
		}
		h.pending = h.pending[len(group):]
	}
}

// lose counts lost attempts.
func (h *recorder) lose(attempts []store.Attempt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range attempts {
		h.rings[attempts[i].Service].drop()
	}
}

// writeAttempt is one call of Write, for the history.
type writeAttempt struct {
	r        *ring // nil: there is none
	service  int32
	start    time.Time
	took     time.Duration
	receipts []sinks.Receipt
	answered bool // the sink gave receipts
}

// beginAttempt begins a Write of n changes, under the context that is returned.
func (w *worker) beginAttempt(ctx context.Context, n int) (context.Context, writeAttempt) {
	t := writeAttempt{r: w.history, service: w.opt.Number, start: time.Now()}
	if t.r != nil {
		t.receipts = make([]sinks.Receipt, n)
		ctx = sinks.WithReceipts(ctx, t.receipts)
	}
	return ctx, t
}

// ended is called when Write has returned.
func (t *writeAttempt) ended() {
	t.took = time.Since(t.start)
	for i := range t.receipts {
		t.answered = t.answered || !t.receipts[i].At.IsZero()
	}
}

// record adds the outcome of the change at index i; e is nil if it took effect.
func (t *writeAttempt) record(i int, c *change.Change, outcome string, e *sinks.Error) {
	if t.r == nil {
		return
	}
	receipt := t.receipts[i]
	if receipt.At.IsZero() {
		if e != nil && (t.answered || !e.Attempted()) {
			return
		}
		receipt.At, receipt.Took = t.start, t.took
	}
	a := store.Attempt{
		Service: t.service, Entity: c.Entity, At: receipt.At.Truncate(time.Microsecond), Version: c.Version, Outcome: outcome,
		Status: receipt.Answer.Status, Answer: receipt.Answer.Body, Took: receipt.Took,
	}
	if e != nil && a.Status == 0 {
		a.Answer = []byte(cutTo(Cause(e), sinks.MaxAnswer))
	}
	t.r.add(a)
}
