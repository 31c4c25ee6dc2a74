package operate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/seed-86dfc502/weir/api/checks"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/internal/wait"
	"github.com/seed-86dfc502/weir/store"
)

// Kind is the action of a task on each entity.
type Kind string

const (
	// Replay decides again from the current merged document.
	Replay Kind = "replay"
	// Reset sets the dam state to unknown: the next content passes, even an equal one.
	// It does so to the rows of check services too.
	Reset Kind = "reset"
	// ResetOrder drops the sequences that entities remember of their sources.
	ResetOrder Kind = "reset_order"
)

// Task is an action on many entities.
type Task struct {
	Kind   Kind
	Select Selection
	// Services limits it to some services, for Reset check services too; empty is
	// all.
	Services []string
	// Force sends also what equals the customer's last one (Replay).
	Force bool
	// Rate bounds the entities per second; 0 is no bound.
	Rate float64
	// Reason is for the audit.
	Reason string
}

// Parameters identify a task, as JSON. An open job with the same parameters is the same task.
type Parameters struct {
	All      bool       `json:"all,omitempty"`
	Outdated bool       `json:"outdated,omitempty"`
	Revision int64      `json:"revision,omitempty"`    // Outdated: the one to move to
	List     string     `json:"list,omitempty"`        // hash of a list of ids
	Listed   int64      `json:"list_length,omitempty"` // and how many it holds
	Since    *time.Time `json:"since,omitempty"`
	Until    *time.Time `json:"until,omitempty"`
	Services []string   `json:"services,omitempty"`
	Force    bool       `json:"force,omitempty"`
	Reason   string     `json:"reason,omitempty"`
}

// Resume returns the task that a job's row describes. A list of ids is not in the
// row, so such a job resumes only when the same list is given again.
func Resume(j store.Job) (Task, error) {
	var p Parameters
	if err := json.Unmarshal(j.Parameters, &p); err != nil {
		return Task{}, fmt.Errorf("job %d: %w", j.ID, err)
	}
	if p.List != "" {
		return Task{}, Invalid("job %d works on a list of entities: give the same list again", j.ID)
	}
	t := Task{Kind: Kind(j.Kind), Services: p.Services, Force: p.Force, Reason: p.Reason, Select: Selection{All: p.All, Outdated: p.Outdated}}
	if p.Since != nil {
		t.Select.Since = *p.Since
	}
	if p.Until != nil {
		t.Select.Until = *p.Until
	}
	return t, nil
}

// parameters returns the parameters of a task. It reads the list, if there is one.
func (t *Task) parameters(revision int64) (Parameters, error) {
	p := Parameters{All: t.Select.All, Outdated: t.Select.Outdated, Services: slices.Clone(t.Services), Force: t.Force, Reason: t.Reason}
	if p.Outdated {
		p.Revision = revision
	}
	slices.Sort(p.Services)
	if !t.Select.Since.IsZero() {
		p.Since = &t.Select.Since
	}
	if !t.Select.Until.IsZero() {
		p.Until = &t.Select.Until
	}
	if t.Select.List != nil {
		hash := sha256.New()
		err := lines(t.Select.List, func(_ int64, id string) error {
			p.Listed++
			_, _ = io.WriteString(hash, id+"\n")
			return nil
		})
		if err != nil {
			return p, err
		}
		p.List = hex.EncodeToString(hash.Sum(nil)[:16])
	}
	return p, nil
}

// work is a task in its environment: Run does it, and Preview counts its effect. Not for
// concurrent use.
type work struct {
	*Env
	task  Task
	scope scope
	asked Parameters
	total int64 // at most so many entities; 0 when unknown
}

// newWork checks a task. It reads the list, if there is one. The error is an
// *InvalidRequestError when the task cannot be done.
func newWork(ctx context.Context, e *Env, t Task) (w *work, err error) {
	w = &work{Env: e, task: t, scope: newScope(e, t)}
	if err := w.check(); err != nil {
		return w, err
	}
	if w.asked, err = t.parameters(e.Plan.Revision); err != nil {
		return w, err
	}
	w.total = w.asked.Listed
	if t.Select.All || t.Select.Outdated {
		w.total, _ = e.Store.CountEntities(ctx) // the walk will fail with the same error
	}
	return w, nil
}

