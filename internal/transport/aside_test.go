package transport_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/stretchr/testify/require"
)

// Records that a handler sets aside hold up neither later frames nor, refused, their
// order; the offset stays before them, also for the next member.
func TestRecordsAreSetAside(t *testing.T) {
	onBoth(t, func(t *testing.T, c cluster) {
		topic := c.topic(t, "topic", 1)
		p := c.producer(t, transport.ProducerConfig{})
		for n := range 8 {
			require.NoError(t, p.Append(t.Context(), []transport.Record{{Topic: topic, Value: fmt.Append(nil, n)}}))
		}
		open := func() *transport.Group {
			return c.group(t, transport.GroupConfig{Topic: topic, FrameRecords: 3})
		}
		g := open()
		committed := func(want int64) {
			t.Helper()
			require.Eventually(t, func() bool {
				lags, err := g.Lag(t.Context())
				return err == nil && lags[0].Committed == want
			}, patience, 10*time.Millisecond, "%d", want)
		}
		ch := subscribe(t, g, topic)
		first := receive(t, ch)
		require.Equal(t, []string{"0", "1", "2"}, values(t, first))
		require.True(t, frame(t, first).SetAside([]int{1}))
		second := receive(t, ch)
		require.Equal(t, []string{"3", "4", "5"}, values(t, second))
		second.Ack()
		third := receive(t, ch)
		require.Equal(t, []string{"6", "7"}, values(t, third))
		require.True(t, frame(t, third).SetAside([]int{0}))
		committed(1)

		first.Nack() // the third is answered before anything is handed out again
		select {
		case m := <-ch:
			require.FailNow(t, "out of order", values(t, m))
		case <-time.After(50 * time.Millisecond):
		}
		third.Nack()
		again := receive(t, ch)
		require.Equal(t, []string{"1", "6"}, values(t, again))
		require.True(t, frame(t, again).Records[0].Redelivered)
		require.True(t, frame(t, again).SetAside([]int{0, 1}))
		require.NoError(t, p.Append(t.Context(), []transport.Record{{Topic: topic, Value: []byte("8")}}))
		last := receive(t, ch)
		require.Equal(t, []string{"8"}, values(t, last))
		last.Ack()
		committed(1)
		require.NoError(t, g.Close())
		require.Error(t, again.Context().Err())

		g = open()
		ch = subscribe(t, g, topic)
		rest := receive(t, ch)
		require.Equal(t, []string{"1", "2", "3"}, values(t, rest), "whatever was acknowledged behind it")
		require.True(t, frame(t, rest).SetAside([]int{0}))
		rest.Ack()
		for n := 4; n < 9; {
			m := receive(t, ch)
			n += len(frame(t, m).Records)
			m.Ack()
		}
		committed(9)
		require.Zero(t, g.Held())
	})
}
