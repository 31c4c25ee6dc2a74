package decide

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func words(t History) []string {
	var all []string
	for _, e := range t.Entries {
		all = append(all, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", e.Version, e.Source, e.EventID, e.Outcome)))
	}
	return all
}

func historyOf(t testing.TB, e store.Entity) History {
	m, _, err := decodeState(e.Fence)
	require.NoError(t, err)
	return m.public()
}

// The mistake that this catches: the outcome of an event is not known later.
func TestHistoryTellsWhatBecameOfEvents(t *testing.T) {
	p := bananaPlan(t)
	s := NewSimulator(p)
	feed(t, s,
		`registry:9f1c9d3e-8c1c-4f7e-9a55-0123456789ab {"id":"B-007","origin":"EC","ripeness_level":1}`,
		`registry:e2 {"id":"B-007","origin":"EC","ripeness_level":1}`,
		`registry:e3 {"id":"B-007","origin":"EC","ripeness_level":2}`,
		`registry:e2 {"id":"B-007","origin":"EC","ripeness_level":1}`,
		`registry:e2 {"id":"B-007","origin":"EC","ripeness_level":1}`,
	)
	apply(t, s, change.Record{Entity: "B-007", Control: &change.Control{ID: "c1", Action: change.Redecide}}, "redecide")
	got := historyOf(t, s.entities["B-007"])
	require.Equal(t, []string{
		"1:0 registry 9f1c9d3e-8c1c-4f7e-9a55-0123456789ab merged",
		"1:1 registry e2 noise",
		"1:2 registry e3 merged",
		"1:3 registry e2 stale: event id",
		"1:4 registry e2 stale: event id",
		"1:5 redecide c1 control",
	}, words(got))
	evaluated := func(i, projection int) [2]bool {
		e, known := got.evaluated(p, i, projection)
		return [2]bool{e, known}
	}
	require.Equal(t, [2]bool{true, true}, evaluated(0, 0))
	require.Equal(t, [2]bool{true, true}, evaluated(0, 1))
	require.Equal(t, [2]bool{false, true}, evaluated(1, 0))
	require.Equal(t, [2]bool{true, true}, evaluated(2, 0))
	require.Equal(t, [2]bool{false, true}, evaluated(2, 1), "customer two reads the id only")
	require.Equal(t, [2]bool{true, true}, evaluated(5, 1))
	require.Equal(t, time.Unix(1000, 0).UTC(), got.Entries[5].Time)

	other := bananaPlan(t)
	other.Fingerprint = []byte("another")
	require.NoError(t, other.Prepare())
	_, known := got.evaluated(other, 2, 0)
	require.False(t, known)
	s.plan = other
	feed(t, s, `registry:e9 {"id":"B-007","origin":"EC","ripeness_level":3}`)
	got = historyOf(t, s.entities["B-007"])
	require.Len(t, got.Entries, 7)
	_, known = got.evaluated(other, 2, 0)
	require.False(t, known, "what was evaluated under the other configuration is forgotten")
	require.Equal(t, [2]bool{true, true}, func() [2]bool { e, k := got.evaluated(other, 6, 1); return [2]bool{e, k} }())
}

// The mistakes that this catches: explain shows the first of several stale events as the last
// one; a topic that is read again from its start writes every row once per record.
func TestOfStaleRecordsInARowTheFirstAndTheNewestAreKept(t *testing.T) {
	s := NewSimulator(bananaPlan(t))
	event := func(offset int64, at time.Time, word string) {
		e := &change.Event{Origin: change.Origin{Source: "registry", Topic: "t", Offset: offset}, EventID: fmt.Sprint("e", s.offset), Op: change.Upsert, Payload: []byte(`{"id":"B-007"}`)}
		step, err := s.Apply(change.Record{Entity: "B-007", Event: e}, at)
		require.NoError(t, err)
		require.Equal(t, word, step.Outcome)
	}
	kept := func() (lines []string) {
		for _, e := range historyOf(t, s.entities["B-007"]).Entries {
			lines = append(lines, fmt.Sprintf("%s %s %s %d", e.EventID, e.Time.Format("15:04:05"), e.Outcome, e.InRow))
		}
		return lines
	}
	start := time.Unix(1000, 0).UTC()
	event(9, start, "merged")
	event(8, start, "stale")
	event(7, start.Add(time.Second), "stale")
	require.Equal(t, []string{"e0 00:16:40 merged 0", "e1 00:16:40 stale: position 0", "e2 00:16:41 stale: position 2"}, kept())
	for i := range int64(20) {
		event(i%7, start.Add(2*time.Second), "stale")
	}
	require.Equal(t, []string{"e0 00:16:40 merged 0", "e1 00:16:40 stale: position 0", "e8 00:16:42 stale: position 8"}, kept(), "later ones write nothing")
	event(6, start.Add(2*time.Minute), "stale")
	event(10, start.Add(3*time.Minute), "noise")
	event(1, start.Add(4*time.Minute), "stale")
	require.Equal(t, []string{"e0 00:16:40 merged 0", "e1 00:16:40 stale: position 0", "e23 00:18:40 stale: position 9", "e24 00:19:40 noise 0", "e25 00:20:40 stale: position 0"}, kept())
}

// The history is bounded, keeps the newest and reads as it was written.
func TestHistoryKeepsTheNewest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tr history
		var want []string
		var f []byte
		n := rapid.IntRange(0, 30).Draw(t, "records")
		version := uint64(rapid.IntRange(1, 3).Draw(t, "generation")) << 48
		for i := range n {
			version += uint64(rapid.IntRange(1, 1<<20).Draw(t, "step"))
			source := rapid.SampledFrom([]string{"registry", "lab", strings.Repeat("long", 60)}).Draw(t, "source")
			id := rapid.OneOf(rapid.String(), rapid.Just("9f1c9d3e-8c1c-4f7e-9a55-0123456789ab"), rapid.Just("9F1C9D3E-8c1c-4f7e-9a55-0123456789ab")).Draw(t, "id")
			r := &record{version: change.Version(version), at: time.UnixMilli(rapid.Int64Range(-1e12, 1e13).Draw(t, "ms")).UTC()}
			r.Event = &change.Event{Origin: change.Origin{Source: source}, EventID: id}
			tr.note(r, rapid.SampledFrom([]string{HistoryNoise, HistoryMerged}).Draw(t, "word"))
			want = append(want, fmt.Sprint(r.version, r.at, source, unpackID(packID(id)), historyWords[tr.last.word]))
			if rapid.Bool().Draw(t, "stored") {
				f = encodeState(&tr, nil, fence{"s": {Sequence: fmt.Sprint(i)}})
				var back fence
				var err error
				tr, back, err = decodeState(f)
				require.NoError(t, err)
				require.Equal(t, fmt.Sprint(i), back["s"].Sequence)
			}
		}
		var got []string
		for _, e := range tr.public().Entries {
			got = append(got, fmt.Sprint(e.Version, e.Time, e.Source, e.EventID, e.Outcome))
		}
		require.Equal(t, want[max(0, len(want)-historyLength):], got[:len(got):len(got)])
	})
}

