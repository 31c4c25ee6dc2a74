package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/sources/internal/handout"
	"golang.org/x/sync/errgroup"
)

// part is records of one source that are one frame.
type part struct {
	stream  stream
	records []transport.Received
}

// batch is changes that are handed out together, each table's in their order.
type batch struct {
	parts   map[*Source][]*part
	records int
	bytes   int
	end     int64 // every transaction that ends up to here is in this batch or an earlier one
	last    commit
	newest  int64             // commit of the newest change; its transaction may end in a later batch
	left    []<-chan struct{} // each closed when records that were set aside are durable
	count   int64             // of batches that are this one
}

func newBatch() *batch { return &batch{parts: map[*Source][]*part{}, count: 1} }

func (b *batch) add(source *Source, stream stream, r transport.Received) {
	parts := b.parts[source]
	if len(parts) == 0 || parts[len(parts)-1].stream != stream {
		parts = append(parts, &part{stream: stream})
		b.parts[source] = parts
	}
	last := parts[len(parts)-1]
	last.records = append(last.records, r)
	b.records++
	b.bytes += r.Size()
	b.newest = r.Offset
}

var errRefused = errors.New("the frames were not acknowledged")

// hand hands out the batch, tables side by side, and returns when all of it is durable or set aside.
func (b *batch) hand(ctx context.Context, grace time.Duration) error {
	var group errgroup.Group
	var mu sync.Mutex // of b.left
	for source, parts := range b.parts {
		group.Go(func() error {
			for _, p := range parts {
				left, ok := source.hand(ctx, p.stream, p.records, grace)
				if !ok {
					return errRefused
				}
				if left != nil {
					mu.Lock()
					b.left = append(b.left, left)
					mu.Unlock()
				}
			}
			return nil
		})
	}
	err := group.Wait()
	b.parts = nil // ingest bounds what is set aside
	return err
}

// changes is the state of the stream of changes.
type changes struct {
	*session
	d       *decoder
	b       *batch
	batches chan *batch
	failed  chan error             // capacity 1: of handing out
	handed  int64                  // batches
	newest  int64                  // of these
	durable atomic.Int64           // batches, with all before them
	settled chan struct{}          // capacity 1: more batches are durable
	acked   atomic.Int64           // every change before it is durable
	last    atomic.Pointer[commit] // the newest durable transaction
	pieced  time.Time              // the end of the last piece of rows
	said    time.Time              // of the last report
	heard   time.Time              // of the server's last message
}

const (
	reportEvery = time.Second
	lingers     = 10 * time.Millisecond // of changes behind which nothing follows
	// silence is how long a server may be silent. It is asked to answer at half of that.
	silence = time.Minute
)

// stream reads changes from the slot on, and pieces of rows between them.
func (s *session) stream(ctx context.Context) error {
	args := []string{"proto_version '2'", "streaming 'on'", "publication_names " + literal(quote(s.r.opt.Publication))}
	if err := pglogrepl.StartReplication(ctx, s.log, s.r.opt.Slot, 0, pglogrepl.StartReplicationOptions{Mode: pglogrepl.LogicalReplication, PluginArgs: args}); err != nil {
		return err
	}
	c := &changes{session: s, b: newBatch(), batches: make(chan *batch), failed: make(chan error, 1), settled: make(chan struct{}, 1), said: time.Now(), heard: time.Now()}
	c.acked.Store(s.from)
	c.last.Store(&s.mark.Last)
	c.d = &decoder{c: c, relations: map[uint32]*relation{}, spilled: map[uint32]*spilled{}, written: map[entityKey]bool{}, absent: map[entityKey]bool{}, end: s.from, last: s.mark.Last}
	if c.d.last.LSN >= s.from { // the server sends it again
		c.d.expected = c.d.last
	}
	defer c.d.close()
	handing, stop := context.WithCancel(ctx)
	defer stop()
	for _, source := range s.r.sources {
		source.lane = handout.NewLane(handing, func() { s.cancel(errAgain) })
	}
	done := make(chan struct{})
	go func() { defer close(done); c.handOut(handing) }()
	err := c.receive(handing)
	err = cmp.Or(s.r.opt.madeAgain(err), err)
	close(c.batches)
	stop()
	<-done
	// The end stores durable changes, too, and confirms them, so that the server does not send them again.
	work, cancel := wait.WithGrace(context.WithoutCancel(ctx), ctx, s.r.opt.StopGrace)
	defer cancel()
	if c.store(work) == nil && !s.log.IsClosed() {
		_ = c.report(work, false)
	}
	return err
}

