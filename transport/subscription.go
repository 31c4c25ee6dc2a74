package transport

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
)

// ErrSubscribed is the error of a second Subscribe to a topic of one group
// while the first goes on.
var ErrSubscribed = errors.New("already subscribed")

// ErrClosed is the error of a call to something that was closed.
var ErrClosed = errors.New("closed")

// subscription is one Subscribe: the frames of one topic.
type subscription struct {
	*Stream // its feeds come under g.mu and only while it is not stopping
	g       *Group
	topic   string
}

// finish ends a subscription that was stopped, in order.
func (s *subscription) finish() {
	// Who saw it open under g.mu has added its feed when this returns: none comes to
	// send on a closed channel.
	s.g.mu.Lock()
	s.g.mu.Unlock() //nolint:staticcheck // a barrier
	s.g.cl.PauseFetchTopics(s.topic)
	s.End(s.g.gc.CloseTimeout, s.g.failed, s.g.gc.Limit.Done())
	s.g.drop(s)
	close(s.Done)
}

// subscriber is one message.Subscriber face of a group. A router closes its
// handlers' subscribers, so each face ends its own subscriptions only.
type subscriber struct {
	g *Group

	mu     sync.Mutex
	closed bool            // guarded by mu
	all    []*subscription // guarded by mu
}

// Subscriber returns a face of g: Subscribe(ctx, topic) delivers the frames of
// one topic, and Close ends the subscriptions of this face, not the group. The
// channel is closed as soon as nothing more is handed out, when ctx ends or
// Close is called; the frames in flight then have CloseTimeout to be
// acknowledged before their contexts end. May be used concurrently.
func (g *Group) Subscriber() message.Subscriber { return &subscriber{g: g} }

func (s *subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, fmt.Errorf("subscribe %s: subscriber %w", topic, ErrClosed)
	}
	s.mu.Unlock()
	sub, err := s.g.subscribe(ctx, topic)
	if err != nil {
		return nil, fmt.Errorf("subscribe %s: %w", topic, err)
	}
	s.mu.Lock()
	s.all = append(s.all, sub)
	closed := s.closed
	s.mu.Unlock()
	if closed {
		sub.Stop()
	}
	return sub.Out, nil
}

// Close returns when the subscriptions have ended.
func (s *subscriber) Close() error {
	s.mu.Lock()
	s.closed = true
	all := s.all
	s.mu.Unlock()
	for _, sub := range all {
		sub.Stop()
	}
	for _, sub := range all {
		<-sub.Done
	}
	return nil
}
