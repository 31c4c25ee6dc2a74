package operate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize/english"
	dto "github.com/prometheus/client_model/go"
)

// Status is the state of a pipeline on one screen.
type Status struct {
	Level Level `json:"level"`
	// Error is the error that blocks the process, since Since. Do is the remedy.
	Error string    `json:"error,omitempty"`
	Since time.Time `json:"since,omitzero"`
	// NextTry is when the process checks again.
	NextTry time.Time `json:"next_try,omitzero"`
	Do      string    `json:"do,omitempty"`
	// Unasked is why no process answered. All other fields then come from the store.
	Unasked string `json:"unasked,omitempty"`
	// Processes reported their state to the store lately; LastDecision is the newest
	// decision among them. Both only with Unasked.
	Processes    []Process `json:"processes,omitempty"`
	LastDecision time.Time `json:"last_decision,omitzero"`
	// Items are problems and queues, the worst first.
	Items []Item `json:"items"`
	// Services is how many there are; Letters are the open dead letters by stage.
	Services int              `json:"services"`
	Letters  map[string]int64 `json:"dead_letters,omitempty"`
}

const (
	// quietFor is how long a service with queued changes may go without a delivery before
	// the status says so.
	quietFor = 10 * time.Second
	// stalledFor is how long until it is degraded. Its alert comes later.
	stalledFor = time.Minute
)

const (
	delivering = "changes are being delivered"
	waiting    = "paced: changes wait on purpose"
)

// StatusOf joins the health of a process with its metrics.
func StatusOf(h Health, metrics map[string]*dto.MetricFamily, now time.Time) Status {
	s := Status{Level: h.Level, Error: h.Error, Since: h.Since, NextTry: h.NextTry, Do: h.Do, Items: slices.Concat(h.Problems, h.Pending)}
	queued, stalled, lagging := byLabel(metrics, "weir_delivery_queued", "service"), byLabel(metrics, "weir_delivery_stalled_seconds", "service"), byLabel(metrics, "weir_service_behind", "service")
	oldest := func(service string) (at time.Time) {
		if n := byLabel(metrics, "weir_delivery_oldest_timestamp_seconds", "service")[service]; n > 0 {
			at = time.Unix(n, 0).UTC()
		}
		return at
	}
	s.Services = h.Configured
	unwell := map[string]bool{}
	for i := range s.Items { // of another process
		if what := s.Items[i].What; queued[what] > 0 {
			unwell[what] = true
			s.Items[i].Queued, s.Items[i].AtMost, s.Items[i].Oldest = queued[what], true, oldest(what)
		}
	}
	for _, x := range h.Services {
		unwell[x.Service] = true
		n := queued[x.Service]
		s.Items = append(s.Items, Item{What: x.Service, Level: x.Level, Queued: n + x.Parked, AtMost: n > 0, Oldest: oldest(x.Service), Since: x.Since, NextTry: x.NextTry, Why: x.Error, Do: x.Do, Hold: x.Hold})
	}
	obstacle := h.obstacle()
	queue := func(i Item) {
		if obstacle != "" && i.Level == LevelOK {
			i.Level, i.Why = LevelUnknown, "progress is unknown, and the number is an earlier one: "+obstacle
		}
		s.Items = append(s.Items, i)
	}
	for name, n := range queued {
		if n == 0 || unwell[name] {
			continue
		}
		i := Item{What: name, Level: LevelOK, Queued: n, AtMost: true, Oldest: oldest(name), Why: delivering}
		age := time.Duration(stalled[name]) * time.Second
		switch {
		case slices.Contains(h.Paced, name):
			i.Why = waiting
		case age >= stalledFor && obstacle == "":
			i.Level, i.Since = LevelDegraded, now.Add(-age).UTC().Truncate(time.Second)
			i.Why, i.Do = "nothing was delivered since then", "check that a process delivers it (role work), and read its log"
		case age >= quietFor:
			i.Why = fmt.Sprintf("nothing was delivered for %s", age.Truncate(time.Second))
		case lagging[name] > 0:
			i.Why = "it is slower than the others and catches up separately"
		}
		queue(i)
	}
	for _, x := range []struct{ metric, label, what, why string }{
		{"weir_source_lag", "source", "source ", "records are being ingested"},
		{"weir_outbox_rows", "source", "source ", "rows of its outbox are being ingested"},
		{"weir_inbox_lag", "", "inbox", "records are being decided"},
	} {
		for label, n := range byLabel(metrics, x.metric, x.label) {
			if what := x.what + label; n > 0 && !slices.ContainsFunc(s.Items, func(i Item) bool { return i.What == what }) {
				queue(Item{What: what, Level: LevelOK, Queued: n, Why: x.why})
			}
		}
	}
	s.Letters = byLabel(metrics, "weir_dead_letters", "stage")
	maps.DeleteFunc(s.Letters, func(_ string, n int64) bool { return n == 0 })
	s.judge()
	return s
}

// judge sorts the items and derives the level of the whole.
func (s *Status) judge() {
	if s.Level == LevelOK && s.problems() > 0 {
		s.Level = LevelDegraded
	}
	s.Sort()
}

// Sort orders the items, the worst first.
func (s *Status) Sort() { slices.SortFunc(s.Items, compareItems) }

// problems counts the items that need attention.
func (s *Status) problems() (n int) {
	for _, i := range s.Items {
		if i.Level.Rank() > 0 {
			n++
		}
	}
	return n
}

// byLabel sums the gauges of a metric by a label, or all of them for an empty label.
func byLabel(metrics map[string]*dto.MetricFamily, name, label string) map[string]int64 {
	found := map[string]int64{}
	for _, m := range metrics[name].GetMetric() {
		value := ""
		for _, l := range m.GetLabel() {
			if l.GetName() == label {
				value = l.GetValue()
			}
		}
		found[value] += int64(m.GetGauge().GetValue())
	}
	return found
}

// Verdict is the first line of a status.
func (s *Status) Verdict() string {
	n := s.problems()
	switch {
	case s.Unasked != "":
		return s.Unasked
	case s.Error != "":
		return "the process does not do its work: " + strings.TrimSuffix(s.Error, ".")
	case n == 0:
		return "all is well"
	}
	return english.PluralWord(n, "1 problem", fmt.Sprint(n)+" problems")
}
