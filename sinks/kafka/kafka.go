package kafka

import (
	"context"
	"errors"
	"fmt"
	"strconv"

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
	// recordOverhead is more than what framing adds to a record, in bytes.
	recordOverhead = 256
)

// Options configure a sink. Zero values mean the defaults.
type Options struct {
	// Producer appends to Kafka. If it does not say with a transport.AppendError
	// which records failed, all of a call are taken to have. It must allow concurrent
	// calls. The sink does not close it. Required.
	Producer transport.Appender

	// Release is called by the first Close: the sink needs its producer no more.
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
	// be more than the producer takes. Defaults to 1 MiB.
	MaxMessageBytes int

	// Check is called by Open and reports whether the topic can be written to.
	// Defaults to none: a wrong topic shows at the first change.
	Check func(ctx context.Context) error
}

// Sink publishes changes. It implements sinks.Sink.
type Sink struct {
	opts Options
	// turn is held, when full, by the one call of the producer that is under way.
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
	case opts.Producer == nil:
		return nil, errors.New("producer: must be set")
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

// Close calls Options.Release: the producer is its owner's.
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
	records := make([]transport.Record, 0, len(batch))
	for _, i := range batch {
		record := s.record(&changes[i])
		if n := size(&record); n > s.opts.MaxMessageBytes {
			failed[i] = &sinks.Error{Class: sinks.Reject, Op: "publish",
				Err: fmt.Errorf("a record of %d bytes is larger than max_message_bytes, %d", n, s.opts.MaxMessageBytes)}
			continue
		}
		fit, records = append(fit, i), append(records, record)
	}
	first := s.attempt(ctx, records)
	for n, i := range fit {
		e := first[n]
		if e != nil && e.Class == sinks.Reject && len(records) > 1 {
			// It may be another record of the same request that was meant.
			e = s.attempt(ctx, records[n:n+1])[0]
		}
		if e != nil {
			failed[i] = e
		}
	}
	return failed
}

// attempt appends records in one call, after one that an earlier Write left
// behind, and returns the failures by index.
func (s *Sink) attempt(ctx context.Context, records []transport.Record) map[int]*sinks.Error {
	if len(records) == 0 {
		return nil
	}
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return all(len(records), &sinks.Error{Class: sinks.Retry, Op: "publish", Err: context.Cause(ctx)})
	}
	result := make(chan error, 1)
	go func() {
		// A call that its caller no longer waits for goes on: see the package.
		err := s.opts.Producer.Append(context.WithoutCancel(ctx), records)
		<-s.turn
		result <- err
	}()
	select {
	case err := <-result:
		return failures(len(records), err)
	case <-ctx.Done():
	}
	select {
	case err := <-result: // what is known is told
		return failures(len(records), err)
	default:
		return all(len(records), &sinks.Error{Class: sinks.Retry, Ambiguous: true, Op: "publish", Err: context.Cause(ctx)})
	}
}

// failures returns what became of each record of a call: what the producer
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

// record makes a change's record.
func (s *Sink) record(c *change.Change) transport.Record {
	r := transport.Record{Topic: s.opts.Topic, Key: []byte(c.Entity), Headers: make([]transport.Header, 0, 6)}
	r.Headers = append(r.Headers,
		transport.Header{Key: ServiceHeader, Value: []byte(c.Service)},
		transport.Header{Key: VersionHeader, Value: strconv.AppendUint(nil, uint64(c.Version), 10)},
		transport.Header{Key: KeyHeader, Value: []byte(c.Key)},
		transport.Header{Key: OpHeader, Value: []byte(c.Op)})
	r.Headers = transport.WithTrace(r.Headers, c.Trace)
	if !s.opts.Tombstones || c.Op != change.Retract {
		r.Value = c.AppendRecord(make([]byte, 0, len(c.Doc)+len(c.Entity)+len(c.Service)+128))
	}
	return r
}

// size is an upper bound of a record's size on the wire, in bytes.
func size(r *transport.Record) int {
	n := len(r.Key) + len(r.Value) + recordOverhead
	for _, h := range r.Headers {
		n += len(h.Key) + len(h.Value) + 10
	}
	return n
}
