package decide

import (
	"encoding/binary"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/wire"
	"github.com/seed-86dfc502/weir/projections"
)

// Limits of the history. It is written with every row of an entity, so it is
// kept small.
const (
	historyLength = 8  // records that are remembered
	historyText   = 36 // bytes of an event id
	// Which projections were evaluated is remembered for all records up to this
	// many projections, beyond it for the newest record only.
	historyWide = 64
	// Projections beyond this rank are not remembered.
	historyWidest = 4096
	// A fingerprint is identified by its first bytes.
	historyPrint = 8
)

// HistoryRow is how many stale records in a row are counted exactly. Later ones count once in
// historyPause: a topic that is read again from its start is all stale.
const (
	HistoryRow   = 8
	historyPause = time.Minute
)

// Words of the history for the outcome of a record: the words of the metrics, with the reason
// for stale ones.
const (
	HistoryNoise         = "noise"
	HistoryMerged        = "merged"
	HistoryStalePosition = "stale: position"
	HistoryStaleEventID  = "stale: event id"
	HistoryStaleSequence = "stale: sequence"
	HistoryStaleReplay   = "stale: replay"
	HistoryStaleClaim    = "stale: claim"
	HistoryStaleSource   = "stale: source"
	HistoryRefused       = "refused" // by ingest, as a dead letter
	HistoryControl       = "control"
	HistoryDead          = "dead letter"
	// HistoryIncomplete is a merged event whose entity still lacks a required source.
	HistoryIncomplete = "incomplete"
)

// historyWords are stored by their index: only ever append.
var historyWords = [...]string{"", HistoryNoise, HistoryMerged, HistoryStalePosition, HistoryStaleEventID, HistoryStaleSequence, HistoryControl, HistoryDead, HistoryStaleReplay, HistoryStaleClaim, HistoryIncomplete, HistoryStaleSource, HistoryRefused}

// HistoryEntry is one record that was decided for an entity.
type HistoryEntry struct {
	Version change.Version // its position in the inbox
	Time    time.Time      // its timestamp, milliseconds
	// Source of an event; the action of a control record.
	Source string
	// EventID is empty without one, and cut to 36 bytes.
	EventID string
	// Outcome is one of the words above.
	Outcome string
	// InRow is the number of stale records in a row, this one included, if it is stale and not
	// the first of them. Beyond HistoryRow it is a lower bound.
	InRow int

	stored storedEntry
}

// History is what an entity remembers of the records that were decided for it, the oldest first.
// It is for display only: no decision reads it. Of stale records in a row the first and the newest
// are kept, and a dead letter only where something else was written with it.
type History struct {
	Entries []HistoryEntry
	prefix  []byte // fingerprint, cut, that the sets belong to
}

// evaluated reports whether a projection was evaluated at entry i; known is
// false when that was not kept, or happened under another configuration. A
// record that is noise or stale evaluates nothing.
func (t History) evaluated(p *Plan, i, projection int) (evaluated, known bool) {
	e := t.Entries[i]
	if e.Outcome != HistoryMerged && e.Outcome != HistoryControl {
		return false, true
	}
	rank := p.rank[p.alike[projection]]
	if set := e.stored.set; set == nil || !slices.Equal(t.prefix, cut(p.Fingerprint)) || rank/8 >= len(set) {
		return false, false
	}
	return hasRank(e.stored.set, rank), true
}

// Decided returns what entry i came to for a service, given by its index: a
// decision, or empty where that is not kept, or happened under another
// configuration. A record that is noise or stale decides nothing: pruned.
func (t History) Decided(p *Plan, i, service int) string {
	e := t.Entries[i]
	projection := p.Services[service].Projection
	evaluated, known := t.evaluated(p, i, projection)
	switch {
	case e.stored.kept && hasNumber(e.stored.sent, p.Services[service].Number):
		return DecisionSent
	case e.Outcome == HistoryIncomplete:
		return DecisionIncomplete
	case !known:
		return ""
	case !evaluated:
		return DecisionPruned
	case !e.stored.kept:
		return ""
	case hasRank(e.stored.filtered, p.rank[p.alike[projection]]):
		return DecisionFiltered
	}
	return DecisionHeldBack
}

