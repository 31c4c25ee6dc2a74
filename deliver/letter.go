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

// LetterHeaders is what a dead letter's headers hold of a change beside its record, as
// JSON: both together restore the change.
type LetterHeaders struct {
	Time     int64          `json:"time"` // Unix, in milliseconds
	Revision int64          `json:"revision"`
	Content  change.Content `json:"content"`
	Trace    *change.Trace  `json:"trace,omitempty"` // of the attempt that failed, if it was traced
}

// ChangeOf restores the change that became a dead letter, and verifies it by its key. Its
// error says why there is none.
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
	}
	if c.Service != l.Service || c.Entity != l.Entity || c.Key != change.Key(c.Service, c.Entity, c.Version, c.Content) ||
		(c.Op == change.Upsert) != (len(c.Doc) > 0) || c.Content.IsRetracted() != (c.Op == change.Retract) {
		return change.Change{}, errors.New("its payload is not what died: it was edited")
	}
	return c, nil
}

// laterTick is the longest period between searches for due dead letters.
const laterTick = time.Minute

// offerLater periodically offers again what was given up. It ends with the stage.
func (s *Stage) offerLater() {
	tick := 2 * laterTick
	for _, w := range s.workers {
		if later := w.opt.Retry.Later; later > 0 {
			tick = min(tick, laterTick, max(later/4, time.Millisecond))
		}
	}
	if tick > laterTick { // nobody wants it
		return
	}
	asked := map[int64]int64{} // by dead letter, its count when a decision was requested
	for wait.Sleep(s.ctx, tick) {
		still, err := s.offerDue(s.ctx, asked)
		if err != nil {
			if s.ctx.Err() == nil {
				s.log.Warn("cannot offer again what was given up; trying again", "error", err)
			}
			continue
		}
		asked = still
	}
}

// duePage is how many due dead letters are read at a time.
const duePage = 1000

// offerDue requests a decision about each due dead letter of this process's partitions
// that is not in asked yet, and returns the new asked. That includes those whose request
// the inbox refuses, which would keep the others from being offered.
func (s *Stage) offerDue(ctx context.Context, asked map[int64]int64) (map[int64]int64, error) {
	takers, names := s.takers()
	still := map[int64]int64{}
	for after := int64(0); len(names) > 0; {
		letters, err := s.opt.Store.DueLetters(ctx, names, after, duePage)
		if err != nil {
			return nil, err
		}
		for i := range letters {
			l := &letters[i]
			if asked[l.ID] == l.Count {
				still[l.ID] = l.Count
				continue
			}
			if !s.owns(l) {
				continue
			}
			err := s.offer(ctx, takers[l.Service], l)
			switch {
			case tooLarge(err):
				s.log.Warn("a dead letter cannot be offered again: the inbox does not take the request", "service", l.Service, "letter", l.ID, "error", err)
			case err != nil:
				return nil, err
			}
			asked[l.ID], still[l.ID] = l.Count, l.Count
		}
		if len(letters) < duePage {
			break
		}
		after = letters[len(letters)-1].ID
	}
	return still, nil
}

// tooLarge reports whether an append failed for the size of its record alone.
func tooLarge(err error) bool {
	return errors.Is(err, transport.ErrTooLarge) || errors.Is(err, kerr.MessageTooLarge)
}

// takers returns, by name, the workers that offer dead letters again and whose sinks
// take changes now.
func (s *Stage) takers() (takers map[string]*worker, names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	takers = map[string]*worker{}
	for _, w := range s.workers {
		state := w.condition.now().State
		// A worker whose last attempt failed and that has nothing in flight may work again.
		if w.opt.Retry.Later > 0 && (state == StateRunning || state == StateRetrying && w.held == 0) {
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
	return p != nil && !p.gone
}

// offer requests that a dead letter is offered again, as an operator's replay does: a
// state sink gets the present content, a log sink the original change.
func (s *Stage) offer(ctx context.Context, w *worker, l *store.DeadLetter) error {
	c := change.Control{
		ID: uuid.NewString(), Action: change.Redecide, Services: []string{l.Service}, Version: l.Version, Letter: l.ID, Actor: change.Deliver,
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
	if err := s.opt.Control(ctx, l.Entity, c); err != nil {
		return err
	}
	w.m.offered.Inc()
	return nil
}
