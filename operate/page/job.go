package page

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/store"
)

// jobSection serves jobs.
type jobSection struct{ *Page }

// Kinds of jobs. One of each is under way at a time.
const (
	jobLetters = "letters" // what is done to dead letters
	jobTasks   = "replay"  // replays and resets, tried or done
)

// jobKinds are the titles of the kinds.
var jobKinds = map[string]string{jobLetters: "Dead letters", jobTasks: "Replay and reset"} //nolint:gochecknoglobals // never written

// defaultPatience is how long a request waits for its job before it shows how
// far it is.
const defaultPatience = 2 * time.Second

// job is work that a request began and that continues without it, until it is done,
// cancelled, or the process ends. The last one of each kind is kept, so that its
// result can be seen later.
type job struct {
	Kind, What string
	Actor      string
	Began      time.Time
	cancel     context.CancelFunc
	ended      chan struct{} // closed when result and err are set
	result     view          // without who looks at it
	template   string
	err        error

	mu          sync.Mutex
	done, total int64 // guarded by mu
}

// outcome is the result of a job: a view and its template.
type outcome struct {
	template string
	view     view
}

// jobs are the jobs of a page. Safe for concurrent use.
type jobs struct {
	mu   sync.Mutex
	last map[string]*job // guarded by mu; by kind
}

func (j *jobs) find(kind string) *job {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.last[kind]
}

func (j *job) finished() bool {
	select {
	case <-j.ended:
		return true
	default:
		return false
	}
}

// progress sets how far the job is; total is 0 when it is unknown.
func (j *job) progress(done, total int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.done, j.total = done, total
}

// run begins a job and answers the request: with its result if that comes soon, else with the
// page that shows how far it is.
func (p *Page) run(w http.ResponseWriter, r *http.Request, who *session, kind, what string, work func(context.Context, *job) (outcome, error)) error {
	j, err := p.start(who, kind, what, work)
	if err != nil {
		return err
	}
	timer := time.NewTimer(p.opt.Patience)
	defer timer.Stop()
	select {
	case <-j.ended:
		return p.showResult(w, who, j)
	case <-timer.C:
		http.Redirect(w, r, "/jobs/"+j.Kind, http.StatusSeeOther) // #nosec G710 -- one of two kinds, a path of this page
	case <-r.Context().Done(): // it continues all the same
	}
	return nil
}

// start begins a job, unless another one of its kind is running or the process is ending.
func (p *Page) start(who *session, kind, what string, work func(context.Context, *job) (outcome, error)) (*job, error) {
	p.jobs.mu.Lock()
	defer p.jobs.mu.Unlock()
	if other := p.jobs.last[kind]; other != nil && !other.finished() {
		return nil, refusal(http.StatusTooManyRequests, fmt.Sprintf("Something of this kind is under way, begun by %s: see /jobs/%s, and try again when it is done.", other.Actor, kind))
	}
	ctx, cancel := context.WithCancel(context.Background())
	j := &job{Kind: kind, What: what, Actor: who.Actor, Began: p.opt.Now(), cancel: cancel, ended: make(chan struct{})}
	ok := p.opt.RunInBackground(func(ending context.Context) {
		defer context.AfterFunc(ending, cancel)()
		defer cancel()
		defer close(j.ended)
		o, err := work(ctx, j)
		j.template, j.result, j.err = o.template, o.view, err
		if ctx.Err() != nil && err != nil {
			done, total := j.at()
			j.err = operate.Invalid("It was cancelled after %d of %d. Completed work stays.", done, max(done, total))
		}
	})
	if !ok {
		cancel()
		return nil, refusal(http.StatusServiceUnavailable, "The process is ending.")
	}
	p.jobs.last[kind] = j
	return j, nil
}

func (j *job) at() (done, total int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.done, j.total
}

// showResult answers with the result of a job that has ended.
func (p *Page) showResult(w http.ResponseWriter, who *session, j *job) error {
	if j.err == nil {
		v := j.result
		v.Session = who
		p.show(w, http.StatusOK, j.template, v)
	}
	return j.err
}

type jobBody struct {
	Kind, What, Actor string
	Began             time.Time
	Done, Total       int64
	Ended             bool
}

// lastJob is the last job of a kind, or nil.
func (p *Page) lastJob(kind string) *jobBody {
	j := p.jobs.find(kind)
	if j == nil {
		return nil
	}
	b := jobBody{Kind: j.Kind, What: j.What, Actor: j.Actor, Began: j.Began, Ended: j.finished()}
	b.Done, b.Total = j.at()
	return &b
}

// view shows the progress of a job, or its result.
func (p jobSection) view(w http.ResponseWriter, r *http.Request, who *session) error {
	kind := r.PathValue("kind")
	j := p.jobs.find(kind)
	switch {
	case jobKinds[kind] == "":
		return errNoJob
	case j == nil:
		return refusal(http.StatusNotFound, "Nothing of this kind was begun since the process started.")
	case j.finished():
		return p.showResult(w, who, j)
	}
	p.show(w, http.StatusOK, "job", view{Title: jobKinds[kind], Section: "/" + kind, Session: who, Live: true, Body: p.lastJob(kind)})
	return nil
}

var errNoJob = refusal(http.StatusNotFound, "There is no such thing.")

// load is the part of a job's page that moves.
func (p jobSection) load(r *http.Request) (any, error) {
	if b := p.lastJob(r.PathValue("kind")); b != nil {
		return b, nil
	}
	return nil, store.ErrNotFound
}

// cancel ends a job where it is.
func (p jobSection) cancel(w http.ResponseWriter, r *http.Request, _ *session) error {
	j := p.jobs.find(r.PathValue("kind"))
	if j == nil {
		return errNoJob
	}
	j.cancel()
	select {
	case <-j.ended:
	case <-r.Context().Done():
	}
	http.Redirect(w, r, "/jobs/"+j.Kind, http.StatusSeeOther)
	return nil
}
