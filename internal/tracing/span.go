package tracing

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"

	"github.com/seed-86dfc502/weir/change"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Attributes of spans. No attribute contains payload.
const (
	SourceKey      = attribute.Key("weir.source")       // configured name
	ServiceKey     = attribute.Key("weir.service")      // customer/projection@sink
	EntityKey      = attribute.Key("weir.entity")       // only where the configuration allows it
	EntityHashKey  = attribute.Key("weir.entity.hash")  // first 16 hex digits of the id's SHA-256
	VersionKey     = attribute.Key("weir.version")      // generation:offset
	OutcomeKey     = attribute.Key("weir.outcome")      // outcome of the event or the change
	CauseKey       = attribute.Key("weir.cause")        // why something is decided again
	OperationKey   = attribute.Key("weir.operation")    // id of the operator's request, as in the audit
	ChangesKey     = attribute.Key("weir.changes")      // services that the event changed something for
	BatchSizeKey   = attribute.Key("weir.batch.size")   // everything in the batch
	BatchTracedKey = attribute.Key("weir.batch.traced") // how much of it is traced
)

// Span is one piece of work for one event or one change, or a batch of them.
// It is nil when that is not traced. Its methods may be called from any goroutine.
type Span struct {
	span  trace.Span
	trace *change.Trace
}

// w3c reads and writes traceparent and tracestate.
var w3c propagation.TraceContext //nolint:gochecknoglobals // it has no state

// Requests takes up the trace context of requests, so that the events that next
// hands on with the values of a request's context belong to it.
func (t *Tracer) Requests(next http.Handler) http.Handler {
	if t == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if from, known := parent(r.Header.Get); known {
			r = r.WithContext(trace.ContextWithRemoteSpanContext(r.Context(), from))
		}
		next.ServeHTTP(w, r)
	})
}

// Ingest starts the span of an event that comes in. The producer's trace context
// is in its headers or, from Requests, in ctx: the span is below that if it is
// sampled, and nil if it is not. Next count the attributes of a CloudEvent, as
// its extension for distributed tracing has them. Without any the event is sampled
// by chance.
func (t *Tracer) Ingest(ctx context.Context, source string, header Header) *Span {
	if t == nil {
		return nil
	}
	from, known := parent(header)
	if !known {
		from = trace.SpanContextFromContext(ctx)
		known = from.IsValid()
	}
	// The context in which a CloudEvent was created. Later hops have contexts of their own.
	if !known && header(cloudAttribute+change.TraceParentHeader) != "" {
		from, known = parent(func(name string) string { return header(cloudAttribute + name) })
	}
	if known && !from.IsSampled() || !known && rand.Float64() >= t.opt.Sample { // #nosec G404 -- a sample is no secret
		return nil
	}
	return t.start(from, "ingest", trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(SourceKey.String(source)))
}

// Decide starts the span of an inbox record, or nil unless its headers hold a trace context,
// which the spans of a traced event do.
func (t *Tracer) Decide(header Header) *Span {
	if t == nil {
		return nil
	}
	from, _ := parent(header)
	if !from.IsSampled() {
		return nil
	}
	return t.start(from, "decide", trace.WithSpanKind(trace.SpanKindConsumer))
}

// Repeat starts the span of a record that requests another decision or delivery: the root of a
// new trace that names the cause, and the operation that it is part of, if any. If the work that
// it repeats is known to be sampled, so is the span, with a link to it; any other is sampled by
// chance. It is nil if it is not sampled.
func (t *Tracer) Repeat(cause, operation string, original *change.Trace) *Span {
	if t == nil {
		return nil
	}
	options := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(CauseKey.String(cause))}
	if operation != "" {
		options = append(options, trace.WithAttributes(OperationKey.String(operation)))
	}
	from := contextOf(original)
	switch {
	case from.IsSampled():
		options = append(options, trace.WithLinks(trace.Link{SpanContext: from}))
	case rand.Float64() >= t.opt.Sample: // #nosec G404 -- a sample is no secret
		return nil
	}
	return t.start(trace.SpanContext{}, "decide", options...)
}

// contextOf reads a context from its text form; the zero one for nil.
func contextOf(t *change.Trace) trace.SpanContext {
	if t == nil {
		return trace.SpanContext{}
	}
	sc, _ := parent(HeaderMap(map[string]string{change.TraceParentHeader: t.Parent, change.TraceStateHeader: t.State}))
	return sc
}

// Deliver starts the span of a change, or nil unless from is the context that a traced event's
// change has.
func (t *Tracer) Deliver(from *change.Trace, service string) *Span {
	if t == nil || from == nil {
		return nil
	}
	above := contextOf(from)
	if !above.IsSampled() {
		return nil
	}
	return t.start(above, "deliver", trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(ServiceKey.String(service)))
}

