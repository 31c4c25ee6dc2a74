package transport

import "context"

// dispatcher hands the frames of one assignment to one stream. Its fields
// belong to its goroutine.
type dispatcher struct {
	a      *assignment
	s      *Stream
	feed   *Feed
	number uint64          // of the assignment, as frames carry it
	ctx    context.Context // of the messages
	cancel context.CancelFunc
	done   chan struct{} // closed when the goroutine has ended
}

// startDispatcher attaches a to s. The caller holds g.mu, has seen that s is
// the one of g, and a without a dispatcher.
func startDispatcher(a *assignment, s *Stream) {
	d := &dispatcher{a: a, s: s, number: NextAssignment(), done: make(chan struct{})}
	d.ctx, d.cancel = context.WithCancel(s.Context)
	d.feed = s.NewFeed(d.ctx, &a.g.gc)
	a.mu.Lock()
	a.dispatcher = d
	a.mu.Unlock()
	go d.loop()
}

func (d *dispatcher) loop() {
	detach := context.AfterFunc(d.a.ctx, d.cancel)
	var b batch
	defer func() {
		detach()
		d.cancel()
		d.a.requeue(b)
		close(d.done)
		d.feed.Close()
	}()
	for d.ctx.Err() == nil && d.feed.Sending() {
		var waiting bool
		if b, waiting = d.a.take(); !waiting {
			select {
			case <-d.a.wake:
			case <-d.s.Stopping.Done():
				return
			case <-d.ctx.Done():
				return
			}
			continue
		}
		if b.records > 0 && !d.feed.HandOut(d.frame(b), func() { d.a.handedOut(b) }) {
			return
		}
		d.a.acknowledged(b)
		b = batch{}
	}
}

// frame returns b as a frame.
func (d *dispatcher) frame(b batch) *Frame {
	records, known := make([]Received, 0, b.records), d.a.knownTo()
	for _, r := range b.fetched {
		if !r.Attrs.IsControl() {
			records = append(records, received(r, r.Offset < known))
		}
	}
	return &Frame{Topic: d.a.g.gc.Topic, TopicID: d.a.topicID, Partition: d.a.partition, Assignment: d.number, Records: records, Bytes: int(b.bytes)}
}
