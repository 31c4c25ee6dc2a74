package checks

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// book is the model: a careful clerk's notes about one entity.
// It shares nothing with the code but the rules.
type book struct {
	passes []handedOut // all versions that were ever given, ascending
	// The receiver's content as far as the clerk knows for certain: the content
	// of a page, "" when he does not know.
	stands     string
	standsPage uint64 // its version
	confirmed  uint64
	holds      string // content of the confirmed version, "" when forgotten
	seen       []sighting
	top        int // highest sequence, 0 before the first
}

type handedOut struct {
	version uint64
	content string
	times   int
	onFirm  bool // what stood before it was confirmed
	back    bool // it was given back
}

type sighting struct {
	id, content string
	version     uint64
	free        bool // its version was given back, and nothing newer passed since
}

func (b *book) last() *handedOut {
	if len(b.passes) == 0 {
		return &handedOut{content: "A"}
	}
	return &b.passes[len(b.passes)-1]
}

// check returns what must be answered.
func (b *book) check(content, id string, sequence int, clock uint64) (d Decision, version uint64, again bool) {
	at := slices.IndexFunc(b.seen, func(s sighting) bool { return id != "" && s.id == id && s.content == content })
	free := at >= 0 && b.seen[at].free
	if free {
		at = -1
	}
	switch {
	case at >= 0 && (b.stands == "" || b.seen[at].version != b.standsPage):
		return Stale, b.last().version, false
	case at < 0 && sequence != 0 && sequence < b.top:
		return Stale, b.last().version, false
	case b.stands == content && b.standsPage == b.confirmed:
		d, version = Duplicate, b.confirmed
	case b.stands == content:
		d, version, again = Pass, b.standsPage, true
		b.last().times++
	default:
		d, version = Pass, max(b.last().version+1, clock)
		firm := b.stands != "" && b.standsPage == b.confirmed && b.stands == b.holds
		b.passes = append(b.passes, handedOut{version: version, content: content, times: 1, onFirm: firm})
		b.stands, b.standsPage = content, version
		for i := range b.seen {
			b.seen[i].free = false
		}
	}
	if id != "" && at < 0 {
		b.seen = slices.DeleteFunc(b.seen, func(s sighting) bool { return s.id == id && s.content == content })
		b.seen = append(b.seen, sighting{id: id, content: content, version: version})
		b.seen = b.seen[max(0, len(b.seen)-16):]
	}
	b.top = max(b.top, sequence)
	return d, version, again
}

func (b *book) confirm(version uint64) (known bool) {
	if version > b.last().version {
		return false
	}
	if version <= b.confirmed {
		return true
	}
	b.confirmed, b.holds = version, ""
	switch {
	case b.last().back:
		b.stands = ""
	case version == b.last().version:
		b.holds = b.stands
	}
	if version != b.last().version {
		b.last().onFirm = false // an earlier one was under way, as it turns out
	}
	return true
}

func (b *book) release(version uint64, refused bool) (known, done bool) {
	l := b.last()
	if version > l.version {
		return false, false
	}
	if version != l.version || version <= b.confirmed {
		return true, false
	}
	switch {
	case l.back && refused: // as it is: known again, or not since a reset
	case refused && l.onFirm && l.times == 1:
		b.stands, b.standsPage = b.holds, b.confirmed
	default:
		b.stands = ""
	}
	l.back = true
	b.free(version)
	return true, true
}

// free lets the events of a version be decided as news.
func (b *book) free(version uint64) {
	for i := range b.seen {
		b.seen[i].free = b.seen[i].free || b.seen[i].version == version
	}
}

// reset drops the current content, confirmed or not.
func (b *book) reset() {
	if len(b.passes) == 0 {
		return
	}
	if b.stands != "" {
		b.free(b.standsPage)
	}
	b.stands = ""
	b.last().back = true
}

const modelService, modelEntity = "acme/crm@check", "banana-1"

// modelRun is a row beside the model of it.
type modelRun struct {
	book  book
	row   store.CheckRow
	clock time.Time
	given map[change.Version]string // content of every version
}

// apply stores a row as a store does, and holds it against invariants.
func (m *modelRun) apply(t *rapid.T, next store.CheckRow) {
	require.GreaterOrEqual(t, next.Version, m.row.Version)
	require.GreaterOrEqual(t, next.DeliveredVersion, m.row.DeliveredVersion)
	require.LessOrEqual(t, next.DeliveredVersion, next.Version)
	memory, err := decodeMemory(next.Memory)
	require.NoError(t, err)
	require.LessOrEqual(t, len(memory.events), 16)
	next.Found = true
	m.row = next
}

func (m *modelRun) version(t *rapid.T) change.Version {
	all := []change.Version{m.row.Version, m.row.Version, m.row.Version, m.row.DeliveredVersion, m.row.Version + 1}
	for _, p := range m.book.passes {
		all = append(all, change.Version(p.version))
	}
	return rapid.SampledFrom(all).Draw(t, "version")
}

