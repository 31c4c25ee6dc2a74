package sinktest

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/sinks"
)

// faults are the mistakes that the suite must catch, one at a time.
type faults struct {
	noVersionGuard bool // State: last writer wins
	noTombstone    bool // State: a retraction forgets the version
	noKeyCheck     bool // Log: a repetition is appended again
	keysInMemory   bool // Log: keys are forgotten with the sink value
	versionAsKey   bool // Log: anything not newer is skipped
	dropsRow       bool // the last change of a batch of several is lost
	unordered      bool // the batch is applied back to front
	failsBatch     bool // one bad change fails the whole batch
	hidesBad       bool // a bad change is dropped without an error
	badIsRetry     bool // a refusal is called a retry
	downIsReject   bool // an outage is called a refusal
	refusalIsRetry bool // a refused service is called a retry
	leaksPayload   bool // an error quotes the document
	foldsIDs       bool // entity ids are trimmed
	ignoresCancel  bool // a write hangs after its context ended
	failsOnEmpty   bool // an empty batch is an error
}

// memory is a target in memory; its sinks are compliant but for the faults.
type memory struct {
	kind   sinks.Kind
	faults faults

	mu            sync.Mutex
	rows          map[string]Row
	log           []change.Change
	keys          map[string]bool
	newest        map[string]change.Version
	down, refused bool
}

func newMemory(kind sinks.Kind, f faults) *memory {
	return &memory{kind: kind, faults: f, rows: map[string]Row{}, keys: map[string]bool{}, newest: map[string]change.Version{}}
}

func (m *memory) set(flag *bool, v bool) func() {
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		*flag = v
	}
}

func (m *memory) target() Target {
	return Target{
		Kind: m.kind,
		New: func(testing.TB) sinks.Sink {
			if m.faults.keysInMemory {
				m.keys = map[string]bool{}
			}
			return &memorySink{m}
		},
		State: func(testing.TB) map[string]Row { return m.rows },
		Log:   func(testing.TB) []change.Change { return m.log },
		BadChange: func(c change.Change) change.Change {
			return Change(c.Service, c.Entity, c.Version, append(bytes.TrimSuffix(c.Doc, []byte("}")), `,"bad":true}`...))
		},
		Outage: func(testing.TB) (down, up func()) { return m.set(&m.down, true), m.set(&m.down, false) },
		Refuse: func(testing.TB) (refuse, allow func()) { return m.set(&m.refused, true), m.set(&m.refused, false) },
	}
}

type memorySink struct{ m *memory }

func (s *memorySink) Traits() sinks.Traits { return sinks.Traits{Kind: s.m.kind, MaxBatch: 20} }
func (s *memorySink) Close() error         { return nil }

func (s *memorySink) Open(context.Context) error {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	return s.m.available()
}

func (m *memory) available() error {
	class := sinks.Retry
	switch {
	case m.down && m.faults.downIsReject, m.refused && m.faults.refusalIsRetry:
		class = map[bool]sinks.Class{true: sinks.Reject, false: sinks.Retry}[m.down]
	case m.refused:
		class = sinks.Pause
	case !m.down:
		return nil
	}
	return &sinks.Error{Class: class, Op: "write", Err: errors.New("not available")}
}

func (s *memorySink) Write(ctx context.Context, changes []change.Change) error {
	m := s.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if ctx.Err() != nil {
		if m.faults.ignoresCancel {
			return &sinks.Error{Class: sinks.RetryBounded, Op: "write", Err: ctx.Err()}
		}
		return ctx.Err()
	}
	if err := m.available(); err != nil {
		return err
	}
	if m.faults.failsOnEmpty && len(changes) == 0 {
		return errors.New("nothing to write")
	}
	failed := map[int]error{}
	for n := range changes {
		i := n
		if m.faults.unordered {
			i = len(changes) - 1 - n
		}
		c := changes[i]
		if bytes.Contains(c.Doc, []byte(`"bad"`)) {
			failed[i] = m.refusal(c)
			continue
		}
		if m.faults.dropsRow && len(changes) > 1 && n == len(changes)-1 {
			continue
		}
		if m.faults.foldsIDs {
			c.Entity = string(bytes.TrimSpace([]byte(c.Entity)))
		}
		m.apply(c)
	}
	switch {
	case len(failed) == 0 || m.faults.hidesBad:
		return nil
	case m.faults.failsBatch:
		return &sinks.Error{Class: sinks.Reject, Op: "write", Err: errors.New("bad change")}
	}
	return &sinks.BatchError{Failed: failed}
}

func (m *memory) refusal(c change.Change) error {
	e := &sinks.Error{Class: sinks.Reject, Op: "write", Err: errors.New("bad change")}
	if m.faults.badIsRetry {
		e.Class = sinks.Retry
	}
	if m.faults.leaksPayload {
		e.Err = errors.New(string(c.Doc))
	}
	return e
}

func (m *memory) apply(c change.Change) {
	if m.kind == sinks.State {
		if old, ok := m.rows[c.Entity]; ok && c.Version <= old.Version && !m.faults.noVersionGuard {
			return
		}
		if m.faults.noTombstone && c.Op == change.Retract {
			delete(m.rows, c.Entity)
			return
		}
		m.rows[c.Entity] = Row{Version: c.Version, Op: c.Op, Doc: c.Doc}
		return
	}
	if m.faults.versionAsKey && c.Version <= m.newest[c.Entity] || m.keys[c.Key] && !m.faults.noKeyCheck {
		return
	}
	m.keys[c.Key] = true
	m.newest[c.Entity] = max(m.newest[c.Entity], c.Version)
	m.log = append(m.log, c)
}