// check finds what cannot be done.
func (w *work) check() error {
	t := w.task
	selected := 0
	for _, is := range []bool{t.Select.All, t.Select.Outdated, t.Select.List != nil, !t.Select.Since.IsZero()} {
		if is {
			selected++
		}
	}
	switch {
	case selected != 1:
		return Invalid("say which entities, in exactly one way")
	case !t.Select.Until.IsZero() && !t.Select.Until.After(t.Select.Since):
		return Invalid("the range of time is empty")
	case t.Kind == ResetOrder && len(t.Services) > 0:
		return Invalid("an entity's order is that of its sources: no services together with it")
	case t.Select.Outdated && len(t.Services) > 0:
		return Invalid("entities move to a configuration as a whole: no services together with outdated")
	}
	for _, s := range t.Services {
		_, fed := w.Plan.Service(s)
		checked := slices.ContainsFunc(w.Checks, func(c checks.Service) bool { return c.Name == s })
		switch {
		case !fed && !checked:
			return Invalid("there is no service %s in the active configuration", s)
		case !fed && t.Kind != Reset:
			return Invalid("%s is a check service: the pipeline sends it nothing", s)
		}
	}
	return nil
}

// Result is the effect of a task, done or previewed.
type Result struct {
	Operation string `json:"operation,omitempty"` // empty for a preview
	Job       int64  `json:"job,omitempty"`
	Resumed   bool   `json:"resumed,omitempty"` // it went on where an earlier run was cut off
	Entities  int64  `json:"entities"`          // that got a control record, over all runs of the job
	// CheckRows is how many rows of check services were set to unknown, over all
	// runs, or would be. Rows that are unknown already are not in it.
	CheckRows int64 `json:"check_rows,omitempty"`
	Unknown   int64 `json:"unknown,omitempty"` // named, but not stored: passed over, in this run
	// Services has the numbers of a preview, in the order of the configuration,
	// check services last.
	Services []ServiceEffect `json:"services,omitempty"`
}

// ServiceEffect is the previewed effect of a task on one service.
type ServiceEffect struct {
	Service string `json:"service"`
	Send    int64  `json:"would_send"`      // changes that would be let through
	Hold    int64  `json:"would_hold_back"` // equal to what the service has
	Reset   int64  `json:"would_reset,omitempty"`
	Check   bool   `json:"check,omitempty"`      // it is a check service
	Fail    int64  `json:"would_fail,omitempty"` // would become dead letters
}

// progress is the cursor of a job with its counters.
type progress struct {
	Cursor   json.RawMessage `json:"cursor,omitempty"` // of a list or a range, JSON
	After    []byte          `json:"after,omitempty"`  // of the store, an entity id
	Entities int64           `json:"entities"`

	Check     int32  `json:"check,omitempty"`       // number of the current check service
	CheckFrom string `json:"check_after,omitempty"` // the entity after which it resumes there
	CheckRows int64  `json:"check_rows,omitempty"`
}

// size of a portion: small enough that a slow rate moves the cursor some times
// a second.
func (t *Task) size() int {
	if t.Rate <= 0 {
		return page
	}
	return max(1, min(page, int(t.Rate/4)))
}