// A history that cannot be read stops no decision, a fence that cannot be read does.
func TestHistoryIsOptional(t *testing.T) {
	known := fence{"s": {Sequence: "5", Positions: []position{{"topic", 3, 1 << 40, 7}, {"", 0, -1, 0}}, Events: []string{"a\x00b"}, Version: 7, At: -1, Died: 1e13}, "t": {}}
	plain := encodeState(&history{}, nil, known)
	m, f, err := decodeState(plain)
	require.NoError(t, err)
	require.Empty(t, m.public().Entries)
	require.Equal(t, known, f)
	_, _, err = decodeState(nil)
	require.NoError(t, err)

	var tr history
	for i := range 10 {
		tr.note(&record{version: change.NewVersion(1, int64(i)), Record: change.Record{Event: &change.Event{EventID: "e"}}}, HistoryMerged)
	}
	whole, tail := encodeState(&tr, nil, known), 1+len(known.encode()) // with the number of failed services
	for i := 2; i < len(whole)-tail; i++ {
		broken := append([]byte(nil), whole...)
		broken[i] ^= 0xFF
		m, f, err := decodeState(broken)
		require.NoError(t, err)
		require.Equal(t, known, f)
		m.public()
		m.note(&record{version: 1, Record: change.Record{Event: &change.Event{}}}, HistoryNoise)
		encodeState(&m, nil, known)
	}
	_, _, err = decodeState(whole[:len(whole)-tail-1])
	require.ErrorIs(t, err, errRemembered)
	for i := 1; i < tail; i++ {
		if _, f, err = decodeState(whole[:len(whole)-i]); err == nil {
			require.Less(t, len(f), 2, "cut between two sources")
			continue
		}
		require.ErrorIs(t, err, errRemembered)
	}
}

// Many projections: the newest record's are kept.
func TestHistoryOfManyProjections(t *testing.T) {
	var tr history
	p := &Plan{Fingerprint: []byte("f"), Projections: bananaPlan(t).Projections}
	for range 50 {
		p.Projections = append(p.Projections, p.Projections[0], p.Projections[1])
	}
	p.rank, p.ranks = ranks(p.Projections), make([]byte, len(p.Projections)/8+1)
	for i := range p.Projections {
		p.alike = append(p.alike, i)
	}
	for i := range 2 {
		tr.note(&record{version: change.NewVersion(1, int64(i)), Record: change.Record{Event: &change.Event{}}}, HistoryMerged)
		tr.evaluating(p)
		tr.evaluated(p, 101)
	}
	got := tr.public()
	_, known := got.evaluated(p, 0, 101)
	require.False(t, known)
	for i, want := range map[int]bool{0: false, 101: true} {
		evaluated, known := got.evaluated(p, 1, i)
		require.True(t, known)
		require.Equal(t, want, evaluated)
	}
}
