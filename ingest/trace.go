package ingest

import "github.com/seed-86dfc502/weir/internal/tracing"

// recordOutcome records the outcome of a traced event in its span.
func (x *extracted) recordOutcome(outcome string) {
	if x.span != nil {
		x.span.Set(tracing.OutcomeKey.String(outcome))
	}
}

// endSpan ends the span of an event, if it has one.
func (s *Stage) endSpan(x *extracted, err error) {
	if x.span == nil {
		return
	}
	if x.record.Entity != "" {
		x.span.Set(s.opt.Tracer.Entity(x.record.Entity))
	}
	if err != nil {
		x.span.Fail("not ingested")
	}
	x.span.End()
}
