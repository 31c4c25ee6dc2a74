package transport

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/twmb/franz-go/pkg/kgo"
)

// ErrBroken is the error of AppendAsync after one of the sequence failed: the records
// would follow a gap.
var ErrBroken = errors.New("records before these were not appended")

// Sequence is records of one partition, of which none is appended after a failed one. A Sequence
// is useless after a failure. The zero value is ready. It belongs to one producer.
type Sequence struct{ broken atomic.Pointer[error] }

// Broken returns the error of records behind a failure, or nil without one.
func (s *Sequence) Broken() error {
	if s == nil {
		return nil
	}
	if err := s.broken.Load(); err != nil {
		return fmt.Errorf("%w: %w", ErrBroken, *err)
	}
	return nil
}

// Break is called by the producer when one of the records failed.
func (s *Sequence) Break(err error) {
	if s != nil {
		s.broken.CompareAndSwap(nil, &err)
	}
}

// ErrTooLarge is the error of a record above MaxRecordBytes. Nothing of its
// batch is appended.
var ErrTooLarge = errors.New("record too large")

// ProducerConfig tunes a producer.
type ProducerConfig struct {
	// MaxBufferedRecords and MaxBufferedBytes bound the records that are not yet acknowledged. At
	// the bound callers of Append wait. A single larger batch passes alone. Default to 100,000
	// and 64 MiB.
	MaxBufferedRecords int
	MaxBufferedBytes   int64
	// MaxRecordBytes is the largest key, value and headers together. It must
	// stay below the cluster's message.max.bytes. Defaults to 1,000,000.
	MaxRecordBytes int
	// Partitions, by topic, is how many of its partitions records are spread
	// over, by key, also when there are more by now. Defaults to all there are.
	Partitions map[string]int
	// Compression of record batches defaults to none.
	Compression kgo.CompressionCodec
}

// Producer appends with all acknowledgements, idempotent, in order.
//
// It works in rounds, one line of records at a time: the records handed in for a
// partition during its round make up the next. No round starts before
// every record of the line's last one is acknowledged or failed, and only one request
// per broker is under way, so a failure is known before anything behind it is sent.
// Inside a round kgo fails all records that it holds of a partition with a failed batch, and
// nothing is sent while rounds are handed to it, so it holds all that follows. A
// partition that takes nothing holds up its own records and no others. Where the
// partition is not known before kgo chooses it, the line is the topic.
//
// There is no limit of retries and no delivery timeout: while the cluster is
// unreachable, records wait.
type Producer struct {
	pc   ProducerConfig
	open func() (RecordClient, error)
	log  *slog.Logger
	work chan struct{} // capacity 1: a line is ready, a client is lost, or closing
	done chan struct{} // closed when the rounds ended

	flushes sync.WaitGroup
	handing *sync.RWMutex // held while rounds are handed in

	mu        sync.Mutex
	room      *sync.Cond        // signalled when records or bytes shrink, or on close
	lines     map[lineKey]*line // guarded by mu; those with records
	ready     []*line           // guarded by mu; those with a queue and no round
	records   int               // guarded by mu; handed in, not answered
	bytes     int64             // guarded by mu
	closed    bool              // guarded by mu
	abandoned bool              // guarded by mu; closed, and unanswered records fail
	probe     kgo.Record        // guarded by mu; asks byKey
	clients   []*clientRun      // guarded by mu; the last one is in use, the others have unanswered records
}

var _ Appender = (*Producer)(nil)

// lineKey is a partition, or a topic whose partitions kgo chooses.
type lineKey struct {
	topic     string
	partition int32 // unpinned: all
}

// line is the queue of one partition. Its fields are guarded by the producer's mutex.
type line struct {
	key    lineKey
	queue  []piece
	flying int // records of its round that are not answered
	ready  bool
}

// piece is the records of one call for one line.
type piece struct {
	op *appendOp
	at []int // their indexes
}

// clientRun is a client and its records. Its fields but cl are guarded by the producer's
// mutex.
type clientRun struct {
	cl                 RecordClient
	produced, answered int // records
	flushing           bool
	lost               bool // it gets no more records
}

// appendOp is one call's records.
type appendOp struct {
	records  []Record
	bytes    int64
	sequence *Sequence // nil: of Append
	done     func(error)

	// guarded by the producer's mutex:
	left int
	err  error // the first
}

