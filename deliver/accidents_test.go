package deliver_test

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/stretchr/testify/require"
)

// thing is a source document, of which a service sees price and name where it is active and has
// an origin.
type thing struct {
	price        float64
	name, origin string
	active, gone bool
}

func (t *thing) view() string {
	if t.gone || !t.active || t.origin == "" {
		return ""
	}
	return fmt.Sprintf(`{"price":%g,"name":%q}`, t.price, t.name)
}

// shop is the source and the dam of one service in a test.
type shop struct {
	service string
	rng     *rand.Rand
	things  []thing
	sent    []string // the view of each that was decided last
	next    func() int64
}

// decide returns the change that an event about a thing makes, if it makes one.
func (s *shop) decide(i int) (c change.Change, changed bool) {
	for len(s.sent) <= i {
		s.sent = append(s.sent, "")
	}
	was, is := s.sent[i], s.things[i].view()
	if was == is {
		return c, false
	}
	s.sent[i] = is
	offset := s.next()
	c = change.Change{
		Service: s.service, Entity: fmt.Sprint(s.service, "/", i), Op: change.Upsert, Version: change.NewVersion(1, offset), Revision: 1,
		Time: time.UnixMilli(1_700_000_000_000).UTC(), Content: change.Retracted(),
	}
	switch {
	case is == "":
		c.Op, c.Effect = change.Retract, change.Leaves
	case was == "":
		c.Effect = change.Enters
	}
	if is != "" {
		c.Doc = []byte(is)
		digest, err := canonicaltree.Sum(c.Doc, canonicaltree.Literal)
		if err != nil {
			panic(err)
		}
		c.Content = change.Hashed(canonicaltree.Scheme, digest)
	}
	c.Key = change.Key(c.Service, c.Entity, c.Version, c.Content)
	return c, true
}

// add adds a new thing.
func (s *shop) add() int {
	s.things = append(s.things, thing{price: float64(1 + s.rng.IntN(1000)), name: fmt.Sprint("thing ", s.rng.IntN(1e6)), origin: "EC", active: true})
	return len(s.things) - 1
}

// accidents are what happens to one thing of many.
var accidents = map[string]func(s *shop, t *thing){
	"empty source":         func(_ *shop, t *thing) { t.gone = true },
	"mass deletion":        func(s *shop, t *thing) { t.gone = s.rng.IntN(10) < 7 },
	"filtered column null": func(_ *shop, t *thing) { t.origin = "" },
	"flag flips":           func(_ *shop, t *thing) { t.active = !t.active },
	"half a file":          func(s *shop, t *thing) { t.gone = s.rng.IntN(2) == 0 },
	"new ids":              func(s *shop, t *thing) { t.gone = true; s.add() },
	"price null":           func(_ *shop, t *thing) { t.price = 0 },
	"unit × 100":           func(_ *shop, t *thing) { t.price *= 100 },
	"text cut off":         func(_ *shop, t *thing) { t.name = t.name[:3] },
	"column shifted":       func(s *shop, t *thing) { t.name = s.things[s.rng.IntN(len(s.things))].name + "?" },
}

