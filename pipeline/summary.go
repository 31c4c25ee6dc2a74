package pipeline

import (
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/decide"
)

// Summary is what a process did since it started, from its own counters.
type Summary struct {
	Read      int64             `json:"events_read"` // taken in, repeated, skipped or dead at ingest
	Repeated  int64             `json:"repeated"`    // stopped at the gate
	Stale     int64             `json:"stale"`       // older than what the entity has seen
	Noise     int64             `json:"noise"`       // nothing that matters changed
	Merged    int64             `json:"merged"`      // changed an entity
	Dead      int64             `json:"dead_letters"`
	Customers []CustomerSummary `json:"customers"`
	// Left is what a run until idle stopped before; empty when it was done.
	Left []Wait `json:"left,omitempty"`
}

// CustomerSummary sums the services of one customer.
type CustomerSummary struct {
	Customer   string `json:"customer"`
	Pruned     int64  `json:"pruned"`     // not evaluated: nothing that the projection reads changed
	Filtered   int64  `json:"filtered"`   // kept out by the filter, and the customer has nothing of it
	Incomplete int64  `json:"incomplete"` // a required source has no document yet
	Held       int64  `json:"held_back"`  // equal to what the customer has: a duplicate
	Sent       int64  `json:"sent"`       // changed for the customer, so sent on
	Delivered  int64  `json:"delivered"`  // took effect at a sink
	Coalesced  int64  `json:"coalesced"`  // replaced by a newer change before they were delivered
	Dead       int64  `json:"dead_letters"`
}

// Add adds what another customer got.
func (c *CustomerSummary) Add(o CustomerSummary) {
	c.Pruned, c.Filtered, c.Incomplete, c.Held = c.Pruned+o.Pruned, c.Filtered+o.Filtered, c.Incomplete+o.Incomplete, c.Held+o.Held
	c.Sent, c.Delivered, c.Coalesced, c.Dead = c.Sent+o.Sent, c.Delivered+o.Delivered, c.Coalesced+o.Coalesced, c.Dead+o.Dead
}

// Summarize reads the counters of a registry.
func Summarize(reg prometheus.Gatherer) (Summary, error) {
	families, err := reg.Gather()
	if err != nil {
		return Summary{}, err
	}
	var s Summary
	customers := map[string]*CustomerSummary{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			n := int64(m.GetCounter().GetValue())
			var c *CustomerSummary
			if service, ok := labels["service"]; ok {
				name, _, _ := strings.Cut(service, "/")
				if c = customers[name]; c == nil {
					c = &CustomerSummary{Customer: name}
					customers[name] = c
				}
			}
			s.add(f.GetName(), labels, n, c)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(customers)) {
		s.Customers = append(s.Customers, *customers[name])
	}
	return s, nil
}

func (s *Summary) add(name string, labels map[string]string, n int64, c *CustomerSummary) {
	switch name {
	case "weir_ingested_total":
		s.Read += n
		switch labels["outcome"] {
		case "repeated":
			s.Repeated += n
		case "dead":
			s.Dead += n
		}
	case "weir_events_total":
		switch labels["outcome"] {
		case "stale":
			s.Stale += n
		case "noise":
			s.Noise += n
		case "merged":
			s.Merged += n
		}
	case "weir_decide_dead_letters_total":
		s.Dead += n
	case "weir_decisions_total":
		switch labels["decision"] {
		case decide.DecisionSent:
			c.Sent += n
		case decide.DecisionHeldBack:
			c.Held += n
		case decide.DecisionPruned:
			c.Pruned += n
		case decide.DecisionFiltered:
			c.Filtered += n
		case decide.DecisionIncomplete:
			c.Incomplete += n
		}
	case "weir_deliveries_total":
		switch labels["outcome"] {
		case "delivered":
			c.Delivered += n
		case "coalesced", "overtaken":
			c.Coalesced += n
		case "dead":
			c.Dead += n
			s.Dead += n
		}
	}
}
