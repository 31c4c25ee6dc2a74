package decide

import (
	"strings"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/projections"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// I5: a dead letter that comes again was never applied, so its own position says
// nothing against it; what its source sent since does.
func TestReplayedEventsAreFencedByWhatCameSince(t *testing.T) {
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	at := func(minutes int) time.Time { return begin.Add(time.Duration(minutes) * time.Minute) }
	v := func(offset int64) change.Version { return change.NewVersion(1, offset) }
	event := func(topic string, offset int64, sequence string) *change.Event {
		return &change.Event{Origin: change.Origin{Source: "s", Topic: topic, Offset: offset}, Sequence: sequence}
	}
	letter := func(e *change.Event, version change.Version, died int) *change.Event {
		e.Replay = &change.Replay{Letter: 1, Version: version, Died: at(died).UnixMilli()}
		return e
	}
	type taken struct {
		event   *change.Event
		version change.Version
		minute  int
	}
	for _, c := range []struct {
		name   string
		before []taken
		replay *change.Event
		want   staleReason
	}{
		{"nothing was ever taken", nil, letter(event("t", 5, ""), 0, 0), fresh},
		{"only older ones of the stream", []taken{{event("t", 4, ""), v(10), 0}}, letter(event("t", 5, ""), 0, 1), fresh},
		{"a newer one of the stream", []taken{{event("t", 6, ""), v(10), 0}}, letter(event("t", 5, ""), 0, 60), staleReplay},
		{"noted when it died, and nothing since", []taken{{event("t", 5, ""), v(10), 0}}, letter(event("t", 5, ""), v(10), 0), fresh},
		{"a newer one by an older sequence", []taken{{event("t", 6, "7"), v(10), 0}}, letter(event("t", 5, "8"), 0, 0), fresh},
		{"an older one by a newer sequence", []taken{{event("t", 4, "9"), v(10), 0}}, letter(event("t", 5, "8"), 0, 0), staleReplay},
		{"a newer one of a stream that was made again", []taken{{event("t", 9, ""), v(10), 0}, {event("t2", 0, ""), v(12), 5}}, letter(event("t", 5, ""), v(8), 0), staleReplay},
		{"an older one, by the inbox", []taken{{event("t2", 0, ""), v(7), 0}}, letter(event("t", 5, ""), v(8), 0), fresh},
		{"a newer one, by the inbox", []taken{{event("t2", 0, ""), v(9), 0}}, letter(event("t", 5, ""), v(8), 0), staleReplay},
		{"posted, nothing since", []taken{{event("", 0, ""), v(7), 0}}, letter(event("", 0, ""), 0, 2), fresh},
		{"posted, something since", []taken{{event("", 0, ""), v(7), 5}}, letter(event("", 0, ""), 0, 2), staleReplay},
		{"posted, and the clocks cannot tell", []taken{{event("", 0, ""), v(7), 0}}, letter(event("", 0, ""), 0, 1), staleReplay},
		{"two letters of one stream in their order", []taken{{event("t", 4, ""), v(7), 0}, {letter(event("t", 5, ""), 0, 1), v(20), 60}}, letter(event("t", 6, ""), 0, 1), fresh},
		{"two letters of one stream against their order", []taken{{event("t", 4, ""), v(7), 0}, {letter(event("t", 6, ""), 0, 1), v(20), 60}}, letter(event("t", 5, ""), 0, 1), staleReplay},
		{"two posted letters in their order", []taken{{event("", 0, ""), v(7), 0}, {letter(event("", 0, ""), 0, 2), v(20), 60}}, letter(event("", 0, ""), 0, 3), fresh},
		{"two posted letters against their order", []taken{{event("", 0, ""), v(7), 0}, {letter(event("", 0, ""), 0, 3), v(20), 60}}, letter(event("", 0, ""), 0, 2), staleReplay},
		{"two letters of decide in their order", []taken{{event("t", 4, ""), v(7), 0}, {letter(event("u", 5, ""), v(8), 1), v(20), 60}}, letter(event("w", 6, ""), v(9), 1), fresh},
		{"a new event after a replay", []taken{{letter(event("", 0, ""), 0, 2), v(20), 60}, {event("", 0, ""), v(21), 61}}, letter(event("", 0, ""), 0, 3), staleReplay},
		{"a posted one after those of a stream", []taken{{event("t", 4, ""), v(7), 0}, {event("", 0, ""), v(8), 10}}, letter(event("t", 5, ""), 0, 1), staleReplay},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fence{}
			for _, b := range c.before {
				require.Equal(t, fresh, f.check(b.event), "what goes before")
				f.note(b.event, b.version, at(b.minute))
			}
			decoded := fence{}
			require.NoError(t, new(fenceRoom).decode(decoded, f.encode()))
			require.Equal(t, c.want, decoded.check(c.replay))
		})
	}
}