// 200 accidents of ten kinds, amid ordinary traffic, are held before more than the limit left.
func TestAccidentsAreHeld(t *testing.T) {
	const seeds = 20
	var names []string
	for kind := range accidents {
		for seed := range seeds {
			names = append(names, fmt.Sprintf("acme/%x@%d", kind, seed))
		}
	}
	w := newWorld(t, names...)
	traits := map[string]sinks.Traits{}
	for i, name := range names {
		traits[name] = sinks.Traits{Kind: sinks.State, MaxBatch: 1 + 17*(i%7)}
	}
	guard := deliver.Guard{Retract: 0.05, Update: 0.3, Min: 20, Window: 10 * time.Minute}
	p := w.start(traits, guarding(guard))
	next := int64(-1)
	for kind, accident := range accidents {
		for seed := range uint64(seeds) {
			s := &shop{service: fmt.Sprintf("acme/%x@%d", kind, seed), rng: rand.New(rand.NewPCG(seed, uint64(len(kind)))), next: func() int64 { next++; return next }}
			var frame []change.Change
			event := func(i int) {
				if c, changed := s.decide(i); changed {
					frame = append(frame, c)
				}
			}
			publish := func() {
				if len(frame) > 0 {
					p.publish(frame...)
				}
				frame = nil
			}
			n := 100 + s.rng.IntN(300)
			for range n {
				event(s.add())
			}
			publish()
			require.Eventually(t, func() bool { return len(p.sinks[s.service].has()) == n }, patience, time.Millisecond, "%s loads", kind)
			counted := map[string]bool{}
			p.sinks[s.service].answer(func(changes []change.Change) error {
				for _, c := range changes {
					if c.Effect != change.Enters {
						counted[c.Entity] = true
					}
				}
				return nil
			})
			for _, i := range s.rng.Perm(n) {
				if accident(s, &s.things[i]); s.rng.IntN(20) == 0 {
					event(s.add())
				}
				if event(i); len(frame) > 1+s.rng.IntN(100) {
					publish()
				}
			}
			publish()
			require.Eventually(t, func() bool { return p.stage.Conditions()[s.service].State == deliver.StatePaused }, patience, time.Millisecond, "%s, seed %d", kind, seed)
			hold := p.pauses()[s.service].Hold
			limit := max(20, int64(guard.Retract*float64(n)))
			if hold.Kind == "update" {
				limit = max(20, int64(guard.Update*float64(n)))
			}
			require.LessOrEqual(t, hold.Limit, limit+limit/20+1, "%s, seed %d: of those that were there, and the few new ones", kind, seed)
			p.sinks[s.service].mu.Lock()
			require.LessOrEqual(t, int64(len(counted)), hold.Limit, "%s, seed %d", kind, seed)
			p.sinks[s.service].mu.Unlock()
		}
	}
}

// 100 days of ordinary traffic: deletions all day and at night, a clean-up each month, a filter
// that flips to and fro, price rounds, and the source's full load every day are not held.
func TestNormalDaysAreNotHeld(t *testing.T) {
	var clock atomic.Int64
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	p := newWorld(t, service).start(map[string]sinks.Traits{service: {Kind: sinks.State, MaxBatch: 100}},
		guarding(deliver.Guard{Retract: 0.05, Min: 50, Window: 10 * time.Minute}), func(o *deliver.Options) {
			o.Now = func() time.Time { return now.Add(time.Duration(clock.Load())) }
		})
	next := int64(-1)
	s := &shop{service: service, rng: rand.New(rand.NewPCG(1, 2)), next: func() int64 { next++; return next }}
	var frame []change.Change
	event := func(i int) {
		if c, changed := s.decide(i); changed {
			frame = append(frame, c)
		}
	}
	sent := 0
	publish := func() {
		if len(frame) == 0 {
			return
		}
		sent += len(frame)
		p.publish(frame...)
		frame = nil
		require.Eventually(t, func() bool { return len(p.sinks[service].has()) == sent || len(p.pauses()) > 0 }, patience, time.Millisecond)
		require.Empty(t, p.pauses(), "at %s", now.Add(time.Duration(clock.Load())))
	}
	for range 2000 {
		event(s.add())
	}
	publish()
	for day := range 100 {
		for hour := range 6 {
			clock.Store(int64(time.Duration(day)*24*time.Hour + time.Duration(hour)*4*time.Hour))
			touched := map[int]bool{}
			some := func(n int, do func(t *thing)) {
				for range n {
					if i := s.rng.IntN(len(s.things)); !touched[i] {
						touched[i] = true
						do(&s.things[i])
						event(i)
					}
				}
			}
			some(12, func(t *thing) { t.gone = true })
			some(20, func(t *thing) { t.active = !t.active })
			some(60, func(t *thing) { t.price++ })
			switch {
			case hour == 0 && day%30 == 0:
				some(40, func(t *thing) { t.gone = true }) // with the others above 50, below 5 %
			case hour == 1:
				for i := range s.things { // a full load
					if !touched[i] {
						event(i)
					}
				}
			case hour == 2 && day%7 == 0:
				some(1500, func(t *thing) { t.price *= 1.1 })
			}
			publish()
			for range 14 {
				event(s.add())
			}
			publish()
		}
	}
}
