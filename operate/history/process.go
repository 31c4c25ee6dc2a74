package history

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/seed-86dfc502/weir/operate/snapshot"
	"github.com/seed-86dfc502/weir/store"
)

// Process is one process of a deployment, as it told of itself last.
type Process struct {
	Name     string    `json:"name"` // host and number of the process
	Roles    string    `json:"roles"`
	Version  string    `json:"version"`
	Revision int64     `json:"revision"` // of the configuration that it works under
	Started  time.Time `json:"started"`
	Seen     time.Time `json:"seen"`
	Stopped  bool      `json:"stopped,omitempty"` // it ended in order
	Level    string    `json:"level"`             // ok, degraded, down
	Error    string    `json:"error,omitempty"`
	// What it does per second.
	Taken     float64 `json:"taken"`
	Decided   float64 `json:"decided"`
	Delivered float64 `json:"delivered"`
}

// Silent is after what time without news a process is not taken for alive.
const Silent = time.Minute

// ProcessKind is the kind of the reports in which processes tell of themselves, by
// their names.
const ProcessKind = "process"

const (
	announceEvery = 15 * time.Second
	processKept   = time.Hour // of one that is silent
)

// announce writes down how this process is doing, now and then.
func (r *Recorder) announce(ctx context.Context, stopped bool) {
	if r.opt.Process == nil {
		return
	}
	now := r.opt.Now()
	if !stopped && now.Sub(r.announced) < announceEvery {
		return
	}
	r.announced = now
	p := r.opt.Process()
	p.Seen, p.Stopped = now.UTC(), stopped
	if late, before, err := r.Look(); err == nil {
		per := late.Against(before)
		p.Taken = per(func(s *snapshot.Snapshot) float64 { return s.Taken() }).PerSecond
		p.Decided = per(func(s *snapshot.Snapshot) float64 { return snapshot.Total(s.Events) }).PerSecond
		p.Delivered = per(func(s *snapshot.Snapshot) float64 { return s.Delivered["delivered"] }).PerSecond
	}
	body, err := json.Marshal(p)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, saveTimeout)
		defer cancel()
		err = r.opt.Store.UpdateReport(ctx, ProcessKind, p.Name, func([]byte) ([]byte, error) { return body, nil })
		if err == nil {
			_, err = r.opt.Store.PruneReports(ctx, ProcessKind, now.Add(-processKept))
		}
	}
	if err != nil {
		r.opt.Logger.Debug("the list of processes does not have the latest of this one", "error", err)
	}
}

// Processes returns those that told of themselves within the last hour, the ones
// that are alive first.
func Processes(ctx context.Context, s store.Reports) ([]Process, error) {
	reports, err := s.ListReports(ctx, ProcessKind)
	if err != nil {
		return nil, err
	}
	var all []Process
	for _, report := range reports {
		var p Process
		if json.Unmarshal(report.Body, &p) == nil {
			all = append(all, p)
		}
	}
	slices.SortStableFunc(all, func(a, b Process) int {
		if a.Stopped != b.Stopped {
			return map[bool]int{true: 1, false: -1}[a.Stopped]
		}
		return strings.Compare(a.Name, b.Name)
	})
	return all, nil
}
