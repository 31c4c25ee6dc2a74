package deliver_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
	"github.com/stretchr/testify/require"
)

// showing is a change that shows a content, which other offsets may show again.
func showing(content int, entity string, offset int64) change.Change {
	c := of(service, entity, offset)
	c.Doc = fmt.Appendf(nil, `{"n":%d}`, content)
	digest, err := canonicaltree.Sum(c.Doc, canonicaltree.Literal)
	if err != nil {
		panic(err)
	}
	c.Content = change.Hashed(canonicaltree.Scheme, digest)
	c.Key = change.Key(c.Service, c.Entity, c.Version, c.Content)
	return c
}

// known tells the process of a commit, with nothing new, and waits until it knows which changes it alone
// may write.
func (p *process) known() {
	p.t.Helper()
	p.handOver(&store.Frame{Partition: p.part, To: p.prev})
	require.Eventually(p.t, p.stage.KnowsNew, patience, time.Millisecond)
}

// A, B, A within the time that changes settle or wait, a reload, and an entity that returns and is
// retracted again: the target has it.
func TestWhatTheTargetHasIsNotWritten(t *testing.T) {
	t.Parallel()
	for name, settle := range map[string]time.Duration{"at once": 0, "settling": time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, s := only(t, state, settling(service, settle, time.Minute))
			p.known()
			var first, reload []change.Change
			for i := range 300 {
				entity := fmt.Sprint("e", i)
				first = append(first, showing(1, entity, int64(i)))
				reload = append(reload, showing(2, entity, int64(300+2*i)), showing(1, entity, int64(301+2*i)))
			}
			p.publish(first...)
			p.delivered()
			p.publish(reload...)
			p.delivered()
			require.Len(t, s.has(), 300)
			require.EqualValues(t, 300, p.count(deliver.OutcomeSkipped))

			p.publish(showing(2, "e0", 900))
			p.delivered()
			p.publish(showing(1, "e0", 901))
			p.delivered()
			require.Equal(t, []string{"e0:900", "e0:901"}, s.has()[300:], "it saw the other content")

			p.publish(leaving("e0", 902))
			p.delivered()
			p.publish(showing(1, "e0", 903), leaving("e0", 904))
			p.delivered()
			require.Equal(t, []string{"e0:902"}, s.has()[302:])
			require.True(t, p.stage.Idle())
		})
	}
}

// A log sink gets every change.
func TestALogGetsWhatItHas(t *testing.T) {
	t.Parallel()
	p, s := only(t, logOf(10))
	p.known()
	p.publish(showing(1, "a", 0))
	p.delivered()
	p.publish(showing(2, "a", 1), showing(1, "a", 2))
	p.delivered()
	require.Equal(t, []string{"a:0", "a:1", "a:2"}, s.has())
}

// A request writes a content that is at the target, also where a newer change takes its place.
func TestARequestIsWritten(t *testing.T) {
	t.Parallel()
	p, s := only(t, state)
	p.known()
	p.publish(showing(1, "a", 0))
	p.delivered()
	again := showing(1, "a", 1)
	again.Forced = true
	p.publish(again, showing(2, "a", 2), showing(1, "a", 3))
	p.delivered()
	require.Equal(t, []string{"a:0", "a:3"}, s.has())
}

// A source that is repaired behind a hold, or after it, sends what differs, whether the accident is
// released or discarded.
func TestARepairedAccidentSendsWhatDiffers(t *testing.T) {
	t.Parallel()
	const all, broken, limit = 1000, 900, 75
	release := func(at store.Passes) store.HoldEnd { return store.HoldEnd{Release: at} }
	discard := func(at store.Passes) store.HoldEnd { return store.HoldEnd{Discard: at} }
	for name, c := range map[string]struct {
		end  func(store.Passes) store.HoldEnd
		late bool
	}{"released": {release, false}, "discarded": {discard, false}, "discarded before": {discard, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, s := only(t, state, guarding(deliver.Guard{Retract: float64(limit) / all, Min: 1, Window: 10 * time.Minute}))
			p.known()
			publish := func(n int, offset int64) {
				for first := 0; first < n; first += 100 {
					var changes []change.Change
					for i := first; i < first+100; i++ {
						c := showing(i, fmt.Sprint("e", i), offset+int64(i))
						c.Effect = change.Enters
						changes = append(changes, c)
					}
					p.publish(changes...)
				}
			}
			publish(all, 0)
			p.delivered()
			p.retractAll(0, broken, all)
			p.held()
			require.Eventually(t, func() bool { return len(s.has()) == all+limit }, patience, time.Millisecond)
			if c.late {
				p.decideHold(c.end)
				p.delivered()
			}
			publish(broken, all+broken)
			if !c.late {
				p.decideHold(c.end)
			}
			p.delivered()
			require.Len(t, s.has(), all+2*limit)
		})
	}
}

