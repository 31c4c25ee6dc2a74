package deliver

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/seed-86dfc502/weir/deliver/core"
	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/store"
)

// saver writes the progress of all partitions that moved to the store, in one
// transaction: at once when a worker waits for it, else a few times a second.
type saver struct {
	*shared
	parts   map[int32]*partition // guarded by mu; those that are assigned
	poked   chan struct{}        // capacity 1: something moved
	hurried chan struct{}        // capacity 1: a worker waits
	renewed chan struct{}        // capacity 1: the stage has another revision
	sem     chan struct{}        // capacity 1: full while a swap is under way; a caller waits no longer than its context
	done    chan struct{}        // guarded by mu; closed and replaced after each swap
}

// savePeriod is how often progress is written that no worker waits for.
const savePeriod = 200 * time.Millisecond

func newSaver(s *shared, parts map[int32]*partition) *saver {
	return &saver{
		shared: s, parts: parts, poked: make(chan struct{}, 1), hurried: make(chan struct{}, 1), renewed: make(chan struct{}, 1),
		sem: make(chan struct{}, 1), done: make(chan struct{}),
	}
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
		v.saveAll(v.opt.Limit, ctx)
	}
	last, cancel := context.WithTimeout(v.opt.Limit, lastSave)
	defer cancel()
	v.saveAll(last, ctx)
}

func (v *saver) saveAll(ctx, patience context.Context) {
	v.mu.Lock()
	var moved []*partition
	for _, p := range v.parts {
		if !p.Revoked() && !p.Stored(p.Edits()) {
			moved = append(moved, p)
		}
	}
	v.mu.Unlock()
	pause, halted := 50*time.Millisecond, false
	for failures := 0; len(moved) > 0; failures++ {
		err := v.save(ctx, moved)
		if err == nil {
			if halted {
				v.log.Info("resumed: the store accepts progress again", "event", "deliver.resumed")
			}
			break
		}
		if store.ClassOf(err) == store.Superseded {
			v.opt.Superseded()
			pause = time.Second
		} else if failures == 1 {
			halted = true
			v.log.Warn("halted: the store does not accept progress; retrying", "event", "deliver.halted", "error", err)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-v.renewed:
		case <-patience.Done():
			timer.Stop()
			return
		}
		timer.Stop()
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
	var swaps []store.ProgressSwap
	var swapped []*partition
	v.mu.Lock()
	for _, p := range parts {
		if swap, needed := p.Swap(store.NewToken()); needed {
			swaps, swapped = append(swaps, swap), append(swapped, p)
		}
	}
	v.mu.Unlock()
	if len(swaps) == 0 {
		return nil
	}
	crash.At(crash.Saving, "")
	done, err := v.opt.Store.SwapProgress(ctx, v.revision.Load(), swaps)
	if err != nil {
		_ = v.resolve(ctx, swapped) // else before the next one
		return err
	}
	crash.At(crash.Saved, "")
	v.step(func() {
		for i, p := range swapped {
			if p.Swapped(done[i]); !done[i] && !p.Revoked() {
				p.lost()
			}
		}
	})
	return nil
}

// resolve finds the outcome of swaps by the tokens of the rows. Only the holder of v.sem calls
// it.
func (v *saver) resolve(ctx context.Context, parts []*partition) error {
	v.mu.Lock()
	unsure := slices.ContainsFunc(parts, func(p *partition) bool { return p.Unsure() })
	v.mu.Unlock()
	if !unsure {
		return nil
	}
	rows, err := v.opt.Store.AllProgress(ctx)
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, p := range parts {
		p.Resolve(rows)
	}
	return nil
}

// checkTokens finds partitions that another process took over unnoticed, or that a restored store
// has in an earlier state.
func (v *saver) checkTokens(ctx context.Context) error {
	select {
	case v.sem <- struct{}{}:
		defer func() { <-v.sem }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	v.mu.Lock()
	parts := slices.Collect(maps.Values(v.parts)) // the rows need not have later ones
	v.mu.Unlock()
	rows, err := v.opt.Store.AllProgress(ctx)
	if err != nil {
		return err
	}
	v.step(func() {
		for _, p := range parts {
			if owned := p.Resolve(rows); !owned && !p.Revoked() {
				p.lost()
			}
		}
	})
	return nil
}

// await returns when the progress of partitions is saved, or they are revoked.
func (v *saver) await(work context.Context, parts []*core.Partition) error {
	v.mu.Lock()
	want := make(map[*core.Partition]uint64, len(parts))
	for _, p := range parts {
		want[p] = p.Edits()
	}
	v.mu.Unlock()
	for {
		v.mu.Lock()
		missing := false
		for p, edits := range want {
			missing = missing || !p.Revoked() && !p.Stored(edits)
		}
		done, released := v.done, v.released
		v.mu.Unlock()
		if !missing {
			return nil
		}
		wait.Offer(v.hurried, struct{}{})
		select {
		case <-done:
		case <-released:
		case <-v.ctx.Done(): // Run saves once more at its end
			return errStopped
		case <-work.Done():
			return context.Cause(work)
		}
	}
}
