package transport

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
)

// ErrSubscribed is the error of a second Subscribe to a group during the first.
var ErrSubscribed = errors.New("already subscribed")

// ErrClosed is the error of a call to something that was closed.
var ErrClosed = errors.New("closed")

// Subscriptions are what groups have in common: their subscriptions, one after another, and
// why there are no more. Its methods may be called concurrently.
type Subscriptions struct {
	topic  string
	begin  func(*Stream)
	failed chan struct{} // closed by Fail

	mu     sync.Mutex
	stream *Stream // guarded by mu; the newest, which may have ended
	closed bool    // guarded by mu
	err    error   // guarded by mu
}

// NewSubscriptions returns one of a topic. begin takes over each stream, and closes its Done
// when it was stopped and has ended. It must not block, nor call the Subscriptions.
func NewSubscriptions(topic string, begin func(*Stream)) *Subscriptions {
	return &Subscriptions{topic: topic, begin: begin, failed: make(chan struct{})}
}

// Err returns why the subscription ended by itself; nil while it lasts and after Close.
func (r *Subscriptions) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Failed is closed when the subscription ended with an error, which Err returns.
func (r *Subscriptions) Failed() <-chan struct{} { return r.failed }

// Fail ends the subscription with an error, and reports whether it did: not after
// another one, nor after Close.
func (r *Subscriptions) Fail(err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil || r.closed {
		return false
	}
	r.err = err
	close(r.failed)
	if r.stream != nil {
		r.stream.Stop()
	}
	return true
}

// Close ends the subscription and returns when it has ended. It may be called twice.
func (r *Subscriptions) Close() error {
	r.mu.Lock()
	r.closed = true
	s := r.stream
	r.mu.Unlock()
	s.end()
	return nil
}

// end stops a stream, if there is one, and waits for its end.
func (s *Stream) end() {
	if s != nil {
		s.Stop()
		<-s.Done
	}
}

func (r *Subscriptions) subscribe(ctx context.Context) (*Stream, error) {
	for {
		r.mu.Lock()
		old, err := r.stream, r.err
		if err == nil && r.closed {
			err = fmt.Errorf("consumer group %w", ErrClosed)
		}
		if err == nil && old == nil {
			r.stream = NewStream(ctx)
			r.begin(r.stream)
			defer r.mu.Unlock()
			return r.stream, nil
		}
		r.mu.Unlock()
		switch {
		case err != nil:
			return nil, err
		case !old.Stopped():
			return nil, ErrSubscribed
		}
		select { // it still follows its last messages
		case <-old.Done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		r.mu.Lock()
		if r.stream == old {
			r.stream = nil
		}
		r.mu.Unlock()
	}
}

// subscriber is one message.Subscriber face of a group. A router closes its
// handlers' subscribers, so each face ends its own subscriptions only.
type subscriber struct {
	r *Subscriptions

	mu     sync.Mutex
	closed bool    // guarded by mu
	stream *Stream // guarded by mu; the newest
}

// Subscriber returns a face of the group: Subscribe(ctx, topic) delivers the frames of
// its topic, and Close ends the subscription of this face, not the group. The
// channel is closed as soon as nothing more is handed out, when ctx ends or
// Close is called; the frames in flight then have CloseTimeout to be
// acknowledged before their contexts end. May be used concurrently.
func (r *Subscriptions) Subscriber() message.Subscriber { return &subscriber{r: r} }

func (s *subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("subscribe %s: subscriber %w", topic, ErrClosed)
	}
	if topic != s.r.topic {
		return nil, fmt.Errorf("subscribe %s: the group is for %s", topic, s.r.topic)
	}
	stream, err := s.r.subscribe(ctx)
	if err != nil {
		return nil, fmt.Errorf("subscribe %s: %w", topic, err)
	}
	s.stream = stream
	return stream.Out, nil
}

// Close returns when the subscription has ended.
func (s *subscriber) Close() error {
	s.mu.Lock()
	s.closed = true
	stream := s.stream
	s.mu.Unlock()
	stream.end()
	return nil
}