// Run does a task as a job: control records are appended in batches, and the job's cursor follows
// them. An open job with the same parameters is continued. An error leaves the job open, and so
// does the end of ctx. The error wraps store.ErrFenced when another process continues the job,
// and is an *InvalidRequestError when the task cannot be done.
func (e *Env) Run(ctx context.Context, t Task) (Result, error) {
	w, err := newWork(ctx, e, t)
	if err != nil {
		return Result{}, err
	}
	text, err := json.Marshal(w.asked)
	if err != nil {
		return Result{}, err
	}
	identity := w.asked
	identity.Reason = "" // another wording is no other task
	same, err := json.Marshal(identity)
	if err != nil {
		return Result{}, err
	}
	key := sha256.Sum256(same)
	job, err := e.Store.OpenJob(ctx, store.Job{
		Kind: string(t.Kind), Key: hex.EncodeToString(key[:]), Parameters: text, Total: w.total, Actor: e.Actor,
	})
	if err != nil {
		return Result{}, err
	}
	crash.At(crash.JobOpened, job.Kind)
	r := &runner{work: w, job: job, result: Result{Operation: fmt.Sprintf("job-%d", job.ID), Job: job.ID, Resumed: job.Epoch > 1}}
	if err := r.restore(); err != nil {
		return r.result, err
	}
	return r.result, r.run(ctx)
}

// runner is one run of a job. Not for concurrent use.
type runner struct {
	*work
	job    store.Job
	at     progress
	result Result
	pace   pace
}

func (r *runner) restore() error {
	if r.job.Cursor == nil {
		return nil
	}
	if err := json.Unmarshal(r.job.Cursor, &r.at); err != nil {
		return fmt.Errorf("job %d: cursor: %w", r.job.ID, err)
	}
	r.result.Entities, r.result.CheckRows = r.at.Entities, r.at.CheckRows
	return nil
}

func (r *runner) cursor() []byte {
	if r.at.Cursor != nil {
		return r.at.Cursor
	}
	return r.at.After
}

func (r *runner) run(ctx context.Context) error {
	t := r.task
	if err := r.onRecord(ctx, "begun"); err != nil {
		return err
	}
	r.pace.perSecond = t.Rate
	var err error
	if r.walks() {
		err = r.walk(ctx, r.cursor(), t.size(), func(p batch) error { return r.runBatch(ctx, p) })
	}
	if err == nil && t.Select.All {
		err = r.resetAllChecks(ctx)
	}
	if err != nil {
		if !errors.Is(err, store.ErrFenced) {
			// Audit the progress, also after the caller has hung up.
			late, cancel := wait.WithGrace(context.WithoutCancel(ctx), ctx, lastWrite)
			defer cancel()
			err = errors.Join(err, r.onRecord(late, "cut off"))
		}
		return err
	}
	// Mark the job done last: until then an error leaves it open, to be continued.
	if err := r.onRecord(ctx, "done"); err != nil {
		return err
	}
	crash.At(crash.JobEnded, r.job.Kind)
	r.job.State = store.JobDone
	if err := r.Store.SaveJob(ctx, &r.job); err != nil {
		return err
	}
	if t.Kind == Replay && (t.Select.Outdated || t.Select.All && len(t.Services) == 0) {
		return BackfillDone(ctx, r.Store, r.Plan.Fingerprint)
	}
	return nil
}

// lastWrite bounds the last write after the caller's end.
const lastWrite = 5 * time.Second

// runBatch appends the records of a batch, then moves the cursor.
func (r *runner) runBatch(ctx context.Context, p batch) error {
	c, err := r.affected(ctx, p)
	r.result.Unknown += c.unknown
	if err != nil {
		return err
	}
	ids := c.ids
	if err := r.pace.wait(ctx, max(len(ids), len(c.rows))); err != nil {
		return err
	}
	if err := r.resetChecks(ctx, c.rows); err != nil {
		return err
	}
	records := make([]change.Record, len(ids))
	for i, id := range ids {
		c := r.control(r.result.Operation)
		c.ID += "/" + id
		records[i] = change.Record{Entity: id, Control: &c}
	}
	crash.At(crash.JobAppending, r.job.Kind)
	if err := r.send(ctx, records); err != nil {
		return fmt.Errorf("append to the inbox: %w", err)
	}
	crash.At(crash.JobAppended, r.job.Kind)
	r.at.Entities += int64(len(ids))
	if r.task.Select.All || r.task.Select.Outdated {
		r.at.After = p.cursor
	} else {
		r.at.Cursor = p.cursor
	}
	r.result.Entities = r.at.Entities
	return r.save(ctx, p.seen)
}