func hasRank(set []byte, rank int) bool { return rank/8 < len(set) && set[rank/8]&(1<<(rank%8)) != 0 }

// hasNumber looks for a number in a list that sent wrote.
func hasNumber(list []byte, number int32) bool {
	r, at := wire.Reader{Rest: list}, uint64(0)
	for len(r.Rest) > 0 && !r.Failed {
		if at += r.Uvarint(); at == uint64(number) {
			return !r.Failed
		}
	}
	return false
}

func cut(fingerprint []byte) []byte { return fingerprint[:min(historyPrint, len(fingerprint))] }

// history is a History while decide works on it: only its newest entry is taken
// apart, the older ones stay as they are stored.
//
// Stored is the fingerprint, the newest entry, then the older ones, the newest
// first, each with its length in front. Version and time of an older one are the
// way back from the entry before it, and its source is left out when it is the same.
type history struct {
	prefix []byte
	any    bool // there is a newest entry
	last   storedEntry
	older  []byte
}

// storedEntry is an entry as it is stored.
type storedEntry struct {
	word        byte
	version, ms uint64
	source      string
	id          []byte // see packID
	inRow       uint64 // of a stale one; 0 for the first
	set         []byte // ranks of projections that were evaluated; nil when that is not kept
	// kept says that the next two are known: the ranks of projections that the filter
	// kept the entity out of, and the services that something was sent to, as the
	// differences of their ascending numbers.
	kept     bool
	filtered []byte
	sent     []byte
}

// historyKept marks, in the byte of an entry's word, one with a history of its
// services.
const historyKept = 0x80

// note adds the outcome of r.
func (h *history) note(r *record, word string) {
	e := storedEntry{word: historyWord(word), version: uint64(r.version), ms: uint64(r.at.UnixMilli())}
	switch {
	case r.Control != nil:
		e.source, e.id = string(r.Control.Action), packID(r.Control.ID)
	case r.Event != nil:
		e.source, e.id = r.Event.Source, packID(r.Event.EventID)
	}
	h.add(e)
}

// add makes e the newest entry and drops the oldest one.
func (h *history) add(e storedEntry) {
	if h.any {
		if len(h.last.set) > historyWide/8 || len(h.last.sent) > historyWide {
			h.last.set, h.last.kept, h.last.filtered, h.last.sent = nil, false, nil, nil
		}
		var scratch [128]byte
		b := h.last.append(scratch[:0], &e)
		keep, r := 0, wire.Reader{Rest: h.older}
		for n := 2; n < historyLength; n++ {
			if r.Bytes(); r.Failed {
				break // not a history: what cannot be read is dropped
			}
			keep = len(h.older) - len(r.Rest)
		}
		older := make([]byte, 0, binary.MaxVarintLen16+len(b)+keep)
		older = append(binary.AppendUvarint(older, uint64(len(b))), b...)
		h.older = append(older, h.older[:keep]...)
	}
	h.any, h.last = true, e
}

// append writes an entry that follows newer.
func (e *storedEntry) append(b []byte, newer *storedEntry) []byte {
	word := e.word
	if e.kept {
		word |= historyKept
	}
	b = append(b, word)
	b = binary.AppendVarint(b, int64(newer.version-e.version))
	b = binary.AppendVarint(b, int64(newer.ms-e.ms))
	if e.source == newer.source {
		b = append(b, 0)
	} else {
		b = wire.Append(b, e.source)
	}
	b = wire.Append(wire.Append(b, e.id), e.set)
	if e.stale() {
		b = binary.AppendUvarint(b, e.inRow)
	}
	if e.kept {
		b = wire.Append(wire.Append(b, e.filtered), e.sent)
	}
	return b
}

