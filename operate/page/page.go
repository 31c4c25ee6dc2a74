package page

import (
	"bytes"
	"context"
	"crypto/subtle"
	"embed"
	"errors"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/seed-86dfc502/weir/api/auth"
	"github.com/seed-86dfc502/weir/config"
	"github.com/seed-86dfc502/weir/deliver"
	"github.com/seed-86dfc502/weir/internal/defaults"
	"github.com/seed-86dfc502/weir/operate"
	"github.com/seed-86dfc502/weir/operate/history"
	"github.com/seed-86dfc502/weir/store"
	"golang.org/x/sync/semaphore"
)

// Options say which process a page is about. All fields are needed unless they
// say otherwise; functions may be called from any goroutine.
type Options struct {
	// Config returns the configuration that runs now.
	Config func() *config.Config
	Store  Store
	// Tools returns the environment of actions. The page sets its Actor.
	Tools func(context.Context) (*operate.Env, error)
	// History has the counters, past and present.
	History *history.Recorder
	// Roles are the stages that this process runs, of ingest and work.
	Roles []string
	// Pause pauses deliveries to a service, or resumes them, in all processes, and records it.
	Pause func(ctx context.Context, service string, on bool, actor, why string) error
	// Probe makes a service retry now. It returns false when this process does not deliver it.
	Probe func(service string) bool
	// Health says how the process and its services are doing.
	Health func() operate.Health
	// Conditions returns how each service that this process delivers is doing.
	Conditions func() map[string]deliver.Condition
	// Attempts limits wrong tokens.
	Attempts *auth.Attempts
	// Token is the configured one. If set, reading needs it too.
	Token string
	// OwnToken, if set, signs in as well. OwnFile is the file that holds it.
	OwnToken, OwnFile string
	Logger            *slog.Logger
	// RunInBackground runs f on a goroutine of its own. The end of the process cancels its
	// context and waits for it. It returns false without running f when the process is ending.
	RunInBackground func(f func(ending context.Context)) bool
	// Patience is how long a request waits for its job before it shows the job's progress.
	// Defaults to 2s.
	Patience time.Duration
	// Now is the clock of sessions and rates; nil is time.Now.
	Now func() time.Time
}

//go:embed templates static
var files embed.FS

// Bounds of a request, in bytes.
const (
	maxForm   = 1 << 20
	maxSignIn = 8 << 10
)

// Store is the page's view of the store.
type Store interface {
	operate.Store
	Active(ctx context.Context) (store.Revision, error)
	Revisions(ctx context.Context, limit int) ([]store.Revision, error)
	GroupLetters(ctx context.Context, f store.LetterFilter, limit int) ([]store.LetterGroup, error)
}

// Page is the handler. Made by New; safe for concurrent use. It is to be served
// behind auth.Guard.
type Page struct {
	opt       Options
	templates map[string]*template.Template
	names     atomic.Pointer[serviceNames]
	sessions  *tokens[*session]
	links     *tokens[string] // of actors
	jobs      jobs
	handler   http.Handler
	cookie    string // name of sessions' cookies
	// places of requests under way
	operators, strangers *semaphore.Weighted
}

// New makes a page. It never fails: its templates are part of the program.
func New(o Options) *Page {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Patience = defaults.Positive(o.Patience, defaultPatience)
	p := &Page{
		opt: o, cookie: newCookieName(), sessions: newTokens[*session](sessionLife, maxSessions, o.Now), links: newTokens[string](linkLife, maxLinks, o.Now),
		jobs:      jobs{last: map[string]*job{}},
		operators: semaphore.NewWeighted(requestsAtATime), strangers: semaphore.NewWeighted(requestsAtATime),
	}
	p.templates = p.parse()
	overview, services, sources, history, system := overviewSection{p}, serviceSection{p}, sourceSection{p}, historySection{p}, systemSection{p}
	entities, letters, audit, tasks, jobs := entitySection{p}, letterSection{p}, auditSection{p}, taskSection{p}, jobSection{p}
	signIns := signInSection{p}
	mux := http.NewServeMux()
	assets := http.FileServerFS(files)
	mux.HandleFunc("GET /static/", func(w http.ResponseWriter, r *http.Request) {
		if who, ok := p.authenticate(w, r); ok {
			p.withPlace(w, who, func() { assets.ServeHTTP(w, r) })
		}
	})
	mux.HandleFunc("GET /sign-in", signIns.form)
	mux.HandleFunc("POST /sign-in", signIns.signIn)
	for path, f := range map[string]handler{
		"/":         func(http.ResponseWriter, *http.Request, *session) error { return store.ErrNotFound },
		"/services": p.page("services", services.list), "/live/services": p.part("services-live", services.load),
		"/{$}": p.page("overview", overview.view), "/live/overview": p.part("overview-live", overview.load),
		"/sources": p.page("sources", sources.list), "/live/sources": p.part("sources-live", sources.load),
		"/service": p.page("service", services.view), "/live/service": p.part("service-live", services.row), "/sources/{name}": p.page("source", sources.view),
		"/history": p.page("history", history.view), "/live/history": p.part("plots", history.load),
		"/entities": p.page("entities", entities.list), "/explain": p.page("explain", entities.view),
		"/letters": p.page("letters", letters.list), "/letters/{id}": p.page("letter", letters.view), "/letters/{id}/payload": letters.payload,
		"/replay": p.page("replay", tasks.form), "/jobs/{kind}": jobs.view, "/live/jobs/{kind}": p.part("job-live", jobs.load),
		"/system": p.page("system", system.view), "/audit": p.page("audit", audit.view),
	} {
		mux.HandleFunc("GET "+path, p.handleRead(f))
	}
	for path, f := range map[string]handler{
		"/sign-out": signIns.signOut, "/service": services.act, "/letters": letters.act, "/replay": tasks.begin, "/jobs/{kind}/cancel": jobs.cancel,
	} {
		mux.HandleFunc("POST "+path, p.handleWrite(f))
	}
	p.handler = mux
	return p
}

