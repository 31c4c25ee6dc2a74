package checkhttp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/seed-86dfc502/weir/api"
	"github.com/seed-86dfc502/weir/api/auth"
	"github.com/seed-86dfc502/weir/api/checks"
	"github.com/seed-86dfc502/weir/api/problem"
	"github.com/seed-86dfc502/weir/canonicaltree"
	"github.com/seed-86dfc502/weir/change"
	"github.com/seed-86dfc502/weir/internal/defaults"
	"golang.org/x/time/rate"
)

// Options of the routes.
type Options struct {
	Checker *checks.Checker
	// Find returns the service of a name. The error is ErrNoService, or one of the store.
	Find func(ctx context.Context, name string) (checks.Service, error)
	// MaxRows is the most rows of a batch. Defaults to 1,000.
	MaxRows int
	// MaxBody bounds a body in bytes; 0 is the server's own bound.
	MaxBody int64
	// MaxEntity is the longest entity id in bytes. Defaults to 512.
	MaxEntity int
	// Logger gets, from time to time, why requests could not be decided.
	Logger *slog.Logger
}

// ErrNoService is what Options.Find returns for a name that no check service has.
var ErrNoService = errors.New("there is no such check service")

// routes serves the API of checks.
type routes struct {
	Options
	sometimes rate.Sometimes // of what is logged
}

// Mount adds the routes to a server, each with the service's name in one path
// segment (its slash escaped) and in two:
//
//	POST /v1/services/{service}/check            /check:batch
//	POST /v1/services/{service}/confirm          /confirm:batch
//	POST /v1/services/{service}/release          /release:batch
func Mount(s *api.Server, o Options) {
	o.MaxRows = defaults.Positive(o.MaxRows, 1000)
	o.MaxEntity = defaults.Positive(o.MaxEntity, 512)
	a := &routes{Options: o, sometimes: rate.Sometimes{Interval: 10 * time.Second}}
	route(s, a, "check", decoder.check, o.Checker.Check, checked)
	route(s, a, "confirm", decoder.confirm, o.Checker.Confirm, confirmed)
	route(s, a, "release", decoder.release, o.Checker.Release, released)
}

// Checked is the answer to a check.
type Checked struct {
	Decision checks.Decision `json:"decision"`
	// Version of the pass; else that of the current content.
	Version change.Version `json:"version"`
	// Key of a pass.
	Key      string `json:"idempotency_key,omitempty"`
	Repeated bool   `json:"repeated,omitempty"`
}

func checked(a checks.Answer) any { return Checked{a.Decision, a.Version, a.Key, a.Repeated} }

// Confirmed is the answer to a confirmation.
type Confirmed struct {
	// Version is the highest that is confirmed.
	Version change.Version `json:"confirmed_version"`
}

func confirmed(v change.Version) any { return Confirmed{v} }

// States after a release.
const (
	StateDelivered = "delivered" // the content that was delivered last
	StateUnknown   = "unknown"   // none: the next content passes
)

// Released is the answer to a release.
type Released struct {
	Released bool `json:"released"`
	// Version is the version of the last pass.
	Version change.Version `json:"version"`
	// State is StateDelivered or StateUnknown, absent when nothing was released.
	State string `json:"state,omitempty"`
}

func released(r checks.Released) any {
	a := Released{Released: r.Done, Version: r.Version}
	switch {
	case r.Done && r.Known:
		a.State = StateDelivered
	case r.Done:
		a.State = StateUnknown
	}
	return a
}

// Row is one row of the answer to a batch: an answer, or a problem.
type Row struct {
	Index  int
	Answer any
	Error  *problem.Problem
}

// MarshalJSON puts the index beside the members of the answer.
func (r Row) MarshalJSON() ([]byte, error) {
	if r.Error != nil {
		return json.Marshal(struct {
			Index int              `json:"index"`
			Error *problem.Problem `json:"error"`
		}{r.Index, r.Error})
	}
	text, err := json.Marshal(r.Answer)
	if err != nil {
		return nil, err
	}
	return append(fmt.Appendf(nil, `{"index":%d,`, r.Index), text[1:]...), nil
}

// route mounts a verb, single and batch, under both forms of the service's name.
func route[R, T any](s *api.Server, a *routes, verb string, decode func(decoder, canonicaltree.Node) (R, error),
	run func(context.Context, checks.Service, []R) ([]checks.Result[T], error), answer func(T) any) {
	for _, batch := range []bool{false, true} {
		path := "/" + verb
		if batch {
			path += ":batch"
		}
		handle := func(w http.ResponseWriter, r *http.Request, who auth.Principal) {
			name := r.PathValue("service")
			if name == "" {
				name = r.PathValue("customer") + "/" + r.PathValue("name")
			}
			if !who.May(auth.Check, name) {
				api.Forbidden(w, who)
				return
			}
			lines, err := linesOf(r.Header, batch)
			if err != nil {
				problem.Write(w, problem.Problem{Status: http.StatusUnsupportedMediaType, Detail: err.Error()})
				return
			}
			ctx, cancel := api.Work(r)
			defer cancel()
			service, err := a.Find(ctx, name)
			if err != nil {
				write(w, a.problemOf(err))
				return
			}
			form := api.Rows{}
			if batch {
				form = api.Rows{Most: a.MaxRows, Lines: lines, AtOnce: true}
			}
			body, ok := api.ReadBody(w, r, a.MaxBody, form)
			if !ok {
				return
			}
			d := decoder{numbers: service.Numbers, maxEntity: a.MaxEntity}
			ask := func(rows []row) ([]Row, error) {
				return answers(a, rows, func(n canonicaltree.Node) (R, error) { return decode(d, n) },
					func(rs []R) ([]checks.Result[T], error) { return run(ctx, service, rs) }, answer)
			}
			if batch {
				a.serveBatch(w, form, body, ask)
			} else {
				a.serveOne(w, body, ask)
			}
		}
		s.Handle("POST /v1/services/{service}"+path, auth.Check, handle)
		s.Handle("POST /v1/services/{customer}/{name}"+path, auth.Check, handle)
	}
}

