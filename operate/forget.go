package operate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/seed-86dfc502/weir/internal/crash"
	"github.com/seed-86dfc502/weir/store"
)

// ForgetKind is the kind of the jobs of Forget.
const ForgetKind = "forget"

// ForgetStore is the part of a store that forgetting needs.
type ForgetStore interface {
	AddAudits(ctx context.Context, audits []store.Audit) error
	store.Jobs
	store.Reports
	KnownServices(ctx context.Context) (map[string]int32, error)
	CountEntities(ctx context.Context) (int64, error)
	ServiceRows(ctx context.Context, service int32, after string, limit int) ([]store.Row, error)
	ForgetServices(ctx context.Context, services map[string]int32, audit store.Audit) error
	ForgetStates(ctx context.Context, services []int32, after string, limit int) (last string, dropped int64, err error)
}

// Forgotten is the effect of Forget, done or previewed.
type Forgotten struct {
	Customer string             `json:"customer"`
	Job      int64              `json:"job,omitempty"`
	Resumed  bool               `json:"resumed,omitempty"`
	Services []ForgottenService `json:"services"`
	States   int64              `json:"states"` // dam states
}

// ForgottenService is the effect on one service.
type ForgottenService struct {
	Service string `json:"service"`
	Number  int32  `json:"number"`
	// States are its dam states, Keeps the states of entities that the customer has. Only a preview has them.
	States int64 `json:"states,omitempty"`
	Keeps  int64 `json:"keeps,omitempty"`
}

// find returns a customer, by its first name or a later one, with its services that the store
// knows, by name.
func find(ctx context.Context, s ForgetStore, customer string) (f Forgotten, err error) {
	known, err := s.KnownServices(ctx)
	if err != nil {
		return f, err
	}
	firsts, err := firstNames(ctx, s)
	if err != nil {
		return f, err
	}
	for _, f.Customer = range []string{customer, cmp.Or(firsts[customer], customer)} {
		for _, name := range slices.Sorted(maps.Keys(known)) {
			if strings.HasPrefix(name, f.Customer+"/") {
				f.Services = append(f.Services, ForgottenService{Service: name, Number: known[name]})
			}
		}
		if len(f.Services) > 0 {
			break
		}
	}
	return f, nil
}

// PreviewForget counts the dam states of a customer's services, by any of its names. An *InvalidRequestError for
// a customer without any service and without an open job.
func PreviewForget(ctx context.Context, s ForgetStore, customer string) (f Forgotten, err error) {
	if f, err = find(ctx, s, customer); err != nil {
		return f, err
	}
	open, err := s.ListJobs(ctx, store.JobFilter{Kind: ForgetKind, State: store.JobOpen, Limit: jobsListed})
	if err != nil {
		return f, err
	}
	f.Resumed = slices.ContainsFunc(open, func(j store.Job) bool { return j.Key == f.Customer })
	if len(f.Services) == 0 && !f.Resumed {
		return f, Invalid("the store knows no service of customer %s, under this name or its first one", customer)
	}
	for i := range f.Services {
		one := &f.Services[i]
		for after := ""; ; {
			rows, err := s.ServiceRows(ctx, one.Number, after, page)
			if err != nil {
				return f, err
			}
			for _, r := range rows {
				if one.States++; r.Content != nil && !r.Content.IsRetracted() {
					one.Keeps++
				}
			}
			if len(rows) < page {
				break
			}
			after = rows[len(rows)-1].Entity
		}
		f.States += one.States
	}
	return f, nil
}

// jobsListed bounds the jobs that are searched for an open one.
const jobsListed = 1000

// forgetProgress is the cursor of such a job.
type forgetProgress struct {
	After  string `json:"after"`
	States int64  `json:"states"`
}

// Forget deletes the state, pauses included, of all services of a customer, by any of its names,
// that no configuration has: a job that the same call resumes. It sends nothing.
func Forget(ctx context.Context, s ForgetStore, customer, actor, reason string, shown func(done, total int64)) (f Forgotten, err error) {
	if f, err = find(ctx, s, customer); err != nil {
		return f, err
	}
	parameters, err := json.Marshal(f.Services)
	if err != nil {
		return f, err
	}
	total, err := s.CountEntities(ctx)
	if err != nil {
		return f, err
	}
	job, err := s.OpenJob(ctx, store.Job{Kind: ForgetKind, Key: f.Customer, Parameters: parameters, Total: total, Actor: actor})
	if err != nil {
		return f, err
	}
	crash.At(crash.JobOpened, ForgetKind)
	f.Job, f.Resumed = job.ID, job.Epoch > 1
	// Services are deleted before their states: only the job still has their numbers.
	if err := json.Unmarshal(job.Parameters, &f.Services); err != nil {
		return f, fmt.Errorf("job %d: %w", job.ID, err)
	}
	var at forgetProgress
	if job.Cursor == nil {
		err = s.ForgetServices(ctx, f.numbers(), f.audit("forget", actor, reason))
	} else {
		err = json.Unmarshal(job.Cursor, &at)
	}
	if err != nil {
		return f, fmt.Errorf("job %d: %w", job.ID, err)
	}
	numbers := slices.Sorted(maps.Values(f.numbers()))
	for more := true; more; {
		crash.At(crash.JobAppending, ForgetKind)
		last, dropped, err := s.ForgetStates(ctx, numbers, at.After, page)
		if err != nil {
			return f, err
		}
		crash.At(crash.JobAppended, ForgetKind)
		more = last != ""
		at.After, at.States = last, at.States+dropped
		if f.States = at.States; more {
			job.Done += page
		} else {
			job.Done = job.Total
			err = s.AddAudits(ctx, []store.Audit{f.audit("forget done", actor, reason)})
			crash.At(crash.JobEnded, ForgetKind)
			job.State = store.JobDone
		}
		cursor, encodeErr := json.Marshal(at)
		if err := errors.Join(err, encodeErr); err != nil {
			return f, err
		}
		job.Cursor = cursor
		if err := s.SaveJob(ctx, &job); err != nil {
			return f, err
		}
		crash.At(crash.JobSaved, ForgetKind)
		if shown != nil {
			shown(job.Done, job.Total)
		}
	}
	return f, dropNames(ctx, s, f.Customer)
}

// numbers returns the numbers of the services by name.
func (f *Forgotten) numbers() map[string]int32 {
	all := map[string]int32{}
	for _, one := range f.Services {
		all[one.Service] = one.Number
	}
	return all
}

// audit is a row about the job.
func (f *Forgotten) audit(action, actor, reason string) store.Audit {
	detail, _ := json.Marshal(f) // names and numbers always have a JSON form
	return store.Audit{Actor: actor, Action: action, Reason: reason, Detail: detail}
}
