// Package storetest is the conformance suite of store.Store: each promise of the
// interface in a subtest of its own, named after the
// invariant of the design that rests on it (I3 linearizable, I5 fenced, …).
//
// A backend proves itself by
//
//	storetest.Run(t, func(t *testing.T) (a, b store.Store) { … })
package storetest

import (
	"context"
	"crypto/sha256"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
)

// Run runs the suite. open returns two independent handles, as two processes
// would have them, on the same fresh and migrated state, and closes them when
// the test ends; it is called once per subtest. With names only these groups run.
func Run(t *testing.T, open func(t *testing.T) (a, b store.Store), groups ...string) {
	for _, group := range []struct {
		name  string
		tests []test
	}{
		{"Decide", decideTests},
		{"Claims", claimTests},
		{"TakeOver", takeOverTests},
		{"States", stateTests},
		{"Owners", ownerTests},
		{"Poison", poisonTests},
		{"Cancel", cancelTests},
		{"Progress", progressTests},
		{"Retrying", retryingTests},
		{"Frames", frameTests},
		{"Retention", retentionTests},
		{"Moved", movedTests},
		{"Purge", purgeTests},
		{"Configurations", configurationTests},
		{"DeadLetters", letterTests},
		{"Positions", positionTests},
		{"SourceLogs", sourceLogTests},
		{"Reader", readerTests},
		{"Guards", guardTests},
	} {
		if len(groups) > 0 && !slices.Contains(groups, group.name) {
			continue
		}
		t.Run(group.name, func(t *testing.T) {
			for _, test := range group.tests {
				t.Run(test.name, func(t *testing.T) {
					a, b := open(t)
					test.run(t, &fixture{T: t, a: a, b: b})
				})
			}
		})
	}
}

// test is one promise.
type test struct {
	name string
	run  func(t *testing.T, f *fixture)
}

// fixture is the state of one subtest and what makes tests short.
type fixture struct {
	*testing.T
	a, b store.Store
}

// turn returns the handle of the i-th of several calls: both in turn.
func turn[S any](i int, a, b S) S {
	if i%2 == 1 {
		return b
	}
	return a
}

func (f *fixture) ctx() context.Context { return f.Context() }

// revision activates a configuration and returns its number.
func (f *fixture) revision() int64 {
	f.Helper()
	r, err := f.a.Activate(f.ctx(), []byte("configuration"), false, store.Inbox{}, nil)
	require.NoError(f, err)
	return r.Number
}

// service registers one service.
func (f *fixture) service(name string) int32 {
	f.Helper()
	numbers, err := f.a.Services(f.ctx(), []string{name})
	require.NoError(f, err)
	return numbers[name]
}

// own takes partitions over with a token made of letter.
func (f *fixture) own(s store.Store, letter byte, partitions ...store.Partition) ([]store.TakenOver, store.Token) {
	f.Helper()
	var token store.Token
	token[0] = letter
	taken, err := s.TakeOver(f.ctx(), partitions, token)
	require.NoError(f, err)
	require.Len(f, taken, len(partitions))
	for i := range taken {
		taken[i].Doubt = false // see RunDoubt
	}
	return taken, token
}

// retried makes a call again that failed for now: one that needs locks waits for
// them for a bounded time only.
func retried(call func() error) (err error) {
	for start := time.Now(); time.Since(start) < patience; {
		if err = call(); err == nil || store.ClassOf(err) != store.Retry {
			break
		}
	}
	return err
}

// claim makes one; a store without a ledger knows it by its id alone.
func (f *fixture) claim(key string) store.ClaimID {
	f.Helper()
	ledger, ok := f.a.(store.Ledger)
	if !ok {
		return store.ClaimID(uuid.Must(uuid.NewV7()))
	}
	got, err := ledger.BeginClaims(f.ctx(), "acme", []store.ClaimRequest{{Key: key}}, 24*time.Hour)
	require.NoError(f, err)
	return got[0].ID
}

