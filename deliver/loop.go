package deliver

import (
	"context"
	"errors"
	"time"

	"github.com/seed-86dfc502/weir/deliver/core"
	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/sinks"
	"github.com/seed-86dfc502/weir/store"
)

// loop receives the changes of a service, and does what core says next.
type loop struct{ *worker }

// run delivers until stop ends, and closes the sink. Changes in hand stay pending in
// their cursors then, and are redelivered.
func (l loop) run(stop context.Context) {
	defer close(l.ended)
	defer l.opt.Sink.Close()
	work, cancel := context.WithCancel(context.WithoutCancel(stop))
	defer cancel()
	defer context.AfterFunc(l.s.opt.Limit, cancel)()
	for stop.Err() == nil {
		if err := l.step(work, stop); err != nil && !errors.Is(err, errRevoked) {
			break
		}
	}
	l.s.step(func() {
		for _, sl := range l.slices {
			endSpans(sl.todo)
			l.s.flow.Abandon(sl.Slice)
		}
		l.queue.SetBusy(false, l.queue.Full)
	})
	l.slices = nil
}

// step receives changes, and does what core says next. work is for effects and is not
// cancelled at a shutdown; stop ends waiting and retrying. Its error says that run ends.
func (l loop) step(work, stop context.Context) error {
	if err := l.receive(work, stop); err != nil {
		return err
	}
	next := l.core.Next(time.Now())
	if l.opt.Pace != (Pace{}) {
		n := l.core.Paced()
		l.m.paced.Set(float64(n))
		l.target.condition.waitForPace(n)
	}
	switch next.Kind {
	case core.Write:
		return (&attempt{worker: l.worker, step: next}).write(work, stop)
	case core.Retry:
		return (&attempt{worker: l.worker, step: next}).retry(work, stop)
	case core.Conclude:
		return l.conclude(work, stop, next.Items)
	case core.AwaitUp:
		if !l.target.await(stop, l.target.last, time.Until(next.Until)) {
			return errStopped
		}
	case core.Wait:
		l.target.condition.retryAt(next.Until)
		if !l.canTake() { // else the changes that were received needed no delivery
			l.wait(stop, next.Until)
		}
	}
	return nil
}

func (l loop) canTake() bool {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	return l.queue.CanTake(l.core.Hand.Room())
}

// wait waits until a time, unless it is zero, or until something arrives.
func (l loop) wait(stop context.Context, until time.Time) {
	var timer <-chan time.Time
	if !until.IsZero() {
		timer = time.After(time.Until(until))
	}
	select {
	case <-l.wakeUp:
	case <-timer:
	case <-l.target.requested().Done():
		l.target.changed = nil
		l.core.Hurry(time.Now())
	case <-stop.Done():
	}
}

// receive takes over and drops partitions, and takes changes into hand.
func (l loop) receive(work, stop context.Context) error {
	l.dropRevoked()
	l.s.mu.Lock()
	arrived := l.arrived
	l.arrived = nil
	taken := l.queue.Take(l.core.Hand.Room(), time.Now())
	crowded := l.queue.Crowded()
	l.s.mu.Unlock()
	l.core.Hand.Crowded = crowded
	l.touched = l.touched || len(taken)+len(arrived) > 0
	for _, a := range arrived {
		l.parts = append(l.parts, a.p)
		l.core.Restore(a.rows)
	}
	if len(arrived) > 0 {
		l.core.Rate.Share(len(l.parts), l.s.opt.Partitions, time.Now())
	}
	if len(taken) > 0 {
		batch := make([]*slice, len(taken))
		for i, sl := range taken {
			batch[i] = &slice{Slice: sl}
		}
		l.slices = append(l.slices, batch...)
		all, err := l.decode(work, stop, batch)
		if err != nil {
			return err
		}
		crash.At(crash.DeliverBatch, l.opt.Name)
		if err := l.add(work, stop, all); err != nil {
			return err
		}
	}
	l.apply()
	return nil
}

