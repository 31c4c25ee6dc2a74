package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// ErrBroken is the error of AppendAsync after one of its batches failed, until
// Reset: the records would stand behind a gap.
var ErrBroken = errors.New("producer stopped at a failed batch")

// ErrTooLarge is the error of a record above MaxRecordBytes. Nothing of its
// batch is appended.
var ErrTooLarge = errors.New("record too large")

// Compression of record batches.
type Compression string

// The codecs. Every broker and kfake reads all of them.
const (
	NoCompression Compression = "none"
	LZ4           Compression = "lz4"
	Snappy        Compression = "snappy"
	Zstd          Compression = "zstd"
)

// ProducerConfig tunes a producer.
type ProducerConfig struct {
	// Linger is how long records wait for others before they are sent, so that
	// batches of many callers and topics share requests. Records that come
	// while a request is under way wait for it anyway. Defaults to 5 ms;
	// negative: none.
	Linger time.Duration
	// MaxBufferedRecords and MaxBufferedBytes bound what is handed in and not
	// yet acknowledged; at the bound callers wait. A single larger batch passes
	// alone. Default to 100,000 and 64 MiB.
	MaxBufferedRecords int
	MaxBufferedBytes   int64
	// MaxRecordBytes is the largest key, value and headers together. It must
	// stay below the cluster's message.max.bytes. Defaults to 1,000,000.
	MaxRecordBytes int
	// Partitions, by topic, is how many of its partitions records are spread
	// over, by key, also when there are more by now. Defaults to all there are.
	Partitions map[string]int
	// Compression defaults to LZ4.
	Compression Compression
}

// Producer appends with all acknowledgements, idempotent, in order.
//
// It works in rounds: what was handed in while one round was under way makes
// up the next. No round starts before every record of the last one is
// acknowledged or failed, and only one request per broker is under way, so a
// failure is known before anything behind it is sent. Inside a round kgo fails
// whatever follows a failed batch in its partition.
//
// There is no limit of retries and no delivery timeout: while the cluster is
// away, records wait.
type Producer struct {
	cfg  Config
	pc   ProducerConfig
	log  *slog.Logger
	work chan struct{} // capacity 1: there is a batch, or closing
	stop chan struct{} // closed by Close
	done chan struct{} // closed when the rounds ended

	mu      sync.Mutex
	room    *sync.Cond  // signalled when records or bytes shrink, or on close
	queue   []*appendOp // guarded by mu
	records int         // guarded by mu; handed in, not answered
	bytes   int64       // guarded by mu
	broken  error       // guarded by mu; why AppendAsync is refused
	closed  bool        // guarded by mu
	resets  uint64      // guarded by mu; batches of before a Reset do not break it again
	cl      *kgo.Client // guarded by mu; replaced by the round loop only
}

var _ Appender = (*Producer)(nil)

// appendOp is one call's records.
type appendOp struct {
	records []Record
	bytes   int64
	async   bool
	resets  uint64
	done    func(error)

	mu     sync.Mutex
	left   int           // guarded by mu
	err    error         // guarded by mu; the first
	failed map[int]error // guarded by mu; by index
}

// AppendError is the error of an Append whose records were answered, some of
// them with a failure.
type AppendError struct {
	// Failed has the failures by index. All other records are acknowledged.
	Failed map[int]error
}

// first returns the failure of the foremost record.
func (e *AppendError) first() error { return e.Failed[slices.Min(slices.Collect(maps.Keys(e.Failed)))] }

// Error returns the failure of the foremost record and how many there are.
func (e *AppendError) Error() string {
	if len(e.Failed) == 1 {
		return e.first().Error()
	}
	return fmt.Sprintf("%d records failed, the first: %v", len(e.Failed), e.first())
}

// Unwrap returns the failure of the foremost record.
func (e *AppendError) Unwrap() error { return e.first() }