// save moves the job's cursor to where the run is.
func (r *runner) save(ctx context.Context, seen int64) (err error) {
	if r.job.Cursor, err = json.Marshal(r.at); err != nil {
		return err
	}
	r.job.Done += seen
	// Appended batches are recorded, also after the caller's end.
	save, cancel := wait.WithGrace(context.WithoutCancel(ctx), ctx, lastWrite)
	defer cancel()
	if err := r.Store.SaveJob(save, &r.job); err != nil {
		return err
	}
	crash.At(crash.JobSaved, r.job.Kind)
	if r.Progress != nil {
		r.Progress(r.job.Done, r.job.Total)
	}
	return ctx.Err()
}

// control is the record that the task sends to each entity.
func (w *work) control(operation string) change.Control {
	t := &w.task
	c := change.Control{ID: operation, Action: change.Redecide, Services: w.scope.services, Force: t.Force, Outdated: t.Select.Outdated, Actor: w.Actor, Reason: t.Reason, Operation: operation}
	switch t.Kind {
	case Reset:
		c.Action, c.Force = change.Reset, false
	case ResetOrder:
		c.Action, c.Force, c.Services = change.ResetOrder, false, nil
	}
	return c
}

// affected is the part of a batch on which the task has an effect.
type affected struct {
	ids     []string         // that get a record
	rows    []store.CheckRow // that are to be reset
	unknown int64            // ids that were named, and nobody knows
}

// affected drops the ids of a batch on which a record would have no effect: named ones that are
// not stored, and for a reset those without a dam row.
func (w *work) affected(ctx context.Context, p batch) (c affected, err error) {
	c.ids = p.ids
	if w.task.Select.List != nil {
		if c.rows, err = w.checkRows(ctx, p.ids); err != nil {
			return affected{}, err
		}
		c.ids = nil
		for _, id := range p.ids {
			_, err := w.Store.Entity(ctx, id)
			switch {
			case errors.Is(err, store.ErrNotFound):
				if !slices.ContainsFunc(c.rows, func(r store.CheckRow) bool { return r.Entity == id }) {
					c.unknown++
				}
			case err != nil:
				return affected{}, err
			default:
				c.ids = append(c.ids, id)
			}
		}
	}
	if w.task.Kind != Reset || len(c.ids) == 0 {
		return c, nil
	}
	rows, err := w.rows(ctx, c.ids)
	if err != nil {
		return affected{}, err
	}
	has := make(map[string]bool, len(c.ids))
	for _, row := range rows {
		if row.Found {
			has[row.Entity] = true
		}
	}
	c.ids = slices.DeleteFunc(slices.Clone(c.ids), func(id string) bool { return !has[id] })
	return c, nil
}

// rows reads the dam rows of entities.
func (w *work) rows(ctx context.Context, ids []string) ([]store.Row, error) {
	var keys []store.Key
	in := &w.scope
	for _, s := range w.Plan.Services {
		if !in.fed || len(in.services) > 0 && !slices.Contains(in.services, s.Name) {
			continue
		}
		for _, id := range ids {
			keys = append(keys, store.Key{Service: s.Number, Entity: id})
		}
	}
	if len(keys) == 0 {
		return nil, nil
	}
	return w.Store.Rows(ctx, keys)
}

// onRecord writes an audit row of the whole task.
func (r *runner) onRecord(ctx context.Context, state string) error {
	all := map[string]any{
		"operation": r.result.Operation, "state": state, "entities": r.result.Entities, "task": json.RawMessage(r.job.Parameters),
	}
	if r.task.Kind == Reset {
		all["check_rows"] = r.result.CheckRows
	}
	detail, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return r.audit(ctx, store.Audit{Action: string(r.task.Kind), Reason: r.task.Reason, Detail: detail})
}
