package sinks

import (
	"slices"
	"time"
)

// slowFailure is how long a failed attempt must have held its connection for its holder to
// count as stuck: longer than a server needs to refuse, shorter than any timeout.
const slowFailure = 2 * time.Second

// slots hands out the connections of a target, in the order of requests. Stuck holders
// (their last attempt timed out) share half of the connections, so that the others always
// have some. Guarded by target.mu.
type slots struct {
	limit   int // 0: no bound
	held    int
	stuck   int // held by stuck holders
	holders map[string]*holder
	queue   []*turn
}

type holder struct {
	name    string
	members int
	held    int
	stuck   bool
}

// turn is a connection that is held or waited for.
type turn struct {
	member  *member
	granted chan error // gets nil, or why there is none
	since   time.Time
}

func (s *slots) join(name string) *holder {
	l := s.holders[name]
	if l == nil {
		l = &holder{name: name}
		if s.holders == nil {
			s.holders = map[string]*holder{}
		}
		s.holders[name] = l
	}
	l.members++
	return l
}

func (s *slots) leave(l *holder) {
	if l.members--; l.members == 0 {
		s.setStuck(l, false)
		delete(s.holders, l.name)
		s.grant()
	}
}

// request returns a turn, which may be granted already.
func (s *slots) request(m *member) *turn {
	t := &turn{member: m, granted: make(chan error, 1)}
	s.queue = append(s.queue, t)
	s.grant()
	return t
}

// withdraw removes a turn from the queue and reports whether it was waiting.
func (s *slots) withdraw(t *turn) bool {
	i := slices.Index(s.queue, t)
	if i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
	}
	return i >= 0
}

// release takes a connection back.
func (s *slots) release(t *turn) {
	l := t.member.holder
	s.held--
	l.held--
	if l.stuck {
		s.stuck--
	}
	s.grant()
}

// recordResult records the outcome of a turn: a failure that took long makes its holder
// stuck.
func (s *slots) recordResult(t *turn, err error) {
	s.setStuck(t.member.holder, err != nil && time.Since(t.since) >= slowFailure)
}

func (s *slots) setStuck(l *holder, stuck bool) {
	if l.stuck == stuck {
		return
	}
	l.stuck = stuck
	if stuck {
		s.stuck += l.held
	} else {
		s.stuck -= l.held
	}
}

// grant hands out free connections, in the order of requests.
func (s *slots) grant() {
	s.queue = slices.DeleteFunc(s.queue, func(t *turn) bool {
		l := t.member.holder
		if !s.free(l) {
			return false
		}
		s.held++
		l.held++
		if l.stuck {
			s.stuck++
		}
		t.since = time.Now()
		t.granted <- nil
		return true
	})
}

func (s *slots) free(l *holder) bool {
	switch half := max(1, s.limit/2); {
	case s.limit == 0:
		return true
	case s.held >= s.limit:
		return false
	case len(s.holders) == 1: // there is nobody else to leave room for
		return true
	case l.held >= half:
		return false
	default:
		return !l.stuck || s.stuck < half
	}
}

// refuse fails the waiting turns that reason returns an error for.
func (s *slots) refuse(reason func(*member) *Error) {
	s.queue = slices.DeleteFunc(s.queue, func(t *turn) bool {
		e := reason(t.member)
		if e != nil {
			t.granted <- e
		}
		return e != nil
	})
}