// NewProducer does not touch the network yet.
func NewProducer(cfg Config, pc ProducerConfig) (*Producer, error) {
	def(&pc.Linger, 5*time.Millisecond)
	def(&pc.MaxBufferedRecords, 100_000)
	def(&pc.MaxBufferedBytes, 64<<20)
	def(&pc.MaxRecordBytes, 1_000_000)
	def(&pc.Compression, LZ4)
	p := &Producer{cfg: cfg, pc: pc, log: cfg.logger(),
		work: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	p.room = sync.NewCond(&p.mu)
	cl, err := p.client()
	if err != nil {
		return nil, err
	}
	p.cl = cl
	go p.rounds()
	return p, nil
}

func (p *Producer) client() (*kgo.Client, error) {
	opts, err := NewClientOpts(p.cfg)
	if err != nil {
		return nil, err
	}
	var codec kgo.CompressionCodec
	switch p.pc.Compression {
	case NoCompression:
		codec = kgo.NoCompression()
	case LZ4:
		codec = kgo.Lz4Compression()
	case Snappy:
		codec = kgo.SnappyCompression()
	case Zstd:
		codec = kgo.ZstdCompression()
	default:
		return nil, fmt.Errorf("unknown compression %q (none, lz4, snappy, zstd)", p.pc.Compression)
	}
	cl, err := kgo.NewClient(append(opts,
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.RecordPartitioner(fixed{kgo.StickyKeyPartitioner(nil), p.pc.Partitions}), // murmur2, as every Kafka client
		kgo.RecordRetries(math.MaxInt32),
		kgo.StopProducerOnDataLossDetected(),
		kgo.MaxProduceRequestsInflightPerBroker(1),
		kgo.ManualFlushing(),
		// The producer counts itself and admits one larger batch alone.
		kgo.MaxBufferedRecords(math.MaxInt32),
		kgo.ProducerBatchMaxBytes(int32(p.pc.MaxRecordBytes+batchOverhead)),
		kgo.ProducerBatchCompression(codec),
	)...)
	if err != nil {
		return nil, fmt.Errorf("kafka producer: %w", err)
	}
	return cl, nil
}

// fixed spreads the records of some topics over a fixed number of partitions,
// and leaves pinned records where they are to go.
type fixed struct {
	kgo.Partitioner
	partitions map[string]int
}

func (f fixed) ForTopic(topic string) kgo.TopicPartitioner {
	return fixedTopic{f.Partitioner.ForTopic(topic), f.partitions[topic]}
}

type fixedTopic struct {
	kgo.TopicPartitioner
	partitions int // 0: all there are
}

// unpinned is the partition of a record whose key decides.
const unpinned = -1

// RequiresConsistency lets kgo offer all partitions, also those without a
// leader, to records that must go to a certain one.
func (f fixedTopic) RequiresConsistency(r *kgo.Record) bool {
	return r.Partition != unpinned || f.TopicPartitioner.RequiresConsistency(r)
}

// Partition is asked with all partitions for records with a key or a pin.
func (f fixedTopic) Partition(r *kgo.Record, n int) int {
	if r.Partition != unpinned {
		return int(r.Partition)
	}
	if len(r.Key) > 0 && f.partitions > 0 {
		n = min(n, f.partitions)
	}
	return f.TopicPartitioner.Partition(r, n)
}

// batchOverhead is what one record in a batch of its own costs beside its
// bytes; MaxRecordBytes counts the fields of headers generously.
const batchOverhead = 512

// Append implements Appender; an AppendError says which records failed. ctx
// bounds the wait only: records that were handed in may be appended after it
// ended. May be called concurrently.
func (p *Producer) Append(ctx context.Context, records []Record) error {
	result := make(chan error, 1)
	if err := p.hand(ctx, records, false, func(err error) { result <- err }); err != nil {
		return err
	}
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return fmt.Errorf("append: outcome unknown: %w", ctx.Err())
	}
}

// AppendAsync hands in records and calls done once, from another goroutine,
// when all are acknowledged or with the first error; until then the bytes of
// records must not change. Successive calls from one
// goroutine are appended in their order. It waits while the buffers are full,
// until ctx ends, which fails the call like any other failure. After a batch failed,
// every later one fails with ErrBroken, and none of its records is appended,
// until Reset. done must not block.
func (p *Producer) AppendAsync(ctx context.Context, records []Record, done func(error)) {
	if err := p.hand(ctx, records, true, done); err != nil {
		go done(err)
	}
}

// Reset ends the state after a failed batch. Call it when every done of before
// was called and whatever has to be appended again is known.
func (p *Producer) Reset() {
	p.mu.Lock()
	p.broken = nil
	p.resets++
	p.mu.Unlock()
}

// Broken returns why AppendAsync is refused, nil if it is not.
func (p *Producer) Broken() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.broken
}

func (p *Producer) hand(ctx context.Context, records []Record, async bool, done func(error)) error {
	op := &appendOp{records: records, async: async, done: done, left: len(records)}
	var tooLarge error
	for i := range records {
		n := int64(len(records[i].Key) + len(records[i].Value))
		for _, h := range records[i].Headers {
			n += int64(len(h.Key)+len(h.Value)) + 10
		}
		if n > int64(p.pc.MaxRecordBytes) {
			tooLarge = fmt.Errorf("topic %s: record of %d bytes, at most %d: %w", records[i].Topic, n, p.pc.MaxRecordBytes, ErrTooLarge)
		}
		op.bytes += n + 64
	}
	stopWait := context.AfterFunc(ctx, func() {
		p.mu.Lock()
		p.room.Broadcast()
		p.mu.Unlock()
	})
	defer stopWait()
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case p.closed:
			return fmt.Errorf("append: producer %w", ErrClosed)
		case async && p.broken != nil:
			return fmt.Errorf("%w: %w", ErrBroken, p.broken)
		case tooLarge != nil:
			p.refused(op, tooLarge)
			return tooLarge
		case ctx.Err() != nil:
			err := fmt.Errorf("append: not handed in: %w", ctx.Err())
			p.refused(op, err)
			return err
		case len(records) == 0:
			go done(nil)
			return nil
		}
		if p.records == 0 || p.records+len(records) <= p.pc.MaxBufferedRecords && p.bytes+op.bytes <= p.pc.MaxBufferedBytes {
			break
		}
		p.room.Wait()
	}
	op.resets = p.resets
	p.records += len(records)
	p.bytes += op.bytes
	p.queue = append(p.queue, op)
	select {
	case p.work <- struct{}{}:
	default:
	}
	return nil
}

