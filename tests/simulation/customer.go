package simulation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/tests/oracle"
)

// customer is the target of one service. It outlives processes.
type customer struct {
	w       *world
	service string

	mu       sync.Mutex
	attempts []oracle.Record // everything that was ever sent, in order
	writes   []*write        // in order
	records  []oracle.Record // what took effect, in order
	keys     map[string]bool
	newest   map[string]oracle.Record // what a state sink holds
	back     error                    // a state sink went backwards
}

func newCustomer(w *world, service string) *customer {
	return &customer{w: w, service: service, keys: map[string]bool{}, newest: map[string]oracle.Record{}}
}

// apply is the effect of one change at the target.
func (c *customer) apply(r oracle.Record) {
	rules := c.w.rules
	if c.service == logService && c.keys[r.Key] && !rules.NoKeyCheck {
		return
	}
	if c.service == stateService {
		old, ok := c.newest[r.Entity]
		guard := !c.w.setup.polite() // in a polite schedule deliver alone must see to it
		if ok && old.Version >= r.Version && guard && !rules.NoVersionCheck {
			return
		}
		if ok && old.Version > r.Version && c.back == nil {
			c.back = fmt.Errorf("%s, entity %s: stale: version %d came after %d", c.service, r.Entity, r.Version, old.Version)
		}
		c.newest[r.Entity] = r
	}
	c.keys[r.Key] = true
	c.records = append(c.records, r)
}

// backup returns the content of a state customer, for restore.
func (c *customer) backup() map[string]oracle.Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.newest)
}

// restore restores a customer that is in the database of the store. The content of a
// log customer stays: the order in which it gets the rest is not promised.
func (c *customer) restore(newest map[string]oracle.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.newest = maps.Clone(newest)
}

// verdict is the target's answer to a change, to any process and at any attempt.
type verdict int

const (
	welcome verdict = iota
	refused         // by its content, without effect
	doomed          // every attempt fails, with or without effect
)

func (w *world) verdict(service, key string) verdict {
	if !w.setup.refusals {
		return welcome
	}
	switch w.dice(service + key).n(16) {
	case 0:
		return refused
	case 1:
		return doomed
	}
	return welcome
}

// sink is one process's connection to a customer.
type sink struct {
	p    *process
	c    *customer
	dice *dice
	made time.Time
}

// write is what deliver hands to a sink at once.
type write struct {
	at      time.Time
	by      *sink
	records []oracle.Record
	failed  bool // some of it, or without an answer; guarded by the customer's mu
}

var _ sinks.Sink = (*sink)(nil)

func (s *sink) Traits() sinks.Traits { return s.p.w.traits(s.c.service) }

func (s *sink) Close() error { return nil }

func (s *sink) Open(ctx context.Context) error {
	if err := s.p.ready(); err != nil {
		return err
	}
	if err := sleep(ctx, s.dice.trip()); err != nil {
		return err
	}
	if s.p.w.fault(s.dice, "open fails", 1) {
		return s.failure(sinks.Pause, false)
	}
	return nil
}

var errSink = errors.New("the target did not take it")

func (s *sink) failure(class sinks.Class, ambiguous bool) error {
	return &sinks.Error{Class: class, Ambiguous: ambiguous, Op: "write", Err: errSink, RetryAfter: s.dice.upTo(100 * time.Millisecond)}
}

