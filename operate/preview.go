package operate

import (
	"context"
	"errors"

	"github.com/seed-86dfc502/weir/api/checks"
	"github.com/seed-86dfc502/weir/store"
)

// Preview previews a task: the same selection, and per service the number of changes that the
// code of decide would send and hold back. Undecided records of the inbox are not in it. A task that
// cannot be done is an *InvalidRequestError.
func (e *Env) Preview(ctx context.Context, t Task) (Result, error) {
	var out Result
	w, err := newWork(ctx, e, t)
	if err != nil {
		return out, err
	}
	effects := make(map[string]*ServiceEffect, len(e.Plan.Services))
	for _, s := range e.Plan.Services {
		effects[s.Name] = &ServiceEffect{Service: s.Name}
	}
	resets := make(map[int32]int64, len(w.scope.checks))
	var seen int64
	step := func(p batch) error {
		c, err := w.affected(ctx, p)
		if err != nil {
			return err
		}
		out.Unknown += c.unknown
		if err := countResets(resets, c.rows); err != nil {
			return err
		}
		for _, id := range c.ids {
			found, err := w.previewOne(ctx, p, id, effects)
			if err != nil {
				return err
			}
			if found {
				out.Entities++
			} else {
				out.Unknown++
			}
		}
		seen += p.seen
		if e.Progress != nil {
			e.Progress(seen, w.total)
		}
		return ctx.Err()
	}
	if w.walks() {
		err = w.walk(ctx, nil, page, step)
	}
	for _, c := range w.scope.checks {
		if err != nil || !t.Select.All {
			break
		}
		err = w.checkPages(ctx, c, "", page, func(rows []store.CheckRow) error { return countResets(resets, rows) })
	}
	for _, s := range e.Plan.Services {
		if f := *effects[s.Name]; f.Send+f.Hold+f.Reset+f.Fail > 0 {
			out.Services = append(out.Services, f)
		}
	}
	for _, c := range e.Checks {
		if n := resets[c.Number]; n > 0 {
			out.Services = append(out.Services, ServiceEffect{Service: c.Name, Reset: n, Check: true})
			out.CheckRows += n
		}
	}
	return out, err
}

// countResets counts, by service, the rows that a reset would change.
func countResets(resets map[int32]int64, rows []store.CheckRow) error {
	for i := range rows {
		n, err := checks.CountResets(rows[i : i+1])
		if err != nil {
			return err
		}
		resets[rows[i].Service] += int64(n)
	}
	return nil
}

// previewOne adds the effect of the task on one entity. It returns false when the entity is not
// stored.
func (w *work) previewOne(ctx context.Context, p batch, id string, effects map[string]*ServiceEffect) (bool, error) {
	if w.task.Kind == Reset {
		rows, err := w.rows(ctx, []string{id})
		if err != nil {
			return false, err
		}
		names := make(map[int32]string, len(w.Plan.Services))
		for _, s := range w.Plan.Services {
			names[s.Number] = s.Name
		}
		for _, row := range rows {
			if row.Found {
				effects[names[row.Service]].Reset++
			}
		}
		return true, nil
	}
	entity, ok := p.stored[id]
	if !ok {
		var err error
		if entity, err = w.Store.Entity(ctx, id); errors.Is(err, store.ErrNotFound) {
			return false, nil
		} else if err != nil {
			return false, err
		}
	}
	if w.task.Kind == ResetOrder {
		return true, nil
	}
	step, err := w.Plan.Preview(entity, w.control("preview"))
	if err != nil {
		return false, err
	}
	for _, c := range step.Sent {
		effects[c.Service].Send++
	}
	for _, s := range step.Held {
		effects[s].Hold++
	}
	for _, l := range step.Letters {
		if f := effects[l.Service]; f != nil {
			f.Fail++
		}
	}
	return true, nil
}
