package checks

import (
	"bytes"
	"context"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// Reset forgets the receiver's content: the row becomes unknown, as after a
// Release of the current content, confirmed or not. The next content passes in any
// case, with a higher version, and so does a repetition of the event that asked
// for the current one. Older ones stay stale: events that were superseded before,
// and sequences below the highest seen. A version that is under way may still be
// confirmed. Resetting again, or a row that does not exist, changes nothing. The
// error is one of a row that cannot be read.
func Reset(row store.CheckRow) (store.CheckRow, error) {
	m, err := decodeMemory(row.Memory)
	if err != nil || !row.Found {
		return row, err
	}
	// Given back with the last version, whichever stood.
	m.move(current(&row, &m), row.Version)
	m.released, m.sole = true, false
	row.Content = nil
	return stored(row, m), nil
}

// ResetRows resets rows that were just read, of different keys, and returns how
// many it changed: those that are unknown already are not among them. What others
// decide meanwhile is read and reset again, so that after it no row holds its content
// of before the call. It may be called beside any number of Checkers. After an
// error some may be reset; calling again continues.
func ResetRows(ctx context.Context, s store.CheckRows, rows []store.CheckRow) (changed int, err error) {
	for len(rows) > 0 {
		var next []store.CheckRow
		if next, err = toReset(rows); err != nil || len(next) == 0 {
			return changed, err
		}
		swapped, err := s.SwapCheckRows(ctx, next)
		if err != nil {
			return changed, err
		}
		var lost []store.Key // each to a decision, so that all together go on
		for i, is := range swapped {
			if is {
				changed++
			} else {
				lost = append(lost, next[i].Key)
			}
		}
		if rows, err = s.CheckRows(ctx, lost); err != nil {
			return changed, err
		}
	}
	return changed, nil
}

// CountResets returns how many of the rows ResetRows would change.
func CountResets(rows []store.CheckRow) (int, error) {
	next, err := toReset(rows)
	return len(next), err
}

// toReset returns the rows that a reset changes, as they are after it.
func toReset(rows []store.CheckRow) (next []store.CheckRow, err error) {
	for i := range rows {
		r, err := Reset(rows[i])
		if err != nil {
			return nil, err
		}
		if !same(&rows[i], &r) {
			next = append(next, r)
		}
	}
	return next, nil
}

// State is a row, for display.
type State struct {
	// Version of the last pass, and the highest that is confirmed, 0 when none is.
	Version, Confirmed change.Version
	// Stands is the version of the content that the next one is compared with, 0 when that is
	// unknown.
	Stands change.Version
	// Content is the current content, nil when it is unknown. Given: it is a hash that the
	// caller computed.
	Content change.Content
	Given   bool
	// GivenBack: the last version was released or reset.
	GivenBack bool
	Sequence  string // the highest seen, empty before the first
	Events    int    // that are remembered
}

// Unknown reports whether the next content passes in any case.
func (s *State) Unknown() bool { return s.Content == nil }

// Open reports whether the current content passes again until it is confirmed.
func (s *State) Open() bool { return s.Content != nil && s.Stands != s.Confirmed }

// Look reads a row. The error is one of a row that cannot be read.
func Look(row store.CheckRow) (State, error) {
	m, err := decodeMemory(row.Memory)
	if err != nil {
		return State{}, err
	}
	s := State{
		Version: row.Version, Confirmed: row.DeliveredVersion, Content: row.Content, GivenBack: m.released,
		Given: bytes.HasPrefix(row.Content, []byte{givenMark}), Sequence: m.sequence, Events: len(m.events),
	}
	if row.Content != nil {
		s.Stands = current(&row, &m)
	}
	return s, nil
}
