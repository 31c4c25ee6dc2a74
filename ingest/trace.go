package ingest

import "github.com/seed-86dfc502/weir/tracing"

// became notes, on a traced event, what became of it.
func (t *taken) became(outcome string) {
	if t.span != nil {
		t.span.Set(tracing.OutcomeKey.String(outcome))
	}
}

// traced ends the span of an event, if it has one.
func (s *Stage) traced(t *taken, err error) {
	if t.span == nil {
		return
	}
	if t.record.Entity != "" {
		t.span.Set(s.opt.Tracer.Entity(t.record.Entity))
	}
	if err != nil {
		t.span.Fail("not taken in")
	}
	t.span.End()
}
