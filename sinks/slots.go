package sinks

import (
	"slices"
	"time"
)

// slowFailure is how long a connection must have been held by something that then
// failed for its holder to be taken for a stuck one: longer than a server needs to
// refuse, shorter than any time-out.
const slowFailure = 2 * time.Second

// slots hands out the connections of a target, in order of asking. Holders that are
// stuck (their last attempt ended in a time-out) share half of the connections,
// so that the others always have some. Guarded by target.mu.
type slots struct {
	most    int // 0: no bound
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

// turn is a connection that somebody holds or waits for.
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

// ask returns a turn, which may be granted already.
func (s *slots) ask(m *member) *turn {
	t := &turn{member: m, granted: make(chan error, 1)}
	s.queue = append(s.queue, t)
	s.grant()
	return t
}

// withdraw reports whether a turn was still waiting; it is not any more.
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

// judge takes in what became of the work of a turn: a failure that took long makes
// its holder a stuck one.
func (s *slots) judge(t *turn, err error) {
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

// grant hands out what is free, in order of asking.
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
	switch half := max(1, s.most/2); {
	case s.most == 0:
		return true
	case s.held >= s.most:
		return false
	case len(s.holders) == 1: // there is nobody else to leave room for
		return true
	case l.held >= half:
		return false
	default:
		return !l.stuck || s.stuck < half
	}
}

// refuse ends the waiting of those that reason returns an error for.
func (s *slots) refuse(reason func(*member) *Error) {
	s.queue = slices.DeleteFunc(s.queue, func(t *turn) bool {
		e := reason(t.member)
		if e != nil {
			t.granted <- e
		}
		return e != nil
	})
}