// A replay that is newer by its sequence does not admit events that come
// behind it in the stream and were ingested before.
func TestReplayedEventMovesNoPositionBack(t *testing.T) {
	of := func(offset int64, sequence string) *change.Event {
		return &change.Event{Origin: change.Origin{Source: "s", Topic: "t", Offset: offset}, Sequence: sequence}
	}
	f := fence{}
	f.note(of(4, "7"), change.NewVersion(1, 1), time.Unix(1, 0))
	f.note(of(6, ""), change.NewVersion(1, 2), time.Unix(2, 0))
	letter := of(5, "8")
	letter.Replay = &change.Replay{Letter: 1, Died: 1500}
	require.Equal(t, fresh, f.check(letter))
	f.note(letter, change.NewVersion(1, 9), time.Unix(3, 0))
	require.Equal(t, stalePosition, f.check(of(6, "")), "it was taken")
	require.Equal(t, fresh, f.check(of(7, "")))
}

// For any events of a source, any of which fail and are replayed later, at the
// end the newest event that was not left out is the one that counts, and a
// repetition of a replay changes nothing.
func TestReplaysNeverGoBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		f := fence{}
		newest := int64(-1)
		var dead []*change.Event
		inboxOffset := int64(0)
		offer := func(e *change.Event) {
			inboxOffset++
			if f.check(e) != fresh {
				return
			}
			require.GreaterOrEqual(t, e.Offset, newest, "an older event overwrites a newer one")
			newest = e.Offset
			f.note(e, change.NewVersion(1, inboxOffset), begin.Add(time.Duration(inboxOffset)*time.Second))
		}
		for offset := int64(0); offset < int64(rapid.IntRange(1, 20).Draw(t, "events")); offset++ {
			e := &change.Event{Origin: change.Origin{Source: "s", Topic: "t", Offset: offset}}
			if rapid.Bool().Draw(t, "dies") {
				e.Replay = &change.Replay{Letter: offset + 1, Died: begin.Add(time.Duration(inboxOffset) * time.Second).UnixMilli()}
				if rapid.Bool().Draw(t, "behind the inbox") {
					inboxOffset++
					e.Replay.Version = change.NewVersion(1, inboxOffset)
				}
				dead = append(dead, e)
			} else {
				offer(e)
			}
			for range rapid.IntRange(0, 2).Draw(t, "replays") {
				if len(dead) > 0 {
					offer(rapid.SampledFrom(dead).Draw(t, "letter"))
				}
			}
		}
		for _, e := range dead {
			offer(e)
		}
	})
}

// posted is an event without position.
func posted(payload string, replay *change.Replay) change.Record {
	return change.Record{Entity: "B-007", Event: &change.Event{Origin: change.Origin{Source: "registry"}, Op: change.Upsert, Payload: []byte(payload), Replay: replay}}
}

// decideOne decides one record about a stored entity, of which states are known.
func decideOne(t *testing.T, p *Plan, e store.Entity, r change.Record, states ...store.Row) *verdict {
	t.Helper()
	rec := &record{Record: r, version: change.NewVersion(1, 100), at: time.Unix(1000, 0)}
	if r.Event != nil {
		rec = parseAt(t, &Decider{opt: Options{Plan: p, Inbox: store.Inbox{Generation: 1}}}, r, 100)
	}
	for _, row := range states {
		e.States.Set(row)
	}
	e.States = e.States.Stored()
	v, err := decideBatch(newBatch(p, []*record{rec}, unbounded, noCache), store.Loaded{Entities: []store.Entity{e}})
	require.NoError(t, err)
	return v
}