// cloudAttribute is the prefix of the names of a CloudEvent's attributes, in headers
// of Kafka's binding and of posted events alike.
const cloudAttribute = "ce_"

// maxLinks bounds the links of a batch.
const maxLinks = 32

// Batch starts the span of work for size records or changes at once, of which
// those of spans are traced: a trace of its own, linked with theirs, up to 32.
// It is nil when spans are none.
func (t *Tracer) Batch(name string, spans []*Span, size int) *Span {
	if t == nil || len(spans) == 0 {
		return nil
	}
	linked := spans[:min(len(spans), maxLinks)]
	links := make([]trace.Link, len(linked))
	for i, s := range linked {
		links[i] = trace.Link{SpanContext: s.span.SpanContext()}
	}
	b := t.start(trace.SpanContext{}, name, trace.WithLinks(links...),
		trace.WithAttributes(BatchSizeKey.Int(size), BatchTracedKey.Int(len(spans))))
	back := trace.Link{SpanContext: b.span.SpanContext()}
	for _, s := range linked {
		s.span.AddLink(back)
	}
	return b
}

// start starts a span below another one, or one of a trace of its own below none.
func (t *Tracer) start(above trace.SpanContext, name string, options ...trace.SpanStartOption) *Span {
	ctx, span := t.tracer.Start(trace.ContextWithRemoteSpanContext(context.Background(), above), name, options...)
	headers := propagation.MapCarrier{}
	w3c.Inject(ctx, headers)
	s := &Span{span: span, trace: &change.Trace{Parent: headers[change.TraceParentHeader]}}
	if state := headers[change.TraceStateHeader]; len(state) <= change.MaxTraceState {
		s.trace.State = state
	}
	return s
}

// parent reads the trace context of headers. It returns false without a readable one.
func parent(header Header) (trace.SpanContext, bool) {
	value := header(change.TraceParentHeader)
	if value == "" {
		return trace.SpanContext{}, false
	}
	carrier := propagation.MapCarrier{change.TraceParentHeader: knownFlags(value), change.TraceStateHeader: header(change.TraceStateHeader)}
	sc := trace.SpanContextFromContext(w3c.Extract(context.Background(), carrier))
	return sc, sc.IsValid()
}

// knownFlags returns a traceparent without the flags that its version does not define. A reader
// has to ignore them, and the library drops the whole context.
func knownFlags(value string) string {
	const before, known = len("00-") + 32 + len("-") + 16 + len("-"), trace.FlagsSampled | trace.FlagsRandom
	if len(value) != before+2 || !strings.HasPrefix(value, "00-") {
		return value
	}
	flags, err := strconv.ParseUint(value[before:], 16, 8)
	if err != nil {
		return value
	}
	return fmt.Sprintf("%s%02x", value[:before], byte(flags)&byte(known))
}

// Header returns the header of a name, empty without one.
type Header func(name string) string

// HeaderMap returns the headers of a map.
func HeaderMap(m map[string]string) Header { return func(name string) string { return m[name] } }

// ID returns the id of the trace that headers belong to, as 32 hex digits, for a log line, or
// empty without one.
func ID(headers map[string]string) string {
	from, known := parent(HeaderMap(headers))
	if !known {
		return ""
	}
	return from.TraceID().String()
}

// Entity returns the attribute of an entity: a hash of its id, or
// the id where the configuration allows that.
func (t *Tracer) Entity(id string) attribute.KeyValue {
	if t.opt.EntityIDs {
		return EntityKey.String(id)
	}
	sum := sha256.Sum256([]byte(id))
	return EntityHashKey.String(hex.EncodeToString(sum[:8]))
}

// Trace returns the context to hand on to the span's effects, nil if s is.
func (s *Span) Trace() *change.Trace {
	if s == nil {
		return nil
	}
	return s.trace
}

// Set adds attributes, in place of earlier ones of the same keys.
func (s *Span) Set(attributes ...attribute.KeyValue) {
	if s != nil {
		s.span.SetAttributes(attributes...)
	}
}

// Fail marks the work as failed. why is a word, not an error's text, which may quote secrets or
// payload.
func (s *Span) Fail(why string) {
	if s != nil {
		s.span.SetStatus(codes.Error, why)
	}
}

// End ends the span. Calls after the first do nothing.
func (s *Span) End() {
	if s != nil {
		s.span.End()
	}
}

// ID returns the id of the trace as 32 hex digits, for a log line, or empty if s is nil.
func (s *Span) ID() string {
	if s == nil {
		return ""
	}
	return s.span.SpanContext().TraceID().String()
}
