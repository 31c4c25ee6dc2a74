package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/seed-86dfc502/weir/api/auth"
	"github.com/seed-86dfc502/weir/api/problem"
	"github.com/seed-86dfc502/weir/internal/defaults"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"
)

// Authenticator tells who sends a request, by its headers alone.
// auth.Keyring is one.
type Authenticator interface {
	Authenticate(r *http.Request) (auth.Principal, error)
}

// Options of a Server.
type Options struct {
	Access Authenticator
	// Rate is the requests per second that one token may send on the average;
	// two seconds' worth may come at once. Defaults to 2000.
	Rate int
	// Memory bounds, in bytes, the bodies of requests, their records, and the
	// buffers of their connections. Defaults to 128 MiB.
	Memory int64
	// MaxBody bounds a request's body in bytes. Defaults to 16 MiB, and is never more than
	// Memory has room for.
	MaxBody int64
	// MaxRows is the most rows of a batch. Defaults to 1000.
	MaxRows int
	// Timeout bounds the context that Work returns. Defaults to 30s.
	Timeout time.Duration
	// Limit ends the contexts that Work returns: the process has no more time.
	// Optional.
	Limit context.Context
	// Ready returns why no requests can be taken now, nil when they can. Its error
	// is not shown to callers. Optional.
	Ready    func() error
	Registry prometheus.Registerer
	Logger   *slog.Logger
	// AccessLog, if given, gets a line at level info for every request, refused
	// ones included.
	AccessLog *slog.Logger
}

// Handler handles a request of an authenticated caller. It checks that the
// caller may use the route on this resource, see Forbidden.
type Handler func(w http.ResponseWriter, r *http.Request, who auth.Principal)

// Server serves the registered routes. Routes are added before the first request; ServeHTTP and
// Stop may be called concurrently.
type Server struct {
	opt     Options
	mux     *http.ServeMux
	metrics metrics
	memory  *semaphore.Weighted // bytes of bodies and what they become
	under   *semaphore.Weighted // bytes of connections' buffers
	turns   *turns
	stopped atomic.Bool
	// attempts limits wrong tokens.
	attempts *auth.Attempts

	mu     sync.Mutex
	shares map[string]*share        // by the tenant; guarded by mu
	rates  map[string]*rate.Limiter // of requests, by the principal's ID; guarded by mu
}

// share bounds the server's resources that the tokens of one tenant may use together.
type share struct{ memory, under *semaphore.Weighted }

func (o *Options) defaults() {
	o.Rate = defaults.Positive(o.Rate, 2000)
	o.Memory = defaults.Positive(o.Memory, 128<<20)
	o.MaxBody = min(defaults.Positive(o.MaxBody, 16<<20), o.largestBody())
	o.MaxRows = defaults.Positive(o.MaxRows, 1000)
	o.Timeout = defaults.Positive(o.Timeout, 30*time.Second)
	o.Limit = cmp.Or(o.Limit, context.Background())
	if o.Ready == nil {
		o.Ready = func() error { return nil }
	}
}

// New makes a server without routes and registers its metrics.
func New(o Options) *Server {
	o.defaults()
	return &Server{
		opt: o, mux: http.NewServeMux(), metrics: newMetrics(o.Registry),
		memory: semaphore.NewWeighted(o.room()), under: semaphore.NewWeighted(o.places()), turns: newTurns(),
		shares: map[string]*share{}, rates: map[string]*rate.Limiter{},
		attempts: auth.NewAttempts("api", o.Registry, o.Logger, nil),
	}
}

