package deliver

import (
	"context"
	"testing"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
)

// A frame is a repetition only if it is one for every live service: the tail begins at
// the lowest position of these.
func TestTheTailBeginsAtTheLowestLivePosition(t *testing.T) {
	s, _ := bareStage(t, nil, feed{}, "acme/all@a", "acme/all@b", "acme/all@c")
	s.ctx = t.Context()
	p := newPartition(s, &store.Progress{Positions: []store.ServicePosition{
		{Service: 0, Position: store.Position{Version: 7, LogOffset: 1000}},
		{Service: 1, Position: store.Position{Version: 5, LogOffset: 1001}},
		{Service: 2, Position: store.Position{Version: 1, LogOffset: 1}},
	}}, store.Token{}, 0)
	require.Equal(t, []bool{true, true, false}, []bool{p.cursors[0].live, p.cursors[1].live, p.cursors[2].live})
	require.Equal(t, change.Version(5), p.feed.fed)
	require.EqualValues(t, 1000, p.feed.next)
}

// The catch-up reader serves the service that is farthest behind of those that can take
// changes.
func TestCatchUpServesTheLowestFirst(t *testing.T) {
	s, p := bareStage(t, nil, feed{}, "acme/all@a", "acme/all@b", "acme/all@c")
	s.opt.Memory = 1 << 20
	p.feed = feed{fed: 100, next: 1000}
	for i, next := range []int64{30, 10, 20} {
		p.cursors[i].feed = feed{fed: change.Version(next), next: next}
	}
	low, at := s.lowest(p)
	require.Equal(t, "acme/all@b", low.w.opt.Name)
	require.EqualValues(t, 10, at.next)
	low.w.removed = true
	low, _ = s.lowest(p)
	require.Equal(t, "acme/all@c", low.w.opt.Name)
}

// Of a position whose changes were cut into parts all are done together: until the part in
// hand is done, the position stays where the frame begins.
func TestThePositionOfAHalfDonePart(t *testing.T) {
	s, p := bareStage(t, nil, feed{}, "acme/all@out")
	w := s.workers[0]
	w.opt.Sink = traitsOnly{traits: sinks.Traits{Kind: sinks.State, Guarded: true}}
	w = newWorker(s, w.opt)
	c := &cursor{w: w, p: p, live: true}
	done := &delivery{change: change.Change{Entity: "a", Version: 5}, done: true}
	open := &delivery{change: change.Change{Entity: "b", Version: 6}}
	for _, f := range []*change.Frame{{From: 5, To: 9, Part: 0}, {From: 5, To: 9, Last: true}} {
		sl := &slice{c: c, frame: f, inHand: true, todo: []*delivery{done, open}}
		done.slice, open.slice = sl, sl
		c.pending, w.slices = []*slice{sl}, []*slice{sl}
		w.finish()
		if f.Partial() {
			require.Equal(t, change.Version(5), c.position().Version)
		} else {
			require.Equal(t, change.Version(6), c.position().Version)
		}
	}
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
	s, p := bareStage(t, d, feed{}, "acme/all@out")
	w := s.workers[0]
	w.opt.Sink, w.opt.Retry.Later = traitsOnly{traits: sinks.Traits{Kind: sinks.State}}, 1
	w = newWorker(s, w.opt)
	s.workers = []*worker{w}
	requests := 0
	s.opt.Control = func(context.Context, ...change.Record) error { requests++; return nil }
	of := int32(1)
	s.opt.Partition = func(string, change.Version) int32 { return of }
	s.parts = map[int32]*partition{0: p}
	require.NoError(t, s.offerLetters(t.Context()))
	require.Zero(t, requests, "another process owns it")
	of = 0
	w.busy = true
	w.condition.failed(&sinks.Error{Err: context.DeadlineExceeded}, StateRetrying)
	require.NoError(t, s.offerLetters(t.Context()))
	require.Zero(t, requests, "its sink fails")
	w.condition.recovered()
	require.NoError(t, s.offerLetters(t.Context()))
	require.Equal(t, 1, requests)
	require.Equal(t, []int64{1}, d.offered)
}
