package transport

import (
	"context"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// Stream is one Subscribe to a log: the channel of its messages, and how that ends.
// The partitions of a log each have a [PartitionStream] into it. Its methods may be called
// concurrently.
type Stream struct {
	Out      chan *message.Message
	Context  context.Context // of the messages; ended by End
	Stopping context.Context // ended by Stop, or the subscriber: nothing more is handed out
	Done     chan struct{}   // closed by the owner: no message of it is tracked any longer

	halt, stop context.CancelFunc

	senders   sync.WaitGroup // feeds that may still send on Out
	followers sync.WaitGroup // feeds that still follow a message
}

// NewStream returns one whose messages have the values of ctx. The end of ctx stops it,
// and does not end their contexts: what is in flight then has a grace.
func NewStream(ctx context.Context) *Stream {
	s := &Stream{Out: make(chan *message.Message), Done: make(chan struct{})}
	s.Context, s.halt = context.WithCancel(context.WithoutCancel(ctx))
	s.Stopping, s.stop = context.WithCancel(ctx)
	return s
}

// Stop ends the hand-out. It may be called twice.
func (s *Stream) Stop() { s.stop() }

// Stopped reports whether the hand-out has ended.
func (s *Stream) Stopped() bool { return s.Stopping.Err() != nil }

// End ends a stream that was stopped, in order: channel closed, grace for what is in
// flight, contexts cancelled. It returns when no feed is left; no new one may come.
// The grace is over as soon as failed or limit is closed.
func (s *Stream) End(grace time.Duration, failed, limit <-chan struct{}) {
	s.senders.Wait()
	close(s.Out)
	drained := make(chan struct{})
	go func() { s.followers.Wait(); close(drained) }()
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-drained:
	case <-timer.C:
	case <-failed:
	case <-limit:
	}
	s.halt()
	<-drained
}

// PartitionStream hands the frames of one partition to a stream, one at a time: the next one
// follows the acknowledgement of the one before. It belongs to one goroutine, which
// closes it.
type PartitionStream struct {
	s                *Stream
	ctx              context.Context
	nackMin, nackMax time.Duration
	sending          bool
	answers          chan *Outstanding
}

// Outstanding is a frame of which some records were set aside. Its answer comes on
// Answers, which its receiver must read once for each.
type Outstanding struct {
	Left  []int // their indexes
	Acked bool  // the answer
}

// NewPartition adds a partition to a stream that does not end yet. Its messages end with ctx,
// which ends with the stream's; gc says how long a refused frame waits.
func (s *Stream) NewPartition(ctx context.Context, gc *GroupConfig) *PartitionStream {
	s.senders.Add(1)
	s.followers.Add(1)
	return &PartitionStream{s: s, ctx: ctx, nackMin: gc.NackMin, nackMax: gc.NackMax, sending: true, answers: make(chan *Outstanding)}
}

// Sending reports whether another frame may be handed out.
func (f *PartitionStream) Sending() bool { return f.sending }

func (f *PartitionStream) stopSending() {
	if f.sending {
		f.sending = false
		f.s.senders.Done()
	}
}

// Close takes the feed off its stream.
func (f *PartitionStream) Close() {
	f.stopSending()
	f.s.followers.Done()
}

// HandOut hands a frame out until it is acknowledged, and reports whether it was. refused
// is called whenever it was handed out and not acknowledged, and reports whether it may be
// handed out again. It returns early with the outstanding records when the handler sets
// records aside.
func (f *PartitionStream) HandOut(frame *Frame, refused func() bool) (acked bool, left *Outstanding) {
	for nacks := 0; ; nacks++ {
		// Each hand-out has its own acknowledgement and its own context.
		ctx, cancel := context.WithCancel(f.ctx)
		offered := *frame
		offered.aside = make(chan []int, 1)
		msg := NewMessage(ctx, &offered)
		select {
		case f.s.Out <- msg:
		case <-f.s.Stopping.Done():
			cancel()
			return false, nil
		case <-f.ctx.Done():
			cancel()
			return false, nil
		}
		acked, left := f.answer(msg, offered.aside)
		if left != nil {
			go func() {
				defer cancel()
				left.Acked, _ = f.answer(msg, nil)
				f.answers <- left
			}()
			return false, left
		}
		cancel()
		if acked {
			return true, nil
		}
		again := refused()
		frame = frame.Redelivered()
		if !again || !f.sending || f.ctx.Err() != nil || !f.Pause(nacks) {
			return false, nil
		}
	}
}

// Answers receives the answers to outstanding frames.
func (f *PartitionStream) Answers() <-chan *Outstanding { return f.answers }

// Pause waits after so many refusals before, and reports false as soon as there is nothing
// more to wait for.
func (f *PartitionStream) Pause(nacks int) bool {
	return f.Sleep(min(f.nackMin<<min(nacks, 20), f.nackMax))
}

// answer waits for the handler's answer and reports whether it acknowledged, or for
// records to be set aside; with a nil channel it may be called beside the owner. A stream
// that stops meanwhile hands out nothing more. An acknowledgement that came before the
// end counts, also when both are seen at once.
func (f *PartitionStream) answer(msg *message.Message, aside <-chan []int) (acked bool, left *Outstanding) {
	stopping := f.s.Stopping.Done()
	if aside == nil {
		stopping = nil
	}
	for {
		select {
		case <-msg.Acked():
			return true, nil
		case <-msg.Nacked():
			return false, nil
		case at := <-aside:
			return false, &Outstanding{Left: at}
		case <-stopping:
			f.stopSending()
			stopping = nil
		case <-f.ctx.Done():
			select {
			case <-msg.Acked():
				return true, nil
			default:
				return false, nil
			}
		}
	}
}

// Sleep waits, and reports false as soon as there is nothing more to wait for.
func (f *PartitionStream) Sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-f.s.Stopping.Done():
	case <-f.ctx.Done():
	}
	return false
}
