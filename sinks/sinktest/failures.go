package sinktest

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/sinks"
)

// canary is a text in documents that must not turn up in any error.
const canary = "canary-7c1f"

// sendBad writes a batch of which exactly the changes at bad are refused.
func (f *fixture) sendBad(batch []change.Change, bad ...int) {
	f.t.Helper()
	failed := f.settle(batch)
	require.Equal(f.t, bad, slices.Sorted(maps.Keys(failed)), "the changes that failed: %v", failed)
	for i, err := range failed {
		e := sinks.Classify(err)
		require.Equal(f.t, sinks.Reject, e.Class, "change %d: %v", i, err)
		require.False(f.t, e.Ambiguous, "change %d: a refusal is definite: %v", i, err)
		require.NotContains(f.t, err.Error(), canary, "an error holds payload")
	}
	for i, c := range batch {
		if !slices.Contains(bad, i) {
			f.model.apply(c)
		}
	}
}

func checkBad(t testing.TB, s *suite) {
	f := s.open(t)
	for _, at := range [][]int{{0}, {3}, {6}, {1, 2, 5}} {
		var batch []change.Change
		for i := range 7 {
			c := s.upsert(s.entity("bad"), canary)
			if slices.Contains(at, i) {
				c = s.BadChange(c)
				f.model.absent(c.Entity)
			}
			batch = append(batch, c)
		}
		f.sendBad(batch, at...)
		f.verify()
		f.sendBad(batch, at...)
		f.verify()
	}
}

func checkBadSameEntity(t testing.TB, s *suite) {
	f := s.open(t)
	e := s.entity("bad")
	f.sendBad([]change.Change{s.upsert(e, "1"), s.BadChange(s.upsert(e, canary)), s.upsert(e, "3")}, 1)
	f.verify()
	f.sendBad([]change.Change{s.upsert(e, "4"), s.BadChange(s.upsert(e, canary))}, 1)
	f.verify()
}

func checkAllBad(t testing.TB, s *suite) {
	f := s.open(t)
	a, b := s.BadChange(s.upsert(s.entity("a"), canary)), s.BadChange(s.upsert(s.entity("b"), canary))
	f.model.absent(a.Entity)
	f.model.absent(b.Entity)
	f.sendBad([]change.Change{a, b}, 0, 1)
	f.verify()
	f.write(s.upsert(s.entity("after"), "good"))
	f.verify()
}

// sendFailing writes changes of which every one must fail with the class.
func (f *fixture) sendFailing(class sinks.Class, changes ...change.Change) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), writeTimeout)
	defer cancel()
	failed := f.send(ctx, changes)
	require.Len(f.t, failed, len(changes), "changes that failed")
	for i, err := range failed {
		require.Equal(f.t, class, sinks.Classify(err).Class, "change %d: %v", i, err)
		require.NotContains(f.t, err.Error(), canary, "an error holds payload")
	}
}

func checkRefused(t testing.TB, s *suite) {
	f := s.open(t)
	a, b := s.entity("a"), s.entity("b")
	f.write(s.upsert(a, "before"))
	refuse, allow := s.Refuse(t)
	allow = sync.OnceFunc(allow)
	refuse()
	defer allow()
	batch := []change.Change{s.upsert(a, canary), s.upsert(b, canary)}
	f.sendFailing(sinks.Pause, batch...)
	allow()
	f.write(batch...)
	f.verify()
}

func checkOutage(t testing.TB, s *suite) {
	f := s.open(t)
	a, b := s.entity("a"), s.entity("b")
	f.write(s.upsert(a, "before"))
	down, up := s.Outage(t)
	up = sync.OnceFunc(up)
	down()
	defer up()
	batch := []change.Change{s.upsert(a, canary), s.upsert(b, canary), s.retract(a)}
	f.sendFailing(sinks.Retry, batch...)
	f.sendFailing(sinks.Retry, batch...)
	up()
	f.recover(batch...)
	f.verify()
}

func checkOpenOutage(t testing.TB, s *suite) {
	down, up := s.Outage(t)
	up = sync.OnceFunc(up)
	f := &fixture{suite: s, t: t, model: newModel(s.Kind), sink: s.New(t)}
	defer f.close()
	down()
	defer up()
	ctx, cancel := context.WithTimeout(t.Context(), writeTimeout)
	defer cancel()
	err := f.sink.Open(ctx)
	up()
	if err != nil {
		require.Equal(t, sinks.Retry, sinks.Classify(err).Class, "Open: %v", err)
		require.Eventually(t, func() bool { return f.sink.Open(ctx) == nil }, recoveryTimeout, recoveryTimeout/600,
			"Open does not find the returned target")
	}
	f.recover(s.upsert(s.entity("opened"), "after"))
	f.verify()
}
