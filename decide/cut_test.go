package decide

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// decided is the stored and sent result of some batches about one entity.
type decided struct {
	entity  store.Entity
	sent    []change.Change
	letters []store.DeadLetter
	claims  map[store.ClaimID]change.Version
	uses    map[store.KeyDigest]store.Decided
}

// decides decides records as one transaction does.
func (d *decided) decides(t require.TestingT, p *Plan, batch []*record) {
	b := newBatch(p, batch, unbounded, noCache)
	loaded := store.Loaded{Decided: d.claims, Uses: d.uses}
	if len(b.toLoad()) > 0 {
		loaded.Entities = []store.Entity{d.entity}
	}
	v, err := decideBatch(b, loaded)
	require.NoError(t, err)
	d.letters = append(d.letters, v.out.Letters...)
	for _, id := range v.out.Purged {
		require.Equal(t, d.entity.ID, id)
		d.entity = store.Entity{ID: id}
	}
	for _, e := range v.out.Entities {
		require.Equal(t, d.entity.Writes, e.Writes)
		e.Found, e.States = true, e.States.Stored()
		e.Writes++
		d.entity = e
	}
	d.sent = append(d.sent, v.step().Sent...)
	_, distinct := store.SortDecided(v.out.Claims)
	require.True(t, distinct)
	for _, c := range v.out.Claims {
		require.NotContains(t, d.claims, c.ID)
		d.claims[c.ID] = c.Version
		if c.Key != (store.KeyDigest{}) {
			d.uses[c.Key] = c
		}
	}
}

// rows are the dam states.
func (d *decided) rows() []store.Row { return d.entity.States.All(d.entity.ID) }

// I4: the cuts between batches show neither in the changes sent nor in
// the dam. The mistake that this caught: a reset and a delete of an entity that
// was new in the same batch left the retraction out.
func TestBatchesAreNoBoundaries(t *testing.T) {
	plan := bananaPlan(t)
	rapid.Check(t, func(t *rapid.T) {
		var script []*record
		var deleted change.Version // by the last record that deletes
		for i := range rapid.IntRange(4, 16).Draw(t, "records") {
			version := change.NewVersion(1, int64(i))
			r := &record{Record: change.Record{Entity: "B-007"}, version: version, at: time.Unix(int64(i), 0), offset: int64(i)}
			switch rapid.IntRange(0, 8).Draw(t, "kind") {
			case 0:
				r.Control = &change.Control{ID: fmt.Sprint(i), Action: change.Reset}
			case 1:
				r.Control = &change.Control{
					ID: fmt.Sprint(i), Action: change.Refuse, Services: []string{"one/ripeness@a"},
					Version: change.NewVersion(1, int64(rapid.IntRange(0, i).Draw(t, "refused"))),
				}
			case 2:
				r.Control = &change.Control{ID: fmt.Sprint(i), Action: change.Redecide, Force: rapid.Bool().Draw(t, "force"), Letter: rapid.Int64Range(0, 1).Draw(t, "letter")}
			case 3, 4:
				r.Event = &change.Event{Origin: change.Origin{Source: "registry", Topic: "t", Offset: int64(i)}, Op: change.Delete}
				deleted = version
			case 5, 6:
				r.Control = &change.Control{ID: fmt.Sprint(i), Action: change.Purge, Version: deleted + 1}
			default:
				payload := fmt.Sprintf(`{"id":"B-007","origin":%q,"ripeness_level":%d}`,
					rapid.SampledFrom([]string{"EC", "XX"}).Draw(t, "origin"), rapid.IntRange(1, 2).Draw(t, "level"))
				r.Event = &change.Event{Origin: change.Origin{Source: "registry", Topic: "t", Offset: int64(i)}, Op: change.Upsert, Payload: []byte(payload)}
				var err error
				r.tree, err = canonicaltree.Parse(r.Event.Payload)
				require.NoError(t, err)
			}
			script = append(script, r)
		}
		one := newDecided()
		for _, r := range script {
			one.decides(t, plan, []*record{r})
		}
		cut := newDecided()
		for rest := script; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "batch")
			cut.decides(t, plan, rest[:n])
			rest = rest[n:]
		}
		require.Equal(t, one.sent, cut.sent)
		require.Equal(t, one.rows(), cut.rows())
		require.Equal(t, string(one.entity.Docs), string(cut.entity.Docs))
		require.Equal(t, one.entity.Fingerprint, cut.entity.Fingerprint)
	})
}

// I1: the log lost a retraction, which is sent once more. The mistake that this catches:
// the entity was purged before that was delivered, and when the log lost it again nothing
// told of it any more.
func TestAPurgeWaitsForWhatWasSentAgain(t *testing.T) {
	plan := bananaPlan(t)
	d := newDecided()
	at := func(offset int64, r record) {
		r.Entity, r.version, r.at, r.offset = "B-007", change.NewVersion(1, offset), time.Unix(offset, 0), offset
		if e := r.Event; e != nil {
			e.Origin = change.Origin{Source: "registry", Topic: "t", Offset: offset}
		}
		d.decides(t, plan, []*record{&r})
	}
	purge := func(below int64) record {
		return record{Record: change.Record{Control: &change.Control{ID: "p", Action: change.Purge, Version: change.NewVersion(1, below)}}}
	}
	payload := []byte(`{"id":"B-007","origin":"EC","ripeness_level":1}`)
	tree, err := canonicaltree.Parse(payload)
	require.NoError(t, err)
	at(0, record{Record: change.Record{Event: &change.Event{Op: change.Upsert, Payload: payload}}, tree: tree})
	at(1, purge(9))
	require.True(t, d.entity.Found, "it is not deleted")
	at(2, record{Record: change.Record{Event: &change.Event{Op: change.Delete}}})
	at(3, purge(2))
	require.True(t, d.entity.Found, "not everybody has heard of it")
	at(4, record{Record: change.Record{Control: &change.Control{ID: "r", Action: change.Redecide, Version: change.NewVersion(1, 2), Force: true}}})
	require.Equal(t, change.NewVersion(1, 4), d.rows()[0].Version)
	at(5, purge(3))
	require.True(t, d.entity.Found, "not of the second time")

	last := purge(5)
	last.Entity, last.version = "B-007", change.NewVersion(1, 6)
	b := newBatch(plan, []*record{&last}, unbounded, noCache)
	_, err = decideBatch(b, store.Loaded{Entities: []store.Entity{d.entity}})
	require.NoError(t, err)
	purged := &b.subjects[0]
	require.False(t, purged.remember(0, purged.row, purged.write).row.Found, "the cache has what the store has")
	at(6, purge(5))
	require.False(t, d.entity.Found)
}