// refused breaks the order of asynchronous calls. The caller holds mu.
func (p *Producer) refused(op *appendOp, err error) {
	if op.async && p.broken == nil {
		p.broken = err
	}
}

// rounds is the goroutine that owns the client.
func (p *Producer) rounds() {
	defer close(p.done)
	for {
		select {
		case <-p.work:
		case <-p.stop:
			p.round() // fails what is left
			return
		}
		if p.pc.Linger > 0 {
			select {
			case <-time.After(p.pc.Linger):
			case <-p.stop:
			}
		}
		for p.round() {
		}
	}
}

// round appends all that is queued and returns when every record of it is
// answered; false when nothing was queued.
func (p *Producer) round() bool {
	p.mu.Lock()
	ops := p.queue
	p.queue = nil
	cl := p.cl
	p.mu.Unlock()
	if len(ops) == 0 {
		return false
	}
	var refused []*appendOp
	var doubt bool
	for _, op := range ops {
		p.mu.Lock()
		broken := op.async && (p.broken != nil || op.resets != p.resets)
		p.mu.Unlock()
		if broken {
			refused = append(refused, op)
			continue
		}
		records := make([]kgo.Record, len(op.records))
		for i := range op.records {
			toKgo(&records[i], &op.records[i])
			cl.Produce(context.Background(), &records[i], func(_ *kgo.Record, err error) { p.answered(op, i, err) })
		}
	}
	if err := cl.Flush(context.Background()); err != nil {
		p.log.Error("flush ended early", "err", err) // only a closed client does
	}
	for _, op := range refused {
		p.mu.Lock()
		why := p.broken
		p.mu.Unlock()
		op.err = ErrBroken
		if why != nil {
			op.err = fmt.Errorf("%w: %w", ErrBroken, why)
		}
		p.settle(op)
	}
	for _, op := range ops {
		doubt = doubt || clientLost(op.err)
	}
	if doubt {
		p.replaceClient()
	}
	return true
}

// answered is kgo's promise: once per record.
func (p *Producer) answered(op *appendOp, i int, err error) {
	op.mu.Lock()
	op.left--
	last := op.left == 0
	if err != nil {
		if op.err == nil {
			op.err, op.failed = err, map[int]error{}
		}
		op.failed[i] = err
	}
	op.mu.Unlock()
	if last {
		p.settle(op)
	}
}

// settle ends an op: its room is free, and its failure breaks the order of the
// asynchronous calls behind it before its done is called.
func (p *Producer) settle(op *appendOp) {
	err := op.err
	if op.failed != nil {
		err = fmt.Errorf("append: %w", &AppendError{op.failed})
	}
	p.mu.Lock()
	p.records -= len(op.records)
	p.bytes -= op.bytes
	if err != nil && op.resets == p.resets {
		p.refused(op, err)
	}
	p.room.Broadcast()
	p.mu.Unlock()
	op.done(err)
}

// clientLost: the broker and the client disagree about the sequence, and kgo
// sends nothing more under this identity; or the topic was deleted and created
// again, and kgo sends nothing more to the one that is gone.
func clientLost(err error) bool {
	return errors.Is(err, kerr.UnknownTopicID) || errors.Is(err, kerr.OutOfOrderSequenceNumber) || errors.Is(err, kerr.UnknownProducerID) ||
		errors.Is(err, kerr.InvalidProducerIDMapping) || errors.Is(err, kerr.InvalidProducerEpoch)
}

// replaceClient starts over with a new identity. Nothing is under way.
func (p *Producer) replaceClient() {
	cl, err := p.client()
	if err != nil { // the options made a client before
		p.log.Error("cannot replace the producer's client", "err", err)
		return
	}
	p.mu.Lock()
	old := p.cl
	p.cl = cl
	p.mu.Unlock()
	old.Close()
}

func toKgo(k *kgo.Record, r *Record) {
	k.Topic, k.Key, k.Value, k.Headers, k.Partition = r.Topic, r.Key, r.Value, r.Headers, unpinned
	if r.Pinned {
		k.Partition = r.Partition
	}
}

// Close waits until ctx ends for what was handed in, then fails the rest, whose
// outcome is unknown. It may be called twice.
func (p *Producer) Close(ctx context.Context) error {
	p.mu.Lock()
	first := !p.closed
	p.closed = true
	p.room.Broadcast()
	p.mu.Unlock()
	if first {
		close(p.stop)
	}
	var err error
	select {
	case <-p.done:
	case <-ctx.Done():
		err = fmt.Errorf("close producer: records without acknowledgement: %w", ctx.Err())
	}
	p.mu.Lock()
	cl := p.cl
	p.mu.Unlock()
	cl.Close()
	<-p.done
	return err
}
