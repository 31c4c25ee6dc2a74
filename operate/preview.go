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
	if err := e.check(t); err != nil {
		return out, err
	}
	var total int64
	if t.Select.List != nil {
		p, err := e.parameters(t)
		if err != nil {
			return out, err
		}
		total = p.Listed
	}
	total = e.extent(ctx, t, total)
	in := e.scope(t)
	effects := make(map[string]*ServiceEffect, len(e.Plan.Services))
	for _, s := range e.Plan.Services {
		effects[s.Name] = &ServiceEffect{Service: s.Name}
	}
	resets := make(map[int32]int64, len(in.checks))
	var seen int64
	step := func(p batch) error {
		c, err := e.affected(ctx, t, in, p)
		if err != nil {
			return err
		}
		out.Unknown += c.unknown
		if err := countResets(resets, c.rows); err != nil {
			return err
		}
		for _, id := range c.ids {
			found, err := e.previewOne(ctx, t, in, p, id, effects)
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
			e.Progress(seen, total)
		}
		return ctx.Err()
	}
	var err error
	if in.walks(t) {
		err = e.walk(ctx, t.Select, nil, page, step)
	}
	for _, c := range in.checks {
		if err != nil || !t.Select.All {
			break
		}
		err = e.checkPages(ctx, c, "", page, func(rows []store.CheckRow) error { return countResets(resets, rows) })
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

// previewOne adds the effect of a task on one entity. It returns false when the entity is not
// stored.
func (e *Env) previewOne(ctx context.Context, t Task, in scope, p batch, id string, effects map[string]*ServiceEffect) (bool, error) {
	if t.Kind == Reset {
		rows, err := e.rows(ctx, in, []string{id})
		if err != nil {
			return false, err
		}
		names := make(map[int32]string, len(e.Plan.Services))
		for _, s := range e.Plan.Services {
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
		if entity, err = e.Store.Entity(ctx, id); errors.Is(err, store.ErrNotFound) {
			return false, nil
		} else if err != nil {
			return false, err
		}
	}
	if t.Kind == ResetOrder {
		return true, nil
	}
	step, err := e.Plan.Preview(entity, t.control(in, "preview", e.Actor))
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
