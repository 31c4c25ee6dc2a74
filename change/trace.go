package change

// Headers of W3C trace context, on records of Kafka and on requests alike.
const (
	TraceParentHeader = "traceparent"
	TraceStateHeader  = "tracestate"
)

// MaxTraceState bounds Trace.State, in bytes: what the W3C recommendation asks
// everybody to pass on.
const MaxTraceState = 512

// Trace is the W3C trace context (recommendation of 2021-11-23) of the work
// that an event or a change comes from. Only contexts that are sampled travel.
// A trace is about one attempt, so it is no part of keys, contents and records.
// It is immutable once made and may be read from any goroutine.
type Trace struct {
	Parent string // the value of traceparent, never empty
	State  string // the value of tracestate, at most MaxTraceState bytes; mostly empty
}
