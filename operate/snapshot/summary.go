package snapshot

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/decide"
)

// Summary has the work of a process since its start, from its own counters.
type Summary struct {
	Read      int64             `json:"events_read"` // ingested, repeated, skipped or dead at ingest
	Repeated  int64             `json:"repeated"`    // stopped at the gate
	Stale     int64             `json:"stale"`       // older than the entity's known position or sequence
	Noise     int64             `json:"noise"`       // nothing that matters changed
	Merged    int64             `json:"merged"`      // changed an entity
	Dead      int64             `json:"dead_letters"`
	Customers []CustomerSummary `json:"customers"`
}

// CustomerSummary sums the services of one customer.
type CustomerSummary struct {
	Customer   string `json:"customer"`
	Pruned     int64  `json:"pruned"`     // not evaluated: nothing that the projection reads changed
	Filtered   int64  `json:"filtered"`   // kept out by the filter, and the customer has nothing of it
	Incomplete int64  `json:"incomplete"` // a required source has no document yet
	Held       int64  `json:"held_back"`  // equal to the customer's last one: a duplicate
	Sent       int64  `json:"sent"`       // changed for the customer, so sent on
	Delivered  int64  `json:"delivered"`  // took effect at a sink
	Coalesced  int64  `json:"coalesced"`  // replaced by a newer change before they were delivered
	Dead       int64  `json:"dead_letters"`
}

// Sum adds up what all customers got.
func (s *Summary) Sum() (sum CustomerSummary) {
	for _, c := range s.Customers {
		sum.add(c)
	}
	return sum
}

func (c *CustomerSummary) add(o CustomerSummary) {
	c.Pruned, c.Filtered, c.Incomplete, c.Held = c.Pruned+o.Pruned, c.Filtered+o.Filtered, c.Incomplete+o.Incomplete, c.Held+o.Held
	c.Sent, c.Delivered, c.Coalesced, c.Dead = c.Sent+o.Sent, c.Delivered+o.Delivered, c.Coalesced+o.Coalesced, c.Dead+o.Dead
}

// Summarize reads the counters of a registry.
func Summarize(reg prometheus.Gatherer) (Summary, error) {
	now, err := Take(reg, time.Now())
	if err != nil {
		return Summary{}, err
	}
	s := Summary{
		Read: int64(Total(now.Ingested)), Repeated: int64(now.Ingested["repeated"]), Stale: int64(now.Events["stale"]), Noise: int64(now.Events["noise"]), Merged: int64(now.Events["merged"]),
		Dead: int64(now.Ingested["dead"] + now.DecideDead + now.Delivered["dead"]),
	}
	customers := map[string]*CustomerSummary{}
	for service, n := range now.Services {
		name, _, _ := strings.Cut(service, "/")
		c := customers[name]
		if c == nil {
			c = &CustomerSummary{Customer: name}
			customers[name] = c
		}
		decided, delivered := n.Decisions, n.Delivered
		c.add(CustomerSummary{
			Pruned: int64(decided[decide.DecisionPruned]), Filtered: int64(decided[decide.DecisionFiltered]), Incomplete: int64(decided[decide.DecisionIncomplete]),
			Held: int64(decided[decide.DecisionHeldBack]), Sent: int64(decided[decide.DecisionSent]),
			Delivered: int64(delivered["delivered"]), Coalesced: int64(delivered["coalesced"] + delivered["overtaken"]), Dead: int64(delivered["dead"]),
		})
	}
	for _, name := range slices.Sorted(maps.Keys(customers)) {
		s.Customers = append(s.Customers, *customers[name])
	}
	return s, nil
}