// parseEntry reads an entry that follows newer.
func parseEntry(b []byte, newer *storedEntry) (e storedEntry, rest []byte, ok bool) {
	r := wire.Reader{Rest: b}
	word := r.Byte()
	e.word, e.kept = word&^historyKept, word&historyKept != 0
	e.version, e.ms = newer.version-uint64(r.Varint()), newer.ms-uint64(r.Varint())
	e.source = newer.source
	if s := r.Bytes(); len(s) > 0 && string(s) != newer.source {
		e.source = string(s) // shared when it is the same
	}
	e.id, e.set = r.Bytes(), r.Bytes()
	if int(e.word) < len(historyWords) && e.stale() {
		e.inRow = r.Uvarint()
	}
	if e.kept {
		e.filtered, e.sent = r.Bytes(), r.Bytes()
	}
	return e, r.Rest, !r.Failed && int(e.word) < len(historyWords)
}

// stale reports whether the entry is of a stale record.
func (e *storedEntry) stale() bool { return strings.HasPrefix(historyWords[e.word], "stale: ") }

// stale remembers a stale record and reports whether the row should be written for it alone.
func (h *history) stale(r *record, why staleReason) (write bool) {
	var inRow uint64
	if h.any && h.last.stale() {
		inRow = max(h.last.inRow, 1) + 1
		if inRow > HistoryRow && r.at.Sub(time.UnixMilli(int64(h.last.ms))) < historyPause {
			return false
		}
		if h.last.inRow > 0 {
			h.pop()
		}
	}
	h.note(r, "stale: "+strings.ReplaceAll(string(why), "_", " "))
	h.last.inRow = inRow
	return true
}

// pop drops the newest entry.
func (h *history) pop() {
	r := wire.Reader{Rest: h.older}
	last, _, ok := parseEntry(r.Bytes(), &h.last)
	if h.any = ok && !r.Failed; h.any {
		h.last, h.older = last, r.Rest
	} else {
		h.older = nil
	}
}

func historyWord(word string) byte { return byte(max(0, slices.Index(historyWords[:], word))) }

// evaluating begins the set of the newest record's projections.
func (h *history) evaluating(p *Plan) {
	if prefix := cut(p.Fingerprint); !slices.Equal(h.prefix, prefix) {
		// The sets of the older ones mean nothing under this configuration.
		entries := h.entries()
		renewed := history{prefix: prefix}
		for i := len(entries) - 1; i >= 0; i-- {
			entries[i].set, entries[i].filtered = nil, nil
			renewed.add(entries[i])
		}
		*h = renewed
	}
	h.last.set = make([]byte, len(p.ranks))
	h.last.kept = true
}

// filteredOut notes that the filter of a projection keeps the entity out.
func (h *history) filteredOut(p *Plan, projection int) {
	rank := p.rank[projection]
	if !h.last.kept || rank >= historyWidest {
		return
	}
	if short := rank/8 + 1 - len(h.last.filtered); short > 0 {
		h.last.filtered = append(h.last.filtered, make([]byte, short)...)
	}
	h.last.filtered[rank/8] |= 1 << (rank % 8)
}

// evaluatedAll adds all projections to the set. If filtered, those that evaluated does not
// name later are filtered.
func (h *history) evaluatedAll(p *Plan, filtered bool) {
	if h.last.set = slices.Clone(p.ranks); filtered {
		h.last.filtered = slices.Clone(p.ranks)
	}
}

// sent notes which services the newest record sent something to.
func (h *history) sent(p *Plan, r *record) {
	if len(r.sent) == 0 {
		return
	}
	numbers := make([]int32, 0, len(r.sent))
	for _, s := range r.sent {
		numbers = append(numbers, p.Services[s].Number)
	}
	slices.Sort(numbers)
	var list []byte
	at := int32(0)
	for _, n := range slices.Compact(numbers) {
		list = binary.AppendUvarint(list, uint64(n-at))
		at = n
	}
	h.last.kept, h.last.sent = true, list
}

// evaluated adds a projection to the set, before filteredOut.
func (h *history) evaluated(p *Plan, projection int) {
	rank := p.rank[projection]
	if rank >= historyWidest {
		return
	}
	h.last.set[rank/8] |= 1 << (rank % 8)
	if rank/8 < len(h.last.filtered) {
		h.last.filtered[rank/8] &^= 1 << (rank % 8)
	}
}