// Handle serves a pattern of http.ServeMux, which names a method, for
// principals that may use the verb. The pattern is the label of the route's metrics.
func (s *Server) Handle(pattern string, verb auth.Permission, h Handler) {
	s.metrics.expect(pattern)
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		q := requestOf(r)
		q.route, q.seen.verb = pattern, verb
		who, ok := s.admit(w, r, verb)
		if !ok {
			return
		}
		if r.ContentLength > s.opt.MaxBody {
			answerTooLarge(w)
			return
		}
		q.share = s.share(who.Tenant)
		place := int64(http1Place)
		if r.ProtoMajor == 2 {
			place = http2Place
		}
		if !begin(q.share.under, s.under, place) {
			Unavailable(w, time.Second, "too many requests are under way")
			return
		}
		defer end(q.share.under, s.under, place)
		r.Body = http.MaxBytesReader(w, r.Body, s.opt.MaxBody)
		h(w, r, who)
	})
}

// HandleOpen serves a pattern to all callers: answers of h are public and cheap.
func (s *Server) HandleOpen(pattern string, h http.Handler) {
	s.metrics.expect(pattern)
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		requestOf(r).route = pattern
		h.ServeHTTP(w, r)
	})
}

// begin takes n of a tenant's and of the common room, if both have it free.
func begin(own, all *semaphore.Weighted, n int64) bool {
	if !own.TryAcquire(n) {
		return false
	}
	if !all.TryAcquire(n) {
		own.Release(n)
		return false
	}
	return true
}

func end(own, all *semaphore.Weighted, n int64) {
	own.Release(n)
	all.Release(n)
}

// admit lets a request of a known route in, or answers it.
func (s *Server) admit(w http.ResponseWriter, r *http.Request, verb auth.Permission) (who auth.Principal, ok bool) {
	if s.stopped.Load() {
		w.Header().Set("Connection", "close")
		Unavailable(w, time.Second, "the process is stopping")
		return who, false
	}
	if err := s.opt.Ready(); err != nil {
		Unavailable(w, time.Second, "the process is not ready")
		return who, false
	}
	who, err := s.opt.Access.Authenticate(r)
	if err != nil {
		w.Header().Set("Connection", "close") // an unknown client keeps no connection
		if len(r.Header.Values("Authorization")) > 0 {
			if wait := s.attempts.NoteFailure(r); wait > 0 {
				RetryAfter(w, wait)
				problem.Write(w, problem.Problem{Status: http.StatusTooManyRequests, Detail: "too many wrong tokens"})
				return who, false
			}
		}
		unauthenticated(w)
		return who, false
	}
	requestOf(r).seen.who = who
	if !who.May(verb, "") {
		Forbidden(w, who)
		return who, false
	}
	reservation := s.rate(who.ID).Reserve()
	if wait := reservation.Delay(); wait > 0 {
		reservation.Cancel()
		RetryAfter(w, wait)
		problem.Write(w, problem.Problem{Status: http.StatusTooManyRequests, Detail: fmt.Sprintf("a token may send %d requests per second", s.opt.Rate)})
		return who, false
	}
	return who, true
}

// share returns the share of a tenant; the file of tokens bounds them.
func (s *Server) share(tenant string) *share {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shares[tenant] == nil {
		s.shares[tenant] = &share{memory: semaphore.NewWeighted(s.opt.tenantRoom()), under: semaphore.NewWeighted(s.opt.places() / 4)}
	}
	return s.shares[tenant]
}

// maxRates bounds the tokens that are remembered; a file may have more.
const maxRates = 10_000

// rate returns the limiter of a token's requests.
func (s *Server) rate(id string) *rate.Limiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found := s.rates[id]; found != nil {
		return found
	}
	if len(s.rates) >= maxRates {
		// An unused rate has nothing to remember.
		for id, old := range s.rates {
			if old.Tokens() >= float64(old.Burst()) {
				delete(s.rates, id)
			}
		}
	}
	s.rates[id] = rate.NewLimiter(rate.Limit(s.opt.Rate), 2*s.opt.Rate)
	return s.rates[id]
}

// Stop answers every later request with 503. Those in flight finish.
func (s *Server) Stop() { s.stopped.Store(true) }