// describe returns the forms of types in the log.
func (c *changes) describe(ctx context.Context, oids []uint32) ([]valueType, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	return c.types.of(ctx, c.db, oids)
}

// emit adds an event to the batch.
func (c *changes) emit(ctx context.Context, source *Source, r transport.Received, stream stream) error {
	c.b.add(source, stream, r)
	if c.full() { // a large transaction
		return c.handOver(ctx, true)
	}
	return nil
}

// handOut hands out batches until there are no more. A batch is durable when all before it are, too.
func (c *changes) handOut(ctx context.Context) {
	var waiting []*batch // the first one has records set aside
	settle := func() {
		waiting[0].left = waiting[0].left[1:]
		for len(waiting) > 0 && len(waiting[0].left) == 0 {
			c.settle(waiting[0])
			waiting = waiting[1:]
		}
	}
	for open := true; open; {
		var b *batch
		var oldest <-chan struct{}
		if len(waiting) > 0 {
			oldest = waiting[0].left[0]
		}
		select {
		case <-oldest:
			settle()
			continue
		case b, open = <-c.batches:
		}
		if !open {
			break
		}
		if err := b.hand(ctx, c.r.opt.StopGrace); err != nil {
			c.failed <- err
			break
		}
		switch n := len(waiting); {
		case len(b.left) > 0:
			waiting = append(waiting, b)
		case n > 0: // it is durable with those before it
			waiting[n-1].end, waiting[n-1].last = b.end, b.last
			waiting[n-1].count++
		default:
			c.settle(b)
		}
	}
	for _, source := range c.r.sources {
		source.lane.Wait()
	}
	for len(waiting) > 0 {
		select {
		case <-waiting[0].left[0]:
			settle()
		default:
			return
		}
	}
}

// settle notes that a batch and all before it are durable.
func (c *changes) settle(b *batch) {
	crash.At(crash.ChangesAppended, c.r.opt.Source)
	c.last.Store(&b.last) // first: a mark that is behind it has it sent again
	c.acked.Store(max(c.acked.Load(), b.end))
	c.durable.Add(b.count)
	wait.Offer(c.settled, struct{}{})
}

func (c *changes) full() bool {
	return c.b.records >= c.r.opt.FrameRecords || c.b.bytes >= c.r.opt.FrameBytes
}

// receive applies messages until one fails.
func (c *changes) receive(ctx context.Context) error {
	for {
		if time.Since(c.said) >= reportEvery {
			if err := c.report(ctx, false); err != nil {
				return err
			}
		}
		due := c.due()
		if c.unread == 0 && !c.r.reading.Swap(true) {
			crash.At(crash.HandedOver, c.r.opt.Source)
		}
		patience := reportEvery
		if c.b.records > 0 || len(due) > 0 {
			patience = lingers
		}
		select {
		case err := <-c.failed:
			return err
		case <-c.r.asked:
			if err := c.report(ctx, true); err != nil {
				return err
			}
			patience = lingers
		default:
		}
		within, cancel := context.WithTimeout(ctx, patience)
		m, err := c.log.ReceiveMessage(within)
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case pgconn.Timeout(err) && time.Since(c.heard) > silence:
			return fmt.Errorf("the server has said nothing for %v", silence)
		case pgconn.Timeout(err):
		case err != nil:
			return err
		default:
			err := c.apply(ctx, m)
			if c.heard = time.Now(); err != nil {
				return err
			}
		}
		if c.b.records > 0 && (err != nil || !c.d.open || c.full()) {
			if err := c.handOver(ctx, c.full()); err != nil {
				return err
			}
		}
		if len(due) > 0 && !c.d.open && (err != nil || time.Since(c.pieced) >= c.r.opt.Piece) {
			if c.b.records > 0 {
				if err := c.handOver(ctx, true); err != nil {
					return err
				}
			}
			if err := c.during(ctx, c.piece); err != nil {
				return err
			}
			c.pieced = time.Now()
		}
	}
}

