package deliver

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/deliver/core"
	"github.com/seed-86dfc502/weir/internal/tracing"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/store"
)

func (w *worker) key(i *core.Item) string {
	return store.RetryingKey(w.opt.Name, i.Partition, i.Position)
}

// putRow writes the row of a parked change; v is nil or was loaded if the store has its
// bytes. Part of step.
func (w *worker) putRow(p *core.Partition, i *core.Item, v *delivery) {
	var c *change.Change
	if v != nil && v.slice != nil {
		c = &v.change
		v.done = true
		if v.span != nil {
			v.span.Set(tracing.OutcomeKey.String(OutcomeParked))
		}
		w.endSpan(v, nil)
		w.m.count(OutcomeParked)
		w.log.Warn("change waits for another attempt; its entity is held up", "event", "delivery.parked", "entity", i.Entity,
			"attempts", i.Attempts, "next_try", i.Next, "error", shortened(i.Reason, maxCondition))
	}
	i.Data = nil
	letter, err := w.letterOf(i, c)
	if err != nil {
		panic(err) // no such header
	}
	letter.State, letter.Code, letter.DedupKey = store.LetterRetrying, codeRetrying, w.key(i)
	p.Edit(letter.DedupKey, core.RowEdit{Put: &letter})
}

// codeRetrying is the code of rows that are tried again.
const codeRetrying = "retrying"

// restored returns the rows of a partition that was taken over.
func restored(p *core.Partition, rows []store.DeadLetter) []*core.Item {
	items := make([]*core.Item, len(rows))
	for n := range rows {
		l := &rows[n]
		items[n] = &core.Item{
			Partition: l.Part, Position: l.Position, Version: l.Version, Entity: l.Entity, Bytes: l.Size, Owner: p,
			Attempts: l.Attempts, Next: l.NextTry, Since: l.Created, Reason: l.Reason,
		}
	}
	return items
}

// CodeServiceRemoved is the code of letters whose service was removed from the
// configuration while they were retried: their content is not refused.
const CodeServiceRemoved = "service_removed"

// abandon makes an ordinary letter of a retrying change of a service that is not
// configured. It is due at once: a service that returns gets it. Only a
// process of the active revision can save that. Part of step.
func abandon(p *core.Partition, l store.DeadLetter, key string) {
	l.State, l.Code, l.Later, l.NextTry = store.LetterOpen, CodeServiceRemoved, time.Microsecond, time.Time{}
	l.Reason = "its service was removed from the configuration; last failure: " + l.Reason
	l.DedupKey = "removed/" + key
	p.Edit(key, core.RowEdit{Letter: &l, Parked: true})
}

// restoreRows hands the rows of a partition to its services; those of a service that is not
// configured become letters. Part of step.
func (s *Stage) restoreRows(p *partition, rows []store.DeadLetter) {
	by := map[string][]store.DeadLetter{}
	for i := range rows {
		by[rows[i].Service] = append(by[rows[i].Service], rows[i])
	}
	for _, w := range s.workers {
		of := by[w.opt.Name]
		delete(by, w.opt.Name)
		w.arrived = append(w.arrived, arrival{p.Partition, restored(p.Partition, of)})
		w.parked += len(of)
		if len(of) > 0 {
			wait.Offer(w.wakeUp, struct{}{})
		}
	}
	for _, of := range by {
		for _, l := range of {
			abandon(p.Partition, l, l.DedupKey)
		}
	}
}

// load reads the changes of parked items. One whose row is not as it was written stays
// without.
func (w *worker) load(work, stop context.Context, items []*core.Item) error {
	byKey := map[string]*core.Item{}
	for _, i := range items {
		if i.Data == nil {
			byKey[w.key(i)] = i
		}
	}
	if len(byKey) == 0 {
		return nil
	}
	var rows []store.DeadLetter
	if err := w.s.retryUntil(work, stop, "read retrying changes", func() (err error) {
		rows, err = w.s.opt.Store.Retrying(work, slices.Sorted(maps.Keys(byKey)))
		return err
	}); err != nil {
		return err
	}
	w.s.mu.Lock()
	for key, i := range byKey { // those that are not saved yet
		if put := i.Owner.(*core.Partition).Row(key); put != nil && put.Payload != nil {
			rows = append(rows, *put)
		}
	}
	w.s.mu.Unlock()
	for n := range rows {
		i := byKey[rows[n].DedupKey]
		c, err := ChangeOf(rows[n])
		if err != nil {
			w.log.Error("retrying change cannot be read; it ends", "event", "delivery.unreadable", "entity", i.Entity, "error", err)
			continue
		}
		if c.Partition = i.Partition; i.Position != i.Version {
			c.Resent = i.Position
		}
		v := &delivery{change: c}
		v.span = w.s.opt.Tracer.Deliver(c.Trace, w.opt.Name)
		v.change.Trace = v.span.Trace()
		i.Data = v
	}
	return nil
}

// saved returns when the progress of the items' partitions is saved.
func (w *worker) saved(work context.Context, items []*core.Item) error {
	parts := make([]*core.Partition, 0, len(items))
	for _, i := range items {
		if p := i.Owner.(*core.Partition); !slices.Contains(parts, p) {
			parts = append(parts, p)
		}
	}
	return w.s.saver.await(work, parts)
}
