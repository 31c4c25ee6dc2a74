package simulation

import (
	"time"

	"github.com/seed-86dfc502/weir/deliver"
)

// setup is the first draw of a seed.
type setup struct {
	variant                                                         variant
	processes, registryParts, inboxParts, workers, entities, events int
	maxEvents, maxBatch, frame                                      int
	fault                                                           float64 // chance of a failure per call
	crashes, disturbances                                           int
	gentle                                                          bool // nothing happens to processes and deliveries: even a sink without guard must be exact
	bare                                                            bool // processes die, but nothing of them lands later: a state without guard never goes back
	sameDatabase                                                    bool // what state customers have goes back with the store
	refusals                                                        bool
	guarded                                                         bool
	sequences                                                       bool
	forgets                                                         bool  // the log of frames loses the oldest
	restores                                                        bool  // the first disturbance is a backup, the last one its restore
	memory                                                          int64 // of deliver, in bytes
	cache                                                           int64 // of decide, likewise: often room for one entity, or not all
	renews                                                          bool  // the inbox gets another generation
	deploys                                                         bool  // another configuration comes
	next                                                            variant
	purges                                                          int  // how often tombstones are asked to go
	maxOutcome, maxFrame                                            int  // of decide, in bytes; 0: as much as it takes
	oversizes                                                       bool // some documents make changes that are too large
	outages                                                         []outage
	paces                                                           map[string]deliver.Pace  // by service
	refreshes                                                       map[string]time.Duration // how often entities of services are sent again
	period                                                          time.Duration            // of refreshes; 0: none
	span                                                            time.Duration
}

// outage is a while in which the sink of a service fails or is slow.
type outage struct {
	service    int
	begin, end time.Duration
	slow       bool
}

// polite: no process continues with a partition that another has.
func (s *setup) polite() bool { return s.gentle || s.bare }

// plenty is memory for all changes.
const plenty = 64 << 20

// draw draws a schedule. Most are short and dense: a few events that meet a few
// faults show the same as a long schedule, for a fraction of its cost. Some are
// long, for what takes many steps.
func draw(d *dice) setup {
	s := setup{
		processes: 2, registryParts: 1 + d.n(2), inboxParts: 1, workers: 1,
		maxEvents: 1 + d.n(8), maxBatch: 1 + d.n(6), frame: 1 + d.n(8),
		gentle: d.chance(0.2), refusals: d.chance(0.4), guarded: d.chance(0.5), sequences: d.chance(0.4),
	}
	if d.chance(0.03) {
		s.long(d)
	} else {
		s.short(d)
	}
	if s.gentle {
		s.crashes = 0
	}
	if s.variant.lab && d.chance(0.5) {
		s.variant.lab, s.variant.tables = false, true
	}
	s.sameDatabase = d.chance(0.5)
	if s.variant == (variant{state: true, lab: s.variant.lab, tables: s.variant.tables}) && !s.gentle && d.chance(0.4) {
		// Changes pile up, many of one entity, and come one by one after a death.
		s.bare, s.entities, s.frame, s.maxBatch = true, 1, 1+d.n(2), 8
		s.events, s.crashes = s.events+4+d.n(4), 1+d.n(3)
		begin := d.upTo(s.span / 2)
		s.outages = append(s.outages, outage{begin: begin, end: begin + d.upTo(s.span/2)})
	}
	s.forgets = !s.gentle && d.chance(0.2)
	s.restores = !s.gentle && !s.bare && d.chance(0.2)
	if s.memory = plenty; d.chance(0.6) {
		s.memory = int64(1 + d.n(3000))
	}
	if s.bare {
		s.memory = plenty
	}
	s.cache = []int64{1 << 20, 1 << 20, 4500, 9000, 0}[d.n(5)]
	s.upheavals(d)
	if d.chance(0.4) {
		s.maxOutcome = 300 + d.n(2000)
	}
	if d.chance(0.4) {
		s.maxFrame = 1 + d.n(1200)
	}
	s.oversizes = d.chance(0.25)
	for range d.n(4) {
		begin := d.upTo(s.span)
		s.outages = append(s.outages, outage{service: d.n(3), begin: begin, end: begin + d.upTo(2*time.Second), slow: d.chance(0.3)})
	}
	return s
}

