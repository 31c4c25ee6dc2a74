package operate

import (
	"cmp"
	"context"
	"slices"

	"github.com/seed-86dfc502/weir/api/checks"
	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/store"
)

// scope is which services a task is for.
type scope struct {
	services []string         // that the pipeline feeds; empty is all of them
	fed      bool             // false when only check services were named
	checks   []checks.Service // to reset, by number, those that have ever been asked
}

// newScope separates the services of a task. Check services have no owner in the
// flow: records in the inbox are for the others.
func newScope(e *Env, t Task) scope {
	s := scope{fed: len(t.Services) == 0}
	for _, name := range t.Services {
		if _, fed := e.Plan.Service(name); fed {
			s.services, s.fed = append(s.services, name), true
		}
	}
	if t.Kind != Reset {
		return s
	}
	for _, c := range e.Checks {
		if c.Number != 0 && (len(t.Services) == 0 || slices.Contains(t.Services, c.Name)) {
			s.checks = append(s.checks, c)
		}
	}
	slices.SortFunc(s.checks, func(a, b checks.Service) int { return cmp.Compare(a.Number, b.Number) })
	return s
}

// walks reports whether the task goes through the selected entities: not when all
// are selected and only check services are meant, which know entities of their own.
func (w *work) walks() bool { return w.scope.fed || !w.task.Select.All }

// checkRows reads the check rows of entities, those that there are.
func (w *work) checkRows(ctx context.Context, ids []string) ([]store.CheckRow, error) {
	keys := make([]store.Key, 0, len(w.scope.checks)*len(ids))
	for _, c := range w.scope.checks {
		for _, id := range ids {
			keys = append(keys, store.Key{Service: c.Number, Entity: id})
		}
	}
	rows, err := w.Store.CheckRows(ctx, keys)
	return slices.DeleteFunc(rows, func(r store.CheckRow) bool { return !r.Found }), err
}

// resetChecks resets rows of different keys, and counts those that it changed.
func (r *runner) resetChecks(ctx context.Context, rows []store.CheckRow) error {
	n, err := checks.ResetRows(ctx, r.Store, rows)
	r.at.CheckRows += int64(n)
	r.result.CheckRows = r.at.CheckRows
	return err
}

// resetAllChecks resets all rows of the check services, from the job's cursor on.
func (r *runner) resetAllChecks(ctx context.Context) error {
	for _, c := range r.scope.checks {
		if c.Number < r.at.Check {
			continue
		}
		after := ""
		if c.Number == r.at.Check {
			after = r.at.CheckFrom
		}
		err := r.checkPages(ctx, c, after, r.task.size(), func(rows []store.CheckRow) error {
			if err := r.pace.wait(ctx, len(rows)); err != nil {
				return err
			}
			if err := r.resetChecks(ctx, rows); err != nil {
				return err
			}
			crash.At(crash.ChecksReset, r.job.Kind)
			r.at.Check, r.at.CheckFrom = c.Number, rows[len(rows)-1].Entity
			return r.save(ctx, int64(len(rows)))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// checkPages hands the rows of a check service to f, page by page. It ends with
// the first error of f.
func (w *work) checkPages(ctx context.Context, c checks.Service, after string, size int, f func([]store.CheckRow) error) error {
	for {
		rows, err := w.Store.ServiceCheckRows(ctx, c.Number, after, size)
		if err != nil || len(rows) == 0 {
			return err
		}
		if err := f(rows); err != nil {
			return err
		}
		after = rows[len(rows)-1].Entity
	}
}
