package transport

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Publisher is the message.Publisher face of a producer. The record of a
// message is the one that FromMessage gives.
type Publisher struct {
	p      *Producer
	closed atomic.Bool
}

// NewPublisher returns a face of p. Closing it does not close p.
func NewPublisher(p *Producer) *Publisher { return &Publisher{p: p} }

// Publish returns when all messages are acknowledged or failed; an AppendError
// says which ones. Behind a failed one nothing was appended in its partition. Two
// calls at the same time are not ordered against each other. It waits while
// the cluster is away, until the context of the first message ends.
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	if p.closed.Load() {
		return fmt.Errorf("publish to %s: publisher %w", topic, ErrClosed)
	}
	if len(messages) == 0 {
		return nil
	}
	records := make([]Record, len(messages))
	for i, m := range messages {
		records[i] = FromMessage(topic, m)
	}
	ctx := messages[0].Context()
	if ctx == nil {
		ctx = context.Background()
	}
	if err := p.p.Append(ctx, records); err != nil {
		return fmt.Errorf("publish to %s: %w", topic, err)
	}
	return nil
}

// Close refuses further calls.
func (p *Publisher) Close() error {
	p.closed.Store(true)
	return nil
}
