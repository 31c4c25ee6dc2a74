package push_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/seed-86dfc502/weir/internal/transport"
	pushsource "github.com/seed-86dfc502/weir/sources/push"
	"github.com/stretchr/testify/require"
)

// patience bounds every wait.
const patience = 60 * time.Second

type push struct {
	t        *testing.T
	source   *pushsource.Source
	messages <-chan *message.Message
}

func newPush(t *testing.T, o pushsource.Options) *push {
	o.Name = "orders"
	p := &push{t: t, source: pushsource.New(o)}
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

func (p *push) drained() bool {
	drained, err := p.source.Drained(p.t.Context())
	return err == nil && drained
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

// inWork occupies the source with an event: later ones queue until it is acknowledged.
func (p *push) inWork() *message.Message {
	p.t.Helper()
	p.push(context.Background(), "in work")
	m := p.next()
	require.Equal(p.t, []string{"in work"}, values(p.t, m))
	return m
}

func TestPushReturnsWhenTheEventsAreDurable(t *testing.T) {
	p := newPush(t, pushsource.Options{})
	early := p.push(t.Context(), `{"n":0}`) // before anybody subscribed
	p.subscribe()
	p.next().Ack()
	require.Equal(t, []error{nil}, p.results(early))

	result := p.push(t.Context(), "1", "2", "3")
	m := p.next()
	require.Equal(t, []string{"1", "2", "3"}, values(t, m))
	f := frame(t, m)
	require.Equal(t, "push:orders", f.Topic)
	require.Empty(t, f.TopicID, "there are no positions")
	require.False(t, p.drained())
	select {
	case <-result:
		require.FailNow(t, "returned too early")
	case <-time.After(20 * time.Millisecond):
	}
	m.Nack() // it could not be taken in yet: it comes again
	again := p.next()
	require.Equal(t, []string{"1", "2", "3"}, values(t, again))
	ids := map[string]bool{}
	for i, r := range frame(t, again).Records {
		require.True(t, r.Redelivered)
		require.False(t, f.Records[i].Redelivered)
		require.Equal(t, f.UUID(i), frame(t, again).UUID(i), "an event keeps its name")
		ids[f.UUID(i)] = true
	}
	require.Len(t, ids, 3, "each event has a name of its own")
	again.Ack()
	require.Equal(t, []error{nil, nil, nil}, p.results(result))
	require.Eventually(t, p.drained, patience, time.Millisecond)
}

// A caller whose time is over learns that its events are not known to be
// durable; they go on all the same, since others may be in their frame.
func TestPushEndOfTheCallersTime(t *testing.T) {
	p := newPush(t, pushsource.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, []error{pushsource.ErrNotDurable}, p.results(p.push(ctx, "0")), "nobody subscribed")
	p.subscribe()
	ctx, cancel = context.WithCancel(t.Context())
	result := p.push(ctx, "1", "2")
	m := p.next()
	require.Equal(t, []string{"1", "2"}, values(t, m))
	cancel()
	require.Equal(t, []error{pushsource.ErrNotDurable, pushsource.ErrNotDurable}, p.results(result))
	require.NoError(t, m.Context().Err(), "the frame outlives its caller")
	m.Ack()
	after := p.push(t.Context(), "3")
	p.next().Ack()
	require.Equal(t, []error{nil}, p.results(after))
	require.Eventually(t, p.drained, patience, time.Millisecond)
}

// While nothing is acknowledged, calls that are made again and again pile up as
// far as the window only.
func TestPushBoundsWhatIsInFlight(t *testing.T) {
	p := newPush(t, pushsource.Options{WindowBytes: 10 << 10})
	p.subscribe()
	ctx, cancel := context.WithCancel(t.Context())
	result := p.push(ctx, "1", "2", "3", "4")
	m := p.next() // 4 KiB and a little each
	require.Equal(t, []string{"1", "2"}, values(t, m))
	cancel()
	require.Equal(t, []error{pushsource.ErrNotDurable, pushsource.ErrNotDurable, pushsource.ErrNoRoom, pushsource.ErrNoRoom}, p.results(result))
	require.Equal(t, []error{pushsource.ErrNoRoom}, p.results(p.push(ctx, "5")))
	require.Empty(t, p.messages)
	m.Ack()
	require.Eventually(t, p.drained, patience, time.Millisecond)

	// A call that waits for room continues once there is some.
	value := strings.Repeat("x", 20<<10) // larger than the window: alone
	large := p.push(t.Context(), value, "6", "7")
	m = p.next()
	require.Equal(t, []string{value}, values(t, m))
	m.Ack()
	m = p.next()
	require.Equal(t, []string{"6", "7"}, values(t, m))
	m.Ack()
	require.Equal(t, []error{nil, nil, nil}, p.results(large))
}

func TestPushBoundsAFrame(t *testing.T) {
	p := newPush(t, pushsource.Options{})
	p.subscribe()
	many := make([]string, 1500)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	size := func(mib int) string { return strings.Repeat("x", mib<<20) }
	result := p.push(t.Context(), append(many, size(3), size(3), size(5), "last")...)
	var lengths []int
	for range 5 {
		m := p.next()
		lengths = append(lengths, len(values(t, m)))
		m.Ack()
	}
	require.Equal(t, []int{1000, 501, 1, 1, 1}, lengths)
	for _, err := range p.results(result) {
		require.NoError(t, err)
	}
}

func TestPushStopping(t *testing.T) {
	p := newPush(t, pushsource.Options{})
	p.subscribe()
	waiting := p.push(t.Context(), "0")
	p.next()
	require.NoError(t, p.source.Close())
	require.Equal(t, []error{pushsource.ErrStopping}, p.results(waiting))
	require.Equal(t, []error{pushsource.ErrStopping, pushsource.ErrStopping}, p.results(p.push(t.Context(), "1", "2")))
	_, err := p.source.Subscribe(t.Context(), "again")
	require.Error(t, err)
}

// What callers hand in while a frame is in work makes the next one; each call's
// events are consecutive, from frame to frame.
func TestPushKeepsTheEventsOfACallTogether(t *testing.T) {
	p := newPush(t, pushsource.Options{WindowBytes: 64 << 10}) // 15 events: calls wait for room
	p.subscribe()
	const callers, events = 8, 30
	first := p.inWork()
	var results []<-chan []error
	for caller := range callers {
		all := make([]string, events)
		for i := range all {
			all[i] = fmt.Sprint(caller, "-", i)
		}
		results = append(results, p.push(t.Context(), all...))
	}
	first.Ack()
	var got []string
	for len(got) < callers*events {
		m := p.next()
		got = append(got, values(t, m)...)
		m.Ack()
	}
	for n := 0; n < len(got); n += events {
		for i := range events {
			require.Equal(t, fmt.Sprintf("%c-%d", got[n][0], i), got[n+i])
		}
	}
	for _, r := range results {
		for _, err := range p.results(r) {
			require.NoError(t, err)
		}
	}
}

// Calls that come while a frame is in work share the next one.
func TestPushGathersWhatComesMeanwhile(t *testing.T) {
	p := newPush(t, pushsource.Options{})
	p.subscribe()
	first := p.inWork()
	var want []string
	for caller := range 5 {
		want = append(want, fmt.Sprint(caller))
		for { // until it gives up with its event handed in
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			err := p.results(p.push(ctx, want[caller]))[0]
			cancel()
			if errors.Is(err, pushsource.ErrNotDurable) {
				break
			}
			require.ErrorIs(t, err, pushsource.ErrNoRoom)
		}
	}
	first.Ack()
	require.Equal(t, want, values(t, p.next()))
}

type valueKey struct{}

// Metadata and the values of a context go along, also when the event comes again.
func TestPushHandsOnWhatBelongsToTheEvent(t *testing.T) {
	p := newPush(t, pushsource.Options{})
	p.subscribe()
	e := message.NewMessage("named", []byte("{}"))
	e.Metadata.Set("ce_id", "7")
	e.Metadata.Set(transport.KeyMetadata, "B-1")
	null := message.NewMessage("", nil)
	null.Metadata.Set(transport.NullMetadata, "1")
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), valueKey{}, "prepared"))
	e.SetContext(ctx)
	cancel()
	result := make(chan []error, 1)
	go func() { result <- p.source.Push(t.Context(), e, null) }()
	for _, again := range []bool{false, true} {
		m := p.next()
		f := frame(t, m)
		r := f.Records[0]
		require.Equal(t, "7", r.Header("ce_id"))
		require.Equal(t, "B-1", string(r.Key))
		require.Equal(t, "named", f.UUID(0))
		require.Equal(t, "prepared", r.Context.Value(valueKey{}))
		require.NoError(t, r.Context.Err(), "the event's own context is for its values")
		require.Nil(t, f.Records[1].Key)
		require.Nil(t, f.Records[1].Value)
		if again {
			m.Ack()
		} else {
			m.Nack()
		}
	}
	require.Equal(t, []error{nil, nil}, p.results(result))
}

// frame returns a message's frame.
func frame(t *testing.T, m *message.Message) *transport.Frame {
	t.Helper()
	f, ok := transport.FrameOf(m)
	require.True(t, ok)
	return f
}

// values returns a frame's records as text.
func values(t *testing.T, m *message.Message) (values []string) {
	t.Helper()
	for _, r := range frame(t, m).Records {
		values = append(values, string(r.Value))
	}
	return values
}
