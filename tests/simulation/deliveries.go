package simulation

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/deliver/core"
	"github.com/seed-86dfc502/weir/store"
)

// diceOf returns the dice of one kind of call, of one service if it has a number.
func (c *client) diceOf(what string, service int32) *dice {
	what = fmt.Sprint(what, " ", service)
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.calls[what]
	if d == nil {
		if c.calls == nil {
			c.calls = map[string]*dice{}
		}
		d = c.p.w.dice(c.name + " " + what)
		c.calls[what] = d
	}
	return d
}

// read is a call that only reads, with dice of its own; nothing comes of one that fails.
func read[T any](ctx context.Context, c *client, what string, of int32, do func() (T, error)) (found T, err error) {
	var none T
	err = c.call(ctx, c.diceOf(what, of), what, store.Retry, func() (err error) { found, err = do(); return err })
	if err != nil {
		return none, err
	}
	return found, nil
}

func (c *client) Rows(ctx context.Context, keys []store.Key) ([]store.Row, error) {
	return read(ctx, c, "read rows", keys[0].Service, func() ([]store.Row, error) { return c.Memory.Rows(ctx, keys) })
}

// Frames may break the rules of a look at the log.
func (c *client) Frames(ctx context.Context, partition int32, after change.Version, bytes int) (store.Tail, error) {
	rules, d := c.p.w.rules, c.diceOf("read frames", partition)
	if !c.p.w.setup.gentle && c.p.w.fault(d, "frames come slowly", 10) {
		if err := sleep(ctx, d.upTo(4*time.Second)); err != nil {
			return store.Tail{}, err
		}
	}
	tail, err := read(ctx, c, "read frames", partition, func() (store.Tail, error) {
		if bytes = 1; d.chance(0.5) {
			bytes += d.n(4000)
		}
		return c.Memory.Frames(ctx, partition, after, bytes)
	})
	if err != nil {
		return tail, err
	}
	switch {
	case rules.NoPrev:
		for i := range tail.Frames {
			tail.Frames[i].Body = unlinked(tail.Frames[i].Body)
		}
	case rules.NoEnd && len(tail.Frames) == 0:
		tail.LastTo = after
	case rules.EndLate:
		if err = sleep(ctx, d.trip()); err == nil {
			var later store.Tail
			later, err = c.Memory.Frames(ctx, partition, after, bytes)
			tail.LastTo = later.LastTo
		}
	}
	if c.p.w.traced {
		c.p.w.note("%s: reads %d frames of %d after %v, the log ends at %v", c.p.name, len(tail.Frames), partition, after, tail.LastTo)
	}
	return tail, err
}

// unlinked is a frame that seems to be the first of its partition.
func unlinked(frame []byte) []byte {
	f, err := change.ParseFrame(frame)
	if err != nil {
		panic(err) // decide made it
	}
	var b change.FrameBuilder
	for i := range f.Slices {
		for c, err := range f.Slices[i].All("") {
			if err != nil {
				panic(err)
			}
			b.Add(f.Slices[i].Service, &c)
		}
	}
	return b.AppendTo(nil, change.Frame{From: f.From, To: f.To, Revision: f.Revision})
}

// startAtEnd moves services without a position to the end of the log.
func (c *client) startAtEnd(taken []store.Progress) {
	marks, _ := c.Memory.Marks(context.Background())
	for i := range taken {
		row := &taken[i]
		row.Positions = slices.Clone(row.Positions)
		for _, s := range c.p.now().Services {
			if !slices.ContainsFunc(row.Positions, func(p store.ServicePosition) bool { return p.Service == s.Number }) {
				row.Positions = append(row.Positions, store.ServicePosition{Service: s.Number, Version: marks[row.Partition].LastTo})
			}
		}
		slices.SortFunc(row.Positions, func(a, b store.ServicePosition) int { return int(a.Service - b.Service) })
	}
}

func (c *client) TakeProgress(ctx context.Context, partitions []int32, token store.Token) (taken []store.Progress, err error) {
	err = c.call(ctx, c.diceOf("take progress", partitions[0]), "take progress", store.Unknown, func() (err error) {
		taken, err = c.Memory.TakeProgress(ctx, partitions, token)
		return err
	})
	if err != nil {
		return nil, err
	}
	if c.p.w.rules.StartEnd {
		c.startAtEnd(taken)
	}
	if c.p.w.traced {
		for i := range taken {
			c.p.w.note("%s: takes progress %d: %v", c.p.name, taken[i].Partition, taken[i].Positions)
		}
	}
	return taken, nil
}