// Write sends changes. A request that is on its way is not stopped by the end
// of its context.
func (s *sink) Write(ctx context.Context, changes []change.Change) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	records := make([]oracle.Record, len(changes))
	for i, c := range changes {
		records[i] = oracle.Record{Service: c.Service, Entity: c.Entity, Op: string(c.Op), Version: uint64(c.Version), Key: c.Key, Doc: c.Doc}
	}
	if s.p.w.rules.EarlyAnswer {
		s.p.w.spawn(func() { _ = s.send(records) })
		return nil
	}
	wr := &write{at: time.Now(), by: s, records: records, failed: true}
	s.c.mu.Lock()
	s.c.writes = append(s.c.writes, wr)
	s.c.mu.Unlock()
	result := make(chan error, 1)
	s.p.w.spawn(func() { result <- s.send(records) })
	select {
	case err := <-result:
		s.c.mu.Lock()
		defer s.c.mu.Unlock()
		wr.failed = err != nil
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *sink) send(records []oracle.Record) error {
	w := s.p.w
	w.flying.Add(1)
	defer w.flying.Add(-1)
	if err := s.p.ready(); err != nil {
		return err
	}
	time.Sleep(s.dice.trip())
	s.p.thaw()
	lost := func() bool { return s.p.dead.Load() && (w.setup.bare || !s.dice.chance(landing)) }
	if lost() {
		return errDead
	}
	away, slow := w.outage(s.c.service)
	if slow > 0 {
		time.Sleep(s.dice.upTo(slow))
	}
	w.point(s.p)
	if lost() {
		return errDead
	}
	if away {
		w.count("outage")
		return s.failure([]sinks.Class{sinks.Retry, sinks.Pause}[s.dice.n(2)], false)
	}
	apply, err := s.fate(records)
	s.c.mu.Lock()
	s.c.attempts = append(s.c.attempts, records...)
	for i, r := range records {
		if apply[i] {
			s.c.apply(r)
		}
	}
	s.c.mu.Unlock()
	for i, r := range records {
		if !w.traced {
			break
		}
		w.note("%s writes %s %s %d: effect %v, success %v", s.p.name, s.c.service, r.Entity, r.Version, apply[i], err == nil)
	}
	if w.setup.bare && !w.calm.Load() && s.dice.chance(0.5) {
		w.count("dies behind a write")
		s.p.crash() // what it wrote and did not note comes again, older changes before it
	}
	w.point(s.p)
	time.Sleep(s.dice.trip())
	s.p.thaw()
	if s.p.dead.Load() {
		return errDead
	}
	return err
}

// outage reports whether the sink of a service is away now, or up to how slow.
func (w *world) outage(service string) (away bool, slow time.Duration) {
	at := time.Since(w.began)
	if w.calm.Load() {
		return false, 0
	}
	for _, o := range w.setup.outages {
		if w.sinks[o.service%len(w.sinks)].service == service && o.begin <= at && at < o.end {
			if !o.slow {
				return true, 0
			}
			slow = 2 * time.Second
		}
	}
	return false, slow
}

// fate draws which changes take effect and the answer.
func (s *sink) fate(records []oracle.Record) (apply []bool, err error) {
	w := s.p.w
	apply = make([]bool, len(records))
	all := func(yes bool) []bool {
		for i := range apply {
			apply[i] = yes
		}
		return apply
	}
	// In a gentle schedule nothing is in doubt.
	doubt := 1.0
	if w.setup.gentle {
		doubt = 0
	}
	switch {
	case w.fault(s.dice, "sink away", 1):
		return all(false), s.failure(sinks.Retry, false)
	case w.fault(s.dice, "sink pauses", 0.3):
		return all(false), s.failure(sinks.Pause, false)
	case w.fault(s.dice, "sink timed out, no effect", doubt):
		return all(false), s.failure(sinks.Retry, true)
	case w.fault(s.dice, "sink timed out, effect", doubt):
		all(true)
		err = s.failure(sinks.Retry, true)
	case w.fault(s.dice, "sink timed out, some effect", doubt):
		cut := s.dice.n(len(records) + 1)
		for i := range cut {
			apply[i] = true
		}
		err = s.failure(sinks.Retry, true)
	default:
		all(true)
	}
	failed := map[int]error{}
	for i, r := range records {
		switch w.verdict(s.c.service, r.Key) {
		case refused:
			apply[i], failed[i] = false, s.failure(sinks.Reject, false)
		case doomed:
			apply[i] = apply[i] && !w.setup.gentle && s.dice.chance(0.3) // what is found there was delivered
			failed[i] = s.failure(sinks.RetryBounded, true)
		}
	}
	if err == nil && len(failed) > 0 {
		if len(records) > 1 && s.dice.chance(0.4) {
			// It does not say whose fault it is, and takes nothing.
			return all(false), s.failure(sinks.Reject, false)
		}
		if len(records) == 1 {
			return apply, failed[0]
		}
		return apply, &sinks.BatchError{Failed: failed}
	}
	return apply, err
}