// policy lets a page load its own style and script, and post to itself.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// ServeHTTP answers one request.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	// no-referrer would make the Origin of our own forms null.
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	p.handler.ServeHTTP(w, r)
}

// handler answers a request of an operator, nil without a session. Its error is answered by
// renderError.
type handler func(w http.ResponseWriter, r *http.Request, who *session) error

// handleRead wraps a handler that only reads.
func (p *Page) handleRead(f handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		who, ok := p.authenticate(w, r)
		switch {
		case !ok:
		case who == nil && p.opt.Token != "" && strings.HasPrefix(r.URL.Path, "/live/"):
			http.Error(w, "signed out", http.StatusUnauthorized)
		case who == nil && p.opt.Token != "":
			http.Redirect(w, r, "/sign-in?next="+url.QueryEscape(r.URL.RequestURI()), http.StatusSeeOther)
		default:
			p.withPlace(w, who, func() { p.renderError(w, r, f(w, r, who)) })
		}
	}
}

// requestsAtATime bounds the concurrent requests of operators, and separately those of other
// clients: each holds its answer in memory until the client reads it.
const requestsAtATime = 64

// withPlace serves a request when a place is free. Operators and clients that did not
// sign in have places of their own, so neither shuts the other out.
func (p *Page) withPlace(w http.ResponseWriter, who *session, serve func()) {
	places := p.strangers
	if who != nil {
		places = p.operators
	}
	if !places.TryAcquire(1) {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "too many requests are under way", http.StatusServiceUnavailable)
		return
	}
	defer places.Release(1)
	serve()
}

// handleWrite wraps a handler that changes something: it requires a session, a form of that
// session, and a bounded size. A request with a bearer token needs no form: browsers never send
// such tokens unasked.
func (p *Page) handleWrite(f handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if who, ok := p.authenticate(w, r); ok {
			p.withPlace(w, who, func() {
				err := p.readForm(w, r, who)
				if err == nil {
					err = f(w, r, who)
				}
				p.renderError(w, r, err)
			})
		}
	}
}

// readForm reads the form of an operator.
func (p *Page) readForm(w http.ResponseWriter, r *http.Request, who *session) error {
	if who == nil {
		return refusal(http.StatusForbidden, "Sign in first: "+p.signInHint())
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	err := r.ParseForm()
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return refusal(http.StatusRequestEntityTooLarge, "That is too large for the page. The commands take more.")
	case err != nil:
		return refusal(http.StatusBadRequest, "The form cannot be read.")
	case who.form != "" && subtle.ConstantTimeCompare([]byte(r.PostForm.Get("form")), []byte(who.form)) != 1:
		return refusal(http.StatusForbidden, "The form is not of this session: load the page again.")
	}
	// The listener's deadline is for reading the request. The work may take longer.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	return nil
}

// view is what every template gets.
type view struct {
	Title, Section string
	Session        *session
	SignInHint     string // how to sign in; empty if sign-in is off
	Notice         string
	Live           bool // without script the page loads itself again
	Body           any
}

// section is an entry of the navigation.
type section struct{ Path, Name, Group string }

var sections = []section{
	{"/", "Overview", "Watch"}, {"/services", "Services", "Watch"}, {"/sources", "Sources", "Watch"}, {"/history", "History", "Watch"}, {"/system", "System", "Watch"},
	{"/entities", "Entities", "Look up"}, {"/letters", "Dead letters", "Look up"}, {"/audit", "Audit", "Look up"},
	{"/replay", "Replay and reset", "Change"},
}

