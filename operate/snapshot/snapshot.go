// Package snapshot reads a process's own metrics: the one reader behind the
// summary of a run, the operators' page and its history.
//
// A [Snapshot] holds the values of a registry at one time, summed over labels without a
// reader. Counters count since the process started, so rates and
// histories are differences between two snapshots of one process.
package snapshot

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Snapshot has the values of a registry at one time. It is not changed after Take, so
// it may be read from any goroutine; maps have an entry for each value of the
// label that was seen.
type Snapshot struct {
	At time.Time

	Ingested  map[string]float64 // events read, by outcome: taken, repeated, dead, skipped
	Events    map[string]float64 // inbox records, by outcome: stale, noise, merged, control, dead
	Decisions map[string]float64 // by decision
	Delivered map[string]float64 // changes, by outcome: delivered, coalesced, overtaken, dead, …
	Failures  float64            // failed attempts at sinks

	DecideDead float64 // dead letters of decide
	Cached     float64 // entities that a decision found in memory
	Loaded     float64 // entities that a decision read from the store

	SourceLag float64 // records of sources that are not ingested
	InboxLag  float64 // inbox records that are not decided
	Pending   float64 // changes that are not delivered, at most

	Letters  map[string]float64 // open dead letters, by stage
	Sources  map[string]*Source
	Services map[string]*Service
}

// Source has the metrics of one source.
type Source struct {
	Taken    float64 // durable in the inbox
	Repeated float64 // stopped at the gate
	Dead     float64
	Noise    float64 // decided, and nothing that matters changed
	Lag      float64 // records or rows that are not ingested
	Oldest   float64 // for how long the oldest of them has waited, in seconds, where that is known
	LagKnown bool
}

// Service has the metrics of one service.
type Service struct {
	Decisions map[string]float64
	Delivered map[string]float64
	Failures  float64
	Pending   float64
	Behind    float64 // partitions of this process in which it is fed apart from the others
	AgeSum    float64 // of deliveries, from the event's entry, in seconds
	AgeCount  float64
	Reported  bool      // this process knows what is pending
	Oldest    time.Time // of the queued changes, where it is known
}

// Service returns the metrics of a service: zeros for an unknown one.
func (s *Snapshot) Service(name string) *Service {
	if found := s.Services[name]; found != nil {
		return found
	}
	return &Service{}
}

// Source returns the metrics of a source: zeros for an unknown one.
func (s *Snapshot) Source(name string) *Source {
	if found := s.Sources[name]; found != nil {
		return found
	}
	return &Source{}
}

// Taken is how many events are durable in the inbox.
func (s *Snapshot) Taken() float64 { return s.Ingested["taken"] }

// Total sums a map.
func Total(m map[string]float64) (sum float64) {
	for _, v := range m {
		sum += v
	}
	return sum
}

// Take reads a registry. Its error is the registry's.
func Take(registry prometheus.Gatherer, at time.Time) (*Snapshot, error) {
	families, err := registry.Gather()
	if err != nil {
		return nil, err
	}
	s := &Snapshot{
		At: at, Ingested: map[string]float64{}, Events: map[string]float64{}, Decisions: map[string]float64{},
		Delivered: map[string]float64{}, Letters: map[string]float64{}, Sources: map[string]*Source{}, Services: map[string]*Service{},
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			h := m.GetHistogram()
			v := value{m.GetCounter().GetValue(), m.GetGauge().GetValue(), h.GetSampleSum(), float64(h.GetSampleCount())}
			s.addFlow(f.GetName(), labels, v)
			s.addLevels(f.GetName(), labels, v.level)
		}
	}
	return s, nil
}

// value is one series, of any type.
type value struct{ count, level, sum, samples float64 }

// addFlow adds the counters of the stages.
func (s *Snapshot) addFlow(name string, labels map[string]string, v value) {
	switch name {
	case "weir_ingest_events_total":
		s.Ingested[labels["outcome"]] += v.count
		source := s.source(labels["source"])
		switch labels["outcome"] {
		case "taken":
			source.Taken += v.count
		case "repeated":
			source.Repeated += v.count
		case "dead":
			source.Dead += v.count
		}
	case "weir_events_total":
		s.Events[labels["outcome"]] += v.count
		if labels["outcome"] == "noise" {
			s.source(labels["source"]).Noise += v.count
		}
	case "weir_decide_dead_letters_total":
		s.DecideDead += v.count
	case "weir_decide_cache_lookups_total":
		if labels["result"] == "hit" {
			s.Cached += v.count
		} else {
			s.Loaded += v.count
		}
	case "weir_decisions_total":
		s.Decisions[labels["decision"]] += v.count
		s.service(labels["service"]).Decisions[labels["decision"]] += v.count
	case "weir_deliveries_total":
		s.Delivered[labels["outcome"]] += v.count
		s.service(labels["service"]).Delivered[labels["outcome"]] += v.count
	case "weir_delivery_failures_total":
		s.Failures += v.count
		s.service(labels["service"]).Failures += v.count
	case "weir_delivery_age_seconds":
		service := s.service(labels["service"])
		service.AgeSum += v.sum
		service.AgeCount += v.samples
	}
}

// addLevels adds the gauges of queues.
func (s *Snapshot) addLevels(name string, labels map[string]string, level float64) {
	switch name {
	case "weir_source_lag", "weir_outbox_rows":
		source := s.source(labels["source"])
		source.Lag, source.LagKnown = level, true
		s.SourceLag += level
	case "weir_outbox_oldest_seconds":
		s.source(labels["source"]).Oldest = level
	case "weir_inbox_lag":
		s.InboxLag += level
	case "weir_delivery_queued":
		s.Pending += level
		service := s.service(labels["service"])
		service.Pending, service.Reported = level, true
	case "weir_delivery_oldest_timestamp_seconds":
		s.service(labels["service"]).Oldest = time.Unix(int64(level), 0).UTC()
	case "weir_service_behind":
		s.service(labels["service"]).Behind = level
	case "weir_dead_letters":
		s.Letters[labels["stage"]] += level
	}
}

func (s *Snapshot) source(name string) *Source {
	found := s.Sources[name]
	if found == nil {
		found = &Source{}
		s.Sources[name] = found
	}
	return found
}

func (s *Snapshot) service(name string) *Service {
	found := s.Services[name]
	if found == nil {
		found = &Service{Decisions: map[string]float64{}, Delivered: map[string]float64{}}
		s.Services[name] = found
	}
	return found
}

// Rate is a number per second. It is not Known before there are two snapshots.
type Rate struct {
	Known     bool
	PerSecond float64
}

// Against returns a function that computes the rate, since before, of the value that f selects. A
// counter that decreased counts as unchanged. before may be nil.
func (s *Snapshot) Against(before *Snapshot) func(f func(*Snapshot) float64) Rate {
	return func(f func(*Snapshot) float64) Rate {
		if before == nil || !s.At.After(before.At) {
			return Rate{}
		}
		return Rate{true, max(0, f(s)-f(before)) / s.At.Sub(before.At).Seconds()}
	}
}
