package ingest

import (
	"encoding/json"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/tracing"
)

// withTrace adds to what a dead letter keeps the context of the work that made it.
func withTrace(headers []byte, t *change.Trace) []byte {
	kept := map[string]string{}
	if len(headers) > 0 {
		_ = json.Unmarshal(headers, &kept) // this package wrote them
	}
	text, _ := json.Marshal(t.AddTo(kept)) // texts always have a JSON form
	return text
}

// recordOutcome notes, on a traced event, what became of it.
func (x *extracted) recordOutcome(outcome string) {
	if x.span != nil {
		x.span.Set(tracing.OutcomeKey.String(outcome))
	}
}

// traced ends the span of an event, if it has one.
func (s *Stage) traced(x *extracted, err error) {
	if x.span == nil {
		return
	}
	if x.record.Entity != "" {
		x.span.Set(s.opt.Tracer.Entity(x.record.Entity))
	}
	if err != nil {
		x.span.Fail("not taken in")
	}
	x.span.End()
}
