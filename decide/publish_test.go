package decide

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/transport"
)

// held is a producer that answers when a test says so. It is used by one goroutine.
type held struct {
	at     bool    // answers at once
	says   []error // the next answers then; nil when there are no more
	calls  [][]transport.Record
	dones  []func(error) // of calls, by their numbers
	resets int
}

func (p *held) AppendAsync(_ context.Context, records []transport.Record, done func(error)) {
	p.calls, p.dones = append(p.calls, records), append(p.dones, done)
	if !p.at {
		return
	}
	var err error
	if len(p.says) > 0 {
		err, p.says = p.says[0], p.says[1:]
	}
	done(err)
}

func (p *held) Reset()                      { p.resets++ }
func (p *held) Close(context.Context) error { return nil }

// entities are those of the frames that were handed in, call by call.
func (p *held) entities(t *testing.T) (all []string) {
	t.Helper()
	for _, call := range p.calls {
		text := ""
		for _, r := range call {
			f, err := change.ParseFrame(r.Value)
			require.NoError(t, err)
			for c, err := range f.Slices[0].All("any") {
				require.NoError(t, err)
				text += c.Entity
			}
		}
		all = append(all, text)
	}
	return all
}

// single is a decider of one lane that does nothing by itself.
func (w *flow) single(t *testing.T, p Producer, partitions ...int32) (*Decider, *lane) {
	t.Helper()
	var s Store = w.store
	if w.wrap != nil {
		s = w.wrap(s)
	}
	d, err := New(Options{
		Store: s, Inbox: w.inbox, Plan: w.plan, NewProducer: func() (Producer, error) { return p, nil }, Lanes: 1,
		ChangesTopic: "weir.changes", Logger: slog.New(slog.DiscardHandler), Metrics: NewMetrics(prometheus.NewRegistry()),
	})
	require.NoError(t, err)
	t.Cleanup(func() { d.halt(nil) })
	if len(partitions) > 0 {
		_, err = d.Assigned(t.Context(), "weir.inbox", partitions)
		require.NoError(t, err)
	}
	return d, d.lanes[0]
}

// decides decides one event that changes an entity.
func (l *lane) decides(t *testing.T, entity string, partition int32, offset int64) {
	t.Helper()
	f := transport.NewFrame("weir.inbox", "id", partition, transport.LastAssignment()+1, []transport.Received{event(t, entity, offset, `{"id":"B","ripeness_level":1}`)})
	r := &record{}
	l.d.parse(r, f, 0)
	require.NoError(t, l.decide(t.Context(), []*record{r}))
}

func (w *flow) outbox(t *testing.T, partition int32) int {
	t.Helper()
	rows, err := w.store.Outbox(t.Context(), partition)
	require.NoError(t, err)
	return len(rows)
}

var errAway = errors.New("away")

// What was not published goes out, from the store, before what is decided next.
func TestAFailedPublishIsRepeatedFromTheStore(t *testing.T) {
	w := newFlow(t)
	p := &held{}
	_, l := w.single(t, p, 0)
	l.decides(t, "A", 0, 0)
	p.dones[0](errAway)
	p.at = true
	l.decides(t, "B", 0, 1)
	require.Equal(t, []string{"A", "A", "B"}, p.entities(t))
	require.Equal(t, 1, p.resets)
	require.NoError(t, l.discard(t.Context()))
	require.Zero(t, w.outbox(t, 0))
}

// A shutdown deletes what was acknowledged, and leaves what failed to the next owner.
func TestAShutdownKeepsWhatFailed(t *testing.T) {
	w := newFlow(t)
	p := &held{}
	_, l := w.single(t, p, 0)
	l.decides(t, "A", 0, 0)
	l.decides(t, "B", 0, 1)
	p.dones[0](nil)
	p.dones[1](errAway)
	l.close()
	require.Equal(t, 1, w.outbox(t, 0))
	next := &held{at: true}
	w.single(t, next, 0)
	require.Equal(t, []string{"B"}, next.entities(t))
}

// The producer goes on only when everything that was handed in is answered: what is
// still under way could land behind what is published next.
func TestTheProducerIsResetWhenAllIsAnswered(t *testing.T) {
	w := newFlow(t)
	p := &held{}
	_, l := w.single(t, p, 0, 1)
	l.decides(t, "A", 0, 0)
	l.decides(t, "B", 1, 0)
	p.dones[0](errAway)
	ended, end := context.WithCancel(t.Context())
	end()
	require.ErrorIs(t, l.repair(ended), context.Canceled, "it waits for the other answer")
	require.Zero(t, p.resets)
	p.dones[1](nil)
	p.at = true
	require.NoError(t, l.repair(t.Context()))
	require.Equal(t, 1, p.resets)
	require.Len(t, p.calls[2], 2, "the token of both is new: what is not deleted goes out again")
}

