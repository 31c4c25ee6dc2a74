package deliver

import (
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver/core"
	"github.com/seed-86dfc502/weir/sinks"
)

// bareStage has services and one partition whose tail is at a position; nothing runs.
func bareStage(t *testing.T, s Store, at feed, services ...string) (*Stage, *partition) {
	stage := &Stage{opt: Options{Store: s, Metrics: NewMetrics(prometheus.NewRegistry())}, log: slog.New(slog.DiscardHandler), frames: map[*change.Frame]int{}, released: make(chan struct{})}
	p := &partition{ctx: t.Context(), feed: at}
	for i, name := range services {
		w := &worker{s: stage, opt: Service{Name: name, Number: int32(i)}, log: stage.log}
		w.condition.state = StateRunning
		w.core = core.New(core.Config{})
		stage.workers = append(stage.workers, w)
		p.cursors = append(p.cursors, &cursor{w: w, p: p, feed: at})
	}
	return stage, p
}

// The mistake that this catches: a service that had no room for a frame got the copy
// of it that stands further up, after which what follows the first copy stood behind its
// position, and was reported as gone.
func TestWhoIsBehindSkipsNothingToALaterCopy(t *testing.T) {
	s, p := bareStage(t, nil, feed{fed: 9, next: 9}, "reads", "rests")
	reads, rests := p.cursors[0], p.cursors[1]
	reads.feed, rests.feed = feed{}, feed{}
	offer := func(offset int64, prev, to change.Version) {
		f := &logged{Frame: &change.Frame{Prev: prev, From: prev, To: to, Last: true}, offset: offset, counts: true}
		s.mu.Lock()
		defer s.mu.Unlock()
		require.False(t, s.offerBehind(reads, f))
	}
	s.opt.Memory = 1 << 20
	offer(0, 0, 1)
	require.Equal(t, reads.feed, rests.feed, "they go together")
	rests.w.held = s.share()
	offer(1, 1, 2)
	offer(2, 2, 3)
	rests.w.held = 0
	offer(3, 1, 2)
	offer(4, 2, 3)
	require.Equal(t, []any{change.Version(3), int64(5)}, []any{reads.feed.fed, reads.feed.next})
	require.Equal(t, []any{change.Version(1), int64(1)}, []any{rests.feed.fed, rests.feed.next}, "all that it lacks is to be read")
}

// The mistake that this catches: the inbox got another number of partitions while changes
// waited, an entity's older change came from another partition in the same batch as its
// newer one, and a log sink did not get it. The same version twice is a repetition.
func TestALogSinkGetsAnOlderChangeOfAnotherPartition(t *testing.T) {
	for kind, want := range map[sinks.Kind][]change.Version{
		sinks.Log:   {change.NewVersion(2, 0), change.NewVersion(1, 100)},
		sinks.State: {change.NewVersion(2, 0)},
	} {
		s, p := bareStage(t, nil, feed{}, "acme/all@out")
		s.workers[0].opt.Sink = traitsOnly{traits: sinks.Traits{Kind: kind, Guarded: true}}
		w := newWorker(s, s.workers[0].opt)
		var all []*delivery
		for _, v := range []change.Version{want[0], change.NewVersion(1, 100), want[0]} {
			all = append(all, &delivery{change: change.Change{Entity: "e", Version: v}, slice: &slice{c: &cursor{p: p}}})
		}
		require.NoError(t, w.add(t.Context(), t.Context(), all))
		var got []change.Version
		for step := w.core.Next(time.Now()); step.Kind == core.Write; step = w.core.Next(time.Now()) {
			for _, i := range step.Items {
				got = append(got, i.Version)
			}
			w.core.Done(time.Now(), step, 0, make([]*sinks.Error, len(step.Items)), nil, false)
		}
		w.apply()
		require.Equal(t, want, got)
		for _, v := range all {
			require.True(t, v.settled())
		}
	}
}

type traitsOnly struct {
	sinks.Sink
	traits sinks.Traits
}

func (s traitsOnly) Traits() sinks.Traits { return s.traits }

// The mistake that this catches: an older change of an entity, from another partition of
// an older inbox, was left to the newer one in its batch, and the newer one's partition
// went away while its sink failed. The older one's position never moved again, and whatever
// came behind it stayed in memory.
func TestTheNewestGoesAwayWithItsPartition(t *testing.T) {
	s, p := bareStage(t, nil, feed{}, "acme/all@out")
	s.workers[0].opt.Sink = traitsOnly{traits: sinks.Traits{Kind: sinks.State, Guarded: true}}
	w, away := newWorker(s, s.workers[0].opt), &partition{gone: true}
	var all []*delivery
	for offset, of := range []*partition{p, away} {
		c := &cursor{w: w, p: of, live: true}
		sl := &slice{c: c, frame: &change.Frame{Last: true}, inHand: true}
		c.pending = []*slice{sl}
		v := &delivery{change: change.Change{Entity: "e", Version: change.NewVersion(1, int64(offset))}, slice: sl}
		sl.todo = []*delivery{v}
		w.slices = append(w.slices, sl)
		all = append(all, v)
	}
	w.parts = []*partition{p, away}
	require.NoError(t, w.add(t.Context(), t.Context(), all))
	w.apply()
	require.NoError(t, w.receive(t.Context(), t.Context()))
	require.Zero(t, w.core.Hand())
	require.Empty(t, all[0].slice.c.pending, "the next owner of the newest brings it")
	require.False(t, all[1].settled(), "and has it still to do")
}
