package decide

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// I2: a claim has one effect, however often its event is in the inbox, in
// any batches: all is as if only the first one were there. The mistake
// that this catches: a repetition that comes after something newer of another
// request brings the old content back.
func TestAClaimHasOneEffect(t *testing.T) {
	plan := bananaPlan(t)
	ids := make([]store.ClaimID, 5)
	for i := range ids {
		ids[i] = store.ClaimID(uuid.Must(uuid.NewV7()))
	}
	rapid.Check(t, func(t *rapid.T) {
		var script, once []*record
		first := map[store.ClaimID]change.Version{}
		for i := range rapid.IntRange(4, 24).Draw(t, "records") {
			r := &record{Record: change.Record{Entity: "B-007"}, version: change.NewVersion(1, int64(i)), at: time.Unix(int64(i), 0), offset: int64(i)}
			request := rapid.IntRange(0, len(ids)+1).Draw(t, "request")
			level := request
			if request < len(ids) {
				r.claimID = ids[request]
			} else {
				level = rapid.IntRange(0, 2).Draw(t, "level")
			}
			r.Event = &change.Event{Origin: change.Origin{Source: "registry"}, Op: change.Upsert, Payload: fmt.Appendf(nil, `{"id":"B-007","ripeness_level":%d}`, level)}
			if level == 1 {
				r.Event.Op, r.Event.Payload = change.Delete, nil
			} else {
				var err error
				r.tree, err = canonicaltree.Parse(r.Event.Payload)
				require.NoError(t, err)
			}
			if request == 2 { // it died, and the repetition does not make a second letter
				letter := letterOf(r, "poison", "the store cannot hold it")
				r.deadLetter = &letter
			}
			script = append(script, r)
			if _, again := first[r.claimID]; !again || request >= len(ids) {
				once = append(once, r)
				if request < len(ids) {
					first[r.claimID] = r.version
				}
			}
		}
		want := newDecided()
		want.decides(t, plan, once)
		got := newDecided()
		for rest := script; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "batch")
			got.decides(t, plan, rest[:n])
			rest = rest[n:]
		}
		require.Equal(t, want.sent, got.sent)
		require.Equal(t, want.rows(), got.rows())
		require.Equal(t, string(want.entity.Docs), string(got.entity.Docs))
		require.Equal(t, first, got.claims, "each claim is written once, with the version of its first record")
		require.Equal(t, want.letters, got.letters)
		require.Equal(t, want.entity.Found, got.entity.Found, "a repetition makes no entity")
	})
}

func newDecided() decided {
	return decided{entity: store.Entity{ID: "B-007"}, claims: map[store.ClaimID]change.Version{}, uses: map[store.KeyDigest]store.Decided{}}
}

// What became of a repetition is on record, and a dead letter that comes again
// is no repetition.
func TestARepeatedClaimIsStale(t *testing.T) {
	plan := bananaPlan(t)
	d := &Decider{opt: Options{Plan: plan, Inbox: store.Inbox{Generation: 1}}}
	id := store.ClaimID(uuid.Must(uuid.NewV7()))
	state := newDecided()
	var offset int64
	decide := func(claim string, level int, replay *change.Replay) *record {
		r := parseAt(t, d, change.Record{Entity: "B-007", Event: &change.Event{
			Origin: change.Origin{Source: "registry"}, Op: change.Upsert, Claim: claim, Replay: replay,
			Payload: fmt.Appendf(nil, `{"id":"B-007","ripeness_level":%d}`, level),
		}}, offset)
		offset++
		state.decides(t, plan, []*record{r})
		return r
	}
	decide(id.String(), 1, nil)
	decide("", 2, nil)
	decide(id.String(), 1, nil)
	decide(id.String(), 3, &change.Replay{Letter: 7, Died: 1e12})
	require.Equal(t, []string{"1:0 registry  merged", "1:1 registry  merged", "1:2 registry  stale: claim", "1:3 registry  merged"}, words(historyOf(t, state.entity)))
	require.Equal(t, map[store.ClaimID]change.Version{id: change.NewVersion(1, 0)}, state.claims)
	bad := decide("no uuid", 4, nil)
	require.NotNil(t, bad.deadLetter)
	require.Equal(t, "malformed", bad.deadLetter.Code)
}

// An entity that was never taken in, or was purged, is not made by a repetition
// that comes late. The mistake that this catches: a note of its outcome there
// leaves an empty entity behind.
func TestARepeatedClaimMakesNoEntity(t *testing.T) {
	plan := bananaPlan(t)
	d := &Decider{opt: Options{Plan: plan, Inbox: store.Inbox{Generation: 1}}}
	state := newDecided()
	id := store.ClaimID(uuid.Must(uuid.NewV7()))
	state.claims[id] = change.NewVersion(1, 0)
	state.decides(t, plan, []*record{parseAt(t, d, eventUnder(id, 1), 1)})
	require.Equal(t, store.Entity{ID: "B-007"}, state.entity)
}

func TestTheSimulatorKnowsClaims(t *testing.T) {
	s := NewSimulator(bananaPlan(t))
	one, two := store.ClaimID(uuid.Must(uuid.NewV7())), store.ClaimID(uuid.Must(uuid.NewV7()))
	for i, c := range []struct {
		claim store.ClaimID
		level int
		want  outcome
	}{{one, 1, outcomeMerged}, {two, 2, outcomeMerged}, {one, 1, outcomeStale}} {
		step, err := s.Apply(eventUnder(c.claim, c.level), time.Unix(int64(i), 0))
		require.NoError(t, err)
		require.Equal(t, string(c.want), step.Outcome)
	}
}

