package deliver

import (
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver/core"
	"github.com/seed-86dfc502/weir/internal/tracing"
	"github.com/seed-86dfc502/weir/store"
)

// slice is a slice in hand.
type slice struct {
	*core.Slice
	todo []*delivery // the changes that are not settled, from the first on
}

// delivery is one change in hand, or loaded from its row for an attempt.
type delivery struct {
	change    change.Change
	slice     *core.Slice // nil: loaded
	done      bool
	abandoned bool // the next owner of its partition delivers it
	passed    bool // an earlier change of the entity keeps the position in its place
	// replacement is the newer change of the entity that is delivered instead.
	replacement *delivery
	span        *tracing.Span
	record      func(outcome string) // of its last attempt, in the history; nil: recorded
	letter      *store.DeadLetter    // what becomes of it
}

// settled reports whether v, or the change that replaces it, was delivered or parked or is
// another owner's: the replacement may be of another partition than v. A repetition of a
// change that was itself replaced has a replacement with a replacement.
func (v *delivery) settled() bool {
	if v.replacement == nil {
		return v.done
	}
	for v.replacement != nil {
		v = v.replacement
	}
	return v.done || v.abandoned
}

// end ends the span of a handled change, if it has one. Called once.
func (v *delivery) end(err error) {
	if v.span == nil {
		return
	}
	if err != nil {
		v.span.Fail("not delivered")
	}
	v.span.End()
}

// endSpans ends the remaining spans of a batch. Settled changes were replaced, and the
// rest is redelivered.
func endSpans(all []*delivery) {
	for _, v := range all {
		switch {
		case v.done:
		case v.settled():
			v.end(nil)
		default:
			v.end(errStopped)
		}
	}
}

// trace begins the span of the delivery of a change, and has the sink pass it on.
func (v *delivery) trace(t *tracing.Tracer, service string) {
	v.span = t.Deliver(v.change.Trace, service)
	if v.span != nil {
		v.span.Set(t.Entity(v.change.Entity), tracing.VersionKey.String(v.change.Version.String()))
	}
	v.change.Trace = v.span.Trace()
}