// I9: the decision says what became of a letter, in its own transaction.
func TestADecisionSettlesItsLetter(t *testing.T) {
	p := bananaPlan(t)
	replay := &change.Replay{Letter: 9, Died: 5000, Operation: "op", Actor: "root@host", Reason: "why"}
	v := decideOne(t, p, store.Entity{ID: "B-007"}, posted(`{"id":"B-007"}`, replay))
	require.Equal(t, []store.LetterResolution{{ID: 9, State: store.LetterReplayed}}, v.out.Settled)
	require.Len(t, v.out.Audit, 1)
	require.Equal(t, "root@host", v.out.Audit[0].Actor)
	require.JSONEq(t, `{"operation":"op","letter":9,"outcome":"replayed"}`, string(v.out.Audit[0].Detail))

	row := v.out.Entities[0]
	row.Found = true
	old := *replay
	old.Letter, old.Died = 10, 4000
	v = decideOne(t, p, row, posted(`{"id":"old"}`, &old))
	require.Equal(t, []store.LetterResolution{{ID: 10, State: store.LetterObsolete}}, v.out.Settled)
	require.Empty(t, v.changes)

	v = decideOne(t, p, row, posted(`{`, &change.Replay{Letter: 11}))
	require.Equal(t, []store.LetterResolution{{ID: 11, State: store.LetterReplayed}}, v.out.Settled)
	require.Len(t, v.out.Letters, 1, "it died again, and that is a letter of its own")
	require.Contains(t, string(v.out.Letters[0].Headers), `\"l\":11`, "which knows how old it is")

	// A letter of a delivery: decided again unless a newer version was.
	key := store.Key{Service: 1, Entity: "B-007"}
	for _, c := range []struct {
		rowVersion change.Version
		want       store.LetterState
		sent       int
	}{{change.NewVersion(1, 7), store.LetterReplayed, 1}, {change.NewVersion(1, 8), store.LetterObsolete, 0}} {
		r := change.Record{Entity: "B-007", Control: &change.Control{
			ID: "x", Action: change.Redecide, Services: []string{"one/ripeness@a"}, Version: change.NewVersion(1, 7), Letter: 12,
		}}
		v := decideOne(t, p, row, r, store.Row{Key: key, Version: c.rowVersion})
		require.Len(t, v.changes, c.sent)
		settled := []store.LetterResolution{{ID: 12, State: c.want, Version: r.Control.Version}}
		for _, sent := range v.changes { // the other letters of unknown content
			settled = append(settled, store.LetterResolution{Stage: store.StageDeliver, Service: "one/ripeness@a", Entity: "B-007", State: store.LetterObsolete, Version: sent.Version})
		}
		require.Equal(t, settled, v.out.Settled)
	}
}

// A forced decision for the sake of one change does nothing when it is repeated,
// or when the entity has a newer change anyway.
func TestForcedDecisionAboutOneVersion(t *testing.T) {
	p := bananaPlan(t)
	key := store.Key{Service: 1, Entity: "B-007"}
	r := change.Record{Entity: "B-007", Control: &change.Control{
		ID: "x", Action: change.Redecide, Services: []string{"one/ripeness@a"}, Version: change.NewVersion(1, 7), Force: true,
	}}
	for version, sent := range map[int64]int{7: 1, 8: 0} {
		v := decideOne(t, p, store.Entity{ID: "B-007"}, r, store.Row{Key: key, Version: change.NewVersion(1, version), Content: change.Retracted()})
		require.Len(t, v.changes, sent)
		require.Empty(t, v.out.Settled)
	}
}