// A former owner may write changes from before the takeover late: of these nothing is known.
func TestWhatAFormerOwnerMayWriteIsNotKnown(t *testing.T) {
	t.Parallel()
	w := newWorld(t, service)
	asked, ends := 0, make(chan int64)
	p := w.start(map[string]sinks.Traits{service: state}, func(o *deliver.Options) {
		o.InboxEnd = func(ctx context.Context, _ int32) (change.Version, error) {
			if asked++; asked == 1 {
				return at(5), nil
			}
			select {
			case end := <-ends:
				return at(end), nil
			case <-ctx.Done():
				return 0, context.Cause(ctx)
			}
		}
	})
	p.known()
	p.publish(showing(1, "a", 0))
	p.delivered()
	p.publish(showing(2, "a", 1), showing(1, "a", 2))
	p.delivered()
	require.Equal(t, []string{"a:0", "a:2"}, p.sinks[service].has(), "it may write a:1")
	p.publish(showing(1, "a", 5))
	p.delivered()
	p.publish(showing(2, "a", 6), showing(1, "a", 7))
	p.delivered()
	require.Equal(t, []string{"a:0", "a:2", "a:5"}, p.sinks[service].has())

	// The worker of before a reload is a former owner, too.
	s := &sink{traits: state}
	p.activate(2)
	require.NoError(t, p.stage.Reconfigure(t.Context(), deliver.Reconfiguration{
		Revision: 2, Add: []deliver.Service{{Name: service, Number: w.numbers[service], Sink: s, Retry: retry()}}, Remove: []int32{w.numbers[service]},
	}))
	p.publish(showing(1, "a", 8))
	p.delivered()
	p.publish(showing(2, "a", 9), showing(1, "a", 10))
	p.delivered()
	require.Equal(t, []string{"a:8", "a:10"}, s.has())
	ends <- 11
	p.known()
	p.publish(showing(1, "a", 11))
	p.delivered()
	p.publish(showing(2, "a", 12), showing(1, "a", 13))
	p.delivered()
	require.Equal(t, []string{"a:8", "a:10", "a:11"}, s.has())
}

// A process that lost a partition hands out nothing that it reads then, also before it notices:
// the next owner takes no change for its own that another may write.
func TestAFormerOwnerHandsOutNothingNew(t *testing.T) {
	t.Parallel()
	w := newWorld(t, service)
	p := w.start(map[string]sinks.Traits{service: state}, func(o *deliver.Options) { o.Store = blind{recording{w.store, w}} })
	p.known()
	p.publish(showing(1, "a", 0))
	p.delivered()
	_, err := w.store.TakeProgress(t.Context(), []int32{0}, store.Token{7})
	require.NoError(t, err)
	p.stage.Ends(0, p.decide(showing(2, "a", 1)).To) // by the other process
	select {
	case <-p.ended:
	case <-time.After(patience):
		require.FailNow(t, "it goes on")
	}
	require.Equal(t, []string{"a:0"}, p.sinks[service].has())
	require.ErrorIs(t, p.stop(), deliver.ErrLost)
}

// After an attempt without an answer the target may have either content.
func TestWhatAnAttemptMayHaveWrittenIsNotKnown(t *testing.T) {
	t.Parallel()
	p, s := only(t, state, seldom)
	p.known()
	p.publish(showing(1, "a", 0), showing(1, "b", 1))
	p.delivered()
	asked, hold := make(chan struct{}), make(chan struct{})
	s.answer(func([]change.Change) error {
		select {
		case <-asked:
			return nil
		default:
			close(asked)
			<-hold
			return refuse(sinks.Retry, true)
		}
	})
	p.publish(showing(2, "a", 2), showing(2, "b", 3))
	<-asked
	p.publish(showing(1, "a", 4))
	require.Eventually(t, func() bool { return p.handled.Load() >= 3 }, patience, time.Millisecond)
	close(hold)
	p.delivered()
	require.Equal(t, []string{"a:2", "b:3"}, s.attempts()[1])
	require.Contains(t, s.has(), "a:4")
}

// A takeover forgets: another owner may have written meanwhile.
func TestATakeoverForgets(t *testing.T) {
	t.Parallel()
	p, s := only(t, state)
	p.known()
	p.publish(showing(1, "a", 0))
	p.delivered()
	require.NoError(t, p.stage.Assigned(t.Context(), []int32{0}))
	p.known()
	p.publish(showing(2, "a", 1), showing(1, "a", 2))
	p.delivered()
	require.Equal(t, []string{"a:0", "a:2"}, s.has())
}

// The memory for contents is bounded: of more entities than it allows any is written again.
func TestWhatIsKnownIsBounded(t *testing.T) {
	t.Parallel()
	p, s := only(t, state, func(o *deliver.Options) { o.Memory = 160 << 10 })
	p.known()
	publish := func(offset int64) {
		for first := range 10 {
			var changes []change.Change
			for i := first * 10; i < first*10+10; i++ {
				if offset > 0 {
					changes = append(changes, showing(2, fmt.Sprint("e", i), offset+2*int64(i)))
				}
				changes = append(changes, showing(1, fmt.Sprint("e", i), offset+2*int64(i)+1))
			}
			p.publish(changes...)
		}
		p.delivered()
	}
	publish(0)
	publish(1000)
	require.Less(t, len(s.has()), 200)
	require.Greater(t, len(s.has()), 100)
}
