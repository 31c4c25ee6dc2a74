package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/defaults"
	"github.com/seed-86dfc502/weir/internal/reason"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/sinks/internal/fanout"
	"github.com/seed-86dfc502/weir/sinks/kafka/fenced"
)

// Headers of every record. One of a traced change has W3C trace context beside them.
const (
	ServiceHeader = "weir-service"
	VersionHeader = "weir-version"
	KeyHeader     = "weir-key"
	OpHeader      = "weir-op"
	// PartitionHeader is the partition of the changes log that the change came by.
	PartitionHeader = "weir-partition"
	// PositionHeader is the position of a change resent by an operator or retry.redrive_after.
	// The position of any other change is its version.
	PositionHeader = "weir-position"
	// PipelineHeader is Options.Pipeline: keys and positions repeat in other pipelines.
	PipelineHeader = "weir-pipeline"
)

const (
	defaultMaxMessageBytes = 1 << 20

	maxBatch = 1000
	maxBytes = 16 << 20
	// maxBatchBytes bounds the records of one batch: topics take 1 MiB unless they say
	// another limit. A larger record goes alone.
	maxBatchBytes = 900_000
	// recordOverhead is more than a batch of one adds to an encoded record, in bytes.
	recordOverhead = 256

	defaultStallTimeout = 20 * time.Second
	// defaultMaxLeft bounds the records of a predecessor that are remembered of one
	// partition, maxRemembered the changes of all sinks of a client: some 64 MB. Each partition
	// may always remember minLeft of them.
	defaultMaxLeft = 1 << 16
	maxRemembered  = 1 << 20
	minLeft        = 1 << 10
)

// Options configure a sink. Zero values mean the defaults.
type Options struct {
	// Client reaches the cluster. The sink does not close it. Required.
	Client *fenced.Client

	// Try makes an attempt of that many changes, unless the cluster is down and another service
	// probes it. See sinks.Lease. Defaults to always making it.
	Try func(ctx context.Context, changes int, attempt func() error) error

	// Release is called by the first Close: the sink needs its client no more.
	// Defaults to none.
	Release func() error

	// Topic is the topic's name, Service the service's. Required.
	Topic, Service string

	// Pipeline tells two pipelines apart that have services of one name and write to
	// one topic. Every process of a pipeline has the same.
	Pipeline string

	// Tombstones publishes a retraction as a null value. Defaults to false: a
	// record with op retract.
	Tombstones bool

	// MaxMessageBytes refuses larger records before they are sent. Defaults to 1 MiB.
	MaxMessageBytes int

	// Logger gets missing permissions of the cluster. Defaults to slog.Default().
	Logger *slog.Logger

	// stallTimeout is how long an attempt to resume may make no progress; deliver
	// repeats it, from the beginning. Tests lower it.
	stallTimeout time.Duration

	// maxLeft and maxRemembered bound the records that are remembered of one partition, and of
	// all of the client. The rest is read later. Tests lower them.
	maxLeft, maxRemembered int
}

// Sink publishes changes. It implements sinks.Recoverer.
type Sink struct {
	opts    Options
	topic   *fenced.Topic
	parts   map[int32]*part
	found   uint64
	known   []int64 // ends of the topic before the running Write
	missing missingRights
}

var _ sinks.Recoverer = (*Sink)(nil)

// New checks the options. Its errors name the option.
func New(opts Options) (*Sink, error) {
	if opts.MaxMessageBytes == 0 {
		opts.MaxMessageBytes = defaultMaxMessageBytes
	}
	opts.stallTimeout = defaults.Positive(opts.stallTimeout, defaultStallTimeout)
	opts.maxLeft = defaults.Positive(opts.maxLeft, defaultMaxLeft)
	opts.maxRemembered = defaults.Positive(opts.maxRemembered, maxRemembered)
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	if opts.Try == nil {
		opts.Try = func(_ context.Context, _ int, attempt func() error) error { return attempt() }
	}
	switch {
	case opts.Client == nil:
		return nil, errors.New("client: must be set")
	case opts.Topic == "":
		return nil, errors.New("topic: must be set")
	case opts.Service == "":
		return nil, errors.New("service: must be set")
	case opts.MaxMessageBytes < 0:
		return nil, fmt.Errorf("max_message_bytes: must be positive, not %d", opts.MaxMessageBytes)
	}
	return &Sink{opts: opts, parts: map[int32]*part{}}, nil
}

// Open does nothing: faults show at the first change.
func (s *Sink) Open(context.Context) error { return nil }

// Traits implements sinks.Sink.
func (s *Sink) Traits() sinks.Traits {
	return sinks.Traits{Kind: sinks.Log, MaxBatch: maxBatch, MaxBytes: maxBytes}
}

// Close calls Options.Release: the client is its owner's.
func (s *Sink) Close() error {
	for _, p := range s.parts {
		s.remember(p, leftovers{})
	}
	release := s.opts.Release
	s.opts.Release = nil
	if release == nil {
		return nil
	}
	return release()
}

// Found implements sinks.Recoverer.
func (s *Sink) Found() uint64 { return s.found }

// stream is the sequence of records from one partition of the changes log into one partition of
// the topic.
type stream struct {
	part      *part
	partition int32 // of the topic
	items     []item
	// cuts are how many items the next batches have: more were refused together.
	cuts  []int
	batch *fenced.Batch
	size  int // items of batch
}

// item is a change whose record is these bytes of the encoder.
type item struct{ index, from, to int }

// Write publishes the changes and returns when all are acknowledged, or soon
// after ctx is cancelled.
func (s *Sink) Write(ctx context.Context, changes []change.Change) error {
	return s.opts.Try(ctx, len(changes), func() error { return s.write(ctx, changes) })
}