// long draws the size of a schedule for what takes many steps.
func (s *setup) long(d *dice) {
	s.variant = variant{log: true, state: true, dumb: true, lab: true}
	s.processes += d.n(2)
	s.inboxParts, s.workers = 1+d.n(2), 1+d.n(2)
	s.entities, s.events = 1+d.n(4), 5+d.n(26)
	s.fault = []float64{0, 0.02, 0.06, 0.15}[d.n(4)]
	s.crashes, s.disturbances = d.n(4), d.n(8)
	s.span = time.Duration(200+d.n(3000)) * time.Millisecond
}

// short draws the size of a short and dense one.
func (s *setup) short(d *dice) {
	switch n := d.n(4); {
	case n == 0 || n == 1 && s.gentle:
		s.variant.state = true
	case n == 1:
		s.variant.log, s.variant.state = true, true
	case n == 2 && !s.gentle:
		s.variant.log = true
	default:
		s.variant.dumb = true
	}
	s.variant.lab = d.chance(0.3)
	s.registryParts = 1
	s.entities, s.events = 1+d.n(2), 2+d.n(4)
	if d.chance(0.25) {
		s.events += d.n(6)
	}
	if d.chance(0.2) {
		s.inboxParts, s.workers = 2, 1+d.n(2)
	}
	s.fault = []float64{0.02, 0.06, 0.1, 0.15}[d.n(4)]
	s.crashes, s.disturbances = d.n(2), 2+d.n(2)
	s.span = time.Duration(50+d.n(800)) * time.Millisecond
}

// upheavals draws whether the inbox gets another generation, another configuration comes,
// and tombstones go.
func (s *setup) upheavals(d *dice) {
	if !s.gentle && !s.restores && d.chance(0.2) {
		s.renews, s.disturbances = true, s.disturbances+1
	}
	if !s.gentle && !s.bare && !s.restores && d.chance(0.2) {
		s.deploys, s.disturbances = true, s.disturbances+1
		s.next = variant{log: d.chance(0.6), state: d.chance(0.6), dumb: d.chance(0.6), lab: s.variant.lab, tables: s.variant.tables, altered: d.chance(0.7)}
		if s.next == s.variant || !s.next.log && !s.next.state && !s.next.dumb {
			s.next = s.variant
			s.next.altered = true
		}
	} else if !(s.restores && s.forgets || s.variant.tables) && d.chance(0.4) {
		s.purges = 4 + d.n(8)
		s.span += 2 * time.Second // positions are saved some times a second
	}
}

// pace draws the paces of services. Some schedules without other faults have two owners of a
// rate, or an entity that changes for long enough to tell how long it rests.
func (s *setup) pace(d *dice) {
	if !d.chance(0.25) {
		return
	}
	s.paces = map[string]deliver.Pace{}
	shared, patient := s.gentle && d.chance(0.4), s.gentle && d.chance(0.4)
	if shared || patient {
		s.events += 8 + d.n(8)
		s.outages = nil
	}
	if shared {
		s.inboxParts, s.entities = 2, 4
	} else if patient {
		s.span += time.Duration(20+d.n(20)) * time.Second
		s.entities, s.memory = 1, plenty
	}
	between := 2 * s.span / time.Duration(s.events)
	for _, service := range []string{logService, stateService, dumbService} {
		var p deliver.Pace
		switch {
		case patient && service == stateService:
			p.Settle = between
			p.SettleMax = p.Settle + d.upTo(between)
		case d.chance(0.5) || shared:
			p.Rate, p.Burst = float64(1+d.n(40))/2, 1+d.n(4)
		case d.chance(0.8):
			p.Settle = d.upTo(2 * between)
			p.SettleMax = p.Settle + d.upTo(3*between)
		}
		if p.Rate > 0 && d.chance(0.4) { // both
			p.Settle, p.SettleMax = between, 2*between
		}
		s.paces[service] = p
	}
}

// refresh draws the services that are refreshed, without a rate that could not keep up.
func (s *setup) refresh(d *dice) {
	if !d.chance(0.08) {
		return
	}
	s.refreshes, s.period = map[string]time.Duration{}, 3*time.Second+d.upTo(3*time.Second)
	for _, service := range []string{logService, stateService, dumbService} {
		if d.chance(0.8) && s.paces[service].Rate == 0 {
			s.refreshes[service] = s.period
		}
	}
	s.span += d.upTo(2 * s.period)
	s.disturbances += d.n(4)
}
