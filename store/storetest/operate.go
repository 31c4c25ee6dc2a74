package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/store"
)

// Operated is the suite's part of a store beside store.Store: interfaces that consumers
// declare themselves.
type Operated interface {
	store.Store
	store.Reports
	store.Ledger
	store.Attempts
	store.Operations
	operate.Store
	operate.ForgetStore
}

// RunOperator runs the suite of what operators' commands, checks and reports
// rely on. open is that of Run.
func RunOperator(t *testing.T, open func(t *testing.T) (a, b Operated)) {
	for _, test := range slices.Concat(operatorTests, reportTests, checkTests, jobTests, attemptTests, forgetTests) {
		t.Run(test.name, func(t *testing.T) {
			a, b := open(t)
			test.run(t, &operatorFixture{fixture: fixture{T: t, a: a, b: b}, a: a, b: b})
		})
	}
}

type operatorFixture struct {
	fixture
	a, b Operated
}

// audits reads all audit rows.
func (f *operatorFixture) audits() []store.Audit {
	f.Helper()
	got, err := f.b.Audits(f.ctx(), store.AuditFilter{Limit: 1000})
	require.NoError(f, err)
	return got
}

var someAudit = store.Audit{Actor: "root@host", Action: "dlq discard", Reason: "a test", Detail: []byte(`{"letters":[1]}`)}

// operatorTest is one promise.
type operatorTest struct {
	name string
	run  func(t *testing.T, f *operatorFixture)
}