// A refresh sends unchanged content, once for a version. Refused content stays held back, and a
// refresh that fails leaves the dam state known. It needs no audit.
func TestARefreshSendsWhatIsUnchanged(t *testing.T) {
	r := change.Record{Entity: "B-007", Control: &change.Control{
		ID: "x", Action: change.Redecide, Services: []string{"one/ripeness@a"}, Version: change.NewVersion(1, 0), Force: true, Actor: change.Refresh,
	}}
	event := `registry: {"id":"B-007","ripeness_level":1}`
	s := NewSimulator(bananaPlan(t))
	require.Equal(t, []string{both1}, feed(t, s, event))
	require.Equal(t, strings.Replace(one1, "merged", "control", 1), apply(t, s, r, "refresh"))
	require.Equal(t, "control", apply(t, s, r, "the same again"))

	s = NewSimulator(bananaPlan(t))
	require.Equal(t, []string{both1}, feed(t, s, event))
	bad, err := projections.Compile(projections.Spec{Customer: "one", Name: "ripeness", Fields: []projections.Field{{Out: "ripeness", Expr: "doc.ripeness_level + 'x'"}}})
	require.NoError(t, err)
	s.plan.Projections[0] = bad
	require.NoError(t, s.plan.Prepare())
	require.Equal(t, "control dead:projection", apply(t, s, r, "refresh"))

	p, key := bananaPlan(t), store.Key{Service: 1, Entity: "B-007"}
	c := change.Retracted()
	for refused, sent := range map[bool]int{false: 1, true: 0} {
		v := decideOne(t, p, store.Entity{ID: "B-007"}, r, store.Row{Key: key, Content: c, Refused: refused})
		require.Len(t, v.changes, sent)
		require.Empty(t, v.out.Audit)
	}
}

// A log sink's letter is sent unchanged, behind newer changes, and no row moves.
func TestResendTouchesNoRow(t *testing.T) {
	p := bananaPlan(t)
	c := change.Change{Service: "one/ripeness@a", Entity: "B-007", Op: change.Retract, Version: change.NewVersion(1, 7), Content: change.Retracted(), Time: time.Unix(9, 0).UTC()}
	c.Key = change.Key(c.Service, c.Entity, c.Version, c.Content)
	key := store.Key{Service: 1, Entity: "B-007"}
	state := store.Row{Key: key, Version: change.NewVersion(1, 50)}
	r := change.Record{Entity: "B-007", Control: &change.Control{ID: "x", Action: change.Resend, Letter: 3, Change: c.AppendBinary(nil)}}
	v := decideOne(t, p, store.Entity{ID: "B-007"}, r, state)
	require.Empty(t, v.out.Entities)
	require.Equal(t, []store.LetterResolution{{ID: 3, State: store.LetterReplayed}}, v.out.Settled)
	c.Resent = change.NewVersion(1, 100)
	require.Equal(t, []change.Change{c}, v.step().Sent)

	r.Control.Change = []byte("no change")
	v = decideOne(t, p, store.Entity{ID: "B-007"}, r, state)
	require.Empty(t, v.changes)
	require.Empty(t, v.out.Settled)
	require.Len(t, v.out.Letters, 1)
	r.Entity, r.Control.Change = "other", c.AppendBinary(nil)
	v = decideOne(t, p, store.Entity{ID: "other"}, r, state)
	require.Len(t, v.out.Letters, 1, "a change of another entity")
}

// A preview shows the outcome of the decision, and changes nothing.
func TestPreviewIsWhatTheDecisionDoes(t *testing.T) {
	p := bananaPlan(t)
	row := decideOne(t, p, store.Entity{ID: "B-007"}, posted(`{"id":"B-007","ripeness_level":2}`, nil)).out.Entities[0]
	row.Found, row.States = true, row.States.Stored()
	held, err := p.Preview(row, change.Control{Action: change.Redecide})
	require.NoError(t, err)
	require.Empty(t, held.Sent)
	require.Equal(t, []string{"one/ripeness@a", "two/list@a"}, held.Held)
	forced, err := p.Preview(row, change.Control{Action: change.Redecide, Force: true, Services: []string{"two/list@a"}})
	require.NoError(t, err)
	require.Len(t, forced.Sent, 1)
	require.JSONEq(t, `{"banana_id":"B-007"}`, string(forced.Sent[0].Doc))
}

// parseAt parses a record as the transport hands it out, at an offset.
func parseAt(t require.TestingT, d *Decider, r change.Record, offset int64) *record {
	key, head, value, err := change.EncodeRecord(r)
	require.NoError(t, err)
	in := transport.Received{
		Key: key, Value: value, Headers: []transport.Header{{Key: change.InboxHeader, Value: head}}, Offset: offset, Time: time.Unix(1000, 0).UTC(),
	}
	parsed := new(record)
	d.parse(parsed, transport.NewFrame("", "", 0, 0, []transport.Received{in}), 0)
	return parsed
}