func (c *client) SwapProgress(ctx context.Context, revision int64, swaps []store.ProgressSwap) (swapped []bool, err error) {
	rules := c.p.w.rules
	if rules.PassesSlices {
		swaps = slices.Clone(swaps)
		for i := range swaps {
			swaps[i].Positions = farthest(swaps[i].Positions)
		}
	}
	err = c.call(ctx, c.diceOf("swap progress", 0), "swap progress", store.Unknown, func() (err error) {
		if rules.NoToken {
			c.Memory.forgeProgress(swaps)
		}
		swapped, err = c.Memory.SwapProgress(ctx, revision, swaps)
		return err
	})
	if err != nil {
		return nil, err
	}
	if c.p.w.traced {
		for i := range swaps {
			c.p.w.note("%s: progress %d: %v %v", c.p.name, swaps[i].Partition, swaps[i].Positions, swapped[i])
		}
	}
	return swapped, nil
}

// farthest moves every service to the position of the one that is farthest.
func farthest(positions []store.ServicePosition) []store.ServicePosition {
	positions = slices.Clone(positions)
	far := store.Top(positions)
	for i := range positions {
		positions[i].Version = far
	}
	return positions
}

// forgeProgress makes tokens match.
func (m *Memory) forgeProgress(swaps []store.ProgressSwap) {
	_ = m.run(context.Background(), func() error {
		for _, s := range swaps {
			row := m.state.progress[s.Partition]
			row.token, row.session = s.Old, m.session
			m.state.progress[s.Partition] = row
		}
		return nil
	})
}

func (c *client) AllProgress(ctx context.Context) ([]store.Progress, error) {
	return read(ctx, c, "read progress", 0, func() ([]store.Progress, error) { return c.Memory.AllProgress(ctx) })
}

func (c *client) Moved(ctx context.Context, from, to change.Version, after string, limit int) (rows []store.Row, last string, err error) {
	rows, err = read(ctx, c, "read moved", 0, func() (rows []store.Row, err error) {
		rows, last, err = c.Memory.Moved(ctx, from, to, after, limit)
		return rows, err
	})
	return rows, last, err
}

// restoreFrom restores a backup. Progress may stay as it is, which breaks a rule.
func (m *Memory) restoreFrom(s Snapshot, keepProgress bool) {
	_ = m.run(context.Background(), func() error {
		kept := m.state.progress
		m.state = s.state.clone()
		if keepProgress {
			m.state.progress = kept
			return nil
		}
		m.session++
		return nil
	})
}

// undone says what of the inbox is not decided, or which position is below the last
// frame that was decided; empty when all is done.
// A service that is fresh in a partition, where nothing of it was decided, needs no position.
func (m *Memory) undone(inbox *topic, services []decide.Service, fresh func(service string, partition int32, to change.Version) bool) (why string) {
	_ = m.run(context.Background(), func() error {
		marks := m.state.newest()
		for p := range inbox.parts {
			if at := marks[int32(p)].Watermark.Offset(); at < inbox.end(p) {
				why = fmt.Sprintf("partition %d of the inbox is decided to %d of %d", p, at, inbox.end(p))
			}
		}
		for p, at := range marks {
			row := m.state.progress[p]
			for _, s := range services {
				i := slices.IndexFunc(row.positions, func(sp store.ServicePosition) bool { return sp.Service == s.Number })
				if i < 0 && fresh(s.Name, p, at.LastTo) {
					continue
				}
				if at.LastTo > 0 && (i < 0 || row.positions[i].Version < at.LastTo) {
					why = fmt.Sprintf("the position of %s in partition %d is not at %v: %v", s.Name, p, at.LastTo, row.positions)
				}
				if i >= 0 && row.positions[i].Repair != "" {
					why = fmt.Sprintf("%s lost changes of partition %d that are not decided again", s.Name, p)
				}
			}
		}
		for _, l := range m.state.letters {
			if l.State == store.LetterRetrying && slices.ContainsFunc(services, func(s decide.Service) bool { return s.Name == l.Service }) {
				why = fmt.Sprintf("%s, entity %s: version %v waits for another attempt", l.Service, l.Entity, l.Version)
			}
		}
		return nil
	})
	return why
}

// delivered returns the lowest position of services, by partition.
func (m *Memory) delivered(services []decide.Service) map[int32]change.Version {
	lowest := map[int32]change.Version{}
	_ = m.look(context.Background(), func(s *state) {
		for partition, row := range s.progress {
			low := store.Top(row.positions) // where a new service begins
			for _, at := range row.positions {
				if slices.ContainsFunc(services, func(s decide.Service) bool { return s.Number == at.Service }) {
					low = min(low, core.FirstLost(at.Repair, at.Version))
				}
			}
			lowest[partition] = low
		}
	})
	return lowest
}
