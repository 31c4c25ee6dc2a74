package storetest

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/store"
)

const (
	claimAge   = time.Hour
	keepClaims = 400 * 24 * time.Hour
	patience   = time.Minute
	poll       = 5 * time.Millisecond
)

// RunLedger runs the suite of what store.Ledger promises, and decisions about
// claims. open is that of Run; age makes the claim of a key older than it is.
func RunLedger(t *testing.T, open func(t *testing.T) (a, b Operated, age func(tenant, key string, by time.Duration))) {
	for _, test := range slices.Concat(ledgerTests, decidedTests) {
		t.Run(test.name, func(t *testing.T) {
			a, b, age := open(t)
			test.run(t, &ledgerFixture{operatorFixture: operatorFixture{fixture: fixture{T: t, a: a, b: b}, a: a, b: b}, age: age})
		})
	}
}

type ledgerFixture struct {
	operatorFixture
	age func(tenant, key string, by time.Duration)
}

// intent of a key with the fingerprint of a text.
func intent(key, text string) store.ClaimRequest {
	return store.ClaimRequest{Key: key, Fingerprint: sha256.Sum256([]byte(text))}
}

// begin claims one key.
func (f *ledgerFixture) begin(s store.Ledger, tenant string, i store.ClaimRequest, keep time.Duration) store.ClaimResult {
	f.Helper()
	got, err := s.BeginClaims(f.ctx(), tenant, []store.ClaimRequest{i}, keep)
	require.NoError(f, err)
	require.Len(f, got, 1)
	return got[0]
}

// complete stores a response and returns the stored one.
func (f *ledgerFixture) complete(s store.Ledger, tenant string, id store.ClaimID, status int, body string) store.Response {
	f.Helper()
	got, err := s.CompleteClaims(f.ctx(), tenant, []store.Completion{{ID: id, Response: store.Response{Status: status, Body: []byte(body)}}})
	require.NoError(f, err)
	require.Len(f, got, 1)
	return got[0]
}

