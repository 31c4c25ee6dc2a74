package decide

import (
	"maps"
	"slices"
	"strings"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

func floorsByLog(all []store.Floor) map[string]store.Floor {
	by := make(map[string]store.Floor, len(all))
	for _, f := range all {
		by[f.Log] = f
	}
	return by
}

// hearing is which session of each log the partitions of a batch hear, and how far. A nil
// hearing hears all: dry runs have no owner.
type hearing struct {
	owners   map[int32]*ownership // their floors are as committed, and not changed
	now      map[heardLog]*heardFloor
	barriers []change.Session
	last     heardLog // of floor, which most events of a batch share
	floor    *heardFloor
}

type heardLog struct {
	partition int32
	log       string
}

type heardFloor struct {
	store.Floor
	moved bool
}

func (h *hearing) of(partition int32, log string) *heardFloor {
	at := heardLog{partition, log}
	if h.floor != nil && h.last == at {
		return h.floor
	}
	f := h.now[at]
	if f == nil {
		f = &heardFloor{}
		if o := h.owners[partition]; o != nil {
			f.Floor = o.floors[log]
		}
		f.Log = log
		if h.now == nil {
			h.now = map[heardLog]*heardFloor{}
		}
		h.now[at] = f
	}
	h.last, h.floor = at, f
	return f
}

// raise has a partition hear a session, if it is newer than the one that it hears. The row
// of the log is compared with each that comes: see store.Outcome.
func (h *hearing) raise(f *heardFloor, s change.Session) {
	h.barriers = append(h.barriers, s)
	if s.Number > f.Number {
		f.Session, f.moved = s, true
	}
}

// barrier applies a barrier.
func (h *hearing) barrier(r *record) {
	if h == nil {
		return
	}
	f := h.of(r.partition, r.Control.Session.Log)
	h.raise(f, r.Control.Session)
	if f.Session == r.Control.Session && f.Hear(r.Control.Sequence, 0) {
		f.moved = true
	}
}

// check returns staleSource for an event of another session than the one that is heard, and
// notes the place of any other. A dead letter of an epoch that ended is stale: all rows were
// read again since.
func (h *hearing) check(r *record) staleReason {
	e := r.Event
	if h == nil || e.Session == (change.Session{}) {
		return fresh
	}
	f := h.of(r.partition, e.Session.Log)
	if e.Replay != nil {
		if epochOf(e.Sequence) < epochOf(f.Sequence) {
			return staleSource
		}
		return fresh
	}
	if e.Session.Number > f.Number { // retention removed its barrier
		h.raise(f, e.Session)
	}
	if e.Session != f.Session {
		return staleSource
	}
	if f.Hear(e.Sequence, e.Offset) {
		f.moved = true
	}
	return fresh
}

// epochOf is the part of a sequence before its timeline.
func epochOf(sequence string) string {
	epoch, _, _ := strings.Cut(sequence, ".")
	return epoch
}

// write adds the changes of the batch to its outcome, with all floors of their partitions; partition
// returns one by its number.
func (h *hearing) write(out *store.Outcome, partition func(int32) store.Partition) {
	moved := map[int32]map[string]store.Floor{}
	for at, f := range h.now {
		if !f.moved {
			continue
		}
		if moved[at.partition] == nil {
			moved[at.partition] = maps.Clone(h.owners[at.partition].floors)
		}
		f.Partition = partition(at.partition)
		moved[at.partition][at.log] = f.Floor
	}
	for _, floors := range moved {
		out.Floors = slices.AppendSeq(out.Floors, maps.Values(floors))
	}
	out.Barriers = h.barriers
}
