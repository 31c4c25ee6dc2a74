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
	"github.com/seed-86dfc502/weir/internal/transport"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
	"github.com/twmb/franz-go/pkg/kerr"
)

// offers has given-up changes decided again when they are due.
type offers struct {
	*shared
	parts    map[int32]*partition // guarded by mu; those that are assigned
	services func() []*worker
}

const (
	// dueTick is the longest period between searches for due dead letters.
	dueTick = time.Minute
	// dueLetters is how many of them are offered at a time.
	dueLetters = 1000
)

// run periodically requests a decision about given-up changes that are due. It ends
// with the stage.
func (o *offers) run() {
	tick := func() time.Duration {
		tick := dueTick
		for _, w := range o.services() {
			if later := w.opt.Retry.Later; later > 0 {
				tick = min(tick, max(later/4, time.Millisecond))
			}
		}
		return tick
	}
	for wait.Sleep(o.ctx, tick()) {
		if err := o.due(o.ctx); err != nil && o.ctx.Err() == nil {
			o.log.Warn("cannot offer given-up changes again; retrying", "event", "letters.offer_failed", "error", err)
		}
	}
}

// due requests a decision about each due dead letter of this process's
// partitions, once until it dies again: the store remembers that. That includes those
// whose request the inbox refuses, which would keep the others from being offered.
func (o *offers) due(ctx context.Context) error {
	takers, names := o.takers()
	if len(names) == 0 {
		return nil
	}
	for after := int64(0); ; {
		letters, err := o.opt.Store.DueLetters(ctx, names, after, dueLetters)
		if err != nil || len(letters) == 0 {
			return err
		}
		after = letters[len(letters)-1].ID
		var offered []int64
		for i := range letters {
			l := &letters[i]
			if !o.owns(l) || l.Code != CodeServiceRemoved && takers[l.Service].opt.Retry.Later == 0 {
				continue
			}
			if err = o.offer(ctx, takers[l.Service], l); tooLarge(err) {
				o.log.Warn("inbox does not take the request to offer a dead letter again", "event", "letters.too_large", "service", l.Service, "letter", l.ID, "error", err)
				err = nil
			}
			if err != nil {
				break
			}
			offered = append(offered, l.ID)
		}
		if len(offered) > 0 {
			err = errors.Join(err, o.opt.Store.Offered(ctx, offered))
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
func (o *offers) takers() (takers map[string]*worker, names []string) {
	workers := o.services()
	o.mu.Lock()
	defer o.mu.Unlock()
	takers = map[string]*worker{}
	for _, w := range workers {
		state := w.target.condition.now().State
		// A worker whose last attempt failed and that has nothing in flight may work again.
		if state == StateRunning || state == StateRetrying && !w.queue.Busy() {
			takers[w.opt.Name] = w
			names = append(names, w.opt.Name)
		}
	}
	return takers, names
}

// owns reports whether this process offers a dead letter again.
func (o *offers) owns(l *store.DeadLetter) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	p := o.parts[o.opt.Partition(l.Entity, math.MaxUint64)] // where the request goes
	return p != nil && !p.Revoked()
}

// offer requests that a dead letter is offered again, as an operator's replay does: a
// state sink gets the present content, a log sink the original change.
func (o *offers) offer(ctx context.Context, w *worker, l *store.DeadLetter) error {
	c := change.Control{
		ID: uuid.NewString(), Action: change.Redecide, Services: []string{l.Service}, Version: l.Version, Letter: l.ID, Force: l.Code == CodeServiceRemoved, Actor: change.Deliver,
		Reason: fmt.Sprintf("given up %d times, offered again", l.Count),
	}
	var beside LetterHeaders
	if json.Unmarshal(l.Headers, &beside) == nil {
		c.Trace = beside.Trace
	}
	if w.traits.Kind == sinks.Log {
		whole, err := o.opt.Store.Letter(ctx, l.ID)
		if err != nil {
			return err
		}
		sent, err := ChangeOf(whole)
		if err != nil {
			return nil //nolint:nilerr // an older build's: an operator has to look at it
		}
		c.Action, c.Version, c.Change = change.Resend, 0, sent.AppendBinary(nil)
	}
	if err := o.opt.Control(ctx, change.Record{Entity: l.Entity, Control: &c}); err != nil {
		return err
	}
	w.m.offered.Inc()
	return nil
}
