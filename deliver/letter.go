package deliver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
	"github.com/seed-86dfc502/weir/transport"
	"github.com/twmb/franz-go/pkg/kerr"
)

// codeGaveUp is the code of letters whose last allowed attempt failed; the target
// said nothing against them.
const codeGaveUp = "gave_up"

// LetterHeaders are the parts of a change that its record lacks, in a letter's headers, as
// JSON: both together restore the change.
type LetterHeaders struct {
	Time     int64          `json:"time"` // Unix, in milliseconds
	Revision int64          `json:"revision"`
	Content  change.Content `json:"content"`
	Effect   change.Effect  `json:"effect,omitempty"`
	Planned  bool           `json:"planned,omitempty"`
	Mends    bool           `json:"mends,omitempty"`
	At       int64          `json:"at,omitempty"`    // as Time
	Trace    *change.Trace  `json:"trace,omitempty"` // of the attempt that failed, if it was traced
}

// ChangeOf restores the change that became a dead letter, and verifies it by its key. Its error
// says why that is not possible.
func ChangeOf(l store.DeadLetter) (change.Change, error) {
	var record struct {
		Service string
		Entity  string
		Op      change.Op
		Version change.Version
		Key     string
		Doc     json.RawMessage
	}
	var beside LetterHeaders
	if json.Unmarshal(l.Payload, &record) != nil || json.Unmarshal(l.Headers, &beside) != nil {
		return change.Change{}, errors.New("its payload is no change of this build")
	}
	c := change.Change{
		Service: record.Service, Entity: record.Entity, Op: record.Op, Version: record.Version, Key: record.Key, Doc: record.Doc,
		Content: beside.Content, Revision: beside.Revision, Time: time.UnixMilli(beside.Time).UTC(),
		Effect: beside.Effect, Planned: beside.Planned, Mends: beside.Mends,
	}
	if beside.At != 0 {
		c.At = time.UnixMilli(beside.At).UTC()
	}
	if c.Service != l.Service || c.Entity != l.Entity || c.Key != change.Key(c.Service, c.Entity, c.Version, c.Content) ||
		(c.Op == change.Upsert) != (len(c.Doc) > 0) || c.Content.IsRetracted() != (c.Op == change.Retract) {
		return change.Change{}, errors.New("its payload was edited")
	}
	return c, nil
}

const (
	// dueTick is the longest period between searches for due dead letters.
	dueTick = time.Minute
	// dueLetters is how many of them are offered at a time.
	dueLetters = 1000
)

// offerDue periodically requests a decision about given-up changes that are due. It ends
// with the stage.
func (s *Stage) offerDue() {
	tick := func() time.Duration {
		tick := dueTick
		for _, w := range s.services() {
			if later := w.opt.Retry.Later; later > 0 {
				tick = min(tick, max(later/4, time.Millisecond))
			}
		}
		return tick
	}
	for wait.Sleep(s.ctx, tick()) {
		if err := s.offerLetters(s.ctx); err != nil && s.ctx.Err() == nil {
			s.log.Warn("cannot offer given-up changes again; retrying", "event", "letters.offer_failed", "error", err)
		}
	}
}

// offerLetters requests a decision about each due dead letter of this process's
// partitions, once until it dies again: the store remembers that. That includes those
// whose request the inbox refuses, which would keep the others from being offered.
func (s *Stage) offerLetters(ctx context.Context) error {
	takers, names := s.takers()
	if len(names) == 0 {
		return nil
	}
	for after := int64(0); ; {
		letters, err := s.opt.Store.DueLetters(ctx, names, after, dueLetters)
		if err != nil || len(letters) == 0 {
			return err
		}
		after = letters[len(letters)-1].ID
		var offered []int64
		for i := range letters {
			l := &letters[i]
			if !s.owns(l) || l.Code != CodeServiceRemoved && takers[l.Service].opt.Retry.Later == 0 {
				continue
			}
			if err = s.offer(ctx, takers[l.Service], l); tooLarge(err) {
				s.log.Warn("inbox does not take the request to offer a dead letter again", "event", "letters.too_large", "service", l.Service, "letter", l.ID, "error", err)
				err = nil
			}
			if err != nil {
				break
			}
			offered = append(offered, l.ID)
		}
		if len(offered) > 0 {
			err = errors.Join(err, s.opt.Store.Offered(ctx, offered))
		}
		if err != nil {
			return err
		}
	}
}

// tooLarge reports whether an append failed for the size of its record alone.
func tooLarge(err error) bool {
	return errors.Is(err, transport.ErrTooLarge) || errors.Is(err, kerr.MessageTooLarge)
}

// takers returns, by name, the workers whose sinks take changes now.
func (s *Stage) takers() (takers map[string]*worker, names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	takers = map[string]*worker{}
	for _, w := range s.workers {
		state := w.condition.now().State
		// A worker whose last attempt failed and that has nothing in flight may work again.
		if state == StateRunning || state == StateRetrying && !w.queue.Busy() {
			takers[w.opt.Name] = w
			names = append(names, w.opt.Name)
		}
	}
	return takers, names
}

// owns reports whether this process offers a dead letter again.
func (s *Stage) owns(l *store.DeadLetter) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.parts[s.opt.Partition(l.Entity, math.MaxUint64)] // where the request goes
	return p != nil && !p.Revoked()
}

// offer requests that a dead letter is offered again, as an operator's replay does: a
// state sink gets the present content, a log sink the original change.
func (s *Stage) offer(ctx context.Context, w *worker, l *store.DeadLetter) error {
	c := change.Control{
		ID: uuid.NewString(), Action: change.Redecide, Services: []string{l.Service}, Version: l.Version, Letter: l.ID, Force: l.Code == CodeServiceRemoved, Actor: change.Deliver,
		Reason: fmt.Sprintf("given up %d times, offered again", l.Count),
	}
	var beside LetterHeaders
	if json.Unmarshal(l.Headers, &beside) == nil {
		c.Trace = beside.Trace
	}
	if w.traits.Kind == sinks.Log {
		whole, err := s.opt.Store.Letter(ctx, l.ID)
		if err != nil {
			return err
		}
		sent, err := ChangeOf(whole)
		if err != nil {
			return nil //nolint:nilerr // an older build's: an operator has to look at it
		}
		c.Action, c.Version, c.Change = change.Resend, 0, sent.AppendBinary(nil)
	}
	if err := s.opt.Control(ctx, change.Record{Entity: l.Entity, Control: &c}); err != nil {
		return err
	}
	w.m.offered.Inc()
	return nil
}
