package operate

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/dustin/go-humanize/english"
	dto "github.com/prometheus/client_model/go"
)

// Status is what an operator wants to know first: what is stuck or behind, the worst
// first.
type Status struct {
	Level Level  `json:"level"`
	Error string `json:"error,omitempty"` // what keeps the process from its work
	Do    string `json:"do,omitempty"`
	// Unasked is why no process was asked: all else is what the store says then.
	Unasked string `json:"unasked,omitempty"`
	// Processes are those that told of themselves of late, and LastDecision is when they
	// decided last, if they said so. Both only with Unasked.
	Processes    []Process `json:"processes,omitempty"`
	LastDecision time.Time `json:"last_decision,omitzero"`
	// Behind are services, sources and stages for which something waits.
	Behind []Behind `json:"behind"`
	// Services is how many there are; Letters are the open dead letters by stage.
	Services int              `json:"services"`
	Letters  map[string]int64 `json:"dead_letters,omitempty"`
}

// Behind is one thing for which something waits.
type Behind struct {
	// What is the name of a service, source NAME, inbox, or imports.
	What  string `json:"what"`
	Level Level  `json:"level"`
	// Waiting is how many records or changes wait, at most.
	Waiting int64 `json:"waiting"`
	// Since is when progress stopped there; zero while there is some.
	Since time.Time `json:"since,omitzero"`
	Why   string    `json:"why"`
	Do    string    `json:"do,omitempty"`
}

// stalledFor is after what time without a delivery a service with changes is degraded: its
// alert is later.
const stalledFor = time.Minute

// StatusOf joins the health of a process with its metrics.
func StatusOf(h Health, metrics map[string]*dto.MetricFamily, now time.Time) Status {
	s := Status{Level: h.Level, Error: h.Error, Do: h.Do, Behind: []Behind{}, Letters: map[string]int64{}}
	pending, stalled, catching := byLabel(metrics, "weir_delivery_pending", "service"), byLabel(metrics, "weir_delivery_stalled_seconds", "service"), byLabel(metrics, "weir_service_behind", "service")
	s.Services = len(pending)
	unwell := map[string]bool{}
	for _, x := range h.Services {
		unwell[x.Service] = true
		s.Behind = append(s.Behind, Behind{What: x.Service, Level: x.Level, Waiting: pending[x.Service], Since: x.Since, Why: x.Error, Do: x.Do})
	}
	for name, waiting := range pending {
		if waiting == 0 || unwell[name] {
			continue
		}
		b := Behind{What: name, Level: LevelOK, Waiting: waiting, Why: "changes are being delivered"}
		age := time.Duration(stalled[name]) * time.Second
		switch {
		case age >= stalledFor:
			b.Level, b.Since = LevelDegraded, now.Add(-age).UTC().Truncate(time.Second)
			b.Why, b.Do = "nothing was delivered in this time", "see that a process delivers it (role deliver), and what its log says"
		case catching[name] > 0:
			b.Why = "it was slower than the others, and catches up apart from them"
		}
		s.Behind = append(s.Behind, b)
	}
	for _, x := range []struct{ metric, label, what, why string }{
		{"weir_source_lag", "source", "source ", "records are being taken in"},
		{"weir_outbox_rows", "source", "source ", "rows of its outbox are being taken in"},
		{"weir_inbox_lag", "", "inbox", "records are being decided"},
		{"weir_imports_open", "", "imports", "queued or running: weir import list"},
	} {
		for label, waiting := range byLabel(metrics, x.metric, x.label) {
			if waiting > 0 {
				s.Behind = append(s.Behind, Behind{What: x.what + label, Level: LevelOK, Waiting: waiting, Why: x.why})
			}
		}
	}
	for stage, n := range byLabel(metrics, "weir_dead_letters", "stage") {
		if n > 0 {
			s.Letters[stage] = n
		}
	}
	for _, x := range []struct{ metric, label, what, why, do string }{
		{"weir_reload_refused", "", "reload", "the last one was refused; the process runs on with what it had", "weir validate lists every fault"},
		{"weir_file_refused", "file", "", "the file changed and cannot be used; the process runs on with what it had", "its log says why"},
	} {
		for label, is := range byLabel(metrics, x.metric, x.label) {
			if is > 0 {
				s.Behind = append(s.Behind, Behind{What: x.what + label, Level: LevelDegraded, Why: x.why, Do: x.do})
			}
		}
	}
	s.judge()
	return s
}

// judge puts the worst first, and says how it is as a whole.
func (s *Status) judge() {
	for _, b := range s.Behind {
		if s.Level == LevelOK && b.Level != LevelOK {
			s.Level = LevelDegraded
		}
	}
	slices.SortFunc(s.Behind, func(a, b Behind) int {
		return cmp.Or(cmp.Compare(b.Level.Rank(), a.Level.Rank()), since(a, b), cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(a.What, b.What))
	})
}

// since orders what has lasted longest first, and what does not last at the end.
func since(a, b Behind) int {
	if a.Since.IsZero() != b.Since.IsZero() {
		if a.Since.IsZero() {
			return 1
		}
		return -1
	}
	return a.Since.Compare(b.Since)
}

// byLabel sums the gauges of a metric by one of their labels; by nothing when it is empty.
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

// Verdict says in a few words how it is.
func (s *Status) Verdict() string {
	unwell := 0
	for _, b := range s.Behind {
		if b.Level != LevelOK {
			unwell++
		}
	}
	switch {
	case s.Unasked != "":
		return s.Unasked
	case s.Error != "":
		return "the process does not do its work: " + s.Error
	case unwell == 0:
		return "all is well"
	}
	return fmt.Sprintf("%s not well", english.PluralWord(unwell, "1 thing is", fmt.Sprint(unwell)+" things are"))
}
