package simulation

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// progress is a row of one partition, with the run of the server in which it was
// taken.
type progress struct {
	token     store.Token
	positions []store.ServicePosition
	session   int
}

// newest returns, by partition, how far decisions are in its newest generation.
func (s *state) newest() map[int32]store.Mark {
	marks, of := map[int32]store.Mark{}, map[int32]uint16{}
	for p, at := range s.marks {
		if p.Generation >= of[p.Number] {
			of[p.Number] = p.Generation
			marks[p.Number] = store.Mark{Watermark: change.NewVersion(p.Generation, at.next), LastTo: at.lastTo}
			if frames := s.frames[p.Number]; len(frames) > 0 {
				of := marks[p.Number]
				of.Begins = frames[0].To
				marks[p.Number] = of
			}
		}
	}
	return marks
}

// Marks implements store.Deliveries.
func (m *Memory) Marks(ctx context.Context) (marks map[int32]store.Mark, err error) {
	err = m.look(ctx, func(s *state) { marks = s.newest() })
	return marks, err
}

// Frames implements store.Deliveries.
func (m *Memory) Frames(ctx context.Context, partition int32, after change.Version, bytes int) (tail store.Tail, err error) {
	err = m.look(ctx, func(s *state) {
		tail.Owner = s.progress[partition].token
		for p, at := range s.marks {
			if p.Number == partition {
				tail.LastTo = max(tail.LastTo, at.lastTo)
			}
		}
		size := 0
		for _, f := range s.frames[partition] {
			if f.To <= after {
				continue
			}
			if size += len(f.Body); len(tail.Frames) > 0 && size > bytes {
				break
			}
			tail.Frames = append(tail.Frames, f)
		}
	})
	return tail, err
}

// forget drops up to n of the oldest frames of a partition, and returns how many.
func (m *Memory) forget(partition int32, n int) int {
	_ = m.run(context.Background(), func() error {
		frames := m.state.frames[partition]
		n = min(n, len(frames))
		m.state.frames[partition] = frames[n:]
		return nil
	})
	return n
}

func (s *state) progressOf(p int32) store.Progress {
	row := s.progress[p]
	return store.Progress{Partition: p, Token: row.token, Positions: row.positions}
}

// retryingOf are the retrying rows of a partition, by service and position.
func (s *state) retryingOf(p int32) (rows []store.DeadLetter) {
	for _, l := range s.letters {
		if l.State == store.LetterRetrying && l.Part == p {
			l.Payload, l.Headers = nil, nil
			rows = append(rows, l)
		}
	}
	slices.SortStableFunc(rows, func(a, b store.DeadLetter) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Position, b.Position))
	})
	return rows
}

// TakeProgress implements store.Deliveries.
func (m *Memory) TakeProgress(ctx context.Context, partitions []int32, token store.Token) (taken []store.Progress, err error) {
	err = m.run(ctx, func() error {
		for i, p := range partitions {
			if slices.Contains(partitions[:i], p) {
				return bug("memory: take progress: partition %d twice", p)
			}
		}
		for _, p := range partitions {
			m.state.progress[p] = progress{token: token, positions: m.state.progress[p].positions, session: m.session}
			row := m.state.progressOf(p)
			row.Retrying = m.state.retryingOf(p)
			taken = append(taken, row)
		}
		return nil
	})
	return taken, err
}

// SwapProgress implements store.Deliveries.
func (m *Memory) SwapProgress(ctx context.Context, revision int64, swaps []store.ProgressSwap) (swapped []bool, err error) {
	err = m.run(ctx, func() error {
		s := &m.state
		for i := range swaps {
			if slices.ContainsFunc(swaps[:i], func(o store.ProgressSwap) bool { return o.Partition == swaps[i].Partition }) {
				return bug("memory: swap progress: partition %d twice", swaps[i].Partition)
			}
		}
		if len(swaps) == 0 {
			return nil
		}
		if n := len(s.revisions); n == 0 || s.revisions[n-1].Number != revision {
			return store.ErrSuperseded
		}
		marks := s.newest()
		swapped = make([]bool, len(swaps))
		for i, swap := range swaps {
			row, known := s.progress[swap.Partition]
			watermark := marks[swap.Partition].Watermark
			if !known || row.token != swap.Old || row.session != m.session || store.Top(swap.Positions) > watermark {
				continue
			}
			swapped[i] = true
			s.progress[swap.Partition] = progress{token: swap.Token, positions: slices.Clone(swap.Positions), session: m.session}
			s.retry(swap)
		}
		return nil
	})
	return swapped, err
}

// AllProgress implements store.Deliveries.
func (m *Memory) AllProgress(ctx context.Context) (all []store.Progress, err error) {
	err = m.look(ctx, func(s *state) {
		for _, p := range slices.Sorted(maps.Keys(s.progress)) {
			all = append(all, s.progressOf(p))
		}
	})
	return all, err
}

// Moved implements store.Deliveries.
func (m *Memory) Moved(ctx context.Context, from, to change.Version, after string, limit int) (rows []store.Row, last string, err error) {
	err = m.look(ctx, func(s *state) {
		var page []store.Entity
		for _, id := range slices.Sorted(maps.Keys(s.entities)) {
			if id > after && len(page) < limit {
				page = append(page, store.Entity{ID: id, States: s.entities[id].States})
			}
		}
		rows, last = store.MovedIn(page, limit, from, to)
	})
	return rows, last, err
}
