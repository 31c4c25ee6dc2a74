package decide

import (
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/tracing"
	"github.com/seed-86dfc502/weir/store"
)

// Why something is decided again, the values of weir.cause.
const (
	causeLetter  = "dead letter" // one is replayed
	causeReset   = "reset"
	causeReplay  = "replay"  // also a backfill, and what a reconcile found
	causeRepair  = "repair"  // by Weir itself: a change was refused, or is gone
	causeRefresh = "refresh" // unchanged, after the service's period
)

// spanOf returns the span of a record: of the trace that it came with, or its own for a requested
// decision.
func (d *Decider) spanOf(span *tracing.Span, r *record) *tracing.Span {
	if span != nil {
		return span
	}
	switch c := r.Control; {
	case c != nil && c.Action == change.Purge: // housekeeping
	case c != nil:
		cause := causeReplay
		switch {
		case c.Letter != 0:
			cause = causeLetter
		case c.Actor == change.Deliver:
			cause = causeRepair
		case c.Actor == change.Refresh:
			cause = causeRefresh
		case c.Action == change.Reset:
			cause = causeReset
		}
		span = d.opt.Tracer.Repeat(cause, c.Operation, c.Trace)
	case r.Event != nil && r.Event.Replay != nil:
		span = d.opt.Tracer.Repeat(causeLetter, r.Event.Replay.Operation, r.Event.Replay.Trace)
	}
	return span
}

// endSpan ends the span of a record, if it has one, when the record was handled.
func (d *Decider) endSpan(r *record, err error) {
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
func (w *worker) batchSpan(batch []*record) *tracing.Span {
	if w.d.opt.Tracer == nil {
		return nil
	}
	var spans []*tracing.Span
	for _, r := range batch {
		if r.span != nil {
			spans = append(spans, r.span)
		}
	}
	return w.d.opt.Tracer.Batch("decide batch", spans, len(batch))
}

// endBatchSpan ends the span of a transaction and notes the outcomes of its traced records.
func endBatchSpan(span *tracing.Span, batch []*record, err error) {
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
	for _, r := range batch {
		if r.span == nil {
			continue
		}
		outcome := string(r.outcome)
		if r.stale != fresh {
			outcome += ": " + string(r.stale)
		}
		r.span.Set(tracing.OutcomeKey.String(outcome), tracing.ChangesKey.Int(len(r.sent)))
	}
}
