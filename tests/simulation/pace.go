package simulation

import (
	"fmt"
	"slices"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/decide"
	"github.com/seed-86dfc502/weir/tests/oracle"
)

// paced checks the writes of a customer against its service's pace.
func (w *world) paced(want oracle.Expected, c *customer) error {
	p := w.setup.paces[c.service]
	if p.Rate > 0 {
		if err := w.rated(c, p.Rate, p.Burst); err != nil {
			return fmt.Errorf("%s, rate: %w", c.service, err)
		}
	}
	// A change that waits for anything else no longer rests, and newer ones go with it.
	if p.Settle > 0 && p.Rate == 0 && c.service == stateService && w.setup.maxBatch >= w.setup.entities && w.setup.memory == plenty && !w.restore {
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
// rested for the longest time. Where nothing fails it rested no longer, or once more in the place
// of one that was overtaken as it was written.
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
			unsent := slices.IndexFunc(want[r.Entity], func(m oracle.Change) bool { return m.Version > sent[r.Entity] })
			all := want[r.Entity]
			first, passed := all[unsent].Version, unsent // up to where the target may have had it
			for i := unsent; unsent > 0 && i < len(all)-1 && all[i].Version < r.Version; i++ {
				if all[i].Same(all[unsent-1]) {
					passed = i + 1
				}
			}
			sent[r.Entity] = r.Version
			quiet, latest := known(r.Entity, r.Version).Add(p.Settle), known(r.Entity, first).Add(p.SettleMax)
			if wr.at.Before(quiet) && wr.at.Before(latest) {
				return fmt.Errorf("%s, entity %s: version %d did not rest: %v before it is quiet", c.service, r.Entity, r.Version, quiet.Sub(wr.at))
			}
			first = all[passed].Version
			latest = known(r.Entity, first).Add(p.SettleMax)
			if w.setup.gentle && len(w.setup.outages) == 0 && wr.at.After(latest.Add(p.SettleMax+transit)) {
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

// lapTime bounds the time from an entity's time in the period to its refresh in the inbox, if
// nothing fails.
const lapTime = 4 * time.Second

// refreshes checks when entities of a customer's service were refreshed: once a period at most, and
// at least while nothing else happened.
func (w *world) refreshes(want oracle.Expected, c *customer) error {
	period := w.setup.refreshes[c.service]
	live := slices.ContainsFunc(w.newest().plan.Services, func(s decide.Service) bool { return s.Name == c.service })
	large := map[string]bool{} // entities that have been
	for id := range w.model.TooLarge {
		large[id.Entity] = true
	}
	for id, cs := range want[c.service] {
		at := w.refreshed[oracle.ID{Service: c.service, Entity: id}]
		if period == 0 {
			if len(at) > 0 {
				return fmt.Errorf("%s, entity %s: %d refreshes of a service without", c.service, id, len(at))
			}
			continue
		}
		for i, t := range at {
			if w.restore { // the store forgot some
				break
			}
			for n, before := range slices.Backward(at[:i]) {
				if i-n > 1+int(t.Sub(before)/period) {
					return fmt.Errorf("%s, entity %s: %d refreshes in %v", c.service, id, i-n+1, t.Sub(before))
				}
			}
		}
		// Content that the target was not given is not refreshed.
		if last := &cs[len(cs)-1]; !live || w.setup.refusals || large[id] || last.Op == "retract" || w.refused[oracle.ID{Service: c.service, Entity: id, Version: last.Version}] {
			continue
		}
		last, most := w.idle[0], period+lapTime
		if w.setup.paces[c.service].Settle > 0 { // a change that rests is not refreshed
			most += period
		}
		for _, t := range append(slices.Clone(at), w.idle[1]) {
			if wait := t.Sub(last); wait > most {
				return fmt.Errorf("%s, entity %s: no refresh for %v after %v", c.service, id, wait, last.Sub(w.began))
			} else if wait > 0 {
				last = t
			}
		}
		w.count("refresh")
	}
	return nil
}
