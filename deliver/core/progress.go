package core

import (
	"maps"
	"slices"

	"github.com/seed-86dfc502/weir/store"
)

// progress is the state of a partition that the store has, and the state to write.
type progress struct {
	token  store.Token
	saved  []store.ServicePosition
	edits  uint64 // counts the changes of positions and rows
	stored uint64 // edits that the store has
	swap   *swap  // in flight, or of unknown outcome
	rows   map[string]RowEdit
}

type swap struct {
	token     store.Token
	positions []store.ServicePosition
	edits     uint64
}

// RowEdit is the next state of a retrying row, which the next swap writes together with the
// positions.
type RowEdit struct {
	Put    *store.DeadLetter
	Ended  bool
	Letter *store.DeadLetter
	Parked bool // Letter takes the place of a row

	at uint64 // of edits
}

// Edit sets the next state of a row. Bytes that are not stored yet are kept.
func (p *Partition) Edit(key string, e RowEdit) {
	p.edits++
	e.at = p.edits
	next := e.Put
	if e.Letter != nil {
		next = e.Letter
	}
	if old := p.rows[key].Put; old != nil && next != nil && next.Payload == nil {
		next.Payload, next.Headers = old.Payload, old.Headers
	}
	p.rows[key] = e
}

// Row returns a row that is not known to be stored; nil for another.
func (p *Partition) Row(key string) *store.DeadLetter { return p.rows[key].Put }

// Edits counts the changes of the partition's state; Stored reports whether the store has them.
func (p *Partition) Edits() uint64 { return p.edits }

// Stored reports whether the store has the state after that many edits.
func (p *Partition) Stored(edits uint64) bool { return p.stored >= edits }

// halfToken is where the part of a token begins that all swaps of a takeover keep.
const halfToken = len(store.Token{}) / 2

// Owned reports whether a token in the store is of this owner's takeover.
func (p *Partition) Owned(t store.Token) bool {
	return slices.Equal(t[halfToken:], p.token[halfToken:])
}

// Unsure reports whether a swap is in flight or its outcome is unknown.
func (p *Partition) Unsure() bool { return p.swap != nil }

// Swap returns the swap that writes the state, under a new token, if any is to be written. The
// outcome of the swap before must be known. The second half of the token stays that of the takeover.
func (p *Partition) Swap(token store.Token) (out store.ProgressSwap, needed bool) {
	if p.edits == p.stored {
		return out, false
	}
	positions := slices.Clone(p.absent)
	for _, l := range p.lanes {
		positions = append(positions, l.saved())
	}
	slices.SortFunc(positions, func(a, b store.ServicePosition) int { return int(a.Service) - int(b.Service) })
	if slices.Equal(positions, p.saved) && len(p.rows) == 0 {
		p.stored = p.edits
		return out, false
	}
	copy(token[halfToken:], p.token[halfToken:])
	p.swap = &swap{token: token, positions: positions, edits: p.edits}
	out = store.ProgressSwap{
		Progress: store.Progress{Partition: p.Number, Token: token, Positions: positions}, Old: p.token, Saved: p.saved,
	}
	for _, key := range slices.Sorted(maps.Keys(p.rows)) {
		switch e := p.rows[key]; {
		case e.Put != nil:
			out.Retrying = append(out.Retrying, *e.Put)
		case e.Ended:
			out.Ended = append(out.Ended, key)
		case e.Parked:
			out.Letters = append(out.Letters, store.Concluded{Row: key, DeadLetter: *e.Letter})
		default:
			out.Letters = append(out.Letters, store.Concluded{DeadLetter: *e.Letter})
		}
	}
	return out, true
}

// Swapped notes the outcome of the swap in flight. The partition is another owner's if a swap
// was answered and not done.
func (p *Partition) Swapped(done bool) {
	if s := p.swap; s != nil && done {
		p.token, p.saved, p.stored = s.token, s.positions, s.edits
		maps.DeleteFunc(p.rows, func(_ string, e RowEdit) bool { return e.at <= s.edits })
	}
	p.swap = nil
}

// Resolve finds the outcome of a swap by the rows of the store, and reports whether the
// partition is still this owner's by them.
func (p *Partition) Resolve(rows []store.Progress) (owned bool) {
	has := func(t store.Token) bool {
		return slices.ContainsFunc(rows, func(r store.Progress) bool { return r.Partition == p.Number && r.Token == t })
	}
	p.Swapped(p.swap != nil && has(p.swap.token))
	return has(p.token)
}
