package storetest

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// decidedTests are the ledger's promises about decided claims.
var decidedTests = []ledgerTest{
	{"claims of a month that was dropped count as not decided", func(t *testing.T, f *ledgerFixture) {
		revision := f.revision()
		id := f.claim("k")
		decide := func(found map[store.ClaimID]change.Version, v int64) {
			err := f.b.Decide(t.Context(), store.Decision{Revision: revision, Claims: []store.ClaimID{id}}, func(loaded store.Loaded) (store.Outcome, error) {
				assert.Equal(t, found, loaded.Decided)
				if loaded.Decided != nil {
					return store.Outcome{}, nil
				}
				return store.Outcome{Claims: []store.Decided{{ID: id, Version: version(v)}}}, nil
			})
			require.NoError(t, err)
		}
		decide(nil, 7)
		_, err := f.a.RetainClaims(t.Context(), -31*24*time.Hour)
		require.NoError(t, err)
		decide(nil, 10)
	}},
	{"I2 what is decided is known also where no claim made the month", func(t *testing.T, f *ledgerFixture) {
		// A store that was restored from a backup of the month before, say: the inbox
		// has the records of the claims twice, the ledger has never heard of them.
		revision := f.revision()
		this := store.MonthOf(time.Now())
		var ids []store.ClaimID
		for i, made := range []time.Time{this.AddDate(0, -2, 3), this.AddDate(0, -1, 3), this.AddDate(0, 0, 1)} {
			id := claimAt(made, byte(i))
			ids = append(ids, id)
			require.Equal(t, store.MonthOf(made), id.Month())
			var before map[store.ClaimID]change.Version
			for range 2 {
				err := f.b.Decide(t.Context(), store.Decision{Revision: revision, Claims: []store.ClaimID{id}}, func(loaded store.Loaded) (store.Outcome, error) {
					assert.Equal(t, before, loaded.Decided, made)
					if loaded.Decided != nil {
						return store.Outcome{}, nil
					}
					return store.Outcome{Claims: []store.Decided{{ID: id, Version: version(7)}}}, nil
				})
				require.NoError(t, err)
				before = map[store.ClaimID]change.Version{id: version(7)}
			}
		}
		_, err := f.a.RetainClaims(t.Context(), time.Since(this))
		require.NoError(t, err)
		err = f.b.Decide(t.Context(), store.Decision{Revision: revision, Claims: ids}, func(loaded store.Loaded) (store.Outcome, error) {
			assert.Len(t, loaded.Decided, len(ids), "each is kept as long as claims made when it was decided")
			return store.Outcome{}, nil
		})
		require.NoError(t, err)
		assert.Equal(t, this, f.begin(f.a, "acme", intent("new", "x"), keepClaims).ID.Month())
	}},
	{"I2 a key is had by one claim, the newest that had its effect", func(t *testing.T, f *ledgerFixture) {
		revision := f.revision()
		key, other := store.DigestKey("acme", "k"), store.DigestKey("globex", "k")
		require.NotEqual(t, key, other)
		require.NotEqual(t, store.DigestKey("ac", "mek"), key)
		one, two, three := claimAt(time.Now(), 1), claimAt(time.Now(), 2), claimAt(time.Now(), 3)
		use := func(id store.ClaimID, v int64, content byte) store.Decided {
			return store.Decided{ID: id, Version: version(v), Use: store.Use{Key: key, Content: [8]byte{7: content}}}
		}
		all := store.Decision{Revision: revision, Claims: []store.ClaimID{one, two, three}, Keys: []store.KeyDigest{key, other, key}}
		decide := func(s store.Store, want store.Loaded, claims ...store.Decided) error {
			return s.Decide(t.Context(), all, func(loaded store.Loaded) (store.Outcome, error) {
				assert.Equal(t, want.Decided, loaded.Decided)
				assert.Equal(t, want.Uses, loaded.Uses)
				return store.Outcome{Claims: claims}, nil
			})
		}
		uses := func(d store.Decided) map[store.KeyDigest]store.Decided {
			return map[store.KeyDigest]store.Decided{key: d}
		}
		err := decide(f.a, store.Loaded{}, use(one, 7, 1), use(two, 8, 1))
		assert.Equal(t, store.Fatal, store.ClassOf(err), "a key twice in one outcome is a bug")
		require.NoError(t, decide(f.a, store.Loaded{}, use(one, 7, 1), store.Decided{ID: two, Version: version(8)}))
		had := store.Loaded{Decided: map[store.ClaimID]change.Version{one: version(7), two: version(8)}, Uses: uses(use(one, 7, 1))}
		require.NoError(t, decide(f.b, had))
		require.NoError(t, decide(f.b, had, use(three, 9, 2)), "it was found, so it is taken")
		had.Decided[three], had.Uses = version(9), uses(use(three, 9, 2))
		require.NoError(t, decide(f.a, had), "who had the key before is known by its id")

		// A decision that did not look for the key, and one that lost it in between.
		all.Keys = nil
		four := claimAt(time.Now(), 4)
		require.ErrorIs(t, decide(f.a, store.Loaded{Decided: had.Decided}, use(four, 10, 3)), store.ErrFenced)
		err = f.a.Decide(t.Context(), store.Decision{Revision: revision}, writes(store.Outcome{Claims: []store.Decided{use(four, 10, 3)}}))
		assert.Equal(t, store.Fatal, store.ClassOf(err), "claims that were not looked up")
	}},
	{"I3 of decisions about one key under many claims at the same time one has the effect", func(t *testing.T, f *ledgerFixture) {
		// After a restore: each request that comes again has a claim of its own, and
		// events with other content are in other partitions.
		revision := f.revision()
		key := store.DigestKey("acme", "k")
		assert.Equal(t, 1, f.winners(func(i int) (store.Decision, func(store.Loaded) (store.Outcome, bool)) {
			id := claimAt(time.Now(), byte(i))
			return store.Decision{Revision: revision, Claims: []store.ClaimID{id}, Keys: []store.KeyDigest{key}}, func(loaded store.Loaded) (store.Outcome, bool) {
				c, won := store.Decided{ID: id, Version: version(int64(i))}, loaded.Uses == nil
				if won {
					c.Key = key
				}
				return store.Outcome{Claims: []store.Decided{c}}, won
			}
		}))
	}},
	{"I3 a key that a decision found with one claim, and that another decision took from it, fences the first", func(t *testing.T, f *ledgerFixture) {
		revision := f.revision()
		key := store.DigestKey("acme", "k")
		decide := func(s store.Store, n byte, before func()) error {
			id := claimAt(time.Now(), n)
			d := store.Decision{Revision: revision, Claims: []store.ClaimID{id}, Keys: []store.KeyDigest{key}}
			return s.Decide(t.Context(), d, func(store.Loaded) (store.Outcome, error) {
				before()
				return store.Outcome{Claims: []store.Decided{{ID: id, Version: version(int64(n)), Use: store.Use{Key: key, Content: [8]byte{n}}}}}, nil
			})
		}
		require.NoError(t, decide(f.a, 1, func() {}))
		require.ErrorIs(t, decide(f.a, 3, func() { require.NoError(t, decide(f.b, 2, func() {})) }), store.ErrFenced)
		err := f.a.Decide(t.Context(), store.Decision{Revision: revision, Claims: []store.ClaimID{claimAt(time.Now(), 3)}, Keys: []store.KeyDigest{key}}, func(loaded store.Loaded) (store.Outcome, error) {
			assert.Equal(t, claimAt(time.Now(), 2)[15], loaded.Uses[key].ID[15], "it has the newest that had its effect")
			assert.Empty(t, loaded.Decided)
			return store.Outcome{}, nil
		})
		require.NoError(t, err)
	}},
	{"I1 what only an inbox held that was replaced is taken in again under its claim", func(t *testing.T, f *ledgerFixture) {
		// The mistake that this catches: the inbox topic was deleted, its events are
		// sent again, and each is answered that it is there.
		revision := f.revision()
		_, err := f.a.ResolveInbox(t.Context(), "inbox", "first", 1, nil)
		require.NoError(t, err)
		decided, lost := f.begin(f.a, "acme", intent("decided", "x"), keepClaims), f.begin(f.a, "acme", intent("lost", "x"), keepClaims)
		globex := f.begin(f.a, "globex", intent("lost", "x"), keepClaims)
		f.complete(f.a, "acme", decided.ID, 202, `{}`)
		f.complete(f.a, "acme", lost.ID, 202, `{}`)
		f.complete(f.a, "globex", globex.ID, 202, `{}`)
		take := func(id store.ClaimID, n int64) {
			err := f.a.Decide(t.Context(), store.Decision{Revision: revision, Claims: []store.ClaimID{id}}, writes(store.Outcome{Claims: []store.Decided{{ID: id, Version: version(n)}}}))
			require.NoError(t, err)
		}
		take(decided.ID, 7)
		begun := func(want store.ClaimState) {
			t.Helper()
			for tenant, id := range map[string]store.ClaimID{"acme": lost.ID, "globex": globex.ID} {
				again := f.begin(f.b, tenant, intent("lost", "x"), keepClaims)
				assert.Equal(t, []any{want, id}, []any{again.State, again.ID})
			}
			assert.Equal(t, store.ClaimDone, f.begin(f.a, "acme", intent("decided", "x"), keepClaims).State)
			assert.Equal(t, store.ClaimConflict, f.begin(f.a, "acme", intent("lost", "y"), keepClaims).State)
		}
		begun(store.ClaimDone)
		for range 2 {
			_, err = f.b.ResolveInbox(t.Context(), "inbox", "second", 1, nil)
			require.NoError(t, err)
			begun(store.ClaimOpen)
		}
		assert.Equal(t, `{}`, string(f.complete(f.a, "acme", lost.ID, 202, `{"again":true}`).Body), "the first answer stays")
		take(lost.ID, 8)
		take(globex.ID, 9)
		begun(store.ClaimDone)
	}},
	{"I1 what was on its way when the inbox was replaced is taken in again, though it was answered afterwards", func(t *testing.T, f *ledgerFixture) {
		// The mistake that this catches: appended to the old inbox, answered after
		// the claims were looked through for the new one.
		_, err := f.a.ResolveInbox(t.Context(), "inbox", "first", 1, nil)
		require.NoError(t, err)
		late := f.begin(f.a, "acme", intent("late", "x"), keepClaims)
		_, err = f.b.ResolveInbox(t.Context(), "inbox", "second", 1, nil)
		require.NoError(t, err)
		f.complete(f.a, "acme", late.ID, 202, `{}`)
		again := f.begin(f.b, "acme", intent("late", "x"), keepClaims)
		assert.Equal(t, []any{store.ClaimOpen, late.ID}, []any{again.State, again.ID})
	}},
	{"what was decided is known after a key was claimed anew", func(t *testing.T, f *ledgerFixture) {
		revision := f.revision()
		old := f.claim("k")
		err := f.a.Decide(t.Context(), store.Decision{Revision: revision, Claims: []store.ClaimID{old}}, writes(store.Outcome{Claims: []store.Decided{{ID: old, Version: version(7)}}}))
		require.NoError(t, err)
		f.age("acme", "k", 2*claimAge)
		fresh := f.begin(f.a, "acme", intent("k", "y"), claimAge)
		require.Equal(t, store.ClaimOpen, fresh.State)
		err = f.b.Decide(t.Context(), store.Decision{Revision: revision, Claims: []store.ClaimID{fresh.ID, old}}, func(loaded store.Loaded) (store.Outcome, error) {
			assert.Equal(t, map[store.ClaimID]change.Version{old: version(7)}, loaded.Decided, "an old record of it may still come")
			return store.Outcome{}, nil
		})
		require.NoError(t, err)
	}},
}

// claimAt returns the id of a claim that was made at a time.
func claimAt(made time.Time, n byte) (id store.ClaimID) {
	binary.BigEndian.PutUint64(id[:], uint64(made.UnixMilli())<<16)
	id[6], id[8], id[15] = 0x70, 0x80, n
	return id
}