func (p *Page) parse() map[string]*template.Template {
	all := map[string]*template.Template{}
	base := template.New("").Funcs(functions).Funcs(template.FuncMap{
		"service_name": func(name string) template.HTML { return breakable(p.current(name)) },
		"lettersOf": func(service string) string {
			return "/letters?" + query("service", p.current(service), "state", "open")
		},
		"lettersBy": func(g store.LetterGroup) string {
			return "/letters?" + query("stage", string(g.Stage), "source", g.Source, "service", p.current(g.Service), "code", g.Code, "entity", g.Entity)
		},
	})
	base = template.Must(base.ParseFS(files, "templates/layout.html", "templates/live.html"))
	entries, err := fs.ReadDir(files, "templates")
	if err != nil {
		panic(err) // it is embedded
	}
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".html"); ok && name != "layout" && name != "live" {
			all[name] = template.Must(template.Must(base.Clone()).ParseFS(files, "templates/"+e.Name()))
		}
	}
	all["live"] = base
	return all
}

// show answers with a page.
func (p *Page) show(w http.ResponseWriter, status int, name string, v view) {
	if v.Session != nil && v.Notice == "" {
		v.Notice = v.Session.takeNotice()
	}
	if p.canSignIn() {
		v.SignInHint = p.signInHint()
	}
	p.render(w, status, name, "layout", v)
}

// page serves the page of a template. load returns its view, without the session.
func (p *Page) page(name string, load func(*http.Request) (view, error)) handler {
	return func(w http.ResponseWriter, r *http.Request, who *session) error {
		v, err := load(r)
		if err == nil {
			v.Session = who
			p.show(w, http.StatusOK, name, v)
		}
		return err
	}
}

// part serves the part of a page that the script renews.
func (p *Page) part(name string, load func(*http.Request) (any, error)) handler {
	return func(w http.ResponseWriter, r *http.Request, _ *session) error {
		b, err := load(r)
		switch {
		case errors.Is(err, store.ErrNotFound):
			http.Error(w, "there is none", http.StatusNotFound)
		case err != nil:
			http.Error(w, "the metrics cannot be read", http.StatusInternalServerError)
		default:
			p.render(w, http.StatusOK, "live", name, b)
		}
		return nil
	}
}

// render runs a template into memory first: an answer is whole or an error.
func (p *Page) render(w http.ResponseWriter, status int, name, part string, data any) {
	var b bytes.Buffer
	if err := p.templates[name].ExecuteTemplate(&b, part, data); err != nil {
		p.opt.Logger.Error("page cannot be rendered", "event", "page.failed", "page", name, "error", err)
		http.Error(w, "this page cannot be made", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(showMarks(b.Bytes())) // a closed connection needs no answer
}

// renderMessage answers with a page that holds one sentence.
func (p *Page) renderMessage(w http.ResponseWriter, r *http.Request, status int, sentence string) {
	v := view{Title: http.StatusText(status), Body: sentence}
	if cookie, err := r.Cookie(p.cookieName(r)); err == nil {
		v.Session, _ = p.sessions.find(cookie.Value)
	}
	p.show(w, status, "message", v)
}

// refused is the error of a request that is answered with a status and one sentence.
type refused struct {
	status   int
	sentence string
}

// Error returns the sentence.
func (e *refused) Error() string { return e.sentence }

func refusal(status int, sentence string) error { return &refused{status, sentence} }

// renderError answers with an error: of the request, or of the store and the process. Nil is
// answered already.
func (p *Page) renderError(w http.ResponseWriter, r *http.Request, err error) {
	var no *operate.InvalidRequestError
	var plain *refused
	switch {
	case err == nil:
	case errors.As(err, &plain):
		p.renderMessage(w, r, plain.status, plain.sentence)
	case errors.As(err, &no):
		p.renderMessage(w, r, http.StatusConflict, no.Reason)
	case errors.Is(err, store.ErrNotFound):
		p.renderMessage(w, r, http.StatusNotFound, "There is no such page.")
	default:
		p.renderMessage(w, r, http.StatusServiceUnavailable, err.Error())
	}
}

// runs reports whether this process runs a stage.
func (p *Page) runs(stage string) bool { return slices.Contains(p.opt.Roles, stage) }

// env returns the environment of an operator's actions.
func (p *Page) env(ctx context.Context, who *session) (*operate.Env, error) {
	env, err := p.opt.Tools(ctx)
	if err == nil {
		env.Actor = who.Actor
	}
	return env, err
}
