package change

// Headers of W3C trace context, on records of Kafka and on requests alike.
const (
	TraceParentHeader = "traceparent"
	TraceStateHeader  = "tracestate"
)

// MaxTraceState bounds Trace.State, in bytes: the least that the W3C recommendation
// requires to pass on.
const MaxTraceState = 512

// Trace is the W3C trace context (recommendation of 2021-11-23) of the work
// that an event or a change comes from. Only contexts that are sampled travel.
// A trace is about one attempt, so it is no part of keys, contents and records.
// It is immutable once made and may be read from any goroutine.
type Trace struct {
	Parent string `json:"parent"`          // the value of traceparent, never empty
	State  string `json:"state,omitempty"` // the value of tracestate, at most MaxTraceState bytes; mostly empty
}

// AddTo adds the headers of a context to others, which it returns; nil adds none.
func (t *Trace) AddTo(headers map[string]string) map[string]string {
	if t != nil {
		headers[TraceParentHeader] = t.Parent
		if t.State != "" {
			headers[TraceStateHeader] = t.State
		}
	}
	return headers
}

// TraceOf reads the context that headers hold, or nil when they hold none.
func TraceOf(headers map[string]string) *Trace {
	if headers[TraceParentHeader] == "" {
		return nil
	}
	return &Trace{Parent: headers[TraceParentHeader], State: headers[TraceStateHeader]}
}
