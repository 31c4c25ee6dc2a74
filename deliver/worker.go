package deliver

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/seed-86dfc502/weir/deliver/core"
	"github.com/seed-86dfc502/weir/internal/defaults"
	"github.com/seed-86dfc502/weir/internal/tracing"
	"github.com/seed-86dfc502/weir/sinks"
)

// worker brings the slices of one service, of all partitions, to its sink. core decides
// which changes to write, park or give up; the worker applies its effects.
type worker struct {
	s       *helpers
	opt     Service
	traits  sinks.Traits
	log     *slog.Logger
	m       *serviceMetrics
	wakeUp  chan struct{} // capacity 1: the queue grew, or a partition arrived or was revoked
	ctx     context.Context
	cancel  context.CancelFunc
	ended   chan struct{} // closed when run has ended
	history *recorder     // nil: none is kept

	// Guarded by the stage's mutex.
	queue   *core.Queue
	parked  int // rows
	arrived []arrival

	// Owned by run.
	core     *core.Service
	target   target
	letters  deadLetters
	guard    admission
	recovery recovery
	known    known
	slices   []*slice          // in hand
	parts    []*core.Partition // that may have changes or rows in core
	// touched: slices may have moved without an effect of core.
	touched bool
}

// helpers are the parts of a stage that its workers call.
type helpers struct {
	*shared
	saver   *saver
	others  *othersEntities
	history *recorder
	large   *largeWrites
}

// arrival is a partition that was taken over, with its rows of the service.
type arrival struct {
	p    *core.Partition
	rows []*core.Item
}

func newWorker(s *helpers, opt Service) *worker {
	opt.Retry.For = defaults.Positive(opt.Retry.For, 24*time.Hour)
	opt.Retry.MinBackoff = defaults.Positive(opt.Retry.MinBackoff, 200*time.Millisecond)
	opt.Retry.MaxBackoff = defaults.Positive(opt.Retry.MaxBackoff, 30*time.Second)
	w := &worker{
		s: s, opt: opt, traits: opt.Sink.Traits(), m: s.opt.Metrics.of(opt.Name),
		log: s.log.With("service", opt.Name), wakeUp: make(chan struct{}, 1), ended: make(chan struct{}),
		history: s.history.of(&opt),
		known:   known{most: s.opt.Memory / knownShare / int64(max(1, len(s.opt.Services)))},
	}
	sink, holds := opt.Sink.(sinks.Recoverer)
	own := opt.Pace
	pace := core.Pace{Linger: w.traits.Linger, Burst: own.Burst, Settle: own.Settle, SettleMax: own.SettleMax}
	if own.Rate > 0 {
		pace.Every = time.Duration(float64(time.Second)/own.Rate + 1)
	}
	if holds {
		pace.Settle = 0
	}
	w.core = core.New(core.Config{
		Log: w.traits.Kind == sinks.Log, Holds: holds,
		For: opt.Retry.For, MinBackoff: opt.Retry.MinBackoff, MaxBackoff: opt.Retry.MaxBackoff,
		MaxBatch: w.traits.MaxBatch, MaxBytes: w.traits.MaxBytes, Pace: pace,
	})
	w.target = target{
		sink: opt.Sink, retry: opt.Retry, grace: s.opt.StopGrace, log: w.log, m: w.m,
		changedState: w.stateChanged, idle: w.idle,
	}
	w.target.condition.pause = pauseOf(s.opt.Paused, opt.Name)
	w.target.condition.changed, w.target.condition.change = context.WithCancel(context.Background())
	w.queue = &core.Queue{
		Name: opt.Name, Number: opt.Number, MaxBytes: int64(w.traits.MaxBytes), Failing: w.target.condition.stuck(),
		Paced: own != Pace{}, Refresh: opt.Refresh, Data: w,
	}
	with := &calls{opt: s.opt, log: w.log}
	w.letters = deadLetters{calls: with, s: s.shared, service: &w.opt, kind: w.traits.Kind, m: w.m}
	w.guard = admission{calls: with, limits: opt.Guard, others: s.others, queue: w.queue}
	w.recovery = recovery{sink: sink, target: &w.target, m: w.m, mu: &s.mu, queue: w.queue, saved: s.saver.await}
	return w
}

// dropRevoked drops the changes and rows of revoked partitions. The next owner has them,
// and delivers newer ones after them; this one may be fenced however often it tries.
func (w *worker) dropRevoked() {
	var gone []*core.Partition
	w.s.mu.Lock()
	w.parts = slices.DeleteFunc(w.parts, func(p *core.Partition) bool {
		if p.Revoked() {
			gone = append(gone, p)
		}
		return p.Revoked()
	})
	w.s.mu.Unlock()
	for _, p := range gone {
		w.core.Drop(p)
		w.touched = true
	}
	if len(gone) > 0 {
		w.core.Rate.Share(len(w.parts), w.s.opt.Partitions, time.Now())
	}
	if len(w.parts) == 0 && w.target.opened && w.traits.Exclusive {
		w.target.opened = false
		if err := w.opt.Sink.Close(); err != nil {
			w.log.Warn("closing the target failed", "event", "sink.close_failed", "error", err)
		}
	}
}