// decode reads the changes of slices and drops those below the service's position.
func (l loop) decode(work, stop context.Context, batch []*slice) ([]*delivery, error) {
	n := 0
	for _, sl := range batch {
		n += sl.Changes.Count
	}
	all := make([]*delivery, 0, n)
	values := make([]delivery, n)
	var letters []store.DeadLetter
	for _, sl := range batch {
		first := len(all)
		for c, err := range sl.Changes.All(l.opt.Name) {
			if err != nil {
				letter := unreadable(sl.Lane.Partition.Number, sl.Frame.From, l.opt.Name+"/"+sl.Frame.From.String()+"/"+sl.Frame.To.String(), err)
				letter.Service, letter.Offset = l.opt.Name, sl.Frame.From.Offset()
				letters = append(letters, letter)
				break
			}
			if c.Position() < sl.SkipBelow {
				continue
			}
			v := &values[len(all)]
			*v = delivery{change: c, slice: sl.Slice}
			v.trace(l.s.opt.Tracer, l.opt.Name)
			v.change.Partition = sl.Lane.Partition.Number
			all = append(all, v)
		}
		sl.todo = all[first:len(all):len(all)]
	}
	l.m.outcomes[OutcomeDead].Add(float64(len(letters)))
	return all, l.s.addLetters(work, stop, letters)
}

// add hands changes to core. A redelivered change goes to a state sink that does not
// guard itself only if it is the newest that was decided: a newer one may be there
// already, and this one would overwrite it. A resent change of a log sink is always
// delivered.
func (l loop) add(work, stop context.Context, all []*delivery) error {
	var doubtful []string
	// One that settles is compared when it is written, so that a newer one inherits its time.
	stale := func(v *delivery) bool {
		return v.slice.Redelivered && l.traits.Kind == sinks.State && !l.traits.Guarded
	}
	for _, v := range all {
		if l.opt.Pace.Settle == 0 && stale(v) || l.obsoleteAfter(v) {
			doubtful = append(doubtful, v.change.Entity)
		}
	}
	rows, err := l.s.rows(work, stop, l.opt.Number, doubtful)
	if err != nil {
		return err
	}
	now := time.Now()
	for _, v := range all {
		c := &v.change
		if c.Forced {
			l.known.forget(c.Entity)
		}
		if rows[c.Entity].Version > c.Version && (v.slice.Redelivered || l.obsoleteAfter(v)) {
			l.recordOutcome(v, OutcomeOvertaken)
			continue
		}
		i := &core.Item{
			Partition: c.Partition, Position: c.Position(), Version: c.Version, Entity: c.Entity, Bytes: int64(len(c.Doc)),
			Resent: c.Resent != 0, Assignment: v.slice.Lane.Partition, Data: v, Arrived: now,
		}
		if i.Stale = l.opt.Pace.Settle > 0 && stale(v); v.slice.Redelivered { // it may have waited elsewhere; else clocks need not agree
			i.OldestUnsent = c.Time
		}
		l.core.Add(i)
	}
	return nil
}

// obsoleteAfter reports whether a change may have been replaced while the service was paused, so
// that a state sink gets only the newest.
func (l loop) obsoleteAfter(v *delivery) bool {
	if l.traits.Kind != sinks.State {
		return false
	}
	_, resumed := l.target.condition.resumed()
	return v.change.Time.Before(resumed)
}

// conclude ends changes that were refused or given up: as dead letters, or by a new
// decision. The letters are saved with the positions that pass their changes.
func (l loop) conclude(work, stop context.Context, items []*core.Item) error {
	if err := l.letters.load(work, stop, items); err != nil {
		return err
	}
	for _, i := range items {
		v, ok := i.Data.(*delivery)
		if !ok {
			l.core.Leave(i, core.Skipped)
			continue
		}
		replaceable, err := l.letters.replaceable(work, stop, v)
		if err != nil {
			return err
		}
		outcome := AttemptGaveUp
		switch {
		case replaceable:
			outcome = OutcomeRedecided
			err = l.letters.redecide(work, stop, i, v)
		case i.State() == core.Refused:
			outcome = AttemptRefused
			fallthrough
		default:
			if err = l.letters.deadLetter(work, stop, i, v); err == nil && i.Err != nil {
				l.target.condition.refuse(i.Err)
			}
		}
		if err != nil {
			return err
		}
		if v.record != nil {
			v.record(outcome)
		}
		l.core.Concluded(i, !replaceable)
	}
	l.apply()
	if err := l.saved(work, items); err != nil {
		return err
	}
	crash.At(crash.Buried, l.opt.Name)
	return nil
}
