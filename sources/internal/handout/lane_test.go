package handout

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/stretchr/testify/require"
)

// lane is a Lane with its messages.
type lane struct {
	*Lane
	t    *testing.T
	out  chan *message.Message
	ends int // how often it broke
}

func newLane(t *testing.T, ctx context.Context) *lane {
	l := &lane{t: t, out: make(chan *message.Message)}
	l.Lane = NewLane(ctx, func() { l.ends++ })
	return l
}

// aside hands out a frame, of which the second record is set aside.
func (l *lane) aside(ctx context.Context) (m *message.Message, left <-chan struct{}) {
	l.t.Helper()
	go func() {
		m = <-l.out
		f, _ := transport.FrameOf(m)
		f.SetAside([]int{1})
	}()
	left, ok := l.Frame(ctx, l.out, someFrame(), time.Second)
	require.True(l.t, ok)
	require.NotNil(l.t, left)
	require.True(l.t, l.Aside())
	return m, left
}

// refused hands out a frame, which is refused, and reports that it is not handed out again.
func (l *lane) refused() {
	l.t.Helper()
	times := 0
	ctx, end := context.WithTimeout(l.t.Context(), time.Minute)
	defer end()
	go func() {
		for {
			select {
			case m := <-l.out:
				times++
				m.Nack()
			case <-ctx.Done():
				return
			}
		}
	}()
	left, ok := l.Frame(ctx, l.out, someFrame(), 0)
	require.False(l.t, ok)
	require.Nil(l.t, left)
	require.Equal(l.t, 1, times)
}

func TestRecordsAreSetAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		l := newLane(t, ctx)
		of, cancel := context.WithCancel(ctx)
		m, left := l.aside(of)
		cancel() // what was set aside goes on
		require.NoError(t, m.Context().Err())
		late, rest := l.aside(ctx)
		require.True(t, m.Ack())
		<-left
		synctest.Wait()
		require.True(t, l.Aside(), "the second frame is")
		end()
		<-late.Context().Done()
		<-time.After(time.Second - 1)
		require.True(t, late.Ack())
		<-rest
		l.Wait()
		require.False(t, l.Aside())
		require.Zero(t, l.ends)
	})
}

func TestNothingIsHandedOutAgainBeforeWhatIsAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLane(t, t.Context())
		m, left := l.aside(t.Context())
		l.refused()
		require.Equal(t, 1, l.ends)
		require.True(t, m.Nack())
		l.Wait()
		require.Equal(t, 2, l.ends)
		l.refused() // it was handed out before the end
		select {
		case <-left:
			require.Fail(t, "they are not durable")
		default:
		}
	})
}
