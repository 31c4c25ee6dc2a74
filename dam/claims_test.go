package dam

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/inbox"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// I2: a claim has one effect, however often its event stands in the inbox, in
// whichever batches: all is as if only the first one were there. The mistake
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
			r := &record{Record: inbox.Record{Entity: "B-007"}, version: change.NewVersion(1, int64(i)), at: time.Unix(int64(i), 0), offset: int64(i)}
			request := rapid.IntRange(0, len(ids)+1).Draw(t, "request")
			level := request
			if request < len(ids) {
				r.once = ids[request]
			} else {
				level = rapid.IntRange(0, 2).Draw(t, "level")
			}
			r.Event = &inbox.Event{Origin: inbox.Origin{Source: "registry"}, Op: inbox.Upsert, Payload: fmt.Appendf(nil, `{"id":"B-007","ripeness_level":%d}`, level)}
			if level == 1 {
				r.Event.Op, r.Event.Payload = inbox.Delete, nil
			} else {
				var err error
				r.tree, err = canonicaltree.Parse(r.Event.Payload)
				require.NoError(t, err)
			}
			if request == 2 { // it died, and the repetition does not make a second letter
				letter := letterOf(r, "poison", "the store cannot hold it")
				r.bad = &letter
			}
			script = append(script, r)
			if _, again := first[r.once]; !again || request >= len(ids) {
				once = append(once, r)
				if request < len(ids) {
					first[r.once] = r.version
				}
			}
		}
		want := newDecided()
		decideBatch(t, plan, &want, once)
		got := newDecided()
		for rest := script; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "batch")
			decideBatch(t, plan, &got, rest[:n])
			rest = rest[n:]
		}
		require.Equal(t, want.sent, got.sent)
		require.Equal(t, want.rows, got.rows)
		require.Equal(t, string(want.entity.Docs), string(got.entity.Docs))
		require.Equal(t, first, got.claims, "each claim is written once, with the version of its first record")
		require.Equal(t, want.letters, got.letters)
		require.Equal(t, want.entity.Found, got.entity.Found, "a repetition makes no entity")
	})
}

func newDecided() decided {
	return decided{rows: map[store.Key]store.Row{}, entity: store.Entity{ID: "B-007"}, claims: map[store.ClaimID]change.Version{}}
}

// What became of a repetition is on record, and a dead letter that comes again
// is no repetition.
func TestARepeatedClaimIsStale(t *testing.T) {
	plan := bananaPlan(t)
	d := &Decider{opt: Options{Plan: plan, Inbox: store.Inbox{Generation: 1}}}
	id := store.ClaimID(uuid.Must(uuid.NewV7()))
	state := newDecided()
	var offset int64
	decide := func(claim string, level int, replay *inbox.Replay) *record {
		r := d.parse(messageOf(t, inbox.Record{Entity: "B-007", Event: &inbox.Event{
			Origin: inbox.Origin{Source: "registry"}, Op: inbox.Upsert, Claim: claim, Replay: replay,
			Payload: fmt.Appendf(nil, `{"id":"B-007","ripeness_level":%d}`, level),
		}}), positionAt(offset))
		offset++
		decideBatch(t, plan, &state, []*record{r})
		return r
	}
	decide(id.String(), 1, nil)
	decide("", 2, nil)
	decide(id.String(), 1, nil)
	decide(id.String(), 3, &inbox.Replay{Letter: 7, Died: 1e12})
	require.Equal(t, []string{"1:0 registry  merged", "1:1 registry  merged", "1:2 registry  stale: claim", "1:3 registry  merged"}, words(trailOf(t, state.entity)))
	require.Equal(t, map[store.ClaimID]change.Version{id: change.NewVersion(1, 0)}, state.claims)
	bad := decide("no uuid", 4, nil)
	require.NotNil(t, bad.bad)
	require.Equal(t, "malformed", bad.bad.Code)
}

// An entity that was never taken in, or was purged, is not made by a repetition
// that comes late. The mistake that this catches: to note what became of it there
// leaves an empty entity for ever.
func TestARepeatedClaimMakesNoEntity(t *testing.T) {
	plan := bananaPlan(t)
	d := &Decider{opt: Options{Plan: plan, Inbox: store.Inbox{Generation: 1}}}
	state := newDecided()
	id := store.ClaimID(uuid.Must(uuid.NewV7()))
	state.claims[id] = change.NewVersion(1, 0)
	decideBatch(t, plan, &state, []*record{d.parse(messageOf(t, eventUnder(id, 1)), positionAt(1))})
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

func eventUnder(claim store.ClaimID, level int) inbox.Record {
	return inbox.Record{Entity: "B-007", Event: &inbox.Event{
		Origin: inbox.Origin{Source: "registry"}, Op: inbox.Upsert, Claim: claim.String(),
		Payload: fmt.Appendf(nil, `{"id":"B-007","ripeness_level":%d}`, level),
	}}
}
