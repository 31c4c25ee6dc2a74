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

// view is one Subscribe: the messages of one topic.
type view struct {
	g     *Group
	topic string
	ctx   context.Context // of the messages; ended by finish
	halt  context.CancelFunc
	out   chan *message.Message

	stopOnce sync.Once
	stopping chan struct{} // closed: nothing more is handed out
	done     chan struct{} // closed: no message of it is followed any more

	// senders and runs grow under g.mu and only while stopping is open.
	senders sync.WaitGroup // runs that may still send on out
	runs    sync.WaitGroup // runs that still follow messages
}

func (v *view) stop() { v.stopOnce.Do(func() { close(v.stopping) }) }

func (v *view) stopped() bool {
	select {
	case <-v.stopping:
		return true
	default:
		return false
	}
}

// finish ends the view in order: no more hand-out, channel closed, grace for
// what is in flight, contexts cancelled.
func (v *view) finish(grace time.Duration) {
	<-v.stopping
	// Who saw it open under g.mu has added its run when this returns: none comes
	// to send on a closed channel.
	v.g.mu.Lock()
	v.g.mu.Unlock() //nolint:staticcheck // a barrier
	v.g.pauseTopic(v.topic)
	v.senders.Wait()
	close(v.out)

	drained := make(chan struct{})
	go func() { v.runs.Wait(); close(drained) }()
	timer := time.NewTimer(grace)
	select {
	case <-drained:
	case <-timer.C:
	case <-v.g.failed:
	case <-v.g.gc.Limit.Done():
	}
	timer.Stop()
	v.halt()
	<-drained
	v.g.forget(v)
	close(v.done)
}

// subscriber is one message.Subscriber face of a group. A router closes its
// handlers' subscribers, so each face ends its own views only.
type subscriber struct {
	g *Group

	mu     sync.Mutex
	closed bool    // guarded by mu
	views  []*view // guarded by mu
}

// Subscriber gives a face of g: Subscribe(ctx, topic) is a view of one topic,
// and Close ends the views of this face, not the group. The channel of a view
// is closed as soon as nothing more is handed out, when ctx ends or Close is
// called; messages in flight then have CloseTimeout to be acknowledged before
// their contexts end. May be used concurrently.
func (g *Group) Subscriber() message.Subscriber { return &subscriber{g: g} }

func (s *subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, fmt.Errorf("subscribe %s: subscriber %w", topic, ErrClosed)
	}
	s.mu.Unlock()
	v, err := s.g.subscribe(ctx, topic)
	if err != nil {
		return nil, fmt.Errorf("subscribe %s: %w", topic, err)
	}
	s.mu.Lock()
	s.views = append(s.views, v)
	closed := s.closed
	s.mu.Unlock()
	if closed {
		v.stop()
	}
	return v.out, nil
}

// Close returns when the views have ended.
func (s *subscriber) Close() error {
	s.mu.Lock()
	s.closed = true
	views := s.views
	s.mu.Unlock()
	for _, v := range views {
		v.stop()
	}
	for _, v := range views {
		<-v.done
	}
	return nil
}
