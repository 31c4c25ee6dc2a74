// Package handout hands out the frames of sources that have one in work at a time.
package handout

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/transport"
)

// backOff is how long a refused frame waits before it is redelivered.
const backOff = 100 * time.Millisecond

// Frame hands out f until it is acknowledged, and reports whether it was. Its messages end with
// ctx. A frame that is in work then has grace to be acknowledged, because its effect may be
// durable already. It is not handed out again.
func Frame(ctx context.Context, out chan<- *message.Message, f *transport.Frame, grace time.Duration) bool {
	for {
		m := transport.NewMessage(ctx, f)
		select {
		case out <- m:
		case <-ctx.Done():
			return false
		}
		select {
		case <-m.Acked():
			return true
		case <-m.Nacked():
		case <-ctx.Done():
			return late(m, grace)
		}
		if !wait.Sleep(ctx, backOff) {
			return false
		}
		f = f.Redelivered()
	}
}

// late waits for an answer after the end of the source.
func late(m *message.Message, grace time.Duration) bool {
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-m.Acked():
	case <-m.Nacked():
	case <-timer.C:
	}
	select {
	case <-m.Acked(): // also when both came
		return true
	default:
		return false
	}
}
