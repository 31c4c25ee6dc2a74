package deliver

import (
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/tracing"
	"github.com/seed-86dfc502/weir/sinks"
)

// endSpan ends the span of a change, if it has one, when it was handled; once.
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

// endSpans ends the spans of a batch that are left. What is over was done, or stood in
// for, and what is not comes again.
func (w *worker) endSpans(all []*delivery) {
	for _, v := range all {
		switch {
		case v.done:
		case v.over():
			w.endSpan(v, nil)
		default:
			w.endSpan(v, errStopped)
		}
	}
}

// follow remembers the span of a change of the batch that is in hand.
func (w *worker) follow(v *delivery) {
	if v.span == nil {
		return
	}
	if w.spans == nil {
		w.spans = map[*change.Trace]*tracing.Span{}
	}
	w.spans[v.change.Trace] = v.span
}

// recordOutcome notes what became of a change, if it is traced.
func (w *worker) recordOutcome(c *change.Change, outcome string) {
	if c.Trace != nil {
		w.spans[c.Trace].Set(tracing.OutcomeKey.String(outcome))
	}
}

// writeSpan starts the span of one write to the sink.
func (w *worker) writeSpan(todo []change.Change) *tracing.Span {
	if w.spans == nil {
		return nil
	}
	var spans []*tracing.Span
	for i := range todo {
		if s := w.spans[todo[i].Trace]; s != nil {
			spans = append(spans, s)
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
