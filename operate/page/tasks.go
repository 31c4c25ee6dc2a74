package page

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/store"
)

// taskSection serves replay and reset.
type taskSection struct{ *Page }

// taskForm describes a replay or a reset, as text of a form.
type taskForm struct {
	Kind         string // replay or reset
	Which        string // list, all, outdated, since
	List         string // ids, one a line
	Since, Until string // as an input of date and time has them, UTC
	Services     []string
	Force        bool
	Rate         string // entities per second
	Reason       string
}

// maxRate is more than any store can do.
const maxRate = 1e9

const inputTime = "2006-01-02T15:04"

func taskFormOf(v url.Values) taskForm {
	f := taskForm{
		Kind: v.Get("kind"), Which: v.Get("which"), List: v.Get("list"), Since: v.Get("since"), Until: v.Get("until"),
		Services: strings.Fields(strings.Join(v["service"], "\n")), Force: v.Get("force") != "", Rate: v.Get("rate"), Reason: strings.TrimSpace(v.Get("reason")),
	}
	if f.Kind == "" {
		f.Kind = string(operate.Replay)
	}
	if f.Which == "" {
		f.Which = "list"
	}
	return f
}

// task returns the task of the form. An *InvalidRequestError names its fault.
func (f taskForm) task() (operate.Task, error) {
	t := operate.Task{Kind: operate.Kind(f.Kind), Services: f.Services, Force: f.Force, Reason: f.Reason}
	if t.Kind != operate.Replay && t.Kind != operate.Reset {
		return t, operate.Invalid("Choose what to do.")
	}
	at := func(text string) (time.Time, error) {
		if text == "" {
			return time.Time{}, nil
		}
		when, err := time.Parse(inputTime, text)
		if err != nil {
			return when, operate.Invalid("%q is no date and time.", text)
		}
		return when, nil
	}
	var err error
	switch f.Which {
	case "all":
		t.Select.All = true
	case "outdated":
		t.Select.Outdated = true
	case "since":
		if t.Select.Since, err = at(f.Since); err != nil {
			return t, err
		}
		if t.Select.Since.IsZero() {
			return t, operate.Invalid("Say since when.")
		}
		if t.Select.Until, err = at(f.Until); err != nil {
			return t, err
		}
	case "list":
		ids := strings.TrimSpace(strings.ReplaceAll(f.List, "\r\n", "\n"))
		if ids == "" {
			return t, operate.Invalid("Name at least one entity.")
		}
		t.Select.List = strings.NewReader(ids + "\n")
	default:
		return t, operate.Invalid("Choose which entities.")
	}
	if f.Rate != "" {
		if t.Rate, err = strconv.ParseFloat(f.Rate, 64); err != nil || !(t.Rate >= 0 && t.Rate <= maxRate) {
			return t, operate.Invalid("%q is no number of entities per second.", f.Rate)
		}
	}
	return t, nil
}

type taskBody struct {
	taskForm
	LastJob *jobBody
	Jobs    []store.Job // of late, the latest first

	// Of a result.
	Ran     bool // it was done, not only tried
	Result  operate.Result
	Nothing bool // none of the named entities is known
}

// maxTasks bounds the list of earlier tasks.
const maxTasks = 10

// form shows the form, filled in by the address.
func (p taskSection) form(r *http.Request) (view, error) {
	b := taskBody{taskForm: taskFormOf(r.URL.Query()), LastJob: p.lastJob(jobTasks)}
	if entity := r.URL.Query().Get("entity"); entity != "" {
		b.List = entity
	}
	var err error
	b.Jobs, err = p.opt.Store.ListJobs(r.Context(), store.JobFilter{Limit: maxTasks})
	return view{Title: "Replay and reset", Section: "/replay", Body: b}, err
}

// begin previews or does a replay or a reset. A preview by the same form precedes it:
// same form: the page of a trial is the only one that offers it.
func (p taskSection) begin(w http.ResponseWriter, r *http.Request, who *session) error {
	f := taskFormOf(r.PostForm)
	why, err := reason(r)
	if err != nil {
		return err
	}
	f.Reason = why
	t, err := f.task()
	if err != nil {
		return err
	}
	for i, name := range t.Services {
		t.Services[i] = p.opt.Config().FirstName(name)
	}
	run := r.PostForm.Get("do") == "run"
	what := "A " + f.Kind + " is tried"
	if run {
		what = "A " + f.Kind + " is under way"
	}
	return p.run(w, r, who, jobTasks, what, func(ctx context.Context, j *job) (outcome, error) {
		env, err := p.env(ctx, who)
		if err != nil {
			return outcome{}, err
		}
		env.Progress = j.progress
		b := taskBody{taskForm: f, Ran: run}
		if run {
			b.Result, err = env.Run(ctx, t)
			if err == nil {
				err = env.Wait(ctx)
			}
		} else {
			b.Result, err = env.Preview(ctx, t)
		}
		var no *operate.InvalidRequestError
		switch {
		case errors.Is(err, operate.ErrBadList):
			return outcome{}, operate.Invalid("%s", err)
		case errors.As(err, &no):
			return outcome{}, err
		case errors.Is(err, store.ErrFenced):
			return outcome{}, operate.Invalid("Another process runs job %d.", b.Result.Job)
		case err != nil:
			return outcome{}, err
		}
		b.Nothing = b.Result.Unknown > 0 && b.Result.Entities == 0 && b.Result.CheckRows == 0
		title := map[bool]string{false: "What would be done", true: "Done"}[run]
		return outcome{"task", view{Title: title, Section: "/replay", Body: b}}, nil
	})
}
