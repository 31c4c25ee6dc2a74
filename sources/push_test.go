package sources_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/seed-86dfc502/weir/sources"
	"github.com/seed-86dfc502/weir/transport"
	"github.com/stretchr/testify/require"
)

// patience bounds every wait.
const patience = 60 * time.Second

type push struct {
	t        *testing.T
	source   *sources.Push
	messages <-chan *message.Message
}

func newPush(t *testing.T, o sources.PushOptions) *push {
	o.Name = "orders"
	p := &push{t: t, source: sources.NewPush(o)}
	t.Cleanup(func() { require.NoError(t, p.source.Close()) })
	return p
}

func (p *push) subscribe() {
	var err error
	p.messages, err = p.source.Subscribe(context.Background(), "push")
	require.NoError(p.t, err)
}

// push calls Push; the results come when it returns.
func (p *push) push(ctx context.Context, values ...string) <-chan []error {
	events := make([]*message.Message, len(values))
	for i, v := range values {
		events[i] = message.NewMessage("", []byte(v))
	}
	results := make(chan []error, 1)
	go func() { results <- p.source.Push(ctx, events...) }()
	return results
}

func (p *push) next() *message.Message {
	p.t.Helper()
	select {
	case m := <-p.messages:
		return m
	case <-time.After(patience):
		require.FailNow(p.t, "no message")
		return nil
	}
}

func (p *push) results(from <-chan []error) []error {
	p.t.Helper()
	select {
	case r := <-from:
		return r
	case <-time.After(patience):
		require.FailNow(p.t, "Push did not return")
		return nil
	}
}

func seqOf(m *message.Message) uint64 {
	p, _ := transport.PositionOf(m.Context())
	return p.Seq
}

func TestPushReturnsWhenTheEventsAreDurable(t *testing.T) {
	p := newPush(t, sources.PushOptions{})
	early := p.push(t.Context(), `{"n":0}`) // before anybody subscribed
	p.subscribe()
	p.next().Ack()
	require.Equal(t, []error{nil}, p.results(early))

	result := p.push(t.Context(), "1", "2", "3")
	one, two, three := p.next(), p.next(), p.next()
	require.Equal(t, []uint64{1, 2, 3}, []uint64{seqOf(one), seqOf(two), seqOf(three)})
	require.Equal(t, "3", string(three.Payload))
	three.Ack()
	one.Ack()
	require.False(t, p.source.Drained())
	select {
	case <-result:
		require.FailNow(t, "returned too early")
	case <-time.After(20 * time.Millisecond):
	}
	two.Nack() // it could not be taken in yet: it comes again
	again := p.next()
	require.EqualValues(t, 2, seqOf(again))
	again.Ack()
	require.Equal(t, []error{nil, nil, nil}, p.results(result))
	require.Eventually(t, p.source.Drained, patience, time.Millisecond)
}

// A caller whose time is over learns which of its events are durable; the
// others go on all the same: a gap would hold back what follows.
func TestPushEndOfTheCallersTime(t *testing.T) {
	p := newPush(t, sources.PushOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, []error{sources.ErrNotDurable}, p.results(p.push(ctx, "0")), "nobody subscribed")
	p.subscribe()
	ctx, cancel = context.WithCancel(t.Context())
	result := p.push(ctx, "1", "2")
	one, two := p.next(), p.next()
	one.Ack()
	cancel()
	r := p.results(result)
	require.ErrorIs(t, r[1], sources.ErrNotDurable)
	require.NoError(t, two.Context().Err(), "the message outlives its caller")
	two.Ack()
	after := p.push(t.Context(), "3")
	three := p.next()
	require.Equal(t, []uint64{0, 1, 2}, []uint64{seqOf(one), seqOf(two), seqOf(three)})
	three.Ack()
	require.Equal(t, []error{nil}, p.results(after))
	require.Eventually(t, p.source.Drained, patience, time.Millisecond)
}

// While nothing is acknowledged, calls that are made again and again pile up as
// far as the window only.
func TestPushBoundsWhatIsInFlight(t *testing.T) {
	p := newPush(t, sources.PushOptions{WindowBytes: 10 << 10})
	p.subscribe()
	ctx, cancel := context.WithCancel(t.Context())
	result := p.push(ctx, "1", "2", "3", "4")
	one, two := p.next(), p.next() // 4 KiB and a little each
	cancel()
	require.Equal(t, []error{sources.ErrNotDurable, sources.ErrNotDurable, sources.ErrNoRoom, sources.ErrNoRoom}, p.results(result))
	require.Equal(t, []error{sources.ErrNoRoom}, p.results(p.push(ctx, "5")))
	require.Empty(t, p.messages)
	one.Ack()
	two.Ack()
	require.Eventually(t, p.source.Drained, patience, time.Millisecond)
	large := p.push(t.Context(), strings.Repeat("x", 20<<10))
	three := p.next() // larger than the window: alone
	require.EqualValues(t, 2, seqOf(three), "what was not handed out left no gap")
	three.Ack()
	require.Equal(t, []error{nil}, p.results(large))
}

func TestPushStopping(t *testing.T) {
	p := newPush(t, sources.PushOptions{})
	p.subscribe()
	waiting := p.push(t.Context(), "0")
	p.next()
	require.NoError(t, p.source.Close())
	require.Equal(t, []error{sources.ErrStopping}, p.results(waiting))
	require.Equal(t, []error{sources.ErrStopping, sources.ErrStopping}, p.results(p.push(t.Context(), "1", "2")))
	_, err := p.source.Subscribe(t.Context(), "again")
	require.Error(t, err)
}

// The calls of many come out numbered without a gap, each call's in its order.
func TestPushKeepsTheOrderOfEachCall(t *testing.T) {
	p := newPush(t, sources.PushOptions{})
	p.subscribe()
	var results []<-chan []error
	for caller := range 8 {
		results = append(results, p.push(t.Context(), fmt.Sprint(caller, "-0"), fmt.Sprint(caller, "-1"), fmt.Sprint(caller, "-2")))
	}
	last := map[byte]byte{}
	for n := range 24 {
		m := p.next()
		require.EqualValues(t, n, seqOf(m))
		caller, event := m.Payload[0], m.Payload[2]
		require.Equal(t, '0'+byte(last[caller]), event)
		last[caller]++
		m.Ack()
	}
	for _, r := range results {
		require.Equal(t, []error{nil, nil, nil}, p.results(r))
	}
}

type valueKey struct{}

// Metadata and the values of a context go along, also when the event comes again.
func TestPushHandsOnWhatBelongsToTheEvent(t *testing.T) {
	p := newPush(t, sources.PushOptions{})
	p.subscribe()
	e := message.NewMessage("", []byte("{}"))
	e.Metadata.Set("ce_id", "7")
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), valueKey{}, "prepared"))
	e.SetContext(ctx)
	cancel()
	result := make(chan []error, 1)
	go func() { result <- p.source.Push(t.Context(), e) }()
	for _, again := range []bool{false, true} {
		m := p.next()
		require.Equal(t, message.Metadata{"ce_id": "7"}, m.Metadata)
		require.Equal(t, "prepared", m.Context().Value(valueKey{}))
		require.NoError(t, m.Context().Err(), "the event's own context is for its values")
		if again {
			m.Ack()
		} else {
			m.Nack()
		}
	}
	require.Equal(t, []error{nil}, p.results(result))
}