// apply applies one message of the connection.
func (c *changes) apply(ctx context.Context, m pgproto3.BackendMessage) error {
	switch m := m.(type) {
	case *pgproto3.ErrorResponse:
		return pgconn.ErrorResponseToPgError(m)
	case *pgproto3.CopyDone:
		return errors.New("the server ended the replication")
	case *pgproto3.CopyData:
		switch m.Data[0] {
		case pglogrepl.PrimaryKeepaliveMessageByteID:
			k, err := pglogrepl.ParsePrimaryKeepaliveMessage(m.Data[1:])
			if err != nil {
				return err
			}
			if err := c.d.passed(int64(k.ServerWALEnd)); err != nil {
				return err
			}
			if !c.d.open && c.b.records == 0 && c.durable.Load() == c.handed {
				c.acked.Store(max(c.acked.Load(), c.d.end, int64(k.ServerWALEnd)))
			}
			if k.ReplyRequested {
				return c.report(ctx, false)
			}
		case pglogrepl.XLogDataByteID:
			data, err := pglogrepl.ParseXLogData(m.Data[1:])
			if err != nil {
				return err
			}
			return c.d.message(ctx, data.WALData)
		default:
			return fmt.Errorf("unknown message %q of the replication", m.Data[0])
		}
	}
	return nil
}

// handOver passes the batch on, if the one before is durable. Otherwise the batch grows, or with
// must it waits.
func (c *changes) handOver(ctx context.Context, must bool) error {
	c.b.end, c.b.last = c.d.end, c.d.last
	if must {
		err := c.during(ctx, func(ctx context.Context) error {
			select {
			case c.batches <- c.b:
				return nil
			case err := <-c.failed:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		if err != nil {
			return err
		}
	} else {
		select {
		case c.batches <- c.b:
		default:
			return nil
		}
	}
	c.handed++
	c.newest = max(c.newest, c.b.newest)
	c.b = newBatch()
	return nil
}

// stored calls each with the entities of a source, when all that was emitted is decided.
func (c *changes) stored(ctx context.Context, source *Source, each func(ids []string) error) error {
	if err := c.handOver(ctx, true); err != nil {
		return err
	}
	decided := source.awaitsDecisions(ctx)
	err := c.during(ctx, func(ctx context.Context) error {
		for c.durable.Load() < c.handed {
			select {
			case <-c.settled:
			case err := <-c.failed:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return c.r.opt.Decided(ctx)
	})
	decided()
	if err != nil {
		return err
	}
	return c.r.stored(ctx, source, "", c.during, each)
}

// during reports while work takes its time: the server ends a connection that says nothing.
func (c *changes) during(ctx context.Context, work func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- work(ctx) }()
	ticker := time.NewTicker(reportEvery)
	defer ticker.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-ticker.C:
			if err := c.report(ctx, false); err != nil {
				cancel()
				return cmp.Or(err, <-done) // work has ended
			}
		}
	}
}

// report stores how far everything is durable and says so to the server, in this order: a slot
// that is ahead of the store shows a gap. The slot moves by what this session read: its changes below
// the mark may be those of a restored database. ask has the server answer with the end of its log.
func (c *changes) report(ctx context.Context, ask bool) error {
	acked := c.acked.Load()
	if acked > c.mark.Confirmed {
		if err := c.store(ctx); err != nil {
			return err
		}
	}
	moved := acked > c.r.flushed.Swap(acked)
	c.said = time.Now()
	at := pglogrepl.LSN(acked)
	err := pglogrepl.SendStandbyStatusUpdate(ctx, c.log, pglogrepl.StandbyStatusUpdate{WALWritePosition: at, WALFlushPosition: at, WALApplyPosition: at,
		ReplyRequested: ask || time.Since(c.heard) > silence/2})
	if moved {
		crash.At(crash.SlotConfirmed, c.r.opt.Source)
	}
	return err
}

// store saves how far everything is durable.
func (c *changes) store(ctx context.Context) error {
	err := c.save(ctx, func(m *mark) {
		if acked := c.acked.Load(); acked > m.Confirmed {
			m.Confirmed, m.Last = acked, *c.last.Load()
		}
	})
	if err != nil {
		return err
	}
	crash.At(crash.ChangesStored, c.r.opt.Source)
	return nil
}
