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

func someFrame() *transport.Frame {
	return transport.NewFrame("topic", "", 0, 1, []transport.Received{{Value: []byte("1")}, {Value: []byte("2")}})
}

func TestFrameComesAgainUntilItIsAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := make(chan *message.Message)
		acked := make(chan bool, 1)
		start := time.Now()
		f := someFrame()
		go func() { acked <- Frame(t.Context(), out, f, 0) }()
		for n := range 3 {
			m := <-out
			require.Equal(t, time.Duration(n)*backOff, time.Since(start))
			got, ok := transport.FrameOf(m)
			require.True(t, ok)
			for _, r := range got.Records {
				require.Equal(t, n > 0, r.Redelivered)
			}
			if n < 2 {
				m.Nack()
			} else {
				m.Ack()
			}
		}
		require.True(t, <-acked)
		require.False(t, f.Records[0].Redelivered, "what is in other hands does not change")
	})
}

// At the end of the source a frame in work has a grace; one that was not
// received, or was refused, has none.
func TestFrameAtTheEnd(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer func(*message.Message) bool
		want   bool
		after  time.Duration
	}{
		{"acknowledged in time", func(m *message.Message) bool { <-time.After(time.Second - 1); return m.Ack() }, true, time.Second - 1},
		{"acknowledged too late", func(m *message.Message) bool { <-time.After(time.Second + 1); return m.Ack() }, false, time.Second},
		{"refused", (*message.Message).Nack, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				out := make(chan *message.Message)
				answered := make(chan struct{})
				go func() {
					defer close(answered)
					m := <-out
					cancel()
					<-m.Context().Done()
					c.answer(m)
				}()
				start := time.Now()
				require.Equal(t, c.want, Frame(ctx, out, someFrame(), time.Second))
				require.Equal(t, c.after, time.Since(start))
				<-answered
			})
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.False(t, Frame(ctx, make(chan *message.Message), someFrame(), time.Hour))
}
