package core

import (
	"encoding/binary"
	"hash/fnv"
	"time"

	"github.com/seed-86dfc502/weir/internal/wire"
)

// refresh is the duty of a lane to have each of its entities sent once in Queue.Refresh, although
// it is unchanged. The time of an entity in the period is a hash of service and entity, which
// spreads them evenly. A lap is a walk that visits the entities whose time has come since the
// last one, and whose last change is below the position at its begin. That position is saved before
// the first request, so a lap that a crash repeats sends nothing again.
type refresh struct {
	since int64  // the times up to it are done, in Unix milliseconds; 0: the duty begins
	until int64  // of the lap
	lap   Repair // of the versions below the position at its begin
	begun uint64 // Partition.Edits at its begin
}

const (
	lapsPerPeriod = 100
	minLapPause   = time.Second // between two begins of laps
)

// begin begins a lap when it is time, and otherwise returns how long that takes.
func (r *refresh) begin(l *Lane, now time.Time) (wait time.Duration) {
	switch {
	case !r.lap.Needed():
	case !l.Partition.Stored(r.begun):
		return minLapPause / 10
	default:
		return 0
	}
	at, next := now.UnixMilli(), time.UnixMilli(r.since).Add(max(l.Queue.Refresh/lapsPerPeriod, minLapPause))
	switch top := l.Position(); {
	case top == 0: // no entity was sent
		r.since = at
	case r.since == 0 || r.since > at: // new, or the clock was set back
		r.since = at
		l.Partition.edited()
	case now.Before(next):
		return next.Sub(now)
	case l.Queue.Failing && l.Queue.Busy():
	default:
		r.until = at
		r.lap.Lose(0, top)
		l.Partition.edited()
		r.begun = l.Partition.Edits()
		return minLapPause / 10
	}
	return minLapPause
}

// due reports whether the time of an entity comes after since, and not after until.
func (r *refresh) due(l *Lane, entity string) bool {
	h := fnv.New64a()
	_, _ = h.Write(binary.LittleEndian.AppendUint32(nil, uint32(l.Queue.Number)))
	_, _ = h.Write([]byte(entity))
	period := max(1, l.Queue.Refresh.Milliseconds())
	phase := int64(h.Sum64() % uint64(period))
	return (r.until+period-phase)/period > (r.since+period-phase)/period
}

// advance is called when the requests for a page of the lap are durable in the inbox.
func (r *refresh) advance(last string) {
	if r.lap.Advance(last); !r.lap.Needed() {
		*r = refresh{since: r.until}
	}
}

// encode returns r for decodeRefresh; "" before the duty begins.
func (r *refresh) encode() string {
	if r.since == 0 {
		return ""
	}
	b := binary.AppendUvarint(binary.AppendUvarint(nil, uint64(r.since)), uint64(r.until))
	return string(b) + r.lap.Encode()
}

// decodeRefresh reads a text of encode. With an unknown text the duty starts over.
func decodeRefresh(text string) refresh {
	in := wire.Reader{Rest: []byte(text)}
	r := refresh{since: int64(in.Uvarint()), until: int64(in.Uvarint())}
	var ok bool
	if r.lap, ok = DecodeRepair(string(in.Rest), 1); !ok || in.Failed || r.since < 0 || r.until < 0 {
		return refresh{}
	}
	return r
}
