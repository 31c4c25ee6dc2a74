package kafka

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/ThreeDotsLabs/watermill/message"

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

	maxBytes = 16 << 20
	// recordOverhead is more than what framing and the publisher's own headers
	// add to a record, in bytes.
	recordOverhead = 256
)

// Options configure a sink. Zero values mean the defaults.
type Options struct {
	// Publisher publishes to Kafka: one record per message, its key in
	// transport.KeyMetadata, a null value where transport.NullMetadata says so,
	// all other metadata as headers; it returns when the records are acknowledged
	// by all in-sync replicas. If it does not say with a transport.AppendError
	// which ones failed, all of a call are taken to have. It must allow concurrent
	// calls. The sink does not close it. Required.
	Publisher message.Publisher

	// Release is called by the first Close: the sink needs its publisher no more.
	// Defaults to none.
	Release func() error

	// Topic is the topic's name. Required.
	Topic string

	// Tombstones publishes a retraction as a null value. Defaults to false: a
	// record with op retract.
	Tombstones bool

	// Concurrency is the most records in flight, and in one Write. Defaults to 64.
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
	opts Options
	// turn is held, when full, by the one call of the publisher that is under way.
	turn chan struct{}
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
	return &Sink{opts: opts, turn: make(chan struct{}, 1)}, nil
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
	return sinks.Traits{Kind: sinks.Log, MaxBatch: s.opts.Concurrency, MaxBytes: maxBytes}
}

// Close calls Options.Release: the publisher is its owner's.
func (s *Sink) Close() error {
	release := s.opts.Release
	s.opts.Release = nil
	if release == nil {
		return nil
	}
	return release()
}

// Write publishes the changes and returns when all are acknowledged, or soon
// after ctx is cancelled.
func (s *Sink) Write(ctx context.Context, changes []change.Change) error {
	failed := fanout.Rounds(ctx, changes, s.opts.Concurrency, func(ctx context.Context, batch []int) map[int]*sinks.Error {
		return s.publish(ctx, changes, batch)
	})
	return fanout.Result(failed, len(changes))
}

// publish sends the changes of a batch, which are of different entities, and
// gives the failures by their indexes in changes.
func (s *Sink) publish(ctx context.Context, changes []change.Change, batch []int) map[int]*sinks.Error {
	failed := map[int]*sinks.Error{}
	fit := make([]int, 0, len(batch))
	msgs := make([]*message.Message, 0, len(batch))
	for _, i := range batch {
		msg := s.message(&changes[i])
		if n := size(msg); n > s.opts.MaxMessageBytes {
			failed[i] = &sinks.Error{Class: sinks.Reject, Op: "publish",
				Err: fmt.Errorf("a record of %d bytes is larger than max_message_bytes, %d", n, s.opts.MaxMessageBytes)}
			continue
		}
		fit, msgs = append(fit, i), append(msgs, msg)
	}
	first := s.attempt(ctx, msgs...)
	for n, i := range fit {
		e := first[n]
		if e != nil && e.Class == sinks.Reject && len(msgs) > 1 {
			// It may be another record of the same request that was meant.
			e = s.attempt(ctx, s.message(&changes[i]))[0]
		}
		if e != nil {
			failed[i] = e
		}
	}
	return failed
}

// attempt publishes messages in one call, after one that an earlier Write left
// behind, and gives the failures by index.
func (s *Sink) attempt(ctx context.Context, msgs ...*message.Message) map[int]*sinks.Error {
	if len(msgs) == 0 {
		return nil
	}
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return all(len(msgs), &sinks.Error{Class: sinks.Retry, Op: "publish", Err: context.Cause(ctx)})
	}
	result := make(chan error, 1)
	go func() {
		err := s.opts.Publisher.Publish(s.opts.Topic, msgs...)
		<-s.turn
		result <- err
	}()
	select {
	case err := <-result:
		return failures(len(msgs), err)
	case <-ctx.Done():
	}
	select {
	case err := <-result: // what is known is told
		return failures(len(msgs), err)
	default:
		return all(len(msgs), &sinks.Error{Class: sinks.Retry, Ambiguous: true, Op: "publish", Err: context.Cause(ctx)})
	}
}

// failures gives what became of each message of a call: what the publisher
// says, or, if it does not tell them apart, the same for all.
func failures(n int, err error) map[int]*sinks.Error {
	if err == nil {
		return nil
	}
	var each *transport.AppendError
	if !errors.As(err, &each) {
		return all(n, classify(err))
	}
	failed := make(map[int]*sinks.Error, len(each.Failed))
	for i, err := range each.Failed {
		failed[i] = classify(err)
	}
	return failed
}

func all(n int, e *sinks.Error) map[int]*sinks.Error {
	failed := make(map[int]*sinks.Error, n)
	for i := range n {
		failed[i] = e
	}
	return failed
}

// message makes a change's record.
func (s *Sink) message(c *change.Change) *message.Message {
	msg := message.NewMessage(c.Key, nil)
	msg.Metadata[transport.KeyMetadata] = c.Entity
	msg.Metadata[ServiceHeader] = c.Service
	msg.Metadata[VersionHeader] = strconv.FormatUint(uint64(c.Version), 10)
	msg.Metadata[KeyHeader] = c.Key
	msg.Metadata[OpHeader] = string(c.Op)
	c.Trace.AddTo(msg.Metadata)
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
