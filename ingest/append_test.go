package ingest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/seed-86dfc502/weir/ingest"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/stretchr/testify/require"
)

// partitioned is an inbox of partitions, of which some take nothing.
type partitioned struct {
	*world
	stuck map[int32]bool

	mu   sync.Mutex
	held []func(error)
	got  []string
}

func (p *partitioned) AppendAsync(_ context.Context, sequence *transport.Sequence, records []transport.Record, done func(error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	end := func(err error) {
		if err == nil {
			err = sequence.Broken() // what is held of it is not sent then
		}
		if err != nil {
			sequence.Break(err)
			done(err)
			return
		}
		for _, r := range records {
			p.got = append(p.got, string(r.Key)+" "+string(r.Value))
		}
		done(nil)
	}
	if p.stuck[records[0].Partition] {
		p.held = append(p.held, end)
		return
	}
	end(nil)
}

// release ends the appends that are held.
func (p *partitioned) release(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	held := p.held
	p.held, p.stuck = nil, nil
	for _, end := range held {
		end(err)
	}
}

func (p *partitioned) of(entity string) (got []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.got {
		if r[:1] == entity {
			got = append(got, r)
		}
	}
	return got
}

// line hands out frames of a source's partition, as a consumer group does.
type line struct {
	*partitioned
	ctx context.Context
}

// outstanding is a message of which some records were set aside.
type outstanding struct {
	*message.Message
	Left []int
}

// answer waits for the answer to a message, and reports whether it was acknowledged.
func answer(m *message.Message) bool {
	select {
	case <-m.Acked():
		return true
	case <-m.Nacked():
		return false
	}
}

func newLine(t *testing.T, bytes int64) *line {
	p := &partitioned{stuck: map[int32]bool{}}
	p.world = newWorldWith(t, func(o *ingest.Options) {
		o.Inbox, o.Aside, o.Partitions = p, ingest.NewAside(bytes), 8
	})
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	return &line{p, ctx}
}

// give hands a frame of events about these entities out.
func (l *line) give(entities ...string) (acked bool, left *outstanding) {
	return l.offer(l.next(entities...))
}

// again hands out a frame once more.
func (l *line) again(entities ...string) (acked bool, left *outstanding) {
	return l.offer(l.next(entities...).Redelivered())
}

func (l *line) next(entities ...string) *transport.Frame {
	var values []string
	for _, e := range entities {
		values = append(values, event(fmt.Sprint(l.offset, e), e, fmt.Sprint(l.offset)))
	}
	return l.frame(values...)
}

func (l *line) offer(f *transport.Frame) (acked bool, left *outstanding) {
	f, aside := f.Settable()
	m := transport.NewMessage(l.ctx, f)
	go func() {
		if l.stage.Handle(m) == nil {
			m.Ack()
		} else {
			m.Nack()
		}
	}()
	select {
	case <-m.Acked():
		return true, nil
	case <-m.Nacked():
		return false, nil
	case at := <-aside:
		return false, &outstanding{m, at}
	}
}

func (l *line) stick(entity string) {
	l.stuck[transport.PartitionOf([]byte(entity), 8)] = true
}

// Events of a partition that takes nothing are set aside; those of the others, also of
// later frames, pass. Set-aside events are bounded: then the source waits.
func TestEventsOfAStuckPartitionAreSetAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, 3<<10) // two events, not three
		l.stick("A")
		began := time.Now()
		acked, first := l.give("B", "A")
		require.False(t, acked)
		require.Equal(t, []int{1}, first.Left)
		require.Equal(t, time.Second, time.Since(began))
		acked, second := l.give("A", "C", "B")
		require.False(t, acked)
		require.Equal(t, []int{0}, second.Left)
		require.Equal(t, time.Second, time.Since(began), "it is known to be stuck")
		acked, left := l.give("C", "D")
		require.True(t, acked)
		require.Nil(t, left)
		require.Len(t, l.of("B"), 2)
		require.Len(t, l.of("C"), 2)
		require.Empty(t, l.of("A"))
		require.False(t, l.stage.Idle())

		third := make(chan bool)
		go func() { acked, _ := l.give("A", "B"); third <- acked }()
		<-time.After(time.Hour + time.Millisecond)
		select {
		case <-third:
			require.Fail(t, "more is set aside than there is room for")
		default:
		}
		l.release(nil)
		require.True(t, answer(first.Message))
		require.True(t, answer(second.Message))
		require.True(t, <-third)
		require.Len(t, l.of("A"), 3)
		require.True(t, slices.IsSorted(l.of("A")), "in their order")
		synctest.Wait()
		require.True(t, l.stage.Idle())
	})
}

// An append of set-aside events fails: nothing behind them is appended first, though
// it is ready. The counterexample: the later event of the entity is appended, the fence
// drops the earlier one when it comes again, and a patch is lost.
func TestNothingPassesWhatWasSetAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, 1<<20)
		l.stick("A")
		from := l.offset
		_, first := l.give("A", "B")
		require.NotNil(t, first)
		_, second := l.give("B", "A")
		require.NotNil(t, second)
		l.release(errors.New("the client is lost"))
		require.False(t, answer(first.Message))
		require.False(t, answer(second.Message), "the second would stand behind a gap")
		acked, _ := l.give("A") // it was under way to the handler before the refusal came
		require.False(t, acked)
		require.Empty(t, l.of("A"))
		l.offset = from
		acked, _ = l.give("A") // behind the refused one, of the same transaction
		require.False(t, acked)
		l.offset = from
		acked, _ = l.again("A")
		require.True(t, acked)
		l.offset = from + 3
		acked, _ = l.again("A")
		require.True(t, acked)
		require.Equal(t, []string{"A 0", "A 3"}, l.of("A"))
	})
}

// A frame of stuck partitions alone lets later ones pass, too: it may be one event.
func TestAFrameOfAStuckPartitionAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, 1<<20)
		l.stick("A")
		acked, first := l.give("A")
		require.False(t, acked)
		require.Equal(t, []int{0}, first.Left)
		acked, left := l.give("B")
		require.True(t, acked)
		require.Nil(t, left)
		l.release(nil)
		require.True(t, answer(first.Message))
	})
}