// atOnce has 64 requests with one key at the same time, as many on each handle, and
// returns the claims and the answers that they got.
func (f *ledgerFixture) atOnce(key store.ClaimRequest, keep time.Duration) (claims map[store.ClaimID]bool, answers map[string]bool) {
	claims, answers = map[store.ClaimID]bool{}, map[string]bool{}
	var mu sync.Mutex
	var group sync.WaitGroup
	gate := make(chan struct{})
	for i := range 64 {
		s := turn(i, f.a, f.b)
		group.Go(func() {
			<-gate
			got, err := s.BeginClaims(f.Context(), "acme", []store.ClaimRequest{key}, keep)
			if !assert.NoError(f, err) {
				return
			}
			stored, err := s.CompleteClaims(f.Context(), "acme", []store.Completion{{ID: got[0].ID, Response: store.Response{Status: 202, Body: fmt.Append(nil, i)}}})
			if !assert.NoError(f, err) {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			claims[got[0].ID], answers[string(stored[0].Body)] = true, true
			if got[0].State == store.ClaimDone {
				answers[string(got[0].Response.Body)] = true
			}
		})
	}
	close(gate)
	group.Wait()
	return claims, answers
}

// ledgerTest is one promise.
type ledgerTest struct {
	name string
	run  func(t *testing.T, f *ledgerFixture)
}

var ledgerTests = []ledgerTest{
	{"a key is claimed once, and its first response is the one", func(t *testing.T, f *ledgerFixture) {
		before := time.Now()
		first := f.begin(f.a, "acme", intent("k", "x"), keepClaims)
		assert.Equal(t, store.ClaimOpen, first.State)
		assert.Equal(t, intent("k", "x").Fingerprint, first.Fingerprint)
		assert.EqualValues(t, 7, uuid.UUID(first.ID).Version())
		assert.Equal(t, uuid.RFC4122, uuid.UUID(first.ID).Variant())
		assert.WithinRange(t, first.ID.Made(), before.Add(-time.Minute), time.Now().Add(time.Minute))
		assert.Equal(t, first, f.begin(f.b, "acme", intent("k", "x"), keepClaims), "the same claim until there is a response")

		other := f.begin(f.b, "acme", intent("k", "y"), keepClaims)
		assert.Equal(t, store.ClaimConflict, other.State, "another request under the same key")
		assert.Equal(t, intent("k", "x").Fingerprint, other.Fingerprint, "the stored one")

		assert.Equal(t, store.Response{Status: 202, Body: []byte(`{"n":1}`)}, f.complete(f.a, "acme", first.ID, 202, `{"n":1}`))
		for _, s := range []store.Ledger{f.a, f.b} {
			done := f.begin(s, "acme", intent("k", "x"), keepClaims)
			assert.Equal(t, store.ClaimResult{State: store.ClaimDone, ID: first.ID, Fingerprint: first.Fingerprint, Response: store.Response{Status: 202, Body: []byte(`{"n":1}`)}}, done)
		}
		assert.Equal(t, store.ClaimConflict, f.begin(f.a, "acme", intent("k", "y"), keepClaims).State)
		assert.Equal(t, store.Response{Status: 202, Body: []byte(`{"n":1}`)}, f.complete(f.b, "acme", first.ID, 200, `{"n":2}`), "an attempt that comes late gets what the first was answered")
	}},
	{"concurrent calls with one key have one claim and one answer", func(t *testing.T, f *ledgerFixture) {
		key := intent("k", "x")
		for range 3 {
			claims, answers := f.atOnce(key, keepClaims)
			require.Len(t, claims, 1)
			require.Len(t, answers, 1)
			key = intent(key.Key+"k", "x")
		}
	}},
	{"batches that share keys in any order neither dead-lock nor claim twice", func(t *testing.T, f *ledgerFixture) {
		const callers, keys = 8, 200
		intents := make([]store.ClaimRequest, keys)
		for i := range intents {
			intents[i] = intent(fmt.Sprint("k", i%(keys-10)), "x")
		}
		var ids sync.Map
		var group sync.WaitGroup
		for c := range callers {
			mine := slices.Clone(intents)
			if c%2 == 1 {
				slices.Reverse(mine)
			}
			s := turn(c/2, f.a, f.b)
			group.Go(func() {
				got, err := s.BeginClaims(t.Context(), "acme", mine, keepClaims)
				if !assert.NoError(t, err) {
					return
				}
				for i, g := range got {
					first, _ := ids.LoadOrStore(mine[i].Key, g.ID)
					assert.Equal(t, store.ClaimOpen, g.State)
					assert.Equal(t, first, g.ID, mine[i].Key)
				}
			})
		}
		group.Wait()
	}},
	{"a batch has its answers in its order", func(t *testing.T, f *ledgerFixture) {
		const many = 2500
		done := f.begin(f.a, "acme", intent("done", "x"), keepClaims)
		f.complete(f.a, "acme", done.ID, 200, `{}`)
		f.begin(f.a, "acme", intent("conflict", "x"), keepClaims)
		lost := f.begin(f.a, "acme", intent("lost", "x"), keepClaims)
		intents := []store.ClaimRequest{
			intent("lost", "x"), intent("z", "x"), intent("conflict", "y"), intent("done", "x"), intent("a", "x"),
			intent("z", "y"), intent("z", "x"), intent("conflict", "x"),
		}
		states := []store.ClaimState{
			store.ClaimOpen, store.ClaimOpen, store.ClaimConflict, store.ClaimDone, store.ClaimOpen,
			store.ClaimConflict, store.ClaimOpen, store.ClaimOpen,
		}
		special := len(intents)
		for i := special; i < many; i++ {
			intents = append(intents, intent(fmt.Sprint("row ", i), "x"))
		}
		got, err := f.b.BeginClaims(t.Context(), "acme", intents, keepClaims)
		require.NoError(t, err)
		require.Len(t, got, many)
		seen := map[store.ClaimID]bool{}
		completions := make([]store.Completion, many)
		for i, g := range got {
			want := store.ClaimOpen
			if i < special {
				want = states[i]
			} else {
				require.False(t, seen[g.ID], "each key has an id of its own")
			}
			require.Equal(t, want, g.State, i)
			seen[g.ID] = true
			completions[i] = store.Completion{ID: g.ID, Response: store.Response{Status: 202, Body: fmt.Appendf(nil, `{"row":%d}`, i)}}
		}
		assert.Equal(t, []store.ClaimID{lost.ID, got[1].ID, got[1].ID}, []store.ClaimID{got[0].ID, got[5].ID, got[6].ID})
		completions = slices.Delete(completions, 5, special)
		stored, err := f.a.CompleteClaims(t.Context(), "acme", completions)
		require.NoError(t, err)
		for i, r := range stored {
			want := completions[i].Response
			if i == 3 {
				want = store.Response{Status: 200, Body: []byte(`{}`)}
			}
			require.Equal(t, want, r, i)
		}
		found := f.begin(f.b, "acme", intents[many-1], keepClaims)
		assert.Equal(t, store.ClaimResult{State: store.ClaimDone, ID: got[many-1].ID, Fingerprint: intents[many-1].Fingerprint, Response: completions[len(completions)-1].Response}, found)
		none, err := f.a.BeginClaims(t.Context(), "acme", nil, keepClaims)
		require.NoError(t, err)
		assert.Empty(t, none)
	}},
	{"a key that is over its time is new", func(t *testing.T, f *ledgerFixture) {
		first := f.begin(f.a, "acme", intent("k", "x"), keepClaims)
		f.complete(f.a, "acme", first.ID, 202, `{"first":true}`)
		f.age("acme", "k", 2*claimAge)
		assert.Equal(t, store.ClaimDone, f.begin(f.a, "acme", intent("k", "x"), 3*claimAge).State)
		both, err := f.b.BeginClaims(t.Context(), "acme", []store.ClaimRequest{intent("k", "y"), intent("k", "x")}, claimAge)
		require.NoError(t, err)
		second := both[0]
		assert.Equal(t, store.ClaimOpen, second.State)
		assert.NotEqual(t, first.ID, second.ID)
		assert.Equal(t, intent("k", "y").Fingerprint, second.Fingerprint)
		assert.Equal(t, store.ClaimConflict, both[1].State, "the first in the call has it")
		now := f.begin(f.a, "acme", intent("k", "y"), keepClaims)
		assert.Equal(t, second, now, "without the response of the old one")
		late := store.Response{Status: 500, Body: []byte(`{"late":true}`)}
		assert.Equal(t, late, f.complete(f.a, "acme", first.ID, 500, `{"late":true}`), "the old claim is gone")
		assert.Equal(t, store.ClaimOpen, f.begin(f.a, "acme", intent("k", "y"), keepClaims).State, "and answers nothing for the new one")
	}},
	{"concurrent calls with a key that is over its time have one claim", func(t *testing.T, f *ledgerFixture) {
		old := f.begin(f.a, "acme", intent("k", "x"), keepClaims)
		f.complete(f.a, "acme", old.ID, 202, `{}`)
		f.age("acme", "k", 2*claimAge)
		claims, answers := f.atOnce(intent("k", "y"), claimAge)
		require.Len(t, claims, 1)
		require.NotContains(t, claims, old.ID)
		require.Len(t, answers, 1)
	}},
	{"I11 tenants have keys of their own", func(t *testing.T, f *ledgerFixture) {
		acme := f.begin(f.a, "acme", intent("k", "x"), keepClaims)
		globex := f.begin(f.a, "globex", intent("k", "y"), keepClaims)
		assert.Equal(t, store.ClaimOpen, globex.State)
		assert.NotEqual(t, acme.ID, globex.ID)
		given := store.Response{Status: 200, Body: []byte(`{"mine":true}`)}
		assert.Equal(t, given, f.complete(f.b, "globex", acme.ID, 200, `{"mine":true}`), "another tenant's claim is not found")
		assert.Equal(t, store.ClaimOpen, f.begin(f.b, "acme", intent("k", "x"), keepClaims).State)
	}},
	{"what cannot be kept is refused", func(t *testing.T, f *ledgerFixture) {
		for name, i := range map[string][]store.ClaimRequest{
			"no key": {intent("", "x")}, "NUL": {intent("a\x00b", "x")}, "no UTF-8": {intent("a\xff", "x")}, "too long": {intent(strings.Repeat("k", 1301), "x")},
		} {
			_, err := f.a.BeginClaims(t.Context(), "acme", append(i, intent("good", "x")), keepClaims)
			require.Error(t, err, name)
			assert.Equal(t, store.Poison, store.ClassOf(err), name)
		}
		_, err := f.a.BeginClaims(t.Context(), "", []store.ClaimRequest{intent("k", "x")}, keepClaims)
		assert.Equal(t, store.Poison, store.ClassOf(err))
		assert.Equal(t, store.ClaimOpen, f.begin(f.a, "acme", intent("good", "x"), keepClaims).State, "nothing was written")
		long := f.begin(f.a, "acme", intent(strings.Repeat("é", 650), "x"), keepClaims)
		assert.Equal(t, store.ClaimOpen, long.State, "the longest that is allowed")
	}},
	{"months that are over are dropped whole", func(t *testing.T, f *ledgerFixture) {
		first := f.begin(f.a, "acme", intent("k", "x"), keepClaims)
		f.complete(f.a, "acme", first.ID, 202, `{}`)
		month := first.ID.Month()
		end := month.AddDate(0, 1, 0)
		n, err := f.b.RetainClaims(t.Context(), -time.Until(end.Add(-time.Hour)))
		require.NoError(t, err)
		assert.Zero(t, n, "a claim of the month may be younger")
		assert.Equal(t, store.ClaimDone, f.begin(f.b, "acme", intent("k", "x"), keepClaims).State)
		stats, err := f.a.LedgerStats(t.Context())
		require.NoError(t, err)
		assert.Equal(t, month, stats.OldestMonth)

		n, err = f.b.RetainClaims(t.Context(), -time.Until(end.Add(time.Hour)))
		require.NoError(t, err)
		assert.Equal(t, 1, n)
		n, err = f.a.RetainClaims(t.Context(), -time.Until(end.Add(-time.Hour)))
		require.NoError(t, err)
		assert.Zero(t, n, "calling it again does no harm")
		assert.Equal(t, store.Response{Status: 500, Body: []byte("{}")}, f.complete(f.a, "acme", first.ID, 500, "{}"))
		again := f.begin(f.b, "acme", intent("k", "y"), keepClaims)
		assert.Equal(t, store.ClaimOpen, again.State)
		assert.NotEqual(t, first.ID, again.ID)
	}},
	{"begins and retention at the same time do no harm to one another", func(t *testing.T, f *ledgerFixture) {
		var group sync.WaitGroup
		for c := range 4 {
			group.Go(func() {
				for i := range 25 {
					key := intent(fmt.Sprint(c, " ", i), "x")
					got, err := f.a.BeginClaims(t.Context(), "acme", []store.ClaimRequest{key}, keepClaims)
					if !assert.NoError(t, err) {
						return
					}
					assert.Equal(t, store.ClaimOpen, got[0].State)
					_, err = f.b.CompleteClaims(t.Context(), "acme", []store.Completion{{ID: got[0].ID, Response: store.Response{Status: 202, Body: []byte("{}")}}})
					assert.NoError(t, err)
				}
			})
		}
		for range 10 {
			require.NoError(t, retried(func() error {
				_, err := f.b.RetainClaims(t.Context(), -62*24*time.Hour)
				return err
			}))
		}
		group.Wait()
	}},
	{"statistics", func(t *testing.T, f *ledgerFixture) {
		empty, err := f.a.LedgerStats(t.Context())
		require.NoError(t, err)
		assert.Zero(t, empty.Held)
		first := f.begin(f.a, "acme", intent("k1", "x"), keepClaims)
		f.begin(f.a, "globex", intent("k2", "x"), keepClaims)
		f.begin(f.a, "globex", intent("k3", "x"), keepClaims)
		stats, err := f.b.LedgerStats(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, 3, stats.Held, "few are counted, over all tenants")
		assert.Equal(t, first.ID.Month(), stats.OldestMonth)
	}},
}
