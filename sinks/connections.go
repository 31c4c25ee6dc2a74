package sinks

import (
	"slices"
	"time"
)

// slowFailure is how long a failed attempt must have held its connection for its tenant to
// count as timed out: longer than a server needs to refuse, shorter than any timeout.
const slowFailure = 2 * time.Second

// connections hands out the connections of a target, in the order of requests. Tenants
// whose last attempt timed out share half of the connections, so that the others always
// have some. Guarded by target.mu.
type connections struct {
	limit    int // 0: no bound
	held     int
	timedOut int // held by tenants that timed out
	tenants  map[string]*tenant
	queue    []*lease
}

type tenant struct {
	name     string
	members  int
	held     int
	timedOut bool
}

// lease is a held or requested connection.
type lease struct {
	member  *member
	granted chan error // receives nil, or why the lease is refused
	since   time.Time
}

func (s *connections) join(name string) *tenant {
	l := s.tenants[name]
	if l == nil {
		l = &tenant{name: name}
		if s.tenants == nil {
			s.tenants = map[string]*tenant{}
		}
		s.tenants[name] = l
	}
	l.members++
	return l
}

func (s *connections) leave(l *tenant) {
	if l.members--; l.members == 0 {
		s.setTimedOut(l, false)
		delete(s.tenants, l.name)
		s.grant()
	}
}

// request returns a lease, which may be granted already.
func (s *connections) request(m *member) *lease {
	t := &lease{member: m, granted: make(chan error, 1)}
	s.queue = append(s.queue, t)
	s.grant()
	return t
}

// withdraw removes a lease from the queue and reports whether it was waiting.
func (s *connections) withdraw(t *lease) bool {
	i := slices.Index(s.queue, t)
	if i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
	}
	return i >= 0
}

// release takes a connection back.
func (s *connections) release(t *lease) {
	l := t.member.tenant
	s.held--
	l.held--
	if l.timedOut {
		s.timedOut--
	}
	s.grant()
}

// recordResult records the outcome of a lease: a slow failure times its tenant
// out.
func (s *connections) recordResult(t *lease, err error) {
	s.setTimedOut(t.member.tenant, err != nil && time.Since(t.since) >= slowFailure)
}

func (s *connections) setTimedOut(l *tenant, timedOut bool) {
	if l.timedOut == timedOut {
		return
	}
	l.timedOut = timedOut
	if timedOut {
		s.timedOut += l.held
	} else {
		s.timedOut -= l.held
	}
}

// grant hands out free connections, in the order of requests.
func (s *connections) grant() {
	s.queue = slices.DeleteFunc(s.queue, func(t *lease) bool {
		l := t.member.tenant
		if !s.free(l) {
			return false
		}
		s.held++
		l.held++
		if l.timedOut {
			s.timedOut++
		}
		t.since = time.Now()
		t.granted <- nil
		return true
	})
}

func (s *connections) free(l *tenant) bool {
	switch half := max(1, s.limit/2); {
	case s.limit == 0:
		return true
	case s.held >= s.limit:
		return false
	case len(s.tenants) == 1: // no other tenant needs room
		return true
	case l.held >= half:
		return false
	default:
		return !l.timedOut || s.timedOut < half
	}
}

// refuse fails the waiting leases that reason returns an error for.
func (s *connections) refuse(reason func(*member) *Error) {
	s.queue = slices.DeleteFunc(s.queue, func(t *lease) bool {
		e := reason(t.member)
		if e != nil {
			t.granted <- e
		}
		return e != nil
	})
}
