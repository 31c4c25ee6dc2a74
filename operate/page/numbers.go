package page

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// numbers are the process's metrics at one time, as far as the page shows them.
// Sums are over all labels that are not named.
type numbers struct {
	at        time.Time
	Ingested  map[string]float64 // by outcome
	Events    map[string]float64 // by outcome
	Decisions map[string]float64 // by decision
	Delivered map[string]float64 // by outcome
	Failures  float64            // failed attempts
	SourceLag float64
	InboxLag  float64
	Pending   float64
	Letters   map[string]float64 // open, by stage
	Services  map[string]*serviceNumbers

	// Of the API, where the process serves it.
	API          bool
	Answers      map[string]float64 // by the first digit of the status
	Repeated     float64
	Undecided    float64 // requests of check services
	OpenImports  float64
	ImportsEnded map[string]float64 // by state
}

// serviceNumbers are those of one service.
type serviceNumbers struct {
	Decisions map[string]float64
	Delivered map[string]float64
	Failures  float64
	Pending   float64
	Behind    float64 // partitions of this process in which it is fed apart from the others
	AgeSum    float64 // of deliveries, in seconds
	AgeCount  float64
	Reported  bool // this process knows what is pending
}

func newNumbers(at time.Time) *numbers {
	return &numbers{
		at: at, Ingested: map[string]float64{}, Events: map[string]float64{}, Decisions: map[string]float64{},
		Delivered: map[string]float64{}, Letters: map[string]float64{}, Services: map[string]*serviceNumbers{},
		Answers: map[string]float64{}, ImportsEnded: map[string]float64{},
	}
}

func (n *numbers) service(name string) *serviceNumbers {
	s := n.Services[name]
	if s == nil {
		s = &serviceNumbers{Decisions: map[string]float64{}, Delivered: map[string]float64{}}
		n.Services[name] = s
	}
	return s
}

func total(m map[string]float64) (sum float64) {
	for _, v := range m {
		sum += v
	}
	return sum
}

// gather reads a registry.
func gather(registry prometheus.Gatherer, at time.Time) (*numbers, error) {
	families, err := registry.Gather()
	if err != nil {
		return nil, err
	}
	n := newNumbers(at)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			h := m.GetHistogram()
			n.add(f.GetName(), labels, value{m.GetCounter().GetValue(), m.GetGauge().GetValue(), h.GetSampleSum(), float64(h.GetSampleCount())})
		}
	}
	return n, nil
}

// value is one series, of whatever type.
type value struct{ counter, gauge, sum, samples float64 }

func (n *numbers) add(name string, labels map[string]string, v value) {
	count, level := v.counter, v.gauge
	switch name {
	case "weir_ingested_total":
		n.Ingested[labels["outcome"]] += count
	case "weir_import_rows_total": // an imported row is an event that was taken in, or known
		switch labels["status"] {
		case "accepted":
			n.Ingested["taken"] += count
		case "duplicate":
			n.Ingested["repeated"] += count
		}
	case "weir_events_total":
		n.Events[labels["outcome"]] += count
	case "weir_decisions_total":
		n.Decisions[labels["decision"]] += count
		n.service(labels["service"]).Decisions[labels["decision"]] += count
	case "weir_deliveries_total":
		n.Delivered[labels["outcome"]] += count
		n.service(labels["service"]).Delivered[labels["outcome"]] += count
	case "weir_delivery_failures_total":
		n.Failures += count
		n.service(labels["service"]).Failures += count
	case "weir_delivery_age_seconds":
		s := n.service(labels["service"])
		s.AgeSum += v.sum
		s.AgeCount += v.samples
	case "weir_source_lag":
		n.SourceLag += level
	case "weir_inbox_lag":
		n.InboxLag += level
	case "weir_delivery_pending":
		n.Pending += level
		s := n.service(labels["service"])
		s.Pending, s.Reported = level, true
	case "weir_service_behind":
		n.service(labels["service"]).Behind = level
	case "weir_dead_letters":
		n.Letters[labels["stage"]] += level
	case "weir_api_requests_total":
		n.API = true
		n.Answers[labels["status"][:min(1, len(labels["status"]))]] += count
	case "weir_idempotency_replays_total":
		n.Repeated += count
	case "weir_checks_total":
		if labels["decision"] == "undecided" {
			n.Undecided += count
		}
	case "weir_imports_open":
		n.OpenImports += level
	case "weir_imports_ended_total":
		n.ImportsEnded[labels["state"]] += count
	}
}

// Rates are taken over this long, or over what there is of it.
const (
	rateSpan  = 10 * time.Second
	shortest  = time.Second
	keepLooks = 30 * time.Second
)

// sampler remembers the last looks at the registry; there is no loop behind it,
// pages that are open keep it going. Safe for concurrent use.
type sampler struct {
	registry prometheus.Gatherer
	now      func() time.Time
	mu       sync.Mutex
	looks    []*numbers // the oldest first; guarded by mu
}

// look returns the numbers now and those to take rates against: the latest that is
// at least rateSpan old, else the oldest; nil when there is none yet.
func (s *sampler) look() (now, before *numbers, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now, err = gather(s.registry, s.now()); err != nil {
		return nil, nil, err
	}
	for len(s.looks) > 0 && now.at.Sub(s.looks[0].at) > keepLooks {
		s.looks = s.looks[1:]
	}
	for _, l := range s.looks {
		age := now.at.Sub(l.at)
		if age < shortest || before != nil && age < rateSpan {
			break
		}
		before = l
	}
	if len(s.looks) == 0 || now.at.Sub(s.looks[len(s.looks)-1].at) >= shortest {
		s.looks = append(s.looks, now)
	}
	return now, before, nil
}

// rate is a number per second; not Known before there are two looks.
type rate struct {
	Known     bool
	PerSecond float64
}

// against returns a function that takes rates of what f picks.
func (n *numbers) against(before *numbers) func(f func(*numbers) float64) rate {
	return func(f func(*numbers) float64) rate {
		if before == nil {
			return rate{}
		}
		return rate{true, max(0, f(n)-f(before)) / n.at.Sub(before.at).Seconds()}
	}
}