func eventUnder(claim store.ClaimID, level int) change.Record {
	return change.Record{Entity: "B-007", Event: &change.Event{
		Origin: change.Origin{Source: "registry"}, Op: change.Upsert, Claim: claim.String(),
		Payload: fmt.Appendf(nil, `{"id":"B-007","ripeness_level":%d}`, level),
	}}
}

// I2: a key has one effect within the time for which it is known, under however
// many claims its requests came: a ledger that was restored does not know the
// first, so it makes others. The model: of each key, an event has its effect if no
// earlier one had within that time. The mistakes that this catches: a retry after
// a restore brings the old content back; a key that is over its time stays spent;
// other content under a spent key is dropped without a word.
func TestAKeyHasOneEffect(t *testing.T) {
	plan := bananaPlan(t)
	d := &Decider{opt: Options{Plan: plan, Inbox: store.Inbox{Generation: 1}}}
	start := time.Date(2026, 11, 30, 23, 59, 59, 0, time.UTC) // also across a month's end
	const keep = 10 * time.Second
	rapid.Check(t, func(t *rapid.T) {
		type use struct {
			made    time.Time
			content int
		}
		type request struct {
			claim store.ClaimID
			key   string
			use   use
		}
		var requests []request
		var script, once []*record
		var letters int
		had := map[string]use{}
		known := map[store.ClaimID]bool{}
		made := start
		for i := range rapid.IntRange(4, 24).Draw(t, "records") {
			var r request
			if n := rapid.IntRange(0, 2*len(requests)).Draw(t, "again"); n > len(requests) {
				r = requests[n-len(requests)-1] // the same attempt once more
			} else {
				made = made.Add(time.Duration(rapid.IntRange(0, 8).Draw(t, "seconds")) * time.Second)
				r = request{claimAt(made, i), rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key"), use{made, rapid.IntRange(0, 2).Draw(t, "content")}}
				requests = append(requests, r)
			}
			digest := store.DigestKey("acme", r.key)
			rec := change.Record{Entity: "B-007", Event: &change.Event{
				Origin: change.Origin{Source: "registry"}, Op: change.Upsert, Claim: r.claim.String(),
				Use:     &change.Use{Key: digest[:], Content: []byte{7: byte(r.use.content)}, Keep: keep.Milliseconds()},
				Payload: fmt.Appendf(nil, `{"id":"B-007","ripeness_level":%d}`, r.use.content),
			}}
			script = append(script, parseAt(t, d, rec, int64(i)))
			if known[r.claim] {
				continue
			}
			known[r.claim] = true
			switch before, ok := had[r.key]; {
			case !ok || r.use.made.Sub(before.made) >= keep:
				had[r.key] = r.use
				rec.Event.Claim, rec.Event.Use = "", nil
				once = append(once, parseAt(t, d, rec, int64(i)))
			case before.content != r.use.content:
				letters++
			}
		}
		want, got := newDecided(), newDecided()
		want.decides(t, plan, once)
		for rest := script; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "batch")
			got.decides(t, plan, rest[:n])
			rest = rest[n:]
		}
		require.Equal(t, want.sent, got.sent)
		require.Equal(t, string(want.entity.Docs), string(got.entity.Docs))
		require.Len(t, got.letters, letters)
		for _, l := range got.letters {
			require.Equal(t, "key_conflict", l.Code)
		}
		require.Len(t, got.claims, len(known), "each claim is written once")
	})
}

// claimAt returns the id of a claim that was made at a time.
func claimAt(made time.Time, n int) (id store.ClaimID) {
	binary.BigEndian.PutUint64(id[:], uint64(made.UnixMilli())<<16)
	id[6], id[8], id[15] = 0x70, 0x80, byte(n)
	return id
}

// The newest use has the key: an older one that comes late, from another
// partition, has its effect, and the key stays where it is. A record of an earlier
// version says nothing of its key.
func TestAnOlderUseThatComesLate(t *testing.T) {
	at := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)
	key := store.DigestKey("acme", "k")
	rec := func(made time.Time, n int, content byte) *record {
		return &record{claimID: claimAt(made, n), use: store.Use{Key: key, Content: [8]byte{content}}, keep: time.Hour, version: change.NewVersion(1, int64(n))}
	}
	newest, late, within, old := rec(at, 1, 1), rec(at.Add(-time.Hour), 2, 2), rec(at.Add(-time.Hour+time.Millisecond), 3, 2), rec(at, 4, 2)
	old.use = store.Use{}
	c := newClaims(4, store.Loaded{})
	require.Equal(t, []effect{first, first, conflicting, first, repeated}, []effect{c.of(newest), c.of(late), c.of(within), c.of(old), c.of(late)})
	require.Equal(t, []store.Decided{
		{ID: newest.claimID, Version: newest.version, Use: newest.use}, {ID: late.claimID, Version: late.version},
		{ID: within.claimID, Version: within.version}, {ID: old.claimID, Version: old.version},
	}, c.effects())
}

func TestAUseThatIsNoneIsMalformed(t *testing.T) {
	d := &Decider{opt: Options{Plan: bananaPlan(t), Inbox: store.Inbox{Generation: 1}}}
	for _, u := range []*change.Use{{}, {Key: make([]byte, 16), Content: make([]byte, 7)}, {Key: make([]byte, 16), Content: make([]byte, 8), Keep: -1}} {
		rec := eventUnder(claimAt(time.Now(), 1), 1)
		rec.Event.Use = u
		r := parseAt(t, d, rec, 1)
		require.NotNil(t, r.deadLetter)
		require.Equal(t, "malformed", r.deadLetter.Code)
	}
}