// redecided notes that a control record evaluated all projections; for one
// that names services, the changes sent tell.
func (h *history) redecided(p *Plan, c *change.Control) {
	if len(c.Services) > 0 {
		h.last.kept = true
		return
	}
	h.evaluating(p)
	for i := range p.Projections {
		h.evaluated(p, i)
	}
}

// entries takes all apart, the newest first, as far as they can be read.
func (h *history) entries() []storedEntry {
	if !h.any {
		return nil
	}
	all := append(make([]storedEntry, 0, historyLength), h.last)
	for r := (wire.Reader{Rest: h.older}); len(r.Rest) > 0; {
		e, _, ok := parseEntry(r.Bytes(), &all[len(all)-1])
		if !ok {
			break
		}
		all = append(all, e)
	}
	return all
}

// public returns what people see.
func (h *history) public() History {
	stored := h.entries()
	out := History{prefix: h.prefix, Entries: make([]HistoryEntry, len(stored))}
	for i, e := range stored {
		out.Entries[len(stored)-1-i] = HistoryEntry{
			Version: change.Version(e.version), Time: time.UnixMilli(int64(e.ms)).UTC(), Source: e.source,
			EventID: unpackID(e.id), Outcome: historyWords[e.word], InRow: int(e.inRow), stored: e,
		}
	}
	return out
}

// packID returns the stored form of an event id: a UUID as 0 and its 16 bytes,
// any other as it is, cut.
func packID(id string) []byte {
	if len(id) == 36 && id[8] == '-' {
		if u, err := uuid.Parse(id); err == nil && u.String() == id {
			return append([]byte{0}, u[:]...)
		}
	}
	id = strings.TrimLeft(id, "\x00")
	if len(id) > historyText {
		id = id[:historyText]
		for !utf8.ValidString(id) {
			id = id[:len(id)-1]
		}
	}
	return []byte(id)
}

func unpackID(b []byte) string {
	if len(b) == 17 && b[0] == 0 {
		return uuid.UUID(b[1:]).String()
	}
	return string(b)
}

// decodeState reads the history and the fence of an entity, as encodeState wrote them. A history that cannot be read is dropped: it must not stop a decision.
func decodeState(stored []byte) (history, fence, error) {
	f := fence{}
	t, _, err := decodeStateInto(f, stored, new(fenceRoom))
	return t, f, err
}

// decodeStateInto is decodeState into an empty fence, in room.
func decodeStateInto(f fence, stored []byte, room *fenceRoom) (t history, failed []int32, err error) {
	if len(stored) == 0 {
		return t, nil, nil
	}
	r := wire.Reader{Rest: stored}
	b := r.Bytes()
	for n, at := r.Count(), int32(0); n > 0 && !r.Failed; n-- {
		at += int32(r.Uvarint())
		failed = append(failed, at)
	}
	if r.Failed {
		return t, nil, errRemembered
	}
	err = room.decode(f, r.Rest)
	if len(b) > 0 && int(b[0]) < len(b) {
		size := 1 + int(b[0])
		prefix := b[1:size:size]
		if last, rest, ok := parseEntry(b[size:], &storedEntry{}); ok {
			t = history{prefix: prefix, any: true, last: last, older: rest}
		}
	}
	return t, failed, err
}

// encodeState is the reverse of decodeStateInto: the history with its length in front, the
// count and the differences of failed services' numbers, then the fence.
func encodeState(t *history, failed []int32, f fence) []byte {
	fence := f.encode()
	var scratch [128]byte
	b := scratch[:0]
	n := 0
	if t.any {
		b = append(append(b, byte(len(t.prefix))), t.prefix...)
		b = t.last.append(b, &storedEntry{})
		n = len(b) + len(t.older)
	}
	out := make([]byte, 0, (2+len(failed))*binary.MaxVarintLen32+n+len(fence))
	out = binary.AppendUvarint(out, uint64(n))
	if t.any {
		out = append(append(out, b...), t.older...)
	}
	out = binary.AppendUvarint(out, uint64(len(failed)))
	at := int32(0)
	for _, number := range failed {
		out, at = binary.AppendUvarint(out, uint64(number-at)), number
	}
	return append(out, fence...)
}

// ranks numbers projections by the order of their names, which is the same in
// any order in which files list them.
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
