package kafka

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
	"golang.org/x/sync/semaphore"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/sinks/internal/fanout"
	"github.com/seed-86dfc502/weir/transport"
)

// Headers of every record. One of a traced change has W3C trace context beside them.
const (
	ServiceHeader = "weir-service"
	VersionHeader = "weir-version"
	KeyHeader     = "weir-key"
	OpHeader      = "weir-op"
)

const (
	defaultConcurrency     = 64
	defaultMaxMessageBytes = 1 << 20

	// changesPerLane makes batches large enough to keep all goroutines busy.
	changesPerLane = 16
	maxBytes       = 16 << 20
	// recordOverhead is more than what framing and the publisher's own headers
	// add to a record, in bytes.
	recordOverhead = 256
)

// Options configure a sink. Zero values mean the defaults.
type Options struct {
	// Publisher publishes to Kafka: one record per message, its key in
	// transport.KeyMetadata, a null value where transport.NullMetadata says so,
	// all other metadata as headers; it returns when the record is acknowledged
	// by all in-sync replicas. It must allow concurrent calls. The sink does not
	// close it. Required.
	Publisher message.Publisher

	// Topic is the topic's name. Required.
	Topic string

	// Tombstones publishes a retraction as a null value. Defaults to false: a
	// record with op retract.
	Tombstones bool

	// Concurrency is the most records in flight. Defaults to 64.
	Concurrency int

	// MaxMessageBytes refuses larger records before they are sent, and must not
	// be more than the publisher takes. Defaults to 1 MiB.
	MaxMessageBytes int

	// Check is called by Open and tells whether the topic can be written to.
	// Defaults to none: a wrong topic shows at the first change.
	Check func(ctx context.Context) error
}

// Sink publishes changes. It implements sinks.Sink.
type Sink struct {
	opts     Options
	inFlight *semaphore.Weighted // Concurrency in all; a record that is alone takes all

	mu      sync.Mutex
	pending map[string]chan struct{} // by entity, closed when its record is no longer on its way
}

var _ sinks.Sink = (*Sink)(nil)

// New checks the options. Its errors name the option.
func New(opts Options) (*Sink, error) {
	if opts.Concurrency == 0 {
		opts.Concurrency = defaultConcurrency
	}
	if opts.MaxMessageBytes == 0 {
		opts.MaxMessageBytes = defaultMaxMessageBytes
	}
	switch {
	case opts.Publisher == nil:
		return nil, errors.New("publisher: must be set")
	case opts.Topic == "":
		return nil, errors.New("topic: must be set")
	case opts.Concurrency < 0:
		return nil, fmt.Errorf("concurrency: must be positive, not %d", opts.Concurrency)
	case opts.MaxMessageBytes < 0:
		return nil, fmt.Errorf("max_message_bytes: must be positive, not %d", opts.MaxMessageBytes)
	}
	return &Sink{
		opts:     opts,
		inFlight: semaphore.NewWeighted(int64(opts.Concurrency)),
		pending:  map[string]chan struct{}{},
	}, nil
}

// Open calls Options.Check.
func (s *Sink) Open(ctx context.Context) error {
	if s.opts.Check == nil {
		return nil
	}
	if err := s.opts.Check(ctx); err != nil {
		e := classify(err)
		e.Op, e.Ambiguous = "open", false
		return e
	}
	return nil
}

// Traits implements sinks.Sink.
func (s *Sink) Traits() sinks.Traits {
	return sinks.Traits{Kind: sinks.Log, MaxBatch: s.opts.Concurrency * changesPerLane, MaxBytes: maxBytes}
}

// Close does nothing: the publisher is its owner's.
func (s *Sink) Close() error { return nil }

// Write publishes the changes and returns when all are acknowledged, or soon
// after ctx is cancelled.
func (s *Sink) Write(ctx context.Context, changes []change.Change) error {
	failed := fanout.Each(ctx, changes, s.opts.Concurrency, func(ctx context.Context, i int) (*sinks.Error, bool) {
		e := s.publish(ctx, &changes[i])
		return e, e != nil && e.Class != sinks.Reject
	})
	return fanout.Result(failed, len(changes))
}

// publish sends one change; nil is success.
func (s *Sink) publish(ctx context.Context, c *change.Change) *sinks.Error {
	msg := s.message(c)
	if n := size(msg); n > s.opts.MaxMessageBytes {
		return &sinks.Error{Class: sinks.Reject, Op: "publish",
			Err: fmt.Errorf("a record of %d bytes is larger than max_message_bytes, %d", n, s.opts.MaxMessageBytes)}
	}
	e := s.attempt(ctx, c.Entity, msg, 1)
	if e != nil && e.Class == sinks.Reject && s.opts.Concurrency > 1 {
		// It may be another record of the same request that was meant.
		e = s.attempt(ctx, c.Entity, s.message(c), int64(s.opts.Concurrency))
	}
	return e
}

// attempt publishes a message once, with so many shares of what may be in
// flight, after an earlier one of the entity that a Write left behind.
func (s *Sink) attempt(ctx context.Context, entity string, msg *message.Message, shares int64) *sinks.Error {
	ended, err := s.turn(ctx, entity)
	if err == nil {
		if err = s.inFlight.Acquire(ctx, shares); err != nil {
			s.end(entity, ended)
		}
	}
	if err != nil {
		return &sinks.Error{Class: sinks.Retry, Op: "publish", Err: err}
	}
	result := make(chan error, 1)
	go func() {
		err := s.opts.Publisher.Publish(s.opts.Topic, msg)
		s.inFlight.Release(shares)
		s.end(entity, ended)
		result <- err
	}()
	select {
	case err := <-result:
		if err != nil {
			return classify(err)
		}
		return nil
	case <-ctx.Done():
		return &sinks.Error{Class: sinks.Retry, Ambiguous: true, Op: "publish", Err: context.Cause(ctx)}
	}
}

// turn waits until nothing of the entity is on its way and takes its place.
func (s *Sink) turn(ctx context.Context, entity string) (ended chan struct{}, err error) {
	for {
		s.mu.Lock()
		before, busy := s.pending[entity]
		if !busy {
			ended = make(chan struct{})
			s.pending[entity] = ended
			s.mu.Unlock()
			return ended, nil
		}
		s.mu.Unlock()
		select {
		case <-before:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (s *Sink) end(entity string, ended chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pending, entity)
	close(ended)
}

// message makes a change's record.
func (s *Sink) message(c *change.Change) *message.Message {
	msg := message.NewMessage(c.Key, nil)
	msg.Metadata = message.Metadata{
		transport.KeyMetadata: c.Entity,
		ServiceHeader:         c.Service,
		VersionHeader:         strconv.FormatUint(uint64(c.Version), 10),
		KeyHeader:             c.Key,
		OpHeader:              string(c.Op),
	}
	if t := c.Trace; t != nil {
		msg.Metadata[change.TraceParentHeader] = t.Parent
		if t.State != "" {
			msg.Metadata[change.TraceStateHeader] = t.State
		}
	}
	if s.opts.Tombstones && c.Op == change.Retract {
		msg.Metadata[transport.NullMetadata] = "1"
		return msg
	}
	msg.Payload = c.AppendRecord(make([]byte, 0, len(c.Doc)+len(c.Entity)+len(c.Service)+128))
	return msg
}

// size is an upper bound of a record's size on the wire, in bytes.
func size(msg *message.Message) int {
	n := len(msg.Payload) + recordOverhead
	for k, v := range msg.Metadata {
		n += len(k) + len(v) + 10
	}
	return n
}
