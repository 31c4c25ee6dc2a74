package dam

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/inbox"
	"github.com/seed-86dfc502/weir/projections"
)

// Limits of the trail. It is written with every row of an entity, so it is
// kept small.
const (
	trailLength = 8  // records that are remembered
	trailText   = 36 // bytes of an event id: a UUID fits
	// Which projections were evaluated is remembered for all records up to this
	// many projections, beyond it for the last evaluated record only.
	trailWide = 64
	// Projections beyond this rank are not remembered.
	trailWidest = 4096
	// A fingerprint is told from others by its first bytes.
	trailPrint = 8
)

// Words of the trail for what became of a record; the outcomes of the metrics
// with the reason for stale ones.
const (
	TrailNoise         = "noise"
	TrailMerged        = "merged"
	TrailStalePosition = "stale: position"
	TrailStaleEventID  = "stale: event id"
	TrailStaleSequence = "stale: sequence"
	TrailStaleReplay   = "stale: replay"
	TrailControl       = "control"
	TrailDead          = "dead letter"
)

// trailWords are stored by their index: only ever append.
var trailWords = [...]string{"", TrailNoise, TrailMerged, TrailStalePosition, TrailStaleEventID, TrailStaleSequence, TrailControl, TrailDead, TrailStaleReplay}

// TrailEntry is one record that was decided for an entity.
type TrailEntry struct {
	Version change.Version // its position in the inbox
	Time    time.Time      // its timestamp, milliseconds
	// Source of an event; the action of a control record.
	Source string
	// EventID is empty without one, and cut to 36 bytes.
	EventID string
	// Outcome is one of the words above.
	Outcome string

	set []byte // ranks of projections that were evaluated; nil when that is not kept
}

// Trail is what an entity remembers of the records that were decided for it,
// the oldest first. It is for people: no decision reads it. Of stale records
// in a row only the first is sure to be there, and a dead letter only where
// something else was written with it.
type Trail struct {
	Entries []TrailEntry
	print   []byte // fingerprint, cut, that the sets belong to
}

// Evaluated tells what became of a projection at entry i: whether it was
// evaluated; known is false when that was not kept, or under another
// configuration. A record that is noise or stale evaluates nothing.
func (t Trail) Evaluated(p *Plan, i, projection int) (evaluated, known bool) {
	e := t.Entries[i]
	switch e.Outcome {
	case TrailMerged, TrailControl:
	default:
		return false, true
	}
	if e.set == nil || !slices.Equal(t.print, cut(p.Fingerprint)) || p.rank[projection] >= trailWidest {
		return false, false
	}
	rank := p.rank[projection]
	return rank/8 < len(e.set) && e.set[rank/8]&(1<<(rank%8)) != 0, true
}

func cut(fingerprint []byte) []byte { return fingerprint[:min(trailPrint, len(fingerprint))] }

// note remembers what became of r.
func (t *Trail) note(r *record, word string) {
	e := TrailEntry{Version: r.version, Time: r.at, Outcome: word}
	switch {
	case r.Control != nil:
		e.Source, e.EventID = string(r.Control.Action), short(r.Control.ID)
	case r.Event != nil:
		e.Source, e.EventID = r.Event.Source, short(r.Event.EventID)
	}
	if n := len(t.Entries); n >= trailLength {
		t.Entries = append(t.Entries[:0], t.Entries[n-trailLength+1:]...)
	}
	t.Entries = append(t.Entries, e)
}

func short(s string) string {
	if len(s) <= trailText {
		return s
	}
	s = s[:trailText]
	for len(s) > 0 && !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return s
}

// stale remembers a stale record and tells whether the row should be written
// for it alone: a topic that is read again from its start is all stale, and
// must not write every row once per record.
func (t *Trail) stale(r *record, why staleReason) (write bool) {
	word := "stale: " + strings.ReplaceAll(string(why), "_", " ")
	if n := len(t.Entries); n > 0 && isStale(t.Entries[n-1].Outcome) {
		t.Entries = t.Entries[:n-1]
	} else {
		write = true
	}
	t.note(r, word)
	return write
}

func isStale(word string) bool {
	return strings.HasPrefix(word, "stale: ")
}

// evaluating begins the set of the last record's projections.
func (t *Trail) evaluating(p *Plan) {
	if print := cut(p.Fingerprint); !slices.Equal(t.print, print) || len(p.Projections) > trailWide {
		for i := range t.Entries {
			t.Entries[i].set = nil
		}
		t.print = print
	}
	t.Entries[len(t.Entries)-1].set = make([]byte, (min(len(p.Projections), trailWidest)+7)/8)
}

// evaluated adds a projection to the set.
func (t *Trail) evaluated(p *Plan, projection int) {
	if rank := p.rank[projection]; rank < trailWidest {
		t.Entries[len(t.Entries)-1].set[rank/8] |= 1 << (rank % 8)
	}
}

// The stored form: number of names, names, fingerprint, entries until the end.
// An entry is word, version and time (milliseconds) as differences to the one
// before, index of its name, event id, set; texts and sets with their lengths.