// writes returns a callback that writes out in any state.
func writes(out store.Outcome) func(store.Loaded) (store.Outcome, error) {
	return func(store.Loaded) (store.Outcome, error) { return out, nil }
}

// step moves the watermark of a partition.
func step(p store.Partition, from, to int64, token store.Token) []store.WatermarkStep {
	return []store.WatermarkStep{{Partition: p, From: from, To: to, Token: token}}
}

// frame is one that ends at an offset.
func frame(p store.Partition, to int64, body string) store.Frame {
	return store.Frame{Partition: p, To: change.NewVersion(p.Generation, to), Body: []byte(body)}
}

// tail reads all frames of a partition above a position.
func (f *fixture) tail(s store.Store, partition int32, after change.Version) store.Tail {
	f.Helper()
	tail, err := s.Frames(f.ctx(), partition, after, 1<<30)
	require.NoError(f, err)
	return tail
}

// bodies returns the bodies of frames.
func bodies(frames []store.Frame) (all []string) {
	for _, frame := range frames {
		all = append(all, string(frame.Body))
	}
	return all
}

// state is all that a decision can write, as far as a reader sees it.
type state struct {
	Watermarks map[store.Partition]int64
	Entities   []store.Entity
	Letters    []store.DeadLetter
	Audits     []store.Audit
	Marks      map[int32]store.Mark
	Tails      [2]store.Tail
	Progress   []store.Progress
}

// state reads everything through s.
func (f *fixture) state(s store.Store) state {
	f.Helper()
	var got state
	var err error
	got.Watermarks, err = s.Watermarks(f.ctx())
	require.NoError(f, err)
	got.Entities, err = s.Entities(f.ctx(), "", 1000)
	require.NoError(f, err)
	got.Letters, err = s.ListLetters(f.ctx(), store.LetterFilter{Limit: 1000})
	require.NoError(f, err)
	got.Audits, err = s.Audits(f.ctx(), store.AuditFilter{Limit: 1000})
	require.NoError(f, err)
	got.Marks, err = s.Marks(f.ctx())
	require.NoError(f, err)
	for partition := range got.Tails {
		got.Tails[partition] = f.tail(s, int32(partition), 0)
	}
	got.Progress, err = s.AllProgress(f.ctx())
	require.NoError(f, err)
	return got
}

// row reads one dam row.
func (f *fixture) row(s store.Store, k store.Key) store.Row {
	f.Helper()
	rows, err := s.Rows(f.ctx(), []store.Key{k})
	require.NoError(f, err)
	require.Len(f, rows, 1)
	require.Equal(f, k, rows[0].Key)
	return rows[0]
}

// everything is an outcome that writes to each table, for partition p.
func everything(p store.Partition, service int32, version change.Version) store.Outcome {
	return store.Outcome{
		Entities: []store.Entity{{ID: "banana-1", Docs: []byte(`{"lab":{"weight":1.0}}`), Fence: []byte("fence"), Version: version,
			States: StatesOf(store.Row{Key: store.Key{Service: service, Entity: "banana-1"}, Content: content("one"), Version: version})}},
		Frames:  []store.Frame{{Partition: p, To: version, Body: []byte("changes")}},
		Letters: []store.DeadLetter{{Stage: store.StageDecide, Code: "bad_json", Reason: "cut off", DedupKey: "decide/1", Payload: []byte("{")}},
		Audit:   []store.Audit{{Actor: "test", Action: "reset", Entity: "banana-1", Detail: []byte(`{"n":1}`)}},
	}
}

// content makes a content that differs for every text.
func content(text string) change.Content { return change.Hashed(1, sha256.Sum256([]byte(text))) }

func version(offset int64) change.Version { return change.NewVersion(1, offset) }

var (
	p0 = store.Partition{Generation: 1, Number: 0}
	p1 = store.Partition{Generation: 1, Number: 1}
)

// StatesOf returns states that were all set.
func StatesOf(rows ...store.Row) (s store.States) {
	for _, r := range rows {
		s.Set(r)
	}
	return s
}
