package operate

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

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
	// Health has of the services that are not well the worst MaxUnwell.
	Health
	// Rates per second.
	Taken     float64 `json:"taken"`
	Decided   float64 `json:"decided"`
	Delivered float64 `json:"delivered"`
	// Cached and Loaded are the entities that decisions found in memory and read from the store.
	Cached float64 `json:"cached,omitempty"`
	Loaded float64 `json:"loaded,omitempty"`
	// LastDecision is the time of its last known decision, or zero.
	LastDecision time.Time `json:"last_decision,omitzero"`
}

// MaxUnwell bounds the services of a Process.
const MaxUnwell = 20

// ProcessKind is the kind of the reports in which processes tell of themselves, by
// their names.
const ProcessKind = "process"

// silentAfter is how long a process may stay silent before it counts as dead.
const silentAfter = time.Minute

// Silent reports whether it told nothing of itself for a while, and did not say that it stops.
func (p *Process) Silent(now time.Time) bool { return !p.Stopped && now.Sub(p.Seen) > silentAfter }

// Alive reports whether it told of itself of late, and did not stop.
func (p *Process) Alive(now time.Time) bool { return !p.Stopped && !p.Silent(now) }

// ReportLister lists the reports of a kind.
type ReportLister interface {
	ListReports(ctx context.Context, kind string) ([]store.Report, error)
}

// Processes returns the processes that reported recently, stopped ones last.
func Processes(ctx context.Context, s ReportLister) ([]Process, error) {
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

// AddElsewhere adds to the health of a process the problems that other live processes reported
// and it does not have, and makes its level degraded then. name is its own.
func (h *Health) AddElsewhere(all []Process, name string, now time.Time) {
	known := map[string]bool{}
	for _, s := range h.Services {
		known[s.Service] = true
	}
	for _, i := range h.Problems {
		known[i.What] = true
	}
	add := func(p *Process, i Item) {
		if !known[i.What] {
			known[i.What] = true
			i.Why = "in process " + p.Name + ": " + i.Why
			h.Pending = append(h.Pending, i)
			if h.Level == LevelOK {
				h.Level = LevelDegraded
			}
		}
	}
	for n := range all {
		p := &all[n]
		if p.Name == name || !p.Alive(now) {
			continue
		}
		if p.Error != "" && p.Reason != "superseded" {
			add(p, Item{What: "process " + p.Name, Level: LevelDegraded, Since: p.Since, NextTry: p.NextTry, Why: p.Error, Do: p.Do})
		}
		for _, i := range p.Problems {
			add(p, i)
		}
		for _, s := range p.Services {
			if !s.Waits() { // every process knows that
				add(p, Item{What: s.Service, Level: s.Level, Since: s.Since, NextTry: s.NextTry, Why: s.Error, Do: s.Do, Hold: s.Hold})
			}
		}
	}
}
