package pipeline

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
)

// endedSubscriber is a subscription that ends at once, as one whose group fails does.
type endedSubscriber struct{}

func (endedSubscriber) Subscribe(context.Context, string) (<-chan *message.Message, error) {
	messages := make(chan *message.Message)
	close(messages)
	return messages, nil
}

func (endedSubscriber) Close() error { return nil }

// A router that ends while it starts has started: why its subscription ended is the
// group's to say, and the caller asks it only about a router that it has.
func TestARouterThatEndsAtOnceHasStarted(t *testing.T) {
	p := openEmbedded(t, Roles{Decide: true}, fileSource)
	for range 300 {
		r, err := p.stages.startRouter("decide", []route{{name: "decide", topic: "t", subscriber: endedSubscriber{}, handle: func(*message.Message) error { return nil }}})
		require.NoError(t, err)
		require.ErrorContains(t, <-r.failed, "the router ended by itself")
		require.NoError(t, r.close())
	}
}