// NewProducer does not touch the network yet.
func NewProducer(cfg Config, pc ProducerConfig) (*Producer, error) {
	def(&pc.MaxRecordBytes, 1_000_000)
	handing := new(sync.RWMutex)
	return newProducer(func() (RecordClient, error) { return newProducerClient(cfg, pc, handing) }, pc, cfg.logger(), handing)
}

// NewProducerOver makes a producer over other clients than kgo's. It opens one at
// once, and another when one is lost.
func NewProducerOver(open func() (RecordClient, error), pc ProducerConfig, log *slog.Logger) (*Producer, error) {
	return newProducer(open, pc, log, new(sync.RWMutex))
}

func newProducer(open func() (RecordClient, error), pc ProducerConfig, log *slog.Logger, handing *sync.RWMutex) (*Producer, error) {
	def(&pc.MaxBufferedRecords, 100_000)
	def(&pc.MaxBufferedBytes, 64<<20)
	def(&pc.MaxRecordBytes, 1_000_000)
	p := &Producer{pc: pc, open: open, log: log, handing: handing, lines: map[lineKey]*line{},
		work: make(chan struct{}, 1), done: make(chan struct{})}
	p.room = sync.NewCond(&p.mu)
	cl, err := open()
	if err != nil {
		return nil, err
	}
	p.clients = []*clientRun{{cl: cl}}
	go p.rounds()
	return p, nil
}

// Append implements Appender. ctx bounds the wait only: records that were handed in
// may be appended after it ended. May be called concurrently.
func (p *Producer) Append(ctx context.Context, records []Record) error {
	result := make(chan error, 1)
	if err := p.hand(ctx, nil, records, func(err error) { result <- err }); err != nil {
		return err
	}
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return fmt.Errorf("append: outcome unknown: %w", ctx.Err())
	}
}

// AppendAsync hands in the next records of a sequence, all pinned to one partition, and
// calls done once, from another goroutine, when all are acknowledged or with the first
// error; until then the bytes of records must not change. It does not wait: the caller
// bounds the records that are not acknowledged. done must not block.
func (p *Producer) AppendAsync(ctx context.Context, sequence *Sequence, records []Record, done func(error)) {
	if err := p.hand(ctx, sequence, records, done); err != nil {
		go done(err)
	}
}

func (p *Producer) hand(ctx context.Context, sequence *Sequence, records []Record, done func(error)) error {
	op := &appendOp{records: records, sequence: sequence, done: done, left: len(records)}
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
		case sequence.Broken() != nil:
			return sequence.Broken()
		case tooLarge != nil:
			sequence.Break(tooLarge)
			return tooLarge
		case ctx.Err() != nil:
			err := fmt.Errorf("append: not handed in: %w", ctx.Err())
			sequence.Break(err)
			return err
		case len(records) == 0:
			go done(nil)
			return nil
		}
		if sequence != nil || p.records == 0 || p.records+len(records) <= p.pc.MaxBufferedRecords && p.bytes+op.bytes <= p.pc.MaxBufferedBytes {
			break
		}
		p.room.Wait()
	}
	p.records += len(records)
	p.bytes += op.bytes
	p.enqueue(op)
	return nil
}

// enqueue adds the records of an op to their lines. The caller holds mu.
func (p *Producer) enqueue(op *appendOp) {
	at := map[lineKey][]int{}
	var order []lineKey
	for i := range op.records {
		k := p.lineOf(&op.records[i])
		if at[k] == nil {
			order = append(order, k)
		}
		at[k] = append(at[k], i)
	}
	for _, k := range order {
		p.add(k, piece{op, at[k]})
	}
}

// lineOf returns the line of a record. The caller holds mu.
func (p *Producer) lineOf(r *Record) lineKey {
	switch n := p.pc.Partitions[r.Topic]; {
	case r.Pinned:
		return lineKey{r.Topic, r.Partition}
	case n > 0 && len(r.Key) > 0:
		p.probe.Key = r.Key
		return lineKey{r.Topic, int32(byKey.Partition(&p.probe, n))}
	}
	return lineKey{r.Topic, unpinned}
}

// add puts a piece behind others of its line. The caller holds mu.
func (p *Producer) add(key lineKey, pc piece) {
	l := p.lines[key]
	if l == nil {
		l = &line{key: key}
		p.lines[key] = l
	}
	l.queue = append(l.queue, pc)
	p.schedule(l)
}

// schedule starts the next round of a line, if records wait and no round is under way.
// The caller holds mu.
func (p *Producer) schedule(l *line) {
	switch {
	case l.flying > 0 || l.ready:
	case len(l.queue) > 0:
		l.ready = true
		p.ready = append(p.ready, l)
		p.signal()
	default:
		delete(p.lines, l.key)
	}
}

