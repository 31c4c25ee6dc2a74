package deliver

import (
	"github.com/seed-86dfc502/weir/internal/tracing"
	"github.com/seed-86dfc502/weir/sinks"
)

// endSpan ends the span of a handled change, if it has one. Called once.
func (w *worker) endSpan(v *delivery, err error) {
	if v.span == nil {
		return
	}
	v.span.Set(w.s.opt.Tracer.Entity(v.change.Entity), tracing.VersionKey.String(v.change.Version.String()))
	if err != nil {
		v.span.Fail("not delivered")
	}
	v.span.End()
}

// endSpans ends the remaining spans of a batch. Settled changes were replaced, and the
// rest is redelivered.
func (w *worker) endSpans(all []*delivery) {
	for _, v := range all {
		switch {
		case v.done:
		case v.settled():
			w.endSpan(v, nil)
		default:
			w.endSpan(v, errStopped)
		}
	}
}

// writeSpan starts the span of one write to the sink.
func (w *worker) writeSpan(todo []*delivery) *tracing.Span {
	var spans []*tracing.Span
	for _, v := range todo {
		if v.span != nil {
			spans = append(spans, v.span)
		}
	}
	span := w.s.opt.Tracer.Batch("deliver batch", spans, len(todo))
	if span != nil {
		span.Set(tracing.ServiceKey.String(w.opt.Name))
	}
	return span
}

// written ends the span of a write to the sink.
func written(span *tracing.Span, err error) {
	if span != nil && err != nil {
		span.Fail(sinks.Classify(err).Class.String())
	}
	span.End()
}