// ServeHTTP takes a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	q := &request{server: s, id: uuid.Must(uuid.NewV7()).String(), route: unknownRoute}
	a := &statusRecorder{ResponseWriter: w}
	w.Header().Set("Request-Id", q.id)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	r = r.WithContext(context.WithValue(r.Context(), requestKey{}, q))
	if s.opt.AccessLog != nil {
		r.Body = &countingBody{r.Body, &q.seen.received}
	}
	aborted := true
	defer func() { s.logAccess(r, q, a, time.Since(began), aborted) }()
	defer func() {
		q.release(0)
		q.endTurn()
		if cause := recover(); cause != nil {
			if err, ok := cause.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(cause)
			}
			s.opt.Logger.Error("a handler of the API panicked; please report this", "event", "api.panicked", "request", q.id, "route", q.route, "stack", string(debug.Stack()))
			if a.status != 0 {
				panic(http.ErrAbortHandler) // half an answer must not look like one
			}
			problem.Write(a, problem.Problem{Status: http.StatusInternalServerError, Detail: "this is a fault of Weir; the log has it under the request's id"})
		}
		s.metrics.count(q.route, a.statusSent(), time.Since(began))
		aborted = false
	}()
	if !s.known(r) {
		s.unknown(a, r)
		return
	}
	s.mux.ServeHTTP(a, r)
}

// known reports whether a route takes the request as it is: the mux would
// redirect one whose path is not clean.
func (s *Server) known(r *http.Request) bool {
	_, pattern := s.mux.Handler(r)
	p := r.URL.EscapedPath()
	return pattern != "" && strings.HasPrefix(p, "/") && path.Clean(p) == p
}

// unknown answers a request that no route takes: 404, or 405 where another
// method would be taken.
func (s *Server) unknown(w http.ResponseWriter, r *http.Request) {
	h, _ := s.mux.Handler(r)
	said := &headerOnly{header: http.Header{}}
	h.ServeHTTP(said, r)
	if allow := said.header.Get("Allow"); said.status == http.StatusMethodNotAllowed && allow != "" {
		w.Header().Set("Allow", allow)
		problem.Write(w, problem.Problem{Status: http.StatusMethodNotAllowed, Detail: "this path takes " + allow})
		return
	}
	NotFound(w, "there is nothing at this path")
}

// headerOnly is a response writer that drops the body.
type headerOnly struct {
	header http.Header
	status int
}

func (d *headerOnly) Header() http.Header         { return d.header }
func (d *headerOnly) Write(b []byte) (int, error) { return len(b), nil }
func (d *headerOnly) WriteHeader(status int)      { d.status = status }

// Forbidden answers a caller without the right to its request: 403, or 401
// where it has shown no token.
func Forbidden(w http.ResponseWriter, who auth.Principal) {
	if who.Anonymous() {
		unauthenticated(w)
		return
	}
	problem.Write(w, problem.Problem{Status: http.StatusForbidden, Detail: "the token does not give the right to this"})
}

// NotFound answers 404.
func NotFound(w http.ResponseWriter, detail string) {
	problem.Write(w, problem.Problem{Status: http.StatusNotFound, Detail: detail})
}

// Unavailable answers 503: the request may be sent again after a while.
func Unavailable(w http.ResponseWriter, after time.Duration, detail string) {
	RetryAfter(w, after)
	problem.Write(w, problem.Problem{Status: http.StatusServiceUnavailable, Detail: detail})
}

func unauthenticated(w http.ResponseWriter) {
	w.Header().Set("WWW-Authenticate", `Bearer realm="weir"`)
	problem.Write(w, problem.Problem{Status: http.StatusUnauthorized, Detail: auth.ErrUnauthenticated.Error()})
}

func answerTooLarge(w http.ResponseWriter) {
	w.Header().Set("Connection", "close")
	problem.Write(w, problem.Problem{Status: http.StatusRequestEntityTooLarge, Detail: "the request is larger than the limit"})
}

// RetryAfter says in whole seconds when to retry, at least one.
func RetryAfter(w http.ResponseWriter, d time.Duration) {
	w.Header().Set("Retry-After", strconv.Itoa(max(1, int(math.Ceil(d.Seconds())))))
}
