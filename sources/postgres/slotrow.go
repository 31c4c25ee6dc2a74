package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// slotRow is the row of the slot in the store. The session that took the newest number writes it, and
// the marks of tables with it: once another session has taken a number, or a restored store lost
// this one, every write of it fails with store.ErrFenced.
type slotRow struct {
	logs      store.SourceLogs
	positions store.SourcePositions

	writing chan struct{}   // capacity 1: full during a write, for which others wait no longer than their context
	row     store.SourceLog // as this session wrote it last; owned by the sender to writing
}

func newSlotRow(logs store.SourceLogs, positions store.SourcePositions) *slotRow {
	return &slotRow{logs: logs, positions: positions, writing: make(chan struct{}, 1)}
}

// swap writes the row after change, and positions with it.
func (h *slotRow) swap(ctx context.Context, change func(*store.SourceLog) error, positions ...store.SourcePosition) error {
	select {
	case h.writing <- struct{}{}:
		defer func() { <-h.writing }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	next := h.row
	if change != nil {
		if err := change(&next); err != nil {
			return err
		}
	}
	version, err := h.logs.SwapSourceLog(ctx, h.row, next, positions...)
	if err != nil {
		return err
	}
	next.Version = version
	h.row = next
	return nil
}

// Position implements store.SourcePositions.
func (h *slotRow) Position(ctx context.Context, source, identity string) (store.SourcePosition, error) {
	return h.positions.Position(ctx, source, identity)
}

// SetPosition implements store.SourcePositions, under the row.
func (h *slotRow) SetPosition(ctx context.Context, p store.SourcePosition) error {
	return h.swap(ctx, nil, p)
}

// load reads the row and the mark in it, and reports whether there is one. Nothing is written yet.
func (h *slotRow) load(ctx context.Context, log string, m *mark) (known bool, err error) {
	if h.row, err = h.logs.SourceLog(ctx, log); errors.Is(err, store.ErrNotFound) {
		h.row = store.SourceLog{Session: change.Session{Log: log}}
		return false, nil
	}
	if err != nil || h.row.State == nil {
		return false, err
	}
	return true, json.Unmarshal(h.row.State, m)
}

// session returns the one that the row has. Its claim writes it last.
func (h *slotRow) session() change.Session { return h.row.Session }

// save writes the mark after change. It may be called while rows are read.
func (s *session) save(ctx context.Context, change func(*mark)) error {
	return s.own.swap(ctx, func(row *store.SourceLog) (err error) {
		change(&s.mark)
		row.State, err = json.Marshal(s.mark)
		return err
	})
}

// claim takes the next number, has every partition of the inbox hear this session alone, and
// returns how far they heard before. Later appends of an earlier session are stale from here on, so
// floors are exact. It reports whether the mark was known.
func (s *session) claim(ctx context.Context) (floors []store.Floor, known bool, err error) {
	opt := s.r.opt
	if known, err = s.own.load(ctx, opt.Source, &s.mark); err != nil {
		return nil, false, err
	}
	number := s.own.session().Number
	if number == 0 {
		// A source that was renamed begins above what its tables have remembered under its former name.
		all, err := opt.Logs.Floors(ctx, "")
		if err != nil {
			return nil, false, err
		}
		for _, f := range all {
			number = max(number, f.Number)
		}
	}
	for {
		number++
		if err := s.own.swap(ctx, func(row *store.SourceLog) error {
			row.Number, row.Name = number, newEpoch()
			return nil
		}); err != nil {
			return nil, false, err
		}
		own := s.own.session()
		if err := s.barrier(ctx, own); err != nil {
			return nil, false, err
		}
		if floors, err = opt.Logs.Floors(ctx, opt.Source); err != nil {
			return nil, false, err
		}
		newest := uint16(0)
		for _, f := range floors {
			number, newest = max(number, f.Number), max(newest, f.Partition.Generation)
		}
		if !slices.ContainsFunc(floors, func(f store.Floor) bool { return f.Partition.Generation == newest && f.Session != own }) {
			return floors, known, nil
		}
	}
}

// barrier appends a barrier of the session to every partition of the inbox and waits until they are
// decided. While that takes long, the sources say so.
func (s *session) barrier(ctx context.Context, own change.Session) error {
	defer s.r.setWaits(nil)
	return s.r.opt.Barrier(ctx, own, timelines{era: s.mark.Era}.sequence(0), s.r.setWaits)
}

// unheard returns why the decisions about the slot show that changes may be missing; empty without
// a gap. torn is the row's.
func (m mark) unheard(floors []store.Floor, torn bool, t timelines, position int64) string {
	if torn {
		return "Weir's store was restored to a state before a session that has read the slot since"
	}
	for _, f := range floors {
		var era, timeline int64
		if f.Sequence == "" {
			continue
		}
		if _, err := fmt.Sscanf(f.Sequence, "t%x.%x", &era, &timeline); err != nil {
			return "what was decided of the slot is of another source"
		}
		switch {
		case timeline == 0: // a barrier alone
			if era > m.Era {
				return "Weir's store was restored to a state before the last gap"
			}
		case era > m.Era:
			return "Weir's store was restored to a state before the last gap"
		case era == m.Era && !t.wrote(int32(timeline), f.Offset):
			return "the database lost commits that were read of it, by a fail-over or a recovery"
		case era == m.Era && f.Offset > position:
			return "the database was restored to an earlier state"
		}
	}
	return ""
}
