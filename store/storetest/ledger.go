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
	claimLease = time.Hour
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
func (f *ledgerFixture) begin(s store.Ledger, tenant string, i store.ClaimRequest, lease, keep time.Duration) store.ClaimResult {
	f.Helper()
	got, err := s.BeginClaims(f.ctx(), tenant, []store.ClaimRequest{i}, lease, keep)
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

// ledgerTest is one promise.
type ledgerTest struct {
	name string
	run  func(t *testing.T, f *ledgerFixture)
}

var ledgerTests = []ledgerTest{
	{"a key is claimed once, and its first response is the one", func(t *testing.T, f *ledgerFixture) {
		before := time.Now()
		first := f.begin(f.a, "acme", intent("k", "x"), claimLease, keepClaims)
		assert.Equal(t, store.ClaimStarted, first.State)
		assert.Equal(t, intent("k", "x").Fingerprint, first.Fingerprint)
		assert.EqualValues(t, 7, uuid.UUID(first.ID).Version())
		assert.Equal(t, uuid.RFC4122, uuid.UUID(first.ID).Variant())
		assert.WithinRange(t, first.ID.Made(), before.Add(-time.Minute), time.Now().Add(time.Minute))

		again := f.begin(f.b, "acme", intent("k", "x"), claimLease, keepClaims)
		assert.Equal(t, store.ClaimBusy, again.State)
		assert.Equal(t, first.ID, again.ID)
		assert.Greater(t, again.Wait, claimLease-10*time.Minute)
		assert.LessOrEqual(t, again.Wait, claimLease)

		other := f.begin(f.b, "acme", intent("k", "y"), claimLease, keepClaims)
		assert.Equal(t, store.ClaimConflict, other.State, "another request under the same key")
		assert.Equal(t, intent("k", "x").Fingerprint, other.Fingerprint, "the stored one")

		assert.Equal(t, store.Response{Status: 202, Body: []byte(`{"n":1}`)}, f.complete(f.a, "acme", first.ID, 202, `{"n":1}`))
		for _, s := range []store.Ledger{f.a, f.b} {
			done := f.begin(s, "acme", intent("k", "x"), claimLease, keepClaims)
			assert.Equal(t, store.ClaimResult{State: store.ClaimDone, ID: first.ID, Fingerprint: first.Fingerprint, Response: store.Response{Status: 202, Body: []byte(`{"n":1}`)}}, done)
		}
		assert.Equal(t, store.ClaimConflict, f.begin(f.a, "acme", intent("k", "y"), claimLease, keepClaims).State)
		assert.Equal(t, store.Response{Status: 202, Body: []byte(`{"n":1}`)}, f.complete(f.b, "acme", first.ID, 200, `{"n":2}`), "an attempt that comes late gets what the first was answered")
	}},
	{"of concurrent calls with one key one starts", func(t *testing.T, f *ledgerFixture) {
		const callers, rounds = 64, 3
		for round := range rounds {
			key := intent(fmt.Sprint("k", round), "x")
			got := make([]store.ClaimResult, callers)
			var group sync.WaitGroup
			gate := make(chan struct{})
			for i := range callers {
				s := turn(i, f.a, f.b)
				group.Go(func() {
					<-gate
					answers, err := s.BeginClaims(t.Context(), "acme", []store.ClaimRequest{key}, claimLease, keepClaims)
					if assert.NoError(t, err) {
						got[i] = answers[0]
					}
				})
			}
			close(gate)
			group.Wait()
			states := map[store.ClaimState]int{}
			for _, c := range got {
				states[c.State]++
				assert.Equal(t, got[0].ID, c.ID)
			}
			assert.Equal(t, map[store.ClaimState]int{store.ClaimStarted: 1, store.ClaimBusy: callers - 1}, states)
		}
	}},
	{"of concurrent calls after a lease one resumes", func(t *testing.T, f *ledgerFixture) {
		const callers = 32
		first := f.begin(f.a, "acme", intent("k", "x"), claimLease, keepClaims)
		require.NoError(t, f.a.AbandonClaims(t.Context(), "acme", []store.ClaimID{first.ID}))
		states := map[store.ClaimState]int{}
		var mu sync.Mutex
		var group sync.WaitGroup
		for i := range callers {
			s := turn(i, f.a, f.b)
			group.Go(func() {
				answers, err := s.BeginClaims(t.Context(), "acme", []store.ClaimRequest{intent("k", "x")}, claimLease, keepClaims)
				if assert.NoError(t, err) {
					mu.Lock()
					defer mu.Unlock()
					states[answers[0].State]++
					assert.Equal(t, first.ID, answers[0].ID)
				}
			})
		}
		group.Wait()
		assert.Equal(t, map[store.ClaimState]int{store.ClaimResumed: 1, store.ClaimBusy: callers - 1}, states)
	}},
	{"batches that share keys in any order neither dead-lock nor claim twice", func(t *testing.T, f *ledgerFixture) {
		const callers, keys = 8, 200
		intents := make([]store.ClaimRequest, keys)
		for i := range intents {
			intents[i] = intent(fmt.Sprint("k", i), "x")
		}
		for round, want := range []store.ClaimState{store.ClaimStarted, store.ClaimResumed} {
			started := make([]int, callers)
			var ids sync.Map
			var group sync.WaitGroup
			for c := range callers {
				mine := slices.Clone(intents)
				if c%2 == 1 {
					slices.Reverse(mine)
				}
				s := f.a
				if c%4 < 2 {
					s = f.b
				}
				group.Go(func() {
					got, err := s.BeginClaims(t.Context(), "acme", mine, claimLease, keepClaims)
					if !assert.NoError(t, err) {
						return
					}
					for i, g := range got {
						if g.State == want {
							started[c]++
							_, twice := ids.LoadOrStore(mine[i].Key, g.ID)
							assert.False(t, twice, mine[i].Key)
						} else {
							assert.Equal(t, store.ClaimBusy, g.State)
						}
					}
				})
			}
			group.Wait()
			total := 0
			for _, n := range started {
				total += n
			}
			require.Equal(t, keys, total, "round %d", round)
			var all []store.ClaimID
			ids.Range(func(_, id any) bool { all = append(all, id.(store.ClaimID)); return true })
			require.NoError(t, f.a.AbandonClaims(t.Context(), "acme", all))
		}
	}},
	{"a batch has its answers in its order", func(t *testing.T, f *ledgerFixture) {
		const many = 2500
		done := f.begin(f.a, "acme", intent("done", "x"), claimLease, keepClaims)
		f.complete(f.a, "acme", done.ID, 200, `{}`)
		f.begin(f.a, "acme", intent("busy", "x"), claimLease, keepClaims)
		f.begin(f.a, "acme", intent("conflict", "x"), claimLease, keepClaims)
		lost := f.begin(f.a, "acme", intent("lost", "x"), claimLease, keepClaims)
		require.NoError(t, f.a.AbandonClaims(t.Context(), "acme", []store.ClaimID{lost.ID}))
		intents := []store.ClaimRequest{intent("lost", "x"), intent("z", "x"), intent("busy", "x"), intent("conflict", "y"), intent("done", "x"), intent("a", "x")}
		for i := len(intents); i < many; i++ {
			intents = append(intents, intent(fmt.Sprint("row ", i), "x"))
		}
		got, err := f.b.BeginClaims(t.Context(), "acme", intents, claimLease, keepClaims)
		require.NoError(t, err)
		require.Len(t, got, many)
		seen := map[store.ClaimID]bool{}
		completions := make([]store.Completion, many)
		for i, g := range got {
			want := store.ClaimStarted
			if i < 6 {
				want = []store.ClaimState{store.ClaimResumed, store.ClaimStarted, store.ClaimBusy, store.ClaimConflict, store.ClaimDone, store.ClaimStarted}[i]
			}
			require.Equal(t, want, g.State, i)
			require.False(t, seen[g.ID], "each key has an id of its own")
			seen[g.ID] = true
			completions[i] = store.Completion{ID: g.ID, Response: store.Response{Status: 202, Body: fmt.Appendf(nil, `{"row":%d}`, i)}}
		}
		assert.Equal(t, lost.ID, got[0].ID)
		stored, err := f.a.CompleteClaims(t.Context(), "acme", completions)
		require.NoError(t, err)
		for i, r := range stored {
			want := completions[i].Response
			if i == 4 {
				want = store.Response{Status: 200, Body: []byte(`{}`)}
			}
			require.Equal(t, want, r, i)
		}
		found := f.begin(f.b, "acme", intents[many-1], claimLease, keepClaims)
		assert.Equal(t, store.ClaimResult{State: store.ClaimDone, ID: got[many-1].ID, Fingerprint: intents[many-1].Fingerprint, Response: completions[many-1].Response}, found)
		none, err := f.a.BeginClaims(t.Context(), "acme", nil, claimLease, keepClaims)
		require.NoError(t, err)
		assert.Empty(t, none)
	}},
	{"a lease that is over is resumed under the same id, also after a lost answer", func(t *testing.T, f *ledgerFixture) {
		first := f.begin(f.a, "acme", intent("k", "x"), time.Millisecond, keepClaims)
		var resumed store.ClaimResult
		require.Eventually(t, func() bool {
			resumed = f.begin(f.b, "acme", intent("k", "x"), claimLease, keepClaims)
			return resumed.State != store.ClaimBusy
		}, patience, poll)
		assert.Equal(t, store.ClaimResumed, resumed.State)
		assert.Equal(t, first.ID, resumed.ID)
		assert.Equal(t, store.ClaimBusy, f.begin(f.a, "acme", intent("k", "x"), claimLease, keepClaims).State, "the new attempt has a lease of its own")
		assert.Equal(t, 202, f.complete(f.a, "acme", first.ID, 202, `{"first":true}`).Status, "the attempt that was given up was not dead")
		assert.Equal(t, `{"first":true}`, string(f.complete(f.b, "acme", resumed.ID, 202, `{"second":true}`).Body))
	}},
	{"an abandoned claim is resumed at once, an answered one stays", func(t *testing.T, f *ledgerFixture) {
		first, done := f.begin(f.a, "acme", intent("k", "x"), claimLease, keepClaims), f.begin(f.a, "acme", intent("done", "x"), claimLease, keepClaims)
		f.complete(f.a, "acme", done.ID, 202, `{}`)
		unknown := first.ID
		unknown[15]++
		for range 2 {
			require.NoError(t, f.a.AbandonClaims(t.Context(), "acme", []store.ClaimID{done.ID, unknown, first.ID}))
		}
		require.NoError(t, f.a.AbandonClaims(t.Context(), "acme", nil))
		assert.Equal(t, store.ClaimConflict, f.begin(f.b, "acme", intent("k", "y"), claimLease, keepClaims).State, "its request is still the one")
		resumed := f.begin(f.b, "acme", intent("k", "x"), claimLease, keepClaims)
		assert.Equal(t, store.ClaimResumed, resumed.State)
		assert.Equal(t, first.ID, resumed.ID)
		assert.Equal(t, store.ClaimDone, f.begin(f.b, "acme", intent("done", "x"), claimLease, keepClaims).State)
	}},
	{"a key that is over its time is new", func(t *testing.T, f *ledgerFixture) {
		first := f.begin(f.a, "acme", intent("k", "x"), claimLease, keepClaims)
		f.complete(f.a, "acme", first.ID, 202, `{"first":true}`)
		f.age("acme", "k", 2*claimLease)
		assert.Equal(t, store.ClaimDone, f.begin(f.a, "acme", intent("k", "x"), claimLease, 3*claimLease).State)
		second := f.begin(f.b, "acme", intent("k", "y"), claimLease, claimLease)
		assert.Equal(t, store.ClaimStarted, second.State)
		assert.NotEqual(t, first.ID, second.ID)
		assert.Equal(t, intent("k", "y").Fingerprint, second.Fingerprint)
		now := f.begin(f.a, "acme", intent("k", "y"), claimLease, keepClaims)
		assert.Equal(t, store.ClaimBusy, now.State, "without the response of the old one")
		assert.Equal(t, second.ID, now.ID)
		late := store.Response{Status: 500, Body: []byte(`{"late":true}`)}
		assert.Equal(t, late, f.complete(f.a, "acme", first.ID, 500, `{"late":true}`), "the old claim is not there any more")
		assert.Equal(t, store.ClaimBusy, f.begin(f.a, "acme", intent("k", "y"), claimLease, keepClaims).State, "and answers nothing for the new one")
	}},
	{"of concurrent calls with a key that is over its time one starts", func(t *testing.T, f *ledgerFixture) {
		old := f.begin(f.a, "acme", intent("k", "x"), claimLease, keepClaims)
		f.complete(f.a, "acme", old.ID, 202, `{}`)
		f.age("acme", "k", 2*claimLease)
		states := map[store.ClaimState]int{}
		var mu sync.Mutex
		var group sync.WaitGroup
		for i := range 32 {
			s := turn(i, f.a, f.b)
			group.Go(func() {
				got, err := s.BeginClaims(t.Context(), "acme", []store.ClaimRequest{intent("k", "y")}, claimLease, claimLease)
				if assert.NoError(t, err) {
					mu.Lock()
					defer mu.Unlock()
					states[got[0].State]++
					assert.NotEqual(t, old.ID, got[0].ID)
				}
			})
		}
		group.Wait()
		assert.Equal(t, map[store.ClaimState]int{store.ClaimStarted: 1, store.ClaimBusy: 31}, states)
	}},
	{"I11 tenants have keys of their own", func(t *testing.T, f *ledgerFixture) {
		acme := f.begin(f.a, "acme", intent("k", "x"), claimLease, keepClaims)
		globex := f.begin(f.a, "globex", intent("k", "y"), claimLease, keepClaims)
		assert.Equal(t, store.ClaimStarted, globex.State)
		assert.NotEqual(t, acme.ID, globex.ID)
		given := store.Response{Status: 200, Body: []byte(`{"mine":true}`)}
		assert.Equal(t, given, f.complete(f.b, "globex", acme.ID, 200, `{"mine":true}`), "another tenant's claim is not there")
		require.NoError(t, f.b.AbandonClaims(t.Context(), "globex", []store.ClaimID{acme.ID}))
		assert.Equal(t, store.ClaimBusy, f.begin(f.b, "acme", intent("k", "x"), claimLease, keepClaims).State)
	}},
	{"what cannot be kept is refused", func(t *testing.T, f *ledgerFixture) {
		for name, i := range map[string][]store.ClaimRequest{
			"no key": {intent("", "x")}, "NUL": {intent("a\x00b", "x")}, "no UTF-8": {intent("a\xff", "x")}, "too long": {intent(strings.Repeat("k", 1301), "x")},
		} {
			_, err := f.a.BeginClaims(t.Context(), "acme", append(i, intent("good", "x")), claimLease, keepClaims)
			require.Error(t, err, name)
			assert.Equal(t, store.Poison, store.ClassOf(err), name)
		}
		_, err := f.a.BeginClaims(t.Context(), "acme", []store.ClaimRequest{intent("k", "x"), intent("k", "x")}, claimLease, keepClaims)
		require.Error(t, err)
		assert.Equal(t, store.Fatal, store.ClassOf(err))
		_, err = f.a.BeginClaims(t.Context(), "", []store.ClaimRequest{intent("k", "x")}, claimLease, keepClaims)
		assert.Equal(t, store.Poison, store.ClassOf(err))
		assert.Equal(t, store.ClaimStarted, f.begin(f.a, "acme", intent("good", "x"), claimLease, keepClaims).State, "nothing was written")
		long := f.begin(f.a, "acme", intent(strings.Repeat("é", 650), "x"), claimLease, keepClaims)
		assert.Equal(t, store.ClaimStarted, long.State, "the longest that is allowed")
	}},
	{"months that are over are dropped whole", func(t *testing.T, f *ledgerFixture) {
		first := f.begin(f.a, "acme", intent("k", "x"), claimLease, keepClaims)
		f.complete(f.a, "acme", first.ID, 202, `{}`)
		month := first.ID.Month()
		end := month.AddDate(0, 1, 0)
		n, err := f.b.RetainClaims(t.Context(), -time.Until(end.Add(-time.Hour)))
		require.NoError(t, err)
		assert.Zero(t, n, "a claim of the month may be younger")
		assert.Equal(t, store.ClaimDone, f.begin(f.b, "acme", intent("k", "x"), claimLease, keepClaims).State)
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
		require.NoError(t, f.a.AbandonClaims(t.Context(), "acme", []store.ClaimID{first.ID}))
		again := f.begin(f.b, "acme", intent("k", "y"), claimLease, keepClaims)
		assert.Equal(t, store.ClaimStarted, again.State)
		assert.NotEqual(t, first.ID, again.ID)
	}},
	{"begins and retention at the same time do no harm to one another", func(t *testing.T, f *ledgerFixture) {
		var group sync.WaitGroup
		for c := range 4 {
			group.Go(func() {
				for i := range 25 {
					key := intent(fmt.Sprint(c, " ", i), "x")
					got, err := f.a.BeginClaims(t.Context(), "acme", []store.ClaimRequest{key}, claimLease, keepClaims)
					if !assert.NoError(t, err) {
						return
					}
					assert.Equal(t, store.ClaimStarted, got[0].State)
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
		assert.Zero(t, empty.OldestInProgress)
		assert.WithinDuration(t, time.Now(), empty.Now, 5*time.Minute)
		first := f.begin(f.a, "acme", intent("k1", "x"), claimLease, keepClaims)
		second := f.begin(f.a, "globex", intent("k2", "x"), claimLease, keepClaims)
		f.begin(f.a, "globex", intent("k3", "x"), claimLease, keepClaims)
		stats, err := f.b.LedgerStats(t.Context())
		require.NoError(t, err)
		assert.WithinDuration(t, first.ID.Made(), stats.OldestInProgress, time.Millisecond, "over all tenants")
		f.complete(f.a, "acme", first.ID, 202, "{}")
		stats, err = f.b.LedgerStats(t.Context())
		require.NoError(t, err)
		assert.WithinDuration(t, second.ID.Made(), stats.OldestInProgress, time.Millisecond)
		require.NoError(t, f.a.AbandonClaims(t.Context(), "globex", []store.ClaimID{second.ID}))
		stats, err = f.b.LedgerStats(t.Context())
		require.NoError(t, err)
		assert.EqualValues(t, 3, stats.Held, "few are counted")
		assert.Equal(t, first.ID.Month(), stats.OldestMonth)
	}},
}
