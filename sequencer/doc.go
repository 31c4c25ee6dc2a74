// Package sequencer brings messages back into the order of their log and
// forms batches of them.
//
// A Watermill router handles every message on a goroutine of its own, so what
// arrived in order races. Each goroutine hands its message in with [Submit],
// under the position that the subscriber gave it, and blocks until the batch
// that the message was in has been handled. The sequencer admits the messages
// of a claim strictly by their number: a batch holds, per claim, the next
// messages without a gap. One handler call runs at a time.
//
// Nothing is buffered beyond what Submit callers hold, so the subscriber's
// window is the only limit on memory.
package sequencer
