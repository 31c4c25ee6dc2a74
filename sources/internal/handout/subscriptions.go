package handout

import (
	"context"
	"errors"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Subscriptions are the subscriptions of a source, each with a goroutine that reads. The zero value is ready.
// Its methods may be called concurrently.
type Subscriptions struct {
	mu     sync.Mutex
	stop   []context.CancelFunc // guarded by mu
	closed bool                 // guarded by mu
	wg     sync.WaitGroup
}

// Open runs read, which hands out messages until its context ends: with ctx, or by Close. The
// channel is closed when read returns.
func (s *Subscriptions) Open(ctx context.Context, read func(context.Context, chan<- *message.Message)) (<-chan *message.Message, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.New("the source is closed")
	}
	ctx, cancel := context.WithCancel(ctx)
	s.stop = append(s.stop, cancel)
	out := make(chan *message.Message)
	s.wg.Go(func() {
		defer close(out)
		defer cancel()
		read(ctx, out)
	})
	return out, nil
}

// Close ends all of them and waits until they have returned.
func (s *Subscriptions) Close() {
	s.mu.Lock()
	s.closed = true
	for _, stop := range s.stop {
		stop()
	}
	s.mu.Unlock()
	s.wg.Wait()
}
