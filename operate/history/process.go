package history

import (
	"context"
	"encoding/json"
	"time"

	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/operate/snapshot"
)

const (
	announceEvery = 15 * time.Second
	processKept   = time.Hour // of one that is silent
)

// Observe marks the differences between this process and its last announcement. It reports
// whether another announcement is due: periodically, and after a change.
func (r *Recorder) Observe(stopped bool) (due bool) {
	if r.opt.Process == nil {
		return false
	}
	now, p := r.opt.Now(), r.opt.Process()
	p.Seen, p.Stopped = now.UTC(), stopped
	marks := changes(r.announced, p)
	if len(marks) == 0 && p.Level == r.announced.Level && now.Sub(r.announced.Seen) < announceEvery {
		return false
	}
	r.announced = p
	r.mark(now, marks)
	return true
}

// announce writes the state of this process if that is due.
func (r *Recorder) announce(ctx context.Context, stopped bool) {
	if !r.Observe(stopped) {
		return
	}
	p := r.announced
	now := p.Seen
	if late, before, err := r.Look(); err == nil {
		per := late.Against(before)
		p.Taken = per(func(s *snapshot.Snapshot) float64 { return s.Taken() }).PerSecond
		p.Decided = per(func(s *snapshot.Snapshot) float64 { return snapshot.Total(s.Events) }).PerSecond
		p.Delivered = per(func(s *snapshot.Snapshot) float64 { return s.Delivered["delivered"] }).PerSecond
		p.Cached = per(func(s *snapshot.Snapshot) float64 { return s.Cached }).PerSecond
		p.Loaded = per(func(s *snapshot.Snapshot) float64 { return s.Loaded }).PerSecond
		if decided := snapshot.Total(late.Events); decided > r.decided {
			r.decided, r.decidedAt = decided, now
		}
	}
	p.LastDecision = r.decidedAt
	body, err := json.Marshal(p)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, saveTimeout)
		defer cancel()
		err = r.opt.Store.UpdateReport(ctx, operate.ProcessKind, p.Name, func([]byte) ([]byte, error) { return body, nil })
		if err == nil {
			_, err = r.opt.Store.PruneReports(ctx, operate.ProcessKind, now.Add(-processKept))
		}
	}
	if err != nil {
		r.opt.Logger.Debug("state of the process was not stored", "event", "history.process_not_stored", "error", err)
	}
}
