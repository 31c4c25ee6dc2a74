package deliver

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/store"
)

// saver writes the progress of all partitions that moved to the store, in one
// transaction: at once when a worker waits for it, else a few times a second.
type saver struct {
	s       *Stage
	poked   chan struct{} // capacity 1: something moved
	hurried chan struct{} // capacity 1: a worker waits
	sem     chan struct{} // capacity 1: full while a swap is under way; a caller waits no longer than its context

	mu   sync.Mutex
	done chan struct{} // guarded by mu; closed and replaced after each swap
}

// savePeriod is how often progress is written that no worker waits for.
const savePeriod = 200 * time.Millisecond

func (v *saver) init(s *Stage) {
	v.s, v.poked, v.hurried, v.done = s, make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{})
	v.sem = make(chan struct{}, 1)
}

func (v *saver) poke() { wait.Offer(v.poked, struct{}{}) }

// run saves until ctx ends, and then once more.
func (v *saver) run(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-v.hurried:
		case <-v.poked:
			select {
			case <-time.After(savePeriod):
			case <-v.hurried:
			case <-ctx.Done():
			}
		case <-ctx.Done():
		}
		v.saveAll(v.s.limit, ctx)
	}
	last, cancel := context.WithTimeout(v.s.limit, lastSave)
	defer cancel()
	v.saveAll(last, ctx)
}

func (v *saver) saveAll(ctx, patience context.Context) {
	v.s.mu.Lock()
	var moved []*partition
	for _, p := range v.s.parts {
		if !p.gone && p.edits != p.stored {
			moved = append(moved, p)
		}
	}
	v.s.mu.Unlock()
	pause, halted := 50*time.Millisecond, false
	for failures := 0; len(moved) > 0; failures++ {
		err := v.save(ctx, moved)
		if err == nil {
			if halted {
				v.s.log.Info("resumed: the store takes the progress of deliveries again", "event", "deliver.resumed")
			}
			break
		}
		if store.ClassOf(err) == store.Superseded {
			v.s.opt.Superseded()
			pause = time.Second
		} else if failures == 1 {
			halted = true
			v.s.log.Warn("halted: the store does not take the progress of deliveries; trying again until it does", "event", "deliver.halted", "error", err)
		}
		if !wait.Sleep(patience, pause) {
			return
		}
		pause = min(2*pause, 2*time.Second)
	}
	v.mu.Lock()
	close(v.done)
	v.done = make(chan struct{})
	v.mu.Unlock()
}

// save swaps the rows of partitions, once. Partitions that the store has under another
// token are lost.
func (v *saver) save(ctx context.Context, parts []*partition) error {
	select {
	case v.sem <- struct{}{}:
		defer func() { <-v.sem }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := v.resolve(ctx, parts); err != nil {
		return err
	}
	swaps, swapped := v.swaps(parts)
	if len(swaps) == 0 {
		return nil
	}
	crash.At(crash.Saving, "")
	done, err := v.s.opt.Store.SwapProgress(ctx, v.s.revision.Load(), swaps)
	if err != nil {
		_ = v.resolve(ctx, swapped) // else before the next one
		return err
	}
	crash.At(crash.Saved, "")
	var lost []*partition
	v.s.mu.Lock()
	for i, p := range swapped {
		if !done[i] {
			if !p.gone {
				lost = append(lost, p)
			}
			p.swap = nil
			continue
		}
		p.swapped()
	}
	v.s.mu.Unlock()
	v.s.onProgressLost(lost)
	return nil
}

// swaps returns the swaps that partitions need, and their partitions, which remember
// them.
func (v *saver) swaps(parts []*partition) (swaps []store.ProgressSwap, of []*partition) {
	v.s.mu.Lock()
	defer v.s.mu.Unlock()
	for _, p := range parts {
		if p.edits == p.stored {
			continue
		}
		t := &progressSwap{token: newToken(), positions: p.positions(), edits: p.edits}
		if slices.Equal(t.positions, p.saved) && len(p.rows) == 0 {
			p.stored = p.edits
			continue
		}
		p.swap = t
		swap := store.ProgressSwap{
			Progress: store.Progress{Partition: p.number, Token: t.token, Positions: t.positions}, Old: p.token, Saved: p.saved, Floor: p.floor,
		}
		p.rowSwap(&swap)
		swaps = append(swaps, swap)
		of = append(of, p)
	}
	return swaps, of
}

// resolve finds out the outcome of swaps by the tokens of the rows. The caller holds
// v.sem.
func (v *saver) resolve(ctx context.Context, parts []*partition) error {
	v.s.mu.Lock()
	unsure := slices.ContainsFunc(parts, func(p *partition) bool { return p.swap != nil })
	v.s.mu.Unlock()
	if !unsure {
		return nil
	}
	rows, err := v.s.opt.Store.AllProgress(ctx)
	if err != nil {
		return err
	}
	v.s.mu.Lock()
	defer v.s.mu.Unlock()
	resolveSwaps(rows, parts)
	return nil
}

// resolveSwaps applies the swaps that the rows show as done, and drops the others. The caller holds the stage's mutex.
func resolveSwaps(rows []store.Progress, parts []*partition) {
	for _, p := range parts {
		t := p.swap
		if t != nil && slices.ContainsFunc(rows, func(r store.Progress) bool { return r.Partition == p.number && r.Token == t.token }) {
			p.swapped()
		}
		p.swap = nil
	}
}

// swapped applies the swap that was done. The caller holds the stage's mutex.
func (p *partition) swapped() {
	t := p.swap
	p.token, p.saved, p.stored = t.token, t.positions, t.edits
	p.swap = nil
	maps.DeleteFunc(p.rows, func(_ string, e rowEdit) bool { return e.at <= t.edits })
}

// await returns when the progress of partitions is saved, or they are revoked.
func (v *saver) await(work context.Context, parts []*partition) error {
	v.s.mu.Lock()
	want := make(map[*partition]uint64, len(parts))
	for _, p := range parts {
		want[p] = p.edits
	}
	v.s.mu.Unlock()
	for {
		v.mu.Lock()
		done := v.done
		v.mu.Unlock()
		v.s.mu.Lock()
		missing := false
		for p, edits := range want {
			missing = missing || !p.gone && p.stored < edits
		}
		released := v.s.released
		v.s.mu.Unlock()
		if !missing {
			return nil
		}
		wait.Offer(v.hurried, struct{}{})
		select {
		case <-done:
		case <-released:
		case <-v.s.ctx.Done(): // Run saves once more at its end
			return errStopped
		case <-work.Done():
			return context.Cause(work)
		}
	}
}

// looks shares looks at the store: a caller gets one that began after it called. Its sem
// and read are set once.
type looks struct {
	read  func(ctx context.Context) (store.HistorySnapshot, error)
	sem   chan struct{} // capacity 1: full while a look is under way
	begun atomic.Int64

	// Of the last look that succeeded; owned by the holder of sem.
	last *store.HistorySnapshot
	of   int64
}

// lookTimeout bounds one look, for which others may wait.
const lookTimeout = time.Minute

func (l *looks) look(ctx context.Context) (*store.HistorySnapshot, error) {
	before := l.begun.Load()
	select {
	case l.sem <- struct{}{}:
		defer func() { <-l.sem }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if l.of > before {
		return l.last, nil
	}
	n := l.begun.Add(1)
	within, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	look, err := l.read(within)
	if err != nil {
		return nil, err
	}
	l.last, l.of = &look, n
	return l.last, nil
}
