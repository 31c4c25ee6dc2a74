package transport

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// ErrSubscribed is the error of a second Subscribe to a topic of one group
// while the first goes on.
var ErrSubscribed = errors.New("already subscribed")

// ErrClosed is the error of a call to something that was closed.
var ErrClosed = errors.New("closed")

// subscription is one Subscribe: the frames of one topic.
type subscription struct {
	g     *Group
	topic string
	ctx   context.Context // of the messages; ended by finish
	halt  context.CancelFunc
	out   chan *message.Message

	stopOnce sync.Once
	stopping chan struct{} // closed: nothing more is handed out
	done     chan struct{} // closed: no message of it is followed any more

	// senders and dispatchers grow under g.mu and only while stopping is open.
	senders     sync.WaitGroup // dispatchers that may still send on out
	dispatchers sync.WaitGroup // dispatchers that still follow a message
}

func (s *subscription) stop() { s.stopOnce.Do(func() { close(s.stopping) }) }

func (s *subscription) stopped() bool {
	select {
	case <-s.stopping:
		return true
	default:
		return false
	}
}

// finish ends the subscription in order: no more hand-out, channel closed,
// grace for what is in flight, contexts cancelled.
func (s *subscription) finish(grace time.Duration) {
	<-s.stopping
	// Who saw it open under g.mu has added its dispatcher when this returns: none
	// comes to send on a closed channel.
	s.g.mu.Lock()
	s.g.mu.Unlock() //nolint:staticcheck // a barrier
	s.g.cl.PauseFetchTopics(s.topic)
	s.senders.Wait()
	close(s.out)

	drained := make(chan struct{})
	go func() { s.dispatchers.Wait(); close(drained) }()
	timer := time.NewTimer(grace)
	select {
	case <-drained:
	case <-timer.C:
	case <-s.g.failed:
	case <-s.g.gc.Limit.Done():
	}
	timer.Stop()
	s.halt()
	<-drained
	s.g.drop(s)
	close(s.done)
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
		sub.stop()
	}
	return sub.out, nil
}

// Close returns when the subscriptions have ended.
func (s *subscriber) Close() error {
	s.mu.Lock()
	s.closed = true
	all := s.all
	s.mu.Unlock()
	for _, sub := range all {
		sub.stop()
	}
	for _, sub := range all {
		<-sub.done
	}
	return nil
}