func (p *Producer) signal() { wait.Offer(p.work, struct{}{}) }

// rounds is the goroutine that hands records to clients.
func (p *Producer) rounds() {
	defer close(p.done)
	for range p.work {
		p.mu.Lock()
		over := p.closed && p.records == 0
		p.mu.Unlock()
		if over {
			return
		}
		p.launch()
	}
}

// launch begins the rounds of all lines that are ready.
func (p *Producer) launch() {
	type share struct {
		piece
		l   *line
		why error // it is refused
	}
	c := p.client()
	p.mu.Lock()
	var shares []share
	for _, l := range p.ready {
		l.ready = false
		for _, pc := range l.queue {
			s := share{piece: pc, l: l, why: pc.op.sequence.Broken()}
			l.flying += len(pc.at) // also of a refused one, until it is answered
			shares = append(shares, s)
		}
		l.queue = nil
	}
	p.ready = nil
	p.mu.Unlock()
	produced := 0
	p.handing.Lock()
	for _, s := range shares {
		if s.why != nil {
			for range s.at {
				p.answered(s.l, nil, s.op, s.why)
			}
			continue
		}
		records := make([]kgo.Record, len(s.at))
		for n, i := range s.at {
			toKgo(&records[n], &s.op.records[i])
			c.cl.Produce(context.Background(), &records[n], func(_ *kgo.Record, err error) { p.answered(s.l, c, s.op, err) })
		}
		produced += len(records)
	}
	p.handing.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	c.produced += produced
	if produced > 0 && !c.flushing {
		c.flushing = true
		p.flushes.Go(func() { p.flush(c) })
	}
}

// flush lets a client send until all of its records are answered. Records that it gets
// meanwhile go out as soon as it has all of their round.
func (p *Producer) flush(c *clientRun) {
	for {
		if err := c.cl.Flush(context.Background()); err != nil {
			p.log.Error("flush ended early", "event", "kafka.flush_failed", "err", err) // only a closed client does
		}
		p.mu.Lock()
		if c.answered >= c.produced {
			c.flushing = false
			p.signal() // a client that is lost can be closed
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
	}
}

// client returns the client for the next rounds: a new one when the last was lost. Lost
// clients are closed when all of their records are answered.
func (p *Producer) client() *clientRun {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.clients) - 1
	if c := p.clients[last]; c.lost && !p.abandoned {
		if cl, err := p.open(); err != nil { // it made one before
			p.log.Error("cannot replace the producer's client", "event", "kafka.client_failed", "err", err)
		} else {
			p.clients = append(p.clients, &clientRun{cl: cl})
			last++
		}
	}
	used := p.clients[last]
	p.clients = slices.DeleteFunc(p.clients, func(c *clientRun) bool {
		over := c != used && !c.flushing && c.answered >= c.produced
		if over {
			p.flushes.Go(c.cl.Close)
		}
		return over
	})
	return used
}

// answered is called once per record, by its client if it has one. A failure breaks its
// sequence before the next round of its line can begin.
func (p *Producer) answered(l *line, c *clientRun, op *appendOp, err error) {
	p.mu.Lock()
	if c != nil {
		c.answered++
		c.lost = c.lost || clientLost(err)
	}
	if err != nil {
		if op.err == nil {
			op.err = fmt.Errorf("append: %w", err)
		}
		op.sequence.Break(err)
	}
	op.left--
	last := op.left == 0
	if last {
		p.records -= len(op.records)
		p.bytes -= op.bytes
		p.room.Broadcast()
		p.mu.Unlock()
		op.done(op.err)
		p.mu.Lock()
		p.signal() // perhaps it was the last one of all
	}
	if l.flying--; l.flying == 0 {
		p.schedule(l)
	}
	p.mu.Unlock()
}

// Close waits until ctx ends for acknowledgements, then fails the other records, whose
// outcome is unknown. It may be called twice.
func (p *Producer) Close(ctx context.Context) error {
	p.mu.Lock()
	p.closed = true
	p.room.Broadcast()
	p.signal()
	p.mu.Unlock()
	var err error
	select {
	case <-p.done:
	case <-ctx.Done():
		err = fmt.Errorf("close producer: records without acknowledgement: %w", ctx.Err())
	}
	p.mu.Lock()
	p.abandoned = true
	clients := slices.Clone(p.clients)
	p.mu.Unlock()
	for _, c := range clients {
		c.cl.Close()
	}
	<-p.done
	p.flushes.Wait()
	return err
}