func (t *Trail) append(b []byte) []byte {
	var names [trailLength]string
	n := 0
	index := func(name string) int {
		for i := range n {
			if names[i] == name {
				return i
			}
		}
		names[n] = name
		n++
		return n - 1
	}
	var at [trailLength]int
	for i := range t.Entries {
		at[i] = index(t.Entries[i].Source)
	}
	b = append(b, byte(n))
	for _, name := range names[:n] {
		b = appendText(b, name)
	}
	b = appendText(b, t.print)
	var version, ms uint64
	for i := range t.Entries {
		e := &t.Entries[i]
		b = append(b, byte(max(0, slices.Index(trailWords[:], e.Outcome))), byte(at[i]))
		now := uint64(e.Time.UnixMilli())
		b = binary.AppendVarint(b, int64(uint64(e.Version)-version))
		b = binary.AppendVarint(b, int64(now-ms))
		version, ms = uint64(e.Version), now
		b = appendText(b, e.EventID)
		b = appendText(b, e.set)
	}
	return b
}

func appendText[T string | []byte](b []byte, s T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

var errTrail = errors.New("stored trail is cut off or not one")

// parseTrail reads what append wrote. The sets share memory with b.
func parseTrail(b []byte) (Trail, error) {
	t := Trail{}
	if len(b) == 0 {
		return t, nil
	}
	all := string(b) // texts are parts of it: one copy for all
	at, ok := 0, true
	number := func(n, used int) int {
		if used <= 0 {
			ok, at = false, len(b)
			return 0
		}
		at += used
		return n
	}
	text := func() (from, to int) {
		n, used := binary.Uvarint(b[at:])
		if n > uint64(len(b)) {
			used = 0
		}
		size := number(int(n), used)
		if at+size > len(b) {
			ok, at = false, len(b)
			return at, at
		}
		at += size
		return at - size, at
	}
	difference := func() uint64 {
		n, used := binary.Varint(b[at:])
		return uint64(number(int(n), used))
	}
	var names [trailLength]string
	n := int(b[0])
	at++
	if n > len(names) {
		return Trail{}, errTrail
	}
	for i := range n {
		from, to := text()
		names[i] = all[from:to]
	}
	from, to := text()
	t.print = b[from:to:to]
	t.Entries = make([]TrailEntry, 0, trailLength)
	var version, ms uint64
	for ok && at < len(b) {
		if len(b)-at < 2 || int(b[at]) >= len(trailWords) || int(b[at+1]) >= n || len(t.Entries) == trailLength {
			return Trail{}, errTrail
		}
		e := TrailEntry{Outcome: trailWords[b[at]], Source: names[b[at+1]]}
		at += 2
		version += difference()
		ms += difference()
		e.Version, e.Time = change.Version(version), time.UnixMilli(int64(ms)).UTC()
		from, to := text()
		e.EventID = all[from:to]
		if from, to = text(); from < to {
			e.set = b[from:to:to]
		}
		t.Entries = append(t.Entries, e)
	}
	if !ok {
		return Trail{}, errTrail
	}
	return t, nil
}

// trailMark begins a fence that has a trail in front of its JSON.
const trailMark = 1

// splitTrail takes the stored fence apart; a fence of before there were trails
// has none.
func splitTrail(stored []byte) (trail, fence []byte, err error) {
	if len(stored) == 0 || stored[0] != trailMark {
		return nil, stored, nil
	}
	n, used := binary.Uvarint(stored[1:])
	if used <= 0 || n > uint64(len(stored)-1-used) {
		return nil, nil, errTrail
	}
	at := 1 + used
	return stored[at : at+int(n)], stored[at+int(n):], nil
}

// remembered reads what an entity remembers: trail and fence.
func remembered(stored []byte) (Trail, fence, error) {
	trail, text, err := splitTrail(stored)
	if err != nil {
		return Trail{}, nil, err
	}
	t, err := parseTrail(trail)
	if err != nil {
		return Trail{}, nil, err
	}
	f, err := decodeFence(text)
	return t, f, err
}

// joinTrail is the reverse of splitTrail.
func joinTrail(t *Trail, fence []byte) []byte {
	var scratch [1024]byte
	b := t.append(scratch[:0])
	out := make([]byte, 0, 1+binary.MaxVarintLen32+len(b)+len(fence))
	out = append(out, trailMark)
	out = binary.AppendUvarint(out, uint64(len(b)))
	return append(append(out, b...), fence...)
}

// word gives the trail's word for an outcome that is not stale.
func (o outcome) word() string {
	switch o {
	case outcomeNoise:
		return TrailNoise
	case outcomeMerged:
		return TrailMerged
	case outcomeControl:
		return TrailControl
	}
	return TrailDead
}

// redecided remembers that a control record evaluated all projections; of one
// that named services, what was sent tells.
func (t *Trail) redecided(p *Plan, c *inbox.Control) {
	if len(c.Services) > 0 {
		return
	}
	t.evaluating(p)
	for i := range p.Projections {
		t.evaluated(p, i)
	}
}

// ranks numbers projections by the order of their names.
func ranks(ps []*projections.Projection) []int {
	name := func(i int) string { return ps[i].Spec().Customer + "/" + ps[i].Spec().Name }
	order := make([]int, len(ps))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(name(a), name(b)) })
	rank := make([]int, len(ps))
	for n, i := range order {
		rank[i] = n
	}
	return rank
}
