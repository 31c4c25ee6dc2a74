package transport

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// ErrSubscribed is the error of a second Subscribe.
var ErrSubscribed = errors.New("already subscribed")

// ErrClosed is the error of a call to something that was closed.
var ErrClosed = errors.New("closed")

// Subscription is the only subscription of a reader: the channel of its frames, and its end. Each
// partition has a [Lane] into it. It implements message.Subscriber. Its methods may be called
// concurrently.
//
// It stops by Close, Fail, or the end of Subscribe's context: nothing more is handed out,
// and the channel is closed. Frames in flight then have CloseTimeout, or until Limit, to be
// acknowledged before their contexts end.
type Subscription struct {
	gc     *GroupConfig
	begin  func()
	failed chan struct{} // closed by Fail
	done   chan struct{} // closed when all lanes have left

	// Set by Subscribe, before begin.
	out            chan *message.Message
	ctx, stopping  context.Context // of the messages, which have a grace after stopping
	halt, stop     context.CancelFunc
	senders, lanes sync.WaitGroup

	mu       sync.Mutex
	begun    bool  // guarded by mu
	closed   bool  // guarded by mu
	finished bool  // guarded by mu; no lane joins any more
	err      error // guarded by mu
}

// NewSubscription returns a subscription with the topic and the times of gc. begin is called by
// Subscribe. It must not block.
func NewSubscription(gc *GroupConfig, begin func()) *Subscription {
	gc.setBackOff()
	return &Subscription{gc: gc, begin: begin, failed: make(chan struct{}), done: make(chan struct{})}
}

// Subscriber returns the subscription as a router takes it: its Close ends the
// subscription, not the reader.
func (s *Subscription) Subscriber() message.Subscriber { return s }

// Subscribe begins the subscription. The messages have the values of ctx.
func (s *Subscription) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	s.mu.Lock()
	err := s.err
	switch {
	case err != nil:
	case topic != s.gc.Topic:
		err = errors.New("the subscription is to " + s.gc.Topic)
	case s.closed:
		err = ErrClosed
	case s.begun:
		err = ErrSubscribed
	default:
		s.begun = true
		s.out = make(chan *message.Message)
		s.ctx, s.halt = context.WithCancel(context.WithoutCancel(ctx))
		s.stopping, s.stop = context.WithCancel(ctx)
	}
	s.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("subscribe %s: %w", topic, err)
	}
	s.begin()
	context.AfterFunc(s.stopping, s.finish)
	return s.out, nil
}

// finish ends a subscription that stopped, in order.
func (s *Subscription) finish() {
	s.mu.Lock()
	s.finished = true
	s.mu.Unlock()
	s.senders.Wait()
	close(s.out)
	drained := make(chan struct{})
	go func() { s.lanes.Wait(); close(drained) }()
	timer := time.NewTimer(s.gc.CloseTimeout)
	defer timer.Stop()
	select {
	case <-drained:
	case <-timer.C:
	case <-s.failed:
	case <-s.gc.Limit.Done():
	}
	s.halt()
	<-drained
	close(s.done)
}

// Close ends the subscription and returns when it has ended. It may be called twice.
func (s *Subscription) Close() error {
	s.mu.Lock()
	s.closed = true
	begun := s.begun
	s.mu.Unlock()
	if begun {
		s.stop()
		<-s.done
	}
	return nil
}

// Err returns why the subscription failed. It is nil while it runs and after Close.
func (s *Subscription) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Failed is closed when the subscription ended with an error, which Err returns.
func (s *Subscription) Failed() <-chan struct{} { return s.failed }

// Fail ends the subscription with an error, and reports whether it did: not after
// another one, nor after Close.
func (s *Subscription) Fail(err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil || s.closed {
		return false
	}
	s.err = err
	close(s.failed)
	if s.begun {
		s.stop()
	}
	return true
}

// Context is the context of the messages. It ends after the grace.
func (s *Subscription) Context() context.Context { return s.ctx }

// Stopping ends when nothing more is handed out.
func (s *Subscription) Stopping() context.Context { return s.stopping }

// Lane hands the frames of one partition to a subscription. It belongs to one goroutine.
type Lane struct {
	*Subscription
	sending bool
}

// Join adds a lane, which must Leave, or false when the subscription has ended.
func (s *Subscription) Join() (*Lane, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.finished {
		return nil, false
	}
	s.senders.Add(1)
	s.lanes.Add(1)
	return &Lane{s, true}, true
}

// StopSending ends the hand-out. The subscription's channel is closed after all lanes did.
func (l *Lane) StopSending() {
	if l.sending {
		l.sending = false
		l.senders.Done()
	}
}

// Leave removes the lane: none of its messages is in flight.
func (l *Lane) Leave() {
	l.StopSending()
	l.lanes.Done()
}

// HandOut hands f out until it is acknowledged, and reports whether it was: not when the
// subscription stops, or ctx ends, which is the parent of the messages' contexts.
func (l *Lane) HandOut(ctx context.Context, f *Frame) (acked bool) {
	for nacks := 0; l.sending; nacks++ {
		if nacks > 0 {
			f = f.Redelivered()
			select {
			case <-time.After(l.gc.backOff(nacks - 1)):
			case <-l.stopping.Done():
				return false
			case <-ctx.Done():
				return false
			}
		}
		ctx, cancel := context.WithCancel(ctx)
		m := NewMessage(ctx, f)
		select {
		case l.out <- m:
			acked = l.answer(ctx, m)
		case <-l.stopping.Done():
			l.StopSending()
		case <-ctx.Done():
		}
		ended := ctx.Err() != nil
		cancel()
		if acked || ended {
			return acked
		}
	}
	return false
}

// answer waits for the answer to a message.
func (l *Lane) answer(ctx context.Context, m *message.Message) (acked bool) {
	stopping := l.stopping.Done()
	for {
		select {
		case <-m.Acked():
			return true
		case <-m.Nacked():
			return false
		case <-stopping:
			l.StopSending()
			stopping = nil
		case <-ctx.Done():
			return isAcked(m)
		}
	}
}

// isAcked reports whether a message is acknowledged by now, also when its context ended at
// the same time.
func isAcked(m *message.Message) bool {
	select {
	case <-m.Acked():
		return true
	default:
		return false
	}
}