// apply applies what core decided: rows and letters are written together with the
// positions that pass their changes, see saver.
func (w *worker) apply() {
	effects := w.core.Effects()
	if len(effects) == 0 && !w.touched {
		return
	}
	w.touched = false
	w.s.step(func() {
		for _, e := range effects {
			w.applyEffect(e)
		}
		w.finish()
		status := w.core.Status()
		w.queue.SetBusy(w.core.Hand.Len() > 0, w.core.Hand.Room() == 0)
		w.parked = status.Rows
		w.target.condition.park(status)
	})
}

func (w *worker) applyEffect(e core.Effect) {
	v, _ := e.Item.Data.(*delivery)
	p := e.Item.Assignment
	switch e.Kind {
	case core.Put:
		w.letters.putRow(p, e.Item, v)
	case core.End:
		p.Edit(w.letters.key(e.Item), core.RowEdit{Ended: true})
	case core.Letter:
		p.Edit(w.letters.key(e.Item), core.RowEdit{Letter: v.letter, Parked: e.Item.Row})
	case core.Settle:
		if v == nil {
			v = &delivery{} // a row whose change is not loaded
		}
		if e.Outcome == core.Abandoned {
			v.abandoned = true
			return
		}
		if e.By != nil && v.slice != nil {
			v.replacement, _ = e.By.Data.(*delivery)
		}
		if first := e.Item.KeepsPosition(); first != nil && e.Outcome == core.Coalesced {
			v.passed = true
			first.Data.(*delivery).replacement = v.replacement
		}
		w.recordOutcome(v, outcomes[e.Outcome])
	}
}

// finish advances the slices in hand to the first change that is not settled, and ends those
// without any, and those of revoked partitions; part of step.
func (w *worker) finish() {
	w.slices = slices.DeleteFunc(w.slices, func(sl *slice) bool {
		for len(sl.todo) > 0 && (sl.todo[0].passed || sl.todo[0].settled()) {
			endSpans(sl.todo[:1])
			sl.Entities += int64(sl.todo[0].change.Effect)
			sl.todo = sl.todo[1:]
		}
		over := len(sl.todo) == 0 || sl.Lane.Partition.Revoked() // then the rest is the next owner's
		if over {
			endSpans(sl.todo)
			w.s.flow.Finish(sl.Slice)
		} else {
			w.s.flow.Advance(sl.Slice, sl.todo[0].change.Position())
		}
		w.recovery.keepMark(sl.Lane)
		return over
	})
}

// recordOutcome records the outcome of a change: it is done, unless a newer one replaces
// it.
func (w *worker) recordOutcome(v *delivery, outcome string) {
	w.m.outcomes[outcome].Inc()
	if v.span != nil {
		v.span.Set(tracing.OutcomeKey.String(outcome))
	}
	if v.replacement == nil {
		v.done = true
		v.end(nil) // the rest of its frame may take longer
	}
}

// idle reports whether this process lost all partitions of the service.
func (w *worker) idle() bool {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	return len(w.arrived) == 0 && !slices.ContainsFunc(w.parts, func(p *core.Partition) bool { return !p.Revoked() })
}

// stateChanged tells the flow that the sink fails or works: the log may be read for the service.
func (w *worker) stateChanged() {
	w.s.step(func() { w.s.flow.SetFailing(w.queue, w.target.condition.stuck()) })
}

// pause sets the pause of the service in the store, nil for none, and reports whether that is new.
func (w *worker) pause(p *Pause) bool {
	if !w.target.condition.paused(p) {
		return false
	}
	if p != nil {
		w.log.Warn("paused", "event", "delivery.paused", "cause", p.Cause, "by", p.Actor, "why", p.Reason)
	} else {
		w.log.Info("resumed", "event", "delivery.resumed")
	}
	w.stateChanged()
	return true
}

// saved returns when the progress of the items' partitions is saved.
func (w *worker) saved(work context.Context, items []*core.Item) error {
	parts := make([]*core.Partition, 0, len(items))
	for _, i := range items {
		if p := i.Assignment; !slices.Contains(parts, p) {
			parts = append(parts, p)
		}
	}
	return w.s.saver.await(work, parts)
}

// reportLost reports changes that the service lost.
func (w *worker) reportLost(e core.Signal) {
	w.s.opt.Metrics.gapsOf(w.opt.Name).Inc()
	level, text := slog.LevelWarn, "changes expired before delivery; their entities are decided again"
	if w.traits.Kind == sinks.Log {
		level, text = slog.LevelError, "changes expired before delivery; this service's log has a gap"
	}
	w.log.Log(context.Background(), level, text, "event", "delivery.lost", "partition", e.Partition.Number, "from", e.From.String(), "to", e.To.String())
}
