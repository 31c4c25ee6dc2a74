package dam

import (
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/tracing"
)

// traced ends the span of a record, if it has one, when the record was handled.
func (d *Decider) traced(r *record, err error) {
	s := r.span
	if s == nil {
		return
	}
	s.Set(d.opt.Tracer.Entity(r.Entity), tracing.VersionKey.String(r.version.String()))
	if r.Event != nil {
		s.Set(tracing.SourceKey.String(r.Event.Source))
	}
	if err != nil {
		s.Fail("not decided")
	}
	s.End()
}

// batchSpan starts the span of one decision transaction.
func (l *lane) batchSpan(batch []*record) *tracing.Span {
	if l.d.opt.Tracer == nil {
		return nil
	}
	var spans []*tracing.Span
	for _, r := range batch {
		if r.span != nil {
			spans = append(spans, r.span)
		}
	}
	return l.d.opt.Tracer.Batch("decide batch", spans, len(batch))
}

// decidedSpans notes what became of the traced records of a transaction.
func decidedSpans(span *tracing.Span, batch []*record, changes []change.Change, err error) {
	if span == nil {
		return
	}
	defer span.End()
	if err != nil {
		switch store.ClassOf(err) {
		case store.Fenced:
			span.Fail("fenced")
		case store.Unknown:
			span.Fail("outcome unknown")
		default:
			span.Fail("nothing written")
		}
		return
	}
	count := map[*change.Trace]int{}
	for i := range changes {
		if t := changes[i].Trace; t != nil {
			count[t]++
		}
	}
	for _, r := range batch {
		if r.span == nil {
			continue
		}
		outcome := string(r.outcome)
		if r.stale != fresh {
			outcome += ": " + string(r.stale)
		}
		r.span.Set(tracing.OutcomeKey.String(outcome), tracing.ChangesKey.Int(count[r.span.Trace()]))
	}
}
