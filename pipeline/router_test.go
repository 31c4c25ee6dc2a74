package pipeline

import (
	"context"
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/seed-86dfc502/weir/deliver"
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
		r, err := p.decide.startRouter("decide", []route{{name: "decide", topic: "t", subscriber: endedSubscriber{}, handle: func(*message.Message) error { return nil }}})
		require.NoError(t, err)
		require.ErrorContains(t, <-r.failed, "the router ended by itself")
		require.NoError(t, r.close())
	}
}

type failedGroup struct{ err error }

func (g failedGroup) Err() error { return g.err }

// Whichever of them was seen first: a stage that is to start again says so, and a group why.
func TestAllThatEndedAStageIsNamed(t *testing.T) {
	router, group := errors.New("the router ended by itself"), errors.New("the group was fenced")
	stage := make(chan error, 1)
	require.EqualError(t, causes(router, stage, failedGroup{}), router.Error())
	require.NoError(t, causes(nil, stage, failedGroup{}))
	stage <- deliver.ErrLost
	err := causes(router, stage, failedGroup{group})
	for _, each := range []error{router, group, deliver.ErrLost} {
		require.ErrorIs(t, err, each)
	}
}