var operatorTests = []operatorTest{
	{"audit rows come back in their order", func(t *testing.T, f *operatorFixture) {
		require.NoError(t, f.a.AddAudits(t.Context(), nil))
		second := someAudit
		second.Action, second.Detail = "reset", nil
		require.NoError(t, f.a.AddAudits(t.Context(), []store.Audit{someAudit, second}))
		got := f.audits()
		require.Len(t, got, 2)
		assert.Equal(t, []string{"dlq discard", "reset"}, []string{got[0].Action, got[1].Action})
		assert.Equal(t, "root@host", got[0].Actor)
		assert.JSONEq(t, `{"letters":[1]}`, string(got[0].Detail))
		assert.WithinDuration(t, time.Now(), got[0].Time, time.Minute)
	}},
	{"audit rows are filtered, and paged from both ends", func(t *testing.T, f *operatorFixture) {
		var all []store.Audit
		for i := range 6 {
			all = append(all, store.Audit{Actor: []string{"ann", "bob"}[i%2], Action: []string{"pause", "reset", "reload"}[i%3], Entity: fmt.Sprint("B-", i/2), Service: fmt.Sprint("s", i/3)})
		}
		require.NoError(t, f.a.AddAudits(t.Context(), all))
		ids := func(filter store.AuditFilter) (found []int64) {
			rows, err := f.b.Audits(t.Context(), filter)
			require.NoError(t, err)
			for _, a := range rows {
				found = append(found, a.ID-f.audits()[0].ID)
			}
			return found
		}
		first := f.audits()[0].ID
		assert.Equal(t, []int64{0, 1, 2, 3, 4, 5}, ids(store.AuditFilter{}))
		assert.Equal(t, []int64{1, 3, 5}, ids(store.AuditFilter{Actor: "bob"}))
		assert.Equal(t, []int64{3, 0}, ids(store.AuditFilter{Action: "pause", NewestFirst: true}))
		assert.Equal(t, []int64{2, 3}, ids(store.AuditFilter{Entity: "B-1"}))
		assert.Equal(t, []int64{5}, ids(store.AuditFilter{Service: "s1", Action: "reload"}))
		assert.Equal(t, []int64{4, 3}, ids(store.AuditFilter{NewestFirst: true, Limit: 2, AfterID: first + 5}))
		assert.Equal(t, []int64{1}, ids(store.AuditFilter{Actor: "bob", Limit: 1}))
	}},
	{"I9 an open letter is amended with its audit row, another one is not", func(t *testing.T, f *operatorFixture) {
		require.NoError(t, f.a.AddLetters(t.Context(), letters()[:2]))
		all := f.list(store.LetterFilter{})
		for i, original := range []string{"{", ""} {
			seen := original
			for _, edit := range []string{"{}", `{"second":1}`} {
				require.NoError(t, f.a.EditDeadLetter(t.Context(), all[i].ID, []byte(seen), []byte(edit), someAudit))
				require.ErrorIs(t, f.a.EditDeadLetter(t.Context(), all[i].ID, []byte(seen), []byte("[]"), someAudit), store.ErrNotFound, "another edit was first")
				seen = edit
				got, err := f.b.Letter(t.Context(), all[i].ID)
				require.NoError(t, err)
				assert.Equal(t, edit, string(got.Payload))
				assert.NotNil(t, got.Original)
				assert.Equal(t, original, string(got.Original), "an edit keeps the first payload")
			}
		}
		require.Len(t, f.audits(), 4)
		f.settle(f.revision(), all[0].ID, store.LetterDiscarded)
		require.ErrorIs(t, f.a.EditDeadLetter(t.Context(), all[0].ID, []byte(`{"second":1}`), []byte("{}"), someAudit), store.ErrNotFound)
		require.ErrorIs(t, f.a.EditDeadLetter(t.Context(), all[1].ID+100, nil, []byte("{}"), someAudit), store.ErrNotFound)
		require.Len(t, f.audits(), 4, "nothing happened, so nothing is on record")
	}},
	{"more is pruned than one transaction takes", func(t *testing.T, f *operatorFixture) {
		const many = 10_001
		require.NoError(t, f.a.AddAudits(t.Context(), slices.Repeat([]store.Audit{{Actor: "root", Action: "reset"}}, many)))
		n, err := f.b.Prune(t.Context(), time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
		require.NoError(t, err)
		assert.Equal(t, many, n)
		left, err := f.a.Audits(t.Context(), store.AuditFilter{Limit: 1})
		require.NoError(t, err)
		assert.Empty(t, left)
	}},
	{"letters move from one state only, with one audit row", func(t *testing.T, f *operatorFixture) {
		require.NoError(t, f.a.AddLetters(t.Context(), letters()[:3]))
		all := f.list(store.LetterFilter{})
		f.settle(f.revision(), all[0].ID, store.LetterReplayed)
		ids := []int64{all[0].ID, all[1].ID, all[2].ID + 100}
		for _, c := range []struct {
			ids  []int64
			want int
		}{{nil, 0}, {ids, 1}, {ids, 0}} {
			n, err := f.b.MoveLetters(t.Context(), c.ids, store.LetterOpen, store.LetterDiscarded, someAudit)
			require.NoError(t, err)
			assert.Equal(t, c.want, n)
		}
		counts, err := f.a.CountLetters(t.Context())
		require.NoError(t, err)
		assert.Equal(t, map[store.Stage]int64{store.StageDecide: 1}, counts)
		var states []store.LetterState
		for _, l := range f.list(store.LetterFilter{}) {
			states = append(states, l.State)
		}
		assert.Equal(t, []store.LetterState{store.LetterReplayed, store.LetterDiscarded, store.LetterOpen}, states)
		require.Len(t, f.audits(), 1)
	}},
	{"a decision settles letters, or nothing of it is written", func(t *testing.T, f *operatorFixture) {
		revision := f.revision()
		require.NoError(t, f.a.AddLetters(t.Context(), letters()[:2]))
		all := f.list(store.LetterFilter{})
		out := store.Outcome{Settled: []store.LetterResolution{
			{ID: all[0].ID, State: store.LetterObsolete}, {ID: all[1].ID, State: store.LetterReplayed}, {ID: all[1].ID + 100, State: store.LetterReplayed},
		}}
		err := f.a.Decide(t.Context(), store.Decision{Revision: revision, Moves: []store.WatermarkStep{{Partition: p0, To: 1}}}, writes(out))
		require.ErrorIs(t, err, store.ErrFenced)
		require.Len(t, f.list(store.LetterFilter{State: store.LetterOpen}), 2)
		err = f.a.Decide(t.Context(), store.Decision{Revision: revision}, writes(out))
		require.NoError(t, err)
		listed := f.list(store.LetterFilter{})
		assert.Equal(t, store.LetterObsolete, listed[0].State)
		assert.Equal(t, store.LetterReplayed, listed[1].State)
		out.Settled[1].State = store.LetterObsolete
		err = f.a.Decide(t.Context(), store.Decision{Revision: revision}, writes(out))
		require.NoError(t, err)
		assert.Equal(t, store.LetterReplayed, f.list(store.LetterFilter{})[1].State, "the same replay once more")
	}},
}