func (a *routes) serveOne(w http.ResponseWriter, body []byte, ask func([]row) ([]Row, error)) {
	tree, err := canonicaltree.Parse(body)
	if err != nil {
		problem.Write(w, problem.Problem{Status: http.StatusBadRequest, Detail: "the body is not JSON: " + err.Error()})
		return
	}
	defer tree.Release()
	rows, err := ask([]row{{node: tree.Root()}})
	switch {
	case err != nil:
		write(w, a.problemOf(err))
	case rows[0].Error != nil:
		write(w, *rows[0].Error)
	default:
		send(w, rows[0].Answer)
	}
}

func (a *routes) serveBatch(w http.ResponseWriter, form api.Rows, body []byte, ask func([]row) ([]Row, error)) {
	values, ok := form.Split(w, body)
	if !ok {
		return
	}
	rows, done := parse(values)
	defer done()
	all, err := ask(rows)
	if err != nil {
		write(w, a.problemOf(err))
		return
	}
	send(w, struct {
		Rows []Row `json:"rows"`
	}{all})
}

// answers decides the rows that can be read. The error is one of all rows.
func answers[R, T any](a *routes, rows []row, decode func(canonicaltree.Node) (R, error),
	run func([]R) ([]checks.Result[T], error), answer func(T) any) ([]Row, error) {
	all := make([]Row, len(rows))
	requests, places := make([]R, 0, len(rows)), make([]int, 0, len(rows))
	for i, in := range rows {
		all[i].Index = i
		request, err := *new(R), in.err
		if err == nil {
			request, err = decode(in.node)
		}
		if err != nil {
			all[i].Error = new(a.problemOf(err))
			continue
		}
		requests, places = append(requests, request), append(places, i)
	}
	if len(requests) == 0 {
		return all, nil
	}
	results, err := run(requests)
	if err != nil {
		return nil, err
	}
	for n, r := range results {
		out := &all[places[n]]
		if r.Err != nil {
			out.Error = new(a.problemOf(r.Err))
		} else {
			out.Answer = answer(r.Value)
		}
	}
	return all, nil
}

// problemOf tells a caller about an error.
func (a *routes) problemOf(err error) problem.Problem {
	var refused refusal
	var unread malformed
	switch {
	case errors.As(err, &unread):
		return problem.Problem{Type: problem.Kind("invalid-check"), Title: "The request cannot be read", Status: http.StatusBadRequest, Detail: err.Error()}
	case errors.As(err, &refused), errors.Is(err, checks.ErrEntity), errors.Is(err, checks.ErrSequence):
		return problem.Problem{Type: problem.Kind("invalid-check"), Title: "The request is refused", Status: http.StatusUnprocessableEntity, Detail: err.Error()}
	case errors.Is(err, checks.ErrUnknownVersion):
		return problem.Problem{Type: problem.Kind("unknown-version"), Title: "Unknown version", Status: http.StatusConflict,
			Detail: "that version of the entity was never given, as far as the store knows"}
	case errors.Is(err, ErrNoService):
		return problem.Problem{Status: http.StatusNotFound, Detail: "there is no such check service"}
	case errors.Is(err, checks.ErrOverloaded):
		return unavailable("too many requests are queued")
	case errors.Is(err, checks.ErrContended):
		return unavailable("the entity is being decided elsewhere all the time")
	case errors.Is(err, checks.ErrClosed):
		return unavailable("the process is stopping")
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return unavailable("it took too long; it may have been decided")
	}
	a.sometimes.Do(func() {
		if a.Logger != nil {
			a.Logger.Warn("checks cannot be decided; callers have to retry", "event", "api.checks_undecided", "error", err)
		}
	})
	return unavailable("the store cannot be reached; it may have been decided")
}

func unavailable(why string) problem.Problem {
	return problem.Problem{Type: problem.Kind("not-decided"), Title: "Not decided", Status: http.StatusServiceUnavailable, Detail: why + "; send the request again"}
}

func write(w http.ResponseWriter, p problem.Problem) {
	if p.Status == http.StatusServiceUnavailable {
		api.RetryAfter(w, time.Second)
	}
	problem.Write(w, p)
}

func send(w http.ResponseWriter, answer any) {
	text, err := json.Marshal(answer)
	if err != nil { // answers of this package always have a JSON form
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(text, '\n'))
}