// A take-over makes the producer work again. What had failed before, of other
// partitions, is still to be published.
func TestATakeOverThatMendsTheProducer(t *testing.T) {
	w := newFlow(t)
	p := &held{}
	d, l := w.single(t, p, 0)
	l.decides(t, "A", 0, 0)
	p.dones[0](errAway)
	p.at = true
	_, err := d.Assigned(t.Context(), "weir.inbox", []int32{1})
	require.NoError(t, err)
	require.Equal(t, 1, p.resets)
	require.False(t, d.Settled())
	l.decides(t, "B", 1, 0)
	require.Equal(t, []string{"A", "A", "B"}, p.entities(t))
	require.True(t, d.Settled())
}

// A take-over whose publish fails has not taken over.
func TestATakeOverWhosePublishFails(t *testing.T) {
	w := newFlow(t)
	_, killed := w.single(t, &held{}, 0)
	killed.decides(t, "A", 0, 0)
	p := &held{at: true, says: []error{errAway}}
	w.single(t, p, 0)
	require.Equal(t, 1, p.resets)
	require.Equal(t, []string{"A", "A"}, p.entities(t))
}

// watched notes which outbox rows each decision deletes.
type watched struct {
	Store
	deleted [][]int64
}

func (s *watched) Decide(ctx context.Context, d store.Decision, decide func(store.Loaded) (store.Outcome, error)) ([]int64, error) {
	s.deleted = append(s.deleted, d.Published)
	return s.Store.Decide(ctx, d, decide)
}

// Every row is deleted by the decision after its acknowledgement, and named in no
// later one: a store that was put back uses ids again.
func TestAcknowledgedRowsAreDeletedOnce(t *testing.T) {
	w := newFlow(t)
	_, killed := w.single(t, &held{}, 0)
	killed.decides(t, "A", 0, 0)
	s := &watched{}
	w.wrap = func(inner Store) Store { s.Store = inner; return s }
	_, l := w.single(t, &held{at: true}, 0)
	for i, entity := range []string{"B", "C", "D"} {
		l.decides(t, entity, 0, int64(i+1))
		require.Equal(t, 1, w.outbox(t, 0))
	}
	seen := map[int64]bool{}
	for _, ids := range s.deleted {
		require.Len(t, ids, 1)
		require.False(t, seen[ids[0]], "twice")
		seen[ids[0]] = true
	}
}

// What an owner published counts for it alone: under the next token the ids may
// stand for other rows.
func TestAnAcknowledgementOfAnEarlierOwnership(t *testing.T) {
	w := newFlow(t)
	p := &held{}
	d, l := w.single(t, p, 0)
	l.decides(t, "A", 0, 0)
	p.at = true
	_, err := d.Assigned(t.Context(), "weir.inbox", []int32{0})
	require.NoError(t, err)
	l.decides(t, "B", 0, 1)
	before := len(l.owned[0].published)
	p.dones[0](nil)
	require.Len(t, l.owned[0].published, before)
}

// An owner that has nothing to decide keeps the outbox empty, and notices that it is
// not the owner any more.
func TestAnIdleOwnerDeletesWhatWasAcknowledged(t *testing.T) {
	w := newFlow(t)
	_, l := w.single(t, &held{at: true}, 0)
	l.decides(t, "A", 0, 0)
	require.Equal(t, 1, w.outbox(t, 0))
	l.idle(t.Context())
	require.Zero(t, w.outbox(t, 0))
	require.False(t, l.stale(t.Context(), nil))
	w.single(t, &held{at: true}, 0)
	l.compared = l.compared.Add(-2 * ownTick)
	require.True(t, l.stale(t.Context(), nil))
}

// wentBack is a store that was put back to where nothing was decided.
type wentBack struct{ Store }

func (s wentBack) TakeOver(ctx context.Context, partitions []store.Partition, token store.Token) ([]store.TakenOver, error) {
	taken, err := s.Store.TakeOver(ctx, partitions, token)
	for i := range taken {
		taken[i].NextOffset = 0
	}
	return taken, err
}

// What was read of the inbox and is not decided any more has to be read again.
func TestAStoreThatWentBackEndsTheSubscription(t *testing.T) {
	w := newFlow(t)
	w.wrap = func(s Store) Store { return wentBack{s} }
	d, l := w.single(t, &held{at: true}, 0)
	l.decides(t, "A", 0, 0)
	require.ErrorIs(t, l.reclaim(t.Context(), []int32{0}), ErrReread)
	require.ErrorIs(t, context.Cause(d.stop), ErrReread)
}

// The inbox of another topic has other offsets, and partitions that were added to
// it hold nothing that may be decided.
func TestAnotherInboxIsNotDecided(t *testing.T) {
	w := newFlow(t)
	d, _ := w.single(t, &held{at: true}, 0)
	f := transport.NewFrame("weir.inbox", "another", 0, transport.LastAssignment()+1, []transport.Received{event(t, "A", 0, `{}`)})
	ended, end := context.WithCancel(t.Context())
	end() // it would wait for a decision
	require.ErrorIs(t, d.Handle(transport.NewMessage(ended, f)), ErrInboxReplaced)
	_, err := d.Assigned(t.Context(), "weir.inbox", []int32{2})
	require.ErrorIs(t, err, store.ErrRepartitioned)
}
