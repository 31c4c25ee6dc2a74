package simulation

import (
	"fmt"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/tests/oracle"
)

// written notes a write and returns its number.
func (c *customer) written(w write) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writes = append(c.writes, w)
	return len(c.writes) - 1
}

func (c *customer) answered(n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writes[n].failed = err != nil
}

// paced checks the writes of a customer against its service's pace.
func (w *world) paced(want oracle.Expected, c *customer) error {
	p := w.setup.paces[c.service]
	if p.Rate > 0 {
		if err := w.rated(c, p.Rate, p.Burst); err != nil {
			return fmt.Errorf("%s, rate: %w", c.service, err)
		}
	}
	// A change that waits for anything else no longer rests, and newer ones go with it.
	if p.Settle > 0 && p.Rate == 0 && c.service == stateService && w.setup.maxBatch >= w.setup.entities {
		return w.rested(want[c.service], c)
	}
	return nil
}

// rated checks the rate of each sink. In a polite schedule no two of them have a partition at
// once, and together they keep it, too.
func (w *world) rated(c *customer, rate float64, burst int) error {
	var all []time.Time
	by := map[*sink][]time.Time{}
	for _, wr := range c.writes {
		for range wr.records {
			all, by[wr.by] = append(all, wr.at), append(by[wr.by], wr.at)
		}
	}
	for s, at := range by {
		if err := oracle.CheckRate(s.made, at, rate, burst); err != nil {
			return err
		}
		w.count("rate")
	}
	if !w.setup.polite() {
		return nil
	}
	w.count("rate of all")
	return oracle.CheckRate(w.began, all, rate, max(burst, w.setup.inboxParts))
}

// transit bounds the time from the inbox to the worker of a service whose process has no faults.
const transit = 5 * time.Second

// rested checks how long changes rested, up to the first write that failed: each was quiet, or
// rested for the longest time, and no longer.
func (w *world) rested(want map[string][]oracle.Change, c *customer) error {
	p := w.setup.paces[c.service]
	known := func(entity string, version uint64) time.Time {
		return w.inbox.parts[w.inbox.partitionOf([]byte(entity))][change.Version(version).Offset()].at
	}
	sent := map[string]uint64{}
	for _, wr := range c.writes {
		for _, r := range wr.records {
			if r.Version <= sent[r.Entity] {
				continue
			}
			first := r.Version // that was not sent
			for _, m := range want[r.Entity] {
				if m.Version > sent[r.Entity] {
					first = min(first, m.Version)
				}
			}
			sent[r.Entity] = r.Version
			quiet, latest := known(r.Entity, r.Version).Add(p.Settle), known(r.Entity, first).Add(p.SettleMax)
			if wr.at.Before(quiet) && wr.at.Before(latest) && w.setup.memory == plenty {
				return fmt.Errorf("%s, entity %s: version %d did not rest: %v before it is quiet", c.service, r.Entity, r.Version, quiet.Sub(wr.at))
			}
			if w.setup.gentle && len(w.setup.outages) == 0 && wr.at.After(latest.Add(transit)) {
				return fmt.Errorf("%s, entity %s: version %d rested for %v too long, up to version %d", c.service, r.Entity, first, wr.at.Sub(latest), r.Version)
			}
			w.count("rest")
		}
		if wr.failed {
			break
		}
	}
	return nil
}