func (m *modelRun) tick(t *rapid.T) { // clocks go back too
	m.clock = m.clock.Add(time.Duration(rapid.IntRange(-5, 20).Draw(t, "microseconds")) * time.Microsecond)
}

func (m *modelRun) check(t *rapid.T) {
	// Often the current content, often without an event or sequence.
	content := rapid.SampledFrom(append([]string{"A", "B", "C"}, m.book.last().content, m.book.last().content)).Draw(t, "content")
	r := Request{Entity: modelEntity, Content: Given(content)}
	if n := rapid.IntRange(-5, 8).Draw(t, "event"); n > 0 {
		r.EventID = fmt.Sprint("e", n)
	}
	sequence := 0
	if rapid.IntRange(0, 3).Draw(t, "sequenced") == 3 {
		sequence = max(1, m.book.top+rapid.IntRange(-2, 3).Draw(t, "sequence"))
		r.Sequence = strconv.Itoa(sequence)
	}
	d, v, again := m.book.check(content, r.EventID, sequence, uint64(m.clock.UnixMicro()))
	next, got, err := Decide(modelService, m.row, r, m.clock)
	require.NoError(t, err)
	want := Answer{Decision: d, Version: change.Version(v), Repeated: again}
	if d == Pass {
		want.Key = change.Key(modelService, modelEntity, want.Version, r.Content)
		if old, known := m.given[want.Version]; known {
			require.Equal(t, old, content, "a version has one content")
		}
		m.given[want.Version] = content
	}
	require.Equal(t, want, got)
	if r.EventID == "" && r.Sequence == "" && d == Duplicate || d == Stale {
		require.True(t, same(&m.row, &next), "nothing is written")
		require.Equal(t, m.row, next)
	}
	m.apply(t, next)
}

func (m *modelRun) confirm(t *rapid.T) {
	v := m.version(t)
	next, err := Confirm(m.row, v)
	if !m.book.confirm(uint64(v)) {
		require.ErrorIs(t, err, ErrUnknownVersion)
		require.Equal(t, m.row, next)
		return
	}
	require.NoError(t, err)
	m.apply(t, next)
	again, err := Confirm(m.row, v)
	require.NoError(t, err)
	require.True(t, same(&m.row, &again), "idempotent")
}

func (m *modelRun) release(t *rapid.T) {
	v, outcome := m.version(t), rapid.SampledFrom([]Outcome{Refused, Unknown}).Draw(t, "outcome")
	next, got, err := Release(m.row, v, outcome)
	known, done := m.book.release(uint64(v), outcome == Refused)
	if !known {
		require.ErrorIs(t, err, ErrUnknownVersion)
		return
	}
	require.NoError(t, err)
	require.Equal(t, Released{Done: done, Known: done && m.book.stands != "", Version: change.Version(m.book.last().version)}, got)
	if !done {
		require.Equal(t, m.row, next)
	}
	m.apply(t, next)
	again, second, err := Release(m.row, v, outcome)
	require.NoError(t, err)
	require.Equal(t, got, second)
	require.True(t, same(&m.row, &again), "idempotent")
}

func (m *modelRun) reset(t *rapid.T) {
	m.book.reset()
	next, err := Reset(m.row)
	require.NoError(t, err)
	if !m.row.Found {
		require.Equal(t, m.row, next)
		return
	}
	m.apply(t, next)
	again, err := Reset(m.row)
	require.NoError(t, err)
	require.True(t, same(&m.row, &again), "idempotent")
}

func (m *modelRun) look(t *rapid.T) {
	s, err := Look(m.row)
	require.NoError(t, err)
	require.Equal(t, m.book.stands == "", s.Unknown())
	require.Equal(t, m.book.stands != "" && m.book.standsPage != m.book.confirmed, s.Open())
	if m.book.stands != "" {
		require.EqualValues(t, m.book.standsPage, s.Stands)
	}
	require.Len(t, m.book.seen, s.Events)
	require.EqualValues(t, m.book.last().version, m.row.Version)
	require.EqualValues(t, m.book.confirmed, m.row.DeliveredVersion)
	if m.book.stands == "" {
		require.Nil(t, m.row.Content)
	} else {
		require.Equal(t, Given(m.book.stands), m.row.Content)
	}
}

// Everything that a caller can ask, in any order, is answered as the model does.
func TestDecisionsFollowTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &modelRun{row: store.CheckRow{Key: store.Key{Service: 3, Entity: modelEntity}}, clock: time.UnixMicro(1000), given: map[change.Version]string{}}
		t.Repeat(map[string]func(*rapid.T){"tick": m.tick, "check": m.check, "confirm": m.confirm, "release": m.release, "reset": m.reset, "": m.look})
	})
}
