package deliver

import (
	"context"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver/core"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
)

type traitsOnly struct {
	sinks.Sink
	traits sinks.Traits
}

func (s traitsOnly) Traits() sinks.Traits { return s.traits }

// idleStage has one service, and partitions; nothing runs.
func idleStage(t *testing.T, s Store, kind sinks.Kind, partitions ...int32) (*Stage, *worker) {
	stage := New(Options{
		Store: s, Metrics: NewMetrics(prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler),
		Services: []Service{{Name: "acme/all@out", Sink: traitsOnly{traits: sinks.Traits{Kind: kind, Guarded: true, MaxBatch: 10}}, Retry: Retry{Later: 1}}},
	})
	t.Cleanup(stage.stop)
	stage.step(func() {
		for _, n := range partitions {
			stage.newPartition(&store.Progress{Partition: n})
		}
	})
	return stage, stage.workers[0]
}

// The newer change of an entity, of another partition of an older inbox, replaces an older one
// in hand, and its partition is revoked while the sink fails. Unless the older one counts as
// settled then, its position never moves again.
func TestTheNewestGoesAwayWithItsPartition(t *testing.T) {
	s, w := idleStage(t, &dueStore{}, sinks.State, 0, 1)
	s.step(func() {
		for n := range int32(2) {
			at := change.NewVersion(1, int64(n))
			c := change.Change{Service: w.opt.Name, Entity: "e", Op: change.Retract, Version: at, Key: "k", Content: change.Retracted()}
			var b change.FrameBuilder
			b.Add(0, &c)
			f, err := change.ParseFrame(b.AppendTo(nil, change.Frame{From: at, To: at + 1}))
			require.NoError(t, err)
			s.parts[n].HandOut(&core.Frame{Frame: f})
		}
	})
	require.NoError(t, loop{w}.receive(t.Context(), t.Context()))
	require.Equal(t, 1, w.core.Hand.Len())
	older, newer := w.slices[0].todo[0], w.slices[1].todo[0]
	s.step(func() { s.revoke(s.parts[1]) })
	require.NoError(t, loop{w}.receive(t.Context(), t.Context()))
	require.Zero(t, w.core.Hand.Len())
	require.True(t, older.settled(), "the next owner of the newest delivers it")
	require.Empty(t, w.slices)
	require.False(t, newer.settled())
}

// dueStore has one due letter and counts the offers.
type dueStore struct {
	Store
	offered []int64
}

func (d *dueStore) DueLetters(_ context.Context, services []string, after int64, _ int) ([]store.DeadLetter, error) {
	if after > 0 {
		return nil, nil
	}
	return []store.DeadLetter{{ID: 1, Service: services[0], Entity: "e", Version: 1}}, nil
}

func (d *dueStore) Offered(_ context.Context, ids []int64) error {
	d.offered = append(d.offered, ids...)
	return nil
}

// A due letter is offered by the owner of the partition that gets the request, and only to
// a sink that takes changes.
func TestOnlyTheOwnerOffersALetterAndOnlyToASinkThatWorks(t *testing.T) {
	d := &dueStore{}
	s, w := idleStage(t, d, sinks.State, 0)
	o, requests := &offers{s.shared, s.parts, s.services}, 0
	s.opt.Control = func(context.Context, ...change.Record) error { requests++; return nil }
	of := int32(1)
	s.opt.Partition = func(string, change.Version) int32 { return of }
	require.NoError(t, o.due(t.Context()))
	require.Zero(t, requests, "another process owns it")
	of = 0
	w.queue.SetBusy(true, false)
	w.target.condition.failed(&sinks.Error{Err: context.DeadlineExceeded})
	require.NoError(t, o.due(t.Context()))
	require.Zero(t, requests, "its sink fails")
	w.target.condition.recovered()
	require.NoError(t, o.due(t.Context()))
	require.Equal(t, 1, requests)
	require.Equal(t, []int64{1}, d.offered)
}
