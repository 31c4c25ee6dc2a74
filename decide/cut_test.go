package decide

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/inbox"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// decided is what is stored and sent after some batches about one entity.
type decided struct {
	entity  store.Entity
	rows    map[store.Key]store.Row
	sent    []change.Change
	letters []store.DeadLetter
	claims  map[store.ClaimID]change.Version
	uses    map[store.KeyDigest]store.Decided
}

// decideBatch decides records as one transaction does.
func decideBatch(t require.TestingT, p *Plan, d *decided, batch []*record) {
	ev, err := newEvaluation(p, d.entity)
	require.NoError(t, err)
	claimed, _ := claimsOf(batch)
	once := newClaims(len(claimed), store.Loaded{Decided: d.claims, Uses: d.uses})
	ev.claims = once
	var candidates []candidate
	for _, r := range batch {
		require.NoError(t, ev.apply(r))
		candidates = append(candidates, ev.candidates...)
		d.letters = append(d.letters, ev.letters...)
		ev.candidates, ev.letters = ev.candidates[:0], nil
	}
	rows, err := readRows(p, candidates, func(keys []store.Key) ([]store.Row, error) {
		found := make([]store.Row, len(keys))
		for i, k := range keys {
			found[i] = d.rows[k]
			found[i].Key = k
		}
		return found, nil
	})
	require.NoError(t, err)
	result, err := settle(p, candidates, rows, maxOutcomeOfOne)
	require.NoError(t, err)
	row, dirty := ev.result()
	if dirty {
		row.Found = true
		d.entity = row
	}
	for _, s := range result.swaps {
		d.rows[s.Key] = store.Row{Key: s.Key, Found: true, Content: s.New, Version: s.Version}
	}
	d.sent = append(d.sent, result.changes...)
	_, distinct := store.SortDecided(once.effects())
	require.True(t, distinct)
	for _, c := range once.effects() {
		require.NotContains(t, d.claims, c.ID)
		d.claims[c.ID] = c.Version
		if c.Key != (store.KeyDigest{}) {
			d.uses[c.Key] = c
		}
	}
}

// I4: how records are cut into batches shows neither in what is sent nor in
// the dam. The mistake that this caught: a reset and a delete of an entity that
// was new in the same batch left the retraction out.
func TestBatchesAreNoBoundaries(t *testing.T) {
	plan := bananaPlan(t)
	rapid.Check(t, func(t *rapid.T) {
		var script []*record
		for i := range rapid.IntRange(4, 16).Draw(t, "records") {
			version := change.NewVersion(1, int64(i))
			r := &record{Record: inbox.Record{Entity: "B-007"}, version: version, at: time.Unix(int64(i), 0), offset: int64(i)}
			switch rapid.IntRange(0, 6).Draw(t, "kind") {
			case 0:
				r.Control = &inbox.Control{ID: fmt.Sprint(i), Action: inbox.Reset}
			case 1:
				r.Control = &inbox.Control{
					ID: fmt.Sprint(i), Action: inbox.Refuse, Services: []string{"one/ripeness@a"},
					Version: change.NewVersion(1, int64(rapid.IntRange(0, i).Draw(t, "refused"))),
				}
			case 2:
				r.Control = &inbox.Control{ID: fmt.Sprint(i), Action: inbox.Redecide, Force: rapid.Bool().Draw(t, "force"), Letter: rapid.Int64Range(0, 1).Draw(t, "letter")}
			case 3, 4:
				r.Event = &inbox.Event{Origin: inbox.Origin{Source: "registry", Topic: "t", Offset: int64(i)}, Op: inbox.Delete}
			default:
				payload := fmt.Sprintf(`{"id":"B-007","origin":%q,"ripeness_level":%d}`,
					rapid.SampledFrom([]string{"EC", "XX"}).Draw(t, "origin"), rapid.IntRange(1, 2).Draw(t, "level"))
				r.Event = &inbox.Event{Origin: inbox.Origin{Source: "registry", Topic: "t", Offset: int64(i)}, Op: inbox.Upsert, Payload: []byte(payload)}
				var err error
				r.tree, err = canonicaltree.Parse(r.Event.Payload)
				require.NoError(t, err)
			}
			script = append(script, r)
		}
		one := newDecided()
		for _, r := range script {
			decideBatch(t, plan, &one, []*record{r})
		}
		cut := newDecided()
		for rest := script; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "batch")
			decideBatch(t, plan, &cut, rest[:n])
			rest = rest[n:]
		}
		require.Equal(t, one.sent, cut.sent)
		require.Equal(t, one.rows, cut.rows)
		require.Equal(t, string(one.entity.Docs), string(cut.entity.Docs))
		require.Equal(t, one.entity.Fingerprint, cut.entity.Fingerprint)
	})
}