func (s *Sink) write(ctx context.Context, changes []change.Change) error {
	failed := map[int]*sinks.Error{}
	err := s.refreshTopic(ctx)
	all := err != nil // else those alone whose partition was not resumed
	if !all {
		err = s.resumeForWrite(ctx, changes)
		all = err != nil && ctx.Err() != nil
	}
	for i := range changes {
		if all || s.parts[changes[i].Partition].writer == nil {
			failed[i] = err
		}
	}
	e := encoders.Get().(*encoder)
	streams := s.buildStreams(e, changes, failed)
	if len(streams) > 0 {
		s.known = s.opts.Client.KnownEnds(s.topic, s.known[:0])
	}
	for len(streams) > 0 {
		streams = s.sendBatches(ctx, e, streams, failed)
	}
	e.release()
	s.advanceMarks(changes, failed)
	return fanout.Result(failed, len(changes))
}

// buildStreams groups the changes that are not in the topic yet and have not failed, and
// encodes their records.
func (s *Sink) buildStreams(e *encoder, changes []change.Change, failed map[int]*sinks.Error) []*stream {
	type route struct {
		from *part
		to   int32
	}
	by := map[route]*stream{}
	var all []*stream
	e.reserve(changes)
	for i := range changes {
		if failed[i] != nil {
			continue
		}
		c := &changes[i]
		p := s.parts[c.Partition]
		if p.contains(c) {
			s.found++
			continue
		}
		from := len(e.records)
		s.record(e, c)
		to := len(e.records)
		if n := to - from + recordOverhead; n > s.opts.MaxMessageBytes {
			e.records = e.records[:from]
			failed[i] = &sinks.Error{Class: sinks.Reject, Op: "publish",
				Err: fmt.Errorf("a record of %d bytes is larger than max_message_bytes, %d", n, s.opts.MaxMessageBytes)}
			continue
		}
		p.tried = max(p.tried, c.Position())
		w := route{p, s.topic.Partition(append(e.value[:0], c.Entity...))}
		st := by[w]
		if st == nil {
			st = &stream{part: p, partition: w.to}
			by[w] = st
			all = append(all, st)
		}
		st.items = append(st.items, item{i, from, to})
	}
	return all
}

// sendBatches sends the next batch of every stream and returns the streams that have more.
func (s *Sink) sendBatches(ctx context.Context, e *encoder, streams []*stream, failed map[int]*sinks.Error) []*stream {
	batches := make([]*fenced.Batch, len(streams))
	for i, st := range streams {
		batches[i] = st.next(e)
	}
	answers := s.opts.Client.Append(ctx, s.topic, batches)
	for i, st := range streams {
		s.handleAnswer(st, &answers[i], failed)
	}
	var rest []*stream
	for _, st := range streams {
		switch {
		case len(st.items) == 0:
		case st.part.writer == nil:
			st.fail(failed, len(st.items), &sinks.Error{Class: sinks.Retry, Op: "publish", Err: sinks.ErrNotAttempted})
		default:
			rest = append(rest, st)
		}
	}
	return rest
}

// next makes the next batch.
func (st *stream) next(e *encoder) *fenced.Batch {
	bytes := 0
	e.batch = e.batch[:0]
	for n, it := range st.items {
		if bytes += it.to - it.from + recordOverhead; n > 0 && (bytes > maxBatchBytes || len(st.cuts) > 0 && n == st.cuts[0]) {
			break
		}
		e.batch = append(e.batch, e.records[it.from:it.to])
	}
	st.size = len(e.batch)
	st.batch = st.part.writer.Batch(st.partition, e.batch)
	return st.batch
}

// handleAnswer notes the outcome of a stream's batch.
func (s *Sink) handleAnswer(st *stream, a *fenced.Answer, failed map[int]*sinks.Error) {
	n := st.size
	if a.Err == nil {
		if a.Offset >= 0 {
			st.part.acknowledge(s.known, st.partition, a.Offset+int64(n))
		}
		st.advance(n)
		return
	}
	if !a.Refused || fenced.Ended(a.Err) {
		// It may be in the topic, or arrive later: fencing and reading tell.
		st.part.writer = nil
		st.fail(failed, n, &sinks.Error{Class: sinks.Retry, Ambiguous: true, Op: "publish", Unreachable: unreachable(a.Err), Err: reason.Of(a.Err)})
		return
	}
	if st.part.writer != nil { // else another batch of the round had no answer
		st.part.writer.Unsend(st.batch)
	}
	e := classify(a.Err)
	e.Ambiguous = false
	switch {
	case e.Class == sinks.Reject && n > 1:
		// It may be refused for one of them: bisect.
		if len(st.cuts) > 0 {
			st.cuts[0] -= n // what of it is left
			if st.cuts[0] == 0 {
				st.cuts = st.cuts[1:]
			}
		}
		st.cuts = append([]int{n / 2, n - n/2}, st.cuts...)
	case e.Class == sinks.Reject:
		failed[st.items[0].index] = e
		st.advance(1)
	default:
		st.fail(failed, len(st.items), e)
	}
}

// advance drops the first n items, which have an outcome.
func (st *stream) advance(n int) {
	st.items = st.items[n:]
	if len(st.cuts) == 0 {
		return
	}
	if st.cuts[0] -= n; st.cuts[0] == 0 {
		st.cuts = st.cuts[1:]
	}
}

// fail records the failure of the first n items and drops them.
func (st *stream) fail(failed map[int]*sinks.Error, n int, e *sinks.Error) {
	for _, it := range st.items[:n] {
		failed[it.index] = e
	}
	st.items = st.items[n:]
}
